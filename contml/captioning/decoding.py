"""The search for captions: greedy, sampled, and beam search, for all images of a batch at once.

Captions are tokens `[N, T]`: words, END, then PAD. T is at most `length`. A caption without END was cut off at
`length`. PAD, BEGIN and UNKNOWN are never written as words. An empty caption is only END. Captions that have ended
leave the batch. Call `decoder.eval()` for captions without dropout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor

from contml._support.validation import PositiveFloat, PositiveInt, check_ranges, check_whole
from contml.captioning.decoders import Decoder, draw, generated
from contml.captioning.vocabulary import Vocabulary

PAD, BEGIN, END = Vocabulary.PAD, Vocabulary.BEGIN, Vocabulary.END


@torch.no_grad()
def greedy(decoder: Decoder, features: Tensor, length: int) -> Tensor:
    """Write captions `[B, T]` of images `[B, ...]` with always the most probable next word."""
    return _write(decoder, features, 1, length, 1.0, lambda scores: scores.argmax(1))[0]


@check_ranges
def sample(
    decoder: Decoder, features: Tensor, samples: PositiveInt, length: int, temperature: PositiveFloat = 1.0
) -> tuple[Tensor, Tensor]:
    """Draw captions from the model's distribution, with PyTorch's global generator.

    Args:
        decoder: the network.
        features: `[B, C]`, or maps `[B, P, C]`.
        samples: number of captions per image, in adjacent rows.
        length: largest number of tokens.
        temperature: logits are divided by it.

    Returns:
        Tokens and their log-probabilities, both `[B * samples, T]`. Log-probabilities have gradients, and are 0 after
        END.
    """
    return _write(decoder, features, samples, length, temperature, lambda scores: draw(scores.detach().exp()))


Choose: TypeAlias = Callable[[Tensor], Tensor]


def _write(
    decoder: Decoder, features: Tensor, captions: int, length: int, temperature: float, choose: Choose
) -> tuple[Tensor, Tensor]:
    """Write `captions` captions per image. `choose` chooses words `[N]` by their log-probabilities `[N, V]`."""
    check_whole(1, length=length)
    state = decoder.start(features).repeat(captions)
    rows = torch.arange(len(features) * captions, device=features.device)  # the captions that are being written
    tokens = rows.new_full((len(rows), length), PAD)
    inputs, log_probabilities = torch.full_like(rows, BEGIN), []
    for position in range(length):
        logits, state = decoder.step(inputs, state)
        scores = generated(logits, temperature)
        inputs = choose(scores)
        scores = scores.gather(1, inputs[:, None])[:, 0]
        log_probabilities.append(scores.new_zeros(len(tokens)).index_copy(0, rows, scores))
        tokens[rows, position] = inputs
        unfinished = (inputs != END).nonzero()[:, 0]
        if len(unfinished) == 0:
            break
        if len(unfinished) < len(rows):
            state, rows, inputs = state.select(unfinished), rows[unfinished], inputs[unfinished]
    return tokens[:, : position + 1], torch.stack(log_probabilities, 1)


@torch.no_grad()
def beam_search(decoder: Decoder, features: Tensor, width: int, length: int) -> tuple[Tensor, Tensor]:
    """Search for the most probable captions: after each word, the `width` best beginnings per image are kept.

    A caption that has ended competes with longer ones by its log-probability, without normalization by length.

    Returns:
        Captions `[B, T]`, and their log-probabilities `[B]`, sums over the tokens.
    """
    check_whole(1, width=width, length=length)
    state = decoder.start(features)
    rows = torch.arange(len(features), device=features.device)  # the images that are being searched
    captions, best_scores = rows.new_full((len(rows), length), PAD), torch.zeros_like(rows, dtype=torch.float64)
    tokens = rows.new_full((len(rows), 1, 1), BEGIN)  # [B,captions,1+T], the best caption first
    sums, ended = best_scores[:, None], torch.zeros_like(tokens[..., 0], dtype=torch.bool)  # [B,captions]
    for position in range(1, length + 1):
        logits, state = decoder.step(tokens[..., -1].flatten(), state)
        scores, words = generated(logits).topk(min(width, logits.shape[1]), 1)
        num_captions, num_words = ended.shape[1], words.shape[1]
        scores = scores.view(-1, num_captions, num_words).masked_fill(ended[..., None], -torch.inf)
        scores[..., 0].masked_fill_(ended, 0)  # a caption that has ended continues only with PAD
        words = words.view(-1, num_captions, num_words).masked_fill(ended[..., None], PAD)
        sums, flat_index = (sums[..., None] + scores).flatten(1).topk(min(width, num_captions * num_words), 1)
        parents = flat_index // num_words
        words = words.flatten(1).gather(1, flat_index)
        tokens = torch.cat([tokens.take_along_dim(parents[..., None], 1), words[..., None]], 2)
        ended = ended.gather(1, parents) | (words == END)
        # Log-probabilities only fall: if the best caption has ended, no other can become better.
        done = ended[:, 0] | (position == length)
        captions[rows[done], :position], best_scores[rows[done]] = tokens[done, 0, 1:], sums[done, 0]
        images = (~done).nonzero()[:, 0]
        if len(images) == 0:
            break
        selected = (torch.arange(len(rows), device=rows.device)[:, None] * num_captions + parents)[images].flatten()
        state = state.select(selected)
        rows, tokens, sums, ended = rows[images], tokens[images], sums[images], ended[images]
    return captions[:, : max(1, int((captions != PAD).any(0).sum()))], best_scores
