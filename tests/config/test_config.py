from __future__ import annotations

import json
import math
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

import pytest
import torch
from hypothesis import given, strategies as st
from support.refusals import refuses

from contml import InputError
from contml.config import Config, ConfiguredPart, Document, Option, Section, data_arguments, difference, dump, options

from contml.config import read, resolved, summary, validate  # isort: skip

NAME = "pose/synthetic.yaml"


class LogRatio:
    """Ratios of embedding distances follow ratios of label distances.

    More words.

    Args:
        squared: squares the embedding
            distances: both of them.
        strict (bool): only pairs that differ.
        dim: of the embedding.

    Example:
        margin: not an argument
    """

    def __init__(self, squared: bool = True, strict: bool = False, *, dim: int | None = None) -> None:
        self.squared, self.strict, self.dim = squared, strict, dim


Mining: TypeAlias = Literal["all", "hard"]
Bounds: TypeAlias = tuple[float, float]
UNIT = (0.0, 1.0)


class Triplet:
    """Triplet loss with a margin."""

    def __init__(
        self, margin: float = 0.2, mining: Mining = "all", bounds: Bounds = UNIT, *_: Any, num_classes: int, **__: Any
    ) -> None:
        """Makes it.

        Args:
            margin: by how much.
        """
        if margin <= 0:
            raise InputError("margin", f"{margin:g}", "must be above 0")
        if bounds[0] > bounds[1]:
            raise InputError("interval", f"{bounds}")
        self.margin, self.num_classes = margin, num_classes


class Harder(Triplet):
    """Inherits its constructor."""


def dense(batch_size: int, neighbours: int | None = None, weights: list[int] = [], *, seed: int = 0) -> tuple[Any, ...]:  # noqa: B006
    return batch_size, neighbours, weights, seed


class Device:
    pass


def trainer(
    epochs: int = 3,
    out: Path = Path("runs"),
    lr: float | str = 1,
    device: Device = Device(),  # noqa: B008
    fill: float = None,  # noqa: RUF013
) -> tuple[Any, ...]:
    return epochs, out, lr, device, fill


def named(name: str) -> str:
    return name


NOT_CALLABLE = 3
LOSSES = {"log_ratio": LogRatio, "triplet_margin": Triplet, "harder": Harder}
SCHEMA: dict[str, Section | Option] = {
    "seed": Option("seed", int, 0, required=False),
    "loss": Section(LOSSES, contract=object),
    "sampler": Section({"dense": dense}, default="dense"),
    "miner": Section({"named": named, "log": LogRatio}, required=False),
    "trainer": Section(trainer),
}
GOOD = "# head\nseed: 1\n\n\nloss:\n  name: log_ratio\n  squared: false\nsampler:\n  batch_size: 4\n"


@pytest.fixture
def load(tmp_path):
    def load(text, *overrides, **kwargs) -> Document:
        path = tmp_path / "x.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read(path, overrides, name=NAME, **kwargs)

    return load


@pytest.fixture
def check(load):
    def check(text, *overrides, schema=SCHEMA, **kwargs) -> Config:
        return validate(load(text, *overrides, **kwargs), schema)

    return check


@pytest.fixture
def fails(check):
    def fails(text, *fields, overrides=(), **kwargs) -> None:
        """fields: origin, subject, got, allowed, hint."""
        with refuses(**dict(zip(("origin", "subject", "got", "allowed", "hint"), fields, strict=False))):
            check(text, *overrides, **kwargs)

    return fails


# ---------------------------------------------------------------- reading


def test_values_and_lines(load):
    document = load(GOOD)
    assert load(b"\xef\xbb\xbf" + GOOD.encode()).values == document.values
    assert document.values == {"seed": 1, "loss": {"name": "log_ratio", "squared": False}, "sampler": {"batch_size": 4}}
    assert (document.lines[("loss", "squared")], document.origin(("loss", "squared"))) == (7, f"{NAME}:7")
    assert (document.origin(("loss", "absent")), document.origin(("absent",))) == (f"{NAME}:5", NAME)


