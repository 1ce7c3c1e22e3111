"""`contml embed`: the embeddings of many images in a file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from contml._support.errors import InputError
from contml._support.files import EMBEDDINGS, check_suffix
from contml.data.features import Floats, Made, finished_file, write_features
from contml.evaluation.embed import BATCH
from contml.evaluation.embed_parts import embed_to
from contml.search.embedder import Embedder
from contml.search.inputs import NamedImage, NamedImages, SourceItem, split_of

#: The name of the images among the parts.
_SPLIT = "images"


class Written(NamedTuple):
    """What `embed_to_file` wrote."""

    images: int
    dim: int
    resumed: int  # images whose embeddings come from an earlier run
    broken: dict[str, str]  # name and cause of each image that is not in the file


def check_file(out: Path) -> None:
    """Checks that a file of embeddings can be written, or may be complete.

    Raises:
        InputError: another file has its name, or its suffix is another one.
    """
    check_suffix(out, EMBEDDINGS)
    finished_file(out)


def embed_to_file(
    embedder: Embedder,
    items: NamedImages | Sequence[SourceItem | NamedImage],
    out: Path,
    *,
    batch_size: int = BATCH,
    workers: int = 0,
    cluster: str = "",
    progress: Callable[[int], None] = lambda _: None,
) -> Written:
    """Write the names and the embeddings of images; broken images are left out.

    Parts are kept beside the file until all are written, so that an interrupted run continues where it stopped. A file
    that is complete, with these images embedded by this model, stays as it is. With `cluster`, the
    address of a Ray cluster (`contml.work.run`), its machines embed: they share the images too.
    `progress` is called with the number of images finished so far.

    Raises:
        InputError: the file cannot be written there, the model embeds features, no image could be read, or another
            command writes the file.
    """
    check_file(out)
    check_takes_images(embedder)
    split, images = split_of(items), embedder.images(broken="skip", workers=workers)

    def write(names: list[str], values: Floats, made: Made) -> None:
        write_features(out, names, None, values, made)

    made, resumed = embed_to(
        out,
        {"model or --dim": embedder.identity[:16], "--batch-size": str(batch_size)},
        {_SPLIT: split},
        embedder.model,
        images,
        write,
        device=embedder.device,
        batch_size=batch_size,
        cluster=cluster,
        progress=progress,
    )
    return Written(made.items, made.dim, resumed, made.broken)


def check_takes_images(embedder: Embedder) -> None:
    """Refuse a model of features for a command that reads images.

    Raises:
        InputError: it is one.
    """
    if embedder.bundle.feature_dim is not None:
        problem = f"the model embeds vectors of {embedder.bundle.feature_dim} features, not images"
        hint = "embed them in Python: contml.load(...).embed(vectors); contml.search.Index keeps such embeddings"
        raise InputError(embedder.bundle.name, problem, hint=hint)
