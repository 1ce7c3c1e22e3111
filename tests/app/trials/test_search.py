"""Sweeps whose trainings take no time: trials, choice, kills, refusals."""

from __future__ import annotations

import errno
import json
import shlex
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch
from support import sweeps
from support.fake_runs import poses
from support.miniature import squares
from support.refusals import refuses
from support.sweeps import Trainings

import contml
from contml import work
from contml._support.files import unwritable
from contml.app.experiment import load
from contml.app.trials.sweep import sweep
from contml.app.trials.verdict import difference
from contml.labels import NumberLabels
from contml.work import run as run_items

MARGINS = "loss.margin=0.05,0.1,0.15,0.2"
CHOICES = [MARGINS, "optimizer.lr=1e-3,1e-2"]
RANGES = ["loss.margin=0.01..0.3", "optimizer.lr=1e-4..1e-1"]


@pytest.fixture
def trainings(monkeypatch, tmp_path):
    """Trainings that take no time, in an empty folder with own.yaml."""
    fake = Trainings()
    monkeypatch.chdir(tmp_path)
    sweeps.config(tmp_path)
    monkeypatch.setattr("contml.app.trials.sweep.train", fake.train)
    return fake


def run(tries=CHOICES, *overrides, **options):
    return sweep("own.yaml", overrides, tries, **options)


def trials_of(result):
    return [(trial.number, dict(trial.params), [*trial.values.values()], trial.error) for trial in result.trials]


def lines(path="runs/own/sweep/trials.jsonl"):
    return Path(path).read_bytes().splitlines(keepends=True)


def test_a_grid_trains_each_combination_and_chooses_the_best(trainings):
    result = run(seeds=2)
    assert [done[:3] for done in trainings.done] == [*product((0.05, 0.1, 0.15, 0.2), (1e-3, 1e-2), (3, 4))]
    assert result.verdict.second == difference(*result.trials[:2])
    means = [trial.mean for trial in result.trials]
    assert (means, result.better, result.metric) == (sorted(means), "lower", "label_distance@10")
    assert result.params["loss.margin"] == 0.1
    assert result.table()[0] == ["trial", "loss.margin", "optimizer.lr", "epoch", "mean ± std"]
    assert result.table()[1][3] == "2"
    for trial in result.trials:
        assert trial.mean == pytest.approx(sum(trial.values.values()) / 2)
    words = shlex.split(result.command)
    assert words[:3] == ["contml", "train", "own.yaml"]
    values = load(words[2], words[3:]).values
    assert (values["loss"]["margin"], values["seed"]) == (0.1, 3)
    spec, *rows = map(json.loads, lines())
    assert spec["config"]["loss"]["name"] == "dense_triplet"
    assert spec["space"] == {"loss.margin": "0.05,0.1,0.15,0.2", "optimizer.lr": "0.001,0.01"}
    assert (spec["sampler"], len(rows)) == ("grid", 16)
    assert set(rows[0]) == {"key", "value", "metric", "queries", "epoch", "untrained", "run", "seconds"}
    key = ["loss.margin=0.05 optimizer.lr=0.01", 4]
    assert (json.loads(rows[3]["key"]), rows[3]["queries"], rows[3]["epoch"]) == (key, 200, 2)
    assert rows[3]["run"] == "runs/own/sweep/trial_001_seed_4"


def test_one_training_of_each_trial_has_no_interval(trainings):
    one = run([MARGINS], seeds=1, name="one")
    assert one.verdict.second.interval is None
    assert "no best: the difference between trial " in one.sentences()[1]
    assert one.sentences()[1].endswith("--seeds 3 gives one")


def test_the_default_sampler(trainings):
    def sampler(tries, **options):
        run(tries, **options)
        return json.loads(lines(f"runs/own/sweep_{options['name']}/trials.jsonl")[0])["sampler"]

    assert (sampler(CHOICES, name="a"), sampler(CHOICES, name="b", trials=8)) == ("grid", "grid")
    assert sampler(CHOICES, name="c", trials=3) == "random"
    assert (sampler([RANGES[0], CHOICES[1]], name="d", trials=2), len(trainings.done)) == ("random", 8 + 8 + 3 + 2)
    with refuses("--try", "missing"):
        run([])


