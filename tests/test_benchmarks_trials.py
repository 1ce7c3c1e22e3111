"""Benchmarks: equal trials, a choice on the validation split, and a record from which a later call goes on."""

import argparse
import json
import math
import time
from pathlib import Path

import pytest
from support.miniature import TINY
from support.paths import ROOT

from benchmarks import captions_synthetic, classes_real, embedding_size, layout_synthetic  # isort: skip
from benchmarks import pose_synthetic, synthetic  # isort: skip
from benchmarks.trials import INTERVAL, RAW, SEEDS, Job, Method, Trials, main, report
from contml._support.errors import DivergedError
from contml.app.experiment import load
from contml.app.trials.record import FinishedTrainings
from contml.app.trials.suite import suite_names
from contml.evaluation import half_width
from contml.work import OutOfTimeError

MARGINS = ("loss.margin=0.1", "loss.margin=0.2", "loss.margin=0.3")
CONFIGS = {"triplets": "synthetic_threshold", "nearest": "synthetic_nearest", "dense": "synthetic_dense_triplet"}
METHODS = [Method(name, f"pose/{config}", MARGINS) for name, config in CONFIGS.items()]
#: Validation results: the last margin of "dense" diverges.
VALUES = {("triplets", MARGINS[1]): 0.3, ("nearest", MARGINS[0]): 0.2}
VALUES |= {("dense", MARGINS[2]): None, ("dense", MARGINS[0]): 0.4}


def fake(job):
    """Metrics that depend on the job alone."""
    if job.split == "val":
        value = VALUES.get((job.method.name, job.options), 0.5)
        if value is None:
            raise DivergedError("loss", "not finite")
        return {"value": value}
    return {"value": len(job.method.name) / 100 + job.seed / 1000, "other": 1.0}


@pytest.fixture
def trials(tmp_path):
    """Trials with a fake training, and the list of the jobs that it was called with."""

    def make(train=fake, better="lower", **options):
        calls = []

        def recorded(job):
            calls.append(job)
            return train(job)

        return Trials(METHODS, recorded, FinishedTrainings(tmp_path / "raw.jsonl"), better, **options), calls

    return make


def test_the_choice_is_made_on_validation_and_only_it_is_tested(trials):
    found, calls = trials()
    found.run()
    assert [job.split for job in calls] == ["val"] * 9 + ["test"] * 9
    assert {job.seed for job in calls[:9]}.isdisjoint(job.seed for job in calls[9:])
    chosen = {"triplets": MARGINS[1], "nearest": MARGINS[0], "dense": MARGINS[0]}
    tested = [(name, options, seed) for seed in SEEDS for name, options in chosen.items()]
    assert [(job.method.name, job.options, job.seed) for job in calls[9:]] == tested
    assert ({method.name: found.choice(method) for method in METHODS}, (found.done, found.total)) == (chosen, (18, 18))


def test_higher_may_be_better_and_a_diverged_trial_is_never_chosen(trials):
    found, _ = trials(better="higher")
    found.run()
    assert [found.choice(method) for method in METHODS] == [MARGINS[0], MARGINS[1], MARGINS[1]]


def test_methods_have_equal_numbers_of_trials(tmp_path):
    with pytest.raises(ValueError, match="different numbers of trials"):
        Trials([METHODS[0], Method("a", "b", MARGINS[:2])], fake, FinishedTrainings(tmp_path / "x"), "lower")


@pytest.mark.parametrize("count", [0, 9, 13])
def test_a_later_call_goes_on(trials, tmp_path, count):
    def killed(job):
        if len(FinishedTrainings(tmp_path / "raw.jsonl")) == count:
            raise KeyboardInterrupt
        return fake(job)

    found, _ = trials(killed)
    with pytest.raises(KeyboardInterrupt):
        found.run()
    with (tmp_path / "raw.jsonl").open("a") as file:
        file.write('{"key": ["trip')  # a line that a crash has cut short
    again, calls = trials()
    assert again.done == count
    again.run()
    assert len(calls) == 18 - count
    content = (tmp_path / "raw.jsonl").read_text()
    whole, more = trials()
    whole.run()
    assert (more, (tmp_path / "raw.jsonl").read_text()) == ([], content)
    assert len({json.dumps(json.loads(line)["key"]) for line in content.splitlines()}) == 18


def test_an_edited_config_is_another_training(trials):
    found, _ = trials()
    found.run()
    changed, calls = trials(trial_changes=("training.epochs=3",))
    assert changed.done == 0
    moved, _ = trials(trial_changes=("images.workers=1",))
    assert moved.done == 18
    changed.run()
    assert [job.split for job in calls] == ["val"] * 9  # the test jobs have no change


def test_a_time_limit(trials, tmp_path, capsys):
    found, calls = trials(deadline=time.monotonic() - 1)
    with pytest.raises(OutOfTimeError):
        found.run()
    assert calls == []
    given = argparse.Namespace(minutes=0.0, workers=1, plan=False, save=None)
    main("Title", {"": (found, 60)}, {}, given)
    out, err = capsys.readouterr()
    assert out == "stopped after 0 minutes: 0 of 18 trainings are done; the same command goes on\n"
    assert "Title: 18 trainings, 0 done; about 18 minutes more (18 x 60 s, 1 at a time)" in err
    given = argparse.Namespace(minutes=math.inf, workers=1, plan=False, save=tmp_path / "table.md")
    main("Title", {"": (found, 60)}, {"Other": ("other", ".1f")}, given, lambda _: "A remark.")
    assert (tmp_path / "table.md").read_text().startswith("# Title")
    assert "A remark." in (tmp_path / "table.md").read_text()


