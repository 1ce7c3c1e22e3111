"""Drawn beetles: reproducible, species differ, and no test species is in training."""

import numpy as np
import pytest
import torch
from PIL import Image
from support.choices import mostly_slow
from support.refusals import refused

from contml import InputError
from contml.app.experiment import check, load
from contml.data import ImageFile, Split
from contml.data.renderers.text import class_colour, draw_words
from contml.losses import LOSSES
from contml.tasks.classes.drawn_beetles import GENUS, TRAITS, draw_specimen, species, synthetic
from contml.tasks.classes.reading import ClassImage, make_split

SMALL = {"classes": 6, "per_class": 4, "test_classes": 5, "test_per_class": 3, "size": 32}


@pytest.fixture(scope="module")
def task():
    return synthetic(**SMALL)


def test_species_of_a_genus_are_alike():
    world = [species(0, number) for number in range(40 * GENUS)]
    low, high = (torch.tensor(edge) for edge in zip(*TRAITS.values(), strict=True))
    traits = (torch.tensor([list(kind.traits.values()) for kind in world]) - low) / (high - low)
    assert bool(((traits >= -1e-6) & (traits <= 1 + 1e-6)).all())
    apart = torch.cdist(traits, traits)
    genus = torch.arange(len(world)) // GENUS
    same = (genus[:, None] == genus) & ~torch.eye(len(world), dtype=torch.bool)
    assert apart[same].mean() < 0.75 * apart[genus[:, None] != genus].mean()
    assert apart[same].min() > 0.3  # but no two are equal
    names = [kind.name.split() for kind in world]
    assert all(name[0] == names[row - row % GENUS][0] for row, name in enumerate(names))
    assert len({" ".join(name) for name in names}) == len(world)


def test_specimens_vary_and_scale_with_the_size():
    kind = species(0, 3)
    images = np.stack([draw_specimen(kind, item, 40) for item in range(6)]).astype(float)
    assert np.abs(images[:, None] - images[None]).mean((2, 3, 4))[~np.eye(6, dtype=bool)].min() > 10
    for size in (8, 17, 96):
        assert draw_specimen(kind, 0, size).shape == (size, size, 3)


def test_a_drawn_label_is_framed_and_named(task):
    for size in (40, 200, 420):
        picture = task.test.draw(4, size)
        assert (picture.size, picture.mode) == ((size, size), "RGB")
        assert picture.getpixel((0, size // 2)) == class_colour(int(task.test.labels.class_ids[4]))
    plain = Image.new("RGB", (40, 40), "white")
    named = np.asarray(draw_words(plain, "Ulfeger ulpifer", 200))
    assert named[175:196, 8:-8].min() < 100  # the name
    assert (named[50:100, 50:100].min(), draw_words(plain, "x" * 500, 200).size) == (255, (200, 200))
    assert np.asarray(draw_words(plain, "name", 100))[80:95, 20:80].min() == 255  # no room for a name


def test_class_colours_are_apart():
    colours = np.array([class_colour(number) for number in range(12)], dtype=float)
    assert np.abs(colours[:, None] - colours[None]).sum(2)[~np.eye(12, dtype=bool)].min() > 40


def test_a_split_of_files_keeps_names_by_class(tmp_path):
    Image.new("RGB", (9, 7), "red").save(tmp_path / "a.png")
    file = tmp_path / "a.png"
    split = make_split([ClassImage(file, number) for number in (7, 2, 7)], {2: "two", 7: "seven"})
    assert (split.labels.class_ids.tolist(), split.labels.colours().classes) == ([7, 2, 7], ["two", "seven"])
    assert split.draw(0, 30).size == (30, 30)
    refused(lambda: Split([ImageFile(file)] * 3, ["a", "b"], split.labels), "split", "3 images, 2 names")


MINIATURE = ["task.classes=5", "task.per_class=4", "task.test_classes=3", "task.test_per_class=3", "task.size=32"]
MINIATURE += ["sampler.classes=4", "sampler.instances=3", "images.resize=32", "images.crop=32", "model.dim=8"]


@pytest.mark.parametrize("name", mostly_slow(LOSSES, 3))
def test_every_loss_takes_a_step_or_is_refused(name):
    experiment = load("classes/synthetic", [*MINIATURE, f"loss={name}"])
    if LOSSES[name].requires == "graded":
        with pytest.raises(InputError) as error:
            check(experiment)
        assert name in str(error.value)
        assert "classes" in str(error.value)
        return
    facts = dict(check(experiment))
    assert np.isfinite(float(facts["loss of a batch"]))
    assert float(facts["loss of a batch"]) != 0  # something to learn from; contrastive begins below 0
