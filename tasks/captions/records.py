"""Images with their captions, as a reader found them, to two splits: what is missing is refused, or left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from contml import InputError

from .split import CaptionSplit, word_vectors


class Record(NamedTuple):
    """An image and what is said of it; `file` is None where there is no such image, `name` is where it should be."""

    name: str
    file: Path | None
    captions: list[str]


@dataclass(frozen=True)
class Options:
    """What every reader of caption files lets a config set."""

    vectors: str | None
    normalize: bool
    empty: Literal["refuse", "drop"]
    missing: Literal["refuse", "drop"]
    queries: int
    dim: int
    seed: int


def make_splits(
    root: Path,
    source: Path,
    train: Sequence[Record],
    test: Sequence[Record],
    options: Options,
    asking: Sequence[str] = (),
) -> tuple[CaptionSplit, CaptionSplit]:
    """The training and the test split. `source` is the file of captions; `asking` are names of images that query.

    Raises:
        InputError: an image is in both splits, has no file or no captions, or too few are left.
    """
    for name, value, least in (("queries", options.queries, 0), ("dim", options.dim, 1), ("seed", options.seed, 0)):
        if value < least:
            raise InputError(f"task.{name}={value}: allowed are {least} and more")
    if both := {record.name for record in train} & {record.name for record in test}:
        raise InputError(f"{source}: {min(both)} is in train and in test ({len(both)} such images)")
    parts = [_whole(root, source, part, records, options) for part, records in (("training", train), ("test", test))]
    captions = [[record.captions for record in part] for part in parts]
    path = None if options.vectors is None else _vectors_file(root, options.vectors)
    vectors = word_vectors(path, captions[0], captions[1], options.dim, options.seed)
    named = set(asking)
    first, second = (
        CaptionSplit(
            [record.file for record in part if record.file is not None],
            [record.name for record in part],
            said,
            vectors,
            normalize=options.normalize,
            empty=options.empty,
            queries=queries,
            seed=options.seed,
            dropped=len(records) - len(part),
        )
        for part, said, records, queries in (
            (parts[0], captions[0], train, 0),
            (
                parts[1],
                captions[1],
                test,
                [row for row, record in enumerate(parts[1]) if record.name in named] if named else options.queries,
            ),
        )
    )
    return first, second


def _vectors_file(root: Path, given: str) -> Path:
    """The file of word vectors: in the data set's folder, or anywhere."""
    own = Path(given).expanduser()
    if not (places := [place for place in (root / own, own) if place.is_file()]):
        where = str(own) if own.is_absolute() else f"{given}, in {root} or in the current folder"
        raise InputError(f"task.vectors: no such file {where}; give a file of word vectors, or null to train them")
    return places[0]


def _whole(root: Path, source: Path, part: str, records: Sequence[Record], options: Options) -> list[Record]:
    """The records that have an image and a caption."""
    away = [record.name for record in records if record.file is None]
    silent = [record.name for record in records if not any(caption.strip() for caption in record.captions)]
    if options.missing == "refuse":
        how = "or set task.missing=drop to leave such images out"
        if away:
            raise InputError(
                f"{away[0]}: no such image ({len(away):,} of {len(records):,} {part} images of {source} are missing); "
                f"check task.root and the folders of images, {how}"
            )
        if silent:
            raise InputError(
                f"{source}: no captions of {silent[0]} ({len(silent):,} of {len(records):,} {part} images have none); "
                f"complete it, {how}"
            )
    left_out = {*away, *silent}
    kept = [record for record in records if record.name not in left_out]
    if len(kept) < 3:
        raise InputError(
            f"{source}: {len(kept)} of {len(records):,} {part} images have a file and a caption; "
            f"a split needs at least 3: check task.root={root} and the folders of images"
        )
    return kept
