"""Hints fit the command: no hint names an option, or a key of a config, that the command does not take."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest
import typer
from support.paths import ROOT

from contml import InputError
from contml.app.cli.commands import _called, app
from contml.app.cli.hints import CONFIGURED, RECORDED, SECTIONS, fitting
from contml.app.experiment.parts import schema
from contml.config import Section

COMMANDS = [*typer.main.get_command(app).commands, "train --resume"]
MODEL = [name for name in COMMANDS if name not in (*CONFIGURED, *RECORDED, "train --resume")]
KEY = re.compile(rf"\bset [a-z_]+=|\b(?:{'|'.join(SECTIONS)})\.[a-z_]+")


def strings(node: ast.AST) -> list[str]:
    """The texts that an expression may be; `x` in place of what is computed."""
    if isinstance(node, ast.Constant):
        return [node.value] if isinstance(node.value, str) else []
    if isinstance(node, ast.JoinedStr):
        return ["".join(v.value if isinstance(v, ast.Constant) else "x" for v in node.values)]
    if isinstance(node, ast.IfExp):
        return strings(node.body) + strings(node.orelse)
    if isinstance(node, ast.BinOp):
        return [a + b for a in strings(node.left) or [""] for b in strings(node.right) or [""]]
    return []


@cache
def hints() -> list[str]:
    """All hints in the sources: arguments of InputError, and variables named so."""
    found = []
    for package in ("contml", "tasks"):
        for file in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("InputError", ".error")):
                    values = [k.value for k in node.keywords if k.arg == "hint"] or node.args[3:4]
                    found += [text for value in values for text in strings(value)]
                elif isinstance(node, ast.Assign) and "hint" in ast.unparse(node.targets[0]).lower():
                    found += strings(node.value)
    return found


def test_the_sections_are_those_of_the_schema():
    assert set(SECTIONS) == {name for name, entry in schema().items() if isinstance(entry, Section)} | {"seed"}
    assert set(CONFIGURED) | set(RECORDED) <= set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_hint_of_the_sources_names_what_a_command_does_not_take(command):
    texts = hints()
    assert len(texts) > 300
    assert any("images.broken=skip" in text for text in texts)
    _, options = _called(command.split())
    if command == "train --resume":
        assert "--resume" in options
    for text in texts:
        hint = fitting(InputError("x", hint=text), command, options).hint
        rest = ", or ".join(clause for clause in re.split(", or |; ", hint) if "contml " not in clause)
        plain = re.sub("'[^']*'", "", rest)
        if command in MODEL:
            assert not KEY.search(plain), (text, hint)
        elif command not in CONFIGURED:
            for key in re.findall(r"\bset ([a-z_.]+)=", plain):
                assert key in ("task.root", "model.weights"), (text, hint)
        for option in re.findall(r"(?<![\w-])--[a-z-]+", plain):
            assert option in options or command in CONFIGURED, (text, hint)


@pytest.mark.parametrize(("hint", "command", "expected"), [
    ("fix the file, or set images.broken=skip to leave it out", "train", None),
    ("fix the file, or set images.broken=skip to leave it out", "search", "fix the file"),
    ('fix the file, or set broken="skip" to leave it out', "search", "fix the file"),
    (
        "complete the file, or set task.missing=drop",
        "evaluate",
        "complete the file, or start a new run with task.missing=drop",
    ),
    ("paths are relative to a: set task.root=b", "report", None),
    ("restore them, start a new run, or go on with --accept-changes", "report", None),
    ("restore them, start a new run, or go on with --accept-changes", "audit", "restore them, or start a new run"),
    ("restore them, start a new run, or go on with --accept-changes", "train --resume",
     "restore them, or start a new run"),
    ("continue it with 'contml train --resume runs/x'", "check", None),
    ("your own data are given as --data a.csv", "check", None),
    ("your own data are given as --data a.csv", "embed", ""),
    ("set loss.beta=10", "train", None),
    ("set model.dim=8", "export", ""),
    ("did you mean 'task.root'?", "embed", None),
    ("", "embed", None),
])  # fmt: skip
def test_a_hint_that_fits(hint, command, expected):
    _, options = _called(command.split())
    error = fitting(InputError("a", "b", "c", hint, "d"), command, options)
    assert error.hint == (hint if expected is None else expected)
    assert (error.subject, error.got, error.allowed, error.origin) == ("a", "b", "c", "d")


@pytest.mark.parametrize("command", ["search i good.png --epochs 3", "embed run good.png --out a.npz --epochs 3"])
def test_an_unknown_option_is_an_option_of_a_config_where_there_is_one(contml, command):
    _, _, err = contml(*command.split())
    assert "No such option: --epochs" in err
    assert "config" not in err
    assert "training.epochs=3" in contml("train", "--epochs", "3")[2]
