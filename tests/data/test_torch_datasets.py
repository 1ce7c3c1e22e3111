"""A split of a map-style data set, of pictures and of files; what is refused at the door of a split and a trainer."""

import numpy as np
import pytest
import torch
from PIL import Image
from support.models import four_corners
from support.refusals import refused, refuses
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from contml import EmbeddingStep, LogRatioLoss, NumberLabels, Trainer
from contml.data import Images, Split
from contml.data.sources import ImageFile
from contml.sampling import UniformSampler

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 40, 48, 3)).astype(np.uint8)
LABELS = NumberLabels(torch.arange(6.0))
NAMES = [f"item {row}" for row in range(6)]


class Rows:
    """A map-style data set: gives what a function makes of the pixels of an item."""

    def __init__(self, make):
        self.make = make

    def __len__(self):
        return 6

    def __getitem__(self, row):
        if row >= 6:
            raise IndexError(row)
        return self.make(PIXELS[row], row)


class Pictures(Rows, Dataset):
    """One of torch."""


def batch(split):
    (images,) = Images(resize=32, crop=32).test_batches(split, None, 6)
    return images.images


@pytest.mark.parametrize("images", [
    Pictures(lambda pixels, row: (Image.fromarray(pixels), row)), Pictures(lambda pixels, row: [pixels, row]),
    Pictures(lambda pixels, row: (torch.from_numpy(pixels).permute(2, 0, 1), row)),
    Subset(Pictures(lambda pixels, row: (pixels, row)), range(6)),
    TensorDataset(torch.from_numpy(PIXELS).permute(0, 3, 1, 2), torch.arange(6)),
    Rows(lambda pixels, row: {"label": row, "image": Image.fromarray(pixels)}),
    [Image.fromarray(pixels) for pixels in PIXELS], torch.from_numpy(PIXELS).permute(0, 3, 1, 2),
])  # fmt: skip
def test_images_in_any_form_are_the_same_split(images):
    expected = batch(Split([Image.fromarray(pixels) for pixels in PIXELS], NAMES, LABELS))
    split = Split(images, NAMES, LABELS)
    assert torch.equal(batch(split), expected)
    assert torch.equal(batch(split.subset([4, 1])), expected[[4, 1]])
    assert split.stamp(0) is None


def test_files_by_name_and_grey_pixels(tmp_path):
    for row, pixels in enumerate(PIXELS):
        Image.fromarray(pixels).save(tmp_path / f"{row}.png")
    files = [tmp_path / f"{row}.png" for row in range(6)]
    split = Split([str(files[0]), *files[1:]], NAMES, LABELS)
    assert split.images[0] == ImageFile(files[0])
    assert torch.equal(batch(split), batch(Split(PIXELS, NAMES, LABELS)))
    grey = torch.from_numpy(PIXELS[..., 0])[:, None]
    assert torch.equal(batch(Split(grey, NAMES, LABELS)), batch(Split(np.repeat(PIXELS[..., :1], 3, 3), NAMES, LABELS)))


class Endless(IterableDataset):
    def __iter__(self):
        return iter(PIXELS)


@pytest.mark.parametrize(("images", "subject", "got"), [
    (Endless(), "images", "a Endless"),
    (Pictures(lambda p, row: torch.from_numpy(p).permute(2, 0, 1) / 255), "item 0", "float32 [3, 40, 48]"),
    (Rows(lambda p, row: {"img": p, "label": row}), "item 0", "a dictionary with img, label"),
    (Rows(lambda p, row: {"image": {"bytes": b"", "path": None}}), "item 0", "a dict"),
    (iter(PIXELS), "images", "iterator"),
])  # fmt: skip
def test_images_that_are_refused(images, subject, got):
    refused(lambda: Split(images, NAMES, LABELS), subject, got=got)


def test_a_data_set_of_hugging_face(tmp_path):
    datasets = pytest.importorskip("datasets", reason="Hugging Face datasets is not installed")
    features = datasets.Features({"image": datasets.Image(), "age": datasets.Value("int64")})
    pictures = [Image.fromarray(pixels) for pixels in PIXELS]
    datasets.Dataset.from_dict({"image": pictures, "age": [*range(6)]}, features).save_to_disk(tmp_path / "faces")
    faces = datasets.load_from_disk(tmp_path / "faces").select([4, 1, 5])
    split = Split(faces, [str(age) for age in faces["age"]], NumberLabels(faces["age"]))
    assert torch.equal(batch(split), batch(Split(PIXELS[[4, 1, 5]], NAMES[:3], LABELS[[4, 1, 5]].as_root())))
    (images,) = Images(resize=32, crop=32, workers=1).test_batches(split, None, 6)
    assert torch.equal(images.images, batch(split))
    with refuses("item 0", hint="rename the column of its images to image"):
        Split(faces.rename_column("image", "img"), split.names, split.labels)


@pytest.mark.parametrize("groups", [["b", "a", "b", "c"], [1, 0, 1, 2], np.array([1, 0, 1, 2], np.uint8)])
def test_groups_of_a_split_are_numbers_or_names(groups):
    pixels = [np.zeros((4, 4, 3), np.uint8)] * 4
    split = Split(pixels, list("wxyz"), NumberLabels([1.0, 2.0, 3.0, 4.0]), groups=groups)
    assert split.groups.tolist() == [1, 0, 1, 2]
    assert split.subset([2, 3]).groups.tolist() == [1, 2]
    with refuses("split: groups", "3 groups", "must be 4"):
        Split(pixels, list("wxyz"), NumberLabels([1.0, 2.0, 3.0, 4.0]), groups=groups[:3])


def test_labels_of_a_split_are_a_label_space():
    refused(lambda: Split(PIXELS, NAMES, torch.arange(6)), "labels", got="a Tensor", hint="NumberLabels")


def trainer(split=None, sampler=None, **options):
    split = Split(PIXELS, NAMES, LABELS) if split is None else split
    sampler = sampler or UniformSampler(3, labels=LABELS)
    model = torch.nn.Sequential(four_corners(), torch.nn.Linear(12, 2))
    return Trainer(model, EmbeddingStep(loss=LogRatioLoss()), split, sampler, Images(32, 32), quiet=True, **options)


def test_a_trainer_takes_a_split_and_a_sampler_of_its_items():
    with refuses("split", got="a TensorDataset", hint="Split(dataset, names, labels)"):
        trainer(TensorDataset(torch.from_numpy(PIXELS)))
    for items in (5, 7):
        other = NumberLabels(torch.arange(float(items)))
        with refuses("sampler", got=f"{items} items", allowed="6 items"):
            trainer(sampler=UniformSampler(3, labels=other))
        with refuses("labels", got=f"{items} items", allowed="6 items"):
            trainer(labels=other)
    assert trainer().steps == 2


def test_a_batch_of_rows_that_the_split_lacks_is_refused():
    class Beyond:
        seed, anchors = 0, None

        def __len__(self):
            return 1

        def __iter__(self):
            return iter([self.batch(0, 0)])

        def batch(self, epoch, step):
            return [0, 6]

    split = Split(PIXELS, NAMES, LABELS)
    for sampler in (Beyond(), UniformSampler(7, labels=NumberLabels(torch.arange(7.0)))):
        with refuses("sampler", got="row 6 of 6 items"):
            list(Images(32, 32).train_batches(split, sampler, epoch=0))
