"""Facts that `contml check` and `contml train` report about the data before training."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from support.caption_sets import TRAIN, scenes, write_csv
from support.class_layouts import write_class_table
from support.miniature import TINY
from support.refusals import refuses

from contml.app.experiment import check, checking, load
from contml.app.experiment.building import Experiment
from contml.app.experiment.checking import report_columns
from contml.data import Pixels, Split, Task
from contml.data.features import write_features
from contml.labels import ClassLabels
from contml.labels.captions import tokens

SMALL = [
    *("task.data=own/captions.csv", "task.root=own/images"),
    "task.labels={caption: {kind: captions, vectors: ../vectors.txt}}",
    *("images.resize=36", "images.crop=32", "transform.scale_jitter=2", "transform.shift=1", "images.workers=0"),
    *("training.select=none", "sampler.batch_size=12", "sampler.anchors_per_batch=2"),
]


def test_check_counts_the_words_without_a_vector(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "own")
    captions = [[tokens(caption) for caption in texts] for _, texts in scenes()]
    counts = Counter(word for texts in captions[:TRAIN] for caption in texts for word in caption)
    (first, first_count), (second, second_count) = counts.most_common(2)
    known = sorted({word for texts in captions for caption in texts for word in caption} - {first, second})
    lines = [f"{word} {number} {number % 7} 1.5" for number, word in enumerate(known)]
    (tmp_path / "own/vectors.txt").write_text(f"{len(known)} 3\n" + "\n".join(lines) + "\n")
    facts = dict(check(load("table/default", SMALL)))
    expected = f"{first_count + second_count:,}, 2 different, most often '{first}'"
    assert facts["training words without a vector"] == expected
    count = sum(word in (first, second) for texts in captions[TRAIN:] for caption in texts for word in caption)
    assert facts["test words without a vector"].startswith(str(count))
    assert facts["training images"] == str(TRAIN)

    text = "\n".join([*lines, f"{first} 1 2 3", f"{second} 1 1 1\n"])
    (tmp_path / "own/vectors.txt").write_text(f"{len(known) + 2} 3\n{text}")
    assert not [name for name in dict(check(load("table/default", SMALL))) if "without a vector" in name]


@pytest.mark.parametrize(("rank", "expected"), [(None, ["column", "age"]), ("0", ["column", "age"]), ("1", [])])
def test_only_the_main_process_reports_the_columns(monkeypatch, rank, expected):
    monkeypatch.delenv("RANK", raising=False)
    if rank is not None:
        monkeypatch.setenv("RANK", rank)
    split = Split([Pixels(np.zeros((4, 4, 3), np.uint8))], ["a"], ClassLabels([0]))
    cells = []
    task = Task(split, split, columns=[["column"], ["age"]])
    report_columns(task, lambda rows: cells.extend(c for row in rows for c in row))
    assert cells == expected


CLASSES = [
    *("task=table/file", "task.data=own/images.csv", "task.labels={class_name: class}", "model.dim=8"),
    *("images.resize=32", "images.crop=32", "sampler.classes=4", "sampler.instances=2", "training.select=none"),
]


def broken_table(folder):
    """60 images of classes, of which two training images and a test image cannot be decoded."""
    write_class_table(folder / "own")
    for name in ("000_1", "000_3", "010_0"):
        (folder / f"own/images/{name}.png").write_text("Not found")


def test_check_says_what_it_decoded(accepted, tmp_path):
    write_class_table(tmp_path / "own")
    out, _ = accepted("check", "classes/synthetic", *CLASSES)
    assert fact(out, "decoded") == "one batch of 8 of 40 training images; --images all decodes every image"
    out, _ = accepted("check", "classes/synthetic", *CLASSES, "--images", "all")
    assert fact(out, "decoded") == "all 60 images"


def fact(out, name):
    (found,) = (line.removeprefix(name).strip() for line in out.splitlines() if line.startswith(name))
    return found


@pytest.mark.parametrize("workers", [0, 1])
def test_check_names_every_broken_image(contml, tmp_path, workers):
    broken_table(tmp_path)
    status, out, err = contml("check", "classes/synthetic", *CLASSES, f"images.workers={workers}", "--images", "all")
    assert (status, out) == (2, "")
    lines = err.strip().splitlines()
    assert [line.split(":")[0] for line in lines[:-1]] == ["images/000_3.png", "images/010_0.png"]
    assert lines[-1].startswith("contml: images/000_1.png: cannot be decoded (not an image")
    assert "3 of 60 images" in lines[-1]
    out = contml("check", "classes/synthetic", *CLASSES, "images.broken=skip", "--images", "all")[1]
    assert fact(out, "decoded") == "all 60 images; 3 are broken, which training skips"


def test_check_reports_every_split(monkeypatch):
    read = Experiment.read_task
    names = ("training images", "validation images", "test images")

    def facts(change, *changes):
        monkeypatch.setattr(Experiment, "read_task", lambda self: change(read(self)))
        return dict(check(load("pose/synthetic", [*TINY, *changes])))

    found = facts(lambda task: Task(task.train, task.test, task.train.subset(range(12))))
    val = "12, all of them queries (named by the data)"
    assert [found[name] for name in names] == ["40", val, "24, 6 of them queries"]
    assert "evaluated" not in found
    found = facts(lambda task: Task(task.train, task.test), "training.val_share=0.4", "sampler.batch_size=6")
    val = found["validation images"].split(",")[0]
    assert found["training images"] == str(40 - int(val))
    assert found["validation images"] == f"{val}, all of them queries (drawn from the training split)"
    found = facts(lambda task: Task(task.train, None, task.train.subset(range(12))))
    assert found["evaluated"] == "the validation split, since the data have no test split"
    assert "test images" not in found


@pytest.mark.parametrize(("cache", "seconds"), [(False, 0.3), (True, 0.2)])  # a cache decodes the images once
def test_the_time_is_that_of_a_warm_step(monkeypatch, cache, seconds):
    now, steps = [0.0], iter((9.0, 0.2))

    def passed(seconds):
        now[0] += seconds
        return torch.zeros(())

    monkeypatch.setattr(checking, "time", SimpleNamespace(monotonic=lambda: now[0]))
    trainer, batches = SimpleNamespace(train_step=lambda _: passed(next(steps))), (passed(0.1) for _ in range(2))
    assert checking._seconds_of_a_step(trainer, batches, cache) == pytest.approx(seconds)


def test_the_time_is_a_fact():
    assert "steps, estimated from one step, without" in dict(check(load("pose/synthetic", TINY)))["time"]
    assert "for 0 steps" in dict(check(load("pose/synthetic", [*TINY, "training.epochs=0"])))["time"]


def test_equal_labels_of_a_split_are_refused():
    labels = ClassLabels([0] * 24)
    split = Split([Pixels(np.zeros((32, 32, 3), np.uint8))] * 24, [str(n) for n in range(24)], labels)
    experiment = load("pose/synthetic", TINY)
    with refuses("class", got="equal in all of 24 training rows", hint="another label"):
        experiment.build_trainer(Task(split, split))


def test_check_of_features(tmp_path):
    config = ["task.train=40", "task.val=20", "task.test=210", "task.size=32", "images.resize=32", "images.crop=32"]
    task = load("pose/synthetic", config).config.parts["task"].build()
    names = [name for split in task.splits.values() for name in split.names]
    write_features(tmp_path / "f.npz", names, ["train"] * len(names), np.eye(len(names), 1200, dtype=np.float32))
    changes = [f"images.features={tmp_path / 'f.npz'}", "model.backbone=features", "sampler.batch_size=12"]
    facts = dict(check(load("pose/synthetic", [*config, *changes, "sampler.anchors_per_batch=2"]), images="all"))
    assert facts["batch"] == "12 vectors of 1,200 numbers"
    assert facts["decoded"] == "no image, since the items are features"


SECTIONS = ["task", "loss", "sampler", "transform", "step", "optimizer", "schedule", "binarize", "miner", "model"]


@pytest.mark.parametrize("section", SECTIONS)
def test_a_config_that_names_a_command_runs_nothing(contml, tmp_path, section):
    own = '{backbone: "os:abort"}' if section == "model" else '{name: "os:system", command: "touch executed"}'
    assert contml("copy", "pose/synthetic", "own.yaml")[0] == 0
    lines = [f"{section}: {own}"]
    kept = True
    for line in (tmp_path / "own.yaml").read_text().splitlines():
        kept = not line.startswith(f"{section}:") and (kept or not line.startswith(" "))
        lines += [line] if kept else []
    (tmp_path / "own.yaml").write_text("\n".join(lines))
    status, _, err = contml("check", "own.yaml", *(TINY if section == "model" else []))
    assert (status, len(err.splitlines())) == (2, 1)
    assert "own.yaml:1: " in err
    assert "os:" in err
    assert not (tmp_path / "executed").exists()


def test_the_reading_of_a_large_table_is_announced(contml, tmp_path, monkeypatch):
    monkeypatch.setattr("contml.data.tables._NOTED", 100)
    for n in range(12):
        Image.new("RGB", (8, 8), (20 * n, 0, 0)).save(tmp_path / f"{n}.png")
    rows = [f"{n}.png,{n}" for n in range(12)]
    (tmp_path / "long.csv").write_text("\n".join(["image,age", *rows, *rows]) + "\n")
    status, out, err = contml("check", "--data", "long.csv", "--label", "age=number", "sampler.neighbours=99")
    assert (status, out) == (2, "")
    first, second, last = err.splitlines()
    assert (first, second) == ("reading long.csv (0 MB)", "long.csv: 24 rows, whose images and labels are read now")
    assert last.startswith("contml: sampler.batch_size: 12")


@pytest.fixture
def triplets(tmp_path, monkeypatch):
    """A table of 200 triplets of 60 images."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    for n in range(60):
        Image.new("RGB", (8, 8), (n, 0, 0)).save(f"{n}.png")
    drawn = [random.choice(60, 3, replace=False) for _ in range(200)]
    lines = ["anchor,x,y,choice", *(f"{a}.png,{x}.png,{y}.png,x" for a, x, y in drawn)]
    (tmp_path / "triplets.csv").write_text("\n".join(lines) + "\n")
    return ["task.data=triplets.csv", *TINY_JUDGED]


