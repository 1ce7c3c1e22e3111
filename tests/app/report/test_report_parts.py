"""The parts of the report: which queries it shows, its figures against slow loops, its size, the unit of the labels."""

from __future__ import annotations

import base64
import csv
import io
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from support.label_spaces import space_of
from support.retrieval import evaluate

from contml._support.text import number, percent, plain_text
from contml.app.report.examples import by_score, drawn, examples, queries_csv, surprises, worst
from contml.app.report.page import ITEM, LIMIT, About, Album, panel_pictures, write_report
from contml.app.report.plots import density_plot, ideal_curve, metrics_plot, picture_of
from contml.app.report.ranking import RankingContent, group_rows, label_rows
from contml.app.report.suspects import report_errors
from contml.contracts import Measure
from contml.data import Pixels, Split, View
from contml.evaluation import Evaluated
from contml.evaluation.evaluated import headline_words, shortened, summary
from contml.labels import ClassLabels, NumberLabels, OrdinalLabels, PoseLabels, WeightedLabels


@pytest.fixture(autouse=True)
def coarse(monkeypatch):
    """Plots of few pixels: half the time."""
    monkeypatch.setattr("contml.app.report.plots.DPI", 60)
    monkeypatch.setattr("contml.app.report.embedding_map.DPI", 60)


def split_of(labels, **parts):
    """Images of noise, which compress badly."""
    draw = np.random.default_rng(0).integers(0, 256, (len(labels), 24, 24, 3), dtype=np.uint8)
    images = [Pixels(Image.fromarray(each)) for each in draw]
    return Split(images, [f"写真 <b>{row}.jpg" for row in range(len(labels))], labels, **parts)


def found(labels=None, items=40, noise=0.3, **parts):
    """A split, its evaluation and its ranking."""
    torch.manual_seed(0)
    values = torch.randn(items, 2)
    split = split_of(space_of(values) if labels is None else labels, **parts)
    embeddings = values + noise * torch.randn(items, 2)
    return split, *evaluate(embeddings, split.labels, groups=split.groups)


# ---------------------------------------------------------------------------------------------------------------------
# values of each query


def test_values_of_each_query_against_a_loop_and_their_means_are_the_main_metric():
    split, evaluation, ranking = found()
    d, k = split.labels.pairwise().double(), 3
    for q in range(len(split)):
        others = torch.cat((d[q, :q], d[q, q + 1 :]))
        assert float(ranking.random_values[q]) == pytest.approx(float(others.mean()), rel=1e-6)
        assert float(ranking.oracle_values[q]) == pytest.approx(float(others.sort().values[:k].mean()), rel=1e-6)
    main = evaluation.main
    means = [float(x.mean()) for x in (ranking.values, ranking.random_values, ranking.oracle_values)]
    assert means == pytest.approx([main.model, main.random, main.oracle])


def test_values_of_classes_are_recall_at_1():
    labels = ClassLabels(torch.tensor([0, 0, 0, 1, 1, 2] * 5))
    _, evaluation, ranking = found(labels, items=30)
    main = evaluation.main
    means = [float(x.mean()) for x in (ranking.values, ranking.random_values, ranking.oracle_values)]
    assert means == pytest.approx([main.model, main.random, main.oracle])


def test_the_table_of_queries():
    split, evaluation, ranking = found()
    header, *rows = csv.reader(io.StringIO(queries_csv(split, evaluation, ranking).decode()))
    assert header[:4] == ["query", evaluation.headline, "random", "oracle"]
    assert len(rows) == len(split)
    for q, row in enumerate(rows):
        assert row[0] == split.name(q)
        values = ranking.values[q], ranking.random_values[q], ranking.oracle_values[q]
        assert [float(cell) for cell in row[1:4]] == [float(value) for value in values]
        assert row[4:] == [split.name(each) for each in ranking.model[q, :10].tolist()]


# ---------------------------------------------------------------------------------------------------------------------
# which queries are shown


