"""The record of finished trainings, and the loop that does the missing ones."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from contml import work
from contml._support.errors import DivergedError, InputError

#: The record of a training: `value`, by which options are chosen, and the values that its command needs. If the options
#: are at fault, it has `error` instead. `seconds` are of one core.
Result: TypeAlias = Mapping[str, Any]


class FinishedTrainings(work.Lines[Result]):
    """The finished trainings in a file, a line each: the key, and the result."""

    of = "trainings"

    def parse(self, row: dict[str, Any]) -> tuple[str, Result]:
        """Return the key and the result of a line. The key may be a list, and the result in an object of its own."""
        result = row["metrics"] if "metrics" in row else {name: part for name, part in row.items() if name != "key"}
        if not isinstance(result.get("seconds", 0), float | int) or ("value" in result and "error" in result):
            raise ValueError
        return row["key"] if isinstance(row["key"], str) else json.dumps(row["key"]), result

    def row(self, key: str, value: Result) -> Mapping[str, Any]:
        """Return the line of a result."""
        return {"key": key, **value}


def train_missing(
    plan: Callable[[], Iterable[work.ItemT]],
    function: Callable[[work.ItemT], Result],
    record: FinishedTrainings,
    **options: Any,
) -> None:
    """Do all items of a plan that have no result.

    Args:
        plan: returns the items that are known so far. It is called again when these items are done.
        function: computes the result of an item.
        record: the results.
        options: of `contml.work.run`.
    """
    while missing := {item.key: item for item in plan() if item.key not in record}:  # two trials may be equal
        work.run(missing.values(), function, record, **options)


def result_of(train: Callable[[], Result], refusals: bool = True) -> Result:
    """Train, and return the result with its seconds. A training that diverges is a result, too.

    Args:
        train: the training.
        refusals: whether a refused option is also a result.

    Raises:
        InputError: an error of the machine or of the data, such as a full disk or an image that cannot be read. The
            same command may succeed later, so it is not a result.
    """
    start = time.process_time()  # not the time on the clock: the machine may have other work
    try:
        result = train()
    except InputError as error:
        if not (isinstance(error, DivergedError) or (refusals and _is_of_option(error))):
            raise
        result = {"error": str(error)}
    return {**result, "seconds": round(time.process_time() - start, 2)}


def _is_of_option(error: InputError) -> bool:
    """Return True if an option is refused, and the cause is not a file or a connection."""
    causes: list[BaseException] = [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None:
        causes.append(cause)
    return bool(error.origin) and not any(isinstance(cause, OSError) for cause in causes)
