"""The report of class labels: texts and plots about classes in place of label distances."""

import numpy as np
import pytest
import torch
from PIL import Image
from support.retrieval import evaluate

from contml.app.report.page import About, write_report
from contml.app.report.plots import class_density_plot, picture_of, training_plot
from contml.app.report.ranking import RankingContent
from contml.data import Pixels, Split
from contml.evaluation.evaluated import Evaluated
from contml.labels import ClassLabels


def class_colours(classes):
    """Images of one colour, with classes."""
    colours = [tuple(np.random.default_rng(row).integers(0, 256, 3).tolist()) for row in range(len(classes))]
    images = [Pixels(Image.new("RGB", (8, 8), colour)) for colour in colours]
    return Split(images, [f"{row}.jpg" for row in range(len(classes))], ClassLabels(classes))


def found(classes=6, items=60, noise=0.5):
    torch.manual_seed(0)
    split = class_colours(torch.arange(items) % classes)
    embeddings = torch.eye(classes)[split.labels.class_ids] + noise * torch.randn(items, classes)
    evaluation, ranking = evaluate(embeddings, split.labels)
    return split, Evaluated(evaluation, "test", "last", epoch=1, epochs=1), ranking


def test_the_texts_of_the_page_are_about_classes(tmp_path):
    split, evaluation, ranking = found()
    rows = [
        {"event": "evaluation", "split": "test", "epoch": 0, "step": 0, "recall@1": 0.2, "label_distance@10": 0.5},
        {"event": "train", "epoch": 1, "step": 10, "loss": 0.5},
    ]
    write_report(tmp_path, RankingContent(ranking), split, evaluation, About("c", rows=rows))
    page = (tmp_path / "report.html").read_text(encoding="utf-8").replace("\N{NO-BREAK SPACE}", " ")
    for words in ("Recall@1 is 0.", "MAP@R", "0 within a class, 1 between classes", "items of the query&#39;s class"):
        assert words in page
    for words in ("Embedding distance within and between classes", "Recall@1 on the test"):
        assert words in page
    assert "lower is better" not in page


def test_the_training_plot_shows_recall_at_1():
    _, evaluation, _ = found()
    rows = [{"event": "evaluation", "split": "test", "step": step, "recall@1": 0.1 * step} for step in range(3)]
    axes = training_plot(rows, evaluation).axes[1]
    assert axes.get_title(loc="left") == "Test split:\nRecall@1"
    assert np.asarray(axes.get_lines()[0].get_ydata()).tolist() == pytest.approx([0, 0.1, 0.2])
    assert evaluation.evaluation.curves["recall"].random[0] in [line.get_ydata()[0] for line in axes.get_lines()]


@pytest.mark.parametrize("pairs", [[], [[0.0, 1.0]], [[1.0, 1.0]] * 2, [[0.0, 0.5], [1.0, 0.5], [1.0, torch.nan]]])
def test_density_of_any_pairs(pairs):
    assert picture_of(class_density_plot(torch.tensor(pairs).view(-1, 2)))


def test_densities_are_of_area_1_each():
    _, _, ranking = found()
    axes = class_density_plot(ranking.pairs).axes[0]
    outlines = [patch for patch in axes.patches if patch.get_label().startswith(("within", "between"))]
    assert [patch.get_label() for patch in outlines] == ["within a class (540)", "between classes (3,000)"]
    for patch in outlines:
        heights, edges, _ = patch.get_data()
        assert float((heights * np.diff(edges)).sum()) == pytest.approx(1)
