"""Training transforms are pure functions of (seed, epoch, step, row): ours, torchvision's and a user's own."""

import numpy as np
import pytest
import torch
from support.refusals import refused, refuses

from contml import NumberLabels
from contml.app.experiment import load
from contml.config import options
from contml.data import TRANSFORMS, CropTransform, Images, Pixels, Split
from contml.data.batch import torchvision_transform
from contml.sampling import UniformSampler


def image(seed=0, side=24):
    return np.random.default_rng(seed).integers(0, 256, (side, side, 3)).astype(np.uint8)


def split(items=12, side=24):
    return Split([Pixels(image(row, side)) for row in range(items)], [f"item {row}" for row in range(items)],
                 NumberLabels(torch.arange(items)))  # fmt: skip


def batches(images, *, part=(0, 1), start=0):
    data = split()
    sampler = UniformSampler(6, labels=data.labels, seed=5)
    return [*images.train_batches(data, sampler, epoch=1, start=start, part=part)]


@pytest.mark.parametrize("make", [
    lambda: CropTransform(3, 2, resize=24, crop=16),
    lambda: torchvision_transform("torchvision:RandomResizedCrop")(size=16, resize=24, crop=16),
    lambda: torchvision_transform("torchvision:RandAugment")(resize=24, crop=16),
    lambda: lambda pixels, generator: pixels[4:20, 4:20] + generator.integers(0, 5, dtype=np.uint8),
], ids=["crop", "random resized crop", "augment", "a function"])  # fmt: skip
@pytest.mark.parametrize("flip", ["batch", "image"])
def test_a_batch_depends_on_seed_epoch_step_and_row_alone(make, flip):
    whole = batches(Images(resize=24, crop=16, flip=flip, transform=make()))
    assert whole[0].images.shape == (6, 3, 16, 16)
    assert whole[0].images.dtype == torch.uint8
    torch.manual_seed(99)  # other random numbers in between change nothing
    again = batches(Images(resize=24, crop=16, flip=flip, transform=make()))
    assert all(torch.equal(a.images, b.images) for a, b in zip(whole, again, strict=True))
    late = batches(Images(resize=24, crop=16, flip=flip, transform=make()), start=1)
    assert torch.equal(late[0].images, whole[1].images)
    halves = [batches(Images(resize=24, crop=16, flip=flip, transform=make()), part=(r, 2))[0] for r in (0, 1)]
    assert torch.equal(torch.cat([half.images for half in halves]), whole[0].images)
    assert torch.equal(torch.cat([half.positions for half in halves]), whole[0].positions)


def test_an_evaluation_takes_the_centre_without_a_transform():
    images = Images(resize=24, crop=17, flip="image", transform=CropTransform(6, 5, resize=24, crop=17))
    batch = next(iter(images.test_batches(split(), None, 12)))
    centre = np.stack([image(row)[3:20, 3:20] for row in range(12)])
    assert torch.equal(batch.images, torch.from_numpy(centre).permute(0, 3, 1, 2))


def test_torchvision_draws_from_the_seed_and_no_other_generator_is_seeded(monkeypatch):
    transform = torchvision_transform("torchvision:RandomResizedCrop")(size=16, resize=24, crop=16)
    state = torch.get_rng_state()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(np.random.default_rng(5).integers(1 << 62)))
        expected = transform.transform(torch.from_numpy(image()).permute(2, 0, 1)).permute(1, 2, 0).numpy()
    monkeypatch.setattr(torch, "manual_seed", None)  # it would seed those of GPUs too, from which a training draws
    np.testing.assert_array_equal(transform(image(), np.random.default_rng(5)), expected)
    assert torch.equal(torch.get_rng_state(), state)


def test_transforms_of_torchvision_show_their_options():
    found = {option.name: option for option in options(torchvision_transform("torchvision:RandomResizedCrop"))}
    assert found["size"].required
    assert found["scale"].default == (0.08, 1.0)
    assert torchvision_transform("crop") is None
    with refuses("torchvision:RandomResizdCrop", hint="'torchvision:RandomResizedCrop'"):
        torchvision_transform("torchvision:RandomResizdCrop")


def test_invalid_results_and_options_of_transforms():
    small = torchvision_transform("torchvision:CenterCrop")(size=12, resize=24, crop=16)
    with refuses("torchvision:CenterCrop", got="12 x 12 pixels", allowed="16"):
        small(image(), np.random.default_rng(0))
    refused(lambda: CropTransform(16, resize=24, crop=16), "scale_jitter", "16", "0 to crop - 1, 15")
    refused(lambda: CropTransform(shift=-1, resize=24, crop=16), "shift", "-1", "at least 0")
    refused(lambda: Images(flip="sometimes"), "flip", "sometimes", "batch, image, none")


@pytest.mark.parametrize("transform", [*TRANSFORMS, "torchvision:RandomResizedCrop"])
def test_a_config_chooses_a_transform(transform):
    size = ["transform.size=32"] if ":" in transform else ["transform.shift=2"]
    changes = ["task.train=20", "task.test=210", "images.resize=40", "images.crop=32", "sampler.batch_size=6",
               "sampler.anchors_per_batch=1", "sampler.batches=2"]  # fmt: skip
    experiment = load("pose/synthetic", [*changes, f"transform={transform}", *size])
    assert experiment.values["transform"]["name"] == transform
    trainer = experiment.build_trainer(experiment.build_task(), quiet=True)
    batch = next(iter(trainer.images.train_batches(trainer.split, trainer.sampler, epoch=0)))
    assert batch.images.shape == (6, 3, 32, 32)
