"""Numbers in pages are those of the code, and of the raw results of benchmarks.

`numbers.txt` has, for each page, phrases and what is true, as Python. A phrase is a regular expression whose groups are
the numbers. The page must contain it once, and each number must be the true one, rounded to the digits that it is
printed with. To hold another number, add a line. Tables are written by `benchmarks.tables`.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pytest
import typer.main
from support.paths import ROOT

from benchmarks import claims, finetuning, pose_agreement, presets, tables, through_labels
from contml.app.cli.commands import app
from contml.app.experiment import config_names, load
from contml.app.trials.suite import suite_names
from contml.config import options
from contml.evaluation import half_width
from contml.losses import LOSSES
from contml.tasks.classes import cars, cub, inshop, sop
from contml.tasks.layout import lsun

NAMES = "zero one two three four five six seven eight nine ten eleven twelve"
WORDS = {word: float(number) for number, word in enumerate(NAMES.split())} | {
    "an": 1.0, "eighteen": 18.0, "twenty": 20.0, "fifth": 5.0, "tenth": 10.0,
}  # fmt: skip
#: A number; one with its interval; the cell of a table.
N, PLUS, CELL = r"([+-]?[\d.,]*\d(?:e[+-]?\d+)?)", r"([+-]?[\d.]+) ± ([\d.]+)", r"[^|]*"
WORD = "((?i:" + "|".join(WORDS) + "))"


def value_of(text: str) -> tuple[float, int]:
    """A printed number and the number of its decimals: "0.393", "5,864", "+0.006", "1e-4", "two"."""
    text = text.replace(",", "").lower()
    if text in WORDS:
        return WORDS[text], 0
    mantissa, _, exponent = text.partition("e")
    return float(text), len(mantissa.partition(".")[2]) - int(exponent or 0)


def assert_printed(text: str, true: float, where: str) -> None:
    value, decimals = value_of(text)
    assert abs(value - true) <= 0.5 * 10.0**-decimals * (1 + 1e-6), f"{where}: {text}, but it is {true:.6g}"


@cache
def text_of(page: str) -> str:
    """A page on one line; of a config its head."""
    text = (ROOT / page).read_text(encoding="utf-8")
    if page.endswith(".yaml"):
        text = "\n".join(line.removeprefix("#") for line in text.splitlines() if line.startswith("#"))
    return " ".join(text.split())


# ---------------------------------------------------------------------------------------------------------------------
# what is true


@cache
def raw(name: str) -> list[dict[str, Any]]:
    """The trainings of a benchmark in the order of their seeds; of equal ones of a data set the last.

    On the test split, trainings of other options are equal ones: those that were chosen at last count.
    """
    rows = {}
    for each in tables.lines(name):
        method, chosen, seed, split = each["key"][:4]
        rows[method, seed, split, each["metrics"].get("oracle"), "" if split == "test" else chosen] = each
    return sorted(rows.values(), key=lambda each: each["key"][2])


def graded_ice(kind: str, scale: int) -> float:
    """The highest score on the validation split of the trials of graded instance cross entropy with a scale."""
    keys = [(json.loads(each["key"]), each) for each in tables.lines("graded_features")]
    trials = [each for key, each in keys if key[:2] == [kind, "graded_instance_cross_entropy"] and key[4] == "val"]
    return max(each["value"] for each in trials if f"loss.scale={scale} " in each["key"] and "value" in each)


def measured(name: str, method: str, metric: str = "value", oracle: str = "") -> list[float]:
    """A metric on the test split, one per seed; `oracle` is that of the data set, where a benchmark has several."""
    rows = [row["metrics"] for row in raw(name) if row["key"][0] == method and row["key"][3] == "test"]
    return [row[metric] for row in rows if not oracle or f"{row.get('oracle', 0):.3f}" == oracle]


def mean(name: str, method: str, metric: str = "value", oracle: str = "") -> float:
    return statistics.mean(measured(name, method, metric, oracle))


def less(name: str, method: str, other: str, metric: str = "value") -> list[float]:
    """The difference of two methods, paired by seed, and its interval."""
    values = [a - b for a, b in zip(measured(name, method, metric), measured(name, other, metric), strict=True)]
    return [statistics.mean(values), half_width(values)]


def stated(name: str, phrase: str) -> float:
    """A number in the page of a benchmark's results."""
    (found,) = {*re.findall(phrase, text_of(f"benchmarks/results/{name}.md"))}
    return value_of(found)[0]


