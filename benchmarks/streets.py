"""Street scenes of CamVid in chunks: `task=benchmarks.streets:streets` in a config."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from contml.data import Task
from contml.tasks.table.file import file

#: Frames of a chunk, and frames after it that are left out: no query finds a frame beside its own.
_CHUNK, _GAP = 20, 5


def streets(data: str) -> Task:
    """Label maps as in layout/camvid; a chunk of a sequence is a group, which its queries do not search.

    Args:
        data: the table of the pack, pairs.csv.
    """
    with Path(data).open(newline="", encoding="utf-8") as table:
        rows = sorted(csv.DictReader(table), key=lambda row: row["image"])
    seen: Counter[tuple[str, str]] = Counter()
    for row in rows:
        sequence, part = row["sequence"], row["split"]
        number, place = divmod(seen[sequence, part], _CHUNK + _GAP)
        seen[sequence, part] += 1
        row["chunk"] = f"{sequence}, images from {number * (_CHUNK + _GAP)}{'' if part == 'train' else f' of {part}'}"
        if place >= _CHUNK:
            row["split"] = ""
    with TemporaryDirectory() as folder:
        chunks = Path(folder) / "streets.csv"
        with chunks.open("w", newline="", encoding="utf-8") as table:
            writer = csv.DictWriter(table, rows[0])
            writer.writeheader()
            writer.writerows(rows)
        return file(
            str(chunks),
            {"label": {"kind": "map", "classes": 11, "ignore": 11}},
            image="image",
            root=str(Path(data).parent),
            group="chunk",
            exclude_group=True,
            queries=sum(row["split"] == "test" for row in rows) // 5,
        )
