"""Tables and other data sets whose images are in shards: the same splits and batches as of the images in files."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support.damage import mutations
from support.refusals import refuses
from support.shards import table, tar, write_dataset, write_parquet

from contml import InputError
from contml.data import Images, copies
from contml.tasks._readers.folders import DiskFiles, why_absent
from contml.tasks.classes.table import csv
from contml.tasks.table.file import file

COUNT = 24


@pytest.fixture
def contents(tmp_path):
    """The content of each image of the folder "files"."""
    (tmp_path / "files").mkdir()
    random, found = np.random.default_rng(0), []
    for number in range(COUNT):
        path = tmp_path / "files" / f"{number:03d}.png"
        Image.fromarray(random.integers(0, 256, (20, 20, 3), dtype=np.uint8)).save(path)
        found.append(path.read_bytes())
    return found


#: The path of an image by its number, for each kind of shard.
PATHS = {
    "files": lambda n: f"files/{n:03d}.png",
    "archives": lambda n: f"s/p-{n // 8}.tar/k{n % 3}/{n:03d}.png",
    "extension": lambda n: f"s/p-{n // 8}.tar:png/k{n % 3}/{n:03d}.png",
    "parquet": lambda n: f"t.parquet/{n}",
    "columns": lambda n: f"t.parquet:image:n/{n + 100}",
    "dataset": lambda n: f"hf/train/data-0000{n // 12}-of-00002.arrow/{n % 12}",
}
SHARDS = [kind for kind in PATHS if kind != "files"]


@pytest.fixture
def folder(contents, tmp_path, monkeypatch):
    """A folder with the same images in files and in shards of each kind."""
    monkeypatch.chdir(tmp_path)
    for shard in range(3):
        members = {f"k{n % 3}/{n:03d}.png": contents[n] for n in range(8 * shard, 8 * shard + 8)}
        tar(tmp_path / "s" / f"p-{shard}.tar", {**members, "readme.txt": b"?"})
    write_parquet(tmp_path / "t.parquet", table(contents, n=[*range(100, 100 + COUNT)]), row_group_size=5)
    write_dataset(tmp_path / "hf" / "train", table(contents[:12]), table(contents[12:]))
    return tmp_path


def part(number):
    return ("train", "train", "test", "val")[number % 4]


def write_table(kind, name="items.csv", more=()):
    rows = [f"{PATHS[kind](n)},{n % 7},{part(n)}" for n in range(COUNT)]
    Path(name).write_text("\n".join(["image,age,split", *rows, *more]) + "\n")
    return name


def batches(split, **options):
    images = Images(16, 16, **options)
    found = torch.cat([batch.images for batch in images.test_batches(split, None, 5)])
    images.close()
    return found


@pytest.mark.parametrize("kind", SHARDS)
def test_a_table_of_paths_into_shards(folder, kind):
    """The column is found by its cells, and the images are those of the files."""
    plain, found = (file(write_table(each)) for each in ("files", kind))
    for name, split in plain.splits.items():
        other = found.splits[name]
        assert [*other.names] == [PATHS[kind](n) for n in range(COUNT) if part(n) == name]
        assert torch.equal(other.labels.pairwise(), split.labels.pairwise())
        assert torch.equal(batches(other), batches(split))
        assert torch.equal(batches(other, cache=folder / "cache"), batches(split))
        assert torch.equal(batches(other, workers=1, cache=folder / "cache"), batches(split))


def test_copies_in_shards_are_found(folder, contents):
    """Also of a file, and in another shard; a change of one byte is another image."""
    tar(folder / "other.tar", {"a.png": contents[3], "b.png": contents[3][:-1] + b"?", "c.png": contents[20]})
    write_parquet(folder / "q.parquet", table([contents[3], contents[20], None]))
    names = [PATHS[kind](3) for kind in PATHS]
    names += ["other.tar/a.png", "other.tar/b.png", "other.tar/c.png", *(f"q.parquet/{n}" for n in range(3))]
    assert copies.same_files(names).tolist() == [0] * 7 + [7, 8, 0, 8, 11]
    assert copies.same_files(names[::-1]).tolist() == [0, 1, 2, 1, 4] + [2] * 7
    missing = ["other.tar/x.png", "other.tar/x.png", "q.parquet/9"]
    assert copies.same_files(missing).tolist() == [0, 0, 2]  # by their paths


MISSING = {
    "s/p-0.tar/k0/999.png": "the 8 images of s/p-0.tar have names such as k0/000.png; correct the cell",
    "s/p-0.tar/k0/000.PNG": "there is 000.png: upper and lower case differ; correct the cell",
    "s/p-0.tar/k7/000.png": "the 8 images of s/p-0.tar have names such as k0/000.png; correct the cell",
    "s/p-0.tar/readme.txt": "the 8 images of s/p-0.tar have names such as k0/000.png; correct the cell",
    "s/p-9.tar/k0/000.png": "there is no file s/p-9.tar; paths are relative to .: set root",
    "s/p-9.tar:png/k0/000.png": "there is no file s/p-9.tar; paths are relative to .: set root",
    "q/p-0.tar/k0/000.png": "there is no folder q; paths are relative to .: set root",
    "s/packed.tar/1.png": "there is no file s/packed.tar, packed.tar.gz is not unpacked; paths are relative to",
    "t.parquet/24": "the 24 images of t.parquet have names such as 0; correct the cell",
    "hf/train/data-00000-of-00002.arrow/12": "the 12 images of hf/train/data-00000-of-00002.arrow have names such as 0",
}


@pytest.mark.parametrize("path", MISSING)
def test_a_missing_image(folder, path):
    (folder / "s" / "packed.tar.gz").touch()
    name = write_table("archives", more=[f"{path},3,train"])
    with refuses("items.csv:26", f"no image {path} (1 such of 25 rows)", hint=MISSING[path]):
        file(name)
    task = file(name, missing="drop")
    assert task.train.excluded == {"without an image file": 1}
    assert len(task.train) == COUNT // 2


BROKEN = {
    "cut.tar/1.png": "cut short",
    "text.tar/1.png": "not a tar archive",
    "gz.tar/1.png": "a compressed archive",
    "cut.parquet/1": "damaged, cut short or of another format",
    "cut.arrow/1": "damaged, cut short or of another format",
    "two.tar/a.png": "two images in a sample",
    "s/p-0.tar:jpg/k0/000.png": "no images named KEY.jpg",
    "t.parquet:photo/0": "no column 'photo'",
}


@pytest.mark.parametrize("missing", ["refuse", "drop"])
@pytest.mark.parametrize("path", BROKEN)
def test_a_broken_shard_is_an_error(folder, contents, path, missing):
    """Also where missing images are dropped: all images of the shard would be lost without a word."""
    import gzip

    archive = (folder / "s" / "p-0.tar").read_bytes()
    (folder / "cut.tar").write_bytes(archive[:1500])
    (folder / "text.tar").write_text("not an archive" * 100)
    (folder / "gz.tar").write_bytes(gzip.compress(archive))
    (folder / "cut.parquet").write_bytes((folder / "t.parquet").read_bytes()[:-100])
    (folder / "cut.arrow").write_bytes((folder / "hf/train/data-00000-of-00002.arrow").read_bytes()[:-100])
    tar(folder / "two.tar", {"a.png": contents[0], "a.mask.png": contents[1]})
    with refuses("", BROKEN[path]):
        file(write_table("archives", more=[f"{path},3,train"]), missing=missing)


@pytest.mark.parametrize("name", ["s/p-0.tar", "t.parquet", "hf/train/data-00000-of-00002.arrow"])
def test_a_damaged_shard_is_refused_or_its_images_are_broken(folder, name):
    kind = {"s": "archives", "t": "parquet", "h": "dataset"}[name[0]]
    table_name, whole = write_table(kind), (folder / name).read_bytes()
    for damaged in mutations(whole, 25, seed=4):
        (folder / name).write_bytes(damaged)
        with suppress(InputError):  # any other error fails
            task = file(table_name, missing="drop")
            for split in task.splits.values():
                batches(split, broken="skip")


def test_other_data_sets_with_images_in_shards(folder, contents):
    """Classes find their files as tables do, and so do captions, poses and layouts, by `DiskFiles`."""
    paths = [PATHS["archives"](n) for n in range(COUNT)]
    rows = [f"{path},{n % 6},{part(n)}" for n, path in enumerate(paths)]
    Path("images.csv").write_text("\n".join(["image,class,split", *rows]) + "\n")
    task = csv(".")
    assert [*task.train.names] == [path for n, path in enumerate(paths) if part(n) == "train"]
    assert torch.equal(batches(task.test), batches(file(write_table("files")).test))
    on_disk = DiskFiles()
    assert on_disk.locate([folder / "q", folder / "s"], "p-2.tar/k0/018.png") == folder / "s/p-2.tar/k0/018.png"
    assert why_absent(Path("s/p-2.tar/k9/1.png")).startswith("the 8 images of s/p-2.tar")


def test_a_shard_in_place_of_a_table(refused, folder, tmp_path):
    """What to do with it: its images are named in a table."""
    check = ["check", "--label", "n=number", "--data"]
    line = refused(*check, "t.parquet")
    assert "t.parquet: no column of image paths, but bytes in the column image; if these are images, name them" in line
    assert "t.parquet/0 is the first one" in line
    assert "name its images in a table, FILE.tar/NAME" in refused(*check, "s/p-0.tar")
    for shards in ("s", "hf"):
        assert "images in shards are named in a table: FILE.tar/NAME" in refused(*check, shards)


@pytest.mark.parametrize("image", [[], ["--image", "image"]])
def test_a_damaged_shard_is_named_with_the_row_of_the_table(refused, folder, tmp_path, image):
    rows = "".join(f"{PATHS['archives'](n)},{n}\n" for n in range(COUNT))
    (tmp_path / "t.csv").write_text(f"image,n\n{rows}")
    path = tmp_path / "s" / "p-1.tar"
    path.write_bytes(path.read_bytes()[:3000])
    line = refused("check", "--data", "t.csv", "--label", "n=number", *image)
    assert line.startswith("contml: t.csv:10: s/p-1.tar: cut short: its member")
