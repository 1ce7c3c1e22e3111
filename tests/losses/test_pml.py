"""Losses of pytorch-metric-learning in a config: its values, options by its signatures, errors of one line."""

import contextlib
import inspect
import sys

import pytest
import torch
from support.refusals import refused, refuses

from contml import InputError
from contml.config import Section, data_arguments, options, read, summary, validate
from contml.labels import ClassLabels, NumberLabels, ThresholdLabels
from contml.losses import LOSSES
from contml.losses.pml import _UNSUPPORTED, pml_loss

pytest.importorskip("pytorch_metric_learning")
# The library's own: numpy's __array_wrap__, of a scipy function given tensors.
pytestmark = pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning")

NTXENT = "pml:NTXentLoss"


def names():
    import pytorch_metric_learning.losses as library

    base = library.BaseMetricLossFunction
    found = [name for name, loss in vars(library).items() if inspect.isclass(loss) and issubclass(loss, base)]
    return [name for name in found if name not in _UNSUPPORTED]


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
    return validate(read(path), {"loss": Section(LOSSES, find_part=pml_loss)}).parts["loss"]


def test_a_config_names_one(tmp_path):
    part = from_text(tmp_path, "loss:\n  name: pml:ArcFaceLoss\n  scale: 30\n  margin: 20\n")
    assert part.options == {"scale": 30, "margin": 20.0}
    loss = part.build(num_classes=3, embedding_dim=5, labels=None)
    assert (loss.loss.scale, loss.loss.W.shape) == (30, (5, 3))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("loss:\n  name: pml:TripletMarginLoss\n  margn: 0.1\n", [":3: ", "loss.margn", "'margin'"]),
        ("loss:\n  name: pml:TripletMarginLoss\n  swap: 3\n", [":3: ", "loss.swap", "3", "true or false"]),
        ("loss:\n  name: pml:TripletMarginLoss\n  margin: wide\n", [":3: ", "loss.margin", "wide", "a number"]),
        ("loss:\n  name: pml:FastAPLoss\n  num_bins: ten\n", [":3: ", "loss.num_bins", "ten", "a whole number"]),
        ("loss:\n  name: pml:ArcFaceLoss\n  num_classes: 3\n", [":3: ", "loss.num_classes", "data"]),
        ("loss: pml:RankedListLoss\n", [":1: ", "loss.margin"]),
        ("loss: pml:TripletMargin\n", [":1: ", "pml:TripletMargin", "did you mean 'pml:TripletMarginLoss'?"]),
        ("loss: pml:VICRegLoss\n", [":1: ", "pml:VICRegLoss", "no labels", "another loss"]),
        ("loss: pml:CrossBatchMemory\n", [":1: ", "pml:CrossBatchMemory", "'memory'", "another loss"]),
    ],
)
def test_an_error_names_line_and_key_of_the_config(tmp_path, text, values):
    with pytest.raises(InputError) as error:
        from_text(tmp_path, text)
    assert [value for value in values if value not in str(error.value)] == []


def test_an_unknown_name_gets_the_list_of_names():
    refused(lambda: pml_loss("pml:x"), "pml:x", got="not a loss", hint="AngularLoss, ArcFaceLoss, ")


def test_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "pytorch_metric_learning", None)
    monkeypatch.setitem(sys.modules, "pytorch_metric_learning.losses", None)
    with refuses("pml:NTXentLoss never used before", got="not installed", hint='pip install "contml[pml]"'):
        pml_loss("pml:NTXentLoss never used before")


def test_a_value_that_the_library_refuses_is_one_line(tmp_path):
    part = from_text(tmp_path, "loss:\n  name: pml:PNPLoss\n  variant: X\n")
    refused(part.build, "pml:PNPLoss", got="variant=X but must be one of ['Ds'", origin="config.yaml:1")
    refused(lambda: make("RankedListLoss", imbalance=2), "pml:RankedListLoss", got="Imbalance must be between 0 and 1")


def test_labels_in_every_form():
    loss, classes = make("NTXentLoss"), torch.tensor([7, 3, 3, 7, 5, 5])
    embeddings = torch.randn(6, 6)
    expected = loss(embeddings, classes)
    assert torch.equal(loss(embeddings, ClassLabels(classes)), expected)
    assert torch.equal(loss(embeddings, classes, anchors=torch.tensor([5, 0, 1, 4, 2, 3])), expected)


def test_class_ids_of_any_numbering():
    torch.manual_seed(0)
    embeddings, rows = torch.randn(8, 6), torch.randint(0, 4, (8,))
    plain, by_ids = make("NormalizedSoftmaxLoss"), make("NormalizedSoftmaxLoss", class_ids=[40, 1, 7, 9])
    by_ids.loss.load_state_dict(plain.loss.state_dict())
    assert torch.equal(by_ids(embeddings, torch.tensor([40, 1, 7, 9])[rows]), plain(embeddings, rows))
    refused(lambda: by_ids(embeddings, torch.full((8,), 2)), "class id", got="2", allowed="4 classes, 1 to 40")


@pytest.mark.parametrize(
    ("labels", "anchors", "fields"),
    [
        (NumberLabels(torch.randn(4)), None, (NTXENT, "graded", "classes")),
        (torch.randn(4), None, (NTXENT, "graded", "classes")),
        (ThresholdLabels(NumberLabels(torch.randn(4)), 1.0), None, (NTXENT, "0 and 1 without class", "classes")),
        (torch.zeros(4, 4), None, (NTXENT, "0 and 1 without class ids", "classes")),
        (torch.zeros(3).long(), None, ("labels", "3 labels for 4 embeddings")),
        (torch.zeros(4).long(), torch.tensor([0, 1]), ("anchors", "2 of 4", NTXENT)),
        (torch.zeros(4).long(), torch.tensor([4]), ("anchors", "4", "0 to 3")),
    ],
)
def test_bad_input_is_refused(labels, anchors, fields):
    refused(lambda: make("NTXentLoss")(torch.randn(4, 6), labels, anchors=anchors), *fields)


def test_precision_is_that_of_all_losses():
    torch.manual_seed(0)
    loss, embeddings, classes = make("MultiSimilarityLoss"), torch.randn(12, 6).bfloat16(), torch.arange(12) % 4
    leaf = embeddings.clone().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(leaf, classes)
    value.backward()
    assert (value.dtype, leaf.grad.dtype) == (torch.float32, torch.bfloat16)
    torch.testing.assert_close(value.detach().double(), loss(embeddings.double(), classes), rtol=1e-5, atol=0)


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_not_finite_gives_no_finite_loss(name, bad):
    losses = [make(name) for _ in [None, *make(name).parameters()]]
    embeddings = torch.randn(12, 6, generator=torch.Generator().manual_seed(1))
    for number, loss in enumerate(losses):
        x = embeddings.clone()
        [x, *loss.parameters()][number].data.view(-1)[-1:].fill_(bad)
        with contextlib.suppress(InputError):  # the library may refuse it
            assert not torch.isfinite(loss(x, torch.arange(12) % 4))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_an_option_that_is_not_finite_is_refused(bad):
    refused(lambda: pml_loss(NTXENT)(temperature=bad), "temperature", got=str(bad), allowed="finite")


def test_embeddings_of_another_dimension_than_the_proxies():
    with refuses("embeddings", got="5 dimensions", allowed="must have 6, as pml:ProxyAnchorLoss"):
        make("ProxyAnchorLoss")(torch.randn(12, 5), torch.arange(12) % 4)
