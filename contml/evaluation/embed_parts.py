"""Embeddings of many images, kept in parts beside the file that they are for: an interrupted run continues there."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from contml._support.errors import InputError
from contml._support.tensors import load_tensors, save_tensors
from contml.data import Images
from contml.data.split import Split
from contml.evaluation.embed import BATCH, embed_rows

#: Images per part; an interrupted run loses at most this many.
_PART = 512


class Part(NamedTuple):
    """The embeddings of some rows of a split."""

    rows: range
    embeddings: Tensor  # [n,d] of the rows that could be read, in order
    broken: dict[int, str]  # why the others could not be read
    resumed: bool  # whether it was on disk, from an interrupted run


class Parts:
    """The parts for one file, in a folder beside it.

    Args:
        out: the file that the embeddings are for.
        key: a hash of all that the embeddings depend on but the images: parts from different settings are not mixed.
    """

    def __init__(self, out: Path, key: str) -> None:
        self._root = out.with_name(f".{out.name}.parts")
        self._folder = self._root / key
        self._embedded: list[str] = []  # the names of the parts so far

    def embed(
        self,
        model: nn.Module,
        split: Split,
        images: Images,
        name: str,
        *,
        device: torch.device | str = "cpu",
        batch_size: int = BATCH,
        function: Callable[[Tensor], Tensor] | None = None,
    ) -> Iterator[Part]:
        """Yields the parts of a split in order, read from disk or embedded.

        `name` is the name of the split; `function` as in `contml.evaluation.embed.embed`.

        Raises:
            InputError: an embedding is not finite, or a part on disk has embeddings of another shape.
        """
        shape: torch.Size | None = None
        for rows in _rows(split):
            path = self._folder / _name(split, name, rows)
            self._embedded.append(path.name)
            part = _kept(path, rows)
            if part is None:
                read_rows, embeddings = embed_rows(
                    model, split, images, rows, device=device, batch_size=batch_size, function=function
                )
                missing = sorted({*rows} - {*read_rows.tolist()})
                broken = {row: images.left_out[split.name(row)] for row in missing}
                for row in read_rows[~torch.isfinite(embeddings).flatten(1).all(1)].tolist():
                    raise InputError(split.name(row), "its embedding is not finite", hint="train the model again")
                save_tensors(path, {"embeddings": embeddings}, broken=[*broken.items()])
                part = Part(rows, embeddings, broken, False)
            if len(part.embeddings) and shape not in (None, part.embeddings.shape[1:]):
                problem = f"embeddings {list(part.embeddings.shape)} after others of {list(shape or ())}"
                raise InputError(str(self._folder), problem, hint="remove this folder of an interrupted run")
            shape = part.embeddings.shape[1:] if len(part.embeddings) else shape
            yield part

    def key(self, splits: Mapping[str, Split] | None = None) -> str:
        """A hash of all that the embeddings of some splits depend on: settings, names and files of the images.

        `splits`: by name; None: the splits that were embedded, with the state that their files had.
        """
        names = self._embedded
        if splits is not None:
            names = [_name(split, name, rows) for name, split in splits.items() for rows in _rows(split)]
        return hashlib.sha256("\n".join([self._folder.name, *names]).encode()).hexdigest()

    def remove(self) -> None:
        """Remove the parts: the file is written."""
        shutil.rmtree(self._root, ignore_errors=True)


def _rows(split: Split) -> Iterator[range]:
    """The rows of each part."""
    return (range(start, min(start + _PART, len(split))) for start in range(0, len(split), _PART))


def _name(split: Split, name: str, rows: range) -> str:
    return f"{name}-{rows.start:09d}-{_fingerprint(split, rows)}.safetensors"


def _fingerprint(split: Split, rows: range) -> str:
    """A hash of the names and the files of some rows: an image that was replaced is embedded again."""
    content = hashlib.blake2b(digest_size=8)
    for row in rows:
        stamp = split.stamp(row)
        content.update(f"{split.name(row)}\n".encode(errors="surrogateescape"))
        if stamp is not None:
            with suppress(OSError):  # no such file: it is broken
                file_stat = stamp.file.stat()
                content.update(f"{stamp.crop} {file_stat.st_size} {file_stat.st_mtime_ns}\n".encode())
    return content.hexdigest()


def _kept(path: Path, rows: range) -> Part | None:
    """A part on disk; None if there is none, or it is damaged."""
    try:
        tensors, values = load_tensors(path)
        embeddings, broken = tensors["embeddings"], dict(values["broken"])
    except (FileNotFoundError, InputError, KeyError, TypeError, ValueError):
        return None
    is_complete = (
        embeddings.dtype == torch.float32 and embeddings.ndim in (2, 3) and len(embeddings) + len(broken) == len(rows)
    )
    is_complete &= broken.keys() <= {*rows} and all(isinstance(cause, str) for cause in broken.values())
    return Part(rows, embeddings, broken, True) if is_complete and bool(torch.isfinite(embeddings).all()) else None
