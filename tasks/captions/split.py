"""Splits of images with captions, and their word vectors. Incomplete images are refused, or omitted and counted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple
from unicodedata import normalize

from contml import InputError
from contml.data import ImageFile, ImageSource, Split, Task, draw_queries
from contml.data.split import View

from .._readers.folders import DiskFiles, Missing, refuse_absent
from .._readers.splits import SplitItems, kept_split, queries_like, refuse_shared
from ..captions.distance import Captions, vectors_in_words, word_vectors
from .distance import CaptionDistance, DistanceOptions


class CaptionedImage(NamedTuple):
    """An image and its captions. `key` is its name in the data set, `name` its path. `file` may be None."""

    key: str
    name: str
    file: Path | None
    captions: list[str]

    @classmethod
    def of(cls, on_disk: DiskFiles, folders: Sequence[Path], name: str, captions: list[str]) -> CaptionedImage:
        """Return the record of an image in one of these folders."""
        path = on_disk.locate(folders, name)
        return cls(name, str(path), on_disk.find(path), captions)


@dataclass(frozen=True)
class CaptionOptions:
    """The options that all readers of caption files share."""

    distance: DistanceOptions
    vectors: str | None
    normalize: bool
    empty: Missing
    missing: Missing
    queries: int
    dim: int
    seed: int


def make_task(root: Path, source: Path, parts: SplitItems[CaptionedImage], options: CaptionOptions) -> Task:
    """Build the task of captioned images.

    Args:
        root: the folder of the data set.
        source: the file of captions, for errors.
        parts: the images. Without named queries, `options.queries` of the test images are drawn.
        options: the options of the task.

    Raises:
        InputError: an image is in two splits, has no file or no captions, or too few are left.
    """
    records_by_part = {"train": parts.train, "val": parts.val, "test": [*parts.gallery, *parts.queries]}
    refuse_shared(source, {part: [record.name for record in records] for part, records in records_by_part.items()})
    complete = {
        part: _complete(root, source, {"train": "training", "val": "validation"}.get(part, part), records, options)
        for part, records in records_by_part.items()
        if records or part == "train" or (part == "test" and not parts.val)
    }
    train, *other_parts = ([record.captions for record in records] for records, _ in complete.values())
    other_captions = [*chain.from_iterable(other_parts)]
    vectors: Mapping[str, Any] = {}
    summary = []
    if options.distance.needs_vectors:
        path = None if options.vectors is None else _vectors_file(root, options.vectors)
        vectors = word_vectors(path, train, other_captions, options.dim, options.seed)
        summary = [("word vectors", vectors_in_words(path, vectors, train))]
    distance = CaptionDistance(options.distance, train, other_captions, vectors, options.normalize, options.seed)
    queries: dict[str, int | list[int]] = {"train": 0, "val": options.queries, "test": options.queries}
    if "test" in complete:
        query_keys, test_records = {record.key for record in parts.queries}, complete["test"][0]
        queries["val"] = 0 if query_keys else queries_like(options.queries, len(test_records), len(parts.val))
        if query_keys:
            queries["test"] = [row for row, record in enumerate(test_records) if record.key in query_keys]
    splits, empty, seed = {}, options.empty, options.seed
    for part, (records, excluded) in complete.items():
        keys, names, files, captions = zip(*records, strict=True)
        images, count = [*map(ImageFile, files)], queries[part]
        splits[part] = make_split(images, names, captions, distance, keys, empty, count, seed, excluded)
    return Task(splits["train"], splits.get("test"), splits.get("val"), summary=summary)


def _vectors_file(root: Path, given: str) -> Path:
    """Return the path of the file of word vectors: in the folder of the data set, or anywhere."""
    path = Path(given).expanduser()
    for candidate in (root / path, path):
        if candidate.is_file():
            return candidate
    location = "" if path.is_absolute() else f" in {root} or in the current folder"
    raise InputError("vectors", f"no such file {given}{location}", hint="give a file of word vectors, or null to train")


def _complete(
    root: Path, source: Path, part: str, records: Sequence[CaptionedImage], options: CaptionOptions
) -> tuple[list[CaptionedImage], dict[str, int]]:
    """Return the images that have a file and a caption. Other images are refused, or omitted and counted."""
    no_file = [Path(record.name) for record in records if record.file is None]
    no_caption = [record.name for record in records if not any(caption.strip() for caption in record.captions)]
    if options.missing == "refuse":
        refuse_absent(no_file, len(records), f"{part} images of {source.name}")
        if no_caption:
            problem = f"no captions ({len(no_caption):,} of {len(records):,} {part} images have none)"
            raise InputError(f"{source}: {no_caption[0]}", problem, hint="complete the file, or set missing=drop")
    without_caption = set(no_caption)
    complete_records = [
        record._replace(captions=[normalize("NFC", caption) for caption in record.captions])
        for record in records
        if record.file is not None and record.name not in without_caption
    ]
    if len(complete_records) < 3:
        problem = f"{len(complete_records)} of {len(records):,} {part} images have a file and a caption"
        raise InputError(str(source), problem, "must be at least 3", f"check root={root} and the folders of images")
    return complete_records, {
        "without an image file": len(no_file),
        "without a caption": len(records) - len(no_file) - len(complete_records),
    }


def make_split(
    images: Sequence[ImageSource],
    names: Sequence[str],
    captions: Captions,
    distance: CaptionDistance,
    keys: Sequence[str] | None = None,
    empty: Literal["refuse", "drop"] = "refuse",
    queries: int | Sequence[int] = 0,
    seed: int = 0,
    excluded: Mapping[str, int] | None = None,
) -> Split:
    """Build a split of images with captions.

    Args:
        images: the source of each image.
        names: the name of each item.
        captions: the captions of each item.
        distance: the distance between captions, the same in all splits.
        keys: names without the folder of the data set, by which queries are drawn. None: `names`.
        empty: what to do with items whose captions cannot be compared: "refuse", or "drop" and count them.
        queries: the number of queries, drawn at random, or the rows of the queries. 0: every item is a query for
            all other items.
        seed: seed of the draw of queries.
        excluded: number of items that were omitted before, by reason.

    Raises:
        InputError: the captions of an item cannot be compared, or too few queries or gallery items are left.
    """
    labels, kept_rows = distance.labels(captions)
    num_excluded = len(names) - len(kept_rows)
    if num_excluded and empty == "refuse":
        first_excluded = min(set(range(len(names))) - set(kept_rows))
        problem = f"no caption has {distance.needs} ({num_excluded:,} such images)"
        hint = "give vectors for their words, or " if distance.choice.needs_vectors else ""
        raise InputError(names[first_excluded], problem, hint=f"{hint}set empty=drop to omit them")
    counts = {**(excluded or {}), f"without {distance.needs}": num_excluded}
    if isinstance(queries, int):
        query_rows = draw_queries(queries, [(keys or names)[row] for row in kept_rows], seed)
    else:
        query_set = set(queries)
        query_rows = [position for position, row in enumerate(kept_rows) if row in query_set]
        if not query_rows or len(kept_rows) - len(query_rows) < 2:
            problem = f"{len(query_rows)} of {len(kept_rows)} test images are queries"
            raise InputError("queries", problem, "needs at least 1 query and 2 other images to find")
    return kept_split(images, names, labels, kept_rows, query_rows, counts, View())
