"""The cross-batch memory: equal to comparing with what was remembered, anchor by anchor; a ring; resumable; refused
where it has no use."""

from __future__ import annotations

import copy

import pytest
import reference
import torch

from contml.config import data_arguments
from contml.contracts import InputError
from contml.labels import ClassLabels, NearestLabels, ThresholdLabels, VectorLabels
from contml.losses import LOSSES, LogRatioLoss, MarginLoss, ProxyAnchorLoss, RowLoss, TripletMarginLoss
from contml.losses.memory import CrossBatchMemory
from contml.mining import MINERS, VTHM
from contml.training import check_labels

DIM, ITEMS, SIZE = 5, 30, 12
#: Losses that a memory takes, whose values add up anchor by anchor.
ADDITIVE = [name for name, loss in LOSSES.items() if loss.sides is RowLoss.sides and not loss.whole]
REFUSED = [name for name, loss in LOSSES.items() if loss.sides is not RowLoss.sides]


def make(name, **given):
    data = {"num_classes": 4, "embedding_dim": DIM, **given}
    torch.manual_seed(1)
    return LOSSES[name](**{key: data[key] for key in data_arguments(LOSSES[name]) if key in data})


def space_of(loss):
    torch.manual_seed(2)
    return VectorLabels(torch.randn(ITEMS, 2)) if loss.labels == "distances" else ClassLabels(torch.arange(ITEMS) % 4)


