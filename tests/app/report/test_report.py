"""The report: self-contained, escaped, with the right numbers, whatever files a run holds."""

from __future__ import annotations

import html.parser
import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
import torch
from PIL import Image
from support.choices import mostly_slow
from support.label_spaces import space_of
from support.refusals import refuses
from support.retrieval import evaluate

from contml._support.text import interval_texts, number, percent
from contml.app.report.embedding_map import main_direction, map_plot, tsne
from contml.app.report.examples import choose_queries, draw
from contml.app.report.page import About, write_report
from contml.app.report.plots import binned_quartiles, density_plot, metrics_plot, picture_of, training_plot
from contml.app.report.ranking import RankingContent
from contml.contracts import Measure
from contml.data import Pixels, Split
from contml.data.split import TitledPictures, View
from contml.evaluation.evaluated import Evaluated, Selection, sentence, summary
from contml.evaluation.results import Curve, Evaluation, Ranking
from contml.labels import ClassLabels, DateLabels, NumberLabels, VectorLabels

PNGS = ["curves.png", "metrics.png", "density.png", "tsne.png"]
HOSTILE = "<img src=x onerror=alert(1)>&\"'</pre></title><script>alert(2)</script>"


def colours(n: int = 60, prefix: str = "images/", **parts: Any) -> Split:
    """A split of images of one random colour."""
    drawn = (tuple(np.random.default_rng(row).integers(0, 256, 3)) for row in range(n))
    images = [Pixels(Image.new("RGB", (32, 32), colour)) for colour in drawn]
    labels = NumberLabels(torch.arange(n + 1.0))[:n].as_root()
    return Split(images, [f"{prefix}{row:04d}.jpg" for row in range(n)], labels, **parts)


def broken_renderer(picture: Image.Image, row: int, size: int) -> Image.Image:
    """Some pictures fail, the others come in any size and mode."""
    if row % 4 == 0:
        raise OSError(f"cannot identify {HOSTILE}\n")
    mode = ("L", "RGBA", "P", "RGB", "1", "CMYK", "I;16", "LA")[row % 8]
    return Image.new(mode, ((size, 2 * size), (3 * size, size), (1, 1), (7, size))[row % 4])


def fake(n: int = 60, d: int = 4, *, unit: str = "torso lengths") -> tuple[Evaluation, Ranking]:
    """Embeddings that are noisy labels: an evaluation and a ranking of all rows against all others."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randn(n, 2, generator=generator)
    embeddings = torch.cat([labels, torch.zeros(n, max(d - 2, 0))], dim=1)[:, :d]
    return evaluate(embeddings + 0.3 * torch.randn(n, d, generator=generator), space_of(labels, unit=unit))


def no_ranking() -> Ranking:
    """The ranking of no queries."""
    none, rows, values = torch.zeros(0, 10), torch.zeros(0, 10, dtype=torch.long), torch.zeros(0)
    pairs, embeddings = torch.zeros(0, 2), torch.zeros(0, 8)
    return Ranking(rows[:, 0], rows, rows, none, none, pairs, embeddings, values, values, values, none, {})


def of_test(evaluation: Evaluation | None = None) -> Evaluated:
    """An evaluation of the last weights on the test split."""
    return Evaluated(evaluation or fake()[0], "test", "last", epoch=5, epochs=5)


def evaluation_row(step: int = 0, split: str = "test", **metrics: Any) -> dict[str, Any]:
    return {"event": "evaluation", "split": split, "epoch": step / 10, "step": step, **metrics}


def train_rows(n: int = 50) -> list[dict[str, Any]]:
    rates = {"event": "train", "learning_rate": 1e-4, "images_per_second": 812.0}
    return [{"epoch": i // 10, "step": i, "loss": 1 / (i + 1), **rates} for i in range(n)]


def write(folder: Path, *, without: Sequence[str] = (), **change: Any) -> str:
    evaluation, ranking = fake()
    rows = [*train_rows(), evaluation_row(10, **{"label_distance@10": 0.9, "spearman": 0.5})]
    usual = {"title": "pose", "config": "loss: log_ratio\n", "rows": rows, "split": colours()}
    arguments: dict[str, Any] = {**usual, "evaluation": of_test(evaluation), "ranking": ranking, **change}
    about = About(arguments["title"], arguments["config"], arguments["rows"])
    content = RankingContent(arguments["ranking"])
    path = write_report(folder, content, arguments["split"], arguments["evaluation"], about)
    assert path == folder / "report.html"
    absent = [*without, *([] if arguments["rows"] else ["curves.png"])]  # no curves of no training
    pictures = [name for name in PNGS if name not in absent]
    assert sorted(p.name for p in folder.iterdir()) == sorted([*pictures, "report.html"])
    for name in pictures:
        with Image.open(folder / name) as picture:
            picture.load()
            assert picture.format == "PNG"
            assert min(picture.size) > 100
    return path.read_text(encoding="utf-8")


class Page(html.parser.HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.links, self.anchors, self.handlers, self.alts = (list[str]() for _ in range(5))
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        links = [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data", "action")]
        self.links += [link for link in links if not link.startswith("#")]
        self.anchors += [link for link in links if link.startswith("#")]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        self.alts += [value or "" for name, value in attrs if name == "alt"]

    def handle_data(self, data: str) -> None:
        self.text += data.replace("\N{NO-BREAK SPACE}", " ")


def check_self_contained(text: str) -> Page:
    page = Page(text)
    assert not {"script", "link", "iframe", "object", "base", "form"} & set(page.tags)
    assert not page.handlers
    assert all(link.startswith("data:image/webp;base64,") for link in page.links)
    assert not [outside for outside in ("http:", "https:", "url(") if outside in text]
    return page


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of the usual arguments."""
    return write(tmp_path_factory.mktemp("usual") / "new" / "folder")


