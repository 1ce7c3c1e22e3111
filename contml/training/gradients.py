"""Gradients: of a batch in chunks, clipped, finite.

Gradient caching: a batch goes through the network in chunks, and the loss sees the whole batch.

    1. Embed chunk after chunk. Only the embeddings are kept.
    2. Compute the loss of the whole batch.
    3. In the backward pass, embed each chunk again with its graph, and let the gradients of its embeddings flow back.

Gao, Zhang, Han, Callan: "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup", RepL4NLP 2021. The
second pass is as in `torch.utils.checkpoint`: it repeats the random numbers of the first. Here it also repeats the
buffers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn, optim
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import get_total_norm
from torch.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from accelerate import Accelerator


@contextmanager
def embed_in_chunks(model: nn.Module, size: int | None) -> Iterator[None]:
    """Make calls of `model(images)` in this context embed `size` images at a time. None embeds all at once.

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
    """Return contexts of the two passes of a chunk: the second starts with the same buffers, and restores them."""
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


def clip(accelerator: Accelerator, parameters: Sequence[nn.Parameter], norm: float | None, value: float | None) -> None:
    """Limit the norm of all gradients together, and the absolute value of each entry. None sets no limit."""
    if norm is not None:
        accelerator.clip_grad_norm_(parameters, norm)
    if value is not None:
        accelerator.unscale_gradients()
        for gradient in (p.grad for p in parameters if p.grad is not None):
            gradient.clamp_(-value, value)


def changes(network: nn.Module, optimizer: optim.Optimizer) -> bool:
    """Return True if the gradients change the network: a gradient is not 0, and its learning rate is not 0."""
    own = {id(parameter) for parameter in network.parameters()}
    trained = [parameter for group in optimizer.param_groups if group["lr"] > 0 for parameter in group["params"]]
    gradients = [each.grad for each in trained if id(each) in own and each.grad is not None]
    return bool(get_total_norm(gradients, math.inf) != 0)


def are_finite(weights: Iterable[Tensor]) -> Tensor:
    """Return True if all of these numbers are finite, as a boolean scalar."""
    floats = [weight.detach() for weight in weights if weight.is_floating_point() and weight.numel()]
    return get_total_norm(floats, math.inf).isfinite()


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Make dropout in this block draw from the seed. After the block, the generators have their earlier state."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        # `torch.manual_seed` formats the stack for each missing kind of device, which takes long for a small step.
        torch.default_generator.manual_seed(seed)
        if device.type != "cpu":
            torch.get_device_module(device).manual_seed(seed)
        yield
