"""The losses at the extremes: NaN and Inf, norms from 1e-30 to 1e30, copies, and options that are not finite."""

import inspect
import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from support.choices import spread
from support.losses import made
from support.refusals import refuses

from contml.config import data_arguments
from contml.labels import NumberLabels
from contml.losses import LOSSES, CrossBatchMemory, pair_weights
from contml.losses.log_sum_exp import log_one_plus_sum_exp, log_sum_exp
from contml.mining import MINERS

DATA = {"num_classes": 4, "embedding_dim": 6, "train_labels": NumberLabels([0.0, 1.0])}
BAD = [math.nan, math.inf, -math.inf]
#: The item of class 3 is alone: it is in no pair and in no triplet.
CLASSES = torch.tensor([0, 1, 0, 2, 1, 0, 2, 3])
NORMS = [0.0, 1e-30, 1e-20, 1e-12, 1e-5, 1.0, 1e5, 1e10, 1e18, 1e25, 1e37]


def variants(name):
    """The loss with its default options, and with each other distance, reduction or part that it can choose."""
    own = {
        "log_ratio": [{"squared": False, "strict": True}],
        "soft_info_nce": [
            {"similarity": "student_t", "kernel": "exponential", "learn_temperature": True},
            {"denominator": "exp", "learn_temperature": True},
            {"denominator": "threshold"},
        ],
        "cosent": [{"per_anchor": True}],
        "generalized_contrastive": [{"kernel": "exponential"}],
        "graded_instance_cross_entropy": [{"reweight": False, "kernel": "exponential"}],
        "smooth_rank": [{"metric": "recall", "k": 2}, {"metric": "ndcg", "sigma": 4.0}],
        "contrastive": [{"distance": "euclidean"}],
        "triplet_margin": [
            {"distance": d, "reduction": r}
            for d in ("euclidean", "squared_euclidean")
            for r in ("mean", "nonzero", "sum")
        ]
        + [{"triplets": "batch"}],
        "binomial_deviance": [{"scaled": True}],
        "n_pairs": [{"distance": "squared_euclidean"}],
        "margin": [{"per_class": True}],
        "instance_cross_entropy": [{"reweight": False}],
        "dro": [
            {"uncertainty": "topk_pn", "k": 6},
            {"uncertainty": "kl"},
            {"pair": "binomial", "k": 5},
            {"uncertainty": "kl_grouped", "pair": "similarity", "gamma": 1e-3},
        ],
        "proxy_nca": [{"positive_in_denominator": True, "label_smoothing": 0.1}],
        "soft_triple": [{"tau": 0.0}],
    }
    return [{}, *own.get(name, [])]


CASES = [(name, options) for name in LOSSES for options in variants(name)]
IDS = [" ".join((name, *(f"{k}={v}" for k, v in options.items()))) for name, options in CASES]
each_loss = pytest.mark.parametrize(("name", "options"), CASES, ids=IDS)


def labels_for(loss, classes=CLASSES):
    if loss.requires in ("any", "graded"):
        values = torch.arange(float(len(classes)))
        return (values[:, None] - values).abs()
    return classes


def embeddings_of(seed=0):
    return torch.randn(8, 6, generator=torch.Generator().manual_seed(seed))


# ---------------------------------------------------------------------------------------------------------------------
# NaN and Inf


@each_loss
@pytest.mark.parametrize(("bad", "block_rows"), [(math.nan, None), (math.inf, 3), (-math.inf, None)])
def test_an_embedding_that_is_not_finite_gives_no_finite_loss(name, options, bad, block_rows):
    """Nor does one that is no anchor."""
    loss, anchors = made(name, **options), torch.tensor([0, 2])
    loss.block_rows, labels = block_rows, labels_for(loss)
    of_anchors = labels[anchors] if labels.ndim == 2 else labels
    for row in range(8):
        embeddings = embeddings_of()
        embeddings[row, row % 6] = bad
        assert not torch.isfinite(loss(embeddings, labels))
        assert not torch.isfinite(loss(embeddings, of_anchors, anchors=anchors))


@each_loss
def test_a_parameter_that_is_not_finite_gives_no_finite_loss(name, options):
    for parameter in range(len(list(made(name, **options).parameters()))):
        for bad in BAD:
            loss = made(name, **options)
            list(loss.parameters())[parameter].data.view(-1)[-1] = bad
            assert not torch.isfinite(loss(embeddings_of(), labels_for(loss))), (parameter, bad)