def test_the_first_screen_shows_the_best_the_median_and_the_worst_query_beside_the_oracle():
    split, evaluation, ranking = found()
    shown = examples(split, evaluation, ranking)
    order = sorted(range(len(split)), key=lambda q: float(ranking.values[q]))
    assert [each.row for each in shown.first] == [order[0], order[20], order[39]]
    assert [each.title for each in shown.first] == ["Best query", "Median query", "Worst query"]
    gap = [float(ranking.values[q] - ranking.oracle_values[q]) for q in range(len(split))]
    assert [each.row for each in shown.worst] == sorted(range(len(split)), key=lambda q: -gap[q])[:3]
    for each in shown.first:
        assert [item.row for item in each.lines[1].items] == ranking.oracle[each.row, :5].tolist()
        rows = [item.row for item in each.lines[0][1]]
        assert rows == ranking.model[each.row, :5].tolist()
        d = split.labels.pairwise([each.row], rows)[0].tolist()
        assert [item.text for item in each.lines[0][1]] == [number(x) for x in d]
        assert f"3 nearest: {number(float(ranking.values[each.row]))};" in each.details.replace("\xa0", " ")


def test_classes_rank_from_high_to_low():
    labels = ClassLabels(torch.tensor([0, 0, 0, 1, 1, 2] * 5))
    split, evaluation, ranking = found(labels, items=30)
    values = ranking.values[torch.from_numpy(by_score(ranking, evaluation))]
    assert bool((values.diff() <= 0).all())
    assert all(float(ranking.values[q]) < float(ranking.oracle_values[q]) for q in worst(ranking))
    details = examples(split, evaluation, ranking).first[0].details.replace("\xa0", " ")
    assert "of the top 5 have the same class" in details


def test_surprises_are_near_pairs_with_far_labels_once_each():
    split, _, ranking = found(noise=3.0)
    x, d = ranking.embeddings.double(), split.labels.pairwise().double()
    near = [float((x[q] - x[int(ranking.model[q, 0])]).norm()) for q in range(len(split))]
    kept = [q for q in range(len(split)) if near[q] <= sorted(near)[19] * 0.5 + sorted(near)[20] * 0.5]
    pairs = []
    for q in sorted(kept, key=lambda q: (-float(d[q, ranking.model[q, 0]]), near[q])):
        pair = {q, int(ranking.model[q, 0])}
        if pair not in pairs:
            pairs.append(pair)
    assert [{q, int(ranking.model[q, 0])} for q in surprises(ranking)] == pairs[:3]


@pytest.mark.parametrize("items", [2, 3])
def test_few_queries(items):
    split, evaluation, ranking = found(items=items)
    assert 1 <= len(examples(split, evaluation, ranking).first) <= items


# ---------------------------------------------------------------------------------------------------------------------
# the unit of the labels


def test_poses_read_in_root_mean_square_pixels_per_joint():
    joints = 10 * torch.randn(6, 5, 2, dtype=torch.float64)
    labels = PoseLabels(joints)
    for a, b in ((0, 1), (2, 5)):
        expected = math.sqrt(sum(float((joints[a, j] - joints[b, j]).square().sum()) for j in range(5)) / 5)
        assert labels.measure.of(float(labels.pairwise([a], [b]))) == pytest.approx(expected, rel=1e-5)
    assert labels.fingerprint() == PoseLabels(joints, unit="other").fingerprint()


def test_the_headline_is_in_the_unit_of_the_labels():
    values = torch.randn(40, 1, generator=torch.Generator().manual_seed(0))
    labels = space_of(values)
    evaluation, _ = evaluate(values + 0.1 * torch.randn(40, 1), labels)
    main = evaluation.main
    model, random, oracle = (f"{number(10 * x)} years" for x in (main.model, main.random, main.oracle))
    words = headline_words(replace(evaluation, measure=Measure("years", 10.0)))
    assert words == f"The 3 nearest items differ by {model}; random: {random}; best possible: {oracle}."
    words = headline_words(replace(evaluation, measure=Measure("", 1.0, "ratio", "price")))
    assert f"differ by x {number(math.exp(evaluation.main.model))} in price; random: x " in words
    assert f"mean label distance of {number(evaluation.main.model)};" in headline_words(evaluation)
    _, classes, _ = found(ClassLabels(torch.tensor([0, 1] * 20)))
    assert headline_words(classes).startswith(
        f"The nearest item is of the query's class for {percent(classes.main.model)} of the queries; random: "
    )


