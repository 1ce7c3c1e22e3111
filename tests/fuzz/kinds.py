"""The kinds of input: small valid files of each, and how the command line reads them."""

from __future__ import annotations

import gzip
import io
import json
import shutil
from collections.abc import Callable
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from contml.tasks.captions.coco import coco as coco_captions
from contml.tasks.captions.files import files as caption_files
from contml.tasks.captions.flickr import flickr
from contml.tasks.classes.cars import cars
from contml.tasks.classes.cub import cub
from contml.tasks.classes.folder import folder as class_folders
from contml.tasks.classes.inshop import inshop
from contml.tasks.classes.sop import sop
from contml.tasks.classes.table import csv as class_table
from contml.tasks.layout.files import files as layout_files
from contml.tasks.layout.lsun import lsun
from contml.tasks.pose.coco import coco as keypoints
from contml.tasks.pose.files import files as pose_files
from contml.tasks.pose.lsp import lsp
from contml.tasks.pose.mpii import mpii
from contml.tasks.table.columns import KINDS as LABEL_KINDS
from contml.tasks.table.file import file as table_file
from PIL import Image
from support import caption_sets, class_layouts, layouts, pose_sets, tables
from support.fake_runs import poses, write_run
from support.miniature import TINY

import contml
from contml.compare.comparison import compare
from contml.compare.plot import comparison_plot
from contml.compare.table import as_data, comma_separated, markdown
from contml.config import read
from contml.data import ImageFile, Images, Split, Task
from contml.data.features import with_features, write_features
from contml.data.identity import DataRecord
from contml.distances.cache import Cache
from contml.evaluation.results import Evaluated, Selection
from contml.experiment import running
from contml.experiment.loading import load
from contml.labels import ClassLabels
from contml.labels.captions import load_word_vectors
from contml.report.gallery import draw
from contml.report.plots import metrics_plot, training_plot
from contml.report.table import summary
from contml.runs import open_run
from contml.sweep.trials import Training, TrialsFile, stored_sampler
from contml.training.checkpoint import load_numbers, load_state, load_weights, save_state, save_weights


@dataclass(frozen=True)
class Kind:
    """A kind of input.

    Args:
        build: writes valid files to a folder.
        read: reads them; the generator chooses among the options of a reader.
        files: patterns of the files that are changed.
        weight: how often this kind is chosen; a slow reader has a small one.
        restore: whether reading changes the folder, so that each case needs a new copy.
    """

    build: Callable[[Path], Any]
    read: Callable[[Path, Random], Any]
    files: tuple[str, ...]
    weight: int = 2
    restore: bool = False


def use(task: Task) -> None:
    """What training and a report ask of a task: label distances, names, an image and its picture."""
    for split in task.splits.values():
        rows = range(min(4, len(split)))
        split.labels.pairwise(list(rows), list(rows))
        split.labels[list(rows)].digests()
        list(split.names)
        list(Images(8, 8, broken="skip").test_batches(split, [0], 1))
        draw(split, 0, 16, {})


def task_kind(build: Callable[[Path], Any], make: Callable[..., Task], files: tuple[str, ...], weight=2, **options) -> Kind:
    """A task that reads the files of a folder."""

    def read_task(folder: Path, random: Random) -> None:
        missing = {"missing": random.choice(("drop", "drop", "drop", "refuse"))} if "missing" in make.__annotations__ else {}
        chosen = {k: random.choice(v) if isinstance(v, list) else v for k, v in options.items()}
        use(make(str(folder), **missing, **chosen))

    return Kind(build, read_task, files, weight)


