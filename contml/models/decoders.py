"""Decoders: networks that write a caption, word after word, from the features of an image.

`contml.models.decoding` has the search for captions: greedy, sampled, beam search.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn

from contml._support.errors import InputError
from contml._support.validation import check_whole
from contml.models.vocabulary import Vocabulary


class State(NamedTuple):
    """What a decoder keeps between two words.

    One image may have several captions, in adjacent rows. What is of the image is kept once: only `memory` and
    `attention` have a row per caption.

    Attributes:
        memory: hidden and cell states of `N` captions, each `[N, hidden]`.
        maps: what each word needs of `B` images, tensors `[B, P, ...]`, where N is a multiple of B; it may be empty.
        attention: attention weights of the last step `[N, P]`; None without attention, and before the first step.
    """

    memory: tuple[Tensor, ...]
    maps: tuple[Tensor, ...] = ()
    attention: Tensor | None = None

    def select(self, captions: Tensor, images: Tensor | None = None) -> Self:
        """Returns the state of these rows of captions and of images, by default all images.

        Each image must keep the same number of captions, in adjacent rows.
        """
        memory = tuple(part.index_select(0, captions) for part in self.memory)
        maps = self.maps if images is None else tuple(part.index_select(0, images) for part in self.maps)
        return self._replace(memory=memory, maps=maps, attention=None)

    def repeat(self, count: int) -> Self:
        """Returns the state of `count` captions per caption, in adjacent rows."""
        rows = torch.arange(len(self.memory[0]), device=self.memory[0].device)
        return self if count == 1 else self.select(rows.repeat_interleave(count))


class Decoder(nn.Module):
    """Captions from image features: embedded words go through a recurrent network, its outputs through a linear layer.

    A subclass implements `start` and `read`.

    Attributes:
        needs_maps: whether features are maps `[B, P, C]` of P places, not vectors `[B, C]`.
        vocabulary_size: number of ids, with the four special ones.
    """

    needs_maps: ClassVar[bool] = False

    def __init__(self, hidden: int, words: int, dropout: float, feature_dim: int, vocabulary_size: int) -> None:
        super().__init__()
        check_whole(1, hidden=hidden, words=words, feature_dim=feature_dim)
        check_whole(5, vocabulary_size=vocabulary_size)  # the special ids and a word
        if not 0 <= dropout < 1:
            raise InputError("dropout", str(dropout), "must be at least 0 and below 1")
        self.hidden, self.vocabulary_size = hidden, vocabulary_size
        self.words = nn.Embedding(vocabulary_size, words)
        self.classifier = nn.Linear(hidden, vocabulary_size)
        self.dropout = nn.Dropout(dropout)
        nn.init.uniform_(self.classifier.weight, -0.1, 0.1)
        nn.init.zeros_(self.classifier.bias)

    def start(self, features: Tensor) -> State:
        """Returns the state of one caption per image, before BEGIN."""
        raise NotImplementedError

    def read(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        """Returns the outputs `[N, T, hidden]` of embedded words `[N, T, words]`, and the state after the last."""
        raise NotImplementedError

    def outputs(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Returns the outputs `[N, T, hidden]` of tokens `[N, T]`, and the state after the last."""
        return self.read(self.dropout(self.words(tokens)), state)

    def logits(self, outputs: Tensor) -> Tensor:
        """Returns logits `[..., V]` of the next word from outputs `[..., hidden]`."""
        logits: Tensor = self.classifier(self.dropout(outputs))
        return logits

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Returns logits `[N, V]` of the word after tokens `[N]`, and the state after these."""
        outputs, state = self.outputs(tokens[:, None], state)
        return self.logits(outputs[:, 0]), state

    def forward(self, features: Tensor, tokens: Tensor, sampling: float = 0.0) -> Tensor:
        """Returns logits `[N, T, V]` of the word after each of tokens `[N, T]`, of which the first is BEGIN.

        Features of B images, of which each has N / B captions in adjacent rows; usually N is B.

        Args:
            features: `[B, C]`, or maps `[B, P, C]`.
            tokens: `[N, T]`.
            sampling: the probability with which an input after the first is not the token, but drawn from the
                model's distribution of that word (scheduled sampling, Bengio et al., NeurIPS 2015).
        """
        state = self.start(features).repeat(len(tokens) // max(len(features), 1))
        if sampling == 0:
            return self.logits(self.outputs(tokens, state)[0])
        inputs, all_logits = tokens[:, 0], []
        for true in [*tokens.unbind(1)[1:], None]:
            logits, state = self.step(inputs, state)
            all_logits.append(logits)
            if true is not None:
                replaced = torch.rand(len(true), device=true.device) < sampling
                inputs = torch.where(replaced, draw(generated(logits.detach()).exp()), true)
        return torch.stack(all_logits, 1)


class LSTMDecoder(Decoder):
    """An LSTM whose first input is the image: its features, projected to the size of a word.

    Vinyals et al., "Show and Tell: A Neural Image Caption Generator" (CVPR 2015); the FC model of Rennie et al.,
    "Self-critical Sequence Training for Image Captioning" (CVPR 2017).

    Args:
        hidden: size of the LSTM.
        words: length of a word embedding.
        dropout: share of the inputs and outputs of the LSTM that is set to 0 in training.
        deep_output: every word also depends directly on the image, `logits = W (h + V features) + b`, similar to the
            deep output layer of Xu et al., "Show, Attend and Tell" (ICML 2015). A visual network that is not frozen
            learns much faster with it: otherwise its gradient passes through all earlier words.
    """

    def __init__(
        self,
        hidden: int = 512,
        words: int = 512,
        dropout: float = 0.5,
        deep_output: bool = False,
        *,
        feature_dim: int,
        vocabulary_size: int,
    ) -> None:
        super().__init__(hidden, words, dropout, feature_dim, vocabulary_size)
        self.image = nn.Linear(feature_dim, words)
        self.output = nn.Linear(feature_dim, hidden) if deep_output else None
        self.lstm = nn.LSTM(words, hidden, batch_first=True)

    def train(self, mode: bool = True) -> Self:
        """Sets training mode; the LSTM stays in it, since cuDNN refuses gradients of one in evaluation mode."""
        super().train(mode)
        self.lstm.train()  # it has no dropout, and is the same in both modes
        return self

    def start(self, features: Tensor) -> State:
        """Returns the state after the image."""
        zeros = self.image.weight.new_zeros(len(features), self.hidden)
        maps = () if self.output is None else (self.output(features)[:, None],)
        return self.read(self.dropout(self.image(features))[:, None], State((zeros, zeros), maps))[1]

    def read(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        """Returns the outputs `[N, T, hidden]` of embedded words `[N, T, words]`, and the state after the last."""
        dtype, device = self.image.weight.dtype, inputs.device.type
        # Not every CPU has an LSTM in half precision.
        with torch.autocast(device, enabled=False) if device == "cpu" else nullcontext():
            memory = tuple(x[None].to(dtype) for x in state.memory)
            outputs, (hidden, cell) = self.lstm(inputs.to(dtype), memory)
        for of_image in state.maps:
            outputs = outputs + of_image.repeat_interleave(len(outputs) // max(len(of_image), 1), 0)
        return outputs, state._replace(memory=(hidden[0], cell[0]))


class AttentionDecoder(Decoder):
    """Top-down attention: one LSTM says where to look, another says the next word.

    Anderson et al., "Bottom-Up and Top-Down Attention for Image Captioning and Visual Question Answering" (CVPR 2018),
    over the places of a feature map v_1, ..., v_P instead of detected regions:

        h1 = LSTM1([h2, mean of v_i, word]),   a_i = w^T tanh(W_v v_i + W_h h1),   v = sum_i softmax(a)_i v_i
        h2 = LSTM2([v, h1]),                   logits = W h2 + b

    As in the published code of self-critical training, v_i are the features after a linear layer, ReLU and dropout.

    Args:
        hidden: size of both LSTMs, and of v_i.
        words: length of a word embedding.
        attention: length of the vectors from which attention weights are computed.
        dropout: share of the places' features, the embedded words and the outputs that is set to 0 in training.
        deep_output: every word also depends directly on v: `logits = W (h2 + v) + b`.
    """

    needs_maps = True

    def __init__(
        self,
        hidden: int = 512,
        words: int = 512,
        attention: int = 512,
        dropout: float = 0.5,
        deep_output: bool = False,
        *,
        feature_dim: int,
        vocabulary_size: int,
    ) -> None:
        super().__init__(hidden, words, dropout, feature_dim, vocabulary_size)
        check_whole(1, attention=attention)
        self.deep_output = deep_output
        self.places = nn.Sequential(nn.Linear(feature_dim, hidden), nn.ReLU(), self.dropout)
        self.keys = nn.Linear(hidden, attention)
        self.query = nn.Linear(hidden, attention, bias=False)
        self.score = nn.Linear(attention, 1, bias=False)
        self.attention_lstm = nn.LSTMCell(2 * hidden + words, hidden)
        self.language_lstm = nn.LSTMCell(2 * hidden, hidden)

    def start(self, features: Tensor) -> State:
        """Returns the state before the first word: LSTM states of 0, and the maps."""
        zeros = self.score.weight.new_zeros(len(features), self.hidden)
        places = self.places(features)  # [B,P,hidden]
        return State((zeros,) * 4, (places, self.keys(places), places.mean(1, keepdim=True)))

    def read(self, inputs: Tensor, state: State) -> tuple[Tensor, State]:
        """Returns the outputs `[N, T, hidden]` of embedded words `[N, T, words]`, and the state after the last."""
        (h1, c1, h2, c2), weights = state.memory, state.attention
        places, keys, mean = state.maps
        shape = len(places), len(h1) // max(len(places), 1)  # images, captions per image
        mean = mean.expand(-1, shape[1], -1).flatten(0, 1)
        outputs = []
        for word in inputs.unbind(1):
            h1, c1 = self.attention_lstm(torch.cat([h2, mean, word], 1), (h1, c1))
            query = self.query(h1).unflatten(0, shape)[:, :, None]
            # In place: [B,captions,P,attention] is by far the largest tensor of a step.
            scores = self.score((keys[:, None] + query).tanh_())[..., 0]
            weights = scores.softmax(-1)
            seen = (weights.to(places.dtype) @ places).flatten(0, 1)
            h2, c2 = self.language_lstm(torch.cat([seen, h1], 1), (h2, c2))
            outputs.append(h2 + seen if self.deep_output else h2)
            weights = weights.flatten(0, 1)
        return torch.stack(outputs, 1), State((h1, c1, h2, c2), state.maps, weights)


def attention_of(decoder: AttentionDecoder, features: Tensor, tokens: Tensor) -> Tensor:
    """Returns attention weights `[N, T, P]` for the word after each of tokens `[N, T]`, of which the first is BEGIN."""
    state = decoder.start(features).repeat(len(tokens) // max(len(features), 1))
    weights = []
    for inputs in tokens.unbind(1):
        state = decoder.outputs(inputs[:, None], state)[1]
        assert state.attention is not None
        weights.append(state.attention)
    return torch.stack(weights, 1)


def generated(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Returns log-probabilities `[N, V]` of the words to generate, at least float32: never PAD, BEGIN or UNKNOWN."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature
    logits[:, [Vocabulary.PAD, Vocabulary.BEGIN, Vocabulary.UNKNOWN]] = -torch.inf
    return logits.log_softmax(1)


def draw(probabilities: Tensor) -> Tensor:
    """Returns one column number per row `[N]`, drawn with these probabilities `[N, V]` from the global generator."""
    # The inverse of the cumulative distribution: torch.multinomial draws V numbers per row, and takes 20 times longer.
    sums = probabilities.cumsum(1, dtype=torch.float64)
    threshold = torch.rand(len(sums), 1, dtype=sums.dtype, device=sums.device) * sums[:, -1:]
    columns = torch.searchsorted(sums, threshold, right=True)[:, 0]
    return columns.clamp(max=sums.shape[1] - 1)  # of NaN, any column: the log-probability is NaN too


#: Decoders by name.
DECODERS: dict[str, type[Decoder]] = {"lstm": LSTMDecoder, "attention": AttentionDecoder}
