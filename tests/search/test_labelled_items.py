"""Predictions and searches by the labels of training items: against loops, from files, by commands."""

import base64
import csv
import io
import json
import math
import re
import shutil
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
import torch
from PIL import Image
from support.label_spaces import SPACES, space_of
from support.labelled import labelled_items as of, loop_weights
from support.miniature import TINY
from support.refusals import refuses

import contml as library
from contml._support.tensors import load_tensors, save_tensors
from contml.contracts import Measure
from contml.data import Pixels, Split
from contml.data.renderers.labels import label_picture
from contml.evaluation import evaluate
from contml.evaluation.posterior import COORDINATES
from contml.labels import ClassLabels, NumberLabels, OrdinalLabels, TagLabels, VectorLabels, WeightedLabels
from contml.labels.saved import to_saved
from contml.search import Calibration, Index, SearchResult
from contml.search.answers import predicted
from contml.search.labelled_items import MAX_ITEMS, LabelledItems, sample
from contml.search.results import TypedLabel, label_results

OF_DATA = [name for name in SPACES if not name.startswith(("threshold", "nearest", "pairs"))]


def calibrated(kind, estimate, margin=None):
    """A calibration with the same estimate at any distance."""
    numbers = {"distances": (0.0,), "estimates": (estimate,), "margins": None if margin is None else (margin,)}
    return Calibration(kind=kind, nearest=1, level=None if margin is None else 0.9, queries=20, **numbers)


def units(n, d, seed=0):
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(seed)).double()
    return x / x.norm(dim=1, keepdim=True)


# -- against loops -----------------------------------------------------------------------------------------------------


def drawn_weights(k):
    rows = torch.stack([torch.randperm(20, generator=torch.Generator().manual_seed(n))[:k] for n in range(5)])
    weights = torch.rand(5, k, generator=torch.Generator().manual_seed(9)).double().sort(1, descending=True).values
    return rows, weights / weights.sum(1, keepdim=True)


@pytest.mark.parametrize("k", [1, 3, 7])
def test_a_mean_is_that_of_the_definition(k):
    values, (rows, weights) = torch.randn(20, 2).double(), drawn_weights(k)
    found = predicted(space_of(values), rows, weights)
    for q in range(5):
        pairs = list(zip(weights[q].tolist(), rows[q].tolist(), strict=True))
        mean = sum(w * values[j] for w, j in pairs)
        spread = math.sqrt(sum(w * float((values[j] - mean).square().sum()) for w, j in pairs))
        assert torch.allclose(found.labels.values[q], mean)
        assert float(found.spread[q]) == pytest.approx(spread, abs=1e-9)
    assert found.rows is None


@pytest.mark.parametrize("name", ["tags", "classes", "matrix", "poses", "segmentation"])
def test_a_medoid_is_that_of_the_definition(name, tmp_path):
    labels, (rows, weights) = SPACES[name](tmp_path), drawn_weights(6)
    found, matrix = predicted(labels, rows, weights), labels.pairwise()
    for q in range(5):
        pairs = list(zip(weights[q].tolist(), rows[q].tolist(), strict=True))
        costs = {a: sum(w * float(matrix[a, j]) for w, j in pairs) for _, a in pairs}
        assert float(found.spread[q]) == pytest.approx(min(costs.values()), rel=1e-6)
        assert costs[int(found.rows[q])] == pytest.approx(min(costs.values()), rel=1e-6)
        assert found.labels.text(q) == labels.text(int(found.rows[q]))


@pytest.mark.parametrize("name", ["pairs", "pairs, all judged"])
def test_judged_pairs_are_no_labels_to_predict(name):
    with refuses("PairLabels", got="no label distance"):
        predicted(SPACES[name](None), *drawn_weights(6))