@pytest.mark.parametrize(("text", "value"), [
    ("1e-3", 1e-3), ("1E5", 1e5), ("-2.5e+1", -25.0), (".5", 0.5), ("3.", 3.0), (".inf", math.inf),
    ("-.Inf", -math.inf), ("010", 10), ("+7", 7), ("0x1F", 31), ("0o17", 15), ("1:30", "1:30"), ("1_000", "1_000"),
    ("no", "no"), ("yes", "yes"), ("on", "on"), ("Off", "Off"), ("true", True), ("False", False), ("none", "none"),
    ("None", "None"), ("null", None), ("~", None), ("", None), ("'1'", "1"), ("2024-01-02", "2024-01-02"),
    ("!!float 3", 3.0), ("!!str 3", "3"), ("[1, {a: 1e-3}]", [1, {"a": 1e-3}]), ("a b", "a b"), ("=", "="),
])  # fmt: skip
def test_scalars_in_a_file_and_on_the_command_line(load, text, value):
    for document in (load(f"x: {text}"), load("y: 1", f"x={text}"), load("x: {y: 1}", f"x={text}")):
        assert document.values["x"] == value
        assert type(document.values["x"]) is type(value)


def test_odd_values_and_keys(load):
    assert load("1: a\nno: b\ntrue: c").values == {"1": "a", "no": "b", "true": "c"}
    assert math.isnan(load("x: .nan").values["x"])
    assert load("x: " + "9" * 5000).values["x"] == math.inf


@pytest.mark.parametrize(("text", "line", "fields"), [
    ("", 1, ("config", "empty", "seed: 0")),
    ("- 1\n- 2", 1, ("config", "[1, 2]", "seed: 0")),
    ("a: 1\nb:\n\tc: 1", 3, ("indentation", "tab", "", "spaces")),
    ("a: 1\nb: [1\nc: 2", 3, ("YAML syntax", "expected ',' or ']', but got ':'")),
    ("a: 1\n---\nb: 1", 2, ("YAML syntax", "expected a single document")),
    (b"a: 1\nb: \xff", 2, ("config", "not UTF-8", "", "UTF-8")),
    ("a:\n  b: 1\n  c: 1\n  b: 2", 4, ("a.b", "twice, first in line 2")),
    ("a: &x [1]\nb: *x", 1, ("b", "alias", "", "write the value out")),
    ("a: !!int many", 1, ("a", "'many'", "int")),
    (
        "a: !!python/object/apply:os.system [true]",
        1,
        ("a", "'tag:yaml.org,2002:python/object/apply:os.system'", "number, text, true, false, null"),
    ),
])  # fmt: skip
def test_bad_files(fails, text, line, fields):
    fails(text, f"{NAME}:{line}", *fields)


def test_files_that_cannot_be_read(tmp_path):
    with refuses("x.yaml", got="No such file"):
        read(tmp_path / "x.yaml", name="x.yaml")
    with refuses(str(tmp_path), got="a folder"):
        read(tmp_path)


# ---------------------------------------------------------------- overrides


@pytest.mark.parametrize(("override", "fields"), [
    ("seed=[1", ("YAML syntax", "expected ',' or ']', but got '<stream end>'")),
    ("sampler.batch_size=many", ("sampler.batch_size", "'many'", "a whole number")),
    ("los=log_ratio", ("los", "unknown key", "", "'loss'")),
    *((text, (repr(text), "", "KEY=VALUE")) for text in ("margin", "=3", "loss..x=1", ".x=1", "loss.=1", "a b=1", "")),
])  # fmt: skip
def test_bad_override_values(fails, override, fields):
    fails(GOOD, "command line", *fields, overrides=[override])


def test_overrides(check):
    config = check(GOOD, "loss.squared=true", "seed=2", "seed=3", "sampler.weights=[1, 2]", "trainer.lr=1e-3")
    assert (config.values, config.parts["loss"].options) == ({"seed": 3}, {"squared": True, "strict": False})
    assert (config.parts["sampler"].options["weights"], config.parts["trainer"].options["lr"]) == ([1, 2], 1e-3)


def test_an_override_of_a_section_replaces_it(check, load):
    for overrides in (["loss=triplet_margin", "loss.margin=1"], ["loss.margin=1", "loss={name: triplet_margin}"]):
        part = check(GOOD, *overrides).parts["loss"]
        assert (part.name, part.options["margin"]) == ("triplet_margin", 1.0)
    assert check(GOOD, "loss=log_ratio").parts["loss"].options["squared"] is True
    assert load(GOOD, "loss=triplet_margin").values["loss"] == "triplet_margin"