SWEEPS = [(CHOICES, {"seeds": 2}), (RANGES, {"trials": 5, "seeds": 2}), (RANGES, {"trials": 13, "processes": 3})]


@pytest.mark.slow
@pytest.mark.parametrize(("tries", "options"), SWEEPS)
def test_a_sweep_killed_at_any_line_goes_on_to_the_same_choice(trainings, monkeypatch, tries, options):
    """The file is cut after a line, or in the middle of the next, in turn; trial folders are gone, as in a copy."""
    monkeypatch.setattr(work, "run", one_process)
    trainings.diverges = lambda margin: 0.14 < margin < 0.16
    whole = run(tries, **options)
    expected, written = trials_of(whole), lines()
    assert any(trial.error for trial in whole.trials)
    for end in range(len(written) + 1):
        shutil.rmtree("runs")
        Path("runs/own/sweep").mkdir(parents=True)
        torn = written[end][: 20 * (end % 2)] if end < len(written) else b""
        Path("runs/own/sweep/trials.jsonl").write_bytes(b"".join(written[:end]) + torn)
        trainings.done.clear()
        again = run(tries, **options)
        assert (trials_of(again), again.command) == (expected, whole.command)
        assert len(trainings.done) == len(written) - max(end, 1)
        rows = [{**json.loads(line), "seconds": 0} for line in lines()]
        assert rows == [{**json.loads(line), "seconds": 0} for line in written]


def one_process(jobs, *arguments, **options):
    run_items(jobs, *arguments, **{**options, "processes": 1})


@pytest.mark.parametrize("tries", [CHOICES, RANGES])
def test_the_order_in_which_trainings_finish_does_not_matter(trainings, monkeypatch, tries):
    trainings.diverges = lambda margin: margin == 0.2
    options = {"trials": 8, "seeds": 2, "processes": 6}
    monkeypatch.setattr(work, "run", one_process)
    first = run(tries, name="a", **options)

    def reverse(jobs, *arguments, **options):
        one_process([*jobs][::-1], *arguments, **options)

    monkeypatch.setattr(work, "run", reverse)
    assert trials_of(run(tries, name="b", **options)) == trials_of(first)


def test_more_trials_continue_the_same_sequence_and_fewer_are_its_beginning(trainings):
    whole = run(RANGES, trials=14, name="whole")
    run(RANGES, trials=11)
    assert trials_of(run(RANGES, trials=14)) == trials_of(whole)
    trainings.done.clear()
    fewer = run(RANGES, trials=5)  # the first ones, as they were
    assert sorted(trials_of(fewer)) == sorted(trials_of(whole), key=lambda trial: trial[0])[:5]
    assert not trainings.done


def test_trainings_that_are_judged_by_other_metrics_are_refused(trainings, monkeypatch):
    """As where the images of a fold cannot be read: its gallery is smaller."""
    monkeypatch.setattr(sweeps, "poses", lambda share: poses(share, k=100 - 50 * (len(trainings.done) == 2)))
    with refuses("runs/own/sweep/trial_000_seed_4", "judged by label_distance@5", hint="--name"):
        run([MARGINS], seeds=3)
    assert len(lines()) == 2


def test_a_diverged_training_is_never_chosen(trainings):
    trainings.diverges = lambda margin: margin == 0.1
    result = run([MARGINS], seeds=2)
    assert (result.params["loss.margin"], [trial.number for trial in result.trials][-1]) == (0.15, 1)
    assert "diverged" in result.trials[-1].error
    assert len(trainings.done) == 7  # its second seed is not trained
    assert any("trial 1 failed" in line for line in result.sentences())
    trainings.diverges = lambda margin: True
    with refuses("runs/own/sweep_all", "all 4 trials failed"):
        run([MARGINS], name="all")


