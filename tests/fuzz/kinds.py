"""The kinds of input: small valid files of each, and how the command line reads them."""

from __future__ import annotations

import gzip
import io
import json
import shutil
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from PIL import Image
from support import caption_sets, class_layouts, layouts, pose_sets, tables

import contml
from contml.app.experiment.loading import load
from contml.captioning import Vocabulary
from contml.config import read
from contml.data import ImageFile, Images, Split
from contml.labels import ClassLabels, load_word_vectors
from contml.tasks.captions.caption_files import coco as coco_captions, flickr
from contml.tasks.classes.cars import cars
from contml.tasks.classes.cub import cub
from contml.tasks.classes.inshop import inshop
from contml.tasks.classes.sop import sop
from contml.tasks.layout.lsun import lsun
from contml.tasks.pose.coco import coco as keypoints
from contml.tasks.pose.lsp import lsp
from contml.tasks.pose.mpii import mpii
from contml.tasks.table.file import file as table_file
from contml.tasks.table.kinds import KINDS as LABEL_KINDS

from . import folders, own
from .base import Kind, changed_file, task_kind, use


def write_vectors(folder: Path) -> None:
    """Word vectors of all captions, in several formats."""
    captions = [text for _, texts in caption_sets.scenes(70) for text in texts]
    words = sorted({word for text in captions for word in text.lower().replace(".", "").replace(",", "").split()})
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
    vectors = load_word_vectors(folder / name, random.choice((None, {"red", "ball", "blue", "box"})))
    contml.CaptionLabels([["a red ball"], ["a blue box"]], vectors=vectors).pairwise()


# the vocabulary of a captioner


def write_vocabulary(folder: Path) -> None:
    """The words of a captioner, as its weights hold them."""
    words = {word for _, texts in caption_sets.scenes(70) for text in texts for word in text.split()}
    (folder / "words").write_bytes(Vocabulary(sorted(words)).to_tensor().numpy().tobytes())


def read_vocabulary(folder: Path, random: Random) -> None:
    """Reads the changed words."""
    words = np.frombuffer((folder / "words").read_bytes(), random.choice((np.uint8, np.uint8, np.int8)))
    vocabulary = Vocabulary.from_tensor(torch.from_numpy(words.copy()))
    vocabulary.decode(vocabulary.encode(["a", "red", "ball"]))


# configs


def build_configs(folder: Path) -> None:
    """Configs of several tasks, which come with contml."""
    from contml.app.experiment.names import config_path

    names = ("pose/synthetic", "pose/coco", "captions/synthetic", "classes/ice", "layout/synthetic", "table/default")
    for name in names:
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
    table = pyarrow.table({name: [row[name] for row in rows] for name in rows[0]})
    pyarrow.parquet.write_table(table, folder / "items.parquet")
    write_vectors(folder)


def read_table(folder: Path, random: Random) -> None:
    """Reads the changed table, with labels that are given or guessed."""
    path = folder / changed_file(folder, ("items.csv", "items.tsv", "items.parquet"))
    usual = {
        "reading": "number", "colour": "class", "lat,lon": "geo", "needle": "vector", "tags": "tags",
        "text": "captions",
    }  # fmt: skip
    usual |= {"map": "map", "grade": "ordinal", "date": "date", "size": "class"}
    name = random.choice(list(usual))
    kind = random.choice((usual[name], usual[name], "auto", random.choice([*LABEL_KINDS, "number:log"])))
    section: dict[str, Any] = {"kind": kind} | ({"vectors": "glove.txt", "dim": 3} if kind == "captions" else {})
    labels = random.choice(({name: section}, {name: section}, {name: section, "reading": "number"}, None))
    options: dict[str, Any] = {"missing": random.choice(("refuse", "drop", "drop"))}
    if random.random() < 0.3:
        options |= random.choice(({"split": "split"}, {"group": "maker"}, {"table": {"decimal": "comma"}}))
    if random.random() < 0.3:
        section |= {"tags": {"separator": ";"}, "number": {"scale": "range"}, "map": {"classes": 3}}.get(kind, {})
    task = table_file(str(path), labels, **options)
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
    labels = {"joints": {"kind": "pose", "normalize": random.random() < 0.5}}
    use(table_file(str(folder / joints), labels, split=split, missing="drop"))


