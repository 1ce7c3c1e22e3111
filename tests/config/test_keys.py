"""Keys of a config that the code names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

import matplotlib
from support.paths import ROOT

from contml.app.experiment.parts import schema
from contml.config import Section, options

#: A text that is a key, or a text that sets one: "loss.margin", "set loss.margin=0.1".
_KEY = re.compile(r"^([a-z_]+)\.([a-z_]+)$|(?<![\w./])([a-z_]+)\.([a-z_]+)=")
_FILES = {"csv", "db", "html", "ini", "json", "jsonl", "mat", "md", "npz", "onnx", "parquet", "png", "safetensors"}
_FILES |= {"sqlite", "txt", "yaml"}


#: Names of weights that look like keys.
_WEIGHTS = {("head", "weight")}


def keys() -> dict[str, set[str]]:
    """The options of all parts of each section."""
    found = {}
    for name, section in schema().items():
        if isinstance(section, Section):
            parts = section.parts.values() if isinstance(section.parts, Mapping) else [section.parts]
            found[name] = {"name"}.union(*({option.name for option in options(part)} for part in parts))
    return found


def named(source: str) -> Iterator[tuple[str, str]]:
    """What looks like a key in the texts of a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for match in _KEY.finditer(node.value):
                section, option = match.group(1) or match.group(3), match.group(2) or match.group(4)
                if option not in _FILES and f"{section}.{option}" not in matplotlib.rcParams:
                    yield section, option


def test_every_key_that_the_code_names_exists():
    """A key of a section that was renamed, or of an option that is gone, is compared with nothing."""
    known = keys()
    every_option = set().union(*known.values())
    modules = [*(ROOT / "contml").glob("**/*.py"), *(ROOT / "tasks").glob("**/*.py")]
    texts = {module.relative_to(ROOT).as_posix(): module.read_text("utf-8") for module in modules}
    found = {(key, module) for module, text in texts.items() for key in named(text)}
    wrong = []
    for (section, option), module in sorted(found):
        is_known = option in known.get(section, ()) or (section, option) in _WEIGHTS
        if (section in known or option in every_option) and not is_known:
            wrong.append(f"{module}: {section}.{option}")
    assert not wrong
    assert ("training", "val_share") in {key for key, _ in found}
