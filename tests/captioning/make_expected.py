"""Writes `expected.json` again: tokens and scores of its captions by `pycocoevalcap` 1.2, which needs Java.

python tests/captioning/make_expected.py
"""

from __future__ import annotations

import json
from pathlib import Path

from pycocoevalcap.bleu.bleu import Bleu
from pycocoevalcap.cider.cider import Cider
from pycocoevalcap.rouge.rouge import Rouge
from pycocoevalcap.tokenizer.ptbtokenizer import PTBTokenizer

FILE = Path(__file__).with_name("expected.json")


def main() -> None:
    before = json.loads(FILE.read_text(encoding="utf-8"))
    captions, sets = [row[0] for row in before["tokens"]], before["sets"]
    texts = PTBTokenizer().tokenize({0: [{"caption": part} for text in captions for part in (text, "x")]})[0][::2]
    own = {image: [texts[caption]] for image, (caption, _) in enumerate(sets)}
    others = {image: [texts[row] for row in rows] for image, (_, rows) in enumerate(sets)}
    bleus, bleu_per_image = Bleu(4).compute_score(others, own, verbose=0)
    found = {f"bleu_{n + 1}": [bleus[n], bleu_per_image[n]] for n in range(4)}
    for name, scorer in (("rouge_l", Rouge()), ("cider_d", Cider())):
        corpus, per_image = scorer.compute_score(others, own)
        found[name] = [float(corpus), [float(score) for score in per_image]]
    tokens = [[text, *line.split(" ")] if line else [text] for text, line in zip(captions, texts, strict=True)]
    lines = [f'"{name}": {json.dumps(value)}' for name, value in (("sets", sets), *found.items())]
    rows = ",\n".join(json.dumps(row) for row in tokens)
    FILE.write_text("{\n" + ",\n".join(lines) + f',\n"tokens": [\n{rows}\n]\n}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
