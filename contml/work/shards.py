"""A share of a list of items, and what is left for the other shares."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from contml._support.errors import InputError

ItemT = TypeVar("ItemT")


@dataclass(frozen=True)
class Shard:
    """One of several shares of a list of items: every `count`-th item, from the `number`-th on.

    Args:
        number: which share; the first is 1.
        count: number of shares.

    Raises:
        InputError: there is no such share.
    """

    number: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.count:
            allowed = (
                f"must be 1/{self.count} to {self.count}/{self.count}"
                if self.count > 0
                else "must be I/N with an N of at least 1"
            )
            raise InputError("--shard", str(self), allowed)

    @classmethod
    def parse(cls, text: str) -> Shard:
        """The share that is written as `3/8`.

        Raises:
            InputError: it is none.
        """
        found = re.fullmatch("([0-9]{1,9})/([0-9]{1,9})", text)
        if found is None:
            raise InputError("--shard", repr(text), _SHARD)
        return cls(int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


_SHARD = "must be I/N, such as 3/8 for the third of 8 shards"
#: Whether other commands may do items of the same list at the same time. With a `Shard`, a command does the items of
#: this share alone, and ends when they are finished.
Join: TypeAlias = bool | Shard


def share(items: Sequence[ItemT], join: Join) -> Sequence[ItemT]:
    """The items of a list that a command does: the items of its shard, or all."""
    return items[join.number - 1 :: join.count] if isinstance(join, Shard) else items


class ItemsLeftError(Exception):
    """The items of a shard are finished, and items of other shards are not.

    Args:
        shard: the shard.
        own: number of its items.
        left: number of items of other shards without a result.
        total: number of all items.
    """

    def __init__(self, shard: Shard, own: int, left: int, total: int) -> None:
        super().__init__(shard, own, left, total)
        self.shard, self.own, self.left, self.total = shard, own, left, total

    def __str__(self) -> str:
        return (
            f"shard {self.shard}: its items of work are finished ({self.own:,} of {self.total:,}), and {self.left:,} "
            f"{'is' if self.left == 1 else 'are'} left for other shards of the same command; the last shard to finish "
            "completes the output, or the same command without --shard"
        )

    def as_data(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"shard": str(self.shard), "items": self.own, "left": self.left, "total": self.total}
