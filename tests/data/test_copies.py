"""Copies of images: found by content, kept in one part of a drawn split, counted by check and audit."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support.images import noise
from support.tables import dials, write_table

from contml._support.packed_texts import Texts
from contml.app.audit import audit_run
from contml.app.experiment import OwnData, check, load_table, train
from contml.data import ImageFile, Split, Task, copies
from contml.data.carve import with_validation
from contml.data.copies import find_copies, joined, same_files
from contml.labels import ClassLabels, NumberLabels
from contml.tasks.table.file import file


def written(folder, **contents):
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return [str(folder / name) for name in contents]


def test_files_with_equal_ends_are_read_whole(tmp_path, monkeypatch):
    content, read = np.random.default_rng(0).bytes(9_000), []
    middle = content[:4_000] + b"xy" + content[4_002:]
    files = written(tmp_path, a=content, b=content[:-1] + b"x", c=content, d=content[1:], e=middle)

    def logged(file, last, digest=copies.digest_of):
        read.append((Path(file).name, last))
        return digest(file, last)

    monkeypatch.setattr(copies, "digest_of", logged)
    assert same_files(files).tolist() == [0, 1, 0, 3, 4]
    assert read == [*((name, 4096) for name in "abce"), *((name, None) for name in "ace")]


def test_links_and_what_cannot_be_read(tmp_path):
    (a,) = written(tmp_path, a=b"content")
    (tmp_path / "link").symlink_to(a)
    os.link(a, tmp_path / "hard")
    os.mkfifo(tmp_path / "pipe")
    written(tmp_path, empty=b"", also_empty=b"")
    (tmp_path / "lost").symlink_to(tmp_path / "nothing")
    names = ["a", "link", "pipe", "hard", "lost", "empty", "also_empty", "none", "nul\0"]
    numbers = same_files([*(str(tmp_path / name) for name in names), "", "", str(tmp_path / "a")])
    assert numbers.tolist() == [0, 0, 2, 0, 4, 5, 6, 7, 8, 9, 10, 0]


def test_a_long_chain_of_groups_is_joined():
    chain = [f"{number:05}" for number in range(20_000)] * 2  # each image is in two groups
    images = np.concatenate((np.arange(20_000), (np.arange(20_000) + 1) % 20_000, np.arange(40_000, 90_000)))
    others = [f"other {number}" for number in range(50_000)]
    assert joined([*chain[::-1], *others], images) == ["00000"] * 40_000 + others


def split_with(folder, names, labels):
    return Split([ImageFile(folder / name) for name in names], names, NumberLabels([float(y) for y in labels]))


@pytest.fixture
def images(tmp_path):
    """Twelve images: 0 and 1 are the same, and so are 2, 3 and 4."""
    pixels = noise(12)
    for number in range(12):
        Image.fromarray(pixels[{1: 0, 3: 2, 4: 2}.get(number, number)]).save(tmp_path / f"{number}.png")
    return tmp_path


def test_copies_are_counted(images):
    train = split_with(images, ["0.png", "2.png", "3.png", "5.png"], [1, 2, 2, 3])
    found = find_copies({"train": train, "test": split_with(images, ["1.png", "4.png", "6.png"], [1, 7, 3])})
    assert (found.items, found.divided, found.contradictions) == (3, {("train", "test"): 2}, 1)
    assert found.example == ("2.png", "4.png")
    assert str(found) == (
        "3 items have the image of another; 2 of the test split are also in the training split; "
        "1 image has different labels (such as 2.png and 4.png)"
    )
    alone = find_copies({"test": split_with(images, ["5.png", "6.png"], [0, 1])})
    assert (alone.items, str(alone)) == (0, "")
    once = find_copies({"test": split_with(images, ["0.png", "1.png"], [0, 0])})
    assert str(once) == "1 item has the image of another"


def test_a_drawn_validation_split_does_not_divide_copies(images):
    names = [f"{number}.png" for number in range(12)]
    task = Task(split_with(images, names, range(12)), split_with(images, ["11.png"] * 3, [0, 1, 2]))
    for seed in range(12):
        carved = with_validation(task, names, share=0.3, seed=seed)
        for same in ({"0.png", "1.png"}, {"2.png", "3.png", "4.png"}):
            assert same <= {*carved.train.names} or same <= {*carved.val.names}
        assert len(carved.train) + len(carved.val) == 12


def test_classes_are_divided_whole_and_those_that_share_an_image_stay_together(images):
    """2.png, 3.png and 4.png are the same: classes 1 and 2."""
    names = [f"{number}.png" for number in range(12)]
    sources = [ImageFile(images / name) for name in names]
    train = Split(sources, names, ClassLabels([number // 2 for number in range(12)]))
    test = Split(sources[:3], names[:3], ClassLabels(["a", "a", "b"]))
    for seed in range(6):
        carved = with_validation(Task(train, test), names, share=0.4, seed=seed)
        parts = [{int(name[:-4]) // 2 for name in split.names} for split in (carved.train, carved.val)]
        assert parts[0] | parts[1] == {*range(6)}
        assert not parts[0] & parts[1]
        assert {1, 2} <= parts[0] or {1, 2} <= parts[1]
    few = with_validation(Task(train.subset([0, 1, 2, 3, 4, 5, 6, 7]), test), names[:8], share=0.4)
    assert len(few.val) in (2, 4, 6)  # of four classes, which are not joined


@pytest.fixture
def table(tmp_path):
    rows = dials(tmp_path, 60)
    for number in range(0, 60, 6):  # ten images have a copy
        shutil.copy(tmp_path / rows[number]["image"], tmp_path / rows[number + 1]["image"])
    return tmp_path, rows


@pytest.mark.parametrize("group", [None, "maker"])
def test_a_drawn_test_split_does_not_divide_copies(table, group):
    folder, rows = table
    rows = [{**row, "maker": f"maker {number // 2}"} for number, row in enumerate(rows)]
    rows = [{**row, "maker": "maker 9" if number == 30 else row["maker"]} for number, row in enumerate(rows)]
    write_table(folder / "own.csv", rows)
    for seed in range(6):
        task = file(str(folder / "own.csv"), {"reading": "number"}, image="image", group=group, seed=seed, test=0.5)
        part = {name: part for part, split in task.splits.items() for name in split.names}
        assert all(part[f"img/{n:03}.png"] == part[f"img/{n + 1:03}.png"] for n in range(0, 60, 6))
        if group is not None:  # the copies 30 and 31 join the makers 9 and 15
            assert len({part[f"img/{n:03}.png"] for n in (18, 19, 30, 31)}) == 1
            split = task.splits[part["img/030.png"]]
            groups = dict(zip(split.names, split.groups.tolist(), strict=True))
            assert groups["img/018.png"] == groups["img/030.png"] == groups["img/031.png"]
            assert len(set(groups.values())) > 1


def test_copies_that_join_all_rows(tmp_path):
    rows = dials(tmp_path, 12)
    for row in rows[1:]:
        shutil.copy(tmp_path / rows[0]["image"], tmp_path / row["image"])
    write_table(tmp_path / "own.csv", rows)
    task = file(str(tmp_path / "own.csv"), {"reading": "number"}, image="image")
    assert len(task.train) + len(task.test) == 12
    assert find_copies(task.splits).divided == {("train", "test"): len(task.test)}


def test_a_named_split_that_divides_copies_is_counted_by_check(table):
    folder, rows = table
    write_table(folder / "own.csv", [{**row, "split": ("train", "test")[n % 2]} for n, row in enumerate(rows)])
    options = ["images.workers=0", "training.select=none", "images.resize=32", "images.crop=32"]
    facts = dict(check(load_table(OwnData(folder / "own.csv", ["reading=number"], "image"), overrides=options)))
    assert "10 items have the image of another" in facts["repeated images"]
    assert "10 of the test split are also in the training split" in facts["repeated images"]
    assert "10 images have different labels (such as img/000.png and img/001.png)" in facts["repeated images"]


@pytest.mark.slow
@pytest.mark.usefixtures("no_reports")
def test_audit_counts_copies_and_keeps_them_in_one_fold(table, tmp_path):
    folder, rows = table
    write_table(folder / "own.csv", rows)
    small = ["images.workers=0", "images.resize=32", "images.crop=32", "training.epochs=1"]
    small += ["sampler.batch_size=12", "sampler.anchors_per_batch=2", "sampler.batches=2"]
    own = OwnData(folder / "own.csv", ["reading=number"], "image")
    found = audit_run(train(load_table(own, overrides=small), tmp_path / "runs").folder, folds=2)
    facts = dict(found.facts)
    train_names = set(found.split.names)
    pairs = [(f"img/{n:03}.png", f"img/{n + 1:03}.png") for n in range(0, 60, 6) if f"img/{n:03}.png" in train_names]
    assert len(pairs) > 3
    assert f"{len(pairs)} items have the image of another" in facts["Repeated images"]
    assert f"{len(pairs)} images have different labels" in facts["Repeated images"]
    names = found.split.names
    neighbours = found.errors.neighbours
    for first, second in pairs:
        assert names.index(second) not in neighbours[names.index(first)].tolist()


@pytest.mark.parametrize("seed", range(12))
def test_groups_that_share_an_image_are_one(seed):
    random = np.random.default_rng(seed)
    count = int(random.integers(1, 40))
    names = ["b", "a", "ä", "", "z\udcff", "\U0001f600", "aa", "group 1", "group 2"]
    groups = [names[n] for n in random.integers(0, len(names), count)]
    keys = random.integers(0, int(random.integers(1, 3 * count + 1)), count).tolist()
    images = np.array([keys.index(key) for key in keys])
    together = {name: {name} for name in groups}  # by taking sets together until nothing changes
    for row, image in enumerate(images):
        whole = together[groups[row]] | together[groups[image]]
        for name in whole:
            together[name] = whole
    expected = [min(together[group]) for group in groups]
    largest, before = (max(map(each.count, each)) for each in (expected, groups))
    if largest > max(count / 2, before):
        expected = groups
    assert joined(groups, images) == expected
    assert joined(Texts(groups), images) == expected