def row(name: str, first: str, below: str = "") -> list[float]:
    """The first number of each cell of the row of a result's page that begins with a cell; `below`: a heading."""
    text = (ROOT / f"benchmarks/results/{name}.md").read_text(encoding="utf-8").split(below or "# ", 1)[1]
    lines = [line.strip("|").split(" | ") for line in text.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line] for line in lines]
    cells = next(each for each in rows if each[0] == first)
    found = [re.match(r"[+-]?[\d.,]*\d", cell) for cell in cells[1:]]
    return [value_of(match[0])[0] if match else math.nan for match in found]


def misses(section: str, kind: str, column: int, first: str = "") -> list[float]:
    """The misses of drawn data in percent, of the rows of a section whose second cell is of a kind.

    column: which of the intervals that a cell has; first: how the first cell of a row begins.
    """
    text = (ROOT / "benchmarks/results/intervals.md").read_text(encoding="utf-8").split(f"\n## {section}\n", 1)[1]
    rows = [line.strip("| ").split(" | ") for line in text.split("\n## ", 1)[0].splitlines()[4:] if line]
    cells = [cell for row in rows if row[0].startswith(first) and re.search(kind, row[1]) for cell in row[2:]]
    assert len(cells) > 3
    return [float(cell.split(" / ")[column]) for cell in cells]


def chosen(name: str, method: str) -> list[float]:
    """The numbers of the options that a method chose, on the page of a suite of one set."""
    text = (ROOT / f"benchmarks/results/{name}.md").read_text(encoding="utf-8").split("| chosen option |")[1]
    return [float(each) for each in re.findall(r"=([\d.]+)", text.split(f"\n| {method} | ")[1].split(" | ")[0])]


def default(part: Callable[..., Any], name: str) -> Any:
    """The default of an option of a part."""
    return next(each.default for each in options(part) if each.name == name)


def typed(command: str, name: str) -> Any:
    """The default of an option of a command."""
    return next(each.default for each in typer.main.get_command(app).commands[command].params if name in each.opts)


@cache
def config(name: str) -> dict[str, Any]:
    """The values of a config, with defaults."""
    values: dict[str, Any] = load(name).values
    return values


def drawn(name: str) -> int:
    """How many items a synthetic task draws."""
    task = config(name)["task"]
    total: int = task["train"] + task["val"] + task["test"]
    return total


POSE, LAYOUT, CAPTIONS, CLASSES = "pose_synthetic", "layout_synthetic", "captions_synthetic", "classes_synthetic"
DENSE, TRIPLETS, THRESHOLD = "log-ratio, dense", "dense triplet", "triplet, threshold"
UNTRAINED = r"untrained weights ([\d.]+\d)"


def less_log_ratio(name: str, method: str, kind: str = "", score: str = "", other: str = "log_ratio") -> float:
    """The score of a method less that of log-ratio, on a set of a suite (of all draws) or on the mean of the sets."""
    if kind:
        scores = tables.suite_scores(name, score)
        sets = [each for each, own in scores if own == method and each.partition(", draw")[0] == kind]
        return statistics.mean(scores[each, method] - scores[each, other] for each in sets)
    return tables.suite_means(name, method, score)[-1] - tables.suite_means(name, other, score)[-1]


def started(labels: str, phase: str = "first step", rows: int = 10**7) -> list[float]:
    """Seconds of a part of the start of a training; GB so far: resident, the process's own, and of mapped files."""
    return row("growth", phase, below=f"labels: {labels}, {rows:,} rows")


#: Training images of the published data sets.
IMAGES = {
    "classes/cub": cub.PUBLISHED, "classes/cars": cars.PUBLISHED, "classes/sop": sop.PUBLISHED,
    "classes/inshop": inshop.PUBLISHED, "layout/lsun": {"train": lsun._TRAINING},
}  # fmt: skip


def batch(values: dict[str, Any]) -> int:
    """The number of images of a batch."""
    sampler = values["sampler"]
    products = {"classes": ("classes", "instances"), "triplets": ("triplets",)}
    sizes = [sampler[name] for name in products.get(sampler["name"], ("batch_size",))]
    return math.prod(sizes) * (3 if sampler["name"] == "triplets" else 1)


def steps(values: dict[str, Any]) -> int:
    """The number of steps of a training."""
    sampler, per_epoch = values["sampler"], values["sampler"]["batches"]
    if per_epoch is None:
        per_step = sampler["anchors_per_batch"] if sampler["name"] == "dense" else batch(values)
        per_epoch = IMAGES[values["task"]["name"]]["train"].images // per_step
    total: int = values["training"]["epochs"] * per_epoch
    return total