def write_vectors(folder: Path) -> None:
    """Word vectors of all captions, in four formats."""
    words = sorted({w for _, texts in caption_sets.scenes(70) for t in texts for w in t.lower().replace(".", "").replace(",", "").split()})
    numbers = np.random.default_rng(0).normal(size=(len(words), 4)).astype(np.float32)
    lines = [f"{word} {' '.join(f'{x:.4f}' for x in row)}\n" for word, row in zip(words, numbers, strict=True)]
    head = f"{len(words)} 4\n"
    (folder / "glove.txt").write_text("".join(lines))
    (folder / "vectors.txt").write_text(head + "".join(lines))
    (folder / "packed.txt.gz").write_bytes(gzip.compress((head + "".join(lines)).encode(), mtime=0))
    binary = [word.encode() + b" " + row.tobytes() + b"\n" for word, row in zip(words, numbers, strict=True)]
    (folder / "vectors.bin").write_bytes(head.encode() + b"".join(binary))


def with_vectors(write: Callable[..., Any], **options: Any) -> Callable[[Path], None]:
    """Writes a data set with captions, and vectors of their words."""

    def build(folder: Path) -> None:
        write(folder, **options)
        write_vectors(folder)

    return build


def read_vectors(folder: Path, random: Random) -> None:
    """Reads one of the files of word vectors."""
    name = changed_file(folder, ("glove.txt", "vectors.txt", "packed.txt.gz", "vectors.bin"))
    vectors = load_word_vectors(folder / name)
    contml.CaptionLabels([["a red ball"], ["a blue box"]], vectors=vectors).pairwise()


def changed_file(folder: Path, names: tuple[str, ...]) -> str:
    """The file that was changed last."""
    return max((name for name in names if (folder / name).exists()), key=lambda name: (folder / name).stat().st_mtime_ns, default=names[0])


# configs


def build_configs(folder: Path) -> None:
    """Configs of several tasks, which come with contml."""
    from contml.experiment.names import config_path

    for name in ("pose/synthetic", "pose/coco", "captions/synthetic", "classes/ice_cub", "layout/synthetic", "table/default"):
        shutil.copy(config_path(name), folder / f"{name.replace('/', '_')}.yaml")


def read_config(folder: Path, random: Random) -> None:
    """Loads the changed config as a command does, or as that of a run, which may not import code."""
    path = folder / changed_file(folder, tuple(p.name for p in folder.glob("*.yaml")))
    if random.random() < 0.5:
        read(path, trusted=False)
    document = path.read_bytes()
    if b":system" not in document:
        load(str(path)).values  # noqa: B018


def read_overrides(folder: Path, random: Random) -> None:
    """Loads a config with changed overrides, one per line."""
    lines = (folder / "overrides.txt").read_bytes().decode("utf-8", "surrogateescape").split("\n")
    load("pose/synthetic", random.sample(lines, min(2, len(lines)))).values  # noqa: B018


# tables


def build_tables(folder: Path) -> None:
    """A table with a column of every kind of label, in three formats."""
    import pyarrow
    import pyarrow.parquet

    rows = tables.dials(folder, 24)
    for number, row in enumerate(rows):
        row["split"] = "train" if number < 14 else "test"
        row["date"] = f"2026-0{1 + number % 9}-11"
    tables.write_table(folder / "items.csv", rows)
    tables.write_table(folder / "items.tsv", rows, delimiter="\t")
    pyarrow.parquet.write_table(pyarrow.table({name: [row[name] for row in rows] for name in rows[0]}), folder / "items.parquet")
    write_vectors(folder)


def read_table(folder: Path, random: Random) -> None:
    """Reads the changed table, with labels that are given or guessed."""
    path = folder / changed_file(folder, ("items.csv", "items.tsv", "items.parquet"))
    usual = {"reading": "number", "colour": "class", "lat,lon": "geo", "needle": "vector", "tags": "tags", "text": "captions"}
    usual |= {"map": "map", "grade": "ordinal", "date": "date", "size": "class"}
    name = random.choice(list(usual))
    kind = random.choice((usual[name], usual[name], "auto", random.choice(list(LABEL_KINDS))))
    labels = random.choice(({name: kind}, {name: kind}, {name: kind, "reading": "number"}, None))
    options: dict[str, Any] = {"missing": random.choice(("refuse", "drop", "drop"))}
    if random.random() < 0.3:
        options |= random.choice(
            ({"split": "split"}, {"group": "maker"}, {"decimal": "comma"}, {"separator": ";"}, {"scale": "range"}, {"classes": 3})
        )
    task = table_file(str(path), labels, vectors="glove.txt", dim=3, **options)
    use(task)
    if task.suggested is not None:
        task.suggested(task.train)
    list(task.columns)