NOTHING = "nothing is chosen: all 4 trials "


@pytest.mark.parametrize("options", [{}, {"seeds": 2}])
def test_trials_that_did_not_learn_choose_nothing(contml, trainings, options):
    trainings.learns = lambda margin: False
    result = run([MARGINS], **options)
    expected = f"{NOTHING}ended with untrained weights: no training improved the result on validation"
    assert result.sentences() == [f"{expected}; try other values, or train for more epochs"]
    assert ((result.chosen, result.params, result.command), len(result.trials)) == ((None, None, None), 4)
    arguments = [text for name, count in options.items() for text in (f"--{name}", count)]
    status, out, err = contml("sweep", "own.yaml", "--try", MARGINS, *arguments)
    assert (status, err) == (0, "")
    assert expected in out
    assert out.count("0, untrained" if not options else "0, 2 untrained") == 4
    assert "train it with" not in out
    assert "is best" not in out
    data = json.loads(contml("sweep", "own.yaml", "--try", MARGINS, *arguments, "--json")[1])
    assert (data["chosen"], data["command"]) == (None, None)
    assert data["verdict"].startswith(expected)
    assert all(trial["untrained"] == len(trial["values"]) for trial in data["trials"])


EQUAL = f"{NOTHING}are equal in label distance@10: loss.margin made no difference"


@pytest.mark.parametrize("queries", [False, True])
def test_trials_without_a_difference_choose_nothing(trainings, queries):
    trainings.share, trainings.queries = lambda *_: 0.3, queries
    assert run([MARGINS]).sentences() == [EQUAL]
    assert run([MARGINS], seeds=2, name="seeds").command is None


def test_no_trial_is_better_than_untrained_weights(trainings):
    trainings.learns = lambda margin: margin != 0.1
    result = run([MARGINS])
    assert result.chosen is None
    nothing = "nothing is chosen: no trial is better than the untrained weights of trial 1; try"
    assert result.sentences()[0].startswith(nothing)
    # Beside a failed trial, and alone.
    trainings.learns = lambda margin: False
    trainings.diverges = lambda margin: margin != 0.2
    result = run([MARGINS], name="one")
    assert result.sentences()[0].startswith("nothing is chosen: the trial ended with untrained weights")
    assert len(result.sentences()) == 4


def test_equal_trials_are_named_and_the_first_is_chosen(trainings):
    trainings.share = lambda margin, *_: max(margin, 0.1)
    result = run([MARGINS])
    chosen, tied = result.sentences()
    assert chosen.startswith("chosen: trial 0, loss.margin=0.05: ")
    assert tied == "no best: trial 0 and trial 1 are equal in mean label distance@10"
    assert result.as_data()["verdict"] == tied


def test_a_single_training_is_compared_by_its_queries(trainings):
    trainings.queries = True
    result = run([MARGINS])
    chosen, best, seeds = result.sentences()
    assert chosen.startswith("chosen: trial 1, loss.margin=0.1: label distance@10 411 on")
    expected = "trial 1 is best: its mean label distance@10 is lower than that of trial 2, the second best, by 1.00 ("
    assert best.startswith(expected)
    assert "--seeds 3" in seeds
    # Without the run folders, the queries are not known.
    for folder in Path("runs/own/sweep").glob("trial_*"):
        shutil.rmtree(folder)
    again = run([MARGINS])
    assert again.params == result.params
    assert "has no interval: a single training, whose run folder" in again.sentences()[1]
    # With seeds, those count too.
    found = run([MARGINS], seeds=3, name="seeds")
    assert found.sentences()[1].startswith("trial 1 is best: ")
    assert len(found.sentences()) == 2


def test_trials_in_the_unit_of_the_labels(trainings, monkeypatch):
    labels = NumberLabels(torch.arange(40.0) ** 2, unit="km")
    monkeypatch.setattr(sweeps, "squares", lambda *_, **__: replace(squares(40), labels=labels))
    result = run([MARGINS])
    assert result.table()[0][-1] == "label distance@10, km"
    assert result.table()[1][-1] == labels.measure.text(result.trials[0].mean, unit=False)
    assert f"{labels.measure.text(result.trials[0].mean)} on the validation split" in result.sentences()[0]


