"""Losses of pytorch-metric-learning in a config: its values, options by its signatures, errors of one line."""

from __future__ import annotations

import inspect
import sys

import pytest
import torch

from contml import InputError
from contml.config import Section, data_arguments, options, read, summary, validate
from contml.labels import ClassLabels, ThresholdLabels, VectorLabels
from contml.losses import LOSSES, ProxyAnchorLoss, ProxyNCALoss, SoftTripleLoss
from contml.losses.memory import CrossBatchMemory
from contml.losses.pml import _REFUSED, pml_loss
from contml.training import EmbeddingStep

pytest.importorskip("pytorch_metric_learning")
# The library's own: numpy's __array_wrap__, of a scipy function given tensors.
pytestmark = pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning")


def names():
    import pytorch_metric_learning.losses as library

    base = library.BaseMetricLossFunction
    found = [name for name, loss in vars(library).items() if inspect.isclass(loss) and issubclass(loss, base)]
    return [name for name in found if name not in _REFUSED]


def make(name, **given):
    constructor = pml_loss(f"pml:{name}")
    data = {"num_classes": 4, "embedding_dim": 6}
    required = {"margin": 0.4, "Tn": 1.0} if name == "RankedListLoss" else {}
    torch.manual_seed(0)
    takes = {key: data[key] for key in data_arguments(constructor) if key in data}
    return constructor(**{**required, **takes, **given})


@pytest.mark.parametrize("name", names())
def test_every_loss_gives_the_librarys_value_and_gradient(name):
    import pytorch_metric_learning.losses as library

    required = {"margin": 0.4, "Tn": 1.0} if name == "RankedListLoss" else {}
    width = "descriptors_dim" if name == "P2SGradLoss" else "embedding_size"
    sizes = {"num_classes": 4, width: 6} if data_arguments(pml_loss(f"pml:{name}")) else {}
    torch.manual_seed(0)
    theirs = getattr(library, name)(**required, **sizes)
    ours = make(name)
    ours.loss.load_state_dict(theirs.state_dict())
    torch.manual_seed(1)
    embeddings, classes = torch.randn(12, 6), torch.randperm(12) % 4
    a, b = embeddings.clone().requires_grad_(), embeddings.clone().requires_grad_()
    value, expected = ours(a, classes), theirs(b, classes)
    value.backward()
    expected.backward()
    assert value.shape == ()
    torch.testing.assert_close(value, expected.reshape(()), rtol=0, atol=0)
    torch.testing.assert_close(a.grad, b.grad, rtol=0, atol=0)


@pytest.mark.parametrize("name", names())
def test_options_show_as_those_of_any_loss(name):
    constructor = pml_loss(f"pml:{name}")
    shown = options(constructor)
    assert set(data_arguments(constructor)) <= {"num_classes", "embedding_dim", "class_ids"}
    assert not {option.name for option in shown} & {"distance", "reducer", "num_classes", "embedding_size"}
    assert summary(constructor) == f"{name} of pytorch-metric-learning."
    # Every default may be written out.
    make(name, **{option.name: option.default for option in shown if not option.required})
    assert pml_loss(f"pml:{name}") is constructor


def test_options_of_some_losses():
    shown = {option.name: option.default for option in options(pml_loss("pml:TripletMarginLoss"))}
    assert shown == {"margin": 0.05, "swap": False, "smooth_loss": False, "triplets_per_anchor": "all"}
    assert [option.name for option in options(pml_loss("pml:ProxyNCALoss"))] == ["softmax_scale"]  # of its base
    assert data_arguments(pml_loss("pml:ProxyNCALoss")) == {
        "num_classes": True,
        "embedding_dim": True,
        "class_ids": False,
    }
    assert data_arguments(pml_loss("pml:MarginLoss")) == {}  # with a number of classes it would be another loss


def from_text(tmp_path, text):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return validate(read(path), {"loss": Section(LOSSES, others=pml_loss)}).parts["loss"]