@pytest.mark.parametrize("scale", [1e-3, 1, 1e3])
def test_an_answer_is_that_of_the_definition(scale):
    values = torch.randn(30, 1, generator=torch.Generator().manual_seed(2)).double()
    x, queries = units(30, 4).float(), units(6, 4, 1).float()
    items = of(space_of(values), scale * x, k=4, scale=0.2 * scale)
    found = [row[0] for row in items.answer(torch.cat((scale * queries, scale * x[[7]])))]
    for q, query in enumerate(torch.cat((queries, x[[7]])).double()):
        weights = loop_weights(x.double(), query, 4, 0.2, excluded=[7] * (q == 6))
        mean = sum(w * float(values[j]) for j, w in weights.items())
        assert found[q].value == pytest.approx(mean, rel=1e-4)
        assert found[q].same == (q == 6)


@pytest.mark.parametrize("label", [(0.3, -0.4), (2.0, 1.0)])
def test_a_label_finds_the_items_with_the_least_mean_squared_distance(label):
    values, x, images = torch.randn(30, 2).double(), units(30, 4), units(12, 4, 1)
    items = of(space_of(values), x, k=5, scale=0.3)
    query, vectors = items.query(list(label)), items.posterior.label_vectors(images)
    assert query.by == "labels"
    for q, image in enumerate(images):
        weights = loop_weights(x.float().double(), image, 5, 0.3)
        squared = sum(w * math.dist(values[j].tolist(), label) ** 2 for j, w in weights.items())
        assert float((vectors[q] - query.vector).square().sum()) == pytest.approx(squared, rel=1e-3)


def test_a_class_is_searched_for_by_the_mean_embedding_of_its_items():
    x = units(20, 5) * torch.arange(1, 21)[:, None]
    query = of(ClassLabels(["cat", "dog"] * 10), x).query("dog")
    own = x[1::2]
    assert query.by == "embedding"
    assert float(query.vector.norm()) == pytest.approx(float(own.norm(dim=1).mean()))
    assert float(torch.nn.functional.cosine_similarity(query.vector.double(), own.mean(0), dim=0)) == pytest.approx(1)


# -- fitted ------------------------------------------------------------------------------------------------------------


def split_of(values, labels, group=None):
    pixels = [Pixels(np.zeros((8, 8, 3), np.uint8))] * len(values)
    return Split(pixels, [str(n) for n in range(len(values))], labels, groups=group)


def found_in(x, split):
    none = torch.empty(0, dtype=torch.int64)
    return evaluate(x, split.labels, groups=split.groups).ranking, none, split


