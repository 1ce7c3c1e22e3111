"""Caption decoders: against slow loops from the papers, step by step, dropout, half precision."""

import math

import pytest
import torch
from scipy.stats import chisquare
from support.decoders import BEGIN, END, PAD, UNKNOWN, features_of, forced, make
from support.refusals import refuses
from torch.nn import functional as F

from contml.captioning import DECODERS
from contml.captioning.decoders import draw, generated
from contml.config.schema import data_arguments, options

NAMES = [*DECODERS]
TOKENS = torch.tensor([[BEGIN, 4, 9, 6, END], [BEGIN, 11, UNKNOWN, END, PAD], [BEGIN, END, PAD, PAD, PAD]])


def lstm(weights, x, h, c):
    """One step of an LSTM, gate by gate: Hochreiter and Schmidhuber with forget gates, in PyTorch's order of rows."""
    w_x, w_h, b_x, b_h = weights
    size = len(h)
    values = [sum(w_x[row] * x) + sum(w_h[row] * h) + (b_x + b_h)[row] for row in range(4 * size)]
    gates = [values[gate * size : (gate + 1) * size] for gate in range(4)]
    new, kept = ([torch.sigmoid(value) for value in gate] for gate in gates[:2])
    new_c = [kept[i] * c[i] + new[i] * torch.tanh(gates[2][i]) for i in range(size)]
    return torch.stack([torch.sigmoid(gates[3][i]) * torch.tanh(new_c[i]) for i in range(size)]), torch.stack(new_c)


def slow_lstm(decoder, features, tokens):
    """Show and Tell: the image is the first input, the words follow."""
    h, c = torch.zeros(2, 7, dtype=torch.float64)
    weights = decoder.lstm.all_weights[0]
    h, c = lstm(weights, decoder.image.weight @ features + decoder.image.bias, h, c)
    direct = 0 if decoder.output is None else decoder.output.weight @ features + decoder.output.bias
    logits = []
    for token in tokens:
        h, c = lstm(weights, decoder.words.weight[token], h, c)
        logits.append(decoder.classifier.weight @ (h + direct) + decoder.classifier.bias)
    return torch.stack(logits)


def slow_attention(decoder, maps, tokens):
    """Top-down attention, place after place."""
    linear = decoder.places[0]
    places = [torch.relu(linear.weight @ place + linear.bias) for place in maps]
    mean = sum(places) / len(places)
    h1, c1, h2, c2 = torch.zeros(4, 7, dtype=torch.float64)
    logits = []
    for token in tokens:
        x = torch.cat([h2, mean, decoder.words.weight[token]])
        h1, c1 = lstm([*decoder.attention_lstm.parameters()], x, h1, c1)
        scores = []
        for place in places:
            key = decoder.keys.weight @ place + decoder.keys.bias
            scores.append(math.exp(decoder.score.weight[0] @ torch.tanh(key + decoder.query.weight @ h1)))
        weights = [score / sum(scores) for score in scores]
        seen = sum(weight * place for weight, place in zip(weights, places, strict=True))
        h2, c2 = lstm([*decoder.language_lstm.parameters()], torch.cat([seen, h1]), h2, c2)
        direct = seen if decoder.deep_output else 0
        logits.append(decoder.classifier.weight @ (h2 + direct) + decoder.classifier.bias)
    return torch.stack(logits)


SLOW = {"lstm": slow_lstm, "attention": slow_attention}