def test_a_config_names_one(tmp_path):
    part = from_text(tmp_path, "loss:\n  name: pml:ArcFaceLoss\n  scale: 30\n  margin: 20\n")
    assert part.options == {"scale": 30, "margin": 20.0}
    loss = part.build(num_classes=3, embedding_dim=5, labels=None)
    assert (loss.loss.scale, loss.loss.W.shape) == (30, (5, 3))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "loss:\n  name: pml:TripletMarginLoss\n  margn: 0.1\n",
            ":3: unknown key 'loss.margn'; did you mean 'margin'?",
        ),
        (
            "loss:\n  name: pml:TripletMarginLoss\n  swap: 3\n",
            ":3: 'loss.swap' is 3; it must be true or false",
        ),
        (
            "loss:\n  name: pml:TripletMarginLoss\n  margin: wide\n",
            ":3: 'loss.margin' is 'wide'; it must be a number",
        ),
        (
            "loss:\n  name: pml:FastAPLoss\n  num_bins: ten\n",
            ":3: 'loss.num_bins' is 'ten'; it must be a whole number or a number",
        ),
        (
            "loss:\n  name: pml:ArcFaceLoss\n  num_classes: 3\n",
            ":3: 'loss.num_classes' is filled from the data; remove it",
        ),
        ("loss: pml:RankedListLoss\n", ":1: 'loss.margin' is missing; 'pml:RankedListLoss' needs it"),
        (
            "loss: pml:TripletMargin\n",
            ":1: pytorch-metric-learning has no loss 'TripletMargin'; did you mean 'pml:TripletMarginLoss'?",
        ),
        ("loss: pml:VICRegLoss\n", ":1: pml:VICRegLoss takes no labels; choose another loss"),
        (
            "loss: pml:CrossBatchMemory\n",
            ":1: pml:CrossBatchMemory wraps a loss: give the config a section 'memory'; choose another loss",
        ),
    ],
)
def test_a_wrong_config_is_pointed_at(tmp_path, text, message):
    with pytest.raises(InputError) as error:
        from_text(tmp_path, text)
    assert str(error.value).endswith(message)


def test_an_unlikely_name_is_told_what_there_is():
    with pytest.raises(InputError, match="has no loss 'x'; it has AngularLoss, ArcFaceLoss, ") as error:
        pml_loss("pml:x")
    assert "\n" not in str(error.value)


def test_other_names_are_not_ours():
    assert pml_loss("raw") is None
    assert pml_loss("module:Loss") is None


def test_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "pytorch_metric_learning", None)
    monkeypatch.setitem(sys.modules, "pytorch_metric_learning.losses", None)
    with pytest.raises(InputError) as error:
        pml_loss("pml:NTXentLoss " + "never asked for before")
    assert str(error.value).endswith('not installed; pip install "contml[pml]"')
    assert "\n" not in str(error.value)


def test_a_value_that_the_library_refuses_is_one_line(tmp_path):
    part = from_text(tmp_path, "loss:\n  name: pml:PNPLoss\n  variant: X\n")
    with pytest.raises(InputError, match=r"config.yaml:1: loss: pml:PNPLoss: variant=X but must be one of") as error:
        part.build()
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match="pml:RankedListLoss: Imbalance must be between 0 and 1"):
        make("RankedListLoss", imbalance=2)


def test_labels_in_every_form():
    loss, classes = make("NTXentLoss"), torch.tensor([7, 3, 3, 7, 5, 5])
    embeddings = torch.randn(6, 6)
    expected = loss(embeddings, classes)
    assert torch.equal(loss(embeddings, ClassLabels(classes)), expected)
    assert torch.equal(loss(embeddings, classes, anchors=torch.tensor([5, 0, 1, 4, 2, 3])), expected)


