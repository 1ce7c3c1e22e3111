"""Text from data is printed through one function: a terminal shows it and does not obey it."""

import ast
from pathlib import Path

import pytest

import contml
from contml import InputError
from contml._support.progress import TrainingProgress
from contml._support.text import plain_text
from contml.app.cli.printing import echo, print_broken, print_table

#: Moves the cursor, sets the title of the window, reverses the direction of text, breaks lines, cannot be encoded.
HOSTILE = "a\x1b[2Jb\x1b]0;title\x07c\u202ed\u2066e\rf\ng\u2028h\x85i\x9b1mj\udcffk\u200bl\ufeffm"


#: Functions that print text as it is.
FORBIDDEN = ("typer.echo", "typer.secho", "click.echo", "sys.stdout.write")


def check(shown):
    assert not [c for c in shown.rstrip("\n") if c != "\n" and not c.isprintable()]
    shown.encode()


@pytest.mark.parametrize(
    "text",
    [
        "été", "ü 漢\u3000字", "नमस्ते", "\u0646\u0635\u200c\u0647\u0627", "👩\u200d👩\u200d👧", "a\u00a0b", "1\u202f000",
        "",
    ],
    ids=ascii,
)  # fmt: skip
def test_words_of_all_languages_are_shown_as_they_are(text):
    assert plain_text(text) == text


def test_what_a_terminal_would_obey_is_escaped(capsys):
    check(plain_text(HOSTILE))
    assert plain_text("a\nb\t\x00", lines=True) == "a\nb\t\\x00"
    check(str(InputError(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE)))
    echo(HOSTILE)
    echo(HOSTILE, lines=True, err=True)
    print_broken(HOSTILE, HOSTILE)
    print_table([["name", HOSTILE], [HOSTILE, "1"]])
    TrainingProgress(1, 1, 0).line(HOSTILE)
    output = capsys.readouterr()
    check(output.out)
    check(output.err)
    assert "\\x1b[2J" in output.out
    assert output.out.count("\n") == 3  # a line, and a table of two


def test_the_commands_print_with_no_other_function():
    """`print`, `typer.echo` and `sys.stdout` would print text from data as it is."""
    for path in Path(contml.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "typer" and path.name != "printing.py":
                assert "echo" not in [name.name for name in node.names], path
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                assert ast.unparse(node.func) not in FORBIDDEN, path
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id != "print", path