@pytest.mark.parametrize("miner", MINERS)
@pytest.mark.parametrize("bad", BAD)
def test_a_miner_does_not_hide_what_is_not_finite(miner, bad):
    for name, cls in LOSSES.items():
        if "miner" in inspect.signature(cls).parameters:
            for row in range(8):
                embeddings = embeddings_of()
                embeddings[row, 0] = bad
                assert not torch.isfinite(made(name, miner=MINERS[miner]())(embeddings, CLASSES))


@pytest.mark.parametrize(
    "name", [name for name, cls in LOSSES.items() if cls.takes_memory and cls.requires == "binary"]
)
def test_a_memory_does_not_hide_what_is_not_finite(name):
    memory = CrossBatchMemory(made(name), 32)
    with pytest.warns(UserWarning, match="row numbers"):
        memory(embeddings_of(), CLASSES)
    bad = embeddings_of()
    bad[7] = math.nan
    assert not torch.isfinite(memory(bad, CLASSES))
    assert not torch.isfinite(memory(embeddings_of(1), CLASSES))  # it is in the memory now


# ---------------------------------------------------------------------------------------------------------------------
# extreme norms


@st.composite
def extreme_batches(draw):
    """(embeddings `[8, 6]` of one extreme norm or of several, perhaps with copies, in a dtype; classes)."""
    dtype = draw(st.sampled_from([torch.float32, torch.float16, torch.bfloat16]))
    norms = [n for n in (1e-44, 1e-37, *NORMS) if n < torch.finfo(dtype).max / 4]
    chosen = draw(st.lists(st.sampled_from(norms), min_size=1, max_size=3))
    embeddings = torch.nn.functional.normalize(embeddings_of(draw(st.integers(0, 99))).double())
    embeddings = embeddings * torch.tensor([chosen[i % len(chosen)] for i in range(8)], dtype=torch.float64)[:, None]
    if draw(st.booleans()):
        embeddings = embeddings[draw(st.lists(st.integers(0, 7), min_size=8, max_size=8))]
    return embeddings.to(dtype), draw(st.sampled_from([CLASSES, CLASSES * 0, torch.arange(8) % 4]))


@each_loss
@settings(max_examples=10, deadline=None)
@given(batch=extreme_batches(), block_rows=st.sampled_from([None, 3]), scale=st.sampled_from([1e-30, 1e-5, 1.0, 1e5]))
def test_a_finite_loss_has_a_finite_gradient(name, options, batch, block_rows, scale):
    loss = made(name, **options)
    loss.block_rows = block_rows
    for parameter in loss.parameters():
        parameter.data *= scale
    embeddings, classes = batch
    leaf = embeddings.clone().requires_grad_()
    value = loss(leaf, labels_for(loss, classes))
    value.backward()
    if torch.isfinite(value):
        gradients = [leaf.grad, *(p.grad for p in loss.parameters() if p.grad is not None)]
        # float16 ends at 65,504: a larger gradient is Inf there, which gradient scaling counts on. It is never NaN.
        for gradient in gradients:
            assert (~gradient.isnan() if gradient.dtype == torch.float16 else gradient.isfinite()).all()


@each_loss
def test_a_finite_loss_is_that_of_float64(name, options):
    norms_of_batches = [[norm] * 8 for norm in NORMS if norm > 0]
    if options.get("reduction") != "nonzero":  # at distances of 1e10, float32 rounds a small hinge to 0: not counted
        norms_of_batches.append(NORMS[1:9])
    for norms in norms_of_batches:
        embeddings = torch.nn.functional.normalize(embeddings_of()) * torch.tensor(norms)[:, None]
        loss, exact = made(name, **options), made(name, **options).double()
        value = loss(embeddings, labels_for(loss))
        if torch.isfinite(value):
            expected = exact(embeddings.double(), labels_for(exact))
            torch.testing.assert_close(
                value.double(), expected, rtol=1e-4, atol=1e-5, msg=lambda m, n=norms: f"{n}: {m}"
            )
        else:
            assert not loss.on_sphere  # to unit vectors, no norm is too large
            assert norms[0] in (1e18, 1e25, 1e37)  # the squares overflow


# ---------------------------------------------------------------------------------------------------------------------
# log-sum-exp with terms that are absent