def test_levels_read_in_levels():
    assert OrdinalLabels([1, 2, 3, 5]).measure.of(1.0) == 3


# ---------------------------------------------------------------------------------------------------------------------
# tables


def test_the_table_is_short_and_complete():
    _, evaluation, _ = found()
    rows = summary(evaluation)[1:]
    shown, folded = shortened(rows, "3")
    assert {row[1] for row in shown} == {"1", "10", "-"}
    assert sorted(shown + folded) == sorted(rows)


def test_one_row_per_label_of_a_sum():
    torch.manual_seed(0)
    values, ids = torch.randn(40, 1), torch.arange(40) % 4
    present = torch.ones(40, 2, dtype=torch.bool)
    present[:5, 0] = False
    spaces = {space_of(values, unit="age"): 1.0, ClassLabels(ids): 2.0}
    split, _, ranking = found(WeightedLabels(spaces, present=present))
    age, of_class = label_rows(split, ranking)
    expected, _ = evaluate(ranking.embeddings[5:], space_of(values[5:]))
    main = expected.main
    assert age == [
        "age",
        f"{main.title}, age",
        *map(number, (main.model, main.random, main.oracle)),
        percent(main.normalized()),
    ]
    main = evaluate(ranking.embeddings, ClassLabels(ids), clusters=False)[0].main
    assert of_class[1:4] == ["Recall@1", number(main.model), number(main.random)]
    assert label_rows(*found()[::2]) == []


