"""Marks of tokenizers and of HTML are no words of captions."""

import pytest

from contml.labels.caption_words import split_words


@pytest.mark.parametrize(
    ("caption", "words"),
    [
        ("<start> a dog <end> <pad> <pad>", ["dog"]),
        ("<s>a dog runs</s>", ["dog", "runs"]),
        ("<unk> runs<|endoftext|>", ["runs"]),
        ("[CLS] dog [SEP] [PAD]", ["dog"]),
        ("dogs &amp; cats &lt;3", ["dogs", "cats", "3"]),
        ("a &quot;dog&quot;<br/>l&#39;été", ["dog", "l'été"]),
        ("<START> ein großer Hund <END>", ["ein", "großer", "hund"]),
        ("2 < 3 and 5 > 4", ["2", "3", "5", "4"]),
        ("a [red] dog", ["red", "dog"]),
    ],
)
def test_marks_are_no_words(caption, words):
    assert split_words(caption) == words
