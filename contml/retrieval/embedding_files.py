"""`contml embed`: the embeddings of many images in a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from contml._support.endings import EMBEDDINGS, check_suffix
from contml._support.errors import InputError
from contml._support.files import atomic
from contml.data.features import Floats, Made, finished_file, write_features
from contml.evaluation.embed import BATCH
from contml.evaluation.embed_parts import embed_to
from contml.retrieval.embedder import Embedder
from contml.retrieval.images import SourceItem, split_of
from contml.retrieval.index_store import CodeKind
from contml.retrieval.index_structure import Arrays, encode

#: The name of the images among the parts.
_SPLIT = "images"


class Written(NamedTuple):
    """What `embed_to_file` wrote."""

    images: int
    dim: int
    resumed: int  # images whose embeddings come from an interrupted run, or from other commands
    broken: dict[str, str]  # name and cause of each image that is not in the file


def check_file(out: Path, kind: CodeKind | None = None) -> None:
    """Checks that a file of embeddings, or of their codes, can be written, or may be complete.

    Raises:
        InputError: another file has its name, its suffix is another one, or needs a package that is not installed.
    """
    if check_suffix(out, EMBEDDINGS) == ".h5" and find_spec("h5py") is None:
        raise InputError(str(out), ".h5 needs h5py", hint='pip install "contml[hloc]"')
    if kind is not None and out.suffix.lower() != ".npz":
        raise InputError(str(out), f"{kind} codes in {out.suffix}", "must end in .npz", "or omit --kind")
    finished_file(out)


def embed_to_file(
    embedder: Embedder,
    items: Sequence[SourceItem],
    out: Path,
    *,
    kind: CodeKind | None = None,
    batch_size: int = BATCH,
    workers: int = 0,
    join: bool = False,
    cluster: str = "",
    progress: Callable[[int], None] = lambda _: None,
) -> Written:
    """Write the names and the embeddings of images; broken images are left out.

    Parts are kept beside the file until all are written, so that an interrupted run continues where it stopped. A file
    that is complete, with these images embedded by this model, stays as it is. With `join`, several processes that call
    this with the same arguments share the images. With `cluster`, the address of a Ray cluster
    (`contml.cluster.Cluster`), its machines embed: they share the current folder, that of the file, and the images.
    `kind` writes codes in place of embeddings, as an index of this kind keeps them: `codes`, and `ranges` (int8: the
    least value and the width of each number) or `mean` (binary: of each number) over all images of the file.
    `progress` is called with the number of images finished so far.

    Raises:
        InputError: the file cannot be written there, the model embeds features, no image could be read, or another
            command writes the file and this one does not `join`.
    """
    check_file(out, kind)
    if embedder.bundle.feature_dim is not None:
        problem = f"the model embeds vectors of {embedder.bundle.feature_dim} features, not images"
        raise InputError(embedder.bundle.name, problem, hint="embed them in Python: contml.load(...).embed(vectors)")
    split, images = split_of(items), embedder.images(broken="skip", workers=workers)

    def write(names: list[str], values: Floats, made: Made) -> None:
        if kind is not None:
            _write_codes(out, names, encode(kind, values), made)
        elif out.suffix.lower() == ".h5":
            _write_hloc(out, names, values, made)
        else:
            write_features(out, names, None, values, made)

    made, resumed = embed_to(
        out,
        "-".join([embedder.identity[:16], str(batch_size), *([] if kind is None else [kind])]),
        {_SPLIT: split},
        embedder.model,
        images,
        write,
        device=embedder.device,
        batch_size=batch_size,
        join=join,
        cluster=cluster,
        progress=progress,
    )
    return Written(made.items, made.dim, resumed, made.broken)


def _write_hloc(out: Path, names: Sequence[str], values: Floats, made: Made) -> None:
    """The layout of hloc: a group per image, which holds the vector `global_descriptor`."""
    import h5py

    with atomic(out) as temporary, h5py.File(temporary, "w", libver="latest") as file:
        for name, vector in zip(names, values, strict=True):
            file.create_group(name).create_dataset("global_descriptor", data=vector)
        file.attrs["made"] = json.dumps(made)


def _write_codes(out: Path, names: Sequence[str], arrays: Arrays, made: Made) -> None:
    """Codes, and what encodes another vector in the same way."""
    about = np.frombuffer(json.dumps(made).encode(), np.uint8)
    content: dict[str, Any] = {"names": np.array(names), "made": about, **arrays}
    with atomic(out) as temporary:
        np.savez(temporary, **content)