def test_the_worst_groups():
    groups = torch.arange(40) // 4
    split, _, ranking = found(groups=groups)
    count, rows = group_rows(split, ranking)
    means = {g: float(ranking.values[groups == g].mean()) for g in range(10)}
    order = sorted(means, key=lambda g: -means[g])
    assert count == 10
    assert rows == [[split.name(4 * g), "4", number(means[g])] for g in order]
    assert group_rows(*found()[::2]) == (0, [])
    houses = {"house": [float(2000 + row // 4) if row < 36 else None for row in range(40)]}
    split = replace(split, group_name="house", metadata=houses)
    named = {split.name(4 * g): str(2000 + g) for g in range(9)}
    assert group_rows(split, ranking)[1] == [[named.get(name, name), *rest] for name, *rest in rows]


@pytest.mark.parametrize("count", [3, 4])
def test_the_worst_classes_have_the_lowest_values(count):
    ids = torch.arange(40) % count
    split, _, ranking = found(ClassLabels(ids))
    means = [float(ranking.values[ids == n].mean()) for n in range(count)]
    rows = group_rows(split, ranking)[1]
    assert [row[2] for row in rows] == [percent(mean) for mean in sorted(means)][: len(rows)]
    assert len({*means}) > 1


# ---------------------------------------------------------------------------------------------------------------------
# pictures


def test_the_ideal_curve_is_the_least_squares_proportion():
    rng = np.random.default_rng(0)
    e, y = rng.uniform(0, 3, 200), rng.uniform(0, 9, 200)
    for power in (1, 2, 0.5):
        x = e**power
        factor = np.linalg.lstsq(x[:, None], y, rcond=None)[0][0]
        at = np.linspace(0, 3, 5)
        np.testing.assert_allclose(ideal_curve(e, y, power)(at), factor * at**power)
    assert not ideal_curve(np.zeros(3), np.zeros(3), 2)(np.zeros(2)).any()
    pairs = torch.from_numpy(np.stack((e**2, e), 1))
    (line,) = [each for each in density_plot(pairs, 1.0, 2).axes[0].get_lines() if each.get_label() == "ideal"]
    np.testing.assert_allclose(line.get_ydata(), np.asarray(line.get_xdata()) ** 2, atol=1e-9)
    assert not [each for each in density_plot(pairs, 1.0).axes[0].get_lines() if each.get_label() == "ideal"]


def test_panels_are_pictures_of_their_own():
    _, evaluation, _ = found()
    figure = metrics_plot(evaluation)
    whole = picture_of(figure)
    parts = panel_pictures(figure)
    assert len(parts) == len(evaluation.curves) + 1
    assert all(part.width < 0.6 * whole.width for part in parts)
    assert len({part.size for part in parts}) == 1
    assert all(each.get_visible() for each in (*figure.axes, *figure.legends))  # the plot is as before


def test_a_label_with_words_is_text_and_not_drawn():
    def renderer(picture, row, size):
        return Image.new("RGB", (size, size), "red")

    labels = NumberLabels(torch.arange(3.0)).with_texts([f"{row} 歳\x00<b>" for row in range(3)])
    album = Album(split_of(labels))
    assert album.label(2) == "2 歳\\x00<b>"
    assert album.picture(0) == drawn(split_of(labels), 0, ITEM, {}, label=False) != drawn(split_of(labels), 0, ITEM, {})
    album = Album(split_of(labels, view=View(renderer)))
    assert album.picture(0).getpixel((80, 80)) == (255, 0, 0)
    labels.text = lambda row: [][row]
    failing = Album(split_of(labels))
    assert failing.label(1) == ""
    assert "IndexError" in failing.broken[1]


@pytest.mark.slow
def test_a_page_that_is_too_large_gets_smaller_pictures(tmp_path, monkeypatch):
    split, evaluation, ranking = found()
    found_here = RankingContent(ranking), split, Evaluated(evaluation, "test", "last", epoch=1, epochs=1)
    whole = write_report(tmp_path / "a", *found_here, About("t")).stat().st_size
    assert whole < LIMIT
    monkeypatch.setattr("contml.app.report.page.LIMIT", whole - 1)
    about = About(
        "t",
        brief=["1,000 test"],
        command="contml train 'a <b>'",
        facts=[("Loss", "log_ratio <b>")],
        usage="model = contml.load('a')",
        ideal=2,
    )
    page = write_report(tmp_path / "b", *found_here, about).read_text(encoding="utf-8")
    assert len(page.encode()) < whole
    for words in (
        "log_ratio &lt;b&gt;",
        "model = contml.load(&#39;a&#39;)",
        "to the power 2",
        "写真 &lt;b&gt;",
    ):
        assert words in page.replace("in proportion to the squared", "to the squared")
    assert headline_words(evaluation) in page.replace("\N{NO-BREAK SPACE}", " ")


def test_embedded_pictures_are_webp_of_limited_width():
    text = Album(split_of(NumberLabels(torch.arange(3.0)))).embedded(Image.new("RGB", (3000, 30)))
    assert text.startswith("data:image/webp;base64,")
    assert Image.open(io.BytesIO(base64.b64decode(text.partition(",")[2]))).width == 1440


def test_plain_text():
    assert plain_text("a\nb\udcff\x1b\x7f ü 漢 \u200d") == "a\\nb\\udcff\\x1b\\x7f ü 漢 \u200d"
    assert plain_text("a\nb\t\x00", lines=True) == "a\nb\t\\x00"


def test_label_errors_of_many_items_are_those_of_a_sample(monkeypatch):
    monkeypatch.setattr("contml.app.report.suspects.FITTED", 40)
    x = torch.randn(100, 4, generator=torch.Generator().manual_seed(0))
    split = Split([Pixels(np.zeros((8, 8, 3), np.uint8))] * 100, [*map(str, range(100))], NumberLabels(x[:, 0]))
    found = report_errors(split, x, torch.tensor([3]))
    assert found is not None
    rows = found.order.sort().values
    assert len(rows) == 40
    assert 3 not in rows
    assert torch.isin(found.neighbours[rows], rows).all()
    assert torch.equal(report_errors(split, x, torch.tensor([3])).scores.nan_to_num(), found.scores.nan_to_num())
    one_group = torch.arange(100).clamp(max=20)  # of the 40, few are of other groups
    assert report_errors(replace(split, groups=one_group), x, torch.arange(15)) is None
