"""Scripts of work that can be killed: searches for neighbours, embeddings.

python -m support.searches FOLDER COUNT SECONDS maps|captions|embeddings
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

from contml.data import Images, Split
from contml.data.features import write_features
from contml.data.sources import Pixels
from contml.evaluation import embed_parts
from contml.labels import CaptionLabels, LabelSpace, NumberLabels, SegmentationLabels, nearest
from support.items import Number, square

cache = sys.modules["contml.labels.neighbours"]


class Slow(LabelSpace):
    """A label space; the search of a row takes about so many more seconds, and adds a line to `begun`."""

    folder: Path
    seconds: float

    def _nearest(self, k, rows, *options):
        for row in rows.tolist():
            square(self.folder, self.seconds, Number(row))
        return super()._nearest(k, rows, *options)


class SlowMaps(Slow, SegmentationLabels):
    pass


class SlowCaptions(Slow, CaptionLabels):
    pass


class SlowNetwork(torch.nn.Module):
    """Embeds an image of one colour as its number, red + 256 green, in about so many seconds."""

    def __init__(self, folder: Path, seconds: float) -> None:
        super().__init__()
        self.folder, self.seconds = folder, seconds

    def forward(self, images):
        numbers = images[:, 0, 0, 0].long() + 256 * images[:, 1, 0, 0].long()
        for number in numbers.tolist():
            square(self.folder, self.seconds, Number(number))
        return numbers[:, None].float()


def maps(folder: Path, count: int, seconds: float) -> None:
    """The three nearest of each label map, which is an item."""
    drawn = torch.randint(4, (count, 8, 8), generator=torch.Generator().manual_seed(0))
    _search(SlowMaps(drawn, 4, side=None), SegmentationLabels(drawn, 4, side=None), folder, seconds)


def captions(folder: Path, count: int, seconds: float) -> None:
    """The three nearest of each caption, which is an item."""
    generator = torch.Generator().manual_seed(0)
    vectors = {f"word{n}": torch.randn(8, generator=generator).tolist() for n in range(40)}
    drawn = torch.randint(40, (count, 6), generator=generator).tolist()
    texts = [[" ".join(f"word{n}" for n in row)] for row in drawn]
    _search(SlowCaptions(texts, vectors), CaptionLabels(texts, vectors), folder, seconds)


def _search(slow: Slow, same: LabelSpace, folder: Path, seconds: float) -> None:
    slow.folder, slow.seconds = folder, seconds
    found, expected = nearest(slow, 3, cache=folder / "cache"), same.nearest(3)
    assert torch.equal(found.rows, expected.rows)
    assert torch.equal(found.distances, expected.distances)


def embeddings(folder: Path, count: int, seconds: float) -> None:
    """The embeddings of drawn images in a file; an image is an item."""
    names = [str(number) for number in range(count)]
    pictures = [Pixels(np.full((2, 2, 3), (n % 256, n // 256, 0), np.uint8)) for n in range(count)]
    embed_parts.embed_to(
        folder / "embeddings.npz",
        {"model": "slow"},
        {"images": Split(pictures, names, NumberLabels(torch.zeros(count)))},
        SlowNetwork(folder, seconds),
        Images(2, 2),
        lambda names, values, made: write_features(folder / "embeddings.npz", names, None, values, made),
    )
    with np.load(folder / "embeddings.npz") as found:
        assert (found["features"].ravel().tolist(), found["names"].tolist()) == ([*range(count)], names)


if __name__ == "__main__":
    cache._ROWS = embed_parts._PART = 1
    print("ready", flush=True)
    scripts = {"maps": maps, "captions": captions, "embeddings": embeddings}
    scripts[sys.argv[4]](Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