@pytest.mark.parametrize("deep_output", [False, True])
@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_logits_equal_a_loop_over_places_and_gates(name, deep_output):
    decoder = make(name, deep_output=deep_output)
    features = features_of(decoder, 3)
    logits = forced(decoder, features, TOKENS)
    assert logits.shape == (3, 5, 12)
    for image in range(3):
        slow = SLOW[name](decoder, features[image], TOKENS[image])
        torch.testing.assert_close(logits[image], slow, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_equal_finite_differences(name):
    decoder = make(name, vocabulary_size=6, hidden=3, words=2)
    features = features_of(decoder, 2).requires_grad_()
    tokens = torch.tensor([[BEGIN, 4], [BEGIN, 5]])
    assert torch.autograd.gradcheck(lambda given: forced(decoder, given, tokens), [features])


@pytest.mark.parametrize("name", NAMES)
def test_dropout_draws_from_the_global_generator(name):
    decoder = make(name, dropout=0.5)
    features = features_of(decoder, 3)
    assert torch.equal(forced(decoder, features, TOKENS), forced(decoder, features, TOKENS))
    decoder.train()
    torch.manual_seed(3)
    first = forced(decoder, features, TOKENS)
    assert not torch.equal(forced(decoder, features, TOKENS), first)
    torch.manual_seed(3)
    assert torch.equal(forced(decoder, features, TOKENS), first)


def test_the_lstm_stays_in_training_mode_for_gradients_without_dropout():
    decoder = make("lstm", dropout=0.5)
    assert {name for name, module in decoder.eval().named_modules() if module.training} == {"lstm"}
    assert all(module.training for module in decoder.train().modules())


def test_log_probabilities_of_generated_words():
    logits = torch.tensor([[5.0, 9.0, 1.0, 7.0, 2.0, -torch.inf]])
    given = logits.clone()
    expected = torch.tensor([[0, 0, math.exp(1), 0, math.exp(2), 0]]) / (math.exp(1) + math.exp(2))
    torch.testing.assert_close(generated(logits).exp(), expected)
    expected = torch.tensor([[0, 0, math.exp(0.5), 0, math.exp(1), 0]]) / (math.exp(0.5) + math.exp(1))
    torch.testing.assert_close(generated(logits, 2.0).exp(), expected)
    assert torch.equal(logits, given)
    assert (generated(logits.half()).dtype, generated(logits.double()).dtype) == (torch.float32, torch.float64)


def test_draws_have_the_given_probabilities():
    probabilities = torch.tensor([0.0, 0.5, 0.0, 0.0, 0.3, 0.1999, 0.0001, 0.0])
    torch.manual_seed(0)
    counts = torch.bincount(draw(probabilities.expand(200_000, -1)), minlength=8)
    assert torch.equal(counts > 0, probabilities > 0)
    present = probabilities > 0
    assert chisquare(counts[present], probabilities[present].double() * 200_000).pvalue > 0.001


def test_draws_at_extremes():
    rows = torch.tensor([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [1e-45, 0.0, 0.0], [torch.nan, 0.0, 0.0]])
    columns = draw(rows)
    assert columns[:3].tolist() == [2, 0, 0]
    assert 0 <= columns[3] < 3
    assert draw(rows[:0]).shape == (0,)


@pytest.mark.parametrize(("number", "column"), [(0.0, 1), (1 - 2**-53, 3)])
def test_the_smallest_and_the_largest_random_number(monkeypatch, number, column):
    monkeypatch.setattr(torch, "rand", lambda *shape, **kind: torch.full(shape, number, **kind))
    for scale in (1.0, 0.7, 3.0):
        assert draw(torch.tensor([[0, 0.3, 0.2, 0.5, 0]], dtype=torch.float64) * scale).tolist() == [column]


@pytest.mark.parametrize("name", NAMES)
def test_half_precision(name):
    decoder = make(name).float()
    with torch.no_grad():
        for weight in decoder.parameters():
            weight.mul_(0.3)
    features = features_of(decoder, 3).float()
    torch.manual_seed(0)
    expected = forced(decoder, features, TOKENS)
    torch.manual_seed(0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = forced(decoder, features, TOKENS)
    assert logits.dtype == torch.bfloat16
    torch.testing.assert_close(logits.float(), expected, rtol=0.05, atol=0.05)
    F.cross_entropy(logits.flatten(0, 1).float(), TOKENS.flatten()).backward()
    assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in decoder.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_options_are_arguments_with_help(name):
    given = options(DECODERS[name])
    expected = ["hidden", "words", "attention", "dropout", "deep_output"]
    assert [option.name for option in given] == [key for key in expected if key != "attention" or name == key]
    assert all(option.help and not option.required for option in given)
    assert data_arguments(DECODERS[name]) == {"feature_dim": True, "vocabulary_size": True}
    with refuses("vocabulary_size", "4", "at least 5"):
        make(name, vocabulary_size=4)
