"""Published metrics in a config: known names, fractions; kept with the run, without effect on the training."""

import pytest
import torch
import yaml
from support.miniature import TINY
from support.refusals import refused
from support.retrieval import evaluate

from contml import InputError
from contml.app.experiment import load, load_run, resume, train
from contml.config import dump, read
from contml.evaluation.metrics import Published, metric_of
from contml.labels import ClassLabels

TEXT = """
published:
  source: "Kim et al. 2020, Table 2"
  recall@1: 0.697
  label_distance@10: 12.5
  map_at_r: 0
"""


def config(tmp_path, text=TEXT):
    path = tmp_path / "mine.yaml"
    path.write_text(dump(load("pose/synthetic", TINY).values) + text)
    return path


def test_a_config_holds_published_metrics(tmp_path):
    experiment = load(str(config(tmp_path)), ["published.recall@1=0.7", "published.nmi=0.5"])
    part = experiment.config.parts["published"]
    assert part.build().source == "Kim et al. 2020, Table 2"
    metrics = {"recall@1": 0.7, "label_distance@10": 12.5, "map_at_r": 0.0, "nmi": 0.5}
    assert part.build().metrics == metrics
    assert experiment.values["published"] == {"source": "Kim et al. 2020, Table 2", **metrics}
    assert "published" not in load(str(config(tmp_path)), ["published=null"]).values
    assert "published" not in load("pose/synthetic").values


WRONG = [
    ("recal@1", 0.7, {"got": "unknown", "hint": "recall@1"}),
    ("recall", 0.7, {"got": "without its K", "hint": "recall@10"}),
    ("recall@2", 69.7, {"got": "69.7", "allowed": "0 to 1", "hint": "0.697"}),
    ("spearman", -2.0, {"got": "-2", "allowed": "-1 to 1"}),
    ("label_distance@5", -2.0, {"got": "-2", "allowed": "at least 0"}),
]


@pytest.mark.parametrize(("metric", "value", "fields"), WRONG)
def test_a_wrong_metric_is_refused(tmp_path, metric, value, fields):
    refused(lambda: Published("a paper", **{metric: value}), metric, **fields)
    with pytest.raises(InputError) as error:
        load(str(config(tmp_path)), [f"published.{metric}={'.nan' if value != value else value}"])
    assert all(text in str(error.value) for text in ("command line", "published", metric, *fields.values()))


def test_a_source_and_a_metric_are_needed():
    refused(lambda: Published(" ", **{"recall@1": 0.7}), "source", got="empty", hint="Kim et al. 2020, Table 2")
    refused(lambda: Published("a paper"), "metrics", got="none", hint="recall@1: 0.697")


MISTAKES = [
    ("published.recall@2=true", ("published.recall@2", "true", "number")),
    ("published.recall@2=1" + "0" * 400, ("published.recall@2", "inf", "0 to 1")),
    ("published={recall@1: 0.7}", ("published.source", "missing")),
    ("published=0.7", ("published", "0.7", "mapping")),
]


@pytest.mark.parametrize(("change", "values"), MISTAKES)
def test_a_mistake_in_the_section_is_one_line(tmp_path, change, values):
    with pytest.raises(InputError) as error:
        load(str(config(tmp_path)), [change])
    assert all(value in str(error.value) for value in values)
    assert "\n" not in str(error.value)


def test_the_metrics_of_an_evaluation_have_bounds():
    random = torch.Generator().manual_seed(0)
    evaluation, _ = evaluate(torch.randn(30, 4, generator=random), ClassLabels(torch.arange(30) % 5))
    for name in [*(f"{name}@1" for name in evaluation.curves), *evaluation.scores, "spearman"]:
        metric = metric_of(name)
        assert metric.low < metric.high
        Published("a paper", **{name: metric.low})


@pytest.mark.slow
def test_a_run_keeps_published_metrics_and_resumes_when_they_change(tmp_path):
    run = train(load(str(config(tmp_path)), ["training.evaluate_every=1000"]), tmp_path / "runs")
    assert run is not None
    assert yaml.safe_load(run.config.read_text())["published"]["recall@1"] == 0.697
    assert load_run(run.folder)[0].config.parts["published"].build().metrics["label_distance@10"] == 12.5
    run.config.write_text(run.config.read_text().replace("0.697", "0.7"))
    resume(run.folder)
    assert read(run.config).values["published"]["recall@1"] == 0.7
    text = run.config.read_text()
    run.config.write_text(text[: text.index("published:")])
    resume(run.folder)
