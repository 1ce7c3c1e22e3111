"""Words of captions: Unicode's rules, one spelling for equal words, and the words of ASCII captions as ever."""

# ruff: noqa: RUF001

import re
from types import SimpleNamespace
from unicodedata import normalize

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings, strategies as st
from support.refusals import refused, refuses

from contml.app.experiment.captioner_run import caption_words
from contml.labels import CaptionLabels, CaptionVectorLabels, ClassLabels, SequenceLabels, TagLabels, idf_weights
from contml.labels.caption_words import STOP_WORDS, split_words, tokens

FORMS = ("NFC", "NFD")
#: The rule of the first versions, which lost combining marks: the words of ASCII captions are still those of it.
FIRST_RULE = re.compile(r"[^\W_]+(?:'[^\W_]+)*")


def first_rule(caption, stop_words=STOP_WORDS):
    words = FIRST_RULE.findall(caption.lower().replace("\u2019", "'"))
    return [word for word in words if word not in stop_words]


# ASCII


@given(st.text(st.one_of(st.characters(max_codepoint=127), st.sampled_from("'_-ab A9")), max_size=60))
@settings(max_examples=500, deadline=None)
def test_ascii_captions_have_the_words_of_the_first_rule(caption):
    assume(not re.search(r"&.*;|<.*>|\[.*\]", caption))  # characters of HTML and marks of tokenizers have a later rule
    assert tokens(caption) == first_rule(caption)
    assert split_words(caption, frozenset()) == first_rule(caption, frozenset())


# Unicode


@pytest.mark.parametrize(
    ("caption", "words"),
    [
        ("एक कुत्ता घास पर।", ["एक", "कुत्ता", "घास", "पर"]),  # vowel signs and a virama
        ("একটি কুকুর", ["একটি", "কুকুর"]),
        ("كِتَابٌ عَلَى", ["كِتَابٌ", "عَلَى"]),
        ("שָׁלוֹם עוֹלָם", ["שָׁלוֹם", "עוֹלָם"]),
        ("chó đuổi mèo rất nhanh", ["chó", "đuổi", "mèo", "rất", "nhanh"]),
        ("l\u2019été, c\u2018est l\u02bcami \u2018dog\u2019 dogs\u2019", ["l'été", "c'est", "l'ami", "dog", "dogs"]),
        ("п\u02bcять п'ять", ["п'ять", "п'ять"]),
        ('צה"ל צה\u05f4ל ג\u05f3ירפה "שלום"', ['צה"ל', 'צה"ל', "ג'ירפה", "שלום"]),
        ("col·lecció a·b", ["col·lecció", "a", "b"]),
        ("t-shirt t\u2010shirt t\u2013shirt בית־ספר", [*("t", "shirt") * 3, "בית", "ספר"]),
        ("İstanbul istanbul ISPARTA ısparta", ["istanbul", "istanbul", "isparta", "ısparta"]),
        ("Straße STRASSE GROẞ", ["straße", "strasse", "groß"]),
        ("ΟΔΟΣ οδός", ["οδος", "οδός"]),
        ("می\u200cخواهم foot\xadball \u200fdog\u200e", ["میخواهم", "football", "dog"]),
        ("a\u200bb a\u2060b a\ufeffb", ["a", "b", "ab", "ab"]),  # a zero-width space separates, a joiner does not
        ("ＤＯＧ ２ ﬁsh ﻛﺘﺎﺏ", ["dog", "2", "fish", "كتاب"]),
        ("٣ m² ½ Ⅳ", ["٣", "m²", "½", "ⅳ"]),
        ("a 🐕\u200d🦺 runs ❤️ 1️⃣ 🇫🇷", ["a", "runs", "1"]),
        ("\u0301a \u064b", ["a"]),  # a mark without a letter
        ("x\u3164y", ["x", "y"]),  # a blank letter of Hangul
    ],
)
@pytest.mark.parametrize("form", FORMS)
def test_words_of_unicode(caption, words, form):
    assert tokens(normalize(form, caption), frozenset()) == [normalize("NFC", word) for word in words]


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


_PIECES = "İIıiß'\u2019e\u0301\u0327\u0307\u0345ΣσJ\u030cל\u05f4\u05f3\u064b\u200d\xad\uff21ﬁ한狗ก"


@given(st.text(st.one_of(st.characters(), st.sampled_from(_PIECES)), max_size=12))
@settings(max_examples=500, deadline=None)
def test_equal_texts_have_equal_words_which_stay_words(caption):
    words, *others = (split_words(normalize(form, caption), frozenset()) for form in (*FORMS, "NFC"))
    assert all(other == words for other in others)
    assert (split_words(caption, frozenset()), split_words(" ".join(words), frozenset())) == (words, words)


# Label spaces


