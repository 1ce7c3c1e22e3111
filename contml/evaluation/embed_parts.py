"""Embeddings of many images, made in parts. An interrupted command continues where it stopped.

A part is an item of work (`contml.work`), of up to 512 consecutive images. Its embeddings are in a hidden folder beside
the file or the index that they are for. The folder is removed when the file or the index has all embeddings.
"""

from __future__ import annotations

import copy
import hashlib
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from contml import work
from contml._support.errors import InputError
from contml._support.tensors import load_tensors, save_tensors
from contml.data import Images
from contml.data.copies import DIGEST, digest_of
from contml.data.features import Floats, Made, finished_file
from contml.data.split import Split
from contml.evaluation.embed import BATCH, embed_rows

Mask: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"
#: Images per part; an interrupted run loses at most this many.
_PART = 512


class Part(NamedTuple):
    """The embeddings of some rows of a split."""

    rows: Tensor  # [n] the rows that could be read, ascending
    embeddings: Tensor  # [n,d]
    broken: dict[int, str]  # why the others could not be read
    digests: Tensor  # [n + broken,16] uint8 of the bytes of the image files of all these rows, ascending


class Parts(work.Files[Part]):
    """The parts for one file or index, in a folder beside it.

    Args:
        out: the file or the index that the embeddings are for.
        key: a hash of all settings that the embeddings depend on. Parts from different settings are not mixed.
        splits: the splits that are embedded, by name.
        wanted: which rows to embed, bool `[N]`, if there is one split. Default: all rows. `items` has every part, even
            if none of its rows is wanted.
    """

    suffix = ".safetensors"

    def __init__(self, out: Path, key: str, splits: Mapping[str, Split], wanted: Mask | None = None) -> None:
        root = out.with_name(f".{out.name}.parts")
        super().__init__(root, root / key)
        self.settings = key
        self._mask = wanted
        self.items: list[Rows] = []
        end = 0
        for name, split in splits.items():
            for start in range(0, len(split), _PART):
                span = range(start, min(start + _PART, len(split)))
                rows = self._wanted(span)
                end += len(rows)
                self.items.append(Rows(name, split, span, rows, end))

    def _wanted(self, span: range) -> Sequence[int]:
        if self._mask is None:
            return span
        return [span.start + row for row in np.flatnonzero(self._mask[span.start : span.stop]).tolist()]

    def key(self) -> str:
        """Return a hash of the settings, and of the names and files of the images.

        The embeddings depend on nothing else.
        """
        return key_of(self.settings, (item.key for item in self.items))

    def is_same(self, made: Made) -> bool:
        """Return True if a file was made from the same images, even if they were copied or downloaded again since.

        The method reads all images if the sizes of their files are equal.
        """
        if not made.content or made.sizes != self.sizes():
            return False
        return made.content == _content(digests_of(item.split, item.rows) for item in self.items)

    def sizes(self) -> str:
        """Return a hash of the names of the images, and of the sizes of their files."""
        return key_of("", (_fingerprint(item.split, item.rows, times=False) for item in self.items))

    def load(self, key: str, path: Path) -> Part | None:
        """Read a part from disk. Return None if there is no file, or it is damaged."""
        span = range(*map(int, key.split("-")[-3:-1]))
        try:
            tensors, values = load_tensors(path)
            rows, embeddings, digests = (tensors[name] for name in ("rows", "embeddings", "digests"))
            broken = dict(values["broken"])
        except (FileNotFoundError, InputError, KeyError, TypeError, ValueError):
            return None
        is_complete = embeddings.dtype == torch.float32 and embeddings.ndim in (2, 3)
        is_complete &= rows.dtype == torch.int64 and rows.shape == embeddings.shape[:1]
        is_complete &= all(isinstance(cause, str) for cause in broken.values())
        if not is_complete or not bool(torch.isfinite(embeddings).all()) or not bool((rows.diff() > 0).all()):
            return None
        found = {*rows.tolist(), *broken}
        is_complete = {*self._wanted(span)} <= found <= {*span} and len(found) == len(rows) + len(broken)
        is_complete &= digests.dtype == torch.uint8 and digests.shape == (len(found), DIGEST)
        return Part(rows, embeddings, broken, digests) if is_complete else None

    def save(self, value: Part, path: Path) -> None:
        """Write a part."""
        tensors = {"rows": value.rows, "embeddings": value.embeddings, "digests": value.digests}
        save_tensors(path, tensors, broken=[*value.broken.items()])

    def joined(self) -> tuple[list[str], Floats, dict[str, str], str]:
        """Join all parts.

        Returns:
            The names of the images that could be read, their embeddings, the cause for each unreadable image by name,
            and a hash. The hash is of the bytes of the images at the time they were embedded.

        Raises:
            InputError: parts have embeddings of different shapes.
        """
        names, embeddings, broken, digests = list[str](), list[Tensor](), dict[str, str](), list[Tensor]()
        for item in self.items:
            part = self[item.key]
            digests.append(part.digests)
            broken |= {item.split.name(row): cause for row, cause in part.broken.items()}
            names += [item.split.name(row) for row in part.rows.tolist()]
            if len(part.embeddings):
                embeddings.append(part.embeddings)
            if embeddings and embeddings[-1].shape[1:] != embeddings[0].shape[1:]:
                problem = f"embeddings {list(part.embeddings.shape)} after others of {list(embeddings[0].shape[1:])}"
                raise InputError(str(self._root), problem, hint="remove this folder of an interrupted run")
        return names, torch.cat(embeddings or [torch.zeros(0, 0)]).numpy(), broken, _content(digests)


