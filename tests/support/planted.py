"""Errors to plant, one at a time, in a copy of the project: which tests find each of them?

    python tests/support/planted.py [--all] [--only TEXT] [--seconds 300]

Each error is one that a commit of this repository mended, or its like in another module. The program copies the tracked
files, plants an error, and runs the 20 nearest files of tests that import the module, up to the second test that fails.
It prints a table: the error, the number of tests that found it, and their names.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]


class Planted(NamedTuple):
    """An error: the file, its text, the text in its place, and the commit that mended it or brought the right text."""

    file: str
    before: str
    after: str
    commit: str


def _read(block: str) -> Planted:
    """Read an error: its file and commit, then the lines that are changed, as in a difference of git."""
    first, *lines = block.split("\n")
    before, after = ("\n".join(line[1:] for line in lines if line[0] == sign) for sign in "-+")
    file, commit = first.split()
    return Planted(file, before, after, commit)


PLANTED = [_read(block) for block in (ROOT / "tests/planted.txt").read_text(encoding="utf-8").strip().split("\n\n")]


def nearest_tests(root: Path, file: str) -> list[str]:
    """Return the test files that reach a module by imports: of its own name and room first, then the nearest."""
    paths = {str(path.relative_to(root)) for top in ("contml", "tasks", "tests") for path in (root / top).rglob("*.py")}
    importers: dict[str, set[str]] = {}
    for path in paths:
        for name in _imported((root / path).read_text(encoding="utf-8")):
            stem = name.replace("contml.tasks", "tasks").replace(".", "/")
            for found in {f"{stem}.py", f"{stem}/__init__.py", f"tests/{stem}.py"} & paths:
                importers.setdefault(found, set()).add(path)
    steps, todo = {file: 0}, [file]
    for path in todo:  # grows
        for each in sorted(importers.get(path, set()) - steps.keys()):
            steps[each] = steps[path] + 1
            todo.append(each)
    stem, room = Path(file).stem.strip("_"), Path(file).parent.name
    tests = [path for path in paths if Path(path).name.startswith("test_")]
    order = {path: (stem not in path, f"/{room}/" not in path, steps.get(path, 99), path) for path in tests}
    reached = [path for path in tests if path in steps or not all(order[path][:2])]
    return sorted(reached, key=order.__getitem__)


def _imported(source: str) -> set[str]:
    """Return the modules that a file names; commands by the fixtures that start them, and names at the front door."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names | ({"contml.app.cli.commands"} if re.search(r"\b(contml|accepted|refused)\(", source) else set())


def copied(folder: Path) -> Path:
    """Copy the tracked files of the project, as they are now."""
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    for name in filter(None, names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).exists():
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    return folder


def failing(root: Path, groups: list[list[str]], seconds: float, most: int = 2) -> list[str]:
    """Run groups of tests in a copy, and return the names of those that failed; with `most`, no more than so many."""
    options = ["-q", "--tb=no", "-p", "no:cacheprovider", *([f"--maxfail={most}"] if most else [])]
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    found, end = list[str](), time.monotonic() + seconds
    for tests in groups:
        command = [sys.executable, "-m", "pytest", *options, *tests]
        try:
            left = max(1, end - time.monotonic())
            result = subprocess.run(
                command, cwd=root, env=environment, capture_output=True, text=True, timeout=left, check=False
            )
        except subprocess.TimeoutExpired:
            return [*found, "(ran past the limit of time)"]
        found += re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", result.stdout, re.M)
        if most and len(found) >= most:
            break
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="run the whole suite for each error, to its end")
    parser.add_argument("--only", default="", help="only the errors in files whose path has this text")
    parser.add_argument("--seconds", type=float, default=300, help="limit for each error")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root, now = copied(Path(folder)), int(time.time())
        for number, error in enumerate(PLANTED, start=1):
            if options.only not in error.file:
                continue
            path = root / error.file
            source = path.read_text(encoding="utf-8")
            tests = nearest_tests(root, error.file)
            groups = [["tests"]] if options.all else [tests[:2], tests[2:6], tests[6:20]]
            path.write_text(source.replace(error.before, error.after), encoding="utf-8")
            os.utime(path, (now + 2 * number, now + 2 * number))  # what was compiled before is not used
            for compiled in root.rglob("*.nb[ci]") if "numba" in source else ():
                compiled.unlink()  # numba keeps callers in other files as they were
            found = failing(root, list(filter(None, groups)), options.seconds, most=0 if options.all else 2)
            path.write_text(source, encoding="utf-8")
            os.utime(path, (now + 2 * number + 1, now + 2 * number + 1))
            print(f"| {number} | {error.file}: {error.after[:60]!r} | {len(found)} | {', '.join(found)} |", flush=True)


if __name__ == "__main__":
    main()
