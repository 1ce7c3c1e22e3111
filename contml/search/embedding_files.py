"""Files of the embeddings of many images, as `contml embed` writes them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from contml._support.errors import InputError
from contml._support.files import EMBEDDINGS, VECTORS, check_suffix
from contml.data.features import Floats, Made, finished_file, write_features
from contml.data.sources import Vector
from contml.evaluation.embed import BATCH
from contml.evaluation.embed_parts import embed_to
from contml.search.embedder import Embedder
from contml.search.inputs import NamedImage, SourceItem, split_of


class Written(NamedTuple):
    """The result of `embed_to_file`."""

    images: int
    dim: int
    resumed: int  # images whose embeddings come from an earlier run
    broken: dict[str, str]  # name and cause of each image that is not in the file


def check_file(out: Path) -> None:
    """Check that a file of embeddings can be written, or may be complete.

    Raises:
        InputError: another file has its name, or its suffix is another one.
    """
    check_suffix(out, EMBEDDINGS)
    finished_file(out)


def embed_to_file(
    embedder: Embedder,
    items: Sequence[SourceItem | NamedImage],
    out: Path,
    *,
    batch_size: int = BATCH,
    workers: int = 0,
    cluster: str = "",
    progress: Callable[[int], None] = lambda _: None,
) -> Written:
    """Write the names and the embeddings of images. Broken images are left out.

    Parts are kept beside the file until all are written, so that an interrupted run continues where it stopped. A
    complete file with these images embedded by this model stays as it is.

    Args:
        embedder: the model.
        items: the images.
        out: the file.
        batch_size: images at a time.
        workers: number of processes that decode.
        cluster: the address of a Ray cluster that embeds (`contml.work.run`). Its machines need the images too.
        progress: called with the number of images finished so far.

    Raises:
        InputError: the file cannot be written there, the model does not embed such items, no image could be read, or
            another command writes the file.
    """
    check_file(out)
    check_takes(embedder, items)
    split, images = split_of(items), embedder.images(broken="skip", workers=workers)

    def write(names: list[str], values: Floats, made: Made) -> None:
        write_features(out, names, None, values, made)

    settings = {"model or --dim": embedder.identity[:16], "--batch-size": str(batch_size)}
    if vectors := [item.source.values for item in items if isinstance(item.source, Vector)]:
        content = hashlib.blake2b(b"".join(vector.tobytes() for vector in vectors), digest_size=8)
        settings["vectors"] = content.hexdigest()  # they have no stamp, as image files have
    how: dict[str, Any] = {"batch_size": batch_size, "cluster": cluster, "progress": progress}
    splits = {"images": split}
    made, resumed = embed_to(out, settings, splits, embedder.model, images, write, device=embedder.device, **how)
    return Written(made.items, made.dim, resumed, made.broken)


def check_takes(embedder: Embedder, items: Sequence[SourceItem | NamedImage]) -> None:
    """Refuse images for a model of features, and vectors for a model of images.

    Raises:
        InputError: the model does not embed such an item.
    """
    length = embedder.bundle.feature_dim
    for item in items:
        if isinstance(item.source, Vector) != (length is not None):
            if length is None:
                hint = "contml index --vectors FILE searches vectors as they are"
                raise InputError(item.name, "a vector", f"the model {embedder.bundle.name} embeds images", hint)
            problem = f"the model embeds vectors of {length} features, not images"
            raise InputError(embedder.bundle.name, problem, hint=f"give a file of vectors: {', '.join(VECTORS)}")
        if isinstance(item.source, Vector) and (found := item.source.values.shape[-1]) != length:
            raise InputError(item.name, f"a vector of {found} numbers", f"must be {length}, as in training")
