from contml.captioning.captioner import Captioner as Captioner
from contml.captioning.decoders import (
    DECODERS as DECODERS,
    AttentionDecoder as AttentionDecoder,
    Decoder as Decoder,
    LSTMDecoder as LSTMDecoder,
)
from contml.captioning.decoding import beam_search as beam_search, greedy as greedy, sample as sample
from contml.captioning.scores import (
    CaptionScores as CaptionScores,
    CiderDReward as CiderDReward,
    score_captions as score_captions,
)
from contml.captioning.step import CaptioningStep as CaptioningStep
from contml.captioning.tokenizer import tokenize as tokenize
from contml.captioning.vocabulary import Vocabulary as Vocabulary
