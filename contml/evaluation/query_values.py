"""The main metric of each query of a run, as a file: with it, two runs are compared on the same queries."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from contml._support.errors import InputError
from contml._support.tensors import load_tensors, save_tensors


@dataclass(frozen=True, eq=False)
class QueryValues:
    """The main metric of each query.

    Attributes:
        metric: its name: "label_distance@10", "recall@1" or "cider_d".
        queries: a hash of the names of the queries, in order. Where it is equal, the queries are the same.
        values: `[Q]`, float64.
    """

    metric: str
    queries: str
    values: Tensor

    @classmethod
    def of(cls, metric: str, names: Sequence[str], values: Tensor) -> QueryValues:
        """The values of queries with these names, both in order."""
        digest = hashlib.sha256("\0".join(names).encode(errors="surrogateescape")).hexdigest()
        return cls(metric, digest, values.detach().double().cpu())

    def save(self, path: Path) -> None:
        """Write the file.

        Raises:
            InputError: it cannot be written.
        """
        save_tensors(path, {"values": self.values}, metric=self.metric, queries=self.queries)

    @classmethod
    def read(cls, path: Path) -> QueryValues | None:
        """Read a file that `save` wrote; None if there is none.

        Raises:
            InputError: it is damaged.
        """
        try:
            tensors, values = load_tensors(path)
        except FileNotFoundError:
            return None
        metric, queries, found = values.get("metric"), values.get("queries"), tensors.get("values")
        is_text = isinstance(metric, str) and isinstance(queries, str)
        if not is_text or found is None or found.dtype != torch.float64 or found.ndim != 1:
            raise InputError(str(path), "not the values of queries", hint="evaluate the run again")
        return cls(str(metric), str(queries), found)
