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
ALLOWED = {
    "config/schema.py:_from_data: parameter.annotation": "a class, or its name where annotations are postponed",
    # A sampler may be anybody's own class.
    "testing.py:_sampler_failures: sampler": "a sampler may keep a state",
    "training/setup.py:check_items: sampler": "a sampler may know the number of its items",
    # Not a step itself, but any module in it.
    "training/setup.py:check_flip: module": "of the modules of a step, a memory compares batches",
    # Models are any torch.nn.Module.
    "models/backbones.py:build: backbone": "a network may say which pixels it expects",
    "training/hdml.py:HDML.check: model": "refuses a model without the head that it needs",
    "config/source.py:_file: sys.modules.get(package)": "a module of Python is a package if it has a path",
    "training/setup.py:model_groups: model": "a model may list the parameters of its head",
    "models/network.py:stage_of: backbone": "networks of timm say what their stages are",
    # Objects of other libraries, in one version or another.
    "_support/files.py:_no_link: os": "flags of POSIX alone",
    "_support/door.py:opened: os": "flags of POSIX or of Windows alone",
    "processes.py:wait_longer: dist": "torch 2.14 and later",
    "search/segments.py:_opened: error": "errors of the system have a text",
    "training/optimizers.py:_eager: kind": "optimizers of PyTorch have methods that its compiler wraps",
    "data/values.py:_numbers: picture": "pictures of Pillow that were not read from a file have no tiles",
    "transport/vector_operations.py:_arithmetic.code: builder": "the instructions of llvmlite are methods by name",
    "transport/vector_operations.py:pointer: array": "types of Numba: arrays alone have a layout",
    "distances/nearest.py:rounded_inputs: products": "torch 2.9 and later",
    "distances/nearest.py:rounded_inputs: torch.backends.mkldnn": "torch 2.9 and later",
    "labels/scales.py:_ordered_categories: labels": "a column of pandas",
    "labels/scales.py:_ordered_categories: dtype": "a column of pandas that has an order",
    "labels/word_vectors.py:vector_source: vectors": "word vectors are a mapping, or gensim's",
    "losses/inputs.py:_as_space: labels": "a column of a data frame, which may have categories",
    "losses/inputs.py:_as_space: categories": "a column of a data frame, which may have categories",
    "data/table_columns.py:TableBuilder.add: values": "an array of Arrow, whole or in chunks",
    "data/table_formats.py:_unpacked_size: chunk": "arrays of Arrow: lists alone are flattened",
    "_support/signals.py:module: signal": "Windows has no SIGHUP",
    # Modules, functions and records of our own, asked for a name that is a value.
    "config/__init__.py:_fits: contract": "a contract may be a protocol, of which issubclass checks no methods",
    "config/__init__.py:_fits: kind": "the user's own class",
    "_support/imports.py:import_by_name: target": "the object that a config names",
    "_support/imports.py:lazy_names.get: module": "a name of a package",
    "config/schema.py:_help: source": "the text of a class or a function",
    "config/schema.py:words: kind": "the name of a type",
}


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = getattr(labels, 'rows', None)", ["a.py:module: labels"]),
        ("class A:\n    def f(self):\n        return lambda: getattr(self.loss, 'x')", ["a.py:A.f: self.loss"]),
        ("rows = map(operator.attrgetter('rows'), spaces)", ["a.py:module: 'rows'"]),
        ("ask = hasattr", ["a.py:module: hasattr itself"]),
    ],
)
def test_what_asks_by_name_is_found(text, expected):
    assert asked(text, "a.py") == expected
