"""An image captioner: a visual network, and a decoder that turns its features into words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from contml._support.errors import InputError
from contml._support.validation import PositiveInt, check_ranges
from contml.captioning.decoders import Decoder
from contml.captioning.decoding import beam_search, greedy, sample
from contml.captioning.vocabulary import Vocabulary
from contml.models.embedding import EmbeddingModel
from contml.models.weights import read


class DecoderFactory(NamedTuple):
    """A function that makes a decoder from `feature_dim` and `vocabulary_size`.

    `needs_maps` is as in the class of the decoder.
    """

    needs_maps: bool
    build: Callable[..., Decoder]

    @classmethod
    def of(cls, constructor: Callable[..., Decoder], build: Callable[..., Decoder]) -> Self:
        """Return a factory that calls `build` to make a decoder.

        `constructor` is the class of the decoder, or a function. The decoder of a function takes vectors, not maps.
        """
        needs_maps = isinstance(constructor, type) and issubclass(constructor, Decoder) and constructor.needs_maps
        return cls(needs_maps, build)


class Captioner(nn.Module):
    """Images `[B, 3, H, W]` to captions: a visual network, and a decoder on its features.

        input of the decoder = (features - feature_mean) / feature_deviation

    `feature_mean` is the mean of each feature. `feature_deviation` is the root of the mean squared deviation over all
    features. If the network is frozen, both are computed from training images (`standardize`). A loaded captioner
    brings its own. Otherwise they are 0 and 1.

    Args:
        threshold: the vocabulary is the words that occur at least this often in the training captions.
        layer: the input of the decoder: the "features" of the backbone, or the "embedding". A decoder that attends to
            places always gets the last feature maps of the backbone.
        frozen: the visual network keeps its weights while the decoder is trained.
        length: largest number of words of a caption.
        beam: number of captions that beam search keeps; 1 takes the likeliest word at each step.
        weights: "none", or a checkpoint of a captioner with the same vocabulary, a local file.
        network: the visual network.
        decoder: makes the decoder.
        captions: the words of the training captions, or the vocabulary itself.

    Raises:
        InputError: no word is frequent enough, the weights do not fit, or the backbone has no feature maps.
    """

    words: Tensor
    feature_mean: Tensor
    feature_deviation: Tensor

    @check_ranges
    def __init__(
        self,
        threshold: PositiveInt = 5,
        layer: Literal["features", "embedding"] = "features",
        frozen: bool = True,
        length: PositiveInt = 20,
        beam: PositiveInt = 3,
        weights: str = "none",
        *,
        network: EmbeddingModel,
        decoder: DecoderFactory,
        captions: Iterable[Sequence[str]] | Vocabulary,
    ) -> None:
        super().__init__()
        self.layer, self.frozen, self.length, self.beam = layer, frozen, length, beam
        self.network = network
        self.vocabulary = captions if isinstance(captions, Vocabulary) else Vocabulary.of(captions, threshold)
        feature_dim = network.feature_dim if layer == "features" else network.embedding_dim
        if decoder.needs_maps:
            feature_dim = network.map_dim
        self.decoder = decoder.build(feature_dim=feature_dim, vocabulary_size=len(self.vocabulary))
        # Kept with the weights, so that a checkpoint knows its words.
        self.register_buffer("words", self.vocabulary.to_tensor())
        self.register_buffer("feature_mean", torch.zeros(feature_dim))
        self.register_buffer("feature_deviation", torch.ones(()))
        #: True if the decoder is trained, on features like these.
        self.is_loaded = weights != "none"
        if self.is_loaded:
            self._load(Path(weights).expanduser())

    def _load(self, file: Path) -> None:
        state = read(file)
        self.check_words(state, file)
        try:
            self.load_state_dict(state)
        except RuntimeError as error:
            reason = str(error).splitlines()[-1].strip()
            raise InputError(f"weights {file}", f"does not fit this captioner ({reason})") from None

    def check_words(self, state: dict[str, Tensor], file: Path) -> None:
        """Refuse the weights of a captioner with another vocabulary, whose word numbers mean other words.

        Raises:
            InputError: the weights have another vocabulary, or none.
        """
        saved_vocabulary = Vocabulary.from_weights(state, f"weights {file}")
        if saved_vocabulary.words != self.vocabulary.words:
            saved, expected = len(saved_vocabulary), len(self.vocabulary)
            got = f"its vocabulary has {saved:,} words" if saved != expected else "its vocabulary has other words"
            hint = "train on the same captions with the same threshold"
            raise InputError(f"weights {file}", got, f"must have the same {expected:,} words as this run", hint)

    def visual(self, images: Tensor) -> Tensor:
        """Return the input of the decoder for images: features `[B, C]`, or maps `[B, P, C]`."""
        if self.frozen:
            self.network.eval()
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            return (self._features(images) - self.feature_mean) / self.feature_deviation

    def _features(self, images: Tensor) -> Tensor:
        if self.decoder.needs_maps:
            return self.network.maps(images)
        features = self.network.features(images)
        return features if self.layer == "features" else self.network.embed(features)

    def feature_moments(self, images: Tensor) -> Tensor:
        """Return the input of `standardize` for images, `[B, C + 1]`.

        The columns are the means of the features over places, and a variance.
        """
        features = self._features(images).float()
        places = features if features.ndim == 3 else features[:, None]  # [B,P,C]
        means = places.mean(1)
        return torch.cat([means, (places - means[:, None]).square().mean((1, 2))[:, None]], dim=1)  # [B,C+1]

    @torch.no_grad()
    def standardize(self, moments: Tensor) -> None:
        """Set mean and deviation of the features from the `feature_moments` `[N, C + 1]` of training images."""
        means, variances = moments[:, :-1].double(), moments[:, -1].double()
        mean = means.mean(0)
        deviation = ((means - mean).square().mean() + variances.mean()).sqrt()
        self.feature_mean.copy_(mean)
        self.feature_deviation.copy_(deviation if deviation > 0 else torch.ones(()))

    def forward(
        self,
        images: Tensor,
        tokens: PackedSequence | None = None,
        samples: int = 1,
        *,
        most_probable: bool = False,
        embed: bool = False,
    ) -> Any:
        """Return the logits of captions, or captions that are drawn, or embeddings.

        Args:
            images: `[B, 3, H, W]`.
            tokens: M tokens of captions that begin with BEGIN. Each image has the same number of captions, in adjacent
                rows. The result is the logits `[M, V]` of the word after each token. None: captions are drawn without
                dropout. The result is then (tokens, log-probabilities), each `[B, samples, T]`, and None.
            samples: the number of captions that are drawn for each image.
            most_probable: return the caption of the most probable words `[B, T]` in place of None.
            embed: return the embeddings `[B, d]` of the visual network, with gradients also if it is frozen.
        """
        # All in one call, since data parallelism only handles forward.
        if embed:
            return self.network.train(self.training)(images)
        features = self.visual(images)
        if tokens is None:
            was_training = self.decoder.training
            drawn, logs = sample(self.decoder.eval(), features, samples, self.length + 1)
            best = greedy(self.decoder, features, self.length + 1) if most_probable else None
            self.decoder.train(was_training)
            return drawn.view(len(images), samples, -1), logs.view(len(images), samples, -1), best
        return self.decoder(features, tokens).data

    @torch.no_grad()
    def describe(self, images: Tensor, beam: int | None = None) -> Tensor:
        """Return the captions of images as tokens `[B, length + 1]`, by beam search. `beam` replaces the option."""
        tokens, _ = beam_search(self.decoder, self.visual(images), beam or self.beam, self.length + 1)
        return F.pad(tokens, (0, self.length + 1 - tokens.shape[1]), value=Vocabulary.PAD)

    def head_parameters(self) -> Iterator[nn.Parameter]:
        """Return the parameters of the decoder, which may have their own learning rate."""
        return self.decoder.parameters()
