"""Embeddings of a split, computed by a model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from contml._support.errors import InputError
from contml._support.validation import as_rows
from contml.contracts import Rows
from contml.data.split import Loader, Split
from contml.processes import Together, connected, gather_items, world

Device: TypeAlias = torch.device | str
#: Maps a batch of images to outputs of the model.
Function: TypeAlias = Callable[[Tensor], Tensor] | None

#: Images embedded at a time.
BATCH = 128


def embed(
    model: nn.Module,
    split: Split,
    images: Loader,
    rows: Rows = None,
    *,
    device: Device = "cpu",
    function: Function = None,
) -> tuple[Tensor, Tensor]:
    """Compute the embeddings `[N, d]` of a split, and the rows `[M]` of images that cannot be read.

    Embeddings are float32 on the CPU, 0 for an unreadable image. Images are centre crops. The model is in evaluation
    mode during the call.

    Args:
        model: the model.
        split: the split.
        images: reads the images.
        rows: the rows to embed. The other rows stay 0 and count as read. Default: all rows.
        device: the device of the model.
        function: maps a batch of images to other outputs of the model `[B, ...]`, such as captions.

    Raises:
        InputError: no image could be read, or one could not and broken images are errors.
    """
    requested_rows = as_rows(rows, len(split))
    read_rows, read_embeddings = embed_rows(model, split, images, requested_rows, device=device, function=function)
    if not len(read_rows):
        raise unreadable_images()
    embeddings = torch.zeros(len(split), *read_embeddings.shape[1:], dtype=read_embeddings.dtype)
    embeddings[read_rows] = read_embeddings
    return embeddings, requested_rows[~torch.isin(requested_rows, read_rows)]


def unreadable_images() -> InputError:
    """Return the error for a split whose images all cannot be read."""
    return InputError("images", "none could be read", hint="check the image files")


def embed_rows(
    model: nn.Module,
    split: Split,
    images: Loader,
    rows: Rows,
    *,
    device: Device = "cpu",
    batch_size: int = BATCH,
    function: Function = None,
) -> tuple[Tensor, Tensor]:
    """Return the rows `[n]` that could be read, in the order of `rows`, and their embeddings `[n, d]`.

    The embeddings are `[0, 0]` if no image could be read. `function` is as in `embed`.
    """
    read_rows: list[Tensor] = [torch.zeros(0, dtype=torch.int64)]
    results, count, most = torch.zeros(0, 0), 0, len(as_rows(rows, len(split)))
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            for batch in images.test_batches(split, rows, batch_size):
                if len(batch.rows):
                    outputs = (function or model)(batch.images.to(device))
                    outputs = outputs.float() if outputs.is_floating_point() else outputs
                    if not count:  # written in place: a list of batches would be a second copy
                        results = torch.zeros(most, *outputs.shape[1:], dtype=outputs.dtype)
                    results[count : count + len(outputs)] = outputs.cpu()
                    read_rows.append(batch.rows)
                    count += len(outputs)
    finally:
        model.train(training)
    return torch.cat(read_rows), results[:count]


def embed_together(
    model: nn.Module, split: Split, images: Loader, rows: Tensor, together: Together, *, device: Any, function: Function
) -> tuple[Tensor, Tensor]:
    """Compute the outputs for some rows with all processes, and gather them on each process.

    Args:
        model: the model.
        split: the split.
        images: reads the images.
        rows: the rows `[R]`, ascending.
        together: makes the processes fail together.
        device: the device of the model.
        function: maps a batch of images to outputs `[B, ...]`.

    Returns:
        The outputs `[R, ...]` in the order of `rows`, 0 for an unreadable image, and the unreadable rows.

    Raises:
        InputError: no image could be read, or another process failed.
    """
    rank, processes = world()
    own = rows[rank::processes]
    with connected(), together():
        read_rows, outputs = embed_rows(model, split, images, own, device=device, function=function)
    with connected():
        outputs, missing = gather_items(torch.searchsorted(rows, read_rows), outputs, len(rows), device)
    if len(missing) == len(rows):
        raise unreadable_images()
    return outputs, rows[missing]
