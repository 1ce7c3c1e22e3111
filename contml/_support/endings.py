"""The endings of tables, and of files that are written: checked before torch is imported."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from contml._support.errors import InputError

#: Endings of tables, in lower case; .gz may follow the ending of a text file.
TABLES = (".csv", ".tsv", ".txt", ".jsonl", ".ndjson", ".json", ".parquet", ".pq", ".xlsx")
#: That of a file of arrays of joints, which the table task also reads.
JOINTS = ".npz"

#: Endings of files of features, of embeddings, of galleries, and of graphs.
FEATURES, EMBEDDINGS, GALLERIES = (".npz", ".npy", ".parquet"), (".parquet", ".npz"), (".html", ".png")
GRAPHS, PREDICTIONS = (".onnx", ".pt2"), (".csv", ".parquet")

#: What to do with files of other forms.
_OTHERS = {
    **dict.fromkeys((".xls", ".xlsm", ".xlsb", ".ods", ".numbers"), "save the sheet as CSV or .xlsx"),
    **dict.fromkeys((".yaml", ".yml"), "give a config without --data"),
    **dict.fromkeys((".zip", ".7z", ".tar"), "unpack it, and give the folder or the table in it"),
    **dict.fromkeys((".pkl", ".pickle", ".feather", ".arrow", ".h5", ".hdf5"), "save it as Parquet or CSV"),
    **dict.fromkeys((".doc", ".docx", ".pdf"), "save the table as CSV"),
}


def check_suffix(path: Path, endings: Collection[str]) -> str:
    """Checks how the name of a file ends, in upper or lower case, and returns the ending in lower case.

    Raises:
        InputError: it has another ending.
    """
    suffix = path.suffix.lower()
    if suffix not in endings:
        allowed = " or ".join(filter(None, (", ".join([*endings][:-1]), [*endings][-1])))
        if path.is_dir():
            raise InputError(str(path), "a folder", f"must be a file that ends in {allowed}")
        raise InputError(str(path), f"suffix {path.suffix!r}", f"must end in {allowed}")
    return suffix


def table_suffix(path: Path) -> str:
    """Returns the ending of a file in lower case, before .gz."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def check_table_suffix(path: Path, *more: str) -> None:
    """Checks that a file ends like a table, or as in `more`, which are of data and may also be a folder.

    Raises:
        InputError: it has another ending.
    """
    suffix = table_suffix(path)
    packed = path.name.lower().endswith(".gz") and suffix in (".parquet", ".pq", ".xlsx")
    if suffix not in (*TABLES, *more) or packed:
        allowed = f"must {'be a folder, or ' if more else ''}end in {', '.join(TABLES)} (of text also .gz)"
        got = f"ends in '{suffix}.gz'" if packed else f"ends in '{suffix}'"
        raise InputError(str(path), got, allowed, "unpack it" if packed else _OTHERS.get(suffix, ""))
