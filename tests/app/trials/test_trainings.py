"""A small benchmark from its suite to its page, and what a training measures."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support.refusals import refuses
from support.retrieval import evaluate

from contml.app.trials import measure
from contml.app.trials.benchmark import benchmark, page_of, trainings_of
from contml.app.trials.measure import query_scores, redrawn, ridge, write_components
from contml.app.trials.page import ONE_SEED, SetScores, claim_verdicts, page, set_scores
from contml.app.trials.plan import data_key, value
from contml.app.trials.suite import Claim, Method, Suite, read_suite
from contml.data import Split, Task
from contml.data.features import read_features, write_features
from contml.evaluation import mean_average_precision_at_r, recall_at_k
from contml.evaluation.posterior import Posterior
from contml.labels import ClassLabels, NumberLabels

HERE = Path(__file__).parent
SUITE, CLASSES, NETWORKS = ((HERE / f"{name}.yaml").read_text() for name in ("tiny", "species", "networks"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a small benchmark that is finished, and what it returned."""
    folder = tmp_path_factory.mktemp("benchmark")
    return folder, run(folder, SUITE)


def run(folder, text=None, **options):
    """Run the small benchmark of a folder, or write that of a text and run it; what it printed is lost."""
    suite = folder / "tiny.yaml"
    if text is not None:
        suite.write_text(text)
    places = [f"data={folder}"] if "\nplaces:" in suite.read_text() else []
    folders = {"inputs": folder / "inputs", "results": folder / "results"}
    return benchmark(str(suite), places, **folders, **{"on_line": lambda _: None, **options})


def rows(folder):
    return [json.loads(line) for line in trainings_of(folder / "results", "tiny").read_text().splitlines()]


def test_every_training_is_a_line_and_test_lines_have_every_query(finished):
    folder, result = finished
    found = [(*json.loads(row["key"])[:5], row) for row in rows(folder)]
    assert result.done == result.total == len(found) == 2 * (3 + 8 + 8) + (2 + 2 + 1)
    for set_name, method, _, seed, split, row in found:
        assert row["seconds"] >= 0
        assert (seed == 0) == (split == "val") == ("queries" not in row)
        if split == "test":
            assert len(row["queries"]) == {"gauges": 34, "wide": 30}[set_name]
            assert np.mean(row["queries"]) / 10_000 == pytest.approx(row["value"], abs=1e-4), method
            assert ("groups" in row) == (seed == 1)
            assert [len(values) for values in row["others"].values()] == [len(row["queries"])] * 2
            assert np.mean(row["others"]["kendall"]) / 10_000 == pytest.approx(row["kendall"], abs=1e-4)


def test_the_score_through_labels_is_of_the_expected_squared_label_distance(finished):
    """Of the features as they are, by loops over the posteriors of both items."""
    folder, result = finished
    task = measure._task(result.suite.model_dump_json(), "wide", (("folder", str(folder / "inputs")),), "test")
    train, test = (measure.vectors_of(split) for split in (task.train, task.evaluated))
    keys = [(json.loads(row["key"]), row) for row in rows(folder)]
    key, row = next((key, row) for key, row in keys if key[:2] == ["wide", "raw"] and key[4] == "test")
    if "true" in key[2]:
        train, test = (torch.nn.functional.normalize(each, dim=1) for each in (train, test))
    values = task.train.labels.values
    found = Posterior.fit(train, values.double(), None).weights(test)
    gaps = torch.cdist(values.double(), values.double()).square()
    expected = torch.zeros(len(test), len(test), dtype=torch.float64)
    for a in range(len(test)):
        for b in range(len(test)):
            expected[a, b] = found.weights[a] @ gaps[found.rows[a]][:, found.rows[b]] @ found.weights[b]
    k = evaluate(test.float(), task.evaluated.labels)[0].k
    labels = task.evaluated.labels.pairwise().double()
    scores = []
    for query in range(len(test)):
        nearest = sorted((n for n in range(len(test)) if n != query), key=lambda n: float(expected[query, n]))[:k]
        scores.append(float(labels[query, nearest].mean()))
    random = (labels.sum(1) / (len(test) - 1)).numpy()
    oracle = labels.fill_diagonal_(torch.inf).sort(dim=1).values[:, :k].mean(1).numpy()
    normalized = (random - np.array(scores)) / (random - oracle).mean()
    assert np.mean(row["others"]["through_labels@10"]) / 10_000 == pytest.approx(normalized.mean(), abs=2e-3)