def slow(row, weights, add_one):
    """The logarithm, and its gradient by each entry."""
    present = [(x, w) for x, w in zip(row, weights, strict=True) if w > 0] + [(0.0, 1.0)] * add_one
    if not present:
        return 0.0, [0.0] * len(row)
    top = max(x for x, _ in present)
    total = sum(w * math.exp(x - top) for x, w in present)
    gradient = [w * math.exp(x - top) / total if w else 0.0 for x, w in zip(row, weights, strict=True)]
    return top + math.log(total), gradient


@settings(max_examples=300, deadline=None)
@given(
    row=st.lists(
        st.tuples(st.sampled_from([-1e38, -1e10, -300.0, -1.0, 0.0, 2.0, 88.5, 300.0, 1e10, 1e38]), st.integers(0, 2)),
        min_size=1,
        max_size=6,
    ),
    add_one=st.booleans(),
)
def test_log_sum_exp_equals_its_loop(row, add_one):
    numbers, counts = zip(*row, strict=True)
    x = torch.tensor([numbers], requires_grad=True)
    weights = torch.tensor([counts])
    value = log_one_plus_sum_exp(x, weights) if add_one else log_sum_exp(x, weights)[0]
    expected, slope = slow(x[0].tolist(), counts, add_one)
    assert value.item() == pytest.approx(expected, rel=1e-5, abs=1e-6)
    (gradient,) = torch.autograd.grad(value.sum(), x)
    assert gradient[0].tolist() == pytest.approx(slope, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("bad", BAD)
def test_log_sum_exp_of_a_present_entry_that_is_not_finite(bad):
    x = torch.tensor([[1.0, bad]])
    assert not torch.isfinite(log_sum_exp(x, torch.tensor([[0, 1]]))[0])
    if bad != -math.inf:  # e^-inf adds 0
        assert not torch.isfinite(log_one_plus_sum_exp(x, torch.tensor([[0, 1]])))


# ---------------------------------------------------------------------------------------------------------------------
# inputs


@pytest.mark.parametrize(
    ("name", "dtype"),
    spread(LOSSES, [torch.uint8, torch.int8, torch.uint16, torch.int32, torch.uint32, torch.uint64], times=2),
    ids=str,
)
def test_anchors_and_classes_of_any_integer_type(name, dtype):
    loss, embeddings, anchors = made(name), embeddings_of(), torch.tensor([0, 1, 1, 0])
    labels = labels_for(loss)
    if labels.ndim == 2:
        expected, found = labels[anchors], labels[anchors]
    else:
        expected, found = labels, labels.to(dtype)
    value = loss(embeddings, expected, anchors=anchors)
    assert torch.equal(loss(embeddings, found, anchors=anchors.to(dtype)), value)
    weights = pair_weights(loss, embeddings, expected, anchors=anchors)
    assert torch.equal(pair_weights(loss, embeddings, found, anchors=anchors.to(dtype)), weights)


@pytest.mark.parametrize("name", LOSSES)
def test_embeddings_in_another_form(name):
    loss, x = made(name), embeddings_of()
    labels = labels_for(loss)
    for other, got in ((x.numpy(), "ndarray"), (x.tolist(), "list"), (x[:, :0], "[8, 0]"), (x.long(), "int64 [8, 6]")):
        with refuses("embeddings", got=got, allowed="floats [items, dim]"):
            loss(other, labels)
    for size in (0, 1):
        with refuses("embeddings", got=f"a batch of {size}", allowed="at least 2"):
            loss(x[:size], labels[:size])


@pytest.mark.parametrize("name", [name for name, cls in LOSSES.items() if "embedding_dim" in data_arguments(cls)])
def test_embeddings_of_another_dimension_than_the_proxies(name):
    with refuses("embeddings", got="5 dimensions", allowed="must have 6, as the proxies"):
        made(name)(torch.randn(8, 5), CLASSES)


# ---------------------------------------------------------------------------------------------------------------------
# options


@pytest.mark.parametrize(
    ("part", "option"),
    [
        (part, option)
        for part in (*LOSSES.values(), *MINERS.values())
        for option, p in inspect.signature(part).parameters.items()
        if "float" in str(p.annotation)
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_an_option_that_is_not_finite_is_refused(part, option):
    data = {key: DATA[key] for key in data_arguments(part) if key in DATA}
    for bad in BAD:
        with refuses(option, got=str(bad), allowed="must be"):
            part(**data, **{option: bad})


def test_large_half_precision_is_finite():
    embeddings = torch.full((4, 3), 40_000.0, dtype=torch.float16)
    assert LOSSES["contrastive"]()(embeddings, torch.tensor([0, 0, 1, 1])).isfinite()
