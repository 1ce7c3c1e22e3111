"""The initial networks of benchmarks/captioning.py: configs that load, as many images for each, shuffled captions."""

import pytest

from benchmarks.captioning import NETWORKS, SETUPS, shuffle
from contml.app.experiment import load

TRAINED = {name: start for name, start in NETWORKS.items() if start is not None}


def test_shuffled_captions_are_those_of_another_training_image():
    names = [f"{n}.jpg" for n in range(20)]
    lines = [f"{name}#{k}\ta dog {name} {k}\n" for name in [*names, "val.jpg"] for k in range(2)]
    found = shuffle("".join(lines), names).splitlines(keepends=True)
    captions = {}
    for line in found:
        name, _, rest = line.partition("#")
        captions.setdefault(name, []).append(rest)
    assert sorted(captions) == sorted([*names, "val.jpg"])
    own = {name: [line.partition("#")[2] for line in lines if line.startswith(name)] for name in captions}
    assert captions["val.jpg"] == own["val.jpg"]
    assert sorted(captions[name] for name in names) == sorted(own[name] for name in names)
    assert all(captions[name] != own[name] for name in names)


@pytest.mark.parametrize("name", list(TRAINED))
def test_every_network_sees_as_many_images(name):
    start = TRAINED[name]
    values = load(start.config, [*start.changes, "sampler.batches=80", "training.epochs=3"]).values
    assert values["sampler"]["batch_size"] * values["sampler"]["batches"] * values["training"]["epochs"] == 14_400
    assert values["model"]["freeze_batch_norm"]
    assert values["transform"] == load("captions/flickr8k").values["transform"]


def test_every_captioner_has_the_network_of_imagenet_first():
    assert all(setup.networks[0] == "ImageNet" and set(setup.networks) <= set(NETWORKS) for setup in SETUPS.values())
