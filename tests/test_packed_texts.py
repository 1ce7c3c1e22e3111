"""Texts and image files in one array of bytes behave as lists of them, in a tenth of the memory."""

from __future__ import annotations

import gc
import pickle
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pyarrow
import pytest
import torch

from contml._support.texts import Texts, taken
from contml.data import ImageFile, Split
from contml.data.sources import ImageFiles
from contml.labels import VectorLabels
from tasks._readers.folders import DiskFiles
from tasks.table.file import file

TEXTS = ["a.png", "", "ä/日本.jpg", "a\udcff.png", "\ud800", "a\tb\n"]


def test_texts_are_a_list():
    texts = Texts(TEXTS)
    assert (len(texts), list(texts), texts[2], texts[-1]) == (len(TEXTS), TEXTS, TEXTS[2], TEXTS[-1])
    assert texts == TEXTS == texts == tuple(TEXTS)
    assert texts != TEXTS[:-1]
    assert texts != [*TEXTS[:-1], "other"]
    assert texts != Texts(["a.pngä", *TEXTS[2:]])
    assert Texts(["ab", "c"]) != Texts(["a", "bc"])
    assert list(texts[1:4]) == TEXTS[1:4]
    assert texts[::-2] == TEXTS[::-2]
    assert taken(texts, [3, 0, 3]) == [TEXTS[3], TEXTS[0], TEXTS[3]] == taken(TEXTS, [3, 0, 3])
    assert "ä/日本.jpg" in texts
    assert texts.index("") == 1
    assert pickle.loads(pickle.dumps(texts)) == texts
    assert not Texts([])
    with pytest.raises(IndexError):
        texts[len(TEXTS)]


def test_image_files_are_a_list_of_image_sources():
    paths = ["a.png", "./b/c.png", "a\udcff.png"]
    files = ImageFiles(paths)
    expected = [ImageFile(Path(path)) for path in paths]
    assert [*files] == expected
    assert [*files[1:]] == expected[1:]
    split = Split(files, paths, VectorLabels(torch.arange(3.0)))
    assert split.images is files
    assert split.feature_dim is None
    assert [*split.subset([2, 0]).images] == [expected[2], expected[0]]
    assert isinstance(split.subset([2, 0]).images, ImageFiles)
    assert replace(split, names=Texts(paths)).subset([2, 0]).names == [paths[2], paths[0]]


def test_a_table_keeps_few_bytes_per_row(tmp_path, monkeypatch):
    """Names, paths and what identifies the labels are bytes, and nothing keeps what was read besides them."""
    rows = 20_000
    names = [f"{row:08d}.jpg" for row in range(rows)]
    (tmp_path / "items.csv").write_text(
        "image,age\n" + "".join(f"{name},{row % 97}\n" for row, name in enumerate(names))
    )
    listed = Texts(names)
    monkeypatch.setattr(DiskFiles, "listed", lambda _files, _folder: listed)
    file(str(tmp_path / "items.csv"))  # what is computed once
    gc.collect()
    tracemalloc.start()
    of_arrow = pyarrow.total_allocated_bytes()
    try:
        task = file(str(tmp_path / "items.csv"))
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0] + pyarrow.total_allocated_bytes() - of_arrow
    finally:
        tracemalloc.stop()
    assert task.train.names[0].endswith(".jpg")
    assert kept / rows < 100 + len(str(tmp_path))
