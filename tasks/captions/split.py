"""Splits of images with captions; incomplete images are refused, or omitted and counted. Gets the word vectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from contml import InputError
from contml._support.validation import check_at_least, check_choice, check_whole
from contml.data import ImageFile, ImageSource, Split, Task, draw_queries
from contml.data.renderers.captions import CaptionExplainer, CaptionRenderer, Vectors
from contml.data.split import Facts

from .._readers.folders import Files, Missing, refuse_absent
from .._readers.splits import Parts, kept_split, queries_like, refuse_shared
from .._readers.word_vectors import Captions, word_vectors
from .distance import CaptionDistance, Choice
from .explaining import NearestCaptions


class Record(NamedTuple):
    """An image and its captions: `key` is its name in the data set, `name` its path; `file` is None without a file."""

    key: str
    name: str
    file: Path | None
    captions: list[str]

    @classmethod
    def of(cls, on_disk: Files, folders: Sequence[Path], name: str, captions: list[str]) -> Record:
        """The record of an image in one of these folders."""
        place = on_disk.locate(folders, name)
        return cls(name, str(place), on_disk.find(place), captions)


@dataclass(frozen=True)
class Options:
    """The options that all readers of caption files share."""

    distance: Choice
    vectors: str | None
    normalize: bool
    empty: Missing
    missing: Missing
    queries: int
    dim: int
    seed: int

    def __post_init__(self) -> None:
        check_at_least(0, queries=self.queries, seed=self.seed)
        check_whole(1, dim=self.dim)
        check_choice(("refuse", "drop"), empty=self.empty, missing=self.missing)


def make_task(root: Path, source: Path, parts: Parts[Record], options: Options) -> Task:
    """The task of these images.

    Args:
        root: the folder of the data set.
        source: the file of captions, for errors.
        parts: the images; where no queries are named, `options.queries` of the test images are drawn.
        options: the options of the reader.

    Raises:
        InputError: an image is in two splits, has no file or no captions, or too few are left.
    """
    named = {"train": parts.train, "val": parts.val, "test": [*parts.gallery, *parts.queries]}
    refuse_shared(source, {part: [record.name for record in records] for part, records in named.items()})
    complete = {
        part: _complete(root, source, {"train": "training", "val": "validation"}.get(part, part), records, options)
        for part, records in named.items()
        if records or part == "train" or (part == "test" and not parts.val)
    }
    train, *parts_of_test = ([record.captions for record in records] for records, _ in complete.values())
    others = [texts for part in parts_of_test for texts in part]
    vectors: Vectors = {}
    if options.distance.needs_vectors:
        path = None if options.vectors is None else _vectors_file(root, options.vectors)
        vectors = word_vectors(path, train, others, options.dim, options.seed)
    distance = CaptionDistance(options.distance, train, others, vectors, options.normalize, options.seed)
    queries: dict[str, int | list[int]] = {"train": 0, "val": options.queries, "test": options.queries}
    if "test" in complete:
        chosen, tested = {record.key for record in parts.queries}, complete["test"][0]
        queries["val"] = 0 if chosen else queries_like(options.queries, len(tested), len(parts.val))
        if chosen:
            queries["test"] = [row for row, record in enumerate(tested) if record.key in chosen]
    splits = {
        part: make_split(
            [ImageFile(record.file) for record in records if record.file is not None],
            [record.name for record in records],
            [record.captions for record in records],
            distance,
            keys=[record.key for record in records],
            empty=options.empty,
            queries=queries[part],
            seed=options.seed,
            excluded=excluded,
        )
        for part, (records, excluded) in complete.items()
    }
    return Task(splits["train"], splits.get("test"), splits.get("val"))


def _vectors_file(root: Path, given: str) -> Path:
    """The file of word vectors: in the folder of the data set, or anywhere."""
    path = Path(given).expanduser()
    for place in (root / path, path):
        if place.is_file():
            return place
    where = "" if path.is_absolute() else f" in {root} or in the current folder"
    raise InputError("vectors", f"no such file {given}{where}", hint="give a file of word vectors, or null to train")


def _complete(
    root: Path, source: Path, part: str, records: Sequence[Record], options: Options
) -> tuple[list[Record], dict[str, int]]:
    """The images that have a file and a caption; the others are refused, or omitted and counted."""
    no_file = [Path(record.name) for record in records if record.file is None]
    no_caption = [record.name for record in records if not any(caption.strip() for caption in record.captions)]
    if options.missing == "refuse":
        refuse_absent(no_file, len(records), f"{part} images of {source.name}")
        if no_caption:
            found = f"no captions ({len(no_caption):,} of {len(records):,} {part} images have none)"
            raise InputError(f"{source}: {no_caption[0]}", found, hint="complete the file, or set missing=drop")
    without_caption = set(no_caption)
    kept = [record for record in records if record.file is not None and record.name not in without_caption]
    if len(kept) < 3:
        found = f"{len(kept)} of {len(records):,} {part} images have a file and a caption"
        raise InputError(str(source), found, "must be at least 3", f"check root={root} and the folders of images")
    return kept, {"without an image file": len(no_file), "without a caption": len(records) - len(no_file) - len(kept)}


def make_split(
    images: Sequence[ImageSource],
    names: Sequence[str],
    captions: Captions,
    distance: CaptionDistance,
    *,
    keys: Sequence[str] | None = None,
    empty: Literal["refuse", "drop"] = "refuse",
    queries: int | Sequence[int] = 0,
    seed: int = 0,
    excluded: Mapping[str, int] | None = None,
    facts: Callable[[Sequence[int]], Facts] | None = None,
) -> Split:
    """A split of images with captions.

    Args:
        images: the source of each image.
        names: the name of each item.
        captions: the captions of each item.
        distance: what compares the captions, in all splits.
        keys: names by which queries are drawn, without the folder of the data set; None: `names`.
        empty: what to do with items whose captions cannot be compared: "refuse", or "drop" and count them.
        queries: the number of queries, drawn at random, or the rows of the queries; 0: every item is a query against
            all others.
        seed: seed of that draw.
        excluded: how many items were omitted before, by reason.
        facts: returns what finds the facts of captions about these items.

    Raises:
        InputError: the captions of an item cannot be compared, or too few queries or other items are left.
    """
    labels, kept = distance.labels(captions)
    unknown = len(names) - len(kept)
    if unknown and empty == "refuse":
        first = min(set(range(len(names))) - set(kept))
        found = f"no caption has {distance.needs} ({unknown:,} such images)"
        hint = "give vectors for their words, or " if distance.choice.needs_vectors else ""
        raise InputError(names[first], found, hint=f"{hint}set empty=drop to omit them")
    counts = {**(excluded or {}), f"without {distance.needs}": unknown}
    if isinstance(queries, int):
        chosen = draw_queries(queries, [(keys or names)[row] for row in kept], seed)
    else:
        chosen = _kept_queries(queries, kept)
    kept_captions = [list(captions[row]) for row in kept]
    renderer = CaptionRenderer(kept_captions)
    parts: dict[str, Any] = {"renderer": renderer, "describer": renderer.text}
    if distance.matches_words:
        parts["explainer"] = CaptionExplainer(
            kept_captions,
            [names[row] for row in kept],
            distance.vectors,
            distance.normalize,
            distance.match_weights,
        )
    else:
        parts["explainer"] = NearestCaptions(kept_captions, distance)
    parts["captions"] = [[text for text in of_image if text.strip()] for of_image in kept_captions]
    if facts is not None:
        parts["facts"] = facts(kept)
    return kept_split(images, names, labels, kept, chosen, counts, **parts)


def _kept_queries(queries: Sequence[int], kept: Sequence[int]) -> list[int]:
    """The positions of the queries among the rows that were kept."""
    chosen = set(queries)
    rows = [position for position, row in enumerate(kept) if row in chosen]
    if not rows or len(kept) - len(rows) < 2:
        found = f"{len(rows)} of {len(kept)} test images are queries"
        raise InputError("queries", found, "needs at least 1 query and 2 other images to find")
    return rows