# label maps


def build_maps(folder: Path) -> None:
    """Images and label maps, a table of pairs, and lists of names."""
    layouts.write_label_maps(folder, 14, 9)
    names = [f"{index:03d}" for index in range(14)]
    (folder / "lists.json").write_text(json.dumps({"train": names[:8], "test": names[8:]}))


def read_maps(folder: Path, random: Random) -> None:
    """Reads label maps by a table or by lists, with or without groups of classes."""
    grouped = {"names": "classes.csv", "column": "surface"}
    section = {"kind": "map", "side": random.choice((None, 9)), **random.choice((grouped, {}, {"ignore": 255}))}
    split = random.choice(("split", "lists.json"))
    use(table_file(str(folder / "pairs.csv"), {"label": section}, image="image", split=split, missing="drop"))


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


PARTS = {"train": (40, 8), "test": (20, 4)}
CAPTIONS = ({"vectors": "glove.txt", "empty": "drop"}, ("Flickr8k.token.txt", "Flickr_8k.*.txt"))
KARPATHY = {"karpathy": "dataset_coco.json", "queries": [0, 3], **CAPTIONS[0]}
KEYPOINTS = {"min_joints": 9, "min_size": 1, "normalize": [True, False]}
OVERRIDES = "loss.margin=0.1\nloss=triplet_margin\ntask.train=40\nmodel={backbone: small_cnn, dim: 8}\n"
OVERRIDES += "seed=3\nimages.crop=[1, 2]"
KINDS = {
    "yaml": Kind(build_configs, read_config, ("*.yaml",)),
    "overrides": Kind(lambda f: (f / "overrides.txt").write_text(OVERRIDES), read_overrides, ("overrides.txt",)),
    "table": Kind(build_tables, read_table, ("items.csv", "items.csv", "items.tsv", "items.parquet")),
    "captions/flickr": task_kind(with_vectors(caption_sets.write_flickr), flickr, CAPTIONS[1], **CAPTIONS[0]),
    "captions/coco": task_kind(
        with_vectors(caption_sets.write_coco), coco_captions, ("annotations/*.json",), queries=[0, 3], **CAPTIONS[0]
    ),
    "captions/karpathy": task_kind(
        with_vectors(caption_sets.write_karpathy, coco=True), coco_captions, ("dataset_coco.json",), **KARPATHY
    ),
    "mat/mpii": task_kind(lambda f: pose_sets.write_mpii(f, 8), mpii, ("*.mat",), queries=[0, 2], min_joints=9),
    "mat/lsp": task_kind(lambda f: pose_sets.write_lsp(f, 8, 8), lsp, ("*/joints.mat",), occluded=[True, False]),
    "mat/lsun": task_kind(
        lambda f: layouts.write_lsun(f, 5, 5), lsun, ("*.mat", "layout_seg/*.mat"), maps=["auto", "points"], side=16
    ),
    "mat/cars": task_kind(class_layouts.write_cars_old, cars, ("cars_annos.mat",), crop_boxes=[True, False]),
    "mat/devkit": task_kind(class_layouts.write_cars_new, cars, ("devkit/*.mat", "*.mat"), crop_boxes=[True, False]),
    "joints": Kind(build_joints, read_joints, ("joints.npz", "joints.json", "lists.json")),
    "keypoints": task_kind(
        lambda f: pose_sets.write_keypoints(f, 6, 5), keypoints, ("annotations/*.json",), **KEYPOINTS
    ),
    "classes/cub": task_kind(class_layouts.write_cub, cub, ("CUB_200_2011/*.txt",), crop_boxes=[True, False]),
    "classes/sop": task_kind(class_layouts.write_sop, sop, ("*/Ebay_*.txt",)),
    "classes/inshop": task_kind(class_layouts.write_inshop, inshop, ("Eval/*.txt",)),
    "maps": Kind(build_maps, read_maps, ("labels/*.png", "images/000.png", "*.csv", "lists.json")),
    "images": Kind(build_images, read_images, ("*",)),
    "vocabulary": Kind(write_vocabulary, read_vocabulary, ("words",)),
    "vectors": Kind(write_vectors, read_vectors, ("*.txt", "*.bin", "*.gz")),
    **own.KINDS,
    **folders.KINDS,
}
