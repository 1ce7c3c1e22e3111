"""Lines of code by package, without docstrings, comments and blank lines.

python -m benchmarks.code_size
"""

from __future__ import annotations

import ast
import io
import tokenize
from pathlib import Path

from benchmarks.measure import table

_ROOT = Path(__file__).parent.parent
_SKIPPED = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def lines_of_code(source: str) -> int:
    """Lines that hold a token of code; a docstring is none."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            docstrings.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {n for t in tokens if t.type not in _SKIPPED for n in range(t.start[0], t.end[0] + 1)}
    return len(lines - docstrings)


def main() -> None:
    rows = [["package", "files", "lines of code"]]
    parts = sorted(path for path in (_ROOT / "contml").iterdir() if not path.is_symlink())
    packages = [*parts, *(_ROOT / name for name in ("tasks", "benchmarks", "tests"))]
    total = 0
    for package in packages:
        files = [package] if package.suffix == ".py" else sorted(package.rglob("*.py"))
        if files:
            lines = sum(lines_of_code(file.read_text(encoding="utf-8")) for file in files)
            rows.append([str(package.relative_to(_ROOT)), str(len(files)), f"{lines:,}"])
            total += lines if package.name not in ("benchmarks", "tests") else 0
    print(table([*rows, ["**contml and tasks**", "", f"{total:,}"]]))


if __name__ == "__main__":
    main()
