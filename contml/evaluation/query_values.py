"""The main metric of each query of a run, as a file: with it, two runs are compared on the same queries."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from contml._support.errors import InputError
from contml._support.files import read_record, write_json
from contml.evaluation.kinds import KINDS

#: Largest file in bytes; a query has about 20.
_LIMIT = 1 << 28


@dataclass(frozen=True, eq=False)
class QueryValues:
    """The main metric of each query.

    Attributes:
        metric: its name: "label_distance@10", "recall@1" or "cider_d".
        queries: a hash of the names of the queries, in order. Where it is equal, the queries are the same.
        values: `[Q]`, float64.
        items: the items of each query `[Q, m]`, where queries that share one are not independent; None: they are.
    """

    metric: str
    queries: str
    values: Tensor
    items: Tensor | None = None

    @classmethod
    def of(cls, metric: str, names: Sequence[str], values: Tensor, items: Tensor | None = None) -> QueryValues:
        """The values of queries with these names, both in order."""
        digest = hashlib.sha256("\0".join(names).encode(errors="surrogateescape")).hexdigest()
        return cls(metric, digest, values.detach().double().cpu(), items)

    def save(self, path: Path) -> None:
        """Write the file.

        Raises:
            InputError: it cannot be written.
        """
        content = {"metric": self.metric, "queries": self.queries, "values": self.values.tolist()}
        write_json(path, content if self.items is None else {**content, "items": self.items.tolist()})

    @classmethod
    def read(cls, path: Path) -> QueryValues | None:
        """Read a file that `save` wrote; None if there is none, or one of classes by version 0.1, without items.

        Raises:
            InputError: it is damaged.
        """
        found = read_record(path, _Content, hint="evaluate the run again", limit=_LIMIT)
        if found is None or (found.metric == KINDS["classes"].headline and found.items is None):
            return None
        items = None
        if found.items is not None:
            if len(found.items) != len(found.values) or len(set(map(len, found.items))) > 1:
                raise InputError(str(path), "damaged (its items do not fit its values)", hint="evaluate the run again")
            items = torch.tensor(found.items, dtype=torch.int64)
        return cls(found.metric, found.queries, torch.tensor(found.values, dtype=torch.float64), items)


class _Content(BaseModel):
    """What the file holds."""

    model_config = ConfigDict(strict=True, extra="forbid")

    metric: str
    queries: str
    values: list[float]
    items: list[list[int]] | None = None
