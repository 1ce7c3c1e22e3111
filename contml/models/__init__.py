"""Embedding models: a backbone, and a linear layer on its features or on those of each of its levels.

Caption decoders: a vocabulary, networks that write a caption from features, and the search for captions.
"""

from contml.models.backbones import BACKBONES as BACKBONES, backbone_names as backbone_names
from contml.models.decoders import (
    DECODERS as DECODERS,
    AttentionDecoder as AttentionDecoder,
    Decoder as Decoder,
    LSTMDecoder as LSTMDecoder,
    attention_of as attention_of,
)
from contml.models.decoding import beam_search as beam_search, greedy as greedy, sample as sample
from contml.models.embedding import EmbeddingModel as EmbeddingModel
from contml.models.levels import LEVELS as LEVELS
from contml.models.pixel_format import PixelFormat as PixelFormat
from contml.models.vocabulary import Vocabulary as Vocabulary