# pose files


def build_joints(folder: Path) -> None:
    """Joints in both formats, and lists of names."""
    values = pose_sets.pose_files(folder, 16)
    people = [
        {"name": str(n), "joints": j.tolist(), "visible": v.tolist(), "split": str(s)}
        for n, j, v, s in zip(values["names"], values["joints"], values["visible"], values["split"], strict=True)
    ]
    content = {"joint_names": [f"j{k}" for k in range(14)], "skeleton": [[0, 1], [1, 2]], "people": people}
    (folder / "joints.json").write_text(json.dumps(content))
    names = [str(name) for name in values["names"]]
    (folder / "lists.json").write_text(json.dumps({"train": names[:8], "test": names[8:], "queries": names[8:10]}))


def read_joints(folder: Path, random: Random) -> None:
    """Reads the changed file of joints, or the changed lists."""
    name = changed_file(folder, ("joints.npz", "joints.json", "lists.json"))
    joints = random.choice(("joints.npz", "joints.json")) if name == "lists.json" else name
    split = "lists.json" if name == "lists.json" else None
    use(pose_files(str(folder), joints, split=split, hidden="drop", normalize=random.random() < 0.5))


# label maps


def build_maps(folder: Path) -> None:
    """Images and label maps, a table of pairs, and lists of names."""
    layouts.write_label_maps(folder, 14, 9)
    names = [f"{index:03d}" for index in range(14)]
    (folder / "lists.json").write_text(json.dumps({"train": names[:8], "test": names[8:]}))


def read_maps(folder: Path, random: Random) -> None:
    """Reads label maps by a table or by lists, with or without groups of classes."""
    by = random.choice(({"pairs": "pairs.csv"}, {"split": "lists.json"}))
    grouped = {"names": "classes.csv", "column": "surface"}
    use(layout_files(str(folder), **by, **random.choice((grouped, {}, {"ignore": 255})), side=random.choice((None, 9))))


# images


def build_images(folder: Path) -> None:
    """Images in several formats."""
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 255, (20, 24, 3), dtype=np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6
    picture.save(folder / "a.png")
    picture.save(folder / "b.jpg", exif=exif)
    picture.convert("P").save(folder / "c.tif")


def read_images(folder: Path, random: Random) -> None:
    """Decodes all images into a batch, and crops of them."""
    from contml.data import BoxCrop, Square, SquareCrop

    files = [folder / name for name in ("a.png", "b.jpg", "c.tif")]
    crops = [make(file) for file in files for make in (ImageFile, lambda f: BoxCrop(f, (1, 2, 15, 12)))]
    crops += [SquareCrop(file, Square(-2.0, 3.0, 15.0), 8) for file in files]
    split = Split(crops, [str(row) for row in range(9)], ClassLabels([0, 1, 2] * 3))
    with redirect_stderr(io.StringIO()):
        for batch in Images(16, 12, broken=random.choice(("skip", "fail"))).test_batches(split, None, 9):
            assert batch.images.shape[1:] == (3, 12, 12)


# files that contml writes


def build_checkpoints(folder: Path) -> None:
    """Weights and the state of a training."""
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    save_weights(folder / "last.safetensors", model.state_dict(), epoch=1, config={"seed": 0})
    numbers = {"epoch": 1, "step": 0, "config": {}, "finished": False, "schedule": {}, "scaler": None}
    save_state(folder / "state.safetensors", {"model": model.state_dict()}, optimizer.state_dict(), numbers)


def read_checkpoints(folder: Path, random: Random) -> None:
    """Reads all that a resumed training reads."""
    load_weights(folder / "last.safetensors")
    load_state(folder / "state.safetensors")
    load_numbers(folder / "state.safetensors")


