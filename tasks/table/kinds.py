"""The kinds of a label of a table, their short form (`number:log:0.5`), and early refusals of wrong options.

The module does not import torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from contml import InputError
from contml._support.files import JOINTS, table_suffix
from contml._support.imports import lazy_table
from contml._support.validation import PositiveFloat
from contml.config import ConfiguredPart, Document, NamedParts, parts_by_name
from contml.data.tables import Table, read_table
from contml.data.text_files import no_such_file


@dataclass(frozen=True)
class AutoLabel:
    """A kind that is guessed from the cells, and shown with the reason.

    Args:
        weight: the weight of its label distance in a sum of labels.
    """

    weight: PositiveFloat = 1.0

    short: ClassVar[str] = ""


#: Every kind of label by its name in a config, imported when it is used. "auto" stands for another kind.
TABLE_LABELS = lazy_table(
    str(__package__),
    {
        "class": "text_labels:ClassLabel",
        "number": "number_labels:NumberLabel",
        "date": "number_labels:DateLabel",
        "vector": "number_labels:VectorLabel",
        "circular": "number_labels:CircularLabel",
        "geo": "number_labels:GeoLabel",
        "ordinal": "text_labels:OrdinalLabel",
        "tags": "text_labels:TagsLabel",
        "captions": "text_labels:CaptionsLabel",
        "map": "text_labels:MapLabel",
        "pose": "image_labels:PoseLabel",
        "teacher": "image_labels:TeacherLabel",
        "auto": "kinds:AutoLabel",
    },
)
#: The kinds that can be guessed.
KINDS = [kind for kind in TABLE_LABELS if kind != "auto"]


def section_of(text: str) -> dict[str, Any]:
    """Return the section of a label that is given in short.

    Examples are "number", "number:0.5", "number:log", "date:%d.%m.%Y:2", "circular:24", "auto".

    Raises:
        InputError: the text after the kind is not a number, and the kind has no short form.
    """
    kind, colon, rest = text.strip().partition(":")
    section: dict[str, Any] = {"kind": kind.strip() or "auto"}
    if not colon or section["kind"] not in TABLE_LABELS:
        return section
    part: Any = TABLE_LABELS[section["kind"]]
    if section["kind"] == "circular":  # its first number is not a weight
        period, _, weight = rest.partition(":")
        with suppress(ValueError):
            return section | {"period": float(period)} | ({"weight": float(weight)} if weight else {})
    value, _, weight = rest.rpartition(":")
    try:
        section["weight"] = float(weight)
    except ValueError:
        value = rest
    if value.strip() and part.short:
        section[part.short] = value.strip()
    elif value.strip() or "weight" not in section:
        allowed = f"must be a number above 0, as in {section['kind']}:{24 if section['kind'] == 'circular' else 0.5}"
        raise InputError("", f"weight '{rest}'", allowed)
    return section


#: The content of the option `labels` of a table.
LABEL_SECTIONS = NamedParts(TABLE_LABELS, "auto", section_of)


def label_parts(labels: Mapping[str, Any]) -> dict[str, ConfiguredPart]:
    """Return the parts of labels that are given by name, as sections or in short.

    Raises:
        InputError: a kind or an option is unknown, or a value has another type.
    """
    return parts_by_name(Document("", {"labels": labels}), ("labels",), LABEL_SECTIONS, labels)


#: The bytes of the largest table that is read for this check, which takes a moment. Larger tables are read once.
_LARGEST = 5_000_000


def refuse(path: Path, labels: Mapping[str, str], image: str | None, *, only_kinds: bool = False) -> None:
    """Refuse unknown kinds of labels, a file that does not exist, and a table without the named columns.

    Args:
        path: the file, or the folder of images.
        labels: the kind of each label, in short.
        image: the column of images, or None if no option names the column.
        only_kinds: check only the kinds. Other options define how the file is read, so this function does not read it.

    Raises:
        InputError: one of these errors is found.
    """
    unknown = {name: kind for name, kind in labels.items() if kind.partition(":")[0].strip() not in ("", *TABLE_LABELS)}
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


def label_columns(table: Table, name: str) -> tuple[str, ...]:
    """Return the columns of a label: one, or several separated by commas."""
    single = name in table.columns or name in table.opaque or "," not in name
    columns = (name,) if single else tuple(column.strip() for column in name.split(","))
    for column in columns:
        table.column(column, "labels")
    if len(set(columns)) < len(columns):
        raise InputError("labels", f"{name} repeats a column")
    return columns