def test_the_page_has_the_scores_of_the_lines(finished):
    folder, result = finished
    page = page_of(folder / "results", "tiny").read_text()
    assert page.startswith("# Two losses on drawn gauges\n")
    by_method = {}
    for row in rows(folder):
        set_name, method, _, _, split, _ = json.loads(row["key"])
        if split == "test":
            by_method.setdefault((set_name, method), []).append(row["value"])
    overview = page.split("## Overview")[1].split("## gauges")[0]
    for (set_name, method), values in by_method.items():
        line = next(line for line in page.split(f"## {set_name}")[1].splitlines() if line.startswith(f"| {method} |"))
        assert f" {np.mean(values):.3f} [" in line
        (line,) = (line for line in overview.splitlines() if line.startswith(f"| {method} |"))
        assert f"{np.mean(values):.3f}" in line
    assert "| regression |" in overview.split("| raw |")[1] or "| regression |" in overview
    assert "Within noise of" in overview
    for each in set_scores(result.suite, result.cells, result.results):
        assert all(values.shape == (2, len(each.groups)) for values in each.scores.values())
    for key in ("items", "groups"):  # as of an older reader of the same data
        first, old = next((name, {**found, key: []}) for name, found in result.results.items() if key in found)
        with refuses("results of", "another order", hint="delete the older"):
            set_scores(result.suite, result.cells, {**result.results, first: old})


def test_a_page_counts_trials_with_the_score_of_another(finished):
    _, done = finished
    (cell,) = (each for each in done.cells if (each.set_name, each.method_name) == ("wide", "cosent"))
    trials = sorted((item.key for item in cell.trials(done.results)), key=lambda key: -value(done.results[key]))
    for values, shown in (([6, 5, 4, 4, 2, 2], "cosent 2 of 6"), ([6, 5, 4, 3, 2, 1], "cosent 0")):
        changed = {key: {**done.results[key], "value": value / 9} for key, value in zip(trials, values, strict=True)}
        text = page(done.suite, done.cells, {**done.results, **changed}, "").split("## wide")[1]
        assert (f"probably the same training: {shown}." in text) == (shown in text) == (len(set(values)) < 6)


def test_a_page_of_one_seed_says_that_its_intervals_are_over_queries_alone(finished, tmp_path):
    run(tmp_path, SUITE.replace("seeds: [1, 2]", "seeds: [1]"), only=["gauges", "raw"])
    page, of_two = (page_of(each / "results", "tiny").read_text() for each in (tmp_path, finished[0]))
    assert (ONE_SEED in page, ONE_SEED in of_two) == (True, False)
    assert ("intervals over queries" in page, "intervals over seeds and queries" in of_two) == (True, True)


def test_a_stopped_benchmark_goes_on_and_gives_the_same(finished, tmp_path):
    folder, _ = finished
    assert (run(tmp_path, SUITE, minutes=0).done, run(tmp_path, only=["wide", "cosent"]).done) == (0, 8)
    again = rows(tmp_path)
    content = {row["key"]: {**row, "seconds": 0} for row in rows(folder)}
    assert len(again) == 8
    assert all({**row, "seconds": 0} == content[row["key"]] for row in again)
    page = page_of(tmp_path / "results", "tiny").read_text()
    assert ". 8 of 43 trainings are done" in page  # of the whole suite, whatever was asked for
    assert run(tmp_path, only=["gauges", "raw"]).total == 3
    page = page_of(tmp_path / "results", "tiny").read_text()
    assert ". 11 of 43 trainings are done" in page
    assert "\n| cosent |" in page.split("## wide")[1]


