"""Suites: equal numbers of distinct trials, the second round, and errors."""

import re
from pathlib import Path

import pytest
import torch
from support.paths import ROOT
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, normalize

from contml import InputError
from contml._support.imports import import_by_name
from contml.app.trials.plan import Cell, cells, seconds_left
from contml.app.trials.record import FinishedTrainings
from contml.app.trials.suite import Axis, Method, read_suite, suite_names
from contml.config import Section, dump, from_overrides, read, validate
from contml.labels import ClassLabels, VectorLabels
from contml.losses import LOSSES, LogRatioLoss, NPairsLoss

#: The suites that come with contml, and those of this repository that need other packages or settings.
SUITES = [*suite_names(), *map(str, sorted((ROOT / "benchmarks/suites").glob("*.yaml")))]

TINY = (Path(__file__).parent / "two_losses.yaml").read_text()


@pytest.fixture
def write_suite(tmp_path):
    """A function that writes the suite above, with changes to its text, and returns its path."""

    def write(*changes):
        text = TINY
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path = tmp_path / "tiny.yaml"
        path.write_text(text)
        return str(path)

    return write


@pytest.mark.parametrize("name", SUITES)
def test_every_trial_of_a_method_is_another_training(name):
    """Optimizers divide by the size of gradients, so losses are different if the directions of their gradients are."""
    suite, random = read_suite(name), torch.Generator().manual_seed(0)
    spread = torch.logspace(-1.5, 0.5, 54, dtype=torch.float64)[:, None]  # pairs at all distances
    centres = 1 + 0.5 * torch.randn(6, 8, generator=random, dtype=torch.float64).repeat(9, 1)  # of the classes
    embeddings = centres + spread * torch.randn(54, 8, generator=random, dtype=torch.float64)
    graded, classes = VectorLabels(torch.randn(54, 3, generator=random)), ClassLabels([n % 6 for n in range(54)])
    for method_name in suite.trained:
        method, trainings = suite.methods[method_name], list[tuple[list[str], Tensor]]()
        for options in [*method.options, *method.further(method.options[0], suite.further)]:
            changes = [*suite.train, *method.changes, *options.split()]
            of_loss = [each.replace("loss=", "loss.name=") for each in changes if each.startswith("loss")]
            part = validate(from_overrides(of_loss), {"loss": Section(LOSSES, contract=nn.Module)}).parts["loss"]
            binary = part.constructor.requires not in ("any", "graded") or "binarize" in str(changes)
            labels = classes if binary else graded
            x = normalize(embeddings) if "model.normalize=true" in changes else embeddings.clone()
            with torch.random.fork_rng():  # proxies, and draws of a miner
                torch.manual_seed(0)
                loss = part.build(train_labels=labels, num_classes=6, embedding_dim=8)
                loss(x.requires_grad_(), labels[range(54)]).backward()
            others = [each for each in options.split() if not each.startswith("loss.")]
            for earlier, gradient in trainings:
                assert earlier != others or cosine_similarity(x.grad.flatten(), gradient, 0) < 1 - 1e-8, options
            trainings.append((others, x.grad.flatten()))


#: Suites that compare the two, take the choice of another suite, of a paper or of the preset, or have cosines alone.
FIXED = ("log_ratio_normalization", "held_out", "unified_view", "classes_synthetic", "preset_losses")


@pytest.mark.parametrize("name", [name for name in SUITES if Path(name).stem not in FIXED])
def test_losses_on_distances_choose_between_normalized_and_unnormalized(name):
    """All others compare cosines, or normalize embeddings themselves: then nothing but the ranking would differ."""
    suite = read_suite(name)
    on_distances = set()
    for method_name in suite.trained:
        method = suite.methods[method_name]
        changes = [(*suite.train, *method.changes, *option.split()) for option in method.options]
        options = [dict(change.split("=", 1) for change in each) for each in changes]
        normalized = {each["model.normalize"] for each in options}
        if all(compares_cosines(each) for each in options):
            assert normalized == {"true"}, method_name
        else:
            on_distances.add(method_name)
            assert normalized == {"false", "true"} or method_name == "regression", method_name  # embeddings are labels
    assert len(on_distances) >= 2


def compares_cosines(changes):
    """Whether the loss of a config compares cosines, or normalizes embeddings itself."""
    loss = LOSSES[changes["loss"]] if changes["loss"] in LOSSES else import_by_name(changes["loss"])
    distance = changes.get("loss.distance", "euclidean" if issubclass(loss, LogRatioLoss) else loss.distance)
    if loss is NPairsLoss:
        distance = "dot"
    return loss.normalize or (distance == "cosine" and changes.get("loss.similarity") != "student_t")


