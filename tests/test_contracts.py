"""The contracts in code: what the library reads of splits, label spaces, losses and steps is in their classes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import contml

SOURCE = Path(contml.__file__).parent
#: Functions that ask an object for an attribute by its name.
ASKING = ("getattr", "hasattr", "attrgetter")
#: Every place that asks: "file:function: source of the first argument", and why it may. None of these is a split, a
#: task, a label space, a loss or a training step: their classes have all that the library reads of them.
GOLDEN = Path(__file__).with_name("asked_attributes.txt")
ALLOWED = dict(line.split(" || ") for line in GOLDEN.read_text(encoding="utf-8").splitlines())


class Asked(ast.NodeVisitor):
    """What the code of one file asks by name, each with the function that it is in."""

    def __init__(self, file: str) -> None:
        self.file, self.inside, self.found = file, [], []

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.within(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.within(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.within(node)

    def within(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self.inside.append(node.name)
        self.generic_visit(node)
        self.inside.pop()

    def visit_Call(self, node: ast.Call) -> None:
        if name_of(node.func) in ASKING:
            self.note(ast.unparse(node.args[0]) if node.args else "nothing")
            for part in (*node.args, *node.keywords):
                self.visit(part)
        else:
            self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in ASKING:  # handed on, to be called elsewhere
            self.note(f"{node.id} itself")

    def note(self, what: str) -> None:
        self.found.append(f"{self.file}:{'.'.join(self.inside) or 'module'}: {what}")


def name_of(function: ast.expr) -> str | None:
    """`getattr`, `builtins.getattr`: their last word."""
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else None


def asked(text: str, file: str) -> list[str]:
    visitor = Asked(file)
    visitor.visit(ast.parse(text))
    return visitor.found


def asked_in_the_library() -> Iterator[str]:
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if any(name in text for name in ASKING):  # the others are not parsed
            yield from asked(text, path.relative_to(SOURCE).as_posix())


def test_no_split_label_space_loss_or_step_is_asked_for_an_attribute_by_name():
    found = set(asked_in_the_library())
    assert sorted(found - ALLOWED.keys()) == []  # new: write it down with a reason, or put it into a base class
    assert sorted(ALLOWED.keys() - found) == []  # gone: take it off the list


@pytest.mark.parametrize(("text", "expected"), [
    ("x = getattr(labels, 'rows', None)", ["a.py:module: labels"]),
    ("class A:\n    def f(self):\n        return lambda: getattr(self.loss, 'x')", ["a.py:A.f: self.loss"]),
    ("rows = map(operator.attrgetter('rows'), spaces)", ["a.py:module: 'rows'"]),
    ("ask = hasattr", ["a.py:module: hasattr itself"]),
])  # fmt: skip
def test_what_asks_by_name_is_found(text, expected):
    assert asked(text, "a.py") == expected