def test_another_draw_has_the_same_items_divided_by_group_with_their_labels(tmp_path):
    (tmp_path / "tiny.yaml").write_text(SUITE)
    own = f'title: ""\nbase: {tmp_path}/tiny.yaml\nsets: [gauges, "gauges, draw 2"]\n'
    (tmp_path / "drawn.yaml").write_text(f"{own}methods: [regression, log_ratio]\n")
    suite = read_suite(str(tmp_path / "drawn.yaml"))
    assert [each.draw for each in suite.sets.values()] == [0, 2]
    assert suite.methods["regression"].sets == ("gauges", "gauges, draw 2")
    assert data_key(suite, "gauges") != data_key(suite, "gauges, draw 2")
    assert data_key(suite, "gauges", drawn=False) == data_key(suite, "gauges, draw 2", drawn=False)

    wrong = (("methods", "[regression, log_ratio]", '["log_ratio, draw 1"]'), ("sets", "draw 2", "draw -1"))
    for key, old, new in wrong:
        (tmp_path / "wrong.yaml").write_text((tmp_path / "drawn.yaml").read_text().replace(old, new))
        with refuses(key, allowed="must be of"):
            read_suite(str(tmp_path / "wrong.yaml"))

    def split(first, last):
        numbers = range(first, last)
        groups = torch.tensor([n // 3 for n in numbers])
        images = [np.full((2, 2, 3), n, np.uint8) for n in numbers]
        return Split(images, [str(n) for n in numbers], NumberLabels([float(n) for n in numbers]), groups=groups)

    task = Task(split(0, 60), split(90, 99), split(60, 90))
    task = replace(task, val_groups=[str(n // 3) for n in range(60)])  # of a drawn validation split
    drawn = redrawn(suite, "gauges, draw 2", task)
    assert drawn.test.names == task.test.names
    assert 24 <= len(drawn.val) <= 36
    assert set(drawn.val.names) != set(task.val.names)
    assert sorted(map(int, [*drawn.train.names, *drawn.val.names])) == list(range(90))
    for each in (drawn.train, drawn.val):
        assert [each.labels.plain(row) for row in range(len(each))] == [float(name) for name in each.names]
        assert each.groups.tolist() == [int(name) // 3 for name in each.names]
    assert not set(drawn.train.groups.tolist()) & set(drawn.val.groups.tolist())
    bare = {part: replace(each, groups=None) for part, each in task.splits.items()}
    with refuses("sets.gauges, draw 2", hint="exclude_group"):
        redrawn(suite, "gauges, draw 2", replace(task, **bare))


def test_maps_are_averaged_in_rows_and_columns(tmp_path):
    values = np.random.default_rng(0).normal(size=(6, 16, 3)).astype(np.float32)
    write_features(tmp_path / "maps.npz", [*"abcdef"], ["train"] * 4 + ["test"] * 2, values)
    write_components(tmp_path / "maps.npz", tmp_path / "out.npz", None, 2)
    expected = values.reshape(6, 2, 2, 2, 2, 3).mean((2, 4))  # item, row, row of the part, column, ...
    found = read_features(tmp_path / "out.npz").values
    np.testing.assert_allclose(found, expected.transpose(0, 3, 1, 2).reshape(6, 12), atol=1e-6)
    write_features(tmp_path / "wide.npz", [*"abcdef"], ["train"] * 4 + ["test"] * 2, values[:, :12])
    for name, side in (("maps", 5), ("wide", 2)):
        with refuses("maps", str(side), "must be true: the feature maps have"):
            write_components(tmp_path / f"{name}.npz", tmp_path / "other.npz", None, side)


def test_a_finished_benchmark_trains_nothing(finished, monkeypatch):
    folder, _ = finished
    before = rows(folder)
    monkeypatch.setattr("contml.app.trials.measure.measure", None)
    page = page_of(folder / "results", "tiny")
    text = page.read_text()
    page.write_text(text + "\n## Notes\n\nBy hand.\n")
    assert (run(folder).done, rows(folder)) == (len(before), before)
    assert page.read_text() == text + "\n## Notes\n\nBy hand.\n"
    page.write_text(text)


def test_the_plan_needs_no_places_and_writes_nothing(tmp_path):
    (tmp_path / "tiny.yaml").write_text(SUITE)
    lines = []
    folders = {"inputs": tmp_path / "inputs", "results": tmp_path / "results"}
    benchmark(str(tmp_path / "tiny.yaml"), [], **folders, plan=True, on_line=lines.append)
    assert "43 trainings" in lines[0]
    assert "core-hours" in lines[0]
    assert [line.split(":")[0] for line in lines[1:]] == ["gauges", "wide"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny.yaml"]


def test_a_page_of_something_else_is_not_overwritten(tmp_path):
    page = page_of(tmp_path / "results", "tiny")
    page.parent.mkdir()
    page.write_text("# My notes\n")
    with refuses(subject=str(page), got="exists already"):
        run(tmp_path, SUITE)
    assert page.read_text() == "# My notes\n"
    assert run(tmp_path, plan=True).total == 43, "a plan writes no page"


def test_a_regression_of_labels_that_are_no_vectors(tmp_path):
    text = SUITE.replace("  wide:\n    config: scalar", "  wide:\n    config: layout")
    with refuses(subject="regression", got="wide"):
        run(tmp_path, text.replace(", sets: [gauges]", ""), only=["wide", "regression"])


def test_an_error_of_a_set_names_the_set(tmp_path):
    with refuses(subject="task.queries", got="29", origin="sets.wide of the suite"):
        run(tmp_path, SUITE.replace("task.queries=0", "task.queries=29"), only=["wide"])


def test_ridge_is_the_minimum_of_its_formula():
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(30, dim, generator=generator).double() for dim in (4, 3))
    known = torch.rand(30, 3, generator=generator) > 0.3
    queries = torch.randn(6, 4, generator=generator).double()
    found = ridge(x, y, known, queries, 0.2)
    for n in range(3):
        a, b = x[known[:, n]], y[known[:, n], n]
        penalty = 0.2 * (a - a.mean(0)).square().mean()
        z = (b - b.mean()) / b.std(correction=0)
        # The mean of (a w + bias - z)^2 plus penalty |w|^2, as one sum of squares.
        rows = torch.cat((torch.nn.functional.pad(a, (0, 1), value=1), (len(a) * penalty).sqrt() * torch.eye(4, 5)))
        w = torch.linalg.lstsq(rows, torch.cat((z, torch.zeros(4)))[:, None]).solution[:, 0]
        expected = (queries @ w[:4] + w[4]) * b.std(correction=0) + b.mean()
        assert torch.allclose(found[:, n], expected, atol=1e-6)


@pytest.fixture(scope="module")
def finished_classes(tmp_path_factory):
    """The folder of a small benchmark of classes that is finished, and what it returned."""
    folder = tmp_path_factory.mktemp("classes")
    return folder, run(folder, CLASSES)


def test_a_training_on_classes_has_both_scores_of_every_query(finished_classes):
    _, result = finished_classes
    (cell,) = (each for each in result.cells if each.method_name == "contrastive")
    tests = [result.results[item.key] for item in cell.tests(result.results)]
    for row in tests:
        assert list(row["others"]) == ["recall@1"]
        assert len(row["queries"]) == len(row["others"]["recall@1"]) == 30
        assert np.mean(row["queries"]) / 10_000 == pytest.approx(row["value"], abs=1e-4)
    assert sorted(tests[0]["groups"]) == [n // 5 for n in range(30)]  # the queries of a class are drawn together
    assert "label_distance" not in tests[0]


def test_the_scores_of_queries_are_those_of_the_evaluation():
    """Recall@1 and MAP@R of classes, with ties and a class of one item: the means are the metrics of the library."""
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)).round(decimals=0)  # many ties
    classes = [n % 7 for n in range(39)] + [9]
    evaluation, ranking = evaluate(x, ClassLabels(classes), clusters=False)
    recall, map_at_r = (query_scores(name, evaluation, ranking) for name in ("recall@1", "map_at_r"))
    assert recall.shape == map_at_r.shape == (40,)
    assert float(recall.mean()) == pytest.approx(evaluation.curves["recall"].model[0], abs=1e-12)
    assert float(recall.mean()) == pytest.approx(recall_at_k(x, classes), abs=1e-12)
    assert float(map_at_r.mean()) == pytest.approx(evaluation.scores["map_at_r"].model, abs=1e-12)
    assert float(map_at_r.mean()) == pytest.approx(mean_average_precision_at_r(x, classes), abs=1e-12)
    assert float(recall[39]) == float(map_at_r[39]) == 0
    for query in range(40):  # of one query alone: all others are the gallery
        others = [row for row in range(40) if row != query]
        options = {"gallery": (x[others], [classes[row] for row in others])}
        assert float(recall[query]) == pytest.approx(recall_at_k(x[[query]], [classes[query]], **options))
        expected = mean_average_precision_at_r(x[[query]], [classes[query]], **options)
        assert float(map_at_r[query]) == pytest.approx(expected)


@pytest.mark.parametrize("items", [101, 120])
def test_the_score_of_queries_of_graded_labels_is_the_normalized_score(items):
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(items, 3, generator=generator), torch.rand(items, generator=generator)
    evaluation, ranking = evaluate(x, NumberLabels(y))
    assert evaluation.k == 10  # the ranking has label_distance@10, which is not normalized
    found = query_scores("label_distance@10", evaluation, ranking)
    at = evaluation.curves["label_distance"].at(evaluation.k)
    assert float(found.mean()) == pytest.approx(at.normalized(), rel=1e-6)


def test_scores_of_other_labels(tmp_path):
    text = SUITE.replace("[label_distance@10, through_labels@10, kendall]", "[recall@1]")
    with refuses(subject="scores", got="recall@1 of graded", allowed="label_distance@10"):
        run(tmp_path, text, only=["gauges", "raw"])
    with refuses(subject="scores", got="label_distance@10 of classes", allowed="recall@1, map_at_r"):
        run(tmp_path, CLASSES.replace("scores: [map_at_r, recall@1]\n", ""), only=["species", "raw"])


def test_the_page_says_what_holds_of_published_orderings(finished_classes):
    folder, result = finished_classes
    page = page_of(folder / "results", "tiny").read_text()
    scores = {each.name: each for each in set_scores(result.suite, result.cells, result.results, "recall@1")}
    part = page.split("## Published orderings")[1].split("## Overview")[0]
    lines = [line for line in part.splitlines() if line.startswith("| ")]
    assert len(lines) == 2 + 2
    verdicts = claim_verdicts(result.suite, scores)
    for line, claim, (shown, verdict) in zip(lines[2:], result.suite.claims, verdicts, strict=True):
        assert line.startswith(f"| {claim.better} > {claim.worse} | {claim.published} | {claim.source} |")
        assert line.endswith(f"| {shown} | {verdict} |")
        better, worse = (scores["species"].scores[name] for name in (claim.better, claim.worse))
        assert shown.startswith(f"species {float((better - worse).mean()):+.3f} [")
    table = page.split("## species")[1]
    for name, values in scores["species"].scores.items():
        (line,) = (line for line in table.splitlines() if line.startswith(f"| {name} |"))
        assert f"| {values.mean():.3f} |" in line


def test_verdicts_of_orderings():
    """Two methods that differ on every query, and two that differ by chance."""
    generator = np.random.default_rng(0)
    noise = generator.normal(0, 0.1, (3, 60))
    scores = {"a": noise + 0.5, "b": noise, "c": noise + generator.normal(0, 0.01, (3, 60))}
    groups, path, methods = range(60), {"config": "x"}, {name: Method() for name in "abcd"}
    claims = [Claim(better=x, worse=y, source="", published="") for x, y in ("ab", "ba", "bc", "ad")]
    options = {"title": "t", "train": (), "sets": {"s": path, "t": path}, "reference": "a", "trials": 1}
    suite = Suite(**options, methods=methods, claims=claims)
    some = {"a": scores["a"], "c": scores["c"]}
    found = claim_verdicts(suite, {"s": SetScores("s", scores, groups, "s"), "t": SetScores("t", some, groups, "t")})
    assert [verdict for _, verdict in found] == ["holds", "does not hold", "undecided", "not measured yet"]
    assert (found[0][0], found[3][0]) == ("s +0.500 [+0.500, +0.500]", "-")


@pytest.mark.slow
def test_whole_networks_and_a_set_whose_options_another_one_chose(tmp_path):
    assert run(tmp_path, NETWORKS, only=["2 numbers"]).done == 0  # nothing has chosen its options
    result = run(tmp_path)
    assert result.done == result.total == 2 * (2 + 2) + 2 * 2
    for method in ("log_ratio", "cosent"):
        of_method = {each.set_name: each for each in result.cells if each.method_name == method}
        chosen, used = of_method["4 numbers"], of_method["2 numbers"]
        best = max(chosen.trials(result.results), key=lambda item: result.results[item.key]["value"])
        assert {item.options for item in used.tests(result.results)} == {best.options}
        assert used.total == len(used.known(result.results)) == 2
        values = [[result.results[item.key]["value"] for item in each.tests(result.results)] for each in (chosen, used)]
        assert values[0] != values[1]
    page = page_of(tmp_path / "results", "tiny").read_text()
    assert "The options were chosen on 4 numbers" in page.split("## 2 numbers")[1]
    assert not list((tmp_path / "inputs").rglob("features.npz"))
    changed = NETWORKS.replace("images.crop=32", "images.crop=30")
    assert run(tmp_path, changed, minutes=0).done == 0  # other images are another training


@pytest.mark.parametrize(("old", "new", "subject", "origin"), [
    ("loss=cosent", "loss=cosen", "loss.name", "method cosent"),
    ("loss.scale: [5, 20]", "loss.scal: [5, 20]", "loss.scal", "method cosent"),
    ("sampler=uniform", "sampler=uniforn", "sampler.name", "method log_ratio"),
    ("task.queries=0", "task.query=0", "task.query", "sets.wide of the suite"),
    ("model.dim=4", "model.dim=$dim", "changes", ""),
    ("task.queries=0", "task.queries=$size", "changes", ""),
])  # fmt: skip
@pytest.mark.parametrize("plan", [True, False])
def test_a_mistyped_name_is_found_before_the_first_training(tmp_path, old, new, subject, origin, plan):
    with refuses(subject, origin=origin):
        run(tmp_path, SUITE.replace(old, new), plan=plan)
    assert not (tmp_path / "inputs").exists()


def test_a_loss_for_other_labels_is_found_before_the_first_training(tmp_path):
    old, new = "[loss=cosent], grid: [{loss.scale", "[loss=proxy_anchor], grid: [{loss.alpha"
    with refuses("loss proxy_anchor", "graded labels", "needs classes"):
        run(tmp_path, SUITE.replace(old, new))
    assert not (tmp_path / "inputs").exists()


@pytest.mark.parametrize("copies", [0, 1, 2])
def test_training_items_whose_image_is_in_another_split_are_left_out(tmp_path, copies):
    """A copy of a validation image and one of a test image: without `copies: 2` the set is refused."""
    rows = ["image,age,split"]
    for n in range(30):
        Image.fromarray(np.full((8, 8, 3), 5 * n, np.uint8)).save(tmp_path / f"{n}.png")
        rows.append(f"{n}.png,{n},{'train' if n < 16 else 'val' if n < 23 else 'test'}")
    for copy, original in ((3, 20), (5, 25)):
        shutil.copy(tmp_path / f"{original}.png", tmp_path / f"{copy}.png")
    (tmp_path / "ages.csv").write_text("\n".join(rows))
    text = (HERE / "ages.yaml").read_text().replace("copies: 0", f"copies: {copies}")
    text = text.replace("FOLDER", str(tmp_path))
    if copies < 2:
        with refuses(subject="copies", got=str(copies), allowed="2", hint="image is also in another split"):
            run(tmp_path, text)
        return
    places = {"data": str(tmp_path), "folder": str(tmp_path / "inputs")}
    done = run(tmp_path, text)
    assert done.done == done.total
    assert "2 items have an image that is also in another split" in (tmp_path / "results/tiny.md").read_text()
    left = {}
    for split in ("val", "test"):
        task = measure._task(done.suite.model_dump_json(), "ages", tuple(places.items()), split)
        left[split] = sorted(task.train.names)
    assert "3.png" not in left["val"]
    assert "5.png" in left["val"]
    assert "5.png" not in left["test"]
    assert len(left["val"]) == len(left["test"]) == 15


def test_a_refused_option_ends_the_benchmark_and_is_no_result(tmp_path):
    """It is no divergence, which has the lowest score. A memory that begins after the last step is refused."""
    late = SUITE.replace("loss.squared=false]", "loss.squared=false, memory.size=64, memory.start=1000]")
    with refuses("memory.start", "1000", "must be below", origin="method log_ratio: "):
        run(tmp_path, late, only=["gauges", "log_ratio"])
    assert not trainings_of(tmp_path / "results", "tiny").exists()
