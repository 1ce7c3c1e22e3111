"""The tables of docs/losses.md that compare losses with pytorch-metric-learning: each row, against the package."""

import re

import pytest
import torch
from support.paths import ROOT
from torch.nn import functional as F

from contml import losses

pml = pytest.importorskip("pytorch_metric_learning")

from pytorch_metric_learning import distances, losses as theirs, miners, reducers  # noqa: E402

CLASSES, DIM = 5, 6
#: Our proxies, and theirs; whether theirs are transposed.
PROXIES = {
    "NormalizedSoftmaxLoss": ("proxies", "W", True),
    "ProxyNCALoss": ("proxies", "proxies", False),
    "ProxyAnchorLoss": ("proxies", "proxies", False),
    "SoftTripleLoss": ("centers", "fc", True),
}
SIZES = {
    "sizes": {"num_classes": CLASSES, "embedding_dim": DIM},
    "their_sizes": {"num_classes": CLASSES, "embedding_size": DIM},
}
PAGE = (ROOT / "docs/losses.md").read_text("utf-8").partition("## Compared with pytorch-metric-learning")[2]
EQUAL = re.findall(r"^\| `(\w+Loss\(.*?\))` \| `(.+?)` \| `(.+?)` \|$", PAGE, re.MULTILINE)
DIFFERENT = re.findall(r"^\| `(\w+Loss)` \|", PAGE, re.MULTILINE)


class Mined(torch.nn.Module):
    """Their loss of the pairs that their miner chooses."""

    def __init__(self, loss, miner):
        super().__init__()
        self.loss, self.miner = loss, miner

    def forward(self, embeddings, classes):
        return self.loss(embeddings, classes, self.miner(embeddings, classes))


THEIRS = {**vars(distances), **vars(reducers), **vars(miners), **vars(theirs), "Mined": Mined, **SIZES}


def batch():
    torch.manual_seed(3)
    classes = torch.arange(20) % CLASSES
    return F.normalize(torch.randn(CLASSES, DIM)[classes] + torch.randn(20, DIM)).double(), classes


def both(ours, other):
    """The two losses, with the proxies of ours."""
    mine, peer = eval(ours, {**vars(losses), **SIZES}).double(), eval(other, THEIRS).double()
    if (name := ours.partition("(")[0]) in PROXIES:
        own, its, turned = PROXIES[name]
        values = getattr(mine, own).detach().flatten(0, -2)
        getattr(peer, its).data = (values.T if turned else values).clone()
    return mine, peer


@pytest.mark.parametrize(("ours", "other", "formula"), EQUAL, ids=[row[0] for row in EQUAL])
def test_equal_options(ours, other, formula):
    (x, classes), (mine, peer) = batch(), both(ours, other)
    pairs = int((classes[:, None] == classes).sum()) - len(classes)
    leaves = [x.clone().requires_grad_() for _ in range(2)]
    expected = eval(formula, {"value": peer(leaves[1], classes), "P": pairs, "B": len(classes)})
    value = mine(leaves[0], classes)
    torch.testing.assert_close(value, expected, rtol=1e-6, atol=1e-8)
    gradients = [torch.autograd.grad(each, leaf)[0] for each, leaf in zip((value, expected), leaves, strict=True)]
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", DIFFERENT)
def test_defaults_differ(name):
    (x, classes), sizes = batch(), name in PROXIES
    mine, peer = both(f"{name}({'**sizes' if sizes else ''})", f"{name}({'**their_sizes' if sizes else ''})")
    assert mine(x, classes).item() != pytest.approx(peer(x, classes).item(), rel=1e-3)


def test_all_rows_are_read():
    assert (len(EQUAL), len(DIFFERENT)) == (10, 8)
