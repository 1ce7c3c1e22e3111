"""A suite: the data sets and the methods of a benchmark, and the options of each method. This module imports no torch.

A suite is a YAML file. `suites/` has the bundled ones. `docs/benchmark.md` describes its keys.
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt, ValidationError

from contml._support.errors import InputError, did_you_mean, one_line
from contml.config import Document, read
from contml.config.document import show

#: How many numbers outside of an axis are tried at its end.
_BEYOND = 2


@dataclass(frozen=True)
class SuiteScore:
    """A score of a ranking: the higher, the better.

    Attributes:
        title: the title of its column.
        meaning: its definition, for the page.
        classes: whether it is for labels that are classes. Otherwise it is for graded labels.
    """

    title: str
    meaning: str
    classes: bool = True


#: The first score of graded labels, and the same score of a search through labels.
LABEL_DISTANCE: Final = "label_distance@10"
THROUGH_LABELS: Final = "through_labels@10"
#: The scores by name.
_NORMALIZED = "the normalized score of label distance@10, 0 for a random ranking, 1 for the oracle"
_THROUGH = "the same score of a search by the expected label distance of label posteriors, fitted to the training items"
_KENDALL = "Kendall's tau, the agreement of the whole order with the order by label distance, 1 for the oracle"
_MAP = "MAP@R, the mean average precision at the number of other items of a query's class"
SCORES = {
    LABEL_DISTANCE: SuiteScore("score", _NORMALIZED, classes=False),
    THROUGH_LABELS: SuiteScore("through labels", _THROUGH, classes=False),
    "kendall": SuiteScore("Kendall", _KENDALL, classes=False),
    "recall@1": SuiteScore("Recall@1", "Recall@1, the share of the queries whose nearest item is of their class"),
    "map_at_r": SuiteScore("MAP@R", _MAP),
}
ScoreName: TypeAlias = Literal["label_distance@10", "through_labels@10", "kendall", "recall@1", "map_at_r"]
#: A change to a config, "KEY=VALUE"; or several, with spaces between them.
Change = str


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Inputs(_Strict):
    """How the images of all sets become features.

    Attributes:
        changes: changes to the config of a set, for the network that extracts them.
        maps: take the last feature maps, not their mean. A number divides them into this number of rows and columns,
            and takes the means.
        components: the number of principal components of the training images to keep. null keeps all features.
    """

    changes: tuple[Change, ...]
    maps: bool | PositiveInt = False
    components: int | None = None


class DataSet(_Strict):
    """A data set.

    Attributes:
        config: the config whose task reads it.
        changes: changes to the config.
        options_of: an earlier set whose trials choose the options. With null, this set has its own trials.
        copies: number of training items whose image is also in the validation or the test split. They are left out.
        draw: if it is above 0, another validation split chooses the options. It is drawn with this number from the
            training and validation items together. The trainings that are tested stay the same.
    """

    config: str
    changes: tuple[Change, ...] = ()
    options_of: str | None = None
    copies: int = 0
    draw: NonNegativeInt = 0

    def __hash__(self) -> int:
        return hash((self.config, self.changes))


class Method(_Strict):
    """A method, and the options that it may try.

    Attributes:
        changes: changes to the config.
        grid: the axes of its options, all combinations. A list has alternatives, each a change. A mapping of one key
            has ascending numbers above 0, and the second round of trials also tries numbers outside of them.
        baseline: null: it is trained; "features": the features themselves; "regression": a linear prediction of the
            labels. The grid of a baseline has its own options.
        sets: the data sets on which it is defined. null means all.
        version: raise it when the code of the method changes its results, so that older ones are not used.
    """

    changes: tuple[Change, ...] = ()
    grid: tuple[tuple[Change, ...] | dict[str, tuple[float, ...]], ...] = ()
    baseline: Literal["features", "regression"] | None = None
    sets: tuple[str, ...] | None = None
    version: int = 1

    @property
    def axes(self) -> list[Axis]:
        """The axes of the grid."""
        return [Axis("", part) if isinstance(part, tuple) else Axis(*next(iter(part.items()))) for part in self.grid]

    @property
    def options(self) -> list[str]:
        """The options of the first round: all combinations, each `"KEY=VALUE KEY=VALUE"`."""
        return [" ".join(words) for words in itertools.product(*(axis.words for axis in self.axes))]

    def further(self, chosen: str, count: int) -> list[str]:
        """Return the options of the second round: `count` options around the best one of the first round.

        Each axis of numbers gets an equal share, and the other axes keep their chosen values. If the chosen number is
        at an end of its axis, up to two new numbers are outside of it, in the ratio of the axis. All other new numbers
        are between the chosen number and its neighbours. A method without an axis of numbers has no second round.

        Args:
            chosen: the best one of `options`.
            count: a multiple of the number of axes of numbers.
        """
        axes = self.axes
        words = list(itertools.product(*(axis.words for axis in axes)))[self.options.index(chosen)]
        numbers = [(n, axis) for n, axis in enumerate(axes) if axis.key]
        found = []
        for n, axis in numbers:
            values = axis.around(axis.words.index(words[n]), count // len(numbers))
            found += [" ".join([*words[:n], axis.word(value), *words[n + 1 :]]) for value in values]
        return found

    def at_edge(self, option: str, tried: Sequence[str]) -> list[str]:
        """Return the keys of the axes of numbers on which an option is at an end of all tried numbers."""
        keys = [axis.key for axis in self.axes if axis.key]
        numbers = {key: [_number(each, key) for each in tried] for key in keys}
        return [key for key in keys if _number(option, key) in (min(numbers[key]), max(numbers[key]))]


@dataclass(frozen=True)
class Axis:
    """An axis of a grid: alternatives, or ascending numbers of a key."""

    key: str
    values: tuple[float | str, ...]

    @property
    def words(self) -> list[str]:
        """Each value as a change to the config."""
        return [str(value) if isinstance(value, str) else self.word(value) for value in self.values]

    def word(self, value: float) -> str:
        """Return the change that sets a number."""
        return f"{self.key}={value:.3g}"

    def around(self, position: int, count: int) -> list[float]:
        """Return new numbers around the number at a position of the axis.

        If the position is at an end, two new numbers are outside of the axis. The others are between the number and its
        neighbours.
        """
        values = [float(value) for value in self.values]
        chosen = values[position]
        beyond, inside = list[float](), values[max(0, position - 1) : position + 2]
        inside.remove(chosen)
        if len(inside) == 1:  # at an end
            beyond = [chosen * (chosen / inside[0]) ** step for step in range(1, min(count, _BEYOND) + 1)]
        between = (chosen * (end / chosen) ** (0.5**step) for step in itertools.count(1) for end in inside)
        return [*beyond, *itertools.islice(between, count - len(beyond))]


def _number(option: str, key: str) -> float:
    return next(float(word.partition("=")[2]) for word in option.split() if word.startswith(f"{key}="))


class Claim(_Strict):
    """A published ordering of two methods.

    Attributes:
        better: the method that is better in the publication.
        worse: the other method.
        source: where it is published.
        published: the published numbers.
        sets: the data sets on which it is tested. null means all that have both methods.
    """

    better: str
    worse: str
    source: str
    published: str
    sets: tuple[str, ...] | None = None


class Suite(_Strict):
    """A benchmark.

    Attributes:
        title: the title of its page.
        places: the values that the command line gives as NAME=VALUE, with a description. `$NAME` stands for the value
            in changes.
        inputs: how images become features. With null, whole networks are trained on the images.
        scores: the scores of each query. The first one chooses options.
        train: changes to the config of every set, for all trainings.
        val_share: the share of the training items (or of their groups) that is left out for validation, if a set has
            no validation split.
        sets: the data sets by name.
        methods: the methods by name.
        claims: published orderings, each of which gets a verdict.
        reference: the method that the others are compared with.
        trials: the number of options that each trained method tries in the first round.
        further: the number of options that it tries in the second round.
        seeds: the seeds of the trainings that are measured on the test split. Trials have seed 0.
        seconds: the seconds of a training, for the plan, until some trainings are recorded.
    """

    title: str
    places: dict[str, str] = {}
    inputs: Inputs | None = None
    scores: tuple[ScoreName, ...] = (LABEL_DISTANCE,)
    train: tuple[Change, ...]
    val_share: float = 0.25
    sets: dict[str, DataSet]
    methods: dict[str, Method]
    claims: tuple[Claim, ...] = ()
    reference: str
    trials: int
    further: int = 0
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    seconds: float = 5.0

    @property
    def trained(self) -> list[str]:
        """The names of the methods that are not baselines."""
        return [name for name, method in self.methods.items() if method.baseline is None]

    def sets_of(self, method: str) -> tuple[str, ...]:
        """Return the names of the sets on which a method is defined."""
        return self.methods[method].sets or tuple(self.sets)

    def sets_of_claim(self, claim: Claim) -> list[str]:
        """Return the names of the sets on which a claim is tested."""
        both = set(self.sets_of(claim.better)) & set(self.sets_of(claim.worse))
        return [name for name in claim.sets or self.sets if name in both]


def filled(changes: Sequence[Change], values: Mapping[str, str]) -> list[str]:
    """Return changes with a text in place of each `$name`.

    Raises:
        InputError: a name has no text.
    """
    try:
        return [string.Template(change).substitute(values) for change in changes]
    except KeyError as error:
        raise InputError("changes", f"${error.args[0]}", hint="give it in places") from None
    except ValueError:
        raise InputError("changes", ", ".join(changes), hint="write $$ for a dollar sign") from None


def suite_names() -> list[str]:
    """Return the names of the suites that come with contml."""
    return sorted(path.stem for path in _folder().glob("*.yaml"))


def _folder() -> Path:
    return Path(str(files("contml.app.trials") / "suites"))


def read_suite(name: str) -> Suite:
    """Read a suite that comes with contml, by its name, or a suite in a YAML file.

    Raises:
        InputError: there is no such suite, or it has an error.
    """
    document = _read(name)
    values = _with_base(document, Path(name).parent) if "base" in document.values else document.values
    try:
        suite = Suite.model_validate(values)
    except ValidationError as error:
        raise _refused(error, values, document) from None
    _check(suite, document)
    return suite


def _read(name: str, folder: Path = Path()) -> Document:
    bundled = name in suite_names()
    if not bundled and not name.endswith((".yaml", ".yml")):
        names, default = suite_names(), f"choose {' or '.join(suite_names())}, or give the path of a YAML file"
        raise InputError(name, "no such suite", hint=did_you_mean(name, names, default))
    path = _folder() / f"{name}.yaml" if bundled else folder / name
    return read(path, (), name if bundled else str(path), bundled=bundled)


def _with_base(document: Document, folder: Path) -> dict[str, Any]:
    """Return the values of a suite in a folder that is defined by its differences from another suite, its base.

    Its own keys replace the keys of the base. Its changes in `train` come after the changes of the base. `sets` and
    `methods` may be lists of names of the base: "poses, draw 1" is the set "poses" with `draw: 1`.
    """
    name = document.values["base"]
    if not isinstance(name, str):
        raise document.error(("base",), str(name), "must be the name of a suite, or a YAML file")
    try:
        base = _read(name, folder).values
    except InputError as error:
        raise error.at(document.origin(("base",))) from None
    if "base" in base:
        raise document.error(("base",), name, "must have no base itself")
    values = {**base, **document.values}
    del values["base"]
    for key in ("sets", "methods"):
        if isinstance(values[key], list):
            listed = [str(each) for each in values[key]]
            source = {each: _drawn(each) if key == "sets" else (each, 0) for each in listed}
            if unknown := [each for each in listed if source[each][0] not in base[key]]:
                hint = did_you_mean(unknown[0], base[key], f"choose of {', '.join(base[key])}")
                raise document.error((key,), unknown[0], f"must be of {name}", hint)
            values[key] = {each: base[key][name] for each, (name, _) in source.items()}
            for each, (_, draw) in source.items():
                if draw:
                    values[key][each] = {**values[key][each], "draw": draw}
    if isinstance(document.values.get("train"), list):
        values["train"] = [*base["train"], *document.values["train"]]
    own = document.values.get("methods")
    if not isinstance(own, dict) and isinstance(values["methods"], dict) and isinstance(values["sets"], dict):
        kept = {each: _of_sets(method, values["sets"]) for each, method in values["methods"].items()}
        if own and (without := [each for each, method in kept.items() if method is None]):
            raise document.error(("methods",), without[0], "is defined on none of the sets")
        values["methods"] = {each: method for each, method in kept.items() if method is not None}
    return values


def _drawn(name: str) -> tuple[str, int]:
    """Return the name of a set in the base, and its draw."""
    base, _, draw = name.partition(", draw ")
    return (base, int(draw)) if draw.isdecimal() else (name, 0)


def _of_sets(method: Any, sets: Mapping[str, Any]) -> Any:
    """Return a method of the base on the sets of a suite. Return None if it is defined on none of them."""
    if not isinstance(method, dict) or not isinstance(method.get("sets"), list):
        return method
    known = [each for each in sets if _drawn(each)[0] in method["sets"]]
    return {**method, "sets": known} if known else None


def _refused(error: ValidationError, values: Any, document: Document) -> InputError:
    """Return the error for the first problem of a suite, with its line: an unknown key, or a value of another type."""
    details = error.errors(include_url=False)[0]
    # pydantic also names the types of a union that it tried: they are no keys.
    written, key = values, tuple[str, ...]()
    for part in map(str, details["loc"]):
        inside = written.get(part) if isinstance(written, dict) else None
        if isinstance(written, list) and part.isdecimal() and int(part) < len(written):
            inside = written[int(part)]
        elif not (isinstance(written, dict) and (part in written or details["type"] == "missing")):
            continue
        written, key = inside, (*key, part)
    if details["type"] == "missing":
        return document.error(key, "missing", hint=_HINT)
    if details["type"] == "extra_forbidden":
        return document.error(key, "unknown key", hint=_HINT)
    allowed = details["msg"].replace("Input should be", "must be").replace("valid tuple", "list")
    allowed = one_line(ValueError(allowed.replace("valid dictionary", "mapping").replace("valid ", "")))
    return document.error(key, show(written), allowed, _HINT)


#: Where the keys are described.
_HINT = "docs/benchmark.md describes the keys of a suite"


def _check(suite: Suite, document: Document) -> None:
    if not suite.scores or len({SCORES[name].classes for name in suite.scores}) > 1:
        raise document.error(("scores",), ", ".join(suite.scores) or "none", "must be of classes, or of graded labels")
    if len(set(suite.scores)) < len(suite.scores):
        raise document.error(("scores",), "a score appears twice", hint="remove one")
    earlier = list[str]()
    for name, data in suite.sets.items():
        if data.options_of is not None and data.options_of not in earlier:
            allowed = f"must be an earlier set with trials of its own ({', '.join(earlier) or 'none'})"
            raise document.error(("sets", name, "options_of"), data.options_of, allowed)
        earlier += [name] if data.options_of is None else []
    for n, claim in enumerate(suite.claims):
        for part, name in (("better", claim.better), ("worse", claim.worse)):
            if name not in suite.methods:
                hint = did_you_mean(name, suite.methods, "name a method of the suite")
                raise document.error(("claims", str(n), part), name, hint=hint)
        if unknown := set(claim.sets or ()) - set(suite.sets):
            raise document.error(("claims", str(n), "sets"), min(unknown), f"must be of {', '.join(suite.sets)}")
        if not suite.sets_of_claim(claim):
            raise document.error(("claims", str(n)), f"no set has {claim.better} and {claim.worse}")
    if suite.reference not in suite.trained:
        raise document.error(("reference",), suite.reference, f"must be one of {', '.join(suite.trained) or '(none)'}")
    for name, method in suite.methods.items():
        key = ("methods", name)
        if any(isinstance(part, dict) and len(part) != 1 for part in method.grid):
            raise document.error((*key, "grid"), "an axis of several keys", hint="write each as an axis of its own")
        if unknown := set(method.sets or ()) - set(suite.sets):
            raise document.error((*key, "sets"), min(unknown), f"must be of {', '.join(suite.sets)}")
        for axis in method.axes:
            numbers = [float(value) for value in axis.values] if axis.key else [1.0, 2.0]
            if len(numbers) < 2 or numbers != sorted(set(numbers)) or numbers[0] <= 0:
                raise document.error(
                    (*key, "grid"), f"{axis.key} {list(axis.values)}", "must be ascending numbers above 0"
                )
        options, number_axes = method.options, sum(bool(axis.key) for axis in method.axes)
        if len(set(options)) < len(options):
            raise document.error((*key, "grid"), "an option appears twice", hint="every trial must differ")
        if method.baseline is not None:
            if suite.inputs is None:
                got = "a baseline of features"
                raise document.error((*key, "baseline"), got, hint="omit it, or add 'inputs', which makes them")
            continue
        if len(options) != suite.trials:
            got = f"{len(options)} options"
            raise document.error((*key, "grid"), got, f"must be {suite.trials}, as many as of every method")
        if suite.further and (not number_axes or suite.further % number_axes):
            got = f"{number_axes} axes of numbers"
            raise document.error((*key, "grid"), got, f"further ({suite.further}) must be a multiple of their number")