def build_runs(folder: Path) -> None:
    """Two run folders with metrics; data, embeddings."""
    chosen = Selection("label_distance@10", 40, 0.3, 0.4, -0.1, 0.05)
    for name, share, lr in (("one", 0.5, 0.002), ("two", 0.4, 0.01)):
        results = [Evaluated(poses(share, k=20), "test", "best", 2, 2, chosen), Evaluated(poses(0.6, k=20), "test", "last", 2, 2)]
        write_run(folder / name, evaluated=results, optimizer={"name": "adamw", "lr": lr}, published={"source": "a paper", "recall@1": 0.5})
    rows = [{"event": "train", "epoch": 1, "step": 1, "loss": 0.5, "learning_rate": 0.1}]
    rows += [{"event": "evaluation", "epoch": 2, "step": 2, "split": "val", "metric": "label_distance@10", "label_distance@10": 5.0}]
    rows += [{"event": "train", "epoch": 2, "step": 2, "loss": 0.5, "learning_rate": 0.1}]
    (folder / "one" / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    record()[0].save(folder / "one" / "data.json.gz")


def record() -> tuple[DataRecord, DataRecord]:
    """The record of some data, and that of other data."""
    names = {"train": ["a", "b", "c"], "test": ["d", "e"]}
    labels = {split: [f"{name}0" for name in items] for split, items in names.items()}
    return DataRecord(names, labels, {"train": [], "test": [0]}), DataRecord({**names, "test": ["d"]}, {**labels, "test": ["d1"]}, {"train": [], "test": []})


def read_runs(folder: Path, random: Random) -> None:
    """Compares both runs, and reads what a report of the first reads."""
    options: Any = random.choice(({}, {"by": "optimizer.lr"}, {"group": ["loss"]}, {"metrics": ["ndcg@10"]}))
    found = compare([folder], **options)
    markdown(found), comma_separated(found), json.dumps(as_data(found))
    if random.random() < 0.05:
        comparison_plot(found)


def read_report(folder: Path, random: Random) -> None:
    """Reads what a report reads: the config, the data, the evaluation and the metrics."""
    read(folder / "one" / "config.yaml", trusted=False)
    before, now = DataRecord.load(folder / "one" / "data.json.gz"), record()[1]
    before.changes(now)
    for split in before.names:
        before.rows(split, now)
    run = open_run(folder / "one")
    evaluated = running.read_evaluation(run)
    rows = run.rows()
    evaluated.description, evaluated.doubt, contml.report.table.summary(evaluated.evaluation)
    training_plot(rows, evaluated)
    metrics_plot(evaluated.evaluation)
    run.rewind(1)


def build_trained(folder: Path) -> None:
    """A run folder of a training that takes a second."""
    run = running.train(load("pose/synthetic", [*TINY, "sampler.batches=2", "training.epochs=1", "training.select=none"]), folder / "runs", folder=folder / "run")
    assert run is not None


def read_trained(folder: Path, random: Random) -> None:
    """Resumes, evaluates, or reports the run: what reads the changed file."""
    run = folder / "run"
    names = tuple(str(path.relative_to(run)) for path in run.rglob("*") if path.is_file())
    name = changed_file(run, names)
    steps = [running.evaluate_run, running.report_run, running.resume]
    wanted = 2 if name.startswith("checkpoints/state") else 0 if name.startswith("checkpoints") else 1 if name.startswith("emb") else random.randrange(3)
    with redirect_stderr(io.StringIO()):
        steps[wanted](run)


# caches


def cached_split(folder: Path) -> Split:
    """Four images in files."""
    return Split([ImageFile(folder / f"{row}.png") for row in range(4)], [f"{row}.png" for row in range(4)], ClassLabels([0, 0, 1, 1]))


def build_image_cache(folder: Path) -> None:
    """Four images and the cache of them."""
    for row in range(4):
        Image.new("RGB", (6, 5), (40 * row, 10, 10)).save(folder / f"{row}.png")
    fill(folder)


def fill(folder: Path) -> None:
    """Fills the cache, and reads its images."""
    with redirect_stderr(io.StringIO()):
        images = Images(8, 8, cache=folder / "cache")
        images.fill(cached_split(folder))
        list(images.test_batches(cached_split(folder), None, 4))


def build_neighbours(folder: Path) -> None:
    """A cache of neighbours: the whole search, and its parts."""
    neighbours(folder)


def neighbours(folder: Path) -> None:
    """Searches in a cache."""
    rows = torch.arange(6)
    found = Cache(folder, "labels", 2, rows, rows).get(lambda rows, _: (torch.zeros(len(rows), 2), torch.zeros(len(rows), 2, dtype=torch.long)), None)
    assert found[0].shape == (6, 2)
    assert found[1].dtype == torch.int64
    assert int(found[1].min()) >= 0
    assert int(found[1].max()) < 6


SPEC = {"config": {"loss": {"margin": 0.1}}, "space": {"loss.margin": "0.1,0.2"}, "sampler": "grid", "seeds": 1, "folds": 1}


def build_trials(folder: Path) -> None:
    """The file of a sweep."""
    file = TrialsFile(folder / "trials.jsonl", SPEC)
    for n in range(4):
        file.add(Training(n, {"loss.margin": 0.1 * n}, 0, None, 0.5 if n else None, "label_distance@10", 20, 1, "run", 3.0, "" if n else "diverged"))


def read_trials(folder: Path, random: Random) -> None:
    """Goes on with the sweep, and ranks its trials."""
    from contml.sweep.results import Sweep
    from contml.sweep.space import parse_space
    from contml.sweep.trials import Trial, ranked

    path = folder / "trials.jsonl"
    stored_sampler(path)
    file = TrialsFile(path, SPEC)
    trials = [Trial(t.trial, t.params, (t,)) for t in file.trainings.values()]
    if trials and not (found := ranked(trials))[0].error:
        sweep = Sweep(folder, path, parse_space(["loss.margin=0.1,0.2"]), tuple(found), ())
        sweep.table(), sweep.sentences(), json.dumps(sweep.as_data())


def build_features(folder: Path) -> None:
    """Features of four images, in three formats."""
    build_image_cache(folder)
    for suffix in ("npz", "npy", "parquet"):
        names = [f"{row}.png" for row in range(4)]
        write_features(folder / f"features.{suffix}", names, ["train"] * 4, np.ones((4, 3), np.float32))


def read_features(folder: Path, random: Random) -> None:
    """Replaces images by features."""
    split = cached_split(folder)
    task = Task(split, replace(split, names=["x", *split.names[1:]]) if random.random() < 0.1 else split)
    name = changed_file(folder, ("features.npz", "features.npy", "features.parquet"))
    with_features(Task(split.subset([0, 1, 2]), split.subset([3])) if random.random() < 0.9 else task, folder / name)


PARTS = {"train": (40, 8), "test": (20, 4)}
CAPTIONS = ({"vectors": "glove.txt", "empty": "drop"}, ("Flickr8k.token.txt", "Flickr_8k.*.txt"))
KINDS = {
    "yaml": Kind(build_configs, read_config, ("*.yaml",), 6),
    "overrides": Kind(
        lambda folder: (folder / "overrides.txt").write_text(
            "loss.margin=0.1\nloss=triplet_margin\ntask.train=40\nmodel={backbone: small_cnn, dim: 8}\nseed=3\nimages.crop=[1, 2]"
        ),
        read_overrides,
        ("overrides.txt",),
        6,
    ),
    "table": Kind(build_tables, read_table, ("items.csv", "items.csv", "items.tsv", "items.parquet"), 10),
    "captions/files": task_kind(with_vectors(caption_sets.write_csv), caption_files, ("captions.csv",), 3, **CAPTIONS[0]),
    "captions/flickr": task_kind(with_vectors(caption_sets.write_flickr), flickr, CAPTIONS[1], 3, **CAPTIONS[0]),
    "captions/coco": task_kind(
        with_vectors(caption_sets.write_coco), coco_captions, ("annotations/*.json",), 4, queries=[0, 3], **CAPTIONS[0]
    ),
    "captions/karpathy": task_kind(
        with_vectors(caption_sets.write_karpathy, coco=True),
        coco_captions, ("dataset_coco.json",), 4, karpathy="dataset_coco.json", queries=[0, 3], **CAPTIONS[0]
    ),
    "mat/mpii": task_kind(lambda f: pose_sets.write_mpii(f, 8), mpii, ("*.mat",), 3, queries=[0, 2], box=["joints", "scale"], min_joints=9),
    "mat/lsp": task_kind(lambda f: pose_sets.write_lsp(f, 8, 8), lsp, ("*/joints.mat",), 3, occluded=[True, False]),
    "mat/lsun": task_kind(
        lambda f: layouts.write_lsun(f, 5, 5), lsun, ("*.mat", "layout_seg/*.mat"), 3, maps=["auto", "points"], side=16
    ),
    "mat/cars": task_kind(class_layouts.write_cars_old, cars, ("cars_annos.mat",), 3, crop_boxes=[True, False]),
    "mat/devkit": task_kind(class_layouts.write_cars_new, cars, ("devkit/*.mat", "*.mat"), 2, crop_boxes=[True, False]),
    "joints": Kind(build_joints, read_joints, ("joints.npz", "joints.json", "lists.json"), 5),
    "keypoints": task_kind(
        lambda f: pose_sets.write_keypoints(f, 6, 5), keypoints, ("annotations/*.json",), 5,
        box=["joints", "bbox"], min_joints=9, min_size=1, normalize=[True, False],
    ),
    "classes/cub": task_kind(class_layouts.write_cub, cub, ("CUB_200_2011/*.txt",), 3, crop_boxes=[True, False]),
    "classes/sop": task_kind(class_layouts.write_sop, sop, ("*/Ebay_*.txt",), 2),
    "classes/inshop": task_kind(class_layouts.write_inshop, inshop, ("Eval/*.txt",), 2),
    "classes/csv": task_kind(
        lambda f: class_layouts.write_class_table(f, columns=("image", "class", "split")), class_table, ("images.csv",), 3
    ),
    "classes/folder": task_kind(
        lambda f: (class_layouts.write_folders(f / "train", 4, 0, 2), (f / "s.csv").write_text("class,split\n" + "".join(f"class {k:02},{p}\n" for k, p in enumerate(("train", "train", "test", "test"))))),
        lambda root, **o: class_folders(f"{root}/train/train", split="../../s.csv"), ("s.csv",), 1,
    ),
    "maps": Kind(build_maps, read_maps, ("labels/*.png", "images/000.png", "*.csv", "lists.json"), 6),
    "images": Kind(build_images, read_images, ("*",), 6),
    "vectors": Kind(write_vectors, read_vectors, ("*.txt", "*.bin", "*.gz"), 5),
    "checkpoint": Kind(build_checkpoints, read_checkpoints, ("*",), 5),
    "runs": Kind(build_runs, read_runs, ("*/config.yaml", "*/metrics.jsonl", "*/evaluation*.json"), 8),
    "report": Kind(build_runs, read_report, ("one/*",), 4, restore=True),
    "trained": Kind(build_trained, read_trained, ("run/config.yaml", "run/*.json*", "run/*/*.safetensors"), 1, restore=True),
    "image_cache": Kind(build_image_cache, lambda folder, _: fill(folder), ("cache/*.index", "cache/*.pixels"), 4, restore=True),
    "neighbours": Kind(build_neighbours, lambda folder, _: neighbours(folder), ("*.safetensors",), 4, restore=True),
    "trials": Kind(build_trials, read_trials, ("trials.jsonl",), 5, restore=True),
    "features": Kind(build_features, read_features, ("features.*",), 3),
}
