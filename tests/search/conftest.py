"""A small run of drawn people, and its test images as files."""

from __future__ import annotations

import shutil
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image
from support.miniature import TINY

from contml._support.tensors import load_tensors
from contml.app.experiment import load
from contml.runs import Run


class Trained(NamedTuple):
    run: object  # its folder
    images: object  # the folder of its test images
    embeddings: object  # those that the run saved [N,d]


@pytest.fixture(scope="session")
def trained(tiny_run, tmp_path_factory):
    images = tmp_path_factory.mktemp("trained") / "images"
    images.mkdir()
    test = load("pose/synthetic", TINY).build_task().test
    for row in range(len(test)):
        Image.fromarray(np.asarray(test.image(row))).save(images / f"{row:04d}.png")
    return Trained(tiny_run, images, load_tensors(Run(tiny_run).embeddings("test"))[0]["embeddings"].numpy())


@pytest.fixture(scope="session")
def exported(trained, tmp_path_factory):
    import contml

    folder = tmp_path_factory.mktemp("exported") / "model"
    contml.load(trained.run).save(folder)
    return folder


@pytest.fixture
def bundle(exported, tmp_path):
    """A copy to damage."""
    return shutil.copytree(exported, tmp_path / "model")


@pytest.fixture(scope="session")
def pictures(trained):
    return [np.asarray(Image.open(path)) for path in sorted(trained.images.iterdir())]
