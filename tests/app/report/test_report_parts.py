"""The parts of the report: which queries it shows, its figures against slow loops, its size, the unit of the labels."""

import base64
import io
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from support.label_spaces import space_of
from support.retrieval import evaluate

from contml._support.text import number, percent
from contml.app.report.examples import by_score, drawn, examples
from contml.app.report.page import ITEM, LIMIT, About, Album, write_report
from contml.app.report.ranking import RankingContent, label_rows
from contml.contracts import Measure
from contml.data import Pixels, Split, View
from contml.evaluation import Evaluated
from contml.evaluation.evaluated import headline_words, shortened, summary
from contml.labels import ClassLabels, NumberLabels, WeightedLabels


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
    of_classes = found(ClassLabels(torch.tensor([0, 0, 0, 1, 1, 2] * 5)), items=30)  # their main metric is recall@1
    for main, each in ((evaluation.main, ranking), (of_classes[1].main, of_classes[2])):
        means = [float(x.mean()) for x in (each.values, each.random_values, each.oracle_values)]
        assert means == pytest.approx([main.model, main.random, main.oracle])


# ---------------------------------------------------------------------------------------------------------------------
# which queries are shown


def test_the_first_screen_shows_the_best_the_median_and_the_worst_query_beside_the_oracle():
    split, evaluation, ranking = found()
    shown = examples(split, evaluation, ranking)
    order = sorted(range(len(split)), key=lambda q: float(ranking.values[q]))
    assert [each.row for each in shown.first] == [order[0], order[20], order[39]]
    assert [each.title for each in shown.first] == ["Best query", "Median query", "Worst query"]
    for each in shown.first:
        assert [item.row for item in each.lines[1].items] == ranking.oracle[each.row, :5].tolist()
        rows = [item.row for item in each.lines[0][1]]
        assert rows == ranking.model[each.row, :5].tolist()
        d = split.labels.pairwise([each.row], rows)[0].tolist()
        assert [item.text for item in each.lines[0][1]] == [number(x) for x in d]
        assert f"3 nearest: {number(float(ranking.values[each.row]))};" in each.details.replace("\xa0", " ")


def test_classes_rank_from_high_to_low():
    split, evaluation, ranking = found(ClassLabels(torch.tensor([0, 0, 0, 1, 1, 2] * 5)), items=30)
    assert bool((ranking.values[torch.from_numpy(by_score(ranking, evaluation))].diff() <= 0).all())
    details = examples(split, evaluation, ranking).first[0].details.replace("\xa0", " ")
    assert "of the top 5 have the same class" in details


# ---------------------------------------------------------------------------------------------------------------------
# the unit of the labels


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
    words = f"The nearest item is of the query's class for {percent(classes.main.model)} of the queries; random: "
    assert headline_words(classes).startswith(words)


# ---------------------------------------------------------------------------------------------------------------------
# tables


def test_the_table_is_short_and_complete():
    _, evaluation, _ = found()
    rows = summary(evaluation)[1:]
    shown, folded = shortened(rows, "3")
    assert ({row[1] for row in shown}, sorted(shown + folded)) == ({"1", "10", "-"}, sorted(rows))


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
    numbers = [*map(number, (main.model, main.random, main.oracle))]
    assert age == ["age", f"{main.title}, age", *numbers, percent(main.normalized())]
    main = evaluate(ranking.embeddings, ClassLabels(ids), clusters=False)[0].main
    assert (of_class[1:4], label_rows(*found()[::2])) == (["Recall@1", number(main.model), number(main.random)], [])


# ---------------------------------------------------------------------------------------------------------------------
# pictures


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
    about = About("t", brief=["1,000 test"], command="contml train 'a <b>'")
    page = write_report(tmp_path / "b", *found_here, about).read_text(encoding="utf-8")
    assert len(page.encode()) < whole
    assert "写真 &lt;b&gt;" in page
    assert headline_words(evaluation) in page.replace("\N{NO-BREAK SPACE}", " ")


def test_embedded_pictures_are_webp_of_limited_width():
    text = Album(split_of(NumberLabels(torch.arange(3.0)))).embedded(Image.new("RGB", (3000, 30)))
    assert text.startswith("data:image/webp;base64,")
    assert Image.open(io.BytesIO(base64.b64decode(text.partition(",")[2]))).width == 1440
