"""What chose the weights of an evaluation: intervals of paired differences, the words for split and weights."""

import json
import math
from dataclasses import replace

import pytest
import torch
from scipy.stats import norm, ttest_rel
from support.fake_runs import poses, write_run

from contml.app.cli.printing import print_evaluation
from contml.app.trials.compare import compare
from contml.evaluation import Evaluated, Selection, half_width, paired_interval

TEST = Evaluated(poses(0.4), "test", "best", epoch=9, epochs=12)
CHOSEN = Selection("label_distance@10", queries=300, best=0.41, last=0.42, difference=-0.01, interval=0.02)


@pytest.mark.parametrize("queries", [2, 3, 8, 4000])
def test_the_paired_interval_is_that_of_scipy(queries):
    a, noise = torch.randn(2, queries, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    b = a + 0.3 * noise + 0.01
    mean, half = paired_interval(a, b)
    assert (mean - half, mean + half) == pytest.approx(tuple(ttest_rel(a, b).confidence_interval(0.95)))
    items = torch.arange(queries)[:, None] // 2  # two queries share an item
    assert paired_interval(a, b, items) == pytest.approx((mean, half_width(a - b, items)), nan_ok=True)
    if queries == 4000:
        assert half < 0.4 * norm.ppf(0.975) / math.sqrt(queries)  # narrower than that of two independent means


def test_one_query_has_no_interval():
    mean, half = paired_interval(torch.tensor([0.5]), torch.tensor([0.25]))
    assert mean == 0.25
    assert math.isnan(half)
    one = replace(TEST, selection=replace(CHOSEN, queries=1, interval=None))
    saved = json.dumps(one.to_dict(), allow_nan=False)
    assert Evaluated.from_dict(json.loads(saved)).doubt == (
        "the validation split of 1 query is too small to distinguish epoch 9 from epoch 12"
    )


@pytest.mark.parametrize("selection", [None, CHOSEN, replace(CHOSEN, interval=None)])
def test_what_was_evaluated_goes_through_json(selection):
    found = replace(TEST, selection=selection)
    values = json.loads(json.dumps(found.to_dict()))
    assert (Evaluated.from_dict(values), "selection" in values) == (found, selection is not None)
    about = {key: values[key] for key in ("split", "checkpoint", "epoch", "epochs", "unit", "queries")}
    expected = {"split": "test", "checkpoint": "best", "epoch": 9, "epochs": 12}
    assert about == {**expected, "unit": "pixels", "queries": 200}
    for key in ("split", "checkpoint", "epoch", "epochs", "unit"):
        with pytest.raises(ValueError, match=key):
            Evaluated.from_dict({name: value for name, value in values.items() if name != key})


WORDS = [
    ("test", "best", 9, "test split, best weights (epoch 9 of 12, chosen on validation)"),
    ("test", "last", 12, "test split, last weights (epoch 12)"),
    (
        "val",
        "best",
        9,
        "validation split (no test split was evaluated; the weights were chosen on it), best weights (epoch 9 of 12)",
    ),
    ("val", "last", 12, "validation split (no test split was evaluated), last weights (epoch 12)"),
]


@pytest.mark.parametrize(("split", "checkpoint", "epoch", "words"), WORDS)
def test_the_words_for_split_and_weights(split, checkpoint, epoch, words):
    found = replace(TEST, split=split, checkpoint=checkpoint, epoch=epoch)
    assert (found.description, found.chosen_on_split) == (words, "chosen on it" in words)


def test_a_choice_that_the_validation_split_is_too_small_for():
    small = "the validation split of 300 queries is too small to distinguish epoch 9 from epoch 12"
    found = replace(TEST, selection=CHOSEN)
    assert found.doubt == f"{small}: mean label distance@10 differs by 0.0100 ± 0.0200"
    values = {"best": 0.0, "last": 1234.5, "difference": -1234.5, "interval": 2345.0}
    large = replace(CHOSEN, **values, queries=12345, metric="recall@1")
    assert replace(found, selection=large).doubt.endswith("Recall@1 differs by 1,234 ± 2,345")
    assert "12,345 queries" in replace(found, selection=large).doubt
    equal = replace(CHOSEN, difference=0.0, interval=0.0)  # the same retrievals
    assert replace(found, selection=equal).doubt == f"{small}: mean label distance@10 differs by 0 ± 0"


CERTAIN = [
    TEST,
    replace(TEST, selection=replace(CHOSEN, interval=0.009)),
    replace(TEST, epoch=12, selection=replace(CHOSEN, difference=0.0, interval=None)),
    replace(TEST, epoch=12, checkpoint="last", selection=CHOSEN),
]


@pytest.mark.parametrize("found", CERTAIN)
def test_no_doubt(found):
    assert found.doubt == ""


def test_what_was_evaluated_is_printed(capsys):
    changed = replace(TEST, selection=CHOSEN, changes=["test items: 1 removed (a.jpg)"])
    assert changed.description.startswith("test split of changed data, best weights")
    print_evaluation(replace(changed, evaluation=replace(changed.evaluation, skipped=1)))
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == changed.description
    assert lines[-1] == f"note: {changed.doubt}"
    assert "changed since the run began: test items: 1 removed (a.jpg)" in lines
    assert "images that could not be read and were excluded: 1" in lines
    print_evaluation(changed, as_json=True)
    assert Evaluated.from_dict(json.loads(capsys.readouterr().out)) == changed


def test_changed_data_have_a_table_of_their_own(tmp_path):
    changed = replace(TEST, changes=["test items: 1 removed (a.jpg)"])
    write_run(tmp_path / "a", evaluated=[TEST])
    write_run(tmp_path / "b", evaluated=[changed], model__dim=16)
    assert len(compare([tmp_path]).tables) == 2
