"""Label spaces in files: the arguments of their constructors, as tensors and JSON. Reading runs no code of the file.

Some spaces have no constructor that takes their items again, such as a space of the user's own function. Such a space
is written as the matrix of its label distances, with the texts of its items.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError, model_validator
from torch import Tensor

from contml._support.errors import InputError, one_line
from contml.contracts import Measure
from contml.labels import LABELS
from contml.labels.base import LabelSpace
from contml.labels.items import growing
from contml.labels.matrices import MatrixLabels
from contml.labels.word_vectors import WordVectors

#: The largest number of bytes of a space in memory: tokens and label maps are packed in rectangles.
_LARGEST = 1 << 30


class SavedLabels(BaseModel):
    """A label space in JSON; its tensors are beside it.

    Attributes:
        kind: a name of `LABELS`.
        tensors: the arguments of its constructor that are tensors or vectors of words, and the names of the tensors.
        words: the arguments that are vectors of words, and the words.
        values: its other arguments.
        spaces: for a sum, the spaces and their weights.
        unit: as in the label space.
        measure: as in the label space.
        title: as in the label space.
        part_names: as in the label space.
        texts: the texts of the items. If empty, the items have the texts of the label space.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    kind: str
    tensors: dict[str, str]
    words: dict[str, tuple[str, ...]]
    values: dict[str, JsonValue]
    spaces: tuple[tuple[SavedLabels, float], ...]
    unit: str
    measure: Measure
    title: str
    part_names: tuple[str, ...]
    texts: tuple[str, ...]

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.kind not in LABELS:
            raise ValueError(f"no label space {self.kind!r:.40}")
        return self


def to_saved(labels: LabelSpace, prefix: str = "labels") -> tuple[SavedLabels, dict[str, Tensor]]:
    """Return a label space in its saved form, and its tensors. The names of the tensors begin with `prefix`."""
    kind = next((name for name, space in LABELS.items() if space is type(labels)), None)
    texts = [labels.text(row) for row in range(len(labels))] if labels.root._texts else []
    try:
        arguments = {} if kind is None else growing(labels).arguments()
    except InputError:
        kind, arguments = None, {}
    if kind is None or any(callable(value) and not isinstance(value, type) for value in arguments.values()):
        texts = [labels.text(row) for row in range(len(labels))]
        kind, arguments = "matrix", MatrixLabels(labels.pairwise(), unit=labels.unit).arguments()
    tensors: dict[str, Tensor] = {}
    fields: dict[str, Any] = {"tensors": {}, "words": {}, "values": {}, "spaces": []}
    for name, value in arguments.items():
        key = f"{prefix}.{name}"
        if isinstance(value, WordVectors):
            fields["words"][name], fields["tensors"][name] = list(value), key
            matrix = torch.from_numpy(np.asarray(value.matrix))
            tensors[key] = matrix.float() if bool((matrix.float() == matrix).all()) else matrix
        elif isinstance(value, Tensor):
            fields["tensors"][name], tensors[key] = key, value
        elif name == "spaces":
            for number, (space, weight) in enumerate(value.items()):
                saved, of_space = to_saved(space, f"{prefix}.{number}")
                fields["spaces"].append((saved.model_dump(), weight))
                tensors |= of_space
        else:
            fields["values"][name] = value
    described = {"unit": labels.unit, "measure": labels.measure, "title": labels.title}
    names = {"part_names": list(map(str, labels.part_names)), "texts": texts if any(texts) else []}
    return SavedLabels.model_validate({"kind": kind, **fields, **described, **names}, strict=False), tensors


def from_saved(saved: SavedLabels, tensors: Mapping[str, Tensor], path: str) -> LabelSpace:
    """Return the label space of a file.

    Args:
        saved: the result of `to_saved`.
        tensors: all tensors of the file.
        path: the file, for errors.

    Raises:
        InputError: the file is damaged.
    """
    try:
        labels = _made(saved, tensors, path)
    except InputError as error:
        if error.subject == path:
            raise
        raise _damaged(path, one_line(error)) from None
    except (ArithmeticError, LookupError, TypeError, ValueError, RuntimeError, MemoryError, ValidationError) as error:
        raise _damaged(path, one_line(error)) from None
    if len(saved.texts) not in (0, len(labels)):
        raise _damaged(path, f"{len(saved.texts)} texts for {len(labels)} labels")
    labels.unit, labels.measure, labels.title = saved.unit, saved.measure, saved.title
    labels.part_names = saved.part_names
    return labels.with_texts(saved.texts) if saved.texts else labels


def _made(saved: SavedLabels, tensors: Mapping[str, Tensor], path: str) -> LabelSpace:
    space: Any = LABELS[saved.kind]
    arguments: dict[str, Any] = {name: tensors[key] for name, key in saved.tensors.items()}
    for name, words in saved.words.items():
        matrix = arguments[name]
        if matrix.ndim != 2 or len(matrix) != len(words) or not matrix.is_floating_point():
            raise _damaged(path, f"{len(words)} words for vectors {list(matrix.shape)}")
        arguments[name] = WordVectors(words, matrix.double().numpy())
    arguments |= saved.values
    if saved.spaces:
        arguments["spaces"] = {from_saved(each, tensors, path): weight for each, weight in saved.spaces}
    declared = {**space.item_arguments, **space.option_arguments}
    if set(arguments) != set(declared):
        raise _damaged(path, f"has {', '.join(sorted(arguments))} of {saved.kind}, not {', '.join(sorted(declared))}")
    for name, kind in declared.items():
        if not isinstance(arguments[name], kind):
            raise _damaged(path, f"{name} of {saved.kind} is a {type(arguments[name]).__name__}")
    if (size := _size(arguments)) > _LARGEST:
        raise _damaged(path, f"its labels would take {size >> 20:,} MB")
    return space(**arguments)


def _size(arguments: Mapping[str, Any]) -> int:
    """Return the least number of bytes that the labels take once they are packed."""
    sizes = [0]
    for value in arguments.values():
        if isinstance(value, list) and value:
            sizes.append(4 * len(value) * max(len(each) if isinstance(each, list | str) else 1 for each in value))
    maps = arguments.get("maps")
    if isinstance(maps, Tensor) and maps.ndim == 3:
        pixels = math.prod(maps.shape[1:]) if arguments["side"] is None else arguments["side"] ** 2
        sizes.append(len(maps) * abs(arguments["classes"]) * pixels // 8)
    return max(sizes)


def _damaged(path: str, reason: str) -> InputError:
    return InputError(path, f"cannot be read ({reason:.200})", hint="run 'contml evaluate' again, or export again")