def key_of(settings: str, states: Iterable[str]) -> str:
    """Return the key of a file (`Made.key`): a hash of the settings, and of the names and files of all images."""
    return hashlib.sha256("\n".join([settings, *states]).encode("utf-8", "surrogatepass")).hexdigest()


class Rows:
    """The rows of a split that one part of the work embeds.

    Args:
        split_name: the name of the split.
        split: the split. It is sent to another process once, not with each part.
        span: consecutive rows.
        rows: the rows of the span that are embedded.
        end: the number of images of all parts up to this one.
    """

    def __init__(self, split_name: str, split: Split, span: range, rows: Sequence[int], end: int) -> None:
        self.split_name, self.split, self.span, self.rows, self.end = split_name, split, span, rows, end

    def __str__(self) -> str:
        return f"images {self.span.start} to {self.span.stop - 1} of {self.split_name}"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "split": None, "key": self.key}

    @cached_property
    def key(self) -> str:
        """A name of the rows and of the state of their files. An image that was replaced is embedded again."""
        span = self.span
        return f"{self.split_name}-{span.start:09d}-{span.stop:09d}-{_fingerprint(self.split, span)}"

    def check(self, split: Split) -> None:
        """Check that this machine has the same image files. A machine without the files would leave all images out.

        Raises:
            InputError: a file differs.
        """
        if _fingerprint(split, self.span) != self.key.rpartition("-")[2]:
            hint = "all machines need the same files, at the same paths; call the same command again"
            raise InputError(str(self), f"other files on {socket.gethostname()}, or changed meanwhile", hint=hint)


@dataclass
class EmbedRows:
    """The work on a part: embeds its rows, in this process or on another machine.

    The arguments are as in `embed_to`.
    """

    splits: Mapping[str, Split]
    model: nn.Module
    images: Images
    device: torch.device | str
    batch_size: int = BATCH
    maps: bool = False
    refuse_broken: bool = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "model": copy.deepcopy(self.model).cpu()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.device = device_here()
        self.model.to(self.device)

    def __call__(self, item: Rows) -> Part:
        """Return the embeddings of a part."""
        split, model = self.splits[item.split_name], self.model
        item.check(split)
        function: Any = model.maps if self.maps else None  # of an `EmbeddingModel`
        options = {"device": self.device, "batch_size": self.batch_size, "function": function}
        rows, embeddings = embed_rows(model, split, self.images, [*item.rows], **options)
        broken = {row: self.images.left_out[split.name(row)] for row in sorted({*item.rows} - {*rows.tolist()})}
        if broken and self.refuse_broken:
            got = f"cannot be decoded ({len(broken)} such images)"
            raise InputError(split.name(next(iter(broken))), got, hint="replace or remove it")
        for row in rows[~torch.isfinite(embeddings).flatten(1).all(1)].tolist():
            raise InputError(split.name(row), "its embedding is not finite", hint="train the model again")
        return Part(rows, embeddings, broken, digests_of(split, item.rows))


