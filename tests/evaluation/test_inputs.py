"""What the functions of an evaluation accept: tensors, arrays and lists give equal results, bad input is one error."""

import numpy as np
import pytest
import torch
from support.refusals import refused
from support.retrieval import evaluate

from contml import evaluation as metrics_of
from contml.evaluation import hierarchical_average_precision as hap, recall_within
from contml.labels import ClassLabels, NumberLabels

X = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
CLASSES = torch.arange(12) % 4
AGES = NumberLabels(torch.arange(12.0))
FORMS = {"array": lambda x: x.numpy(), "list": lambda x: x.tolist(), "read-only": lambda x: frozen(x.numpy())}


def frozen(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def same(first, second):
    return repr(first[0]) == repr(second[0]) and torch.equal(first[1].model, second[1].model)


@pytest.mark.parametrize("form", FORMS)
def test_arrays_and_lists_are_tensors(form):
    as_form, rows = FORMS[form], {"queries": torch.arange(4), "gallery": torch.arange(3, 12)}
    given = {name: as_form(value) for name, value in rows.items()}
    assert same(evaluate(as_form(X), AGES, **given), evaluate(X, AGES, **rows))
    more = {"missing": torch.tensor([5]), "groups": torch.arange(12) // 2}
    given = {name: as_form(value) for name, value in more.items()}
    assert same(evaluate(as_form(X), AGES, **given), evaluate(X, AGES, **more))
    for function in (metrics_of.recall_at_k, metrics_of.mean_average_precision_at_r, metrics_of.r_precision):
        both = (X + 0.1, CLASSES)
        given = tuple(map(as_form, both))
        assert function(as_form(X), as_form(CLASSES), gallery=given) == function(X, CLASSES, gallery=both)
    for function in (metrics_of.normalized_mutual_information, metrics_of.pairwise_f1):
        assert function(as_form(CLASSES), as_form(CLASSES // 2)) == function(CLASSES, CLASSES // 2)
    x = X.double()  # as Python's numbers are
    assert torch.equal(metrics_of.cluster(as_form(x), 3), metrics_of.cluster(x, 3))
    assert metrics_of.ndcg_at_k(as_form(X), as_form(X.abs()), k=2) == metrics_of.ndcg_at_k(X, X.abs(), k=2)
    assert metrics_of.paired_interval(as_form(X[0]), as_form(X[1])) == metrics_of.paired_interval(X[0], X[1])


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "uint32", "uint64", "int32"])
def test_class_ids_of_every_integer_type(dtype):
    ids = CLASSES.to(getattr(torch, dtype))
    expected = metrics_of.recall_at_k(X, CLASSES, k=[1, 2])
    assert metrics_of.recall_at_k(X, ids, k=[1, 2]) == metrics_of.recall_at_k(X, ids.numpy(), k=[1, 2]) == expected
    assert metrics_of.recall_at_k(X, ids, gallery=(X + 1, CLASSES)) == metrics_of.recall_at_k(
        X, CLASSES, gallery=(X + 1, CLASSES)
    )
    assert metrics_of.pairwise_f1(ids, ids) == 1
    assert same(evaluate(X, ClassLabels(ids)), evaluate(X, ClassLabels(CLASSES)))


def test_large_unsigned_ids_differ():
    ids = np.array([2**64 - 1, 2**64 - 1, 2**64 - 2, 2**64 - 2], np.uint64)
    assert metrics_of.recall_at_k([[0.0], [1.0], [5.0], [6.0]], ids) == 1.0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_exact(dtype):
    half = X.to(dtype)
    assert same(evaluate(half, AGES), evaluate(half.double(), AGES))
    assert metrics_of.recall_at_k(half, CLASSES) == metrics_of.recall_at_k(half.double(), CLASSES)
    assert torch.equal(metrics_of.cluster(half, 3), metrics_of.cluster(half.double(), 3))


NAN = X.clone()
NAN[4, 1] = torch.nan
D = 1 + torch.rand(2, 5)
SIZES = "at least 1 query and 2 gallery items"
OF_CLASSES = ("graded labels", "for classes", "ClassLabels")


BAD = [
    (lambda: evaluate(NAN, AGES), ("embedding of query 4", "not finite")),
    (lambda: metrics_of.cluster(NAN, 2), ("embeddings", "not finite")),
    (lambda: metrics_of.cluster(X, 0), ("k", "0", "at least 1")),
    (lambda: evaluate(X.to(torch.complex64), AGES), ("embeddings", "complex64", "real")),
    (lambda: evaluate([[1.0, 2.0], [3.0]], AGES), ("embeddings of item 1", "a list of 1", "a list of 2")),
    (lambda: evaluate(X, CLASSES), ("labels", "Tensor", "label space", "NumberLabels")),
    (lambda: evaluate(X, AGES, queries=[0, 12]), ("queries", "row 12", "0 to 11")),
    (lambda: evaluate(X, AGES, gallery=[0, 2, 0]), ("gallery", "row 0 appears twice")),
    (lambda: evaluate(X[:, :0], ClassLabels(CLASSES)), ("embeddings", "[12, 0]", "[items, dimensions]")),
    (lambda: metrics_of.cluster(X, 2.5), ("k", "2.5", "whole number")),
    (lambda: evaluate(X, ClassLabels(CLASSES), recall_at=[1.5]), ("recall_at", "[1.5]", "whole numbers")),
    (lambda: metrics_of.recall_at_k(X, CLASSES, k=[0, 1]), ("k", "[0, 1]", "from 1 on")),
    (lambda: metrics_of.ndcg_at_k(X, X.abs(), k=[4]), ("k", "[4]", "from 1 to 3")),
    (lambda: evaluate(X, AGES, queries=torch.ones(11, dtype=torch.bool)), ("queries", "a mask", "[12]")),
    (lambda: evaluate(X, AGES, groups=["a"] * 12), ("groups", "its whole gallery")),
    (lambda: metrics_of.recall_at_k(X, CLASSES / 2), ("classes", "float32", "whole number")),
    (lambda: evaluate(1e160 * X.double(), ClassLabels(CLASSES)), ("embedding of query 0", "e+160", "1e+150")),
    (lambda: metrics_of.recall_at_k(X, CLASSES - 1), ("classes of item 0", "-1", "at least 0")),
    (lambda: metrics_of.recall_at_k(X, CLASSES[:5]), ("embeddings", "12 embeddings, 5 class ids")),
    (lambda: metrics_of.pairwise_f1(CLASSES, CLASSES[:3]), ("clusters", "3 cluster ids, 12 class ids")),
    (lambda: metrics_of.paired_interval([1.0], [1.0, 2.0]), ("b", "[2]", "", "same queries")),
    (lambda: metrics_of.recall_at_k(X, CLASSES, gallery=X), ("gallery", "Tensor")),
    (lambda: metrics_of.recall_at_k(X, CLASSES, gallery=(X[:, :2], CLASSES)), ("gallery", "2 dimensions")),
    (lambda: evaluate(X, AGES, [], [1, 2, 3]), ("evaluation", "0 queries and 3 gallery items", SIZES)),
    (lambda: evaluate(X, AGES, [0], [1, 2], missing=[2]), ("evaluation", "1 queries and 1 gallery items", SIZES)),
    (lambda: evaluate(X, ClassLabels(range(12)), exclude_singletons=True), ("evaluation", "0 queries", SIZES)),
    (lambda: evaluate(X, AGES, exclude_singletons=True), ("exclude_singletons", *OF_CLASSES)),
    (lambda: evaluate(X, AGES, recall_at=[1, 2]), ("recall_at", *OF_CLASSES)),
    (lambda: evaluate(X, AGES, queries=[0, 0, 5]), ("queries", "row 0 appears twice", "", "give each row once")),
    (lambda: evaluate(X, ClassLabels(CLASSES), queries=[0, 0, 5]), ("queries", "row 0 appears twice", "", "once")),
    (lambda: evaluate(X, AGES, groups=torch.arange(5)), ("groups", "5 groups for 12 labels")),
    (lambda: evaluate(X, AGES, groups=[0] * 12), ("groups", "own group", "", "larger gallery")),
    (lambda: evaluate(X, ClassLabels(CLASSES), groups=torch.arange(12)), ("exclude_group", "classes", "False")),
    (lambda: hap(D, D[:, :3]), ("distances", "[2, 5]", "", "give both")),
    (lambda: hap(D / 0, D), ("distances", "not finite")),
    (lambda: hap(D, D, relevance=lambda d: -d), ("relevance", "", "at least 0")),
    (lambda: metrics_of.kendall_tau(D, D[:, :3]), ("distances", "[2, 5]", "", "give both")),
    (lambda: metrics_of.kendall_tau(D / 0, D), ("distances", "not finite")),
    (lambda: metrics_of.kendall_tau(D, -D), ("label_distances", "", "must be at least 0")),
    (lambda: metrics_of.kendall_tau(D, D / 0), ("label_distances", "not finite")),
    (lambda: recall_within(D, D[:, :3], thresholds=[0.5], k=1), ("distances", "[2, 5]", "", "give both")),
    (lambda: recall_within(D / 0, D, thresholds=[0.5], k=1), ("distances", "not finite")),
    (lambda: recall_within(D, D, thresholds=0.5, k=1), ("thresholds", "", "must be a list")),
    (lambda: recall_within(D, D, thresholds=[0.5], k=6), ("k", "", "from 1 to 5")),
]


@pytest.mark.parametrize(("call", "fields"), BAD)
def test_bad_input_is_one_error(call, fields):
    refused(call, *fields)


def test_lists_of_tensors_and_other_byte_orders():
    g = torch.eye(3, requires_grad=True)
    expected = metrics_of.recall_at_k(g.detach(), [0, 0, 1])
    refused(lambda: metrics_of.recall_at_k([[g[0]], [g[1]]], [0, 1]), "embeddings", "requires grad", "NumPy array")
    assert metrics_of.recall_at_k([g[0], g[1], g[2]], [0, 0, 1]) == expected
    assert metrics_of.recall_at_k(np.eye(3, dtype=">f4"), [0, 0, 1]) == expected
