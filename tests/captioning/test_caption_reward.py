"""The reward of sampled captions is CIDEr-D of the same words; its document frequencies are those of its references."""

import numpy as np
from hypothesis import given, strategies as st
from support.refusals import refuses

from contml.captioning import CiderDReward, score_captions

words = st.lists(st.integers(0, 6), max_size=8)
images = st.lists(st.tuples(words, st.lists(words, min_size=1, max_size=4)), min_size=1, max_size=6)


def padded(captions, fill=0):
    lengths = np.array([len(caption) for caption in captions])
    tokens = np.full((len(captions), max(lengths.max(), 1)), fill)
    for row, caption in enumerate(captions):
        tokens[row, : len(caption)] = caption
    return tokens, lengths


def text(caption):
    return " ".join(f"w{number}" for number in caption)


@given(images, st.sampled_from([-100, 0, 3]))
def test_it_is_cider_d_of_the_same_words(sets, fill):
    own, others = [caption for caption, _ in sets], [references for _, references in sets]
    texts = [text(caption) for caption in own], [[text(each) for each in refs] for refs in others]
    expected = score_captions(*texts).per_image["cider_d"]
    found = CiderDReward(others)(*padded(own, fill), np.arange(len(own)))
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_words_that_no_reference_has_lower_the_reward():
    """The unknown words are in the norm of the caption: log 2 each, as if one of the two images had them."""
    reward = CiderDReward([[[1]], [[2]]])
    tokens, lengths = padded([[1], [1, 10**12], [1, -5]])
    found = reward(tokens, lengths, np.zeros(3, int))
    np.testing.assert_allclose(found, [2.5, *[2.5 / np.sqrt(2) * np.exp(-1 / 72)] * 2])


def test_large_word_numbers_are_distinct():
    high = (1 << 31) - 1
    reward = CiderDReward([[[high, 0]], [[0, high]]])
    np.testing.assert_allclose(reward(np.array([[high, 0], [0, high]]), np.array([2, 2]), np.zeros(2, int)), [2.5, 0])


def test_bad_input():
    with refuses("references", "no image"):
        CiderDReward([])
    with refuses("references[1]", "no caption"):
        CiderDReward([[[1]], []])
    with refuses("references[0]", "float64", "whole"):
        CiderDReward([[[0.5]]])
    reward = CiderDReward([[[1, 2]], [[3]]])
    tokens, lengths, rows = np.array([[1, 2], [3, 0]]), np.array([2, 1]), np.array([0, 1])
    assert reward(tokens[:0], lengths[:0], rows[:0]).shape == (0,)
    for wrong in ((tokens[0], lengths, rows), (tokens, lengths[:1], rows), (tokens, lengths, rows[:1])):
        with refuses("tokens", "with lengths", "[N, T]"):
            reward(*wrong)
    with refuses("tokens", "float", "whole"):
        reward(tokens * 0.5, lengths, rows)
    with refuses("lengths", "1 to 3", "0 to 2"):
        reward(tokens, np.array([3, 1]), rows)
    with refuses("rows", "-1 to 1", "0 to 1"):
        reward(tokens, lengths, np.array([-1, 1]))
    with refuses("rows", "0 to 2", "0 to 1"):
        reward(tokens, lengths, np.array([0, 2]))