@pytest.mark.parametrize("form", FORMS)
def test_both_forms_of_a_sentence_are_at_distance_0(form):
    random = np.random.default_rng(0)
    vectors = {normalize(form, word): random.normal(size=5) for word in ("un", "café", "très", "joli", "cafe", "tre")}
    given_captions = [*([normalize(each, "un café très joli")] for each in FORMS), ["un cafe"]]
    labels = CaptionLabels(given_captions, vectors)
    assert labels.unknown == {}
    assert labels.words == sorted(normalize("NFC", word) for word in ("un", "café", "très", "joli", "cafe"))
    assert labels.pairwise()[0].tolist()[:2] == [0, 0]
    assert labels.pairwise()[0, 2] > 0
    for encoder in ("tfidf", "mean_vector", lambda captions: [[len(caption), 1.0] for caption in captions]):
        space = CaptionVectorLabels(given_captions, encoder, vectors)
        assert (space.pairwise()[0].tolist()[:2], len(set(space.hashes.tolist()))) == ([0, 0], 2)
    heavy = CaptionLabels(given_captions, vectors, weights={normalize("NFD", "café"): 9.0})
    assert not torch.equal(heavy.pairwise(), labels.pairwise())
    assert idf_weights(given_captions).keys() == set(labels.words)


@pytest.mark.parametrize("make", [lambda texts: TagLabels([[t, "a"] for t in texts]), SequenceLabels, ClassLabels])
def test_both_forms_of_a_tag_a_sequence_and_a_class_are_equal(make):
    labels = make([normalize("NFC", "crème brûlée"), normalize("NFD", "crème brûlée"), "creme brulee"])
    distances = labels.pairwise()
    assert distances[0, 1] == 0 < distances[0, 2]
    assert torch.equal(make([normalize("NFD", "é"), "e"]).pairwise(), make(["é", "e"]).pairwise())


def test_vectors_are_found_by_any_spelling_of_a_word_and_its_own_first():
    vectors = {"l\u2019été": [1.0, 0.0], "e\u0301te\u0301": [0.0, 1.0], "été": [0.0, 2.0], "\ufeffhiver": [9.0, 9.0]}
    labels = CaptionLabels([["l'été"], ["e\u0301te\u0301"]], vectors)
    assert labels.words == ["l'été", "été"]
    assert labels.pairwise()[0, 1].item() == pytest.approx(2 * 5**0.5)  # from [1, 0] to [0, 2]
    with refuses("captions", got="1 images"):
        CaptionLabels([["hiver"]], vectors, empty="drop")  # words of ASCII have one spelling


# Scripts without spaces


UNSPACED = {"一只狗在草地上": "Chinese", "犬が草の上を走る。": "Japanese", "สุนัขวิ่งบนหญ้า": "Thai"}
UNSPACED |= {"ໝາແລ່ນຢູ່ຫຍ້າ": "Lao", "ឆ្កែរត់លើស្មៅ": "Khmer", "ခွေးပြေးနေသည်": "Burmese"}
SPACED = ["一 只 狗 在 草地 上", "狗", "สุนัข วิ่ง บน หญ้า", "สุนัข\u200bวิ่ง\u200bบน\u200bหญ้า", "ခွေး ပြေး နေသည်"]


@pytest.mark.parametrize(("caption", "script"), UNSPACED.items())
def test_sentences_without_spaces_are_refused(caption, script):
    hint = "space between words"
    refused(lambda: tokens(caption), "captions of image 0", got=script, hint=hint)
    for use in (CaptionLabels, CaptionVectorLabels, idf_weights, lambda c: CaptionVectorLabels(c, "mean_vector")):
        with refuses("captions of image 1", got=f"'{caption}' has no spaces", hint=hint):
            use([["a dog", "a cat"], ["a dog", caption]])


@pytest.mark.parametrize("caption", [*SPACED, "a sign that says 禁止停车 in Chinese"])
def test_words_with_spaces_between_them_are_read(caption):
    words = caption.replace("\u200b", " ").split()
    assert tokens(caption, frozenset()) == [normalize("NFC", word.lower()) for word in words]


def test_a_rare_sentence_without_spaces_is_an_unknown_word():
    captions = [["a red dog", "a dog"]] * 100 + [["dog", "一只狗在草地上"]]
    labels = CaptionLabels(captions, {"red": [0.0], "dog": [1.0]})
    assert (labels.unknown, labels.dropped) == ({"一只狗在草地上": 1}, 1)


def test_a_captioner_takes_no_sentences_without_spaces():
    def words(captions):
        labels = CaptionVectorLabels(captions, lambda texts: np.ones((len(texts), 1)))
        return caption_words(SimpleNamespace(labels=labels))

    refused(lambda: words([["a dog"], ["a cat"], ["一只狗在草地上"]]), "captions of image 2", got="Chinese")
    assert words([["A dog."]]) == [[["a", "dog"]]]
