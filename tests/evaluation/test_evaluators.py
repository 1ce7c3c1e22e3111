import math
from dataclasses import replace

import pytest
import torch
from support.captioning import described_squares, small_captioner
from support.refusals import refused

from contml.captioning import score_captions
from contml.captioning.evaluator import CaptionEvaluator, evaluate_captions
from contml.data import Images
from contml.evaluation.evaluated import Evaluated, scope, sentence, summary
from contml.evaluation.results import measurable, measured, usual
from contml.labels import NumberLabels


def test_scores_of_the_references_themselves():
    split = described_squares()
    rows = torch.arange(30)
    texts = [captions[0] for captions in split.labels.captions]
    evaluation, captions = evaluate_captions(texts, split, rows)
    scores = score_captions(texts, split.labels.captions)
    assert evaluation.scores["cider_d"].model == pytest.approx(scores.corpus["cider_d"], abs=1e-12)
    assert evaluation.curves["bleu"].model == pytest.approx([scores.corpus[f"bleu_{k}"] for k in (1, 2, 3, 4)])
    assert evaluation.headline == "cider_d"
    assert evaluation.main.model == pytest.approx(float(captions.values.mean()))
    assert evaluation.main.random < evaluation.main.model
    assert (evaluation.queries, captions.texts) == (30, texts)


def test_a_person_is_compared_with_the_others():
    split = described_squares()
    texts = ["one red ball on grass\none red ball on grass"] * 15 + ["two cats"] * 15
    split = replace(split, labels=split.labels.with_texts(texts))
    evaluation, _ = evaluate_captions(["something else"] * 30, split, torch.arange(30))
    assert evaluation.curves["bleu"].oracle == pytest.approx([1] * 4, abs=1e-6)
    split = replace(split, labels=split.labels.with_texts(["two cats"] * 30))  # nobody to compare with
    evaluation, _ = evaluate_captions(["something else"] * 30, split, torch.arange(30))
    assert math.isnan(evaluation.main.oracle)
    assert summary(evaluation)


def test_unreadable_images_are_left_out():
    split = described_squares()
    captioner = small_captioner(split).eval()
    evaluator = CaptionEvaluator(captioner.vocabulary.decode)
    outputs, missing = evaluator.outputs(captioner, split, Images(resize=16, crop=14))
    assert outputs.shape == (30, 9)
    assert not len(missing)
    evaluation, captions = evaluator.evaluate(outputs, torch.tensor([4, 7]), split)
    assert (evaluation.skipped, captions.queries.tolist()) == (2, [row for row in range(30) if row not in (4, 7)])
    assert len(captions.shown(6)) == 6
    values = captions.values[captions.shown(6)]
    assert torch.equal(values, values.sort(descending=True).values)


def test_the_result_goes_through_json_and_tables():
    evaluation, _ = evaluate_captions(["a square"] * 30, described_squares(), torch.arange(30))
    read = Evaluated.from_dict(Evaluated(evaluation, "test", "last", 2, 2).to_dict()).evaluation
    assert (read.scores, usual(read)) == (evaluation.scores, ["bleu@1", "bleu@4", "cider_d", "cider", "rouge_l"])
    assert "spearman" not in measurable(read)
    assert measured(read, "bleu@4").title == "BLEU-4"
    table = summary(read)
    assert table[0] == ["metric", "K", "model", "random caption", "person", "normalized"]
    assert [row[1] for row in table[1:5]] == ["1", "2", "3", "4"]
    assert sentence(read).startswith("CIDEr-D is ")
    assert scope(read) == "30 images"


def test_a_split_without_captions():
    split = replace(described_squares(), labels=NumberLabels(torch.zeros(30)))
    refused(lambda: evaluate_captions(["a"] * 30, split, torch.arange(30)), "task", got="no captions")