def digests_of(split: Split, rows: Sequence[int]) -> Tensor:
    """Compute digests `[n, 16]` of the bytes of the image files of some rows. An image from no file has digest 0.

    Call this right after the images were embedded, while the files are still in the memory of the system.
    """
    stamps = [split.stamp(row) for row in rows]
    content = b"".join(bytes(DIGEST) if each is None else digest_of(str(each.file)) for each in stamps)
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).reshape(-1, DIGEST) if rows else _NO_DIGESTS


_NO_DIGESTS = torch.zeros(0, DIGEST, dtype=torch.uint8)


def _content(digests: Iterable[Tensor]) -> str:
    content = hashlib.blake2b(digest_size=DIGEST)
    for each in digests:
        content.update(each.numpy().tobytes())
    return content.hexdigest()


def device_here() -> torch.device:
    """Return the device on which this process embeds: a GPU, if there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def embed_to(
    out: Path,
    settings: Mapping[str, str],
    splits: Mapping[str, Split],
    model: nn.Module,
    images: Images,
    write: Callable[[list[str], Floats, Made], None],
    *,
    device: torch.device | str = "cpu",
    batch_size: int = BATCH,
    maps: bool = False,
    refuse_broken: bool = False,
    cluster: str = "",
    progress: Callable[[int], None] = lambda _: None,
) -> tuple[Made, int]:
    """Embed splits and write the embeddings to a file.

    Parts are kept beside the file until it is written. A complete file stays as it is.

    Args:
        out: the file.
        settings: the settings that determine the embeddings, by name. The images are not among them.
        splits: the splits to embed, by name.
        model: the model that embeds.
        images: reads the images. It is closed at the end.
        write: writes the file. Its arguments are names, embeddings, and the record of what they were made from.
        device: the device of the model.
        batch_size: images at a time.
        maps: write the last feature maps of the model, an `EmbeddingModel`, in place of its embeddings.
        refuse_broken: raise an error for an image that cannot be read. By default the image is left out.
        cluster: the address of a Ray cluster that embeds, as in `contml.work.run`. Its machines need the images too.
        progress: called with the number of images finished so far.

    Returns:
        The record of the file, and the number of images that this call did not embed itself.

    Raises:
        InputError: the file cannot be written, an image cannot be read or its embedding is not finite, or another
            command writes the file.
    """
    parts = Parts(out, "-".join(settings.values()), splits)
    if made := finished_file(out, parts.key, settings, parts.is_same):
        parts.remove()  # a kill may have come first
        return made, 0
    embedded = furthest = 0

    def on_done(item: Rows) -> None:
        nonlocal embedded, furthest
        embedded += len(item.rows)
        furthest = max(furthest, item.end)
        progress(furthest)

    try:
        with parts.command(str(out)):
            embed = EmbedRows(splits, model, images, device, batch_size, maps, refuse_broken)
            work.run(parts.items, embed, parts, cluster=cluster, on_done=on_done)
            names, values, broken, content = parts.joined()
            if not names:
                name, cause = next(iter(broken.items()))
                problem = f"cannot be decoded ({cause}), nor can any other image"
                raise InputError(name, problem, hint="check the image files")
            about = (broken, dict(settings), parts.sizes(), content)
            made = Made(parts.key(), len(values), values.shape[-1], *about)
            write(names, values, made)
            parts.remove()
    finally:
        images.close()
    total = parts.items[-1].end
    progress(total)
    return made, total - embedded


def _fingerprint(split: Split, rows: Sequence[int], *, times: bool = True) -> str:
    """Return a hash of the names and the files of some rows. An image that was replaced changes the hash."""
    content = hashlib.blake2b(digest_size=8)
    for row in rows:
        stamp = split.stamp(row)
        content.update(f"{split.name(row)}\n".encode(errors="surrogateescape"))
        if stamp is not None:
            with suppress(OSError):  # no such file: it is broken
                file_stat = stamp.stat()
                changed = f" {file_stat.st_mtime_ns} {file_stat.st_ctime_ns}" if times else ""
                content.update(f"{stamp.crop} {file_stat.st_size}{changed}\n".encode())
    return content.hexdigest()