#: Raw files in forms of their own.
OTHERS = {*suite_names(), *(path.stem for path in (ROOT / "benchmarks/suites").glob("*.yaml"))}
OTHERS |= {"presets", "finetuning", "matryoshka", "teachers"}


RECORDS = sorted(path for path in RAW.glob("*.jsonl") if path.stem not in OTHERS)


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_recorded_trainings_are_read(path):
    record = FinishedTrainings(path)
    assert {json.dumps(json.loads(line)["key"]) for line in path.read_text().splitlines()} == {*record}
    assert all(metrics.get("seconds", 1) > 0 for metrics in record.values())


def test_the_table(trials):
    found, _ = trials()
    found.run()
    lines = report(found, {"Other": ("other", ".1f")}).splitlines()
    assert lines[0] == "| method | chosen options | test, mean of 3 seeds | less triplets | Other | seconds |"
    half = f"{half_width([0.001, 0.002, 0.003]):.3f}"
    assert lines[2:5] == [
        f"| dense | {MARGINS[0]} | 0.052 ± {half} | -0.030 ± 0.000 | 1.0 | 0 |",
        f"| nearest | {MARGINS[0]} | 0.072 ± {half} | -0.010 ± 0.000 | 1.0 | 0 |",
        f"| triplets | {MARGINS[1]} | 0.082 ± {half} | - | 1.0 | 0 |",
    ]
    assert lines[-1] == f"- dense: {MARGINS[0]} 0.4, {MARGINS[1]} 0.5, {MARGINS[2]} inf"
    assert [line.partition(MARGINS[2])[2] for line in lines[-3:-1]] == [" 0.5 (2 of 3 differ)"] * 2


def benchmarks():
    """The methods of every benchmark, and the changes of its trials."""
    data = argparse.Namespace(data=Path("data"), weights=Path("w.pth"))
    for module in (pose_synthetic, layout_synthetic, captions_synthetic):
        yield module.METHODS, ()
    for name in classes_real.SETUPS:
        found, _ = classes_real.setup(name, data, FinishedTrainings(Path("none")), Path("f.npz"))
        yield found.methods, found.trial_changes


@pytest.mark.slow
@pytest.mark.parametrize(("methods", "changes"), list(benchmarks()))
def test_the_options_of_every_benchmark_are_valid(methods, changes):
    assert {len(method.tried) for method in methods} == {4}
    jobs = [Job(method, options, 0, "val", changes) for method in methods for options in method.tried]
    assert len({job.key for job in jobs}) == len(jobs)


CLASSES = [
    *("task.classes=12", "task.per_class=6", "task.test_classes=5", "task.test_per_class=4", "sampler.classes=4"),
    *("sampler.instances=3", "sampler.batches=2", "training.epochs=2"),
]
TRAININGS = {
    "graded": (synthetic.train, METHODS[2], TINY),
    "classes": (classes_real.train, Method("margin", "classes/synthetic", ("",), ("loss=margin",)), CLASSES),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", TRAININGS)
@pytest.mark.usefixtures("no_reports")
def test_a_training(kind):
    train, method, changes = TRAININGS[kind]
    changes = (*changes, "training.val_share=0.4")
    val = train(Job(method, method.tried[0], 0, "val", changes))
    test = train(Job(method, method.tried[0], 0, "test", changes))
    if train is classes_real.train:
        last = train(Job(method, method.tried[0], 0, "test", (*changes, "training.select=none")))
        assert last["untrained"] == test["untrained"]
    assert min(val["value"], test["value"], test["untrained"]) > 0


def test_one_option_is_not_tried(tmp_path):
    methods = [Method("dim 8", "pose/synthetic", ("",)), Method("dim 16", "pose/synthetic", ("",))]
    found = Trials(methods, fake, FinishedTrainings(tmp_path / "raw.jsonl"), "higher")
    found.run()
    assert (found.done, found.total) == (6, 6)
    lines = report(found, {}).splitlines()
    assert lines[0] == "| method | test, mean of 3 seeds | less dim 8 | seconds |"
    assert [line.split(" | ")[0] for line in lines[2:4]] == ["| dim 8", "| dim 16"]  # in their order
    assert lines[-1] == f"Seeds 1, 2, 3. {INTERVAL}"


@pytest.mark.parametrize("name", embedding_size.KINDS)
def test_the_embedding_sizes_are_valid(name, tmp_path):
    found = embedding_size.trials_of(name, tmp_path)
    jobs = [job for method in found.methods for job in found.test_jobs(method)]
    assert len({job.key for job in jobs}) == 12
    assert {load(job.method.config, job.overrides).values["model"]["dim"] for job in jobs} == set(embedding_size.DIMS)


@pytest.mark.slow
def test_embedding_sizes_of_a_small_training(tmp_path, capsys):
    changes = [*TINY, "training.epochs=1"]
    given = argparse.Namespace(only=["pose"], dims=[4, 8], changes=changes, raw=tmp_path, minutes=math.inf, workers=1)
    given.plan, given.save, given.plot = False, tmp_path / "table.md", tmp_path / "plot.png"
    embedding_size.main(given)
    assert all(f"| dim {size} | " in given.save.read_text() for size in given.dims)
    assert given.plot.read_bytes().startswith(b"\x89PNG")
    trials = {"pose": embedding_size.trials_of("pose", tmp_path, [4, 8], tuple(changes))}
    assert trials["pose"].done == 6  # a later call trains nothing
    x, y = embedding_size.size_plot(trials).axes[0].get_lines()[0].get_data()
    values = [metrics["value"] for metrics in trials["pose"].tests(trials["pose"].methods[1])]
    assert (list(x), y[1]) == ([4, 8], pytest.approx(sum(values) / 3))