def test_page_is_self_contained_and_holds_every_picture_and_number(usual: str) -> None:
    page = check_self_contained(usual)
    # Four plots; queries with 4 and 4 items, or with 5 and 5; the explained pair.
    assert len(page.links) == 4 + 3 * 9 + 6 * 11 + 2
    assert page.anchors == [f"#s{n}" for n in range(page.tags.count("h2"))]
    assert (len(page.alts), page.text.count("60 queries \u00d7 60 gallery items")) == (len(page.links), 1)
    assert "torso lengths" in page.text
    assert "loss: log_ratio" in page.text
    evaluation, _ = fake()
    assert all(cell in page.text for line in summary(evaluation) for cell in line)
    assert sentence(evaluation) in page.text


def curve_titles(rows: list[dict[str, Any]], evaluated: Evaluated) -> tuple[str, int]:
    """The title of the curve of the evaluations, and how many lines it has."""
    axes = training_plot(rows, evaluated).axes[1]
    return axes.get_title(loc="left"), len(axes.get_lines())


def test_split_and_weights_are_named_in_the_header(usual: str, tmp_path: Path) -> None:
    page = Page(usual)
    assert "test split, last weights (epoch 5)" in page.text
    assert "on the test split, which should fall from the random ranking (dotted)" in page.text
    assert "Each dot is an item of the test split" in page.text
    chosen = Selection("label_distance@10", queries=300, best=0.41, last=0.42, difference=-0.01, interval=0.02)
    best = replace(of_test(), checkpoint="best", epoch=3, selection=chosen)
    rows = [*train_rows(), evaluation_row(10, "val", **{"label_distance@10": 0.9})]
    page = Page(write(tmp_path / "best", evaluation=best, rows=rows))
    assert f"{best.description}. Note: {best.doubt}" in page.text
    assert "on the validation split, which should fall. Right" in page.text
    on_val = replace(best, split="val", selection=replace(chosen, interval=0.001))
    page = Page(write(tmp_path / "val", evaluation=on_val, rows=rows))
    assert "validation split (no test split was evaluated; the weights were chosen on it), best weights" in page.text
    assert "Note" not in page.text
    assert "Each dot is an item of the validation split" in page.text
    assert "test split," not in page.text


def test_the_curve_of_the_evaluations_names_its_split() -> None:
    values: dict[str, Any] = {"metric": "label_distance@10", "label_distance@10": 0.9}
    rows = [evaluation_row(step, "val", **values) for step in (0, 10)]
    title = "split:\nmean label distance@10, torso lengths"
    assert curve_titles(rows, replace(of_test(), split="val")) == (f"Validation {title}", 3)
    # The metrics of a random ranking and of the oracle on the test split are no baselines of the validation split.
    assert curve_titles(rows, of_test()) == (f"Validation {title}", 1)
    assert curve_titles([evaluation_row(**values)], of_test())[0] == f"Test {title}"


