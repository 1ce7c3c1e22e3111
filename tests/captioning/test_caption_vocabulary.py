"""Vocabularies of captions: ids, their order, and the tensor that a checkpoint keeps."""

import itertools

import pytest
import torch
from hypothesis import given, strategies as st
from support.refusals import refuses

from contml.captioning import Vocabulary

CAPTIONS = [["a", "red", "dog"], ["a", "cat", "a", "red"], ["the", "cat"], []]
WORDS = st.text(st.characters(exclude_characters="\n", exclude_categories=()), min_size=1, max_size=4)


@given(st.lists(st.lists(st.sampled_from("abcde"))), st.integers(1, 4))
def test_the_order_is_that_of_the_definition(captions, threshold):
    every = [word for caption in captions for word in caption]
    kept = [word for word in "abcde" if every.count(word) >= threshold]
    if not kept:
        with refuses("threshold"):
            Vocabulary.of(captions, threshold)
        return
    words = Vocabulary.of(captions, threshold).words
    assert sorted(words) == kept
    for first, second in itertools.pairwise(words):
        assert (every.count(first), second) > (every.count(second), first)


@pytest.mark.parametrize("convert", [list, torch.tensor, lambda ids: torch.tensor(ids, dtype=torch.int32)])
def test_words_up_to_end_without_special_ids(convert):
    vocabulary = Vocabulary(["dog", "cat"])
    assert (Vocabulary.PAD, Vocabulary.BEGIN, Vocabulary.END, Vocabulary.UNKNOWN) == (0, 1, 2, 3)
    assert (len(vocabulary), vocabulary.encode(["cat", "bird", "dog", "cat"])) == (6, [5, 3, 4, 5])
    assert vocabulary.decode(convert([1, 4, 3, 5, 0, 5, 2, 4])) == "dog cat cat"
    assert (vocabulary.decode(convert([5, 4])), vocabulary.decode(convert([2, 4]))) == ("cat dog", "")
    assert vocabulary.decode(convert([])) == ""


@given(st.lists(WORDS, min_size=1, unique=True))
def test_the_tensor_keeps_all_words(words):
    tensor = Vocabulary(words).to_tensor()
    assert (tensor.dtype, tensor.ndim) == (torch.uint8, 1)
    again = Vocabulary.from_tensor(tensor)
    assert (again.words, again.encode(words)) == (tuple(words), [*range(4, 4 + len(words))])
    assert again.decode(again.encode(words)) == " ".join(words)


def test_bad_words():
    with refuses("threshold", "5", "at most 3"):
        Vocabulary.of(CAPTIONS)
    with refuses("threshold", "the captions have no words"):
        Vocabulary.of([[], []])
    with refuses("threshold", "0", "at least 1"):
        Vocabulary.of(CAPTIONS, threshold=0)
    with refuses("vocabulary", "no words"):
        Vocabulary([])
    with refuses("vocabulary", "'b' appears twice"):
        Vocabulary(["a", "b", "c", "b"])
    with refuses("vocabulary", r"'a\nb'", "without line breaks"):
        Vocabulary(["a", "a\nb"])
    with refuses("vocabulary", "''"):
        Vocabulary(["a", ""])


def test_tensors_that_hold_no_vocabulary():
    with refuses("vocabulary", "not UTF-8"):
        Vocabulary.from_tensor(torch.tensor([255], dtype=torch.uint8))
    with refuses("vocabulary", "''"):
        Vocabulary.from_tensor(torch.zeros(0, dtype=torch.uint8))
    with refuses("vocabulary", "'a' appears twice"):
        Vocabulary.from_tensor(torch.tensor([*b"a\na"], dtype=torch.uint8))
    for tensor in (torch.zeros(3), torch.zeros(3, dtype=torch.bfloat16), torch.zeros(2, 2, dtype=torch.uint8)):
        with refuses("vocabulary", str(list(tensor.shape)), allowed="torch.uint8 [n]"):
            Vocabulary.from_tensor(tensor)
    with refuses("vocabulary", "67,108,865 bytes", allowed="67,108,864"):
        Vocabulary.from_tensor(torch.zeros(1, dtype=torch.uint8).expand((1 << 26) + 1))
