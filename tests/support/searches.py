"""Scripts of work that several processes share: a search for neighbours, embeddings in a file, and in an index.

python -m support.searches FOLDER COUNT SECONDS neighbours|embeddings|index
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

from contml import work
from contml.data import Images, Split
from contml.data.features import write_features
from contml.data.sources import Pixels
from contml.evaluation import embed_parts
from contml.labels import LabelSpace, VectorLabels
from contml.retrieval import Index
from contml.retrieval.images import NamedImage
from contml.retrieval.index_images import add_images
from support.items import Number, square

cache = sys.modules["contml.distances.cache"]


class Slow(LabelSpace):
    """Numbers on a line; the distances of a row take about so many seconds, and add a line to `begun`."""

    def __init__(self, count: int, folder: Path, seconds: float) -> None:
        super().__init__(values=torch.arange(float(count)))
        self.folder, self.seconds = folder, seconds

    def distances(self, x, y):
        for row in x.rows.tolist():
            square(self.folder, self.seconds, Number(row))
        return (x.values[:, None] - y.values).abs()

    def fingerprint(self) -> str:
        return f"{len(self)} numbers"


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


class SlowModel:
    """Embeds the file `7.png` as 7, in about so many seconds; every tenth file cannot be read."""

    identity, embedding_dim = "slow", 1

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder, self.seconds = folder, seconds
        self.left_out: dict[str, str] = {}

    def embed(self, files, *, broken="fail"):
        assert broken == "skip"
        numbers = np.array([[int(file.stem)] for file in files], np.float32)
        for file, number in zip(files, numbers, strict=True):
            if int(file.stem) % 10 == 9:
                self.left_out[str(file)], number[:] = "no image", np.nan
            else:
                square(self.folder, self.seconds, Number(int(file.stem)))
        return numbers

    def to(self, device):
        return self


def neighbours(folder: Path, count: int, seconds: float) -> None:
    """The three nearest of each row, which is an item."""
    found = Slow(count, folder, seconds).nearest(3, cache=folder / "cache")
    expected = VectorLabels(torch.arange(float(count)), squared=False).nearest(3)
    assert torch.equal(found.rows, expected.rows)
    assert torch.equal(found.distances, expected.distances)


def embeddings(folder: Path, count: int, seconds: float, cluster: str = "") -> None:
    """The embeddings of drawn images in a file; an image is an item."""
    names = [str(number) for number in range(count)]
    pictures = [Pixels(np.full((2, 2, 3), (n % 256, n // 256, 0), np.uint8)) for n in range(count)]
    embed_parts.embed_to(
        folder / "embeddings.npz",
        "slow",
        {"images": Split(pictures, names, VectorLabels(torch.zeros(count)))},
        SlowNetwork(folder, seconds),
        Images(2, 2),
        lambda names, values, made: write_features(folder / "embeddings.npz", names, None, values, made),
        join=True,
        cluster=cluster,
    )
    with np.load(folder / "embeddings.npz") as found:
        assert found["features"].ravel().tolist() == [*range(count)]
        assert found["names"].tolist() == names


def index(folder: Path, count: int, seconds: float, cluster: str = "") -> None:
    """Files that are embedded and added to an index; a file is an item."""
    images = [NamedImage(f"{number}.png", folder / f"{number}.png") for number in range(count)]
    for image in images:
        if not image.file.exists():
            image.file.touch()
    model = SlowModel(folder, seconds)
    with Index.open(folder / "index") as opened:
        added = add_images(opened, model, images, join=True, cluster=cluster)
        expected = [n for n in range(count) if n % 10 != 9]
        assert opened.ids == [f"{n}.png" for n in expected]
        assert opened.embeddings(opened.ids).ravel().tolist() == expected
    assert added.added + added.present == len(expected)
    assert added.broken == {image.name: "no image" for image in images if int(image.file.stem) % 10 == 9}


if __name__ == "__main__":
    work._POLL = 0.05
    cache._ROWS = embed_parts._PART = 1
    print("ready", flush=True)
    {"neighbours": neighbours, "embeddings": embeddings, "index": index}[sys.argv[4]](
        Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    )