def test_the_second_round_goes_beyond_an_end_and_else_between_the_neighbours():
    axis = Axis("lr", (1.0, 4.0, 16.0))
    assert (axis.around(2, 2), axis.around(0, 2), axis.around(1, 2)) == ([64, 256], [0.25, 0.0625], [2, 8])
    assert axis.around(2, 4) == pytest.approx([64, 256, 8, 16 / 2**0.5])
    assert axis.around(1, 4) == pytest.approx([2, 8, 4 / 2**0.5, 4 * 2**0.5])


def test_the_second_round_has_as_many_trials_for_every_method_and_keeps_the_other_choices():
    one = Method(grid=(("a=1", "a=2"), {"lr": (1.0, 4.0, 16.0)}))
    assert one.further("a=2 lr=16", 2) == ["a=2 lr=64", "a=2 lr=256"]
    two = Method(grid=({"b": (1.0, 2.0, 4.0)}, {"lr": (1.0, 4.0, 16.0)}))
    assert two.further("b=2 lr=1", 4) == ["b=1.41 lr=1", "b=2.83 lr=1", "b=2 lr=0.25", "b=2 lr=0.0625"]
    assert set(two.further("b=2 lr=1", 4)).isdisjoint(two.options)
    assert Method(baseline="features", grid=(("normalize=true",),)).further("normalize=true", 4) == []


def test_what_is_at_an_end_of_all_that_was_tried():
    method = Method(grid=({"b": (1.0, 2.0)}, {"lr": (1.0, 4.0)}))
    tried = [*method.options, *method.further("b=2 lr=4", 4)]
    assert (method.at_edge("b=8 lr=4", tried), method.at_edge("b=2 lr=4", tried)) == (["b"], [])
    assert method.at_edge("b=1 lr=64", tried) == ["b", "lr"]


def finish(cell, results, score):
    """Finish what can be trained now; `score(item)` is its value."""
    for item in missing(cell, results):
        results[item.key] = {"value": score(item), "seconds": 2.0}


def missing(cell, results):
    return [item for item in cell.known(results) if item.key not in results]


def test_a_cell_tries_chooses_tries_around_it_and_tests(write_suite):
    cell = Cell(read_suite(write_suite()), {}, "gauges", "log_ratio")
    assert cell.total == 4 + 2 + 2
    results = {}
    assert ({(item.seed, item.split) for item in missing(cell, results)}, cell.tests(results)) == ({(0, "val")}, [])
    best = "model.normalize=true optimizer.lr=0.02"
    finish(cell, results, lambda item: float(item.options == best))
    options = [f"model.normalize=true optimizer.lr={rate}" for rate in (0.04, 0.08)]
    assert ([item.options for item in missing(cell, results)], cell.tests(results)) == (options, [])
    finish(cell, results, lambda item: 2.0 if item.options.endswith("0.08") else 0.0)
    left = [(item.options.split("=")[-1], item.seed, item.split) for item in missing(cell, results)]
    assert left == [("0.08", 1, "test"), ("0.08", 2, "test")]
    assert not cell.finished(results)
    finish(cell, results, lambda _: 0.5)
    assert cell.finished(results)
    assert missing(cell, results) == []


def test_a_trial_that_diverged_is_not_chosen(write_suite):
    cell, results = Cell(read_suite(write_suite()), {}, "gauges", "cosent"), {}
    for item in missing(cell, results):
        failed = item.options != "loss.scale=20 optimizer.lr=0.01"
        results[item.key] = {"error": "loss", "seconds": 1.0} if failed else {"value": -0.3, "seconds": 1.0}
    finish(cell, results, lambda _: -0.5)
    assert {item.options for item in cell.tests(results)} == {"loss.scale=20 optimizer.lr=0.01"}


def test_a_training_is_another_one_if_a_value_of_its_config_is_but_not_where_the_data_are(write_suite):
    def keys(*changes):
        return [item.key for cell in cells(read_suite(write_suite(*changes)), {}) for item in cell.trials({})]

    first = keys()
    assert (len(set(first)), keys(("title: Two losses", "title: Others"))) == (len(first), first)
    assert not set(keys(("model.dim=4", "model.dim=5"))[2:]) & set(first)
    assert keys(("model.dim=4", "model.dim=5"))[:2] == first[:2]  # features have no head
    assert not set(keys(("weights=none]", "weights=none, images.crop=32]"))) & set(first)
    changed = keys(("changes: [loss=cosent]", "changes: [loss=cosent]\n    version: 2"))
    assert changed[:6] == first[:6]
    assert not set(changed[6:]) & set(first[6:])
    assert not re.search("/|tmp", "".join(first).replace("scalar/synthetic", ""))


def test_the_time_left_is_that_of_what_is_known(write_suite):
    found = cells(read_suite(write_suite()), {})
    assert ([cell.total for cell in found], seconds_left(found, {}, 5.0)) == ([2 + 1, 8, 8], 19 * 5)
    results = {}
    finish(found[1], results, lambda _: 0.0)  # 4 of 2 s
    assert seconds_left(found, results, 5.0) == pytest.approx((19 - 4) * 2)


