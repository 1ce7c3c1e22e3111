"""Options that nothing sets: arguments with a default that no call, config or page gives.

    python -m benchmarks.unused_options

Lists arguments of the functions, constructors and commands of contml and tasks, and whether a test sets them. An
argument is set where a call by the function's name gives it, by keyword or by position, or where a config or a page
writes `name: value`, `name=value` or `--name`. What only its own test sets can go, unless a user would expect it.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.measure import table

_ROOT = Path(__file__).parent.parent


def _files(suffix: str, *folders: str) -> list[Path]:
    """The files with this suffix in some folders, without files reached through links."""
    paths = (path for folder in folders for path in sorted((_ROOT / folder).rglob(f"*{suffix}")))
    return [path for path in paths if path.resolve() == path]


def _calls(files: Iterable[Path]) -> dict[str, list[ast.Call]]:
    """All calls by the last name of what they call; of `partial(f, ...)`, also as a call of f."""
    calls = defaultdict(list)
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                calls[ast.unparse(node.func).split(".")[-1]].append(node)
                if ast.unparse(node.func) in ("partial", "replace") and node.args:
                    called = ast.unparse(node.args[0]).split(".")[-1]
                    calls[called].append(ast.Call(node.args[0], node.args[1:], node.keywords))
    return calls


def _is_set(calls: Iterable[ast.Call], name: str, place: int | None) -> bool:
    """Whether a call gives the argument; one with `*` or `**` may give all."""
    return any(
        any(keyword.arg in (name, None) for keyword in call.keywords)
        or any(isinstance(value, ast.Starred) for value in call.args)
        or (place is not None and len(call.args) > place)
        for call in calls
    )


def _options(file: Path) -> Iterator[tuple[str, str, str, int | None]]:
    """What is called, how errors would name it, and name and place of each argument with a default."""
    for parent in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        for node in ast.iter_child_nodes(parent):
            if isinstance(node, ast.FunctionDef):
                is_method = isinstance(parent, ast.ClassDef)
                called = parent.name if isinstance(parent, ast.ClassDef) and node.name == "__init__" else node.name
                shown = f"{parent.name}.{node.name}" if isinstance(parent, ast.ClassDef) else node.name
                positional = [*node.args.posonlyargs, *node.args.args]
                first = len(positional) - len(node.args.defaults)
                for place, argument in enumerate(positional[first:], start=first - is_method):
                    yield called, shown, argument.arg, place
                for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
                    if default is not None:
                        yield called, shown, argument.arg, None


def main() -> None:
    pages = [
        _ROOT / "README.md",
        _ROOT / "CONTRIBUTING.md",
        *_files(".md", "docs"),
        *_files(".yaml", "configs", "docs"),
    ]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages).replace("_", "-")
    written = set(re.findall(r"(?:--|\b)([a-z][\w-]*)(?=\s?[:=])|--([a-z][\w-]*)", text))
    names = {name for pair in written for name in pair}
    used, tested = _calls(_files(".py", "contml", "tasks", "benchmarks", "examples")), _calls(_files(".py", "tests"))
    rows = [["file", "function", "option", "set by tests"]]
    for file in _files(".py", "contml", "tasks"):
        for called, shown, name, place in _options(file):
            if name.replace("_", "-") not in names and not _is_set(used[called], name, place):
                is_tested = "yes" if _is_set(tested[called], name, place) else ""
                rows.append([str(file.relative_to(_ROOT)), shown, name, is_tested])
    print(table(rows))


if __name__ == "__main__":
    main()