TINY_JUDGED = [
    *("images.resize=8", "images.crop=8", "images.workers=0", "model.backbone=small_cnn", "model.weights=none"),
    *("training.epochs=1", "sampler.batch_size=20", "sampler.batches=2"),
]


def test_a_split_that_keeps_few_judgments_says_so(triplets, contml):
    facts = dict(check(load("table/triplets", triplets)))
    kept = {name: split.labels.judged for name, split in load("table/triplets", triplets).build_task().splits.items()}
    assert facts["judgments"].startswith(f"{sum(kept.values())} of 200 are kept ({kept['train']} training, ")
    few = "These are few: task.judgments.by=judgment keeps all, with items that are in training and in test"
    assert facts["judgments"].endswith(few)
    err = contml("train", "table/triplets", *triplets)[2]
    assert f"judgments: {sum(kept.values())} of 200 are kept" in err


def test_items_in_both_parts_of_judgments_are_no_copies(triplets, tmp_path):
    """A split by judgment repeats them on purpose; a copy with another name is one."""
    facts = dict(check(load("table/triplets", [*triplets, "task.judgments.by=judgment"])))
    assert "judgments" not in facts
    assert "repeated images" not in facts
    Image.open("0.png").save("1.png")
    facts = dict(check(load("table/triplets", [*triplets, "task.judgments.by=judgment"])))
    assert facts["repeated images"].startswith("1 item has the image of another")
    assert "different labels" not in facts["repeated images"]