def test_another_name_drops_the_options_of_the_file(check):
    text = "loss: {name: triplet_margin, margin: 3, mining: hard}\nsampler: {batch_size: 2}"
    part = check(text, "loss.mining=all", "loss.name=harder").parts["loss"]
    assert (part.constructor, part.options["margin"], part.options["mining"]) == (Harder, 0.2, "all")
    assert check(text, "loss.name=triplet_margin").parts["loss"].options["margin"] == 3
    assert check(text, "sampler.name=dense").parts["sampler"].options["batch_size"] == 2
    assert check("loss: log_ratio\nsampler: {batch_size: 2}", "loss.strict=true").parts["loss"].options["strict"]


# ---------------------------------------------------------------- schemas


def test_options_of_a_part():
    squared, strict = options(LogRatio)
    assert (squared.name, squared.type, squared.default, squared.required) == ("squared", bool, True, False)
    assert (squared.help, strict.help) == ("squares the embedding distances: both of them.", "only pairs that differ.")
    assert summary(LogRatio) == "Ratios of embedding distances follow ratios of label distances."
    assert (summary(dense), data_arguments(LogRatio)) == ("", {"dim": False})


def test_options_leave_out_star_arguments_and_read_inherited_help():
    assert [(o.name, o.help) for o in options(Harder)] == [("margin", "by how much."), ("mining", ""), ("bounds", "")]
    assert data_arguments(Harder) == {"num_classes": True}
    batch_size = options(dense)[0]
    assert (batch_size.required, batch_size.default) == (True, None)


# ---------------------------------------------------------------- validation


NAMES = "log_ratio, triplet_margin, harder"
TRIPLET = "loss:\n  name: triplet_margin"


@pytest.mark.parametrize(("text", "line", "fields"), [
    (GOOD.replace("squared", "sqared"), 7, ("loss.sqared", "unknown key", "", "'squared'")),
    (GOOD.replace("log_ratio", "logratio"), 6, ("loss.name", "'logratio'", "", "'log_ratio'")),
    (GOOD.replace("4", "many"), 9, ("sampler.batch_size", "'many'", "a whole number")),
    (GOOD.replace("4", "4.0"), 9, ("sampler.batch_size", "4.0", "a whole number")),
    (GOOD.replace("batch_size: 4", "neighbours: 4"), 8, ("sampler.batch_size", "missing", "a whole number")),
    ("seed: 0", None, ("loss", "missing", NAMES)),
    ("loss: [a]", 1, ("loss", '["a"]', "a mapping with 'name'")),
    ("los:\n", 1, ("los", "unknown key", "", "'loss'")),
    ("loss:\n  dim: 3\n  name: log_ratio", 2, ("loss.dim", "filled from the data", "", "remove it")),
    ("trainer: {epochs: many}\nloss: q", 1, ("trainer.epochs", "'many'", "a whole number")),
    ("trainer: {device: cpu}", 1, ("trainer.device", "'cpu'", "Device")),
    ("trainer: {lr: true}", 1, ("trainer.lr", "true", "a number or text")),
    ("sampler: {weights: [1, a]}", 1, ("sampler.weights", '[1, "a"]', "a list of whole numbers")),
    ("miner: {name: named}", 1, ("miner.name", "named has an argument 'name'", "", "rename it")),
    (f"{TRIPLET}\n  margin: '0.1'", 3, ("loss.margin", "'0.1'", "a number")),
    (f"{TRIPLET}\n  mining: hrad", 3, ("loss.mining", "'hrad'", "one of all, hard")),
    (f"{TRIPLET}\n  bounds: [1]", 3, ("loss.bounds", "[1]", "a list of 2 numbers")),
    (f"{TRIPLET}\n  num_classes: 3", 3, ("loss.num_classes", "filled from the data")),
    ('"a\\nb": 1', 1, ("a b", "unknown key", "", "seed, loss, sampler, miner, trainer")),
])  # fmt: skip
def test_messages(fails, text, line, fields):
    fails(text, NAME if line is None else f"{NAME}:{line}", *fields)


