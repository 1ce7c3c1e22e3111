"""From the images and captions that a reader found to a task: what is missing is refused, or left out and counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from contml import InputError
from contml._support.validation import check_at_least, check_choice
from contml.data import ImageFile, Task

from .._readers.folders import Files, Missing, refuse_absent
from .._readers.splits import refuse_shared
from .split import make_split, word_vectors


class Record(NamedTuple):
    """An image and its captions; `file` is None where there is no such image, `name` is where it should be."""

    name: str
    file: Path | None
    captions: list[str]

    @classmethod
    def of(cls, on_disk: Files, place: Path, captions: list[str]) -> Record:
        """The record of an image that is, or should be, at this place."""
        return cls(str(place), on_disk.find(place), captions)


@dataclass(frozen=True)
class Options:
    """The options that every reader of caption files has."""

    vectors: str | None
    normalize: bool
    empty: Missing
    missing: Missing
    queries: int
    dim: int
    seed: int

    def __post_init__(self) -> None:
        check_at_least(0, queries=self.queries, seed=self.seed)
        check_at_least(1, dim=self.dim)
        check_choice(("refuse", "drop"), empty=self.empty, missing=self.missing)


class _Part(NamedTuple):
    """The images of one split that have a file and a caption."""

    files: list[ImageFile]
    names: list[str]
    captions: list[list[str]]
    excluded: dict[str, int]


def make_task(
    root: Path,
    source: Path,
    train: Sequence[Record],
    test: Sequence[Record],
    options: Options,
    query_names: Sequence[str] = (),
) -> Task:
    """The task of these images.

    Args:
        root: the folder of the data set.
        source: the file of captions, for errors.
        train: the training images.
        test: the test images.
        options: the options of the reader.
        query_names: names of the test images that are queries; none: `options.queries` of them are drawn.

    Raises:
        InputError: an image is in both splits, has no file or no captions, or too few are left.
    """
    refuse_shared(source, (record.name for record in train), (record.name for record in test))
    train_part = _with_image_and_caption(root, source, "training", train, options.missing)
    test_part = _with_image_and_caption(root, source, "test", test, options.missing)
    path = None if options.vectors is None else _vectors_file(root, options.vectors)
    vectors = word_vectors(path, train_part.captions, test_part.captions, options.dim, options.seed)
    queries: int | list[int] = options.queries
    if chosen := set(query_names):
        queries = [row for row, name in enumerate(test_part.names) if name in chosen]
    train_split, test_split = (
        make_split(
            part.files,
            part.names,
            part.captions,
            vectors,
            normalize=options.normalize,
            empty=options.empty,
            queries=rows,
            seed=options.seed,
            excluded=part.excluded,
        )
        for part, rows in ((train_part, 0), (test_part, queries))
    )
    return Task(train_split, test_split)


def _vectors_file(root: Path, given: str) -> Path:
    """The file of word vectors: in the data set's folder, or anywhere."""
    path = Path(given).expanduser()
    for place in (root / path, path):
        if place.is_file():
            return place
    where = str(path) if path.is_absolute() else f"{given}, in {root} or in the current folder"
    raise InputError(f"vectors: no such file {where}; give a file of word vectors, or null to train them")


def _with_image_and_caption(root: Path, source: Path, part: str, records: Sequence[Record], missing: Missing) -> _Part:
    """The images that have a file and a caption; the others are refused, or left out and counted."""
    no_file = [Path(record.name) for record in records if record.file is None]
    no_caption = [record.name for record in records if not any(caption.strip() for caption in record.captions)]
    if missing == "refuse":
        refuse_absent(no_file, len(records), f"{part} images of {source.name}")
        if no_caption:
            raise InputError(
                f"{source}: no captions of {no_caption[0]} ({len(no_caption):,} of {len(records):,} {part} images "
                "have none); complete it, or set missing=drop to leave them out"
            )
    silent = set(no_caption)
    kept = [record for record in records if record.file is not None and record.name not in silent]
    if len(kept) < 3:
        raise InputError(
            f"{source}: {len(kept)} of {len(records):,} {part} images have a file and a caption; "
            f"a split needs at least 3: check root={root} and the folders of images"
        )
    excluded = {
        "without an image file": len(no_file),
        "without a caption": len(records) - len(no_file) - len(kept),
    }
    return _Part(
        [ImageFile(record.file) for record in kept if record.file is not None],
        [record.name for record in kept],
        [record.captions for record in kept],
        excluded,
    )
