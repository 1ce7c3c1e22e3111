"""`InputError`: its fields, its one line, its origin, and its way back from a worker process."""

import copy
import pickle

import pytest

from contml import InputError
from contml._support.errors import closest, did_you_mean, lost_worker, one_line
from contml.app.cli import commands

FIELDS = ("subject", "got", "allowed", "hint", "origin")
WHOLE = InputError("batch_size", "1", "must be at least 2", "a batch compares items", "my.yaml:3")


def fields(error):
    return {name: getattr(error, name) for name in FIELDS}


@pytest.mark.parametrize("origin", ["", "O"])
@pytest.mark.parametrize(("got", "allowed", "hint", "details"), [
    ("", "", "", ""), ("G", "", "", ": G"), ("", "A", "", ": A"), ("", "", "H", ": H"), ("G", "A", "", ": G; A"),
    ("G", "", "H", ": G; H"), ("", "A", "H", ": A; H"), ("G", "A", "H", ": G; A; H"),
])  # fmt: skip
def test_empty_fields_are_omitted(got, allowed, hint, details, origin):
    error = InputError("S", got, allowed, hint, origin)
    assert isinstance(error, ValueError)
    assert str(error) == ("O: S" if origin else "S") + details
    assert fields(error) == {"subject": "S", "got": got, "allowed": allowed, "hint": hint, "origin": origin}


def test_origins_are_printed_from_the_outermost_and_added_to_a_copy():
    error = InputError("dim", "0", "must be above 0", "omit it")
    located = error.at("model").at("my.yaml:7").at("runs/1")
    assert fields(located) == {**fields(error), "origin": "runs/1: my.yaml:7: model"}
    assert (str(located), error.origin) == ("runs/1: my.yaml:7: model: dim: 0; must be above 0; omit it", "")


@pytest.mark.parametrize("line_break", ["\n", "\r\n", "\r", "\x0b", "\u2028"])
@pytest.mark.parametrize("name", FIELDS)
def test_the_text_is_one_line_whatever_the_fields_contain(name, line_break):
    error = InputError(**{**fields(WHOLE), name: f"first{line_break}second"})
    assert len(str(error).splitlines()) == 1
    assert "first second" in str(error)
    assert getattr(error, name) == f"first{line_break}second"


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("error", [WHOLE, InputError("dim"), InputError("a", hint="b").at("c").at("d")])
def test_pickling_keeps_every_field(error, protocol):
    for copied in (pickle.loads(pickle.dumps(error, protocol)), copy.copy(error), copy.deepcopy(error)):
        assert type(copied) is InputError
        assert (fields(copied), str(copied)) == (fields(error), str(error))


def test_an_error_on_one_line():
    assert (one_line(ValueError("a\n  b\tc")), one_line(ValueError("x" * 300))) == ("a b c", "x" * 200)
    assert one_line(KeyboardInterrupt()) == "KeyboardInterrupt"


def test_suggestions():
    assert closest("recal", ["recall", "precision"]) == "recall"
    assert closest("zzz", ["recall"]) is None
    assert did_you_mean("recal", ["recall", "precision"]) == "did you mean 'recall'?"
    assert did_you_mean("zzz", ["recall"]) == ""
    assert did_you_mean("zzz", ["recall"], "allowed: recall") == "allowed: recall"


@pytest.mark.parametrize("message", ["DataLoader worker (pid 7) is killed by signal: Killed.", "another error"])
def test_a_worker_that_is_killed_is_one_line_wherever_the_program_is(monkeypatch, capsys, message):
    """PyTorch raises its error from a signal handler, in whatever code runs."""

    def app(**_):
        raise RuntimeError(message)

    monkeypatch.setattr(commands, "app", app)
    if lost_worker(RuntimeError(message)) is None:
        with pytest.raises(RuntimeError, match=message):
            commands.main()
    else:
        with pytest.raises(SystemExit):
            commands.main()
        line = "a worker process: ended before its work was done; is there too little memory? try fewer workers"
        assert capsys.readouterr().err == f"contml: {line}\n"