def test_required_scalar(fails, check):
    fails("{}", NAME, "seed", "missing", "a whole number", schema={"seed": Option("seed", int)})
    assert check("out: a/b", schema={"out": Option("out", Path | None, required=False)}).values == {"out": Path("a/b")}


def test_defaults_short_forms_and_optional_sections(check):
    config = check("loss: log_ratio\nsampler: {batch_size: 4}\ntrainer:\nminer: null")
    assert (list(config.parts), config.values) == (["loss", "sampler", "trainer"], {"seed": 0})
    assert config.parts["trainer"].options["out"] == Path("runs")
    assert config.parts["loss"] == check("loss: {name: log_ratio}\nsampler: {batch_size: 4}").parts["loss"]
    assert "miner" in check("loss: log_ratio\nsampler: {batch_size: 4}\nminer: log").parts


def test_values_take_their_types(check):
    text = "loss: {name: triplet_margin, margin: 1, bounds: [0, 2]}\nsampler: {batch_size: 4}"
    options = check(text).parts["loss"].options
    assert options == {"margin": 1.0, "mining": "all", "bounds": (0.0, 2.0)}
    assert type(options["margin"]) is float


# ---------------------------------------------------------------- names beyond the table


def test_import_strings(check, fails):
    text = f"loss:\n  name: {__name__}:Harder\n  margin: 1\nsampler: {{batch_size: 4}}"
    config = check(text)
    assert (config.parts["loss"].constructor, config.parts["loss"].name) == (Harder, f"{__name__}:Harder")
    fails(text, f"{NAME}:2", "loss.name", f"{__name__}:Harder", "", "--trust", trusted=False)
    assert check(text, f"loss.name={__name__}:Triplet", trusted=False).parts["loss"].constructor is Triplet


def test_bad_import_strings(fails):
    for name, problem in (
        ("no_such_package.x:Y", "No module named 'no_such_package'"),
        ("json:Nothing", "module 'json' has no attribute 'Nothing'"),
        (f"{__name__}:NOT_CALLABLE", "int"),
    ):
        fails(f"loss: {name}", f"{NAME}:1", "loss", name)
        fails(f"loss: {name}", f"{NAME}:1", "loss", problem)


class Base:
    made: ClassVar[list[object]] = []

    def __init__(self) -> None:
        Base.made.append(self)


class Protocolled(Protocol):
    size: int

    def batch(self) -> int: ...


class Batches:
    def batch(self) -> int:
        return 1


def returns_base() -> Base:
    return Base()


def returns_nothing():
    Base()


def returns_protocolled() -> Protocolled:
    return Batches()


@pytest.mark.parametrize(("name", "contract", "accepted"), [
    ("Base", Base, True), ("returns_base", Base, True), ("returns_base", Harder, False),
    ("returns_nothing", Base, False), ("NOT_CALLABLE", Base, False), ("os.system", Base, False),
    ("Batches", Protocolled, True), ("returns_protocolled", Protocolled, True),
    ("returns_base", Protocolled, False), ("returns_base", None, False),
])  # fmt: skip
def test_own_code_is_checked_before_it_is_called(load, name, contract, accepted):
    module, _, attribute = name.rpartition(".")
    schema = {"part": Section({}, contract=contract)}
    Base.made.clear()
    document = load(f"part: {{name: '{module or __name__}:{attribute}'}}")
    if accepted:
        assert validate(document, schema).parts["part"].constructor is globals()[name]
    else:
        with refuses("part.name", origin=f"{NAME}:1"):
            validate(document, schema)
    assert not Base.made


def test_a_module_in_the_working_directory_is_found_only_where_it_is_named(check, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "contml_own.py").write_text("class Mine:\n    pass\n")
    check("loss: harder\nsampler: {batch_size: 4}")
    assert str(tmp_path) not in sys.path
    assert check("loss: contml_own:Mine\nsampler: {batch_size: 4}").parts["loss"].name == "contml_own:Mine"
    assert sys.path[-1] == str(tmp_path)


