"""What is wrong with your own data at first sight: refused before torch is imported."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from contml import InputError
from contml._support.files import JOINTS, table_suffix
from contml.config import Document, parts_by_name
from contml.data.tables import Table, read_table
from contml.data.text_files import no_such_file

from .kinds import LABEL_SECTIONS, TABLE_LABELS

#: The bytes of the largest table that is read for this, which takes a moment; a larger one is read once.
_LARGEST = 5_000_000


def refuse(path: Path, labels: Mapping[str, str], image: str | None, *, only_kinds: bool = False) -> None:
    """Refuse unknown kinds of labels, a file that does not exist, and a table without the columns that are named.

    Args:
        path: the file, or the folder of images.
        labels: the kind of each label, in short.
        image: the column of images; None: it is not named.
        only_kinds: other options say how the file is read, so that it is not read here.

    Raises:
        InputError: there is such an error.
    """
    unknown = {name: kind for name, kind in labels.items() if _kind(kind) not in TABLE_LABELS}
    parts_by_name(Document("", {}), ("task", "labels"), LABEL_SECTIONS, unknown)  # raises
    if not path.exists():
        raise no_such_file(path)
    suffix = table_suffix(path)
    if only_kinds or not path.is_file() or suffix in ("", ".json", JOINTS) or path.stat().st_size > _LARGEST:
        return
    try:
        table = read_table(path)
    except InputError:  # raised again, with the options of the task, when the data are read
        return
    if image is not None:
        table.column(image, "image")
    for name in labels:
        label_columns(table, name)


def _kind(text: str) -> str:
    return text.partition(":")[0].strip() or "auto"


def label_columns(table: Table, name: str) -> tuple[str, ...]:
    """The columns of a label: one, or several separated by commas."""
    single = name in table.columns or name in table.opaque or "," not in name
    columns = (name,) if single else tuple(column.strip() for column in name.split(","))
    for column in columns:
        table.column(column, "labels")
    if len(set(columns)) < len(columns):
        raise InputError("labels", f"{name} repeats a column")
    return columns
