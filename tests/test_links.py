"""A stranger's folder: links, pipes and devices in it, and files of the user that it names."""

import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from support.refusals import refuses

import contml
from contml._support.files import append_line, locked, refuse_links
from contml._support.tensors import load_tensors
from contml.data.cache import CacheKind, ImageCache
from contml.data.copies import digest_of
from contml.data.features import finished_file, read_features
from contml.data.sources import ImageFile
from contml.data.split import Split
from contml.data.tables import read_table
from contml.labels.vectors import NumberLabels
from contml.models import weights
from contml.runs import open_run
from contml.search import Index, bundle
from contml.search.images import FILE, shown_files
from contml.tasks._readers.mat import read_mat

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="links need rights")


@pytest.fixture
def private(tmp_path):
    """A file of the user, which a stranger's folder may name."""
    path = tmp_path / "private.txt"
    path.write_text("secret")
    return path


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "theirs"
    (made / "checkpoints").mkdir(parents=True)
    (made / "config.yaml").write_text("task: {name: scalar/synthetic}\n")
    (made / "bundle.json").write_text("{}")
    return made


@pytest.mark.parametrize("name", ["README.md", "checkpoints/last.safetensors", "metrics.jsonl", "embeddings"])
@pytest.mark.parametrize("read", [open_run, bundle.read])
def test_a_link_that_leads_out_is_refused(folder, private, name, read):
    (folder / name).symlink_to(private.parent if name == "embeddings" else private)
    with refuses(str(folder / name), "a link that leads out"):
        read(folder)
    assert private.read_text() == "secret"


@pytest.mark.parametrize("read", [open_run, bundle.read])
def test_a_link_to_itself_is_refused_where_it_is_read(folder, read):
    (folder / "config.yaml").unlink()
    (folder / "bundle.json").unlink()
    for name in ("config.yaml", "bundle.json", "README.md"):
        (folder / name).symlink_to(name)
    with refuses(str(folder)):
        read(folder)


def test_links_inside_and_of_the_hub_are_read(folder, tmp_path):
    (folder / "wandb").mkdir()
    (folder / "wandb/latest").symlink_to("../checkpoints")
    assert open_run(folder).folder == folder
    snapshot, blobs = tmp_path / "hub/snapshots/rev", tmp_path / "hub/blobs"
    shutil.copytree(folder, snapshot)
    blobs.mkdir()
    shutil.move(snapshot / "config.yaml", blobs / "abc")
    (snapshot / "config.yaml").symlink_to("../../blobs/abc")
    assert open_run(snapshot).config.read_text().startswith("task")
    (blobs / "abc").unlink()
    (blobs / "abc").symlink_to(tmp_path / "private.txt")
    with refuses("config.yaml", "a link that leads out"):
        refuse_links(snapshot)


def test_nothing_is_written_through_a_link(folder, private):
    (folder / "metrics.jsonl").symlink_to(private)
    with refuses("metrics.jsonl", "cannot be written"):
        append_line(folder / "metrics.jsonl", b"{}")
    (folder / "segment").write_text("all")
    (folder / "metrics.jsonl").unlink()
    (folder / ".lock").symlink_to("segment")
    with refuses(str(folder), "cannot be locked"), locked(folder):
        pass
    assert (private.read_text(), (folder / "segment").read_text()) == ("secret", "all")


def test_a_cache_does_not_lead_elsewhere(tmp_path, private):
    cache = ImageCache(tmp_path / "cache", CacheKind.resized(4))
    cache.folder.mkdir()
    cache.arrays.symlink_to(private)
    with refuses(str(cache.arrays), "a link that leads out"):
        cache.fill(Split([ImageFile(private)], ["x"], NumberLabels(torch.zeros(1))), lambda rows: [], {})
    assert private.read_text() == "secret"


def test_only_what_was_indexed_is_shown(tmp_path, private):
    index, copy = Index.create(tmp_path / "index", 2), tmp_path / "copy.txt"
    shutil.copy(private, copy)
    os.mkfifo(tmp_path / "pipe")
    own = f"6 1 2 {digest_of(str(private)).hex()}"
    of_path = f"0 0 0 {digest_of('/dev/zero').hex()}"
    files = {"own": (private, own), "copy": (copy, own), "other": (__file__, own), "none": (private, None)}
    files |= {"pipe": (tmp_path / "pipe", own), "device": ("/dev/zero", of_path), "empty": (private, "")}
    metadata = [{FILE: str(file)} for file, _ in files.values()]
    index.add([*files], np.eye(2, dtype=np.float32)[[0] * len(files)], metadata, [each for _, each in files.values()])
    shown = shown_files(index, [*files], metadata)
    assert shown == [str(private), str(copy), *[""] * 3, "/dev/zero", ""]
    assert not Path(shown[5]).is_file(), "a digest of a path stands for nothing that is read"


READERS = {
    "features .npy": (".npy", read_features), "features .npz": (".npz", read_features),
    "features .parquet": (".parquet", read_features), "finished .npy": (".npy", finished_file),
    "finished .npz": (".npz", finished_file), "finished .parquet": (".parquet", finished_file),
    "matrix": (".npy", contml.MatrixLabels), "table": (".parquet", read_table), "sheet": (".xlsx", read_table),
    "packed": (".csv.gz", read_table), "weights": (".pth", weights.read), "tensors": (".safetensors", load_tensors),
    "matlab": (".mat", read_mat),
}  # fmt: skip


@pytest.mark.parametrize(("suffix", "read"), READERS.values(), ids=READERS)
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_never_ends_is_refused(tmp_path, suffix, read, kind):
    path = tmp_path / f"a{suffix}"
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    with refuses(str(path)):
        read(path)