#: What the claims may name; the imports at their top are added.
NAMES_OF_CLAIMS: dict[str, Any] = globals()
IMPORTS, _, TEXT = (ROOT / "tests/numbers.txt").read_text(encoding="utf-8").partition("\n\n")
exec(IMPORTS, NAMES_OF_CLAIMS)
#: The phrases of each page, and the Python of what is true; of `configs/*`, of the values `v` of each config.
CLAIMS = {
    page: [line.split(" || ") for line in lines]
    for page, *lines in (part.splitlines() for part in TEXT.removeprefix("# ").strip().split("\n\n# "))
}
HEADS = CLAIMS.pop("configs/*")
for claimed in (*CLAIMS.values(), HEADS):
    for claim in claimed:
        claim[0] = claim[0].replace("{N}", N).replace("{WORD}", WORD).replace("{PLUS}", PLUS)


def true_numbers(true: str, **names: Any) -> list[float]:
    value = eval(true, {**NAMES_OF_CLAIMS, **names})
    return [value] if isinstance(value, int | float) else [each for each in value if not math.isnan(each)]


def test_heads_of_configs_say_what_is_in_them():
    held = dict.fromkeys((phrase for phrase, _ in HEADS), 0)
    for name in config_names():
        for phrase, true in HEADS:
            for found in re.findall(phrase, text_of(f"configs/{name}.yaml")):
                held[phrase] += 1
                printed = [found] if isinstance(found, str) else found
                for text, each in zip(printed, true_numbers(true, v=config(name)), strict=True):
                    assert_printed(text, each, f"{name}: {phrase}")
    assert [phrase for phrase, count in held.items() if not count] == []


def test_tables_are_those_that_the_program_writes(tmp_path):
    pages = {table.page for table in tables.tables()}
    for page in pages:
        (tmp_path / page).parent.mkdir(exist_ok=True)
        damaged = re.sub(r"(?<=\| )0\.[1-9](?=\d\d [|[])", "0.0", (ROOT / page).read_text(encoding="utf-8"))
        (tmp_path / page).write_text(damaged, encoding="utf-8")
    tables.main(["--root", str(tmp_path)])
    for page in pages:
        texts = ((root / page).read_text(encoding="utf-8").splitlines() for root in (tmp_path, ROOT))
        new, old = ([line for line in lines if line.startswith("|")] for lines in texts)
        assert new == old, page


#: Raw files that `contml benchmark` wrote.
RAW = sorted(path.stem for path in (ROOT / "benchmarks/results/raw").glob("*.jsonl"))
OF_SUITES = {*suite_names(), *(path.stem for path in (ROOT / "benchmarks/suites").glob("*.yaml"))}
SUITES = {name for name in RAW if name in OF_SUITES}


@pytest.mark.parametrize("name", sorted(SUITES))
def test_tables_of_suites_are_those_of_the_trainings(name):
    """The score of each method is the mean of the recorded trainings on the test split."""
    scores = tables.suite_scores(name)
    sections = (ROOT / f"benchmarks/results/{name}.md").read_text(encoding="utf-8").split("\n## ")
    held = 0
    for section in sections[1:]:
        title, _, body = section.partition("\n")
        for method, score in re.findall(r"^\| ([^|]+) \| [^|]+ \| [\d.]+ \| ([\d.]+) \[", body, re.MULTILINE):
            if not title.startswith("Overview"):
                assert_printed(score, scores[title, method], f"{name}, {title}: {method}")
                held += 1
    assert held >= min(10, len(scores))  # a suite may have trials alone so far


def test_the_table_of_judged_pairs_is_that_of_the_trainings():
    text = (ROOT / "benchmarks/results/judged_pairs.md").read_text(encoding="utf-8")
    trained = tables.lines("judged_pairs")
    rows = re.findall(r"^\| ([\d,]+|full labels) \| [\d.,]+ \| (\S+ ± \S+) \| (\S+ ± \S+) \|$", text, re.MULTILINE)
    assert len(rows) >= 9
    for judgments, *cells in rows:
        count = 0 if judgments == "full labels" else int(judgments.replace(",", ""))
        for loss, cell in zip(("cosent", "log_ratio"), cells, strict=True):
            values = [each["metrics"]["spearman"] for each in trained if each["key"][:2] == [loss, count]]
            assert cell == f"{statistics.mean(values):.3f} ± {half_width(values):.3f}", (judgments, loss)