def batches(count=6, size=5, items=ITEMS, seed=0):
    """Embeddings and rows of some batches; rows come again, so that anchors meet themselves."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        rows = torch.randperm(items // 3, generator=generator)[:size]
        yield torch.randn(size, DIM, generator=generator, dtype=torch.float64), rows


class Slow:
    """A memory as a list of pairs (embedding, row); each anchor is compared with all but itself and its own row."""

    def __init__(self, loss, space, size):
        self.loss, self.space, self.size, self.items = loss, space, size, []

    def __call__(self, embeddings, rows, anchors=None):
        total = torch.zeros((), dtype=torch.float64)
        counts = torch.zeros((), dtype=torch.float64)
        for a in range(len(rows)) if anchors is None else anchors.tolist():
            others = [(x, row) for x, row in self.items if row != int(rows[a])]
            x = torch.cat((embeddings, *(x[None] for x, _ in others)))
            at = torch.cat((rows, torch.tensor([row for _, row in others], dtype=torch.int64)))
            value, count = self.loss.sums(x, self.space.view(at), anchors=torch.tensor([a]))
            total, counts = total + value, counts + count
        self.items = [*self.items, *((x, int(row)) for x, row in zip(embeddings.detach(), rows, strict=True))]
        self.items = self.items[-self.size :]
        return (total / torch.where(counts > 0, counts, 1)).sum()


@pytest.mark.parametrize("block_rows", [None, 2])
@pytest.mark.parametrize("name", ADDITIVE)
def test_each_anchor_meets_the_batch_and_what_is_remembered_but_itself(name, block_rows):
    loss = make(name).double()
    space = space_of(loss)
    slow, memory = Slow(copy.deepcopy(loss), space, SIZE), CrossBatchMemory(SIZE, 0, loss=loss)
    loss.block_rows = block_rows
    for embeddings, rows in batches(4):
        ours, theirs = embeddings.clone().requires_grad_(), embeddings.clone().requires_grad_()
        a, b = memory(ours, space.view(rows)), slow(theirs, rows)
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
        gradients = [torch.autograd.grad(value, leaf)[0] for value, leaf in ((a, ours), (b, theirs))]
        torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-10)
    assert len(memory) == SIZE


# Draws depend on where the items stand.
@pytest.mark.parametrize("miner", [name for name, miner in MINERS.items() if "seed" not in data_arguments(miner)])
@pytest.mark.parametrize("anchors", [None, torch.tensor([3, 0])])
def test_miners_choose_among_the_remembered(miner, anchors):
    loss = make("contrastive", miner=MINERS[miner]()).double()
    space = space_of(loss)
    slow, memory = Slow(copy.deepcopy(loss), space, SIZE), CrossBatchMemory(SIZE, 0, loss=loss)
    for embeddings, rows in batches():
        a, b = memory(embeddings, space.view(rows), anchors=anchors), slow(embeddings, rows, anchors)
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_drawn_negatives_leave_the_anchor_itself_out():
    loss = MarginLoss(miner=MINERS["distance_weighted"]()).double()
    space = ClassLabels(torch.arange(ITEMS))  # no positives: no draw, whatever is remembered
    memory = CrossBatchMemory(SIZE, 0, loss=loss)
    for embeddings, rows in batches():
        assert memory(embeddings, space.view(rows)).item() == 0


def test_log_ratio_equals_its_loop():
    space, remembered = VectorLabels(torch.arange(ITEMS).double() ** 1.5), []
    memory = CrossBatchMemory(SIZE, 0, loss=LogRatioLoss())
    for embeddings, rows in batches(3):
        values = []
        for a in range(len(rows)):
            others = [(x, row) for x, row in remembered if row != rows[a]]
            at = torch.cat((rows, torch.tensor([row for _, row in others], dtype=torch.int64)))
            x = torch.cat((embeddings, *(x[None] for x, _ in others)))
            values.append(reference.log_ratio(x, space.pairwise(rows[[a]], at).double(), torch.tensor([a])))
        ours = memory(embeddings, space.view(rows))
        torch.testing.assert_close(ours, torch.stack(values).mean(), rtol=1e-6, atol=0)  # labels are float32
        remembered += zip(embeddings, rows, strict=True)
        remembered = remembered[-SIZE:]


@pytest.mark.parametrize("loss", [LOSSES["dro"](), LOSSES["dro"](uncertainty="kl")], ids=["topk", "kl"])
def test_a_loss_of_all_pairs_at_once(loss):
    loss = loss.double()
    space, memory = ClassLabels(torch.arange(ITEMS) % 4), CrossBatchMemory(SIZE, 0, loss=loss)
    seen, rows = [], torch.arange(ITEMS).split(5)
    for (embeddings, _), at in zip(batches(3), rows, strict=False):  # no item comes twice
        seen.insert(0, (embeddings, at))
        x, every = (torch.cat(parts) for parts in zip(*seen, strict=True))
        expected = loss(x, space.view(every), anchors=torch.arange(5))
        torch.testing.assert_close(memory(embeddings, space.view(at)), expected, rtol=1e-10, atol=0)


@pytest.mark.parametrize("view", ["threshold", "nearest"])
def test_labels_that_are_views_of_others(view):
    vectors = VectorLabels(torch.arange(ITEMS).double())
    space = ThresholdLabels(9.0, space=vectors) if view == "threshold" else NearestLabels(3, space=vectors)
    loss = TripletMarginLoss().double()
    slow, memory = Slow(copy.deepcopy(loss), space, SIZE), CrossBatchMemory(SIZE, 0, loss=loss)
    for embeddings, rows in batches():
        torch.testing.assert_close(memory(embeddings, space.view(rows)), slow(embeddings, rows), rtol=1e-10, atol=1e-10)


def test_integer_classes_and_a_view_say_the_same_where_no_item_comes_again():
    space = ClassLabels(torch.arange(ITEMS) % 4)
    by_view, by_ids = (CrossBatchMemory(SIZE, 0, loss=TripletMarginLoss()) for _ in range(2))
    for (embeddings, _), rows in zip(batches(6), torch.arange(ITEMS).split(5), strict=True):
        ids = (space.classes[rows] * 17 - 5).int()
        assert torch.equal(by_view(embeddings, space.view(rows)), by_ids(embeddings, ids))


def test_the_memory_is_a_ring():
    space, memory = ClassLabels(torch.arange(ITEMS)), CrossBatchMemory(7, 0, loss=TripletMarginLoss())
    written = []
    for size, first in ((3, 0), (3, 3), (3, 6), (10, 9), (2, 19)):  # within, to the end, over it, more than it holds
        embeddings, rows = torch.randn(size, DIM), torch.arange(first, first + size)
        memory(embeddings, space.view(rows))
        written = [*written, *zip(rows.tolist(), embeddings.tolist(), strict=True)][-7:]
        held = zip(memory.places.tolist(), memory.embeddings.tolist(), strict=True)
        assert sorted(list(held)[: len(memory)]) == sorted(written)
    assert (memory.written, len(memory)) == (21, 7)


def test_it_starts_after_its_steps():
    memory, alone = CrossBatchMemory(SIZE, 2, loss=LogRatioLoss()), LogRatioLoss()
    space = VectorLabels(torch.randn(ITEMS, 2))
    same = []
    for embeddings, rows in batches(5):
        same.append(torch.equal(memory(embeddings, space.view(rows)), alone(embeddings, space.view(rows))))
    assert same == [True, True, True, False, False]  # the third call writes for the first time


def test_eval_mode_reads_and_does_not_write():
    space, memory = VectorLabels(torch.randn(ITEMS, 2)), CrossBatchMemory(SIZE, 0, loss=LogRatioLoss())
    (first, at), (second, rows) = batches(2)
    memory(first, space.view(at))
    before = copy.deepcopy(memory.state_dict())
    memory.eval()
    value = memory(second, space.view(rows))
    assert torch.equal(memory(second, space.view(rows)), value)
    assert not torch.equal(value, LogRatioLoss()(second, space.view(rows)))
    for key, tensor in memory.state_dict().items():
        assert torch.equal(tensor, before[key])
    memory.train()
    assert torch.equal(memory(second, space.view(rows)), value)
    assert memory.written == 10


@pytest.mark.parametrize("block_rows", [None, 2])
def test_several_calls_may_wait_for_one_backward(block_rows):
    space, drawn = VectorLabels(torch.randn(ITEMS, 2)), list(batches(5))

    def gradients(at_once):
        memory = CrossBatchMemory(7, 0, loss=LogRatioLoss())
        memory.loss.block_rows = block_rows
        leaves = [embeddings.clone().requires_grad_() for embeddings, _ in drawn]
        values = []
        for leaf, (_, rows) in zip(leaves, drawn, strict=True):
            values.append(memory(leaf, space.view(rows)))
            if not at_once:
                values[-1].backward()
        if at_once:
            sum(values).backward()
        assert not memory.embeddings.requires_grad
        return [leaf.grad for leaf in leaves]

    for a, b in zip(gradients(True), gradients(False), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("embedding_dim", [None, DIM])
def test_the_state_holds_all_of_it(embedding_dim):
    space, drawn = ClassLabels(torch.arange(ITEMS) % 4), list(batches(5))

    def fresh():
        return CrossBatchMemory(7, 1, loss=MarginLoss(), embedding_dim=embedding_dim)

    whole, half = fresh(), fresh()
    empty = copy.deepcopy(whole.state_dict())
    for embeddings, rows in drawn[:3]:
        whole(embeddings, space.view(rows))
        half(embeddings, space.view(rows))
    rest = fresh()
    rest.load_state_dict(half.state_dict())
    for embeddings, rows in drawn[3:]:
        assert torch.equal(rest(embeddings, space.view(rows)), whole(embeddings, space.view(rows)))
    rest.load_state_dict(empty)
    assert (len(rest), rest.steps) == (0, 0)
    assert rest.state_dict().keys() == {"embeddings", "places", "_extra_state", "loss.boundary"}


def test_reset_forgets():
    memory = CrossBatchMemory(SIZE, 0, loss=TripletMarginLoss())
    memory(torch.randn(4, 3), torch.tensor([0, 0, 1, 1]))
    memory.reset()
    embeddings, view = torch.randn(4, 3), ClassLabels([0, 1, 0, 1]).view()
    assert torch.equal(memory(embeddings, view), TripletMarginLoss()(embeddings, view))
    assert len(memory) == 4


def test_precision_is_that_of_the_loss():
    space, memory = VectorLabels(torch.randn(ITEMS, 2)), CrossBatchMemory(SIZE, 0, loss=LogRatioLoss())
    exact = CrossBatchMemory(SIZE, 0, loss=LogRatioLoss())
    for embeddings, rows in batches(3):
        half = embeddings.bfloat16().requires_grad_()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value = memory(half, space.view(rows))
        value.backward()
        assert (value.dtype, half.grad.dtype, memory.embeddings.dtype) == (torch.float32, torch.bfloat16, torch.float32)
        torch.testing.assert_close(
            value.detach().double(), exact(half.detach().double(), space.view(rows)), rtol=1e-4, atol=1e-5
        )
    assert exact.embeddings.dtype == torch.float64


def test_the_loss_says_what_it_needs_of_labels():
    for loss in (LogRatioLoss(), TripletMarginLoss(), MarginLoss(per_class=True, num_classes=3)):
        assert CrossBatchMemory(loss=loss).labels == loss.labels
    check_labels(CrossBatchMemory(loss=LogRatioLoss()), "distances")
    with pytest.raises(InputError, match="needs label distances of 0 and 1"):
        check_labels(CrossBatchMemory(loss=TripletMarginLoss()), "distances")
    with pytest.raises(InputError, match="needs class labels"):
        check_labels(CrossBatchMemory(loss=MarginLoss(per_class=True, num_classes=3)), "binary")
    with pytest.raises(InputError, match="needs label distances of 0 and 1"):
        CrossBatchMemory(loss=TripletMarginLoss())(torch.randn(4, 3), VectorLabels(torch.randn(4)).view())


def test_parameters_of_the_loss_learn_through_it():
    memory = CrossBatchMemory(SIZE, 0, loss=MarginLoss())
    for _ in range(2):
        memory(torch.randn(8, DIM), torch.arange(8) % 2).backward()
    assert [name for name, _ in memory.named_parameters()] == ["loss.boundary"]
    assert memory.loss.boundary.grad != 0


@pytest.mark.parametrize("name", REFUSED)
def test_losses_that_have_no_use_for_a_memory(name):
    with pytest.raises(InputError, match="has no use for a memory; leave the memory away") as error:
        CrossBatchMemory(loss=make(name))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size is 0; it must be at least 1"),
        ({"start": -1}, "start is -1; it must be at least 0"),
        ({"loss": CrossBatchMemory(loss=LogRatioLoss())}, "takes a pair loss of contml, but CrossBatchMemory is none"),
        ({"loss": torch.nn.MSELoss()}, "takes a pair loss of contml, but MSELoss is none"),
        ({"loss": ProxyAnchorLoss(num_classes=2, embedding_dim=3)}, "ProxyAnchorLoss compares proxies"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(InputError, match=message):
        CrossBatchMemory(**{"loss": LogRatioLoss(), **options})


@pytest.mark.parametrize(
    ("embeddings", "labels", "message"),
    [
        (torch.randn(4, 3), torch.zeros(4, 4), "labels are torch.float32 [4, 4], which cannot be compared with later"),
        (torch.randn(4, 3), torch.tensor([True] * 4), "labels are torch.bool [4], which cannot be compared"),
        (torch.randn(4, 3), [0, 1, 2, 3], "labels are list, which cannot be compared with later batches; give space"),
        (torch.randn(4, 3), VectorLabels(torch.randn(4)), "labels are VectorLabels, which cannot be compared"),
        (torch.randn(4, 3), torch.tensor([0, 1, 2]), "the labels are of 3 items; give floats [items, dim], and one"),
        (torch.randn(4), torch.tensor([0, 1, 2, 3]), "embeddings are torch.float32 [4] and"),
        (torch.ones(4, 3).int(), torch.tensor([0, 1, 2, 3]), "embeddings are torch.int32 [4, 3] and"),
        (torch.randn(4, 3), VectorLabels(torch.randn(5)).view([0, 1, 2, 3]), "but these labels are rows of a label"),
        (torch.randn(4, 2), torch.tensor([0, 1, 2, 3]), "holds embeddings of 3 dimensions, but these have 2"),
    ],
)
def test_bad_input_is_told_in_one_line(embeddings, labels, message):
    memory = CrossBatchMemory(SIZE, 0, loss=TripletMarginLoss())
    memory(torch.randn(4, 3), torch.tensor([0, 0, 1, 1]))
    before = copy.deepcopy(memory.state_dict())
    with pytest.raises(InputError) as error:
        memory(embeddings, labels)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert all(torch.equal(tensor, before[key]) for key, tensor in memory.state_dict().items())


def test_bad_anchors():
    memory = CrossBatchMemory(SIZE, 0, loss=TripletMarginLoss(miner=VTHM()))
    classes = torch.tensor([0, 0, 1, 1])
    memory(torch.randn(4, 3), classes)
    with pytest.raises(InputError, match="anchors are positions in a batch of 4: 0 to 3"):
        memory(torch.randn(4, 3), classes, anchors=torch.tensor([4]))  # a place in the memory
    embeddings = torch.randn(4, 3, requires_grad=True)
    nothing = memory(embeddings, classes, anchors=torch.tensor([]))
    nothing.backward()
    assert nothing.item() == 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device, and there is none here")
@pytest.mark.parametrize("moved", [True, False])
def test_on_a_cuda_device_it_gives_what_it_gives_on_the_cpu(moved):
    spaces = {"cpu": VectorLabels(torch.randn(ITEMS, 2))}
    spaces["cuda"] = spaces["cpu"].to("cuda")
    memories = {device: CrossBatchMemory(SIZE, 0, loss=LogRatioLoss(), embedding_dim=DIM) for device in spaces}
    for step, (embeddings, rows) in enumerate(batches()):
        if moved and step == 2:
            memories["cpu"].to("cuda"), memories["cpu"].to("cpu")
            memories["cuda"].load_state_dict(memories["cpu"].state_dict())
        a, b = (memories[d](embeddings.to(d), spaces[d].view(rows)).cpu() for d in spaces)
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)
    assert memories["cuda"].embeddings.is_cuda
