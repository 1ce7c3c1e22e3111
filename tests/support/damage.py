"""Damaged copies of a file."""

from __future__ import annotations

import random
from collections.abc import Iterator


def mutations(content: bytes, count: int, seed: int) -> Iterator[bytes]:
    """Damaged contents: empty, cut short, with flipped bits, with bytes replaced, inserted, removed or repeated."""
    rng = random.Random(seed)
    yield b""
    for _ in range(count - 1):
        place = rng.randrange(len(content))
        length = min(rng.choice([1, 1, 2, 8, 64]), len(content) - place)
        noise = bytes(rng.randrange(256) for _ in range(length))
        part = content[place : place + length]
        flipped = bytes([content[place] ^ 1 << rng.randrange(8)]) + part[1:]
        new = rng.choice([flipped, flipped, noise, noise + part, b"", part + part, bytes(length)])
        yield content[:place] + rng.choice([new + content[place + length :]] * 4 + [b""])
