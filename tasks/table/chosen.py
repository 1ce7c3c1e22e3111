"""Which columns are the labels, and of which kind: as given, or guessed."""

from __future__ import annotations

from typing import NamedTuple

from contml import InputError
from contml._support.errors import did_you_mean

from .cells import Decimal
from .described import KINDS
from .guess import Guess, Roles, guess_columns, guess_roles, pair_up
from .paths import CellFiles
from .reading import Table


class Spec(NamedTuple):
    """One label: its columns, its kind, how much it counts, and why it is of that kind."""

    columns: tuple[str, ...]
    kind: str
    weight: float
    why: str

    @property
    def name(self) -> str:
        """What the label is called."""
        return ",".join(self.columns)


def choose(
    table: Table,
    files: CellFiles,
    decimal: Decimal,
    labels: dict[str, str] | None,
    image: str | None,
    split: str | None,
    group: str | None,
) -> tuple[Roles, list[Spec]]:
    """What each column is for. `labels` are kinds by column, None: the one column that can be a label.

    Raises:
        InputError: a column that is not there, an unknown kind, one that cannot be guessed, or no or several labels.
    """
    for column, option in ((image, "image"), (split, "split"), (group, "group")):
        if column is not None:
            table.column(column, option)
    if labels == {}:
        raise InputError("labels is empty; name a label and its kind, {age: number}, or leave it out")
    given = {_columns(table, name): _kind(name, text) for name, text in (labels or {}).items()}
    taken = {column for columns in given for column in columns}
    for column in (image, split):
        if column in taken:
            raise InputError(f"labels: '{column}' is the column of {'images' if column == image else 'the split'}")
    roles = guess_roles(table, files, decimal, image=image, split=split, taken=taken)
    if roles.image is None:
        raise InputError(
            f"{table.path}: no column holds paths of images (it has {', '.join(table.columns)}); name it by image "
            "(--image); the first line of a table names its columns"
        )
    if not given:
        given = {_only_label(table, roles, group): ("auto", 1.0)}
    specs = []
    for columns, (kind, weight) in given.items():
        guess = Guess(kind, "as given") if kind != "auto" else _guessed(table, columns, roles.guesses)
        specs.append(Spec(columns, guess.kind, weight, guess.why))
    return roles, specs


def _columns(table: Table, name: str) -> tuple[str, ...]:
    """The columns of a label: one, or several with commas between."""
    if name in table.columns or name in table.opaque or "," not in name:
        table.column(name, "labels")
        return (name,)
    columns = tuple(column.strip() for column in name.split(","))
    for column in columns:
        table.column(column, "labels")
    if len(set(columns)) < len(columns):
        raise InputError(f"labels: {name} names a column twice")
    return columns


def _kind(name: str, text: str) -> tuple[str, float]:
    """A kind and a weight: "number", "number:0.5", "number:log", "number:log:0.5", "auto"."""
    kind, colon, weight = text.strip().partition(":")
    kind = kind.strip() or "auto"
    form, second_colon, rest = weight.partition(":")
    if f"{kind}:{form.strip()}" in KINDS:
        kind, colon, weight = f"{kind}:{form.strip()}", second_colon, rest
    if kind not in KINDS and kind != "auto":
        hint = did_you_mean(kind.lower(), KINDS)
        raise InputError(
            f"labels: {name}={text}: there is no kind '{kind}'; {hint}{' ' if hint else ''}"
            f"Kinds: {', '.join(KINDS)}, auto"
        )
    try:
        value = float(weight) if colon else 1.0
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        hint = did_you_mean(f"{kind}:{weight.strip()}", (known for known in KINDS if ":" in known))
        raise InputError(
            f"labels: {name}={text}: the weight is '{weight}'; it must be a number above 0, as in {kind}:0.5"
            f"{'; ' if hint else ''}{hint}"
        )
    return kind, value


def _guessed(table: Table, columns: tuple[str, ...], guesses: dict[str, Guess]) -> Guess:
    guess = guesses[columns[0]] if len(columns) == 1 else guess_columns(columns, guesses)
    if not guess.kind:
        name = ",".join(columns)
        raise InputError(
            f"{table.path}: the kind of '{name}' cannot be guessed ({guess.why}); give it as {name}=KIND, with one of "
            f"{', '.join(KINDS)}"
        )
    return guess


def _only_label(table: Table, roles: Roles, group: str | None) -> tuple[str, ...]:
    """The one column (or latitude and longitude) that can be a label."""
    able = {name: guess for name, guess in pair_up(roles.guesses).items() if guess.kind and name != group}
    if len(able) == 1:
        name = next(iter(able))
        return (name,) if name in roles.guesses else tuple(name.split(","))
    if not able:
        why = "; ".join(f"{name}: {guess.why}" for name, guess in roles.guesses.items()) or "it has no other column"
        raise InputError(f"{table.path}: no column can be guessed to be a label ({why}); name one: --label NAME=KIND")
    listed = ", ".join(f"{name} ({guess.kind})" for name, guess in able.items())
    first = next(iter(able))
    raise InputError(
        f"{table.path}: several columns can be the label: {listed}; choose with --label {first}={able[first].kind} "
        f"(in a config labels: {{{first}: {able[first].kind}}})"
    )
