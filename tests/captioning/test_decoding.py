"""Greedy, sampled and beam search: against loops over single images and over all captions."""

import math

import pytest
import torch
from support.decoders import BEGIN, END, PAD, UNKNOWN, features_of, forced, make, next_words
from support.refusals import refuses

from contml.captioning import DECODERS, beam_search, greedy, sample
from contml.captioning.decoders import generated

NAMES = [*DECODERS]
IMAGES, LENGTH = 20, 6


def words_of(row):
    """A row of tokens without padding, which must follow END alone."""
    tokens = row.tolist()
    end = tokens.index(END) + 1 if END in tokens else len(tokens)
    assert all(token == PAD for token in tokens[end:])
    assert not {PAD, BEGIN, UNKNOWN} & {*tokens[:end]}
    return tokens[:end]


def slow_greedy(decoder, features, length):
    words = []
    while len(words) < length and END not in words:
        scores = next_words(decoder, features, words)
        words.append(max(range(len(scores)), key=scores.__getitem__))
    return words


def slow_beam(decoder, features, width, length):
    captions = [(0.0, [])]
    for _ in range(length):
        longer = []
        for total, words in captions:
            if END in words:
                longer.append((total, words))
                continue
            scores = next_words(decoder, features, words)
            longer += [(total + score, [*words, word]) for word, score in enumerate(scores) if score > -math.inf]
        captions = sorted(longer, reverse=True)[:width]
    return captions[0][1], captions[0][0]


def recorded(decoder):
    """The states that a decoder gets at each step."""
    states, step = [], decoder.step
    decoder.step = lambda tokens, state: (states.append(state), step(tokens, state))[1]
    return states


@pytest.mark.parametrize("name", NAMES)
def test_greedy_equals_a_loop_over_images(name):
    decoder = make(name)
    features = features_of(decoder, IMAGES)
    tokens = greedy(decoder, features, LENGTH)
    expected = [slow_greedy(decoder, image, LENGTH) for image in features]
    assert [words_of(row) for row in tokens] == expected
    assert len({len(words) for words in expected}) >= 5  # captions end at different steps
    assert tokens.dtype == torch.int64


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [1, 2, 3, 5, 15])
def test_beam_search_equals_a_loop_over_images(name, width):
    decoder = make(name)
    features = features_of(decoder, IMAGES)
    tokens, log_probabilities = beam_search(decoder, features, width, LENGTH)
    assert not log_probabilities.requires_grad
    expected = [slow_beam(decoder, image, width, LENGTH) for image in features]
    assert [words_of(row) for row in tokens] == [words for words, _ in expected]
    torch.testing.assert_close(log_probabilities, torch.tensor([total for _, total in expected], dtype=torch.float64))
    assert len({len(words) for words, _ in expected}) >= 3


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_log_probabilities_and_gradients_of_samples_are_those_of_teacher_forcing(name, temperature):
    decoder = make(name)
    features = features_of(decoder, IMAGES).requires_grad_()
    states = recorded(decoder)
    torch.manual_seed(0)
    tokens, log_probabilities = sample(decoder, features, 3, LENGTH, temperature)
    assert tokens.shape == log_probabilities.shape == (3 * IMAGES, LENGTH)
    lengths = torch.tensor([len(words_of(row)) for row in tokens])
    assert len(lengths.unique()) >= 5
    together = [len(state.memory[0]) for state in states]  # samples that have ended leave the batch
    assert together == [int((lengths > n).sum()) for n in range(LENGTH)]
    written = torch.arange(LENGTH) < lengths[:, None]
    assert not log_probabilities[~written].any()

    inputs = torch.cat([torch.full((3 * IMAGES, 1), BEGIN), tokens[:, :-1]], 1)
    logits = forced(decoder, features.repeat_interleave(3, 0), inputs)
    scores = generated(logits.flatten(0, 1), temperature).view(logits.shape)
    expected = scores.gather(2, tokens[..., None])[..., 0].masked_fill(~written, 0)
    torch.testing.assert_close(log_probabilities, expected, rtol=1e-10, atol=1e-12)
    rewards = torch.randn_like(expected)
    parameters = [features, *decoder.parameters()]
    found = torch.autograd.grad((log_probabilities * rewards).sum(), parameters)
    for one, other in zip(found, torch.autograd.grad((expected * rewards).sum(), parameters), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-10)
        assert one.any()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("search", [greedy, lambda *given: beam_search(*given[:2], 3, given[2])])
def test_images_whose_captions_have_ended_leave_the_batch(name, search):
    decoder = make(name)
    features = features_of(decoder, IMAGES)
    states = recorded(decoder)
    search(decoder, features, LENGTH)
    together = [len(state.memory[0]) for state in states]
    alone = torch.zeros(LENGTH, dtype=torch.int64)
    for image in features:
        states.clear()
        search(decoder, image[None], LENGTH)
        alone[: len(states)] += torch.tensor([len(state.memory[0]) for state in states])
    assert together == alone.tolist()
    assert 0 < together[-1] < max(together)


def test_maps_are_kept_once_per_image():
    decoder = make("attention", end=-100)
    features = features_of(decoder, 4)
    states = recorded(decoder)
    started = []
    start = decoder.start
    decoder.start = lambda given: (started.append(start(given)), started[-1])[1]
    sample(decoder, features, 5, 4)
    beam_search(decoder, features, 3, 4)
    assert [len(state.memory[0]) for state in states] == [20] * 4 + [4] + [12] * 3
    for place, state in enumerate(states):
        for found, original in zip(state.maps, started[place // 4].maps, strict=True):
            assert found.data_ptr() == original.data_ptr()


@pytest.mark.parametrize("name", NAMES)
def test_samples_stop_where_all_have_ended(name):
    decoder = make(name)
    with torch.no_grad():
        decoder.classifier.bias[END] += 20
    states = recorded(decoder)
    assert sample(decoder, features_of(decoder, IMAGES), 3, LENGTH)[0].shape[1] == len(states) < LENGTH


@pytest.mark.parametrize("name", NAMES)
def test_no_image(name):
    decoder = make(name)
    features = features_of(decoder, 0)
    assert (len(greedy(decoder, features, LENGTH)), len(sample(decoder, features, 3, LENGTH)[1])) == (0, 0)
    assert len(beam_search(decoder, features, 3, LENGTH)[0]) == 0


def test_bad_numbers():
    decoder = make("lstm")
    features = features_of(decoder, 3)
    with refuses("length", "0", "at least 1"):
        greedy(decoder, features, 0)
    with refuses("length", "0", "at least 1"):
        beam_search(decoder, features, 3, 0)
    with refuses("width", "0", "at least 1"):
        beam_search(decoder, features, 0, LENGTH)
    with refuses("samples", "0", "at least 1"):
        sample(decoder, features, 0, LENGTH)
    for temperature in (0.0, -1.0, math.inf, math.nan):
        with refuses("temperature", str(temperature)):
            sample(decoder, features, 1, LENGTH, temperature)