def test_class_ids_of_any_numbering():
    torch.manual_seed(0)
    embeddings, rows = torch.randn(8, 6), torch.randint(0, 4, (8,))
    plain, by_ids = make("NormalizedSoftmaxLoss"), make("NormalizedSoftmaxLoss", class_ids=[40, -1, 7, 9])
    by_ids.loss.load_state_dict(plain.loss.state_dict())
    assert torch.equal(by_ids(embeddings, torch.tensor([40, -1, 7, 9])[rows]), plain(embeddings, rows))
    with pytest.raises(InputError, match="class id 2 is not one of the 4 classes"):
        by_ids(embeddings, torch.full((8,), 2))


@pytest.mark.parametrize(
    ("labels", "anchors", "message"),
    [
        (VectorLabels(torch.randn(4)), None, "needs classes, but the labels are graded"),
        (torch.randn(4), None, "needs classes, but the labels are graded"),
        (ThresholdLabels(1.0, space=VectorLabels(torch.randn(4))), None, "the labels are 0 / 1 without class"),
        (torch.zeros(4, 4), None, "needs classes, but the labels are 0 / 1 without class ids"),
        (torch.zeros(3).long(), None, "the labels are of 3 items; give one label an item"),
        (torch.zeros(4).long(), torch.tensor([0, 1]), "takes all items of a batch as anchors, but 2 of 4 are to be"),
        (torch.zeros(4).long(), torch.tensor([4]), "anchors are positions in a batch of 4: 0 to 3"),
    ],
)
def test_bad_input_is_told_in_one_line(labels, anchors, message):
    with pytest.raises(InputError) as error:
        make("NTXentLoss")(torch.randn(4, 6), labels, anchors=anchors)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_labels_of_another_kind_are_refused_before_the_first_step():
    binary = ThresholdLabels(1.0, space=VectorLabels(torch.randn(4)))
    with pytest.raises(InputError, match="pml:NTXentLoss needs classes, but the labels are 0 / 1 without class ids"):
        EmbeddingStep(loss=make("NTXentLoss")).check(torch.nn.Identity(), binary)
    with pytest.raises(InputError, match="takes a pair loss of contml, but pml:NTXentLoss is none"):
        CrossBatchMemory(loss=make("NTXentLoss"))


def test_precision_is_that_of_all_losses():
    torch.manual_seed(0)
    loss, embeddings, classes = make("MultiSimilarityLoss"), torch.randn(12, 6).bfloat16(), torch.arange(12) % 4
    leaf = embeddings.clone().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(leaf, classes)
    value.backward()
    assert (value.dtype, leaf.grad.dtype) == (torch.float32, torch.bfloat16)
    torch.testing.assert_close(value.detach().double(), loss(embeddings.double(), classes), rtol=1e-5, atol=0)


def test_the_same_losses_agree():
    """Ours and theirs of the same name, where both say the same."""
    torch.manual_seed(0)
    embeddings, classes = torch.randn(12, 6), torch.arange(12) % 3  # class 3 has no item
    data = {"num_classes": 4, "embedding_dim": 6}
    theirs, ours = make("ProxyAnchorLoss"), ProxyAnchorLoss(**data)
    theirs.loss.proxies.data.copy_(ours.proxies)
    torch.testing.assert_close(ours(embeddings, classes), theirs(embeddings, classes))
    theirs, nca = make("ProxyNCALoss", softmax_scale=9), ProxyNCALoss(3.0, positive_in_denominator=True, **data)
    theirs.loss.proxies.data.copy_(nca.proxies)
    torch.testing.assert_close(nca(embeddings, classes), theirs(embeddings, classes))
    theirs, soft = make("SoftTripleLoss"), SoftTripleLoss(tau=0.0, **data)
    theirs.loss.fc.data.copy_(soft.centers.flatten(0, 1).T)
    torch.testing.assert_close(soft(embeddings, classes), theirs(embeddings, classes))
    theirs, softmax = make("NormalizedSoftmaxLoss"), LOSSES["normalized_softmax"](**data)
    theirs.loss.W.data.copy_(softmax.proxies.T)
    torch.testing.assert_close(softmax(embeddings, classes), theirs(embeddings, classes))
