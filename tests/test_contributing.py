"""The examples of CONTRIBUTING work: a loss, a label space, a metric, a data set; and an addition touches few files."""

import ast
import importlib
import re
from collections import Counter

import numpy as np
import pytest
import torch
from losses.test_family import Member, test_equals_its_loop_with_gradients_whole_and_in_blocks as equals_its_loop
from PIL import Image
from support import reference_pairs
from support.paths import ROOT
from support.retrieval import evaluate
from support.strategies import CLASS_CASES

import contml
import contml.labels
from contml.app.experiment import check, config_text, load
from contml.app.explore.items import Explored
from contml.app.explore.page import write_page
from contml.app.report.page import About, write_report
from contml.app.report.ranking import RankingContent
from contml.config import options
from contml.data import Pixels, Split
from contml.evaluation import Evaluated, class_retrieval, metrics
from contml.evaluation.evaluated import summary
from contml.evaluation.metrics import Published
from contml.evaluation.results import usual
from contml.labels import ClassLabels
from contml.losses import LOSSES
from contml.tasks.table.kinds import TABLE_LABELS
from contml.testing import check_loss
from contml.training import Training


def text_of_contributing():
    return (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def example(name):
    """The code of CONTRIBUTING that defines a class or function."""
    blocks = re.findall(r"(?m)^```python\n(.*?)^```", text_of_contributing(), re.DOTALL)
    (block,) = [code for code in blocks if f"def {name}(" in code or f"class {name}(" in code]
    return block


def test_a_data_set_is_one_function_of_at_most_40_lines(tmp_path, monkeypatch):
    block = example("wingspans")
    assert len(block[block.index("def wingspans") :].strip().splitlines()) <= 40
    (tmp_path / "birds_of_contributing.py").write_text(block)
    monkeypatch.syspath_prepend(tmp_path)
    random = np.random.default_rng(0)
    (tmp_path / "images").mkdir()
    lines = ["file,wingspan,split"]
    for number in range(24):
        Image.fromarray(random.integers(0, 255, (40, 40, 3), dtype=np.uint8)).save(tmp_path / f"images/{number}.png")
        span = "" if number == 3 else f"{20 + number}"
        lines.append(f"{number}.png,{span},{'train' if number < 16 else 'test'}")
    (tmp_path / "birds.csv").write_text("\n".join(lines))
    (tmp_path / "mine.yaml").write_text(config_text("pose/synthetic"))
    changes = ["task=birds_of_contributing:wingspans", f"task.root={tmp_path}", "images.resize=32", "images.crop=32",
               "transform.scale_jitter=2", "sampler.batch_size=8", "sampler.anchors_per_batch=1"]  # fmt: skip
    facts = dict(check(load(str(tmp_path / "mine.yaml"), changes)))
    train, val = (int(facts[f"{name} images"].split()[0].strip(",")) for name in ("training", "validation"))
    assert train + val == 15
    assert facts["training images"].endswith("(excluded: 1 without a wingspan)")
    assert facts["label distance"] == "cm of wingspan"


def test_a_loss_is_its_formula_two_rows_a_loop_and_a_page(monkeypatch):
    module, loops = {"__name__": "sup_con"}, vars(reference_pairs).copy()
    exec(example("SupConLoss"), module)
    exec(example("sup_con"), loops)
    monkeypatch.setitem(LOSSES, "sup_con", module["SupConLoss"])
    monkeypatch.setattr(reference_pairs, "sup_con", loops["sup_con"], raising=False)
    text = text_of_contributing()
    names = {"Member": Member, "reference_pairs": reference_pairs}
    default, variant = (eval(row, names) for row in re.findall(r'`(Member\("sup_con".*?\))`', text))
    assert {option.name for option in options(LOSSES["sup_con"])} == variant.options.keys()
    for member in (default, variant):
        for case in CLASS_CASES:
            equals_its_loop(member, case)
    check_loss(LOSSES["sup_con"]())
    (row,) = re.findall(r"^\| \[`sup_con`\]\(losses/sup_con.md\) \| (.*) \|$", text, re.MULTILINE)
    assert row.split(" = ") == ["temperature", str(options(LOSSES["sup_con"])[0].default)]
    (page,) = re.findall(r"(?m)^~~~markdown\n(.*?)^~~~", text, re.DOTALL)
    formula, paper, weight = re.split(r"^## (?:Paper|Weight of a pair)\n", page, flags=re.MULTILINE)
    assert formula.startswith("# ")
    assert "```math" in formula
    assert paper.strip()
    assert "```math" in weight


def test_a_label_space_is_one_class_one_row_one_example_and_one_test(tmp_path, monkeypatch):
    module = {"__name__": "hues"}
    exec(example("HueLabels"), module)
    monkeypatch.setitem(contml.labels.LABELS, "hues", module["HueLabels"])
    test = {}
    exec(example("test_hues"), test)
    test["test_hues"]()
    labels = module["HueLabels"](np.arange(0.0, 360.0, 15.0))
    images = [Pixels(np.full((20, 20, 3), 10 * row, np.uint8)) for row in range(24)]
    split = Split(images, [f"{row}.png" for row in range(24)], labels)
    radians = labels.degrees.deg2rad()
    evaluation, ranking = evaluate(torch.stack([radians.cos(), radians.sin()], 1).float(), labels)
    evaluated = Evaluated(evaluation, "test", "last", epoch=1, epochs=1)
    report = write_report(tmp_path / "report", RankingContent(ranking), split, evaluated, About("hues"))
    page = report.read_text("utf-8")
    assert '<span class="label">345°</span>' in page
    assert "<td>hue</td>" in page
    assert "<td>15.0 degrees</td>" in page
    texts = [labels.text(row) for row in range(24)]
    write_page(tmp_path / "page", Explored("hues", split, texts, [], labels.unit, labels.measure, 1, labels.colours()))
    assert '"texts":["0\\u00b0","15\\u00b0"' in (tmp_path / "page" / "data.js").read_text()


def test_a_kind_of_label_of_a_table_is_one_class_one_row_and_one_test(tmp_path, monkeypatch):
    spaces, test = {"__name__": "hues"}, {}
    exec(example("HueLabels"), spaces)
    monkeypatch.setattr(contml, "HueLabels", spaces["HueLabels"], raising=False)
    (tmp_path / "hue_label.py").write_text(example("HueLabel"))
    monkeypatch.syspath_prepend(tmp_path)
    kind = importlib.import_module("hue_label").HueLabel
    monkeypatch.setitem(TABLE_LABELS._parts, "hue", "hue_label:HueLabel")
    exec(example("test_hue_label"), test)
    test["test_hue_label"](tmp_path)
    assert [option.name for option in options(kind)] == ["weight", "unit"]
    assert all(option.help for option in options(kind))
    changes = [f"task.data={tmp_path / 'a.csv'}", "task.labels.tint.kind=hue", "task.labels.tint.weight=2"]
    part = load("table/default", changes).config.parts["task"]
    assert part.options["labels"] == {"tint": {"kind": "hue", "weight": 2.0, "unit": "degrees"}}


def test_a_metric_is_a_row_and_a_function_and_is_in_tables_and_on_pages(tmp_path, monkeypatch):
    module, test = {"__name__": "macro"}, {}
    exec(example("macro_r_precision"), module)
    (row,) = re.findall(r'`"macro_r_precision": (Metric\(.*?\))`', text_of_contributing())
    monkeypatch.setitem(metrics.METRICS, "macro_r_precision", eval(row, {"Metric": metrics.Metric}))
    monkeypatch.setitem(class_retrieval.SCORES, "macro_r_precision", module["macro_r_precision"])
    exec(example("test_macro_r_precision"), test)
    test["test_macro_r_precision"]()
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    evaluation, ranking = evaluate(x, ClassLabels([row % 3 for row in range(30)]))
    evaluated = Evaluated(evaluation, "test", "last", epoch=1, epochs=1)
    assert Evaluated.from_dict(evaluated.to_dict()) == evaluated
    assert "macro_r_precision" in usual(evaluation)
    assert "macro_r_precision" in evaluation.numbers()
    assert Published("a paper", macro_r_precision=0.5).metrics
    title = "R-precision, mean over classes"
    assert title in [line[0] for line in summary(evaluation)]
    images = [Pixels(np.full((20, 20, 3), 8 * row, np.uint8)) for row in range(30)]
    split = Split(images, [f"{row}.png" for row in range(30)], ClassLabels([row % 3 for row in range(30)]))
    assert title in write_report(tmp_path, RankingContent(ranking), split, evaluated, About("macro")).read_text("utf-8")


#: The words of each member of a kind, and the files that name every member, beside those of its own: where it is made,
#: and a page or the lines of one. A test of its own is not counted.
ADDITIONS = {
    "a loss: its file, its page": ([{n, c.__name__} for n, c in LOSSES.items()], 5 - 2),
    "a label space: its file": ([{space.__name__} for space in contml.labels.LABELS.values()], 6 - 1),
    "a metric: its function, its line of a page": ([{name} for name in metrics.METRICS], 3 - 2),
    "an option of training: its use, its line of a page": ([{each.name} for each in options(Training)], 4 - 2),
}


@pytest.mark.parametrize("addition", ADDITIONS)
def test_an_addition_touches_few_files(addition):
    members, most = ADDITIONS[addition]
    files = [file for name in ("contml", "tasks", "docs", "tests", "configs") for file in (ROOT / name).rglob("*.*")]
    kinds = (".py", ".pyi", ".md", ".txt", ".yaml", ".html")
    words = {file: set(re.findall(r"\w+", file.read_text("utf-8"))) for file in files if file.suffix in kinds}
    common = [str(file) for file, found in words.items() if all(member & found for member in members)]
    assert 0 < len(common) <= most, common


def test_a_class_has_a_name_of_its_own():
    """One name, one meaning; these are left in the districts that evaluate and search."""
    files = [file for name in ("contml", "tasks") for file in (ROOT / name).rglob("*.py")]
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text("utf-8")))]
    found = Counter(node.name.lstrip("_") for node in nodes if isinstance(node, ast.ClassDef))
    left = {"Captions", "Content", "Curve", "Graph", "Items", "Judgments", "Pairs", "Part", "Rankings", "Results"}
    assert {name for name, count in found.items() if count > 1} <= left


#: What a docstring refers back with, and how many docstrings may: the number only falls.
BACK_REFERENCES, MOST_BACK_REFERENCES = re.compile(r"\b(so many|that of|those of|is none|in words|of which)\b"), 13
#: How many sentences of the first paragraphs of docstrings may have more than 22 words: the number only falls.
MOST_LONG_SENTENCES = 3


def test_docstrings_are_read_once():
    back, long = [], []
    for path in (file for name in ("contml", "tasks") for file in (ROOT / name).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.ClassDef | ast.FunctionDef):
                continue
            words = ast.get_docstring(node) or ""
            if BACK_REFERENCES.search(" ".join(words.split())):
                back.append(f"{path}: {node.name}")
            first = " ".join(words.split("\n\n")[0].split())
            long += [f"{path}: {each}" for each in re.split(r"(?<=[.:]) ", first) if len(each.split()) > 22]
    assert len(back) <= MOST_BACK_REFERENCES, back
    assert len(long) <= MOST_LONG_SENTENCES, long
