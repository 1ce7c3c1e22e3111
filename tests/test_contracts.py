"""The contracts in code: what the library reads of splits, label spaces, losses and steps is in their classes."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import contml

SOURCE = Path(contml.__file__).parent
#: Functions that ask an object for an attribute by its name.
ASKING = ("getattr", "hasattr", "attrgetter")
#: Every place that asks: "file:function: source of the first argument", and why it may. None of these is a split, a
#: task, a label space, a loss or a training step: their classes have all that the library reads of them.
GOLDEN = Path(__file__).with_name("asked_attributes.txt")
ALLOWED = dict(line.split(" || ") for line in GOLDEN.read_text(encoding="utf-8").splitlines())


def name_of(function: ast.expr) -> str | None:
    """`getattr`, `builtins.getattr`: their last word."""
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else None


def asked(node: ast.AST, inside: tuple[str, ...] = ()) -> Iterator[str]:
    """What the code below a node asks by name, each with the function that it is in."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        inside = (*inside, node.name)
    children, place = [*ast.iter_child_nodes(node)], ".".join(inside) or "module"
    if isinstance(node, ast.Call) and name_of(node.func) in ASKING:
        yield f"{place}: {ast.unparse(node.args[0]) if node.args else 'nothing'}"
        children.remove(node.func)
    elif isinstance(node, ast.Name) and node.id in ASKING:  # handed on, to be called elsewhere
        yield f"{place}: {node.id} itself"
    for child in children:
        yield from asked(child, inside)


def asked_in_the_library() -> Iterator[str]:
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if any(name in text for name in ASKING):  # the others are not parsed
            yield from (f"{path.relative_to(SOURCE).as_posix()}:{each}" for each in asked(ast.parse(text)))


def test_no_split_label_space_loss_or_step_is_asked_for_an_attribute_by_name():
    found = set(asked_in_the_library())
    assert sorted(found - ALLOWED.keys()) == []  # new: write it down with a reason, or put it into a base class
    assert sorted(ALLOWED.keys() - found) == []  # gone: take it off the list
