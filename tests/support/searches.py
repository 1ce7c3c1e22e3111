"""Scripts of work that several processes share: searches for neighbours, embeddings, an index, its codes, a sweep.

python -m support.searches FOLDER COUNT SECONDS maps|captions|embeddings|index|codes|trainings [I/N]
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import torch

from contml import work
from contml.data import Images, Split
from contml.data.features import write_features
from contml.data.sources import Pixels
from contml.evaluation import embed_parts
from contml.labels import CaptionLabels, LabelSpace, SegmentationLabels, VectorLabels
from contml.retrieval import Index, index as index_module, index_shards, index_structure
from contml.retrieval.images import NamedImage
from contml.retrieval.index_images import add_images
from contml.sweep import sweep
from support import sweeps
from support.fake_runs import poses
from support.items import Number, joined, square

cache = sys.modules["contml.distances.cache"]


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


class SlowModel:
    """Embeds the file `7.png` as 7, in about so many seconds; every tenth file cannot be read."""

    identity, embedding_dim = "slow", 1

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder, self.seconds = folder, seconds
        self.left_out: dict[str, str] = {}

    def embed(self, images, *, broken="fail"):
        assert broken == "skip"
        files = [image.file for image in images]
        numbers = np.array([[int(file.stem)] for file in files], np.float32)
        for file, number in zip(files, numbers, strict=True):
            if int(file.stem) % 10 == 9:
                self.left_out[str(file)], number[:] = "no image", np.nan
            else:
                square(self.folder, self.seconds, Number(int(file.stem)))
        return numbers

    def to(self, device):
        return self


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
    found, expected = slow.nearest(3, cache=folder / "cache"), same.nearest(3)
    assert torch.equal(found.rows, expected.rows)
    assert torch.equal(found.distances, expected.distances)


def embeddings(folder: Path, count: int, seconds: float, cluster: str = "", join: work.Join = True) -> None:
    """The embeddings of drawn images in a file; an image is an item."""
    names = [str(number) for number in range(count)]
    pictures = [Pixels(np.full((2, 2, 3), (n % 256, n // 256, 0), np.uint8)) for n in range(count)]
    embed_parts.embed_to(
        folder / "embeddings.npz",
        {"model": "slow"},
        {"images": Split(pictures, names, VectorLabels(torch.zeros(count)))},
        SlowNetwork(folder, seconds),
        Images(2, 2),
        lambda names, values, made: write_features(folder / "embeddings.npz", names, None, values, made),
        join=join,
        cluster=cluster,
    )
    with np.load(folder / "embeddings.npz") as found:
        assert found["features"].ravel().tolist() == [*range(count)]
        assert found["names"].tolist() == names


def index(folder: Path, count: int, seconds: float, cluster: str = "", join: work.Join = True) -> None:
    """Files that are embedded and added to an index; a file is an item."""
    images = [NamedImage(f"{number}.png", folder / f"{number}.png") for number in range(count)]
    for image in images:
        if not image.file.exists():
            image.file.touch()
    model = SlowModel(folder, seconds)
    with Index.open(folder / "index") as opened:
        added = add_images(opened, model, images, join=join, cluster=cluster)
        expected = [n for n in range(count) if n % 10 != 9]
        assert opened.ids == [f"{n}.png" for n in expected]
        assert opened.embeddings(opened.ids).ravel().tolist() == expected
    assert added.added + added.present == len(expected)
    assert added.broken == {image.name: "no image" for image in images if int(image.file.stem) % 10 == 9}


def code_index(folder: Path, count: int) -> None:
    """An index of vectors of which the first number is that of the item."""
    vectors = np.random.default_rng(0).standard_normal((count, 8), np.float32)
    vectors[:, 0] = np.arange(count)
    with Index.create(folder / "index", 8, "ivf_pq") as index:
        index.add([str(number) for number in range(count)], vectors)


def codes(folder: Path, count: int, seconds: float, cluster: str = "") -> None:
    """The codes of an index; that of a vector is an item. They are those of plain FAISS."""
    encode = index_structure.encode_rows

    def encode_slowly(quantizers, vectors):
        square(folder, seconds, Number(int(vectors[0, 0])))
        return encode(quantizers, vectors)

    index_shards.encode_rows = encode_slowly
    index_structure.PART, index_structure.FEWEST, index_module.FEWEST = 1, 10, 10
    with Index.open(folder / "index") as index:
        index.build(join=True, cluster=cluster)
        vectors = index.embeddings(index.ids)
        structure = index._current().searcher.structure
    assert (structure.file.count, index_shards.codes_of(structure)[1]["rows"].shape) == (count, (count,))
    quantizers, found = index_structure.codes_of(structure)
    plain, _centroids = index_structure._empty_ivf_pq(index_structure.fit_quantizers(vectors))
    for row in range(count):
        plain.add(vectors[row : row + 1])
    expected = index_structure._quantizers_of(plain) | index_structure._lists_of(plain)
    assert all(np.array_equal(array, expected[name]) for name, array in (quantizers | found).items())


def trainings(folder: Path, count: int, seconds: float, join: work.Join = True) -> None:
    """A sweep of two trials; a training is an item, and its number is twice its seed, plus one in the second trial."""
    os.chdir(folder)
    fake, margins = sweeps.Trainings(), (0.05, 0.1)

    def train(experiment, root, *, on_start, **options):
        def started(run):
            on_start(run)
            values = experiment.values
            square(folder, seconds, Number(2 * values["seed"] + margins.index(values["loss"]["margin"])))

        return fake.train(experiment, root, on_start=started, **options)

    sys.modules["contml.sweep.training"].train = train
    result = sweep("own.yaml", ["seed=0"], ["loss.margin=0.05,0.1"], seeds=count // 2, join=join)
    for trial in result.trials:
        shares = [sweeps.share(trial.params["loss.margin"], 0.002, seed, 0) for seed in range(count // 2)]
        assert trial.values == [poses(share).main.model for share in shares]


if __name__ == "__main__":
    work.workers.POLL = 0.05
    cache._ROWS = embed_parts._PART = 1
    print("ready", flush=True)
    scripts = {"maps": maps, "captions": captions, "embeddings": embeddings, "index": index, "codes": codes}
    scripts |= {"trainings": trainings}
    options = {"join": joined(*sys.argv[5:])} if "/" in sys.argv[-1] else {}
    try:
        scripts[sys.argv[4]](Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), **options)
        print("all")
    except work.ItemsLeftError as left:
        print(left)
