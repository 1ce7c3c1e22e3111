"""Decoders: networks that write a caption, word after word, from the features of an image.

`contml.captioning.decoding` has the search for captions: greedy, sampled, beam search.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated, ClassVar, NamedTuple, Self, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from contml._support.validation import PositiveInt, Range, check_ranges, check_whole
from contml.captioning.vocabulary import Vocabulary


class DecoderState(NamedTuple):
    """The state of a decoder between two words of `N` captions of `B` images.

    Attributes:
        memory: hidden and cell states of the captions, each `[N, hidden]`.
        images: the row of the image of each caption `[N]`.
        maps: the values of the images that each word needs, tensors `[B, ...]`; it may be empty.
    """

    memory: tuple[Tensor, ...]
    images: Tensor
    maps: tuple[Tensor, ...] = ()

    def select(self, captions: Tensor) -> Self:
        """Return the state of these captions `[M]`. A caption may occur several times."""
        memory = tuple(tensor.index_select(0, captions) for tensor in self.memory)
        return self._replace(memory=memory, images=self.images.index_select(0, captions))

    def repeat(self, count: int) -> Self:
        """Return the state of `count` captions per caption, in adjacent rows."""
        rows = torch.arange(len(self.images), device=self.images.device)
        return self if count == 1 else self.select(rows.repeat_interleave(count))


#: A share of values that training sets to 0.
_Share: TypeAlias = Annotated[float, Range(0, below=1)]


class Decoder(nn.Module):
    """Captions from image features: embedded words go through a recurrent network, its outputs through a linear layer.

    A subclass implements `start` and `read`.

    Attributes:
        needs_maps: True if features are maps `[B, P, C]` of P places, False if they are vectors `[B, C]`.
        vocabulary_size: number of ids, with the four special ones.
    """

    needs_maps: ClassVar[bool] = False

    @check_ranges
    def __init__(
        self,
        hidden: PositiveInt,
        words: PositiveInt,
        dropout: _Share,
        feature_dim: PositiveInt,  # noqa: ARG002  (read by subclasses)
        vocabulary_size: int,
    ) -> None:
        super().__init__()
        check_whole(5, vocabulary_size=vocabulary_size)  # the special ids and a word
        self.hidden, self.vocabulary_size = hidden, vocabulary_size
        self.words = nn.Embedding(vocabulary_size, words)
        self.classifier = nn.Linear(hidden, vocabulary_size)
        self.dropout = nn.Dropout(dropout)
        nn.init.uniform_(self.classifier.weight, -0.1, 0.1)
        nn.init.zeros_(self.classifier.bias)

    def start(self, features: Tensor) -> DecoderState:
        """Return the state of one caption per image, before BEGIN."""
        raise NotImplementedError

    def read(self, inputs: Tensor, sizes: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Read `sizes[t]` words at step t, of the first captions of the state. The other captions have ended before.

        Args:
            inputs: the embedded words of all steps `[M, words]`, step after step: the data of a `PackedSequence`.
            sizes: number of words of each step `[T]`, never more than before, on the CPU.
            state: the state before the first step.

        Returns:
            The outputs `[M, hidden]`, and the state of the captions of the last step.
        """
        raise NotImplementedError

    def outputs(self, tokens: Tensor, sizes: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Return the result of `read` for tokens `[M]`."""
        return self.read(self.dropout(self.words(tokens)), sizes, state)

    def logits(self, outputs: Tensor) -> Tensor:
        """Return logits `[..., V]` of the next word from outputs `[..., hidden]`."""
        return self.classifier(self.dropout(outputs))

    def step(self, tokens: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Return logits `[N, V]` of the word after tokens `[N]`, and the state after these tokens.

        If there are fewer tokens than captions, they are of the first captions.
        """
        outputs, state = self.outputs(tokens, torch.tensor([len(tokens)]), state)
        return self.logits(outputs), state

    def forward(self, features: Tensor, tokens: PackedSequence) -> PackedSequence:
        """Return logits of the word after each token.

        Args:
            features: `[B, C]`, or maps `[B, P, C]`.
            tokens: N captions, each with BEGIN as its first token; each image has N / B captions, in adjacent rows.

        Returns:
            `tokens` with logits `[V]` in place of each.
        """
        data, sizes, order, _ = tokens
        state = self.start(features).repeat(int(sizes[0]) // len(features))
        if order is not None:
            state = state.select(order)  # long captions first
        return tokens._replace(data=self.logits(self.outputs(data, sizes, state)[0]))


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

    @check_ranges
    def __init__(
        self,
        hidden: PositiveInt = 512,
        words: PositiveInt = 512,
        dropout: _Share = 0.5,
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
        """Set training mode. The LSTM stays in training mode, since cuDNN refuses gradients in evaluation mode."""
        super().train(mode)
        self.lstm.train()  # it has no dropout, and is the same in both modes
        return self

    def start(self, features: Tensor) -> DecoderState:
        """Return the state after the image."""
        zeros = self.image.weight.new_zeros(len(features), self.hidden)
        images = torch.arange(len(features), device=zeros.device)
        maps = () if self.output is None else (self.output(features),)
        inputs, sizes = self.dropout(self.image(features)), torch.tensor([len(features)])
        return self._read(inputs, sizes, DecoderState((zeros, zeros), images, maps))[1]

    def read(self, inputs: Tensor, sizes: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Read `sizes[t]` words at step t, as in `Decoder.read`."""
        outputs, next_state = self._read(inputs, sizes, state)
        for image_outputs in state.maps:
            images = torch.cat([state.images[:size] for size in sizes.tolist()])
            outputs = outputs + image_outputs.index_select(0, images)
        return outputs, next_state

    def _read(self, inputs: Tensor, sizes: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        first_size, last_size = int(sizes[0]), int(sizes[-1])
        dtype, device = self.image.weight.dtype, inputs.device.type
        # Not every CPU has an LSTM in half precision.
        with torch.autocast(device, enabled=False) if device == "cpu" else nullcontext():
            memory = tuple(tensor[None, :first_size].to(dtype) for tensor in state.memory)
            outputs, (hidden, cell) = self.lstm(PackedSequence(inputs.to(dtype), sizes), memory)
        memory = hidden[0, :last_size], cell[0, :last_size]
        return outputs.data, state._replace(memory=memory, images=state.images[:last_size])


class AttentionDecoder(Decoder):
    """Top-down attention: one LSTM finds the places to look at, another writes the next word.

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

    @check_ranges
    def __init__(
        self,
        hidden: PositiveInt = 512,
        words: PositiveInt = 512,
        attention: PositiveInt = 512,
        dropout: _Share = 0.5,
        deep_output: bool = False,
        *,
        feature_dim: int,
        vocabulary_size: int,
    ) -> None:
        super().__init__(hidden, words, dropout, feature_dim, vocabulary_size)
        self.deep_output = deep_output
        self.places = nn.Sequential(nn.Linear(feature_dim, hidden), nn.ReLU(), self.dropout)
        self.keys = nn.Linear(hidden, attention)
        self.query = nn.Linear(hidden, attention, bias=False)
        self.score = nn.Linear(attention, 1, bias=False)
        self.attention_lstm = nn.LSTMCell(2 * hidden + words, hidden)
        self.language_lstm = nn.LSTMCell(2 * hidden, hidden)

    def start(self, features: Tensor) -> DecoderState:
        """Return the state before the first word: LSTM states of 0, and the maps."""
        zeros = self.score.weight.new_zeros(len(features), self.hidden)
        images = torch.arange(len(features), device=zeros.device)
        places = self.places(features)  # [B,P,hidden]
        return DecoderState((zeros,) * 4, images, (places, self.keys(places), places.mean(1)))

    def read(self, inputs: Tensor, sizes: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """Read `sizes[t]` words at step t, as in `Decoder.read`."""
        (h1, c1, h2, c2), images, (places, keys, mean) = state
        outputs = []
        for word in torch.split(inputs, sizes.tolist()):
            h1, c1, h2, c2, images = (tensor[: len(word)] for tensor in (h1, c1, h2, c2, images))
            h1, c1 = self.attention_lstm(torch.cat([h2, mean.index_select(0, images), word], 1), (h1, c1))
            # In place: [captions,P,attention] is by far the largest tensor of a step.
            keys_and_query = keys.index_select(0, images).add_(self.query(h1)[:, None])
            weights = self.score(keys_and_query.tanh_())[..., 0].softmax(-1)
            context = (weights.to(places.dtype)[:, None] @ places.index_select(0, images))[:, 0]
            h2, c2 = self.language_lstm(torch.cat([context, h1], 1), (h2, c2))
            outputs.append(h2 + context if self.deep_output else h2)
        return torch.cat(outputs), DecoderState((h1, c1, h2, c2), images, state.maps)


def generated(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """Return log-probabilities `[N, V]` of the words to generate, at least float32.

    PAD, BEGIN and UNKNOWN have -inf.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature
    logits[:, [Vocabulary.PAD, Vocabulary.BEGIN, Vocabulary.UNKNOWN]] = -torch.inf
    return logits.log_softmax(1)


def draw(probabilities: Tensor) -> Tensor:
    """Return one column number per row `[N]`, drawn with these probabilities `[N, V]` from the global generator."""
    # The inverse of the cumulative distribution: torch.multinomial draws V numbers per row, and takes 20 times longer.
    sums = probabilities.cumsum(1, dtype=torch.float64)
    threshold = torch.rand(len(sums), 1, dtype=sums.dtype, device=sums.device) * sums[:, -1:]
    columns = torch.searchsorted(sums, threshold, right=True)[:, 0]
    return columns.clamp(max=sums.shape[1] - 1)  # NaN may give any column: the log-probability is NaN too


#: Decoders by name.
DECODERS: dict[str, type[Decoder]] = {"lstm": LSTMDecoder, "attention": AttentionDecoder}