#: Changes of the suite above as OLD -> NEW, and suites with a base; and the line that refuses each.
GOLDEN = Path(__file__).parents[2] / "wrong_suites.txt"
WRONG = [block.split("\n  ") for block in GOLDEN.read_text(encoding="utf-8").strip().split("\n\n")]


@pytest.mark.parametrize(("change", "line"), WRONG)
def test_an_error_of_a_suite_is_one_line(write_suite, tmp_path, change, line):
    old, arrow, new = change.partition(" -> ")
    path = write_suite(*[(old, new)] * bool(arrow))
    if not arrow:
        (tmp_path / "second.yaml").write_text(f"base: {path}\n")
        (tmp_path / "named.yaml").write_text(TINY.replace("baseline: features", "baseline: features, sets: [gauges]"))
        path = str(tmp_path / "other.yaml")
        Path(path).write_text(change.replace("FOLDER", str(tmp_path)))
    with pytest.raises(InputError) as error:
        read_suite(path)
    assert str(error.value).replace(str(tmp_path), "FOLDER") == line


def test_a_suite_is_another_one_with_changes(write_suite, tmp_path):
    gauges = "gauges: {config: scalar/synthetic}"
    rooms = "rooms: {config: layout/synthetic}"
    of_both = ("baseline: features", "baseline: features, sets: [gauges, rooms]")
    base = read_suite(write_suite((gauges, f"{gauges}\n  {rooms}"), of_both))
    path = tmp_path / "other.yaml"
    own = "train: [model.dim=5]\nsets: [gauges]\nmethods: [raw, log_ratio]\nseeds: [3]\n"
    path.write_text(f"base: tiny.yaml\n{own}")  # beside it
    suite = read_suite(str(path))
    assert suite.train == (*base.train, "model.dim=5")
    assert (suite.sets, suite.seeds) == ({"gauges": base.sets["gauges"]}, (3,))
    assert (suite.methods["log_ratio"], suite.methods["raw"].sets) == (base.methods["log_ratio"], ("gauges",))
    assert (suite.title, suite.inputs, suite.trials) == (base.title, base.inputs, base.trials)
    path.write_text(f"base: {tmp_path / 'tiny.yaml'}\nsets: {{dials: {{config: scalar/synthetic}}}}\n")
    assert list(read_suite(str(path)).methods) == ["log_ratio", "cosent"], "raw is defined on no set that is left"
    own = "methods: {log_ratio: {grid: [{optimizer.lr: [1, 2]}]}}\ntrials: 2"
    path.write_text(f"base: {tmp_path / 'tiny.yaml'}\n{own}\n")
    assert read_suite(str(path)).methods["log_ratio"].changes == ()
    path.write_text(f"base: {tmp_path / 'tiny.yaml'}\ninputs: {{changes: [images.crop=32]}}\nfurther: 0\n")
    assert read_suite(str(path)).inputs.changes == ("images.crop=32",)


def test_a_suite_is_written_in_the_yaml_of_configs(write_suite, tmp_path):
    (tmp_path / "again.yaml").write_text(dump(read(tmp_path / "tiny.yaml" if write_suite() else tmp_path).values))
    assert read_suite(str(tmp_path / "again.yaml")) == read_suite(str(tmp_path / "tiny.yaml"))


def test_the_suite_of_the_page_is_valid(tmp_path):
    text = (ROOT / "docs/benchmark.md").read_text(encoding="utf-8")
    path = tmp_path / "mine.yaml"
    whole, with_base = (part.split("```")[0] for part in text.split("```yaml\n")[1:])
    path.write_text(with_base)
    assert read_suite(str(path)).train[-1] == "model.dim=16"
    path.write_text(whole)
    assert [cell.total for cell in cells(read_suite(str(path)), {})] == [2 + 1, 6 + 2 + 5, 6 + 2 + 5]
    graded = read_suite("graded_features")
    assert f"({graded.trials} in `graded_features`)." in text
    assert f"({graded.further} in `graded_features`)" in text


#: The suites of which trainings are recorded.
RECORDED = [name for name in SUITES if (ROOT / f"benchmarks/results/raw/{Path(name).stem}.jsonl").exists()]


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_trainings_are_read_and_are_of_the_suite(name):
    """A key of another value would be trained again: whoever changes a config that a suite uses finds it here."""
    suite, results = read_suite(name), FinishedTrainings(ROOT / f"benchmarks/results/raw/{Path(name).stem}.jsonl")
    known = {item.key for cell in cells(suite, {}) for item in cell.known(results)}
    assert results
    assert "graded_features" in RECORDED
    assert set(results) <= known
    assert all(result["seconds"] > 0 for result in results.values())