def made(noise, numbers=90, classes=False):
    """Items whose embeddings are their label, with a direction that says nothing, and noise."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(2 * numbers, 1, generator=generator)
    x = torch.cat((values, noise * torch.randn(2 * numbers, 3, generator=generator)), 1)
    ids = (values[:, 0] > 0).long()
    parts = []
    for start in (0, numbers, numbers * 3 // 2):
        rows = slice(start, numbers if start == 0 else start + numbers // 2)
        labels = ClassLabels(ids[rows]) if classes else space_of(values[rows].double())
        parts.append((x[rows], split_of(values[rows], labels)))
    train, val, test = parts
    return LabelledItems.make(train, "abc", len(train[0]), found_in(*val), found_in(*test)), train, val, test


def test_errors_and_bounds_are_those_of_the_test_split():
    items, train, _, test = made(0.5)
    (record,) = items.record.predictions
    values, truth = train[1].labels.values, test[1].labels.values
    expected = []
    for q, query in enumerate(test[0].double()):
        weights = loop_weights(train[0].double(), query, items.record.neighbours, items.record.scale)
        mean = sum(w * float(values[j, 0]) for j, w in weights.items())
        expected.append(abs(mean - float(truth[q, 0])))
    assert record.test.posterior == pytest.approx(fmean(expected), rel=1e-5)
    assert record.test.constant == pytest.approx(float((values.mean() - truth).abs().mean()), rel=1e-5)
    assert record.calibration.kind == "bound"
    assert record.calibration.check.queries == 45


def test_classes_have_probabilities_and_no_label_vectors():
    items, *_ = made(0.5, classes=True)
    assert items.coordinates is None
    assert items.record.search is None
    assert items.record.predictions[0].calibration.kind == "probability"
    assert items.record.predictions[0].test.posterior < items.record.predictions[0].test.constant


def test_what_a_search_ranks_by_is_chosen_on_the_validation_split():
    items, _, val, test = made(2.0)  # most of an embedding is noise
    assert items.record.search.by == "labels"
    _, by_labels = items.evaluate(val[0], torch.empty(0, dtype=torch.int64), val[1])
    assert items.record.search.labels == pytest.approx(float(by_labels.values.mean()))
    assert items.record.search.embedding == pytest.approx(float(found_in(*val)[0].values.mean()))
    assert items.record.search.labels + items.record.search.margin < items.record.search.embedding
    on_test, _ = items.evaluate(test[0], torch.empty(0, dtype=torch.int64), test[1])
    assert on_test.main.normalized() > evaluate(test[0], test[1].labels).score
    good, *_ = made(0.0)  # nothing to gain
    assert good.record.search.by == "embedding"
    assert LabelledItems.make((val[0], val[1]), "abc", 45, None, None).record.search is None


def test_a_distance_through_labels_is_calibrated():
    items, _, _, test = made(1.0, 400)
    vectors = items.posterior.label_vectors(test[0]).double()
    squared = torch.cdist(vectors[:, :-1], vectors[:, :-1]).square() + vectors[:, -1] ** 2 + vectors[:, -1:] ** 2
    squared.fill_diagonal_(torch.inf)
    near = squared.argsort(1)[:, :10]
    truth = test[1].labels.pairwise().double().gather(1, near)
    _, low, high = items.record.search.calibration.label_distance(squared.gather(1, near).sqrt())
    known = np.isfinite(high)
    inside = (low <= truth.numpy()) & (truth.numpy() <= high)
    assert 0.85 <= inside[known].mean() <= 0.97
    assert known.mean() > 0.9


def test_without_a_validation_split_groups_are_left_out_together():
    """Copies of an item predict it perfectly, but for their group."""
    values = torch.randn(60, 1, generator=torch.Generator().manual_seed(0)).repeat_interleave(2, 0)
    x, groups = torch.cat((0.1 * values, units(60, 3).float().repeat_interleave(2, 0)), 1), torch.arange(120) // 2
    fitted = []
    for group in (None, groups):
        items = LabelledItems.make((x, split_of(values, space_of(values.double()), group)), "abc", 60, None, None)
        fitted.append((items.record.neighbours, items.record.scale))
    assert fitted[0][1] < fitted[1][1]
    assert fitted[1][0] >= 50


def test_validation_classes_that_training_lacks_choose_nothing():
    x = units(40, 4).float()
    train = (x[:30], split_of(x[:30], ClassLabels(torch.arange(30) % 3)))
    val = (x[30:], split_of(x[30:], ClassLabels(torch.arange(10) % 2 + 7)))
    assert LabelledItems.make(train, "abc", 30, found_in(*val), None).record.predictions[0].calibration is None


def test_most_predicted_labels_against_the_label_that_was_searched_for_are_said():
    bound = calibrated("bound", 1.0, 1.0)
    x = units(1, 5) + torch.arange(20)[:, None]
    ages = NumberLabels(torch.arange(20.0))
    excluded = "the predicted labels of 3 of 4 images exclude age=9"
    for calibration, asked, expected in ((bound, 2, ""), (bound, 9, excluded), (None, 9, "")):
        items = of(ages, x, k=1, calibration=calibration)
        found = SearchResult(np.array([list("abcd")]), np.zeros((1, 4)), None)
        query = items.query(asked)
        typed = TypedLabel(f"age={asked}", query.labels)
        answers = items.answer(x[[1, 2, 3, 9]] + 0.1)
        assert label_results(typed, found, lambda _, answers=answers: answers).contradiction == expected
    items = of(ClassLabels(["cat", "dog"] * 10), x, k=1, calibration=calibrated("probability", 0.8))
    for asked, expected in (("cat", ""), ("dog", "the predicted labels of 4 of 4 images exclude class=dog")):
        query, answers = items.query(asked), items.answer(x[[0, 2, 4, 6]] + 0.1)
        typed = TypedLabel(f"class={asked}", query.labels)
        assert label_results(typed, found, lambda _, answers=answers: answers).contradiction == expected


@pytest.mark.parametrize("name", OF_DATA)
def test_every_label_space_answers_and_comes_back_from_a_file(name, tmp_path):
    labels = SPACES[name](tmp_path)
    items = of(labels, units(len(labels), 6))
    queries = units(3, 6, 5)
    answers = items.answer(queries)
    assert [len(each) for each in answers] == [len(labels.terms)] * 3
    assert all(str(each) for row in answers for each in row)
    json.dumps([each.as_data() for row in answers for each in row])
    items.save(tmp_path / "labels.safetensors")
    again = LabelledItems.read(tmp_path / "labels.safetensors", "abc")
    assert torch.equal(again.embeddings, items.embeddings)
    assert torch.equal(again.posterior.labels, items.posterior.labels)
    assert [[*map(str, row)] for row in again.answer(queries)] == [[*map(str, row)] for row in answers]
    if labels.typed_as == "text" and labels.title != "captions":
        text = next(filter(None, (labels.text(row) for row in range(len(labels)))))
        text = re.sub(r"(?<=\d),(?=\d{3})", "", text)  # thousands separators are not typed
        assert torch.allclose(again.query(text).vector, items.query(text).vector, atol=1e-5)


def test_each_label_of_a_sum_is_answered_by_the_items_that_have_it():
    ages, tags = NumberLabels(torch.arange(12.0)), TagLabels([[f"t{n % 3}"] for n in range(12)])
    ages.title = "age"
    present = torch.ones(12, 2, dtype=torch.bool)
    present[:6, 0] = False
    for row in of(WeightedLabels({ages: 1.0, tags: 1.0}, present=present), units(12, 5), k=2).answer(units(20, 5, 3)):
        assert [each.title for each in row] == ["age", "tags"]
        assert 6 <= row[0].value <= 11
    present[6:11, 0] = False  # the only item with an age is not left out where it is the query
    items = of(WeightedLabels({ages: 1.0, tags: 1.0}, present=present), units(12, 5), k=2)
    assert [row[0].value for row in items.answer(units(12, 5)[10:].float())] == [11, 11]


def test_what_is_unusual_about_a_label_is_said():
    ages = NumberLabels(torch.arange(20.0, 60.0), unit="years")
    ages.title = "age"
    items = of(ages, units(40, 5))
    assert items.query(30).remarks == []
    assert items.query("61").remarks == []
    (remark,) = items.query(900).remarks
    assert remark == "900 years is far from all training labels: the nearest is 59 years, 841 years away"
    tagged = of(TagLabels([["a", "b"], ["b", "c"], ["a"], ["c"]] * 3), units(12, 5))
    assert tagged.query("a;zebra").remarks == ["tags: no training item has zebra"]
    with refuses("tags", "no training item has 'zebra'"):
        tagged.query("zebra")
    both = of(WeightedLabels({ages: 1.0, TagLabels([["a"]] * 40): 1.0}), units(40, 5))
    partial = "distances are no label distances, since only some labels of the sum are given"
    assert partial in both.query({"age": 30}).remarks
    assert partial not in both.query({"age": 30, "tags": ["a"]}).remarks
    with refuses("label", "'x'"):
        of(library.MatrixLabels(torch.zeros(4, 4)), units(4, 5)).query("x")


def test_intervals_are_in_the_unit_of_the_labels():
    bound = calibrated("bound", 0.5, 0.5)
    prices = NumberLabels(np.log([100.0, 100.0, 100.0, 100.0]) / 0.5)
    prices.measure, prices.title = Measure("", 0.5, "ratio"), "price"
    (found,) = of(prices, units(4, 5), k=2, calibration=bound).answer(units(1, 5, 3))[0]
    assert [found.value, found.low, found.high] == pytest.approx([100, 100 / math.exp(0.5), 100 * math.exp(0.5)])
    assert str(found) == "price (predicted): 100 (61 to 165)"
    (found,) = of(NumberLabels([4.0, 4.0, 4.0, 4.0]), units(4, 5), k=2, calibration=bound).answer(units(1, 5, 3))[0]
    assert (found.low, found.high) == (3, 5)
    levels = OrdinalLabels(["b"] * 4, ["a", "b", "c"])
    (found,) = of(levels, units(4, 5), k=2, calibration=bound).answer(units(1, 5, 3))[0]
    assert str(found) == "level (predicted): b (a to c)"
    (found,) = of(VectorLabels([[1.0, 2.0]] * 4), units(4, 5), k=2, calibration=bound).answer(units(1, 5, 3))[0]
    assert str(found) == "vector (predicted): 1 2 (within 1.00, 90 %)"
    share = calibrated("probability", 0.8)
    (found,) = of(ClassLabels(["cat"] * 4), units(4, 5), k=2, calibration=share).answer(units(1, 5, 3))[0]
    assert str(found) == "class (predicted): cat (80 %)"


# -- files -------------------------------------------------------------------------------------------------------------


def test_many_items_are_a_sample_that_a_seed_draws():
    labels = NumberLabels(torch.arange(MAX_ITEMS + 5.0))
    rows = sample(labels, 128)
    assert len(rows) == len(set(rows.tolist())) == MAX_ITEMS
    assert torch.equal(rows, sample(labels, 128))
    assert torch.equal(sample(labels[:50].as_root(), 128), torch.arange(50))
    items = of(labels[rows].as_root(), torch.ones(len(rows), 1))
    items.record = items.record.model_copy(update={"total": MAX_ITEMS + 5})
    assert items.sample_words == "10,000 of 10,005 training items, drawn at random (seed 0)"


def test_the_file_has_a_largest_size(monkeypatch):
    from contml.search import labelled_items

    labels = TagLabels([[f"a long tag of item {n}"] for n in range(500)])
    monkeypatch.setattr(labelled_items, "MAX_BYTES", 20_000)
    size = len(to_saved(labels)[0].model_dump_json()) / 500
    for dim in (1, 30):
        rows = sample(labels, dim)
        each = 4 * dim + 8 * COORDINATES
        assert 0.6 * 20_000 < len(rows) * (size + each) < 1.1 * 20_000
        assert len(to_saved(labels[rows].as_root())[0].model_dump_json()) + each * len(rows) <= 20_000


@pytest.fixture
def saved(tmp_path):
    of(NumberLabels(torch.arange(12.0)), units(12, 5)).save(tmp_path / "labels.safetensors")
    return tmp_path / "labels.safetensors"


def changed(path, tensors=None, **record):
    old, values = load_tensors(path)
    save_tensors(path, {**old, **(tensors or {})}, record={**values["record"], **record})


DAMAGE = {
    "no record": {"format": None},
    "more neighbours than items": {"neighbours": 13},
    "a scale of 0": {"scale": 0.0},
    "no predictions": {"predictions": []},
    "coordinates of other items": {"tensors": {"coordinates": torch.zeros(11, 1).double()}},
    "coordinates that are not finite": {"tensors": {"coordinates": torch.full((12, 1), torch.nan).double()}},
    "landmarks that are no items": {"tensors": {"landmarks": torch.arange(12) + 1}},
    "a projection of other landmarks": {"tensors": {"projection": torch.zeros(11, 1).double()}},
    "labels of another kind": {"labels": {}},
    "embeddings of other items": {"tensors": {"embeddings": torch.zeros(11, 5)}},
    "embeddings in float16": {"tensors": {"embeddings": units(12, 5).half()}},
    "embeddings that are not numbers": {"tensors": {"embeddings": torch.full((12, 5), torch.nan)}},
    "embeddings that are not finite": {"tensors": {"embeddings": torch.full((12, 5), torch.inf)}},
    "labels that are not finite": {"tensors": {"labels.values": torch.full((12, 1), torch.nan).double()}},
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_file_is_one_line(saved, case):
    changed(saved, **DAMAGE[case])
    with refuses(str(saved)):
        LabelledItems.read(saved, "abc")


@pytest.mark.parametrize("number", [2, 4])
def test_a_file_of_another_model_or_format_is_refused(saved, number):
    assert len(LabelledItems.read(saved, "abc").labels) == 12
    with refuses(str(saved), "another model"):
        LabelledItems.read(saved, "other")
    changed(saved, format=number)
    with refuses(str(saved), f"format {number}", "must be 3", "run 'contml evaluate' again"):
        LabelledItems.read(saved, "abc")
    saved.write_bytes(saved.read_bytes()[:-1])
    with refuses(str(saved), "damaged or cut short"):
        LabelledItems.read(saved, "abc")


# -- a run, a bundle, an index -----------------------------------------------------------------------------------------


def pose_file(trained, row=2):
    path = trained.images.parent / "pose.json"
    test = library.app.experiment.load("pose/synthetic", TINY).build_task().test
    path.write_text(json.dumps(test.labels.plain(row)))
    return path


def test_a_bundle_answers_as_its_run(trained, exported, tmp_path):
    run, bundle = library.load(trained.run), library.load(exported)
    files = sorted(trained.images.iterdir())[:4]
    first, second = run.predict(files), bundle.predict(files)
    assert first == second
    assert list(first[0]) == ["pose"]
    assert len(first[0]["pose"].value) == 14
    pose = json.loads(pose_file(trained).read_text())
    assert np.array_equal(run.embed_label(pose), bundle.embed_label({"joints": pose}))
    run.save(tmp_path / "private", labels=False)
    assert not (tmp_path / "private" / "labels.safetensors").exists()
    with refuses("pose/synthetic", "no labels of training items", hint="--no-labels"):
        library.load(tmp_path / "private").predict(files)
    run.save(tmp_path / "again")
    run.save(tmp_path / "again")  # the same bundle
    assert (tmp_path / "again" / "labels.safetensors").read_bytes() == (exported / "labels.safetensors").read_bytes()


def test_embed_label_warns_of_an_unusual_label(trained):
    model = library.load(trained.run)
    pose = [[1000.0 * x, 1000.0 * y] for x, y in json.loads(pose_file(trained).read_text())]
    with pytest.warns(UserWarning, match="pose is far from all training labels"):
        model.embed_label(pose)


def test_predict_prints_and_writes(contml, trained, tmp_path):
    status, out, err = contml("predict", trained.run, trained.images)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == ["image", "pose"]
    assert "(within " in lines[1]
    (tmp_path / "broken.png").write_text("no image")
    status, out, err = contml("predict", trained.run, trained.images, "broken.png", "--json")
    data = json.loads(out)
    assert [each["image"] for each in data["broken"]] == ["broken.png"]
    (first,) = data["predictions"][0]["answers"]
    assert (first["label"], len(first["value"]), first["level"]) == ("pose", 14, 0.9)
    assert contml("predict", trained.run, trained.images, "--out", "p.csv")[1] == "p.csv: 24 images\n"
    assert "complete already" in contml("predict", trained.run, trained.images, "--out", "p.csv")[1]
    rows = list(csv.reader((tmp_path / "p.csv").read_text().splitlines()))
    assert rows[0][:2] == ["image", "pose"]
    assert len(rows) == 25
    assert json.loads(rows[1][1]) == first["value"]
    contml("predict", trained.run, trained.images, "--out", "p.parquet")
    from pyarrow import parquet

    table = parquet.read_table(tmp_path / "p.parquet").to_pydict()
    assert table["image"] == [row[0] for row in rows[1:]]
    assert table["pose bound"][0] == pytest.approx(first["bound"])


def test_search_by_a_label(contml, accepted, refused, trained, exported, tmp_path):
    assert contml("index", exported, trained.images, "--out", "i")[0] == 0
    path = pose_file(trained)
    status, out, err = contml("search", "i", "--label", f"pose={path}", "-k", "3", "--gallery", "found.html")
    assert (status, err) == (0, "")
    heading = out.splitlines()[1]
    assert heading.split()[:3] == ["rank", "id", "distance"]
    assert "pose (predicted)" in heading
    assert "label distance" not in out
    page = (tmp_path / "found.html").read_text()
    assert path.name in page
    query, *hits = [Image.open(io.BytesIO(base64.b64decode(part))) for part in re.findall(r"base64,([^\"]+)", page)]
    expected = label_picture(library.load(exported).labelled.query(json.loads(path.read_text())).labels, 0, 220, "")
    assert np.abs(np.asarray(query, int) - np.asarray(expected, int)).mean() < 3  # the pose that was asked for
    for hit in hits:  # the predicted pose, in its corner: blue and orange limbs on grey
        corner = np.asarray(hit, int)[140:216, 140:216]
        assert (np.abs(corner - 241).max(2) < 12).mean() > 0.6
        assert (np.abs(corner - (48, 176, 255)).max(2) < 60).any()
    (data,) = json.loads(contml("search", "i", "--label", f"Poses={path}", "-k", "24", "--json")[1])
    model = library.load(exported)
    query = model.embed_label(json.loads(path.read_text()))
    index = Index.open("i")
    found = model.embed([trained.images / Path(name).name for name in index.ids], through_labels=True)
    distances = dict(zip(index.ids, np.linalg.norm(found - query, axis=1).tolist(), strict=True))
    ranked = sorted(distances, key=lambda name: distances[name])
    assert [hit["id"] for hit in data["found"]] == ranked
    assert data["found"][0]["distance"] == pytest.approx(distances[ranked[0]], abs=1e-5)
    assert data["found"][0]["answers"][0]["label"] == "pose"
    (image,) = json.loads(contml("search", "i", sorted(trained.images.iterdir())[0], "-k", "2", "--json")[1])
    assert image["answers"][0]["label"] == "pose"
    images = sorted(trained.images.iterdir())[0]
    ranked = {}
    texts = {"embedding": "ranked by embedding (--by labels", "labels": "ranked through labels (--by embed"}
    for by, words in texts.items():
        out = contml("search", "i", images, "--by", by, "-k", "24")[1]
        assert words in out.splitlines()[-1]
        (data,) = json.loads(contml("search", "i", images, "--by", by, "-k", "24", "--json")[1])
        assert data["by"] == by
        ranked[by] = [hit["id"] for hit in data["found"]]
    assert ranked["embedding"] != ranked["labels"]
    vectors = dict(zip(index.ids, found, strict=True))
    asked = vectors[images.name] * np.append(np.ones(found.shape[1] - 1), 0)
    assert ranked["labels"] == sorted(index.ids, key=lambda name: float(np.linalg.norm(vectors[name] - asked)))

    assert "no such file none.json" in refused("search", "i", "--label", "pose=none.json")
    assert "must be [14, 2] as in training" in refused("search", "i", "--label", "pose=[[1, 2], [3, 4]]")
    assert "not JSON" in refused("search", "i", "--label", "pose={1}")
    library.load(exported).save(tmp_path / "private", labels=False)
    message = refused("search", "i", "--label", f"pose={path}", "--run", "private")
    assert "no labels of training items" in message
    assert "--no-labels" in message
    out, _ = accepted("search", "i", sorted(trained.images.iterdir())[0], "--run", "private")
    assert "predicted" not in out


def test_a_run_reports_its_answers(contml, trained, tmp_path):
    run = shutil.copytree(trained.run, tmp_path / "run")
    page = (run / "report.html").read_text()
    assert "Predicted labels" in page
    assert "nearest training items" in page
    before = (run / "labels.safetensors").read_bytes()
    (run / "labels.safetensors").unlink()
    contml("report", run)
    assert "Predicted labels" not in (run / "report.html").read_text()
    out = contml("evaluate", run)[1]
    assert "predictions of pose, by " in out
    assert re.search(r"search by image ranks (through labels|by embedding): .+ on validation: .+ \(test: .+, .+\)", out)
    by = {name: json.loads((run / f"evaluation{name}.json").read_text()) for name in ("", "-labels")}
    assert (by[""]["by"], by["-labels"]["by"]) == ("embedding", "labels")
    test = [each["curves"]["label_distance"]["model"][each["k"] - 1] for each in by.values()]
    assert LabelledItems.of_run(library.runs.Run(run)).record.search.test == pytest.approx(test)
    assert (run / "labels.safetensors").read_bytes() == before
    contml("report", run)
    assert "Predicted labels" in (run / "report.html").read_text()
