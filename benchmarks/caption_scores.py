"""Scores of captions against `pycocoevalcap` (needs Java), and the reward of sampled captions.

python -m benchmarks.caption_scores [--save benchmarks/results/caption_scores.md]

The captions of COCO val2017: the first of each of the 5,000 images is scored against its other four or five, from raw
text: BLEU, ROUGE-L and CIDEr-D. `pycocoevalcap` joins all captions to one text, in which the end of a caption can
depend on the start of the next. It is compared twice: with the caption "x" between any two, so that each is tokenized
by itself (equal to 1e-9), and joined. The reward is that of 250 captions of 10 to 16 words among 30,000 references.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge
from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

from benchmarks.measure import alternate, heading, table
from contml.captioning import CiderDReward, score_captions, tokenize

DATA = Path(os.environ.get("CONTML_DATA", Path(__file__).parents[2] / "shared" / "data"))
COCO = DATA / "coco_mini_2017" / "captions_val2017.full.json.gz"
FLICKR = DATA / "flickr8k_1500" / "Flickr8k.token.full.txt.gz"
ROUNDS, SAMPLES, CALLS = 9, 250, 200
NAMES = ("bleu_1", "bleu_2", "bleu_3", "bleu_4", "rouge_l", "cider_d")
Tokens = dict[int, list[str]]


def coco() -> tuple[list[str], list[list[str]]]:
    """The first caption of each image of val2017, and its other captions."""
    images: dict[int, list[str]] = {}
    with gzip.open(COCO, "rt", encoding="utf-8") as file:
        for annotation in json.load(file)["annotations"]:
            images.setdefault(annotation["image_id"], []).append(annotation["caption"])
    return [captions[0] for captions in images.values()], [captions[1:] for captions in images.values()]


def flickr() -> list[str]:
    """All captions of Flickr8k, five per image."""
    with gzip.open(FLICKR, "rt", encoding="utf-8") as file:
        return [line.rstrip("\n").split("\t")[1] for line in file]


def java_tokens(images: list[list[str]], apart: bool) -> Tokens:
    """The tokens of `pycocoevalcap`, each caption by itself if `apart`."""
    captions = {}
    for image, texts in enumerate(images):
        parts = [part for text in texts for part in (text, "x")] if apart else texts
        captions[image] = [{"caption": part} for part in parts]
    found: Tokens = PTBTokenizer().tokenize(captions)
    return {image: texts[:: 2 if apart else 1] for image, texts in found.items()}


def reference(candidates: list[str], references: list[list[str]], apart: bool) -> dict[str, tuple[float, Any]]:
    """Corpus and per image scores of `pycocoevalcap`."""
    own, others = java_tokens([[text] for text in candidates], apart), java_tokens(references, apart)
    bleus, per_image = Bleu(4).compute_score(others, own, verbose=0)
    found = {f"bleu_{n + 1}": (bleus[n], np.array(per_image[n])) for n in range(4)}
    return found | {"rouge_l": Rouge().compute_score(others, own), "cider_d": Cider().compute_score(others, own)}


def scores() -> str:
    """Equality of all scores, and the time of scoring."""
    candidates, references = coco()
    found: dict[str, Any] = {}

    def ours() -> None:
        found["ours"] = score_captions(candidates, references)

    def theirs() -> None:
        found["theirs"] = reference(candidates, references, apart=False)

    start = time.perf_counter()
    ours()
    first = time.perf_counter() - start
    seconds = alternate({"ours": ours, "pycocoevalcap": theirs}, ROUNDS)
    apart, mine = reference(candidates, references, apart=True), found["ours"]
    rows = [["score", "corpus", "difference, corpus", "per image, largest", "images above 1e-9, captions joined"]]
    for name in NAMES:
        of_corpus = abs(mine.corpus[name] - apart[name][0])
        per_image = np.abs(mine.per_image[name] - apart[name][1]).max()
        assert max(of_corpus, per_image) < 1e-9, name
        joined = int((np.abs(mine.per_image[name] - found["theirs"][name][1]) > 1e-9).sum())
        rows.append([name, f"{mine.corpus[name]:.4f}", f"{of_corpus:.1e}", f"{per_image:.1e}", str(joined)])
    times = [["whole scoring, from raw text", "seconds", "time / ours"]]
    times += [[name, f"{spent:.2f}", f"{spent / seconds['ours']:.0f}"] for name, spent in seconds.items()]
    return (
        f"{table(rows)}\n\nCOCO val2017: {len(candidates):,} images, {sum(map(len, references)):,} references.\n\n"
        f"{table(times)}\n\nIn turn, median of {ROUNDS} rounds; ours also computes CIDEr. The first call of a process "
        f"took {first:.1f} s:\nit loads compiled functions, and tokenizes words that it has not met.\n"
    )


def tokens() -> str:
    """Equality of the tokens of all captions."""
    candidates, references = coco()
    rows = [["tokens", "captions", "number of tokens", "captions that differ", "joined"]]
    coco_captions = [text for own, others in zip(candidates, references, strict=True) for text in (own, *others)]
    for name, captions in (("Flickr8k", flickr()), ("COCO val2017", coco_captions)):
        mine = [tokenize(text) for text in captions]
        apart, joined = (
            sum(" ".join(a) != b for a, b in zip(mine, theirs, strict=True))
            for theirs in (java_tokens([captions], way)[0] for way in (True, False))
        )
        assert not apart, name
        rows.append([name, f"{len(captions):,}", f"{sum(map(len, mine)):,}", str(apart), str(joined)])
    return table(rows) + "\n"


def reward() -> str:
    """The time of the reward of a batch of sampled captions."""
    captions = flickr()[:30_000]
    known: dict[str, int] = {}
    numbers = [[known.setdefault(token, len(known)) for token in tokenize(text)] for text in captions]
    start = time.perf_counter()
    scorer = CiderDReward([numbers[image : image + 5] for image in range(0, len(numbers), 5)])
    built = time.perf_counter() - start
    random = np.random.default_rng(0)
    long = [number for number, words in enumerate(numbers) if 10 <= len(words) <= 16]
    chosen = random.choice(long, SAMPLES, replace=False)
    lengths = np.array([len(numbers[number]) for number in chosen])
    sampled = np.zeros((SAMPLES, 16), np.int64)
    for row, number in enumerate(chosen):  # captions of the images, a third of whose words are drawn again
        words = np.array(numbers[number])
        drawn = random.random(len(words)) < 1 / 3
        sampled[row, : len(words)] = np.where(drawn, random.integers(0, len(known), len(words)), words)
    spent = []
    for call in range(CALLS + 1):
        start = time.perf_counter()
        found = scorer(sampled, lengths, chosen // 5)
        if call:
            spent.append(time.perf_counter() - start)
    middle, slow = 1e3 * statistics.median(spent), 1e3 * float(np.quantile(spent, 0.95))
    rows = [["reward of a batch", "captions", "references", "median, ms", "95th percentile, ms", "built in, s"]]
    rows.append(["CiderDReward", str(SAMPLES), f"{len(numbers):,}", f"{middle:.2f}", f"{slow:.2f}", f"{built:.2f}"])
    return f"{table(rows)}\n\nMean reward {found.mean():.3f}; one thread; {CALLS} calls.\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", type=Path, help="write the tables to this file")
    save = parser.parse_args().save
    command = "`python -m benchmarks.caption_scores`, pycocoevalcap 1.2 with Java.\n"
    text = "\n".join([heading("Scores of captions"), command, tokens(), scores(), reward()])
    print(text)
    if save:
        save.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
