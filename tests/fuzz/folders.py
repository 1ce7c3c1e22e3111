"""Folders that somebody hands over: indexes, their pages, bundles, and the parts of embeddings that were interrupted.

Checksums of bundles say what was damaged, and are written by whoever wrote the folder: in half of the cases they are
right.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from contextlib import redirect_stderr, suppress
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import numpy as np
from PIL import Image

import contml
from contml.evaluation import embed_parts
from contml.search import Index
from contml.search.embedding_files import embed_to_file
from contml.search.inputs import named_images

from .base import Kind

ITEMS, DIM = 420, 6
VECTORS = np.random.default_rng(0).standard_normal((ITEMS, DIM)).astype(np.float32)
#: Bundles that the repository keeps: of images, and of features.
BUNDLES = Path(__file__).parents[1] / "search" / "format_1"


# indexes


def build_indexes(folder: Path) -> None:
    """An index from which items were removed."""
    index = Index.create(folder / "index", DIM)
    index.add([f"item {row}" for row in range(ITEMS)], VECTORS, [{"row": row, "name": "x"} for row in range(ITEMS)])
    index.remove(["item 3"])


def last_changed(folder: Path) -> Path:
    """The folder inside it with the file that was changed last."""
    newest = max((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_mtime_ns)
    return folder / newest.relative_to(folder).parts[0]


def read_index(folder: Path, random: Random) -> None:
    """Searches an index, and changes it, as commands do."""
    index = Index.open(folder / "index")
    found = index.search(VECTORS[:3], random.choice((1, 5, ITEMS)))
    assert np.isfinite(found.distances).all()
    json.dumps(found.metadata, allow_nan=False)
    change = random.randrange(4)
    if change == 0:
        index.add(["another"], VECTORS[:1], [{"row": 0}])
    elif change == 1:
        index.remove(index.ids[:2])
        index.compact()
    index.search(VECTORS[:3], 5)


# bundles


def build_bundles(folder: Path) -> None:
    """Two bundles of the first format, and one that is written now."""
    for name in ("images", "features"):
        shutil.copytree(BUNDLES / name, folder / name)
        (folder / name / "expected.json").unlink()
    contml.load(folder / "images", trust=True).save(folder / "new")


def read_bundle(folder: Path, random: Random) -> None:
    """Loads a bundle, and embeds."""
    path = last_changed(folder)
    if random.random() < 0.6:
        with suppress(ValueError, TypeError, LookupError, RecursionError):
            values = json.loads((path / "bundle.json").read_bytes())
            values["sha256"] = hashlib.sha256((path / "model.safetensors").read_bytes()).hexdigest()
            (path / "bundle.json").write_text(json.dumps(values))
    model = contml.load(path, trust=True)  # the backbone of one is code of these tests
    features = model.bundle.feature_dim
    images: Any = np.zeros((2, features), np.float32) if features else [np.full((9, 7, 3), 99, np.uint8)] * 2
    embeddings = model.embed(images)
    assert embeddings.shape == (2, model.embedding_dim)
    assert np.isfinite(embeddings).all()
    str(model)
    if model.bundle.calibration is not None and model.bundle.calibration.margins is not None:
        model.label_distance([0.5, 2.0])
    model.save(path.with_name("saved"))


# embeddings that were interrupted


def embed(folder: Path, *, interrupted: bool = False) -> None:
    """`contml embed` of a folder, two images per part; the last step removes the parts."""
    out = folder / "features.npz"
    kept = mock.patch.object(embed_parts.Parts, "remove") if interrupted else mock.patch.object(embed_parts, "_PART", 2)
    with mock.patch.object(embed_parts, "_PART", 2), kept, redirect_stderr(io.StringIO()):
        embed_to_file(contml.load(BUNDLES / "images", trust=True), named_images([str(folder / "photos")]), out)
    if interrupted:
        out.unlink()


def build_parts(folder: Path) -> None:
    """Images, and the parts of an interrupted command."""
    (folder / "photos").mkdir()
    for row in range(6):
        Image.new("RGB", (9, 7), (40 * row, 99, 0)).save(folder / "photos" / f"{row}.png")
    (folder / "photos" / "broken.png").write_bytes(b"\x89PNG\r\n")
    embed(folder, interrupted=True)


def read_parts(folder: Path, random: Random) -> None:
    """Continues the command: each image that can be read has a row."""
    embed(folder)
    with np.load(folder / "features.npz") as found:
        assert found["features"].shape == (len(found["names"]), 4)
        assert np.isfinite(found["features"]).all()


KINDS = {
    "index": Kind(build_indexes, read_index, ("index/*.json", "index/*.parquet"), restore=True),
    "bundle": Kind(build_bundles, read_bundle, ("*/bundle.json", "*/model.safetensors"), restore=True),
    "parts": Kind(build_parts, read_parts, (".features.npz.parts/*/*.safetensors", "photos/*"), restore=True),
}
