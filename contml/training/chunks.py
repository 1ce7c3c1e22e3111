"""Gradient caching: a batch goes through the network in chunks, and the loss sees all of it.

    1. Embed chunk after chunk. Only the embeddings are kept.
    2. Compute the loss of the whole batch.
    3. In the backward pass, embed each chunk again with its graph, and let the gradients of its embeddings flow back.

Gao, Zhang, Han, Callan: "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup", RepL4NLP 2021. The
second pass is that of `torch.utils.checkpoint`: it repeats the random numbers of the first, and here also the buffers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint


@contextmanager
def embed_in_chunks(model: nn.Module, size: int | None) -> Iterator[None]:
    """Calls of `model(images)` in this context embed `size` images at a time; None embeds all at once.

    The model is called once per batch, so that data parallelism sees one forward and one backward pass. Batch
    normalization in train mode uses the statistics of a chunk.
    """
    if size is None:
        yield
        return
    bare_model: Any = model.module if isinstance(model, DistributedDataParallel) else model
    forward, own_forward = bare_model.forward, vars(bare_model).get("forward")

    def chunked(images: Tensor, **options: Any) -> Any:
        if len(images) <= size:
            return forward(images, **options)
        chunk_outputs = [
            checkpoint(forward, chunk, use_reentrant=False, context_fn=lambda: _same_buffers(bare_model), **options)
            for chunk in torch.split(images, size)
        ]
        if isinstance(chunk_outputs[0], Tensor):
            return torch.cat(chunk_outputs)
        return tuple(torch.cat(outputs) for outputs in zip(*chunk_outputs, strict=True))

    bare_model.forward = chunked
    try:
        yield
    finally:
        del bare_model.forward
        if own_forward is not None:  # such as the wrapper of mixed precision
            bare_model.forward = own_forward


def _same_buffers(model: nn.Module) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Contexts of the two passes of a chunk: the second starts with the same buffers, and restores them."""
    buffers = list(model.buffers())
    start_values: list[Tensor] = []

    @contextmanager
    def first() -> Iterator[None]:
        start_values.extend(buffer.clone() for buffer in buffers)
        yield

    @contextmanager
    def second() -> Iterator[None]:
        end_values = [buffer.clone() for buffer in buffers]
        _copy(start_values, buffers)
        try:
            yield
        finally:
            _copy(end_values, buffers)

    return first(), second()


@torch.no_grad()
def _copy(values: list[Tensor], buffers: list[Tensor]) -> None:
    for value, buffer in zip(values, buffers, strict=True):
        buffer.copy_(value)