def test_an_error_of_the_machine_is_no_result_and_one_of_the_options_is(trainings, monkeypatch):
    """A full disk, or an image that cannot be read, stops the sweep, which goes on when there is room again."""
    train = trainings.train

    def full(*arguments, **options):
        if len(trainings.done) == 2:
            raise unwritable(Path("weights"), OSError(errno.ENOSPC, "No space left on device"))
        return train(*arguments, **options)

    monkeypatch.setattr("contml.app.trials.sweep.train", full)
    with refuses("weights", "No space left on device"):
        run([MARGINS])
    assert len(lines()) == 3
    monkeypatch.setattr("contml.app.trials.sweep.train", train)
    assert trials_of(run([MARGINS])) == trials_of(run([MARGINS], name="whole"))

    def refuse(experiment, *arguments, **options):
        if experiment.values["loss"]["margin"] == 0.1:
            raise contml.InputError("loss.margin", "0.1", origin="own.yaml:8")
        return train(experiment, *arguments, **options)

    monkeypatch.setattr("contml.app.trials.sweep.train", refuse)
    result = run([MARGINS], name="options")
    assert [trial.error for trial in result.trials] == ["", "", "", "own.yaml:8: loss.margin: 0.1"]
    monkeypatch.setattr(sweeps, "task", unmounted)
    with refuses("data", "gone"):  # what fails then is not due to the options
        run([MARGINS], name="data")


def unmounted(own_val: bool = False) -> contml.data.Task:
    raise contml.InputError("data", "gone")


def test_weights_of_finished_trainings_are_deleted_also_after_a_kill(trainings, tmp_path):
    run([MARGINS])
    folder = tmp_path / "runs/own/sweep/trial_002"
    assert sorted(path.name for path in folder.iterdir()) == ["config.yaml", "evaluation.json"]
    (folder / "checkpoints").mkdir()  # as if killed between the line in the file and the deletion
    run([MARGINS])
    assert not (folder / "checkpoints").exists()


def test_a_file_of_another_sweep_is_refused(trainings, monkeypatch):
    run([MARGINS])
    with refuses("runs/own/sweep/trials.jsonl", "model.dim: 4 -> 8", hint="--name"):
        run([MARGINS], "model.dim=8")
    with refuses("runs/own/sweep/trials.jsonl", "space.loss.margin", hint="--name"):
        run(["loss.margin=0.05,0.1"])
    run([MARGINS], "images.workers=1")  # changes no result

    def changed(own_val: bool = False) -> contml.data.Task:
        return contml.data.Task(sweeps.squares(99), sweeps.squares(12, seed=1))

    monkeypatch.setattr(sweeps, "task", changed)
    with refuses("runs/own/sweep/trials.jsonl", "data: "):
        run([MARGINS])


def test_a_sweep_begun_before_an_option_existed_goes_on(trainings):
    """Its default is what older versions did; another value is another sweep."""
    run([MARGINS])
    file = Path("runs/own/sweep/trials.jsonl")
    spec, *rows = lines()
    older = json.loads(spec)
    del older["config"]["model"]["levels"], older["config"]["training"]["precision"]
    file.write_bytes(json.dumps(older).encode() + b"\n" + b"".join(rows[:2]))
    run([MARGINS])
    assert len(lines()) == 5
    with refuses(str(file), 'training.precision: absent -> "float32"', hint="--name"):
        run([MARGINS], "training.precision=float32")


def test_a_config_without_selection_keeps_it_for_the_final_training(trainings):
    found = []
    result = run([MARGINS], "training.select=none", on_line=found.append)
    assert any("select=val" in line for line in found)
    assert "training.select=none" in result.command
    assert load("own.yaml", shlex.split(result.command)[3:]).values["training"]["select"] == "none"
