"""Hints that fit the command. A hint may name only options that the command has.

The library writes in a hint how an option is set: "complete the file, or set task.missing=drop". Not every command has
options of a config. A command that reads a run has the options of the run. A command that loads a model has none. So an
error goes through `fitting` before it is printed. A whole command in a hint, in quotes or after "contml", fits
everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from contml._support.errors import InputError
from contml.runs import PLACES

#: Sections of a config, and its other keys.
SECTIONS = (
    *("task", "binarize", "model", "captioner", "decoder", "images", "transform", "sampler", "loss", "miner", "memory"),
    *("regularizer", "step", "optimizer", "schedule", "training", "published", "seed"),
)
#: Commands that take the options of a config, and commands that read a run with its config. Others take none.
CONFIGURED = ("train", "sweep", "check", "features")
RECORDED = ("evaluate", "report", "compare", "explore", "audit")

_BETWEEN = re.compile(r"(, or |; or |; )")
_QUOTED = re.compile(r"'[^']*'")
_OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")
_SET = re.compile(r"\bset (?=([a-z_]+(?:\.[a-z_]+)*)=)")
_KEY = re.compile(rf"\b(?:set [a-z_]+=|(?:{'|'.join(SECTIONS)})\.[a-z_]+)")


def fitting(error: InputError, command: str, options: Collection[str]) -> InputError:
    """Return the error with a hint that fits the command.

    Args:
        error: the error.
        command: the command that raised it, such as "search". "train --resume" is a training that continues.
        options: the options that the command has, such as "--json".
    """
    parts = _BETWEEN.split(error.hint)
    clauses, words = parts[::2], parts[1::2]
    fits = [_fits(clause, command, options) for clause in clauses]
    kept = ""
    for clause, word, fit in zip(clauses, ["", *words], fits, strict=True):
        if fit:
            kept += (word if kept else "") + _fitted(clause, command)
    if not all(fits) and " or " not in kept and ", " in kept:  # the last one of a list of clauses was left out
        kept = ", or ".join(kept.rsplit(", ", 1))
    return InputError(error.subject, error.got, error.allowed, kept, error.origin)


def _fits(clause: str, command: str, options: Collection[str]) -> bool:
    if "contml " in clause:
        return True
    plain = _QUOTED.sub("", clause)
    if command not in (*CONFIGURED, *RECORDED, "train --resume") and _KEY.search(plain):
        return False
    named_in_config = command in CONFIGURED and _KEY.search(plain) is not None
    return named_in_config or all(option in options for option in _OPTION.findall(plain))


def _fitted(clause: str, command: str) -> str:
    """Return the clause in a form that fits the command.

    If the command reads a recorded run, "set KEY=" becomes "start a new run with KEY=". The keys in `PLACES` can be
    set, so their clauses stay.
    """
    if command in CONFIGURED or "contml " in clause:
        return clause
    return _SET.sub(lambda found: found.group(0) if found.group(1) in PLACES else "start a new run with ", clause)
