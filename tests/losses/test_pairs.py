"""Pair losses, losses on pairs of a class, and ranked list: options, weights, edges. Their loops: test_family.py."""

from dataclasses import replace

import pytest
import torch
from support.miners import FixedWeights

from contml import losses as library
from contml.losses.pair_weights import pair_weights

#: Losses that read every pair of an anchor.
PAIRS = {
    "contrastive": library.ContrastiveLoss,
    "contrastive, euclidean": lambda **data: library.ContrastiveLoss(distance="euclidean", **data),
    "lifted_structure": library.LiftedStructureLoss,
    "binomial_deviance": library.BinomialDevianceLoss,
    "raw": library.RAWLoss,
    "ranked_list": library.RankedListLoss,
}
PAIRS_OF_A_CLASS = {"n_pairs": library.NPairsLoss, "angular": library.AngularLoss}
#: Classes 3 and 0 have pairs, (0, 2) and (3, 4); 5 is a third of class 0; 7 and 8 are alone.
CLASSES = torch.tensor([3, 7, 3, 0, 0, 0, 8])


def batch(items, dim=5, seed=0, scale=0.6):
    return scale * torch.randn(items, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# ---------------------------------------------------------------------------------------------------------------------
# a miner's weights


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("block_rows", [None, 1, 2])
def test_pairs_that_a_comparison_excludes_are_not_there(name, block_rows):
    # As with a memory: seven items of a batch and three remembered ones, of which item 8 is item 3 again, and 9 item 1.
    # A memory's embeddings have drifted.
    x, classes = batch(10, seed=11), torch.tensor([3, 7, 3, 0, 4, 5, 8, 4, 0, 7])
    again = torch.zeros(10, 10, dtype=torch.bool)
    again[3, 8] = again[1, 9] = True
    for anchors in (torch.arange(7), torch.tensor([5, 3, 4, 0, 1])):
        loss, mined = PAIRS[name](), PAIRS[name](miner=FixedWeights((~again).double()))
        loss.block_rows = mined.block_rows = block_rows
        ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        comparison = loss.compare(ours, classes, anchors)
        excluding = replace(comparison, excluded=lambda part, anchors=anchors: again[anchors[part]])
        value, expected = loss.value(excluding), mined(theirs, classes, anchors=anchors)
        assert torch.equal(value, expected)
        assert torch.equal(torch.autograd.grad(value, ours)[0], torch.autograd.grad(expected, theirs)[0])
        assert not torch.equal(value, loss.value(comparison))


# ---------------------------------------------------------------------------------------------------------------------
# pairs of a class


@pytest.mark.parametrize("name", PAIRS_OF_A_CLASS)
def test_an_anchor_given_twice_counts_twice(name):
    x = batch(7, seed=9)
    loss = PAIRS_OF_A_CLASS[name](**{"l2": 0.0} if name == "n_pairs" else {})
    of_0, of_3 = (loss(x, CLASSES, anchors=torch.tensor([a])) for a in (0, 3))
    torch.testing.assert_close(loss(x, CLASSES, anchors=torch.tensor([0, 3, 0])), (2 * of_0 + of_3) / 3)
    once, twice = (pair_weights(loss, x, CLASSES, anchors=torch.tensor(a)) for a in ([3, 0, 6], [3, 0, 3, 6]))
    assert torch.equal(twice, once[[0, 1, 0, 2]])
    assert once[0].any()
    with_partner = pair_weights(loss, x, CLASSES, anchors=torch.tensor([3, 4, 3]))
    assert torch.equal(with_partner[[0, 2]], pair_weights(loss, x, CLASSES)[[3, 3]])
