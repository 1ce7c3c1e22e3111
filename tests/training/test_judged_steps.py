"""Steps for judgments: loss and gradients against slow loops, resumed bit for bit, two processes equal to one."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from support.losses import assert_same, value_and_gradients
from support.miniature import Flat, augmented, fitted, squares, weights
from support.reference import cosine, log_sum_exp
from support.refusals import refuses
from support.runs import assert_resumes, of_two_processes

from contml.data import Split
from contml.evaluation.judgments import JudgmentEvaluator
from contml.labels import NumberLabels, PairLabels, RankingLabels, TripletLabels
from contml.losses import LogRatioLoss, MultiSimilarityLoss, SmoothRankLoss
from contml.sampling import JudgedSampler
from contml.training import EmbeddingStep, RankingStep, Trainer, Training, TripletStep

ITEMS = 12


class Given(torch.nn.Module):
    """Embeddings that are given."""

    def __init__(self, embeddings) -> None:
        super().__init__()
        self.embeddings = torch.nn.Parameter(embeddings)

    def forward(self, rows):
        return self.embeddings[rows]


def triplet_labels(number, items=ITEMS, count=60, seed=0):
    random = np.random.default_rng(seed)
    triplets = np.stack([random.choice(items, 3, replace=False) for _ in range(count)])
    triplets[:5] = [0, 5, 7]  # of several judges
    return TripletLabels(triplets, random.integers(0, number, count), items, odd_one_out=number == 3)


def ranking_labels(items=ITEMS, queries=4, candidates=6, seed=0, of="grade"):
    random = np.random.default_rng(seed)
    drawn = (random.choice(np.arange(queries, items), candidates, replace=False) for _ in range(queries))
    pairs = [(q, i) for q, each in enumerate(drawn) for i in each]
    return RankingLabels(pairs, random.permutation(len(pairs)) % 4 + 0.5, items, of=of)


def triplet_loop(x, labels, rows, temperature):
    """- mean over the triplets among the rows of sum_a q_a log p_a, with the pair of each answer written out."""
    terms = []
    for (a, b, c), counts in zip(labels.triplets.tolist(), torch.as_tensor(labels.counts), strict=True):
        if {a, b, c} <= set(rows):
            pairs = [(a, b), (a, c)] if len(counts) == 2 else [(b, c), (a, c), (a, b)]
            logits = [cosine(x[i], x[j]) / temperature for i, j in pairs]
            log_sum = log_sum_exp(logits)
            terms.append(-sum(n / sum(counts) * (each - log_sum) for n, each in zip(counts, logits, strict=True)))
    return sum(terms) / len(terms)


def ndcg_loop(x, labels, temperature):
    """1 - smooth nDCG of each list, with gains in proportion to the grades; the mean over the lists."""
    terms = []
    for n in range(labels.count):
        query, *items = labels.members[labels.offsets[n] : labels.offsets[n + 1]].tolist()
        gains = labels.values[labels.offsets[n] + 1 : labels.offsets[n + 1]].tolist()
        s = [cosine(x[query], x[item]) for item in items]
        dcg = 0.0
        for i in range(len(items)):
            rank = 1 + sum(1 / (1 + torch.exp(-(s[j] - s[i]) / temperature)) for j in range(len(items)) if j != i)
            dcg += gains[i] / torch.log2(1 + rank)
        best = sum(gain / math.log2(2 + place) for place, gain in enumerate(sorted(gains, reverse=True)))
        terms.append(1 - dcg / best)
    return sum(terms) / len(terms)


def embeddings(items=ITEMS, dim=3, seed=0):
    return torch.randn(items, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# -- formulas ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.parametrize("temperature", [0.05, 0.7])
def test_the_triplet_loss_equals_a_loop_over_the_triplets_of_a_batch(number, temperature):
    labels, x = triplet_labels(number), embeddings()
    rows = torch.tensor([5, 0, 7, 2, 9, 11, 1, 3])
    model, theirs = Given(x.clone()), x.clone().requires_grad_()
    loss = TripletStep(temperature)(model, rows, labels[rows])
    expected = triplet_loop(theirs, labels, rows.tolist(), temperature)
    assert_same(value_and_gradients(loss, model.embeddings), value_and_gradients(expected, theirs))


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e12, 1e30])
def test_the_triplet_loss_does_not_depend_on_norms(scale):
    labels, x, rows = triplet_labels(2), embeddings().float(), torch.arange(ITEMS)
    expected = TripletStep()(Given(x), rows, labels[rows])
    model = Given(x * torch.tensor([scale, 1.0, 1 / scale] * (ITEMS // 3))[:, None])
    loss = TripletStep()(model, rows, labels[rows])
    loss.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)
    assert bool(model.embeddings.grad.isfinite().all())


@pytest.mark.parametrize("number", [2, 3])
def test_equal_embeddings_are_a_tie_with_the_gradient_of_even_odds(number):
    labels, rows = triplet_labels(number), torch.arange(ITEMS)
    model = Given(torch.ones(ITEMS, 3, dtype=torch.float64))
    loss = TripletStep()(model, rows, labels[rows])
    loss.backward()
    assert loss.item() == pytest.approx(math.log(number))
    torch.testing.assert_close(model.embeddings.grad, torch.zeros(ITEMS, 3, dtype=torch.float64))  # of cosines at 1
    assert TripletStep()(Given(torch.zeros(ITEMS, 3)), rows, labels[rows]).item() == pytest.approx(math.log(number))


def test_an_embedding_that_is_not_finite_makes_the_loss_nan_although_no_triplet_has_it():
    labels = TripletLabels([[0, 1, 2]], [0], 5)
    x = torch.randn(5, 3)
    x[4, 0] = torch.inf
    rows = torch.arange(5)
    assert TripletStep()(Given(x), rows, labels[rows]).isnan()


def test_half_precision_outside_of_the_step_does_not_change_its_arithmetic():
    labels, x, rows = triplet_labels(2), embeddings().float(), torch.arange(ITEMS)
    expected = TripletStep()(Given(x), rows, labels[rows])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert TripletStep()(Given(x), rows, labels[rows]).item() == expected.item()
        loss = TripletStep()(Given(x.bfloat16()), rows, labels[rows])
    assert loss.dtype == torch.float32


def test_the_ranking_loss_of_grades_is_one_minus_a_smooth_ndcg():
    labels, x, rows = ranking_labels(), embeddings(), torch.arange(ITEMS)
    model, theirs = Given(x.clone()), x.clone().requires_grad_()
    step = RankingStep(loss=SmoothRankLoss("ndcg", temperature=0.3, label_scale=1.0))
    step.check(model, labels)
    loss, expected = step(model, rows, labels[rows]), ndcg_loop(theirs, labels, 0.3)
    assert_same(value_and_gradients(loss, model.embeddings), value_and_gradients(expected, theirs))
    assert step.logs() == {"lists": 4.0}


def test_any_loss_for_graded_labels_trains_on_lists_of_distances():
    labels, x, rows = ranking_labels(of="distance"), embeddings(), torch.tensor([0, 2, 4, 5, 6, 8, 9, 11])
    step = RankingStep(loss=LogRatioLoss())
    step.check(Given(x), labels)
    expected = []
    for positions, distances in labels[rows].within():
        matrix = torch.zeros(len(positions), len(positions), dtype=torch.float64)
        matrix[0] = distances
        expected.append(LogRatioLoss()(x[rows][positions], matrix[:1], anchors=[0]))
    assert len(expected) == 2
    assert step(Given(x), rows, labels[rows]).item() == pytest.approx(torch.stack(expected).mean().item(), rel=1e-12)


def test_the_median_scale_of_a_loss_is_that_of_the_judged_distances():
    labels = ranking_labels(of="distance")
    loss = SmoothRankLoss(train_labels=labels)
    values = np.delete(labels.values, labels.offsets[:-1])
    assert float(loss.label_unit) == float(torch.from_numpy(values).median())


@pytest.mark.parametrize("step", [TripletStep(), RankingStep(loss=SmoothRankLoss(label_scale=1.0))])
def test_a_batch_without_a_whole_judgment_changes_nothing(step):
    labels = triplet_labels(2) if step.requires == "triplets" else ranking_labels()
    rows = torch.tensor([ITEMS - 1, ITEMS - 2])
    model = Given(embeddings())
    loss = step(model, rows, labels[rows])
    loss.backward()
    assert loss.item() == 0
    assert not bool(model.embeddings.grad.any())
    assert list(step.logs().values()) == [0]


# -- what does not fit -------------------------------------------------------------------------------------------------


def test_steps_and_labels_that_do_not_fit_are_refused():
    model, places = Given(embeddings()), NumberLabels(torch.randn(ITEMS))
    with refuses("TripletStep", got="graded labels", hint="TripletLabels"):
        TripletStep().check(model, places)
    with refuses("RankingStep", got="triplets", hint="TripletStep"):
        RankingStep(loss=SmoothRankLoss(label_scale=1.0)).check(model, triplet_labels(2))
    with refuses("LogRatioLoss", got="triplets", hint="TripletStep"):
        EmbeddingStep(loss=LogRatioLoss()).check(model, triplet_labels(2))
    with refuses("SmoothRankLoss", got="judged lists", hint="RankingStep"):
        EmbeddingStep(loss=SmoothRankLoss(label_scale=1.0)).check(model, ranking_labels())
    with refuses("LogRatioLoss", got="grades", hint="SmoothRankLoss"):
        RankingStep(loss=LogRatioLoss()).check(model, ranking_labels())
    with refuses("MultiSimilarityLoss", got="graded"):
        RankingStep(loss=MultiSimilarityLoss()).check(model, ranking_labels())


# -- training ----------------------------------------------------------------------------------------------------------


def judged_squares(kind, items=24, seed=0, broken=()):
    """Squares, judged by their places without noise."""
    split = squares(items, seed, broken)
    distances = split.labels.pairwise().numpy()
    random = np.random.default_rng(seed)
    if kind == "rankings":
        pairs = [(q, i) for q in range(8) for i in random.choice(np.arange(8, items), 6, replace=False)]
        labels = RankingLabels(pairs, [distances[q, i] for q, i in pairs], items, of="distance")
    elif kind == "pairs":
        pairs = [random.choice(items, 2, replace=False) for _ in range(60)]
        labels = PairLabels(pairs, [distances[a, b] for a, b in pairs], items)
    else:
        triplets = np.stack([random.choice(items, 3, replace=False) for _ in range(90)])
        labels = TripletLabels(triplets, [distances[a, y] < distances[a, x] for a, x, y in triplets.tolist()], items)
    return Split(split.images, split.names, labels)


def step_of(kind, labels):
    if kind == "triplets":
        return TripletStep()
    loss = SmoothRankLoss(train_labels=labels)
    return RankingStep(loss=loss) if kind == "rankings" else EmbeddingStep(loss=loss)


def judged_trainer(kind, run=None, *, model=None, epochs=2, val=None, broken=(), **options):
    split = judged_squares(kind, broken=broken)
    torch.manual_seed(0)
    sampler = JudgedSampler(12, labels=split.labels, batches=5, seed=3)
    images = augmented(resize=16, crop=14, scale_jitter=1, shift=1, broken="skip" if broken else "fail")
    given = (model or Flat(dropout=0.2), step_of(kind, split.labels), split, sampler, images)
    others = {"val": val, "test": judged_squares(kind, 20, seed=1), "run": run, "quiet": True}
    trainer = Trainer(*given, Training(epochs=epochs, **options), **others)
    trainer.evaluator = JudgmentEvaluator()
    return trainer


@pytest.mark.parametrize("kind", ["pairs", "triplets", "rankings"])
def test_a_stopped_training_resumes_bit_for_bit(tmp_path, kind):
    val = judged_squares(kind, 16, seed=2)
    assert_resumes(lambda run: judged_trainer(kind, run, val=val, checkpoint_minutes=0), tmp_path, (1, 2))


@pytest.mark.parametrize("kind", ["pairs", "triplets", "rankings"])
def test_broken_images_leave_out_their_judgments(kind):
    trainer = fitted(judged_trainer(kind, broken=(3, 9)))
    assert trainer.trained
    evaluation, judged, missing = trainer.evaluate(trainer.split)
    assert missing.tolist() == [3, 9]
    assert evaluation.skipped == 2
    assert not set(judged.labels.members.tolist()) & {3, 9}


def of_float64(kind):
    trainer = fitted(judged_trainer(kind, model=Flat().double()))
    return weights(trainer), trainer.evaluate(trainer.watched["test"])[0].main.model


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pairs", "triplets", "rankings"])
def test_two_processes_equal_one(kind):
    expected, value = of_float64(kind)
    for found, value_of_two in of_two_processes(of_float64, kind):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)
        assert value_of_two == pytest.approx(value, abs=1e-9)