@pytest.mark.parametrize("unit", ["", "px/joint"])
def test_the_titles_of_the_training_plot_do_not_overlap(unit: str) -> None:
    evaluated = of_test()
    evaluated = replace(evaluated, evaluation=replace(evaluated.evaluation, measure=Measure(unit)))
    values: dict[str, Any] = {"metric": "label_distance@10", "label_distance@10": 0.9}
    figure = training_plot([*train_rows(), evaluation_row(10, "val", **values)], evaluated)
    picture_of(figure)  # places the titles
    texts = [axes._left_title for axes in figure.axes]
    boxes = [text.get_window_extent() for text in texts]
    assert all(a.x1 < b.x0 for a, b in itertools.pairwise(boxes)), [text.get_text() for text in texts]


def beside(rows: tuple[int, int], pictures: tuple[Image.Image, Image.Image], size: int) -> TitledPictures:
    """An explainer: the two pictures beside each other."""
    both = Image.new("RGBA", (size, size // 2))
    for place, picture in enumerate(pictures):
        both.paste(picture.resize((size // 2, size // 2)), (place * (size // 2), 0))
    return [("both", both)]


def test_a_split_that_explains_gets_a_picture_of_the_first_query_and_its_best(tmp_path: Path) -> None:
    _, ranking = fake()
    split = colours(prefix=HOSTILE, view=View(explainer=beside))
    split.labels.title = f"1.5 <b>px</b>{HOSTILE}"
    page = check_self_contained(write(tmp_path, split=split))
    assert "1.5 <b>px</b>" in page.text
    assert "The first query and its nearest item" in page.text
    first = int(choose_queries(ranking.label_distances, 6)[0])
    query, best = int(ranking.queries[first]), int(ranking.model[first, 0])
    assert any(f"{query:04d}.jpg" in alt and f"{best:04d}.jpg, explained: both" in alt for alt in page.alts)


def test_an_explanation_that_fails_is_omitted_and_noted(tmp_path: Path) -> None:
    def failing(rows: tuple[int, int], pictures: tuple[Image.Image, Image.Image], size: int) -> TitledPictures:
        raise ValueError("no words")

    page = check_self_contained(write(tmp_path / "failing", split=colours(view=View(explainer=failing))))
    assert "ValueError: no words" in page.text
    assert "The first query and its nearest item" not in page.text
    write(tmp_path / "nothing", ranking=no_ranking(), split=colours(view=View(explainer=beside)))


def test_everything_is_escaped(tmp_path: Path) -> None:
    evaluation, ranking = fake(unit=HOSTILE + "$x^$ 漢 \U0001f600")
    curve = replace(evaluation.curves["ndcg"], title=HOSTILE + r"$\frac{$ 漢 $", better="<script>")
    about = {"title": HOSTILE + "\udcff\x00", "config": HOSTILE + "\nlone: \udcff\x00", "ranking": ranking}
    evaluated = of_test(replace(evaluation, curves={**evaluation.curves, "ndcg": curve}))
    split = colours(prefix=HOSTILE + "\n\udcff", view=View(broken_renderer))
    page = check_self_contained(write(tmp_path, evaluation=evaluated, split=split, **about))
    assert page.text.count(HOSTILE) >= 4  # title twice, unit, table, config
    assert any(HOSTILE in alt for alt in page.alts)
    assert page.tags.count("img") == len(page.links)
    assert "could not be drawn" in page.text
    assert "and " in page.text.split("could not be drawn")[1]


def test_page_is_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = write(tmp_path)

    def fail(*_: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", fail)
    evaluation, ranking = of_test(), fake()[1]
    with refuses(str(tmp_path / "metrics.png"), got="no space left"):
        write_report(tmp_path, RankingContent(ranking), colours(), evaluation, About("b"))
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == before
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*PNGS, "report.html"])


@pytest.mark.parametrize("rows", [
    [],
    [evaluation_row(**{"label_distance@5": 1.0, "label_distance@x": 2.0})],
    [{"event": "train", "epoch": 0, "step": 0, "loss": math.nan, "learning_rate": None}],
    [{"event": "train", "step": 3, "loss": math.inf}, {"event": "train"}, {"event": "train", "loss": "much"}, {}],
    [*train_rows(3), {"event": "train", "epoch": 0, "step": 3, "loss": math.nan}, {"event": "note", "step": 4}],
    [{"event": "train", "epoch": 0, "step": i, "loss": 10.0**i, "learning_rate": 0.1} for i in range(38)],
])  # fmt: skip
def test_the_training_plot_takes_any_rows(rows: list[dict[str, Any]]) -> None:
    evaluation, _ = fake()
    assert picture_of(training_plot(rows, of_test()))
    assert picture_of(training_plot(rows, of_test(replace(evaluation, curves={}))))


def test_a_step_that_a_resumed_run_repeats_is_drawn_once() -> None:
    line = training_plot([*train_rows(30), *train_rows(40)[20:]], of_test()).axes[0].get_lines()[0]
    assert np.asarray(line.get_xdata()).tolist() == list(range(40))


@pytest.mark.parametrize(("n", "d"), mostly_slow([(2, 3), (3, 1), (60, 1), (60, 2)], 1))
def test_few_items_and_one_dimension(tmp_path: Path, n: int, d: int) -> None:
    evaluation, ranking = fake(n=n, d=d)
    write(tmp_path, evaluation=of_test(evaluation), ranking=ranking, split=colours(n))


@pytest.mark.parametrize("value", mostly_slow([math.nan, 0.0, 1e6], 1))
def test_constant_embeddings(tmp_path: Path, value: float) -> None:
    evaluation, ranking = fake()
    pairs = ranking.pairs.clone()
    pairs[:, 1] = 0 if math.isfinite(value) else value
    ranking = replace(ranking, embeddings=torch.full((60, 5), value), pairs=pairs)
    write(tmp_path, evaluation=of_test(replace(evaluation, spearman=math.nan)), ranking=ranking)


def test_nothing_to_show(tmp_path: Path) -> None:
    ranking = no_ranking()
    curve = Curve("mean label distance", "lower", [math.nan], [math.nan], [math.nan])
    evaluation = Evaluation("", 0, 0, {"label_distance": curve}, math.nan, skipped=12, k=1)
    changes: dict[str, Any] = {"rows": [], "config": "", "ranking": ranking, "split": colours(0)}
    assert "12 images skipped" in Page(write(tmp_path, evaluation=of_test(evaluation), **changes)).text


def test_gallery_spreads_over_the_quality_and_is_reproducible() -> None:
    quality = torch.arange(100.0)[torch.randperm(100, generator=torch.Generator().manual_seed(1))]
    distances = quality[:, None].expand(-1, 10).clone()
    distances[:, 5:] = 1e9  # only the top five count
    assert quality[torch.from_numpy(choose_queries(distances, 5))].tolist() == [10, 30, 50, 70, 90]
    ties = torch.zeros(50, 5)
    assert choose_queries(ties, 6).tolist() == choose_queries(ties, 6).tolist()
    assert (len(set(choose_queries(ties, 6).tolist())), sorted(choose_queries(ties[:3], 6).tolist())) == (6, [0, 1, 2])
    assert choose_queries(torch.tensor([[math.nan, math.nan], [1.0, math.nan], [0.5, 3.0]]), 3).tolist() == [1, 2, 0]


def test_broken_pictures_keep_the_layout() -> None:
    noted: dict[int, str] = {}
    for row in range(8):
        picture = draw(colours(view=View(broken_renderer)), row, 40, noted)
        assert (picture.size, picture.mode) == ((40, 40), "RGB")
    assert noted
    assert all(row % 4 == 0 and text.startswith("OSError") for row, text in noted.items())


def test_tsne_keeps_neighbours_and_is_fixed_by_its_seed() -> None:
    generator = torch.Generator().manual_seed(0)
    groups = torch.arange(4).repeat_interleave(15)
    x = 5 * torch.randn(4, 6, generator=generator)[groups] + 0.1 * torch.randn(60, 6, generator=generator)
    points = torch.from_numpy(tsne(x))
    assert torch.equal(groups[torch.cdist(points, points).fill_diagonal_(math.inf).argmin(1)], groups)
    assert np.array_equal(tsne(x), points.numpy())
    assert not np.array_equal(tsne(x, seed=1), points.numpy())


@pytest.mark.parametrize("x", [torch.zeros(40, 3), torch.randn(40, 1), 1e30 * torch.randn(40, 3), torch.ones(10, 2)])
def test_tsne_takes_degenerate_embeddings(x: torch.Tensor) -> None:
    assert np.isfinite(tsne(x)).all()


def test_tsne_of_a_sample_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("contml.app.report.embedding_map.MAX_TSNE", 20)
    _, ranking = fake()
    ranking.embeddings[7] = math.nan
    axes = map_plot(colours().labels, ranking.embeddings).axes[0]
    assert axes.get_xlabel() == "t-SNE of 20 of 59 items, drawn at random (seed 0)"


@pytest.mark.parametrize("n", [1, 3, 9])
def test_tsne_of_few_items_is_a_note(n: int) -> None:
    axes = map_plot(colours(n).labels, torch.randn(n, 4)).axes[0]
    assert [text.get_text() for text in axes.texts] == ["t-SNE needs at least 10 items"]
    assert axes.get_xlabel().startswith(f"t-SNE of {n} item")


def dot_colours(labels: Any, count: int = 40) -> tuple[list[tuple[float, ...]], list[str]]:
    """The colour of each dot of a map, and the texts of its legend."""
    figure = map_plot(labels, torch.randn(count, 4, generator=torch.Generator().manual_seed(0)))
    picture_of(figure)
    dots = figure.axes[0].collections[-1]
    legend = [text.get_text() for each in figure.legends for text in each.get_texts()]
    legend += [axes.get_xlabel() for axes in figure.axes[1:]]
    legend += [text.get_text() for axes in figure.axes[1:] for text in axes.get_xticklabels()]
    return [tuple(colour[:3]) for colour in dots.get_facecolors().tolist()], legend


def test_dots_of_a_map_have_the_colours_of_the_labels() -> None:
    """Numbers have a scale, with places by ratio where ratios count; classes a key each; dates are dates."""
    numbers = NumberLabels([10.0**row for row in range(40)])
    numbers.title = "price $"
    numbers.measure = replace(numbers.measure, kind="linear")
    linear, legend = dot_colours(numbers)
    assert legend[0] == r"price \$"
    numbers.values = numbers.values.log()
    numbers.measure = replace(numbers.measure, kind="ratio")
    by_ratio, legend = dot_colours(numbers)
    assert legend[0] == r"price \$ (log scale)"
    assert len(set(linear)) < len(set(by_ratio))  # of 10^0 to 10^39, all but the last have one colour on a linear scale
    classes, legend = dot_colours(ClassLabels([row % 12 for row in range(40)]))
    assert (len(set(classes)), legend[-1], len(legend)) == (12, "and 3 more", 10)
    assert classes[0] == classes[12] != classes[1]
    _, legend = dot_colours(DateLabels([datetime(2020 + row // 12, row % 12 + 1, 1) for row in range(40)]))
    assert legend[1].startswith("2020-01")


def test_other_labels_have_colours_along_their_main_direction() -> None:
    vectors = VectorLabels(torch.stack((torch.arange(40.0), torch.zeros(40)), 1))
    assert vectors.colours() is None
    places = main_direction(vectors).values
    in_order = [row / 39 for row in range(40)]
    assert places.tolist() == pytest.approx(in_order) or places.tolist() == pytest.approx(in_order[::-1])
    colours_of_dots, legend = dot_colours(vectors)
    assert len(set(colours_of_dots)) > 30
    assert "main direction" in legend[0]


def test_density_takes_few_and_degenerate_pairs() -> None:
    holes = torch.tensor([[0.0, math.nan], [math.inf, 1.0]])
    for pairs in (torch.zeros(0, 2), holes, torch.rand(5, 2), torch.rand(500, 2) * 1e-12):
        assert picture_of(density_plot(pairs, 0.5))


def test_binned_quartiles_find_the_line() -> None:
    x = np.linspace(0, 1, 4001)
    centres, quartiles = binned_quartiles(x, 2 * x)
    np.testing.assert_allclose(quartiles[1], 2 * centres, atol=1e-3)
    assert (quartiles[0] < quartiles[2]).all()


@pytest.mark.parametrize(("numbers", "texts"), [
    ((412_345.678, 310_000, 520_000), ("410,000", "310,000", "520,000")),
    ((412_345.678, 412_000.5, 412_700), ("412,350", "412,000", "412,700")),
    ((3.2349, -0.7759, 7.246), ("3.2", "-0.8", "7.2")),
    ((2012.345, 2010.1, 2014.9), ("2012.3", "2010.1", "2014.9")),
    ((0.001234, 0.001, 0.0015), ("0.00123", "0.00100", "0.00150")),
    ((2, 2, 4), ("2.0", "2.0", "4.0")),
    ((5, 5, 5), ("5", "5", "5")),
    ((1e16, 0, 1e17), ("1e+16", "0", "1e+17")),
])  # fmt: skip
def test_numbers_are_rounded_in_proportion_to_their_interval(
    numbers: tuple[float, float, float], texts: tuple[str, str, str]
) -> None:
    assert interval_texts(*numbers) == texts


def test_plots_leave_no_global_state() -> None:
    before = dict(matplotlib.rcParams)
    _, ranking = fake()
    picture_of(training_plot(train_rows(), of_test()))
    picture_of(density_plot(ranking.pairs, 0.5))
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize(("value", "text"), [
    (0.0, "0"), (0.38123, "0.381"), (0.9996, "1.00"), (12.345, "12.3"), (999.6, "1,000"), (123456.0, "123,456"),
    (0.000123456, "0.000123"), (1.234e-7, "1.23e-07"), (-0.5, "-0.500"), (math.nan, "-"), (math.inf, "-"),
])  # fmt: skip
def test_number(value: float, text: str) -> None:
    assert number(value) == text


def test_percent() -> None:
    found = [percent(x) for x in (0.734, 0, -0.001, -0.3, 1.2, math.nan)]
    assert found == ["73 %", "0 %", "0 %", "-30 %", "120 %", "-"]


def test_metrics_of_graded_labels(tmp_path: Path) -> None:
    torch.manual_seed(0)
    values = torch.randn(60, 2)
    found, _ = evaluate(values + torch.randn(60, 2), VectorLabels(values))
    assert [row[0] for row in summary(found)][-4:-1] == ["area under the label distance", "H-AP", "Kendall's tau"]
    assert "of the 60 queries" not in write(tmp_path / "all", evaluation=of_test(found))
    assert len([each for each in metrics_plot(found).axes if each.get_title(loc="left")]) == 2
    assert "20 of the 60 queries" in write(tmp_path / "sample", evaluation=of_test(replace(found, sorted_queries=20)))


def test_summary_and_sentence() -> None:
    curve = Curve("Mean label distance", "lower", [0.38] * 20, [1.0] * 20, [0.15] * 20)
    evaluation = Evaluation("metres", 10, 100, {"label_distance": curve}, 0.5, k=2)
    table = summary(evaluation)
    assert table[0] == ["metric", "K", "model", "random", "oracle", "normalized"]
    assert [line[1] for line in table[1:]] == ["1", "5", "10", "20", "-"]
    assert (table[3], table[-1][2]) == (["Mean label distance", "10", "0.380", "1.00", "0.150", "73 %"], "0.500")
    assert repr(evaluation) == "Evaluation(label_distance@2=0.380, random=1.00, oracle=0.150, queries=10, gallery=100)"
    expected = "0.38 times the value of a random ranking; normalized score 73 % (0 %: random ranking, 100 %: oracle)."
    assert sentence(evaluation) == f"Mean label distance@2 is {expected}"

    def changed_sentence(**lines: Any) -> str:
        return sentence(replace(evaluation, curves={"label_distance": replace(curve, **lines)}))

    for kind, words in (("linear", " is 0.38"), ("ratio", ", in logarithms, is 0.38")):
        assert sentence(replace(evaluation, measure=Measure("px", 4, kind))).startswith(f"Mean label distance@2{words}")
    assert "worse than random" in changed_sentence(model=[1.2] * 20)
    assert changed_sentence(oracle=[1.0] * 20).endswith("is 0.380; random: 1.00; oracle: 1.00.")
    assert changed_sentence(random=[0.0] * 20, oracle=[0.0] * 20).startswith("Mean label distance@2 is 0.380; ")
