"""Small caption decoders with random weights, and their log-probabilities computed one image at a time."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from contml.captioning import DECODERS, Decoder, Vocabulary

PAD, BEGIN, END, UNKNOWN = Vocabulary.PAD, Vocabulary.BEGIN, Vocabulary.END, Vocabulary.UNKNOWN
FEATURE_DIM, PLACES = 6, 3


#: Added to the logit of END, so that captions of 1 to 6 tokens occur.
ENDS = {"lstm": 2.0, "attention": 1.0}


def make(name: str, vocabulary_size: int = 12, seed: int = 1, end: float | None = None, **options: float) -> Decoder:
    """A decoder in float64 and evaluation mode; weights are large, so that the probabilities of words differ."""
    generator = torch.Generator().manual_seed(seed)
    sizes = {"hidden": 7, "words": 5} | ({"attention": 4} if name == "attention" else {}) | options
    decoder = DECODERS[name](**sizes, feature_dim=FEATURE_DIM, vocabulary_size=vocabulary_size).double().eval()
    with torch.no_grad():
        for weight in decoder.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator))
        decoder.classifier.weight.mul_(3)
        decoder.classifier.bias[END] += ENDS[name] if end is None else end
    return decoder


def features_of(decoder: Decoder, count: int, seed: int = 1) -> Tensor:
    shape = (count, PLACES, FEATURE_DIM) if decoder.needs_maps else (count, FEATURE_DIM)
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def forced(decoder: Decoder, features: Tensor, tokens: Tensor) -> Tensor:
    """Logits `[N, T, V]` of the word after each of tokens `[N, T]`."""
    packed = pack_padded_sequence(tokens, torch.full((len(tokens),), tokens.shape[1]), batch_first=True)
    return pad_packed_sequence(decoder(features, packed), batch_first=True)[0]


def next_words(decoder: Decoder, features: Tensor, words: list[int]) -> list[float]:
    """Log-probabilities `[V]` of the word after `words`, by the definition, for the features of one image."""
    with torch.no_grad():
        state = decoder.start(features[None])
        for word in [BEGIN, *words]:
            logits, state = decoder.step(torch.tensor([word]), state)
    logits[0, [PAD, BEGIN, UNKNOWN]] = -torch.inf
    return logits[0].log_softmax(0).tolist()
