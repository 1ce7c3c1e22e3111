"""Scores equal `pycocoevalcap`'s committed numbers and slow loops from the definitions; empty captions; bad input."""

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from support.refusals import refuses

from contml.captioning import score_captions, tokenize

EXPECTED = json.loads(Path(__file__).with_name("expected.json").read_text(encoding="utf-8"))
TEXTS = [row[0] for row in EXPECTED["tokens"]]
CANDIDATES = [TEXTS[row] for row, _ in EXPECTED["sets"]]
REFERENCES = [[TEXTS[row] for row in rows] for _, rows in EXPECTED["sets"]]
EXACT = {"rtol": 1e-9, "atol": 1e-9}
#: Captions of few words, so that n-grams meet; also without words, of one word, and with repeated words.
captions = st.lists(st.sampled_from(["a", "dog", "runs", "the", "red"]), max_size=7).map(" ".join)
sets = st.lists(st.tuples(captions, st.lists(captions, min_size=1, max_size=4)), min_size=1, max_size=5)


def split(pairs):
    return [own for own, _ in pairs], [others for _, others in pairs]


def ngrams(words, n):
    return Counter(tuple(words[at : at + n]) for at in range(len(words) - n + 1))


def slow_ciders(candidates, references):
    """CIDEr and CIDEr-D as the paper writes them, with the lengths and the documents of pycocoevalcap."""
    own = [text.split() for text in candidates]
    others = [[text.split() for text in image] for image in references]
    grams_of_images = [{gram for other in image for n in (1, 2, 3, 4) for gram in ngrams(other, n)} for image in others]
    documents = Counter(gram for grams in grams_of_images for gram in grams)

    def vector(words, n):
        idf = math.log(len(others))
        return {gram: count * (idf - math.log(max(documents[gram], 1))) for gram, count in ngrams(words, n).items()}

    found = []
    for caption, image in zip(own, others, strict=True):
        plain = clipped = 0.0
        for n in (1, 2, 3, 4):
            g = vector(caption, n)
            for other in image:
                h = vector(other, n)
                norms = math.hypot(*g.values()) * math.hypot(*h.values())
                if norms:
                    plain += sum(g[gram] * h.get(gram, 0) for gram in g) / norms / len(image) / 4
                    longer = max(len(caption) - 1, 0) - max(len(other) - 1, 0)
                    dot = sum(min(g[gram], h.get(gram, 0)) * h.get(gram, 0) for gram in g)
                    clipped += 10 * math.exp(-(longer**2) / 72) * dot / norms / len(image) / 4
        found.append((plain, clipped))
    return np.array(found).T


def slow_bleu(pairs):
    """BLEU-1 to BLEU-4 of the corpus of these captions (Papineni et al. 2002)."""
    correct, total = np.full(4, 1e-15), np.full(4, 1e-9)
    length = closest = 0
    for own, others in pairs:
        words, refs = own.split(), [other.split() for other in others]
        length += len(words)
        closest += min((abs(len(ref) - len(words)), len(ref)) for ref in refs)[1]
        for n in (1, 2, 3, 4):
            for gram, count in ngrams(words, n).items():
                correct[n - 1] += min(count, max(ngrams(ref, n)[gram] for ref in refs))
                total[n - 1] += count
    ratio = (length + 1e-15) / (closest + 1e-9)
    penalty = 1 if ratio >= 1 else math.exp(1 - 1 / ratio)
    return [penalty * np.prod(correct[:n] / total[:n]) ** (1 / n) for n in (1, 2, 3, 4)]


def slow_rouge(own, others):
    def common(a, b):
        if not a or not b:
            return 0
        return common(a[1:], b[1:]) + 1 if a[0] == b[0] else max(common(a[1:], b), common(a, b[1:]))

    words = own.split() or [""]
    refs = [other.split() or [""] for other in others]
    precision = max(common(words, ref) / len(words) for ref in refs)
    recall = max(common(words, ref) / len(ref) for ref in refs)
    return 2.44 * precision * recall / (recall + 1.44 * precision) if precision else 0.0


@pytest.mark.parametrize("name", ["bleu_1", "bleu_2", "bleu_3", "bleu_4", "rouge_l", "cider_d"])
def test_scores_are_those_of_pycocoevalcap(name):
    found, (corpus, per_image) = score_captions(CANDIDATES, REFERENCES), EXPECTED[name]
    np.testing.assert_allclose(found.corpus[name], corpus, **EXACT)
    np.testing.assert_allclose(found.per_image[name], per_image, **EXACT)
    assert max(per_image) > 0.1


@given(sets)
def test_ciders_are_those_of_a_slow_loop(pairs):
    own, others = split(pairs)
    plain, clipped = slow_ciders(own, others)
    found = score_captions(own, others).per_image
    np.testing.assert_allclose(found["cider"], plain, **EXACT)
    np.testing.assert_allclose(found["cider_d"], clipped, **EXACT)


@given(sets)
def test_bleu_and_rouge_are_those_of_slow_loops(pairs):
    found, names = score_captions(*split(pairs)), ["bleu_1", "bleu_2", "bleu_3", "bleu_4"]
    per_image = np.stack([found.per_image[name] for name in names], 1)
    np.testing.assert_allclose([found.corpus[name] for name in names], slow_bleu(pairs), **EXACT)
    np.testing.assert_allclose(per_image, [slow_bleu([pair]) for pair in pairs], **EXACT)
    np.testing.assert_allclose(found.per_image["rouge_l"], [slow_rouge(*pair) for pair in pairs], **EXACT)


@pytest.mark.parametrize("empty", ["", " ", ".", "!", "\U0001f600"])
def test_a_caption_without_words_scores_0(empty):
    found = score_captions([empty, "a red cat sits"], [["a dog runs", "dogs"], ["a red cat sits"]])
    for name, values in found.per_image.items():
        assert values[0] == 0, name
        assert values[1] > 0.99, name


def test_a_fraction_is_one_token_and_two_words_of_ngrams():
    """As in pycocoevalcap: its tokens contain a no-break space, at which its n-grams are split."""
    assert tokenize("at 3 1/2 st") == ["at", "3\xa01/2", "st"]
    found = score_captions(["at 3 1/2 st", "a"], [["at 3 st"], ["b"]])
    np.testing.assert_allclose(found.per_image["bleu_1"][0], 3 / 4, atol=1e-8)  # at, 3, st of 4 words
    np.testing.assert_allclose(found.per_image["rouge_l"][0], 2 / 3)  # at, st of 3 tokens


def test_bad_input():
    with refuses("candidates", "2 captions, and references of 1 images"):
        score_captions(["a", "b"], [["a"]])
    with refuses("references", "no image"):
        score_captions([], [])
    with refuses("references[1]", "no caption", "at least one"):
        score_captions(["a", "b"], [["a"], []])
    with refuses("references[0]", "a string", "list"):
        score_captions(["a"], ["a dog"])
    with refuses("references[1]", "NoneType", "strings"):
        score_captions(["a", "b"], [["a", "b"], ["a", None]])
    with refuses("candidates[1]", "list", "strings"):
        score_captions(["a", ["b"]], [["a"], ["a"]])
