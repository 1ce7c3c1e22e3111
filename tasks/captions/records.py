"""From the images and captions that a reader found to a task: incomplete images are refused, or omitted and counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from contml import InputError
from contml._support.validation import check_at_least, check_choice
from contml.data import ImageFile, Split, Task

from .._readers.folders import Files, Missing, refuse_absent
from .._readers.splits import refuse_shared
from .split import make_split, word_vectors


class Record(NamedTuple):
    """An image and its captions: `name` is the path of the image, `file` is None where there is no such file."""

    name: str
    file: Path | None
    captions: list[str]

    @classmethod
    def of(cls, on_disk: Files, folders: Sequence[Path], name: str, captions: list[str]) -> Record:
        """The record of an image in one of these folders."""
        place = on_disk.locate(folders, name)
        return cls(str(place), on_disk.find(place), captions)


@dataclass(frozen=True)
class Options:
    """The options that all readers of caption files share."""

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
        query_names: names of the test images that are queries; empty: `options.queries` of them are drawn.

    Raises:
        InputError: an image is in both splits, has no file or no captions, or too few are left.
    """
    refuse_shared(source, (record.name for record in train), (record.name for record in test))
    train_records, train_excluded = _complete(root, source, "training", train, options.missing)
    test_records, test_excluded = _complete(root, source, "test", test, options.missing)
    path = None if options.vectors is None else _vectors_file(root, options.vectors)
    train_captions, test_captions = ([record.captions for record in part] for part in (train_records, test_records))
    vectors = word_vectors(path, train_captions, test_captions, options.dim, options.seed)

    def split(records: Sequence[Record], excluded: dict[str, int], queries: int | list[int]) -> Split:
        return make_split(
            [ImageFile(record.file) for record in records if record.file is not None],
            [record.name for record in records],
            [record.captions for record in records],
            vectors,
            normalize=options.normalize,
            empty=options.empty,
            queries=queries,
            seed=options.seed,
            excluded=excluded,
        )

    chosen = set(query_names)
    rows = [row for row, record in enumerate(test_records) if record.name in chosen]
    test_split = split(test_records, test_excluded, rows if chosen else options.queries)
    return Task(split(train_records, train_excluded, 0), test_split)


def _vectors_file(root: Path, given: str) -> Path:
    """The file of word vectors: in the folder of the data set, or anywhere."""
    path = Path(given).expanduser()
    for place in (root / path, path):
        if place.is_file():
            return place
    where = "" if path.is_absolute() else f" in {root} or in the current folder"
    raise InputError("vectors", f"no such file {given}{where}", hint="give a file of word vectors, or null to train")


def _complete(
    root: Path, source: Path, part: str, records: Sequence[Record], missing: Missing
) -> tuple[list[Record], dict[str, int]]:
    """The images that have a file and a caption; the others are refused, or omitted and counted."""
    no_file = [Path(record.name) for record in records if record.file is None]
    no_caption = [record.name for record in records if not any(caption.strip() for caption in record.captions)]
    if missing == "refuse":
        refuse_absent(no_file, len(records), f"{part} images of {source.name}")
        if no_caption:
            found = f"no captions ({len(no_caption):,} of {len(records):,} {part} images have none)"
            raise InputError(f"{source}: {no_caption[0]}", found, hint="complete the file, or set missing=drop")
    without_caption = set(no_caption)
    kept = [record for record in records if record.file is not None and record.name not in without_caption]
    if len(kept) < 3:
        found = f"{len(kept)} of {len(records):,} {part} images have a file and a caption"
        raise InputError(str(source), found, "must be at least 3", f"check root={root} and the folders of images")
    return kept, {
        "without an image file": len(no_file),
        "without a caption": len(records) - len(no_file) - len(kept),
    }
