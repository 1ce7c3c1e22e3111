"""Every kind of labels, and the commands, on images in shards: the same results as of the same images in files."""

from __future__ import annotations

import io
import json
import re
import shutil
import tarfile
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from support.refusals import refuses
from support.shards import table, tar, write_dataset, write_parquet

from contml import InputError
from contml.data import Images
from contml.experiment import load
from contml.experiment.loading import OwnData, load_table

COUNT = 36
#: The folder, file or prefix of an image and of its label map by their number, for each place.
PLACES = {
    "files": ("files/{:03d}.jpg", "maps/{:03d}.png"),
    "archive": ("one.tar:jpg/k/{:03d}.jpg", "one.tar:seg.png/k/{:03d}.seg.png"),
    "parquet": ("one.parquet:image/{}", "one.parquet:map/{}"),
    "dataset": ("set/data-00000-of-00001.arrow:image/{}", "set/data-00000-of-00001.arrow:map/{}"),
}
SHARDS = [place for place in PLACES if place != "files"]
WORDS = ["red", "blue", "green", "round", "small", "large", "box", "dog", "cat", "tree", "house", "car"]
#: Judgments: the columns, and the rows by number.
JUDGED = {
    "pairs": ("a,b,score,split", lambda i, d, image: f"{image[i]},{image[i + d]},{(7 * i + d) % 10}"),
    "triplets": ("anchor,x,y,choice,split", lambda i, d, image: f"{image[i]},{image[i + d]},{image[i + 9]},x"),
    "rankings": ("query,item,grade,split", lambda i, d, image: f"{image[i]},{image[i + d]},{(i + d) % 4}"),
}
SPLITS = ["train", "train", "test", "val", "train", "query", "train", "val"]
COLUMNS = {"number": "age=number", "class": "colour=class", "captions": "caption=captions", "map": "map=map"}
KINDS = [*COLUMNS, *JUDGED, "captions of files", "pose", "layout"]
SMALL = ["images.resize=24", "images.crop=20", "images.workers=0", "training.epochs=1", "sampler.batches=2"]
CNN = ["model.backbone=small_cnn"]
DENSE = ["sampler.batch_size=6", "sampler.anchors_per_batch=2", "sampler.neighbours=2"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with the same images and label maps in files and in shards of each kind."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    images = [encoded(random.integers(0, 256, (24, 24, 3), dtype=np.uint8), "JPEG") for _ in range(COUNT)]
    maps = [encoded(np.indices((24, 24))[0] // (2 + n % 7) % 3, "PNG") for n in range(COUNT)]
    members = {}
    for n, content in enumerate(zip(images, maps, strict=True)):
        for path, each in zip(PLACES["files"], content, strict=True):
            Path(path.format(n)).parent.mkdir(exist_ok=True)
            Path(path.format(n)).write_bytes(each)
        members |= {f"k/{n:03d}.jpg": content[0], f"k/{n:03d}.seg.png": content[1], f"k/{n:03d}.json": b"{}"}
    tar("one.tar", members)
    columns = table(images).append_column("map", [maps])
    write_parquet("one.parquet", columns, row_group_size=5)
    write_dataset("set", columns)
    return tmp_path


def encoded(pixels, kind):
    content = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(content, kind)
    return content.getvalue()


class Data(NamedTuple):
    """What a command is given: a table with its labels, or a config; and changes."""

    own: OwnData | None
    config: str | None
    changes: list[str]

    @property
    def arguments(self):
        return [*(self.own.arguments() if self.own else [self.config]), *self.changes, *SMALL]

    def task(self):
        experiment = load(self.config, self.changes) if self.config else load_table(self.own, None, self.changes)
        return experiment.read_task()


def data(kind, place, more=None):
    """Write the labels of a kind, with images and label maps in a place.

    Args:
        kind: one of `KINDS`, or "captioner".
        place: one of `PLACES`.
        more: paths of an image and a label map, in a training row of their own.
    """
    file, numbers = Path("data.csv"), range(COUNT)
    image, label_map = ([path.format(n) for n in numbers] for path in PLACES[place])
    items = [*zip(image, label_map, SPLITS * 9, numbers, strict=False), *([(*more, "train", 1)] if more else [])]
    caption = [" ".join(WORDS[(n * i + i) % 12] for i in range(1, 5)) for n in numbers]
    if kind in JUDGED:
        columns, row = JUDGED[kind]
        lines = [f"{row(n, d, image * 6)},{SPLITS[n % 8]}" for n in numbers for d in (1, 2, 3, 4, 6)]
        lines += [f"{row(0, 5, [more[0], *image])},train"] if more else []
    else:
        columns = "image,label,age,colour,caption,map,split"
        cells = [(path, other, n % 7, WORDS[n % 3], caption[n], other, part) for path, other, part, n in items]
        lines = [",".join(map(str, row)) for row in cells]
    file.write_text("\n".join([columns, *lines]) + "\n")
    if kind in JUDGED:
        return Data(OwnData(file), None, CNN)
    if kind in COLUMNS:
        sampler = ["sampler.classes=3", "sampler.instances=2"] if kind == "class" else DENSE
        return Data(OwnData(file, [COLUMNS[kind]], "image"), None, [*CNN, *sampler])
    if kind == "layout":
        return Data(None, "layout/synthetic", [f"task={{name: layout/files, root: ., pairs: {file}}}", *DENSE])
    captions = f"task={{name: captions/files, root: ., captions: {file}, images: .}}"
    if kind == "captioner":
        return Data(None, "captioning/synthetic", [captions, "sampler.batch_size=6"])
    if kind == "pose":
        joints = [np.random.default_rng(n).uniform(2, 22, (14, 2)).tolist() for n in numbers]
        people = [{"name": path, "split": part, "joints": joints[n]} for path, _, part, n in items]
        Path("data.json").write_text(json.dumps({"people": people}))
        task = "task={name: pose/files, root: ., images: ., joints: data.json}"
        return Data(None, "pose/synthetic", [task, *DENSE])
    return Data(None, "captions/files", [captions, *DENSE])


def batches(split):
    with closing(Images(24, 20)) as images:
        return torch.cat([batch.images for batch in images.test_batches(split, None, 16)])


@pytest.mark.parametrize("place", SHARDS)
@pytest.mark.parametrize("kind", KINDS)
def test_splits(folder, kind, place):
    plain, found = (data(kind, each).task() for each in ("files", place))
    assert plain.splits.keys() == found.splits.keys() == {"train", "val", "test"}
    for name, split in plain.splits.items():
        other = found.splits[name]
        assert [renamed(each, place) for each in other.names] == [renamed(each, "files") for each in split.names]
        assert torch.equal(batches(other), batches(split))
        labels, other_labels = (
            {key: value for key, value in vars(each.labels).items() if isinstance(value, torch.Tensor)}
            for each in (split, other)
        )
        assert labels.keys() == other_labels.keys() != set()
        assert all(torch.equal(value, other_labels[key]) for key, value in labels.items())


def renamed(text, place):
    """A text with the number of each image and label map in place of its path."""
    numbers = {path.format(n): f"<{n}>" for path in PLACES[place] for n in range(COUNT)}
    pattern = "|".join(re.escape(path) for path in sorted(numbers, key=len, reverse=True))
    return re.sub(pattern, lambda match: numbers[match[0]], text)


#: Commands by kind of run; RUN, IMAGE, IMAGES, TABLE and DATA stand for arguments.
COMMANDS = {
    "": [
        "check DATA --images all",
        "train DATA --runs out/runs --name run",
        "evaluate RUN",
        "features DATA --out out/features.npz",
        "sweep DATA --try optimizer.lr=1e-3,1e-4 --runs out/runs --name sweep",
        "embed RUN TABLE --out out/embeddings.npz",
        "index RUN TABLE --out out/photos.index",
        "search out/photos.index IMAGES -k 4 --json",
        "search out/photos.index IMAGES --gallery out/found.html",
        "explore out/photos.index --export out/explore_index",
        "compare RUN",
    ],
    "items": [
        "explore RUN --export out/explore_run",
        "audit RUN --split test",
        "predict RUN IMAGES",
        "predict RUN TABLE --out out/predicted.csv",
        "report RUN --pair PAIR",
    ],
    "judged": ["audit RUN --split test", "report RUN"],
    "captioner": ["caption RUN IMAGES", "report RUN"],
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "place"), [(kind, SHARDS[n % 3]) for n, kind in enumerate([*KINDS, "captioner"])], ids=lambda each: each
)
def test_commands(folder, no_reports, contml, kind, place):
    """What they print and write is the same but for the paths of images, and times."""
    family = "captioner" if kind == "captioner" else "judged" if kind in JUDGED else "items"
    results = []
    for each in ("files", place):
        image = [PLACES[each][0].format(n) for n in range(COUNT)]
        Path("images.csv").write_text("\n".join(["image", *image]) + "\n")
        words = {"DATA": data(kind, each).arguments, "TABLE": ["@images.csv:image"], "IMAGES": image[2:5]}
        words |= {"PAIR": [image[2], image[5]], "QUERY": [image[5]], "RUN": []}
        found = {}
        for command in [*COMMANDS[""], *COMMANDS[family]]:
            status, out, err = contml(*(word for part in command.split() for word in words.get(part, [part])))
            assert status == 0, (command, err)
            found[command] = without_times(renamed(out, each)), without_times(renamed(err, each))
            if command.startswith("train"):
                (run,) = Path("out").glob("runs/*/*/run")
                words["RUN"] = [str(run)]
                found["weights"] = load_file(run / "checkpoints" / "last.safetensors")
        for file in sorted(Path("out").rglob("*")):
            is_page = file.suffix == ".html" and "runs" not in file.parts  # those of runs have shortened paths
            if is_page or file.suffix == ".csv" or file.name == "evaluation.json":
                found[str(file)] = without_times(renamed(file.read_text(), each))
            if file.suffix == ".npz":
                with np.load(file) as arrays:
                    found[str(file)] = arrays["features"].tolist()
        results.append(found)
        shutil.rmtree("out")
    plain, other = results
    assert plain.keys() == other.keys()
    weights, others = plain.pop("weights"), other.pop("weights")
    assert all(torch.equal(value, others[name]) for name, value in weights.items())
    for name, value in plain.items():
        assert other[name] == value, name


def without_times(text):
    """A text without times, what depends on them, and out/pictures, in which names of images are drawn."""
    text = re.sub(r"[\d.]+ (?:images/s|s\b|min\b)|data:image/[^\"')]*|\d{4}-\d\d-\d\d \d\d:\d\d", "", text)
    return re.sub(r"  +|-{3,}", " ", text)


MISSING = {
    "one.tar:jpg/k/999.jpg": "the 36 images of one.tar:jpg have names such as k/000.jpg",
    "gone.tar/k/000.jpg": "there is no file gone.tar",
    "one.parquet:image/36": "the 36 images of one.parquet:image have names such as 0",
    "set/data-00009-of-00002.arrow/0": "there is no file set/data-00009-of-00002.arrow",
}
BROKEN = {
    "cut.tar/k/000.jpg": ("cut.tar", "cut short"),
    "cut.parquet/0": ("cut.parquet", "cut short"),
    "cut.arrow/0": ("cut.arrow", "cut short"),
    "twice.tar/a.png": ("twice.tar", "two images named a.png"),
    "one.tar/k/000.jpg": ("one.tar", "'one.tar:jpg' reads those named KEY.jpg"),
}


@pytest.mark.parametrize("path", [*MISSING, *BROKEN])
@pytest.mark.parametrize("kind", ["pairs", "captions of files", "pose", "layout", "map"])
def test_a_path_that_leads_nowhere(folder, kind, path):
    """One line, which names the shard; also of a label map."""
    whole = Path("one.tar").read_bytes()
    Path("cut.tar").write_bytes(whole[:3000])
    Path("cut.parquet").write_bytes(Path("one.parquet").read_bytes()[:-80])
    Path("cut.arrow").write_bytes(Path("set/data-00000-of-00001.arrow").read_bytes()[:-300])
    with tarfile.open("twice.tar", "w") as archive:
        for _ in range(2):
            archive.add("maps/000.png", "a.png")
    maps = kind in ("layout", "map")
    wrong = data(kind, "archive", ("files/000.jpg", path) if maps else (path, "maps/000.png"))
    with pytest.raises(InputError) as caught:
        wrong.task()
    for words in (MISSING[path],) if path in MISSING else BROKEN[path]:
        assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_shard_in_place_of_an_image(folder):
    tar("plain.tar", {"a.jpg": Path("files/000.jpg").read_bytes()})
    with refuses("data.csv:38", "plain.tar/", hint="plain.tar is a shard, whose images are plain.tar/NAME"):
        data("number", "files", ("plain.tar/", "maps/000.png")).task()
    train = data("number", "files", ("plain.tar", "maps/000.png")).task().train
    with refuses("plain.tar", "a shard, whose images are plain.tar/NAME"):
        batches(train)