def test_the_table_of_nested_lengths_is_that_of_the_trainings():
    """The mean score of each length, trained alone, with the others, and as the first numbers of the longest."""
    trained = tables.lines("matryoshka")
    held = 0
    for section in (ROOT / "benchmarks/results/matryoshka.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        name, _, body = section.partition("\n")
        for length, alone, nested, _, first, _ in re.findall(r"^\| (\d+) " + 5 * r"\| ([^|]+) " + r"\|$", body, re.M):
            for cell, training in ((alone, f"alone {length}"), (nested, "matryoshka"), (first, "alone 128")):
                of_set = [each for each in trained if (each["set"], each["training"]) == (name, training)]
                scores = [statistics.mean(each["scores"][length]) for each in of_set]
                assert cell == f"{statistics.mean(scores):.3f}", (name, length, training)
                held += 1
    assert held == 18


#: Trainings whose lines and tables have another form.
OWN_FORMS = {"through_labels", "presets", "finetuning", "judged_pairs", "matryoshka", "teachers", "pose_agreement"}


@pytest.mark.parametrize("name", [name for name in RAW if name not in {*SUITES, *OWN_FORMS}])
def test_tables_of_results_are_those_of_the_trainings(name):
    """Each mean on the test split, with its interval, is that of the recorded trainings."""
    text = (ROOT / f"benchmarks/results/{name}.md").read_text(encoding="utf-8")
    means: dict[str, set[str]] = {}
    for method in {each["key"][0] for each in raw(name) if each["key"][3] == "test"}:
        oracles = {f"{each['metrics'].get('oracle', 0):.3f}" for each in raw(name) if each["key"][3] == "test"}
        for values in (measured(name, method, oracle=oracle) for oracle in oracles):
            several = f" ± {half_width(values):.3f}" if len(values) > 1 else ""
            means.setdefault(method, set()).add(f"{statistics.mean(values):.3f}{several}")
    held = 0
    for title, body in re.findall(r"^\| method \| (.*)\n\|[- |]+\|\n((?:\|.*\n)+)", text, re.MULTILINE):
        column = 1 + [cell.startswith("test") for cell in title.split(" | ")].index(True)
        for line in body.splitlines():
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            assert cells[column] in means[cells[0]], (name, cells[0], cells[column], means[cells[0]])
            held += 1
    assert held >= 2 or name == "label_errors"


@pytest.mark.parametrize(("make", "page"), [
    (presets.table, "benchmarks/results/presets.md"),
    (through_labels.page, "benchmarks/results/through_labels.md"),
    (partial(pose_agreement.heads, "COCO"), "benchmarks/results/pose_agreement.md"),
    (partial(pose_agreement.heads, "LSPET"), "benchmarks/results/pose_agreement.md"),
    (presets.table_of_heads, "benchmarks/results/presets.md"),
    (finetuning.table, "benchmarks/results/finetuning.md"),
    (finetuning.table, "docs/finetuning.md"),
    (claims.measured, "benchmarks/results/claims.md"),
])  # fmt: skip
def test_tables_of_finetuning_are_those_of_the_trainings(make, page):
    assert make() in (ROOT / page).read_text(encoding="utf-8")


def test_the_page_on_finetuning_says_what_the_tables_say():
    """In words: the preset is above the features in all rows, larger images are better, how heads differ."""
    page, rows = text_of("docs/finetuning.md"), [line.split(" | ") for line in presets.table().splitlines()[2:]]
    assert all(float(row[5].split("(")[1].split(" ")[0]) > 0 for row in rows)
    gains = [row[5].split(" (")[0].removeprefix("+") for row in rows]
    assert f"in all {len(rows)} rows" in page
    assert f"by {min(gains)} to {max(gains)}" in page
    small, _, large = ([float(row[4]) for row in rows[start : start + 4]] for start in (0, 4, 8))
    assert all(a < b for a, b in zip(small, large, strict=True))
    heads = [[cell.strip() for cell in line.split("|")[1:-1]] for line in presets.table_of_heads().splitlines()[2:]]
    cells = {(head[0], name): head[2 * n + 3] for head in heads for n, name in enumerate(presets.SETS)}
    clear = {key: cell.split(" ")[0] for key, cell in cells.items() if "(+" in cell or "to -" in cell}
    houses, captions, rooms = (clear["mean of the map, from random numbers", name][1:] for name in (*presets.SETS,)[:3])
    assert f"`random` scores {houses} higher on houses, and {captions} and {rooms} lower on captions and rooms" in page
    mean = "mean of the map, 224 px"
    assert {name for head, name in clear if head == mean} == {"rooms", "poses"}
    assert all(f"{name} +{clear[mean, name][1:]} (" in page for name in ("rooms", "poses"))


ROWS = [(page, phrase, true) for page, claimed in CLAIMS.items() for phrase, true in claimed]


@pytest.mark.parametrize(("page", "phrase", "true"), ROWS, ids=[f"{page} {n}" for n, (page, *_) in enumerate(ROWS)])
def test_the_number_is_true(page, phrase, true):
    found = re.findall(phrase, text_of(page))
    assert len(found) == 1, f"{page} has it {len(found)} times: {phrase}"
    printed = [text for text in (found[0] if isinstance(found[0], tuple) else found) if text]
    for text, each in zip(printed, true_numbers(true), strict=True):
        assert_printed(text, each, f"{page}: {phrase}")


@pytest.mark.parametrize("page", sorted({*CLAIMS, *(f"configs/{name}.yaml" for name in config_names())}))
def test_results_that_a_page_names_exist(page):
    for name in re.findall(r"benchmarks/results/\w+\.md", text_of(page)):
        assert (ROOT / name).is_file(), name


def in_lines(page: str, heading: str, until: str) -> list[str]:
    """The lines of a page after a heading, before another one."""
    return (ROOT / page).read_text(encoding="utf-8").split(f"{heading}\n", 1)[1].split(f"\n{until}", 1)[0].splitlines()


#: The parts of docs/losses.md that say which loss to take: the first heading, and the one after the part.
WHICH_LOSS = (("## Which loss for graded labels?", "## The family"),)
#: Words of a sentence that compares.
COMPARES = re.compile(
    r"\b(above|as good|at least as|behind|below|beats?|best|better|closer?|contradict\w*|confirm\w*|differ|fewer|first|"
    r"gains?|higher|highest|holds?|last|less|loses?|lower|lowest|more|needed|noise|order|outperforms?|prefer\w*|safest|"
    r"same as|second|significant(?:ly)?|smaller|stronger|ties|tied|weaker|wins?|worse|worst)\b"
)
#: A loss, or several.
NAMES_LOSS = re.compile(r"`(?:" + "|".join(LOSSES) + r")`|\bloss(?:es)?\b|\brows?\b|N-pair|triplet", re.IGNORECASE)
LINK = r"\]\(\.\./benchmarks/results/\w+\.md\)"


@pytest.mark.parametrize(("heading", "until"), WHICH_LOSS)
def test_each_sentence_that_compares_losses_cites_results(heading, until):
    """Each names the page of results itself, so that a sentence which is moved or added cannot lose it."""
    lines = in_lines("docs/losses.md", heading, until)
    text = "\n".join(line for line in lines if not line.startswith(("|", "#", "![")))
    compared = 0
    for paragraph in re.split(r"\n\s*\n", text):
        for sentence in re.split(r"(?<=[.?!])\s+(?=[A-Z*`\[])", " ".join(paragraph.split())):
            if COMPARES.search(sentence) and NAMES_LOSS.search(sentence):
                compared += 1
                assert re.search(LINK, sentence), sentence
    assert compared >= 2


@pytest.mark.parametrize(("heading", "until"), WHICH_LOSS)
def test_each_score_that_says_which_loss_is_held(heading, until):
    """Each number with three decimals is one that a phrase of `CLAIMS` compares with the trainings.

    The interval of a score is on a page of results beside the same score.
    """
    page = text_of("docs/losses.md")
    held = [found.span() for phrase, _ in CLAIMS["docs/losses.md"] for found in re.finditer(phrase, page)]
    titles = [re.escape(title) for table in tables.tables() if table.page == "docs/losses.md" for title in table.rows]
    held += [found.span() for found in re.finditer(rf"\| (?:{'|'.join(titles)}) \|(?: [\d.]+ [|[])+", page)]
    start = page.index(f"{heading} ")
    end = page.index(f"{until} ", start)
    results = " ".join(path.read_text(encoding="utf-8") for path in (ROOT / "benchmarks/results").glob("*.md"))
    for interval_of_score in re.finditer(r"\d\.\d{3} \[[^\]]+\](?!\()", page[start:end]):
        assert interval_of_score[0] in results, interval_of_score[0]
        held.append((start + interval_of_score.start() + 5, start + interval_of_score.end()))
    for number in re.finditer(r"(?<![\d.])\d\.\d{3}(?!\d)", page[start:end]):
        at = start + number.start()
        assert any(a <= at < b for a, b in held), page[at - 60 : at + 20]
