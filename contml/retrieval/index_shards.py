"""The codes of IVF-PQ, made in parts.

    .INDEX.codes/KEY/quantizers.safetensors               centroids and codebooks, fitted to a sample of all rows
    .INDEX.codes/KEY/000000000-000131072.safetensors      the codes of these rows

Each file is the result of an item of work (`contml.work`). The folder is there until the index has the structure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from contml import work
from contml._support.errors import InputError
from contml._support.tensors import load_tensors, save_tensors
from contml.retrieval import index_structure
from contml.retrieval.index_store import Store, map_vectors
from contml.retrieval.index_structure import (
    Arrays,
    Structure,
    codes_of,
    encode_rows,
    fit_quantizers,
    load,
    merge_codes,
    still_fits,
)


class Step(NamedTuple):
    """An item: some rows to encode; none: the quantizers."""

    rows: range

    @property
    def key(self) -> str:
        """The name of its file."""
        return f"{self.rows.start:09d}-{self.rows.stop:09d}" if self.rows else "quantizers"

    def __str__(self) -> str:
        return f"codes of items {self.rows.start} to {self.rows.stop - 1}" if self.rows else "quantizers"


class CodeParts(work.Files[Arrays]):
    """The parts of the codes of an index, in a folder beside it.

    Args:
        index: the folder of the index.
        key: a hash of the vectors, and of the structure that is extended.
    """

    suffix = ".safetensors"

    def __init__(self, index: Path, key: str = "") -> None:
        root = index.with_name(f".{index.name}.codes")
        super().__init__(root, root / key)

    def load(self, key: str, path: Path) -> Arrays | None:
        """The arrays in a file; None if there is none, or it is damaged."""
        try:
            tensors, values = load_tensors(path)
        except (FileNotFoundError, InputError):
            return None
        return {name: tensor.numpy() for name, tensor in tensors.items()} if values.get("part") == key else None

    def save(self, value: Arrays, path: Path) -> None:
        """Write the arrays."""
        # Copies: arrays of another process may be read-only.
        tensors = {name: torch.from_numpy(np.asarray(array).copy()) for name, array in value.items()}
        save_tensors(path, tensors, part=path.name.removesuffix(self.suffix))


class _Make:
    """Makes a part, in this process or on another machine.

    Args:
        file: the file of the vectors.
        shape: number and length of the vectors.
        quantizers: encode the rows; None: they are to be fitted.
    """

    def __init__(self, file: Path, shape: tuple[int, int], quantizers: Arrays | None) -> None:
        self.file, self.shape, self.quantizers = file, shape, quantizers

    def __call__(self, step: Step) -> Arrays:
        try:
            vectors = map_vectors(self.file, *self.shape)
        except FileNotFoundError:
            hint = "call the same command again"
            raise InputError(str(self.file), "removed: the index was compacted meanwhile", hint=hint) from None
        if self.quantizers is None:
            return fit_quantizers(vectors)
        return encode_rows(self.quantizers, vectors[step.rows.start : step.rows.stop])


class Codes:
    """The codes of the rows of an index that its structure does not have yet.

    Args:
        store: the index. Rows may be added meanwhile.

    Attributes:
        parts: the finished parts.
    """

    def __init__(self, store: Store) -> None:
        content = store.content()
        old_file = content.state.structure
        self._store, self._content, self._old_file = store, content, old_file
        before = None
        if old_file is not None and old_file.kind == "ivf_pq":
            before = load(store.structure_path(old_file.number), old_file, content.vectors)
        self._before = before if before is not None and still_fits(before, content.vectors) else None
        first = 0 if self._before is None else self._before.file.count
        count, dim = content.vectors.shape
        self._file, vectors = store.vectors_file(content)
        part = index_structure.PART
        text = f"{vectors} {count} {dim} {part} {None if self._before is None else self._before.file}"
        self.parts = CodeParts(store.folder, hashlib.sha256(text.encode()).hexdigest()[:16])
        self.steps = [Step(range(start, min(start + part, count))) for start in range(first, count, part)]

    def fit(self, cluster: str = "") -> None:
        """Fit the quantizers, unless the structure that is extended has them."""
        if self._before is None:
            make = _Make(self._file, self._content.vectors.shape, None)
            work.run([Step(range(0))], make, self.parts, cluster=cluster, is_needed=self._is_needed)

    def make(self, progress: Callable[[int], None] | None, cluster: str) -> None:
        """Make the parts that are missing."""
        done = self.steps[0].rows.start

        def on_done(step: Step) -> None:
            nonlocal done
            done += len(step.rows)
            if progress is not None:
                progress(done)

        self.fit(cluster)
        if self._is_needed():
            make = _Make(self._file, self._content.vectors.shape, self._quantizers())
            work.run(self.steps, make, self.parts, cluster=cluster, is_needed=self._is_needed, on_done=on_done)

    def structure(self, number: int) -> Structure:
        """The structure of all rows, in a file with this number."""
        parts = [(step.rows.start, self.parts[step.key]) for step in self.steps]
        trained = len(self._content.vectors)
        if self._before is not None:
            parts.insert(0, (0, codes_of(self._before)[1]))
            trained = self._before.file.trained
        path = self._store.structure_path(number)
        return merge_codes(self._quantizers(), parts, path, number, trained, self._content.vectors)

    def _quantizers(self) -> Arrays:
        return self.parts["quantizers"] if self._before is None else codes_of(self._before)[0]

    def _is_needed(self, _: object = None) -> bool:
        """Whether no other process has written the structure meanwhile."""
        return self._store.content().state.structure == self._old_file
