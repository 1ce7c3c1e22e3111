"""Embeddings of many images in a file, made in parts: an interrupted command continues, and several may share them."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from contml import work
from contml._support.errors import InputError
from contml._support.files import locked
from contml._support.tensors import load_tensors, save_tensors
from contml.data import Images
from contml.data.features import Floats, Made, finished_file
from contml.data.split import Split
from contml.evaluation.embed import BATCH, embed_rows

#: Images per part; an interrupted run loses at most this many.
_PART = 512


class Part(NamedTuple):
    """The embeddings of some rows of a split."""

    embeddings: Tensor  # [n,d] of the rows that could be read, in order
    broken: dict[int, str]  # why the others could not be read


class Parts(work.Files[Part]):
    """The parts for one file, in a folder beside it.

    Args:
        out: the file that the embeddings are for.
        key: a hash of all that the embeddings depend on but the images: parts from different settings are not mixed.
        splits: the splits that are embedded, by name.
    """

    suffix = ".safetensors"

    def __init__(self, out: Path, key: str, splits: Mapping[str, Split]) -> None:
        self._root = out.with_name(f".{out.name}.parts")
        super().__init__(self._root / key, self._root / ".work")
        self.settings = key
        self.items: list[_Rows] = []
        end = 0
        for name, split in splits.items():
            for start in range(0, len(split), _PART):
                rows = range(start, min(start + _PART, len(split)))
                end += len(rows)
                self.items.append(_Rows(name, split, rows, end))

    def key(self) -> str:
        """A hash of all that the embeddings depend on: settings, names and files of the images."""
        return hashlib.sha256("\n".join([self.settings, *(item.key for item in self.items)]).encode()).hexdigest()

    def load(self, key: str, path: Path) -> Part | None:
        """A part on disk; None if there is none, or it is damaged."""
        rows = range(*map(int, key.split("-")[-3:-1]))
        try:
            tensors, values = load_tensors(path)
            embeddings, broken = tensors["embeddings"], dict(values["broken"])
        except (FileNotFoundError, InputError, KeyError, TypeError, ValueError):
            return None
        is_complete = embeddings.dtype == torch.float32 and embeddings.ndim in (2, 3)
        is_complete &= len(embeddings) + len(broken) == len(rows)
        is_complete &= broken.keys() <= {*rows} and all(isinstance(cause, str) for cause in broken.values())
        return Part(embeddings, broken) if is_complete and bool(torch.isfinite(embeddings).all()) else None

    def save(self, value: Part, path: Path) -> None:
        """Write a part."""
        save_tensors(path, {"embeddings": value.embeddings}, broken=[*value.broken.items()])

    def joined(self) -> tuple[list[str], Floats, dict[str, str]]:
        """The names of the images that could be read, their embeddings, and name and cause of the others.

        Raises:
            InputError: there is none, or parts have embeddings of different shapes.
        """
        names: list[str] = []
        embeddings: list[Tensor] = []
        broken: dict[str, str] = {}
        for item in self.items:
            part = self[item.key]
            broken |= {item.split.name(row): cause for row, cause in part.broken.items()}
            names += [item.split.name(row) for row in item.rows if row not in part.broken]
            if not len(part.embeddings):
                continue
            if embeddings and part.embeddings.shape[1:] != embeddings[0].shape[1:]:
                problem = f"embeddings {list(part.embeddings.shape)} after others of {list(embeddings[0].shape[1:])}"
                raise InputError(str(self._root), problem, hint="remove this folder of an interrupted run")
            embeddings.append(part.embeddings)
        if not embeddings:
            name, cause = next(iter(broken.items()))
            problem = f"cannot be decoded ({cause}), nor can any other image"
            raise InputError(name, problem, hint="check the image files")
        return names, torch.cat(embeddings).numpy(), broken

    def remove(self) -> None:
        """Remove the parts: the file is written."""
        shutil.rmtree(self._root, ignore_errors=True)


class _Rows:
    """Some rows of a split, which a part is for; `end` counts the images of all parts up to this one."""

    def __init__(self, split_name: str, split: Split, rows: range, end: int) -> None:
        self.split_name, self.split, self.rows, self.end = split_name, split, rows, end

    def __str__(self) -> str:
        return f"images {self.rows.start} to {self.rows.stop - 1} of {self.split_name}"

    @cached_property
    def key(self) -> str:
        """Names the rows and the state of their files: an image that was replaced is embedded again."""
        rows = self.rows
        return f"{self.split_name}-{rows.start:09d}-{rows.stop:09d}-{_fingerprint(self.split, rows)}"


def embed_to(
    out: Path,
    key: str,
    splits: Mapping[str, Split],
    model: nn.Module,
    images: Images,
    write: Callable[[list[str], Floats, Made], None],
    *,
    device: torch.device | str = "cpu",
    batch_size: int = BATCH,
    function: Callable[[Tensor], Tensor] | None = None,
    refuse_broken: bool = False,
    join: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> tuple[Made, int]:
    """Embed splits into a file. Parts are kept beside it until it is written; a complete one stays as it is.

    Args:
        out: the file.
        key: a hash of all that the embeddings depend on but the images.
        splits: what is embedded, by name.
        model: what embeds.
        images: reads them; closed at the end.
        write: writes names, embeddings, and what they were made from to the file.
        device: the device of the model.
        batch_size: images at a time.
        function: as in `contml.evaluation.embed.embed`.
        refuse_broken: an image that cannot be read is an error; else it is left out.
        join: share the parts with other commands that write this file.
        progress: called with the number of images finished so far.

    Returns:
        What the file says about itself, and the number of images that this call did not embed itself.

    Raises:
        InputError: the file cannot be written, an image cannot be read or its embedding is not finite, or another
            command writes the file and this one does not `join`.
    """
    parts = Parts(out, key, splits)
    if made := finished_file(out, parts.key):
        parts.remove()  # a kill may have come first
        return made, 0
    embedded = 0

    def embed(item: _Rows) -> Part:
        rows, embeddings = embed_rows(
            model, item.split, images, item.rows, device=device, batch_size=batch_size, function=function
        )
        name = item.split.name
        broken = {row: images.left_out[name(row)] for row in sorted({*item.rows} - {*rows.tolist()})}
        if broken and refuse_broken:
            got = f"cannot be decoded ({len(broken)} such images)"
            raise InputError(name(next(iter(broken))), got, hint="replace or remove it")
        for row in rows[~torch.isfinite(embeddings).flatten(1).all(1)].tolist():
            raise InputError(name(row), "its embedding is not finite", hint="train the model again")
        return Part(embeddings, broken)

    def on_done(item: _Rows) -> None:
        nonlocal embedded
        embedded += len(item.rows)
        progress(item.end)

    try:
        with parts.command(join, str(out)):
            # A file that is there was written by another command, which has removed the parts.
            work.run(parts.items, embed, parts, is_needed=lambda _: not os.path.lexists(out), on_done=on_done)
            with locked(parts.folder, name="write", subject=str(out)):
                made = finished_file(out, parts.key)
                if made is None:
                    names, values, broken = parts.joined()
                    made = Made(parts.key(), len(values), values.shape[-1], broken)
                    write(names, values, made)
            parts.remove()
    finally:
        images.close()
    total = parts.items[-1].end
    progress(total)
    return made, total - embedded


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