def test_large_and_deep_configs_are_refused(tmp_path, fails):
    path = tmp_path / "large.yaml"
    path.write_text("a: " + "x" * 50_000_000)
    with refuses(str(path), got="50,000,003 bytes", allowed="262,144 bytes"):
        read(path)
    fails("a: " + "[" * 30 + "]" * 30, f"{NAME}:1", "config", "nested too deeply", "20 levels")
    fails("a: " + "{a: " * 50_000, f"{NAME}:1", "config", "nested too deeply", "20 levels")
    aliases = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 50))
    fails(aliases, NAME, "a1.0", "an alias")


def test_an_error_of_a_long_or_odd_name_is_short_and_printable(fails, load):
    with pytest.raises(InputError) as caught:
        validate(load(f'{"x" * 100_000}: 1\n"\\e[31m": 1'), SCHEMA)
    assert len(str(caught.value)) < 3000
    with pytest.raises(InputError) as caught:
        validate(load('"\\e[31m": 1'), SCHEMA)
    assert str(caught.value).isprintable()


def test_modules_that_fail(fails, tmp_path, monkeypatch):
    (tmp_path / "contml_broken_module.py").write_text("1 / 0")
    (tmp_path / "contml_exiting_module.py").write_text("raise SystemExit(0)")
    monkeypatch.syspath_prepend(tmp_path)
    fails("loss: contml_broken_module:X", f"{NAME}:1", "loss", "ZeroDivisionError: division by zero")
    fails("loss: contml_exiting_module:X", f"{NAME}:1", "loss", "SystemExit")


def test_other_names(check, fails):
    def others(name):
        if name == "pml:broken":
            raise InputError("pml", "not installed")
        return Harder if name.startswith("pml:") else None

    schema = {"loss": Section(LOSSES, find_part=others, contract=object)}
    part = check("loss: {name: pml:Harder, margin: 2}", schema=schema, trusted=False).parts["loss"]
    assert (part.name, part.constructor, part.options["margin"]) == ("pml:Harder", Harder, 2.0)
    fails("loss: haarder", f"{NAME}:1", "loss", "'haarder'", "", "'harder'", schema=schema)
    fails("loss: pml:broken", f"{NAME}:1", "pml", "not installed", schema=schema)


# ---------------------------------------------------------------- building


def test_build(check):
    config = check(GOOD)
    loss = config.parts["loss"].build(dim=8, num_classes=3)
    assert ((loss.squared, loss.dim), config.parts["sampler"].build(dim=8)) == ((False, 8), (4, None, [], 0))
    assert config.parts["sampler"].build(seed=5, batch_size=9)[::3] == (4, 5)
    with pytest.raises(TypeError, match=r"^loss 'triplet_margin' needs num_classes: pass it to build\(\)$"):
        check(GOOD, "loss=triplet_margin").parts["loss"].build(dim=8)


def test_build_reports_where_a_bad_option_is_written(check):
    text = "\n\n\n\n\nloss:\n  name: triplet_margin\n  margin: {}\nsampler: {{batch_size: 4}}"
    for part, origin in [
        (check(text.format(-1)), f"{NAME}:8"),
        (check(text.format(1), "loss.margin=-1"), "command line"),
        (check(text.format(1), "loss={name: triplet_margin, margin: -1}"), "command line"),
    ]:
        with refuses("loss.margin", got="-1", origin=origin):
            part.parts["loss"].build(num_classes=2)
    with refuses("interval", got="(2.0, 1.0)", origin=f"{NAME}:6 and command line"):
        check(text.format(1), "loss.bounds=[2, 1]").parts["loss"].build(num_classes=2)


def test_errors_do_not_name_lines_that_the_user_did_not_write(load):
    text = "task:\n  root: data\nloss:\n  name: triplet_margin\n  margin: -1\nsampler: {batch_size: 4}"

    def where(name, *overrides, **options):
        document = replace(load(text, *overrides, bundled=True, **options), name=name)
        return [document.origin(key) for key in (("loss", "margin"), ("absent",))], document.section_origin("loss")

    assert where("config a/b") == (["config a/b", "config a/b"], "config a/b")
    assert where("config a/b", "loss.mining=all") == (["config a/b", "config a/b"], "command line")
    assert where("config a/b", "loss.margin=-2") == (["command line", "config a/b"], "command line")
    assert where("", changes=["loss.margin=-2", "loss.mining=all"]) == (["", ""], "")
    assert where("", "loss.margin=-3", changes=["loss.margin=-2"]) == (["command line", ""], "command line")


