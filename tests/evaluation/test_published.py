"""Published figures in a config: known metrics, fractions, kept with the run, no part of what a training is."""

from __future__ import annotations

import pytest
import torch
import yaml
from support.miniature import TINY

from contml import InputError
from contml.config import dump, read
from contml.evaluation.protocol import evaluate
from contml.evaluation.published import Published, bounds
from contml.experiment import load, load_run, resume, train
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


def test_a_config_holds_published_figures(tmp_path):
    experiment = load(str(config(tmp_path)), ["published.recall@1=0.7", "published.nmi=0.5"])
    part = experiment.config.parts["published"]
    assert part.build().source == "Kim et al. 2020, Table 2"
    figures = {"recall@1": 0.7, "label_distance@10": 12.5, "map_at_r": 0.0, "nmi": 0.5}
    assert part.build().figures == figures
    assert experiment.values["published"] == {"source": "Kim et al. 2020, Table 2", **figures}
    assert "published" not in load(str(config(tmp_path)), ["published=null"]).values
    assert "published" not in load("pose/synthetic").values


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("published.recal@1=0.7", "command line: published: unknown metric 'recal@1'; did you mean 'recall@1'?"),
        ("published.recall=0.7", "published: 'recall' is a metric over K without its K; write one such as 'recall@10'"),
        ("published.recall@0=0.7", "'recall@0' is a metric over K without its K"),
        ("published.accuracy=0.7", "unknown metric 'accuracy'; there are recall@K, label_distance@K, ndcg@K, map_at_r"),
        ("published.map@r=0.7", "unknown metric 'map@r'; did you mean 'map_at_r'?"),
        ("published.recall@2=69.7", "published: recall@2 is 69.7; it must be 0 to 1; write 0.697 for 69.7 %"),
        ("published.recall@2=-0.1", "published: recall@2 is -0.1; it must be 0 to 1"),
        ("published.spearman=-2", "published: spearman is -2; it must be -1 to 1"),
        ("published.label_distance@5=-2", "published: label_distance@5 is -2; it must be at least 0"),
        ("published.recall@2=.nan", "published: recall@2 is nan; it must be 0 to 1"),
        ("published.recall@2=true", "'published.recall@2' is true; it must be a number"),
        ("published.recall@2=high", "'published.recall@2' is 'high'; it must be a number"),
        ("published.source=' '", "published: source is empty; say where the figures stand"),
        ("published={recall@1: 0.7}", "command line: 'published.source' is missing; 'published' needs it"),
        ("published={source: me}", "command line: published: there are no figures; give some, such as 'recall@1: 0.69"),
        ("published=0.7", "'published' is 0.7; it must be a mapping of its options"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, change, message):
    with pytest.raises(InputError) as error:
        load(str(config(tmp_path)), [change])
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_mistake_in_a_file_points_at_it(tmp_path):
    path = config(tmp_path, TEXT.replace("recall@1", "recal@1"))
    line = next(n for n, text in enumerate(path.read_text().splitlines(), 1) if text == "published:")
    with pytest.raises(InputError, match=rf"mine\.yaml:{line}: published: unknown metric 'recal@1'; did you mean"):
        load(str(path))


def test_keys_of_any_name_need_a_type(tmp_path):
    with pytest.raises(InputError, match=r"unknown key 'loss\.sqared'; did you mean 'squared'"):
        load(str(config(tmp_path)), ["loss.sqared=1.0"])


def test_what_an_evaluation_saves_has_bounds():
    random = torch.Generator().manual_seed(0)
    evaluation, _ = evaluate(torch.randn(30, 4, generator=random), ClassLabels(torch.arange(30) % 5))
    for name in [*(f"{name}@1" for name in evaluation.curves), *evaluation.scores, "spearman"]:
        low, high = bounds(name)
        assert low < high
        Published("a paper", **{name: low})


def test_a_run_keeps_them_and_goes_on_when_they_change(tmp_path):
    run = train(load(str(config(tmp_path)), ["training.evaluate_every=1000"]), tmp_path / "runs")
    assert run is not None
    assert yaml.safe_load(run.config.read_text())["published"]["recall@1"] == 0.697
    assert load_run(run.folder)[0].config.parts["published"].build().figures["label_distance@10"] == 12.5
    run.config.write_text(run.config.read_text().replace("0.697", "0.7"))
    resume(run.folder)
    assert read(run.config).values["published"]["recall@1"] == 0.7
    text = run.config.read_text()
    run.config.write_text(text[: text.index("published:")])
    resume(run.folder)
