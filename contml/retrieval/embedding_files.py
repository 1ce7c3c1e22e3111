"""`contml embed`: the embeddings of many images in a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

from contml._support.endings import EMBEDDINGS, check_suffix
from contml._support.errors import InputError
from contml._support.files import atomic
from contml.data.features import Floats, Made, finished_file, write_features
from contml.evaluation.embed import BATCH
from contml.evaluation.embed_parts import Parts
from contml.retrieval.embedder import Embedder
from contml.retrieval.images import SourceItem, split_of

#: The name of the images among the parts.
_SPLIT = "images"


class Written(NamedTuple):
    """What `embed_to_file` wrote."""

    images: int
    dim: int
    resumed: int  # images whose embeddings were on disk from an interrupted run
    broken: dict[str, str]  # name and cause of each image that is not in the file


def check_file(out: Path) -> None:
    """Checks that a file of embeddings can be written, or may be complete.

    Raises:
        InputError: another file has its name, its suffix is another one, or needs a package that is not installed.
    """
    if check_suffix(out, EMBEDDINGS) == ".h5" and find_spec("h5py") is None:
        raise InputError(str(out), ".h5 needs h5py", hint='pip install "contml[hloc]"')
    finished_file(out)


def embed_to_file(
    embedder: Embedder,
    items: Sequence[SourceItem],
    out: Path,
    *,
    batch_size: int = BATCH,
    workers: int = 0,
    progress: Callable[[int], None] = lambda _: None,
) -> Written:
    """Write the names and the embeddings of images; broken images are left out.

    Parts are kept beside the file until all are written, so that an interrupted run continues where it stopped. A file
    that is complete, with these images embedded by this model, stays as it is.
    `progress` is called with the number of images finished so far.

    Raises:
        InputError: the file cannot be written there, the model embeds features, or no image could be read.
    """
    check_file(out)
    if embedder.bundle.feature_dim is not None:
        problem = f"the model embeds vectors of {embedder.bundle.feature_dim} features, not images"
        raise InputError(embedder.bundle.name, problem, hint="embed them in Python: contml.load(...).embed(vectors)")
    split, images = split_of(items), embedder.images(broken="skip", workers=workers)
    parts = Parts(out, f"{embedder.identity[:16]}-{batch_size}")
    if made := finished_file(out, lambda: parts.key({_SPLIT: split})):
        parts.remove()  # a kill may have come first
        return Written(made.items, made.dim, 0, made.broken)
    names: list[str] = []
    embedding_parts: list[Floats] = []
    broken: dict[str, str] = {}
    resumed = 0
    try:
        for part in parts.embed(embedder.model, split, images, _SPLIT, device=embedder.device, batch_size=batch_size):
            broken |= {split.name(row): cause for row, cause in part.broken.items()}
            names += [split.name(row) for row in part.rows if row not in part.broken]
            if len(part.embeddings):
                embedding_parts.append(part.embeddings.numpy())
            resumed += len(part.rows) if part.resumed else 0
            progress(part.rows.stop)
    finally:
        images.close()
    if not embedding_parts:
        name, cause = next(iter(broken.items()))
        raise InputError(name, f"cannot be decoded ({cause}), nor can any other image", hint="check the image files")
    embeddings = np.concatenate(embedding_parts)
    made = Made(parts.key(), len(embeddings), embeddings.shape[1], broken)
    if out.suffix.lower() == ".h5":
        _write_hloc(out, names, embeddings, made)
    else:
        write_features(out, names, None, embeddings, made)
    parts.remove()
    return Written(len(embeddings), embeddings.shape[1], resumed, broken)


def _write_hloc(out: Path, names: Sequence[str], values: Floats, made: Made) -> None:
    """The layout of hloc: a group per image, which holds the vector `global_descriptor`."""
    import h5py

    with atomic(out) as temporary, h5py.File(temporary, "w", libver="latest") as file:
        for name, vector in zip(names, values, strict=True):
            file.create_group(name).create_dataset("global_descriptor", data=vector)
        file.attrs["made"] = json.dumps(made)
