"""Scores of captions: BLEU, ROUGE-L, CIDEr and CIDEr-D without Java; METEOR and SPICE through `pycocoevalcap`."""

from contml.evaluation.captions.java import meteor, spice
from contml.evaluation.captions.scores import (
    CaptionScores,
    CiderDReward,
    bleu,
    cider,
    cider_d,
    rouge_l,
    score_captions,
)
from contml.evaluation.captions.tokenizer import tokenize

__all__ = [
    "CaptionScores", "CiderDReward", "bleu", "cider", "cider_d", "meteor", "rouge_l", "score_captions", "spice",
    "tokenize",
]  # fmt: skip
