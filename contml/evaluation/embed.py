"""Embedding a split with a model."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from contml._support.errors import InputError
from contml._support.validation import as_rows
from contml.contracts import Rows
from contml.data import Images
from contml.data.split import Split

#: Images embedded at a time.
BATCH = 128


@torch.no_grad()
def embed(
    model: nn.Module, split: Split, images: Images, rows: Rows = None, *, device: torch.device | str = "cpu"
) -> tuple[Tensor, Tensor]:
    """Returns embeddings `[N, d]` of a split in float32 on the CPU, 0 where unreadable, and the unreadable rows `[M]`.

    Images are centre crops. The model is in evaluation mode during the call. With `rows`, only these are embedded: the
    others stay 0 and count as read.

    Raises:
        InputError: no image could be read, or one could not and broken images are errors.
    """
    wanted = as_rows(rows, len(split))
    training = model.training
    model.eval()
    try:
        found, kept = [], []
        for batch in images.test_batches(split, wanted, BATCH):
            if len(batch.rows):
                found.append(model(batch.images.to(device)).float().cpu())
                kept.append(batch.rows)
    finally:
        model.train(training)
    if not found:
        raise InputError("images", "none could be read", hint="check the image files")
    read = torch.cat(kept)
    embeddings = torch.zeros(len(split), found[0].shape[1])
    embeddings[read] = torch.cat(found)
    return embeddings, wanted[~torch.isin(wanted, read)]
