from contml.captioning.captioner import Captioner as Captioner
from contml.captioning.decoders import (
    DECODERS as DECODERS,
    AttentionDecoder as AttentionDecoder,
    Decoder as Decoder,
    LSTMDecoder as LSTMDecoder,
    attention_of as attention_of,
)
from contml.captioning.decoding import beam_search as beam_search, greedy as greedy, sample as sample
from contml.captioning.scores import (
    CaptionScores as CaptionScores,
    CiderDReward as CiderDReward,
    bleu as bleu,
    cider as cider,
    cider_d as cider_d,
    meteor as meteor,
    rouge_l as rouge_l,
    score_captions as score_captions,
    spice as spice,
)
from contml.captioning.step import CaptioningStep as CaptioningStep
from contml.captioning.tokenizer import tokenize as tokenize
from contml.captioning.vocabulary import Vocabulary as Vocabulary
