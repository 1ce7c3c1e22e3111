"""Embedding a split with a model."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from contml._support.errors import InputError
from contml._support.validation import as_rows
from contml.contracts import Rows
from contml.data.split import Loader, Split
from contml.processes import Together, connected, gather_items, world

#: Images embedded at a time.
BATCH = 128


def embed(
    model: nn.Module,
    split: Split,
    images: Loader,
    rows: Rows = None,
    *,
    device: torch.device | str = "cpu",
    function: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Returns embeddings `[N, d]` of a split in float32 on the CPU, 0 where unreadable, and the unreadable rows `[M]`.

    Images are centre crops. The model is in evaluation mode during the call. With `rows`, only these are embedded: the
    others stay 0 and count as read. `function` maps a batch of images to other outputs of the model `[B, ...]`, such as
    captions.

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
    """The error of a split of which no image can be read."""
    return InputError("images", "none could be read", hint="check the image files")


def embed_rows(
    model: nn.Module,
    split: Split,
    images: Loader,
    rows: Rows,
    *,
    device: torch.device | str = "cpu",
    batch_size: int = BATCH,
    function: Callable[[Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """The rows `[n]` that could be read, in the order of `rows`, and their embeddings `[n, d]`; `[0, 0]` if none.

    `function` as in `embed`.
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
    model: nn.Module,
    split: Split,
    images: Loader,
    rows: Tensor,
    together: Together,
    *,
    device: torch.device,
    function: Callable[[Tensor], Tensor],
) -> tuple[Tensor, Tensor]:
    """Return the outputs for some rows, computed by all processes and gathered on each, and the unreadable rows.

    Outputs are `[R, ...]` in the order of `rows`, which are ascending, 0 for an unreadable one.

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
