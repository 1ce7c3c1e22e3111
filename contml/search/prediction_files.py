"""`contml predict`: the predicted labels of images as a table."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from contml.search.labelled_items import Answer

#: What is written of each answer, after the title of the label: the label itself has the title alone.
_FIELDS = ("text", "low", "high", "bound", "level", "same_image")


def prediction_bytes(predicted: Sequence[tuple[str, Mapping[str, Answer]]], suffix: str) -> bytes:
    """A table with a row for each image: its name, and for each label the columns of its answer that are not empty.

    Args:
        predicted: the name of each image, and its answers by title.
        suffix: ".csv" or ".parquet".
    """
    columns: dict[str, list[Any]] = {"image": [name for name, _ in predicted]}
    for title in predicted[0][1]:
        answers = [each[title].as_data() for _, each in predicted]
        columns[title] = [_cell(answer["value"]) for answer in answers]
        for field in _FIELDS:
            values = [_cell(answer[field]) for answer in answers]
            if any(value is not None for value in values):
                columns[f"{title} {field}"] = values
    if suffix == ".parquet":
        import pyarrow
        import pyarrow.parquet

        buffer = io.BytesIO()
        pyarrow.parquet.write_table(pyarrow.table(columns), buffer)
        return buffer.getvalue()
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue().encode(errors="backslashreplace")


def _cell(value: Any) -> Any:
    """A number or a text; a list as JSON."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value