def test_a_change_of_a_bundled_config_may_be_overridden(load):
    document = load("loss:\n  margin: 1", "loss.margin=3", bundled=True, changes=["loss.margin=2", "loss.mining=all"])
    assert document.values == {"loss": {"margin": 3, "mining": "all"}}
    assert document.file == {"loss": {"margin": 2, "mining": "all"}}


# ---------------------------------------------------------------- writing back


CHANGES = [(), ("loss=triplet_margin", "loss.bounds=[1, 2]", "trainer.out=a/b"), ("miner=log",), ("trainer.lr='1e-3'",)]


@pytest.mark.parametrize("overrides", CHANGES)
def test_round_trip(check, overrides):
    config = check(GOOD, *overrides)
    values = resolved(config)
    assert json.loads(json.dumps(values)) == values
    again = check(dump(values))
    assert (again, resolved(again)) == (config, values)


def test_resolved_and_dump(check):
    values = resolved(check(GOOD, "loss=triplet_margin"))
    assert values["trainer"] == {"epochs": 3, "out": "runs", "lr": 1, "fill": None}  # no `device`: YAML cannot say it
    text = "loss:\n  name: triplet_margin\n  margin: 0.2\n  mining: all\n  bounds: [0.0, 1.0]\n"
    text += "sampler:\n  name: dense\n  batch_size: 4\n  neighbours: null\n  weights: []\n"
    assert dump(values) == f"{text}trainer:\n  epochs: 3\n  out: runs\n  lr: 1\n  fill: null\nseed: 1\n"


ODD = ["1e-3", "no", "null", "~", "010", "1:30", "=", "<<", "- a", "a: b", "# c", "2024-01-02", ".inf", "\t", " a "]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.sampled_from([*ODD, "a\n"])
LEAF = st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats(allow_nan=False) | TEXT
VALUE = st.recursive(LEAF, lambda v: st.lists(v, max_size=3) | st.dictionaries(TEXT, v, max_size=3), max_leaves=8)


@given(st.dictionaries(TEXT, VALUE, max_size=4))
def test_dump_reads_back(tmp_path_factory, values):
    path = tmp_path_factory.getbasetemp() / "dump.yaml"
    path.write_bytes(dump(values).encode())
    again = read(path).values
    assert again == values
    assert json.dumps(again) == json.dumps(values)  # true is not 1, 1 is not 1.0, and the order is kept
    assert difference(values, again, again) == []


@given(st.text())
def test_any_text_reads_or_fails_in_one_line(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(text.encode(errors="surrogatepass"))
    try:
        read(path, name="x", overrides=["a.b=1"])
    except InputError as error:
        assert re.fullmatch(r"(x:\d+|command line): .+", str(error))  # noqa: PT017


def test_difference():
    a = {"seed": 0, "loss": {"name": "x", "margin": 0.1, "bounds": (1, 2), "nan": math.nan}, "gone": {}}
    b = {"seed": 0, "loss": {"name": "x", "margin": 0.2, "bounds": [1, 2], "nan": math.nan}, "new": {"k": True}}
    assert difference(a, b, b) == ["loss.margin: 0.1 -> 0.2", "gone: {} -> absent", "new.k: absent -> true"]
    assert difference(a, b, {}) == ["loss.margin: 0.1 -> 0.2", "gone: {} -> absent"]  # a default that is newer than a
    assert difference(a, a, a) == []


@pytest.mark.parametrize("size", [10**12, 10**18, 10**22])
def test_more_memory_than_there_is(size):
    def part(dim: int, width: int) -> torch.Tensor:
        return torch.empty(width, dim)

    configured = ConfiguredPart("model", "", part, {"dim": size, "width": 1000}, "own.yaml:2", {"dim": "own.yaml:3"})
    with refuses("model.dim", f"{size:,}, which needs ", origin="own.yaml:3"):
        configured.build()
    with pytest.raises(TypeError, match="own"), configured.errors():
        raise TypeError("own error")
