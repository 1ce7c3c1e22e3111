"""The kinds of a label of a table, and the short form of their sections: `number:log:0.5`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from contml import InputError
from contml._support.validation import PositiveFloat
from contml.config import ConfiguredPart, Document, NamedParts, parts_by_name

from .label import TableLabel
from .number_labels import DateLabel, GeoLabel, NumberLabel, VectorLabel
from .pose_label import PoseLabel
from .teacher_label import TeacherLabel
from .text_labels import CaptionsLabel, ClassLabel, MapLabel, OrdinalLabel, TagsLabel


@dataclass(frozen=True)
class AutoLabel:
    """The kind is guessed from the cells, and shown with the reason.

    Args:
        weight: the weight of its label distance in a sum of labels.
    """

    weight: PositiveFloat = 1.0

    short: ClassVar[str] = ""


#: Every kind of label by its name in a config; "auto" is one of the others.
TABLE_LABELS: dict[str, type[TableLabel] | type[AutoLabel]] = {
    "class": ClassLabel,
    "number": NumberLabel,
    "date": DateLabel,
    "vector": VectorLabel,
    "geo": GeoLabel,
    "ordinal": OrdinalLabel,
    "tags": TagsLabel,
    "captions": CaptionsLabel,
    "map": MapLabel,
    "pose": PoseLabel,
    "teacher": TeacherLabel,
    "auto": AutoLabel,
}
#: The kinds that a guess can be.
KINDS = [kind for kind in TABLE_LABELS if kind != "auto"]


def section_of(text: str) -> dict[str, Any]:
    """The section of a label in short: "number", "number:0.5", "number:log", "date:%d.%m.%Y:2", "auto".

    Raises:
        InputError: what follows the kind is not a number, and the kind has no short form.
    """
    kind, colon, rest = text.strip().partition(":")
    section: dict[str, Any] = {"kind": kind.strip() or "auto"}
    part = TABLE_LABELS.get(section["kind"])
    if not colon or part is None:
        return section
    value, _, weight = rest.rpartition(":")
    try:
        section["weight"] = float(weight)
    except ValueError:
        value = rest
    if value.strip() and part.short:
        section[part.short] = value.strip()
    elif value.strip() or "weight" not in section:
        allowed = f"must be a number above 0, as in {section['kind']}:0.5"
        raise InputError("", f"weight '{rest}'", allowed)
    return section


#: What the option `labels` of a table holds.
LABEL_SECTIONS = NamedParts(TABLE_LABELS, "auto", section_of)


def label_parts(labels: Mapping[str, Any]) -> dict[str, ConfiguredPart]:
    """The parts of labels that are given by name, as sections or in short.

    Raises:
        InputError: an unknown kind or option, or a value of another type.
    """
    return parts_by_name(Document("", {"labels": labels}), ("labels",), LABEL_SECTIONS, labels)
