"""What other systems do differently, as far as Linux can imitate it: docs/install.md has the list."""

import fcntl
import io
import ntpath
import os
import sys

import numpy as np
import pytest

from contml._support.files import shared_folder, write
from contml.app.cli import main
from contml.data import Pixels, Split
from contml.labels import NumberLabels


def test_a_file_is_synced_before_it_is_renamed_by_a_handle_that_can_write(tmp_path, monkeypatch):
    """Windows refuses others: no file could be written."""
    found, sync, path = [], os.fsync, tmp_path / "a"

    def synced(file):
        found.append((fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE, path.exists()))
        sync(file)

    monkeypatch.setattr(os, "fsync", synced)
    write(path, lambda temporary: temporary.write_text("content"))
    assert (path.read_text(), found) == ("content", [(os.O_RDWR, False)])


def test_items_on_two_drives_keep_their_names(monkeypatch):
    drives = ["C:\\photos", "D:\\photos"]
    with pytest.raises(ValueError, match="drive"):
        ntpath.commonpath(drives)
    monkeypatch.setattr(os.path, "commonpath", ntpath.commonpath)
    assert shared_folder(drives) == ""
    monkeypatch.setattr(os.path, "isabs", ntpath.isabs)
    monkeypatch.setattr(os.path, "dirname", ntpath.dirname)
    names = ["C:\\photos\\a.jpg", "D:\\photos\\b.jpg"]
    split = Split([Pixels(np.zeros((4, 4, 3), np.uint8))] * 2, names, NumberLabels([0.0, 1.0]))
    assert split.with_short_names().names == names


def test_text_that_a_code_page_lacks_is_escaped(monkeypatch):
    pipe = io.TextIOWrapper(io.BytesIO(), encoding="cp1252")
    monkeypatch.setattr(sys, "stderr", pipe)
    monkeypatch.setattr(sys, "argv", ["contml", "train", "pose/≈"])
    with pytest.raises(SystemExit) as ended:
        main()
    pipe.flush()
    assert ended.value.code == 2
    assert b"pose/\\u2248" in pipe.buffer.getvalue()
