"""Conditions on metadata, such as "price < 500000 and room = 'kitchen'", as expressions of Arrow.

    condition   part ("or" part)*            part   term ("and" term)*
    term        "not" term | "(" condition ")" | COLUMN test
    test        = != < <= > >=  VALUE | ["not"] "in" "(" VALUE, ... ")" | "is" ["not"] "null"

Words such as `and` may be in capitals. A text is in single quotes, in which '' is one quote. A name of a column that is
not a plain word is in double quotes. As in SQL, a comparison with a missing value is neither true nor false: the item
is not found, and `not` does not find it either.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from contml._support.errors import InputError, did_you_mean

#: The longest condition, and the deepest nesting of parentheses and `not`.
_LONGEST, _DEEPEST = 10_000, 50
_TOKEN = re.compile(
    r"""\s*(?:(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)(?![\w.])|'(?P<text>(?:[^']|'')*)'|"""
    r""""(?P<quoted>(?:[^"]|"")+)"|(?P<word>[^\W\d]\w*)|(?P<sign><=|>=|!=|<>|==|[=<>(),]))"""
)
_SIGNS = {"=": operator.eq, "==": operator.eq, "!=": operator.ne, "<>": operator.ne, "<": operator.lt}
_SIGNS |= {"<=": operator.le, ">": operator.gt, ">=": operator.ge}


def condition(text: str, columns: Mapping[str, str], subject: str = "where") -> Any:
    """Return a condition as an expression of Arrow.

    Args:
        text: the condition.
        columns: the columns by name with their types: "bool", "int", "float" or "text".
        subject: where the condition is from, for errors.

    Raises:
        InputError: it cannot be parsed, a column does not exist, or a value has another type than its column.
    """
    return _Parser(text, columns, subject).parsed()


class _Parser:
    """A parser that reads a condition from left to right."""

    def __init__(self, text: str, columns: Mapping[str, str], subject: str) -> None:
        self.text, self.columns, self.subject = text, columns, subject
        self.kind, self.value, self.start, self.end, self.depth = "", "", 0, 0, 0
        if len(text) > _LONGEST:
            raise InputError(subject, f"{len(text):,} characters", f"must be at most {_LONGEST:,}")
        self._next()

    def parsed(self) -> Any:
        found = self._any()
        if self.kind:
            raise self._error("'and', 'or' or the end")
        return found

    def _next(self) -> None:
        """Go to the next token. `kind` is empty at the end."""
        self.start = self.end + len(self.text[self.end :]) - len(self.text[self.end :].lstrip())
        match = _TOKEN.match(self.text, self.end)
        if match is None and self.text[self.end :].strip():
            raise self._error("a name, a number, a text in single quotes, or a comparison")
        self.kind = "" if match is None else str(match.lastgroup)
        self.value = "" if match is None else match[self.kind]
        self.end = len(self.text) if match is None else match.end()
        if self.kind == "word" and self.value.lower() in ("and", "or", "not", "in", "is", "null"):
            self.kind, self.value = "keyword", self.value.lower()

    def _error(self, expected: str) -> InputError:
        got = f"'{self.text[self.start :][:20]}'" if self.text[self.start :].strip() else "the end"
        known = f"columns: {', '.join(self.columns)}" if self.columns else "there is no metadata"
        return InputError(self.subject, f"{got} at character {self.start + 1}", f"must be {expected}", known)

    def _taken(self, *values: str) -> bool:
        """Go on if the token is one of these signs or keywords."""
        if self.kind not in ("sign", "keyword") or self.value not in values:
            return False
        self._next()
        return True

    def _expect(self, value: str) -> None:
        if not self._taken(value):
            raise self._error(f"'{value}'")

    def _any(self) -> Any:
        return self._joined("or", operator.or_, lambda: self._joined("and", operator.and_, self._term))

    def _joined(self, word: str, join: Callable[[Any, Any], Any], part: Callable[[], Any]) -> Any:
        """Join one or more parts with a word between."""
        found = part()
        while self._taken(word):
            found = join(found, part())
        return found

    def _term(self) -> Any:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise InputError(self.subject, f"nested more than {_DEEPEST} levels deep", hint="write fewer parentheses")
        if self._taken("not"):
            found = ~self._term()
        elif self._taken("("):
            found = self._any()
            self._expect(")")
        else:
            found = self._test()
        self.depth -= 1
        return found

    def _test(self) -> Any:
        from pyarrow import compute

        if self.kind not in ("word", "quoted"):
            raise self._error("the name of a column, 'not' or '('")
        name = self.value if self.kind == "word" else self.value.replace('""', '"')
        if name not in self.columns:
            hint = did_you_mean(name, self.columns, f"columns: {', '.join(self.columns) or 'none'}")
            raise InputError(self.subject, f"no column '{name}'", hint=hint)
        self._next()
        column = compute.field(name)
        if self._taken("is"):
            negated = self._taken("not")
            self._expect("null")
            return column.is_valid() if negated else column.is_null()
        if (negated := self._taken("not")) or self.value == "in":
            self._expect("in")
            self._expect("(")
            # `isin` is false, not missing, of a missing value.
            found = self._joined(",", operator.or_, lambda: column == compute.scalar(self._value(name)))
            self._expect(")")
            return ~found if negated else found
        compare = _SIGNS.get(self.value) if self.kind == "sign" else None
        if compare is None:
            raise self._error("a comparison (= != < <= > >=), 'in (...)' or 'is null'")
        self._next()
        return compare(column, compute.scalar(self._value(name)))

    def _value(self, name: str) -> bool | float | str:
        """Return the value at this place, in the type of a column."""
        kind, value = self.columns[name], self.value
        is_bool = self.kind == "word" and value.lower() in ("true", "false")
        found: bool | float | str
        if self.kind == "text" and kind == "text":
            found = value.replace("''", "'")
        elif self.kind == "number" and kind in ("int", "float"):
            found = float(value) if kind == "float" or not value.lstrip("+-").isdigit() else int(value)
        elif is_bool and kind == "bool":
            found = value.lower() == "true"
        elif self.kind in ("text", "number") or is_bool:
            got = f"'{name}' compared with {self.text[self.start : self.end].strip()}"
            allowed = {"text": "a text in single quotes", "bool": "true or false"}.get(kind, "a number")
            raise InputError(self.subject, got, f"must be {allowed}: the column is {kind}")
        else:
            quote = f"; a text is in single quotes: '{value}'" if self.kind in ("word", "quoted") else ""
            raise self._error(f"a value{quote}")
        self._next()
        return found
