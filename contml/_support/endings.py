"""The endings of tables, known without reading one."""

from __future__ import annotations

from pathlib import Path

#: Endings of tables, in lower case; those of text may be followed by .gz.
TABLES = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".json", ".parquet", ".pq", ".xlsx")


def table_suffix(path: Path) -> str:
    """Returns the ending of a file in lower case, before .gz."""
    return Path(path.name.lower().removesuffix(".gz")).suffix
