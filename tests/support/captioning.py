"""A small captioner on feature vectors: squares whose captions say where they are."""

from dataclasses import replace
from functools import partial

import numpy as np
import torch

from contml.captioning import CaptioningStep, tokenize
from contml.captioning.captioner import Captioner, DecoderFactory
from contml.captioning.decoders import DECODERS
from contml.data import Vector
from contml.labels import VectorLabels
from contml.losses import LogRatioLoss
from contml.models import EmbeddingModel
from contml.sampling import DenseSampler
from contml.training import Trainer, Training
from contml.training.optimizers import adamw

from .miniature import augmented, squares

#: Overrides with which captioning/synthetic takes seconds.
TINY = [
    *("task.train=40", "task.val=12", "task.test=16", "task.queries=0", "task.size=32", "task.dim=8"),
    *("images.resize=32", "images.crop=32", "transform.shift=1", "model.dim=8"),
    *("sampler.batch_size=10", "sampler.batches=3"),
    *("captioner.length=6", "captioner.threshold=2", "decoder.hidden=16", "decoder.words=8"),
    *("step.embedding_epochs=1", "step.cross_entropy_epochs=2", "training.epochs=4", "training.evaluate_every=2"),
]
#: The decoder of a run, by its name.
SMALL_DECODERS = {
    "lstm": "decoder={name: lstm, hidden: 16, words: 8}",
    "attention": "decoder={name: attention, hidden: 16, words: 8, attention: 6}",
}
_WORDS = ("left", "middle", "right"), ("top", "centre", "bottom")


class Described(VectorLabels):
    """Places whose texts are captions."""

    @property
    def captions(self):
        return [self.text(row).split("\n") for row in range(len(self))]


def described_squares(items=30, seed=0, maps=False):
    """Squares as feature vectors of their place, or maps of 4 places; two captions each, the first ones longer."""
    split = squares(items, seed)
    place = split.labels.values.numpy().astype(int)
    values = np.zeros((items, 8), np.float32)
    values[np.arange(items), place[:, 0] // 4] = 1
    values[np.arange(items), 4 + place[:, 1] // 4] = 1
    captions = []
    for row, (x, y) in enumerate(place // 4):
        first = f"A square at the {_WORDS[1][y]}, on the {_WORDS[0][x]}."
        captions.append([first, f"{_WORDS[0][x]} {_WORDS[1][y]} square"] + ["just a square"] * (row % 2))
    if maps:
        values = np.stack([values * scale for scale in (1, 2, 0, 1)], 1)
    labels = Described(split.labels.values).with_texts(["\n".join(texts) for texts in captions])
    return replace(split, images=[Vector(each) for each in values], labels=labels)


def words_of(split):
    return [[tokenize(text) for text in of_image] for of_image in split.labels.captions]


def small_captioner(split, *, decoder="lstm", dim=5, dropout=0.0, seed=0, **options):
    torch.manual_seed(seed)
    sizes = {"hidden": 12, "words": 6, "dropout": dropout} | ({"attention": 5} if decoder == "attention" else {})
    captions = [words for of_image in words_of(split) for words in of_image]
    options = {"threshold": 1, "length": 8, "beam": 2, "layer": "embedding", **options}
    network = EmbeddingModel("features", dim, feature_dim=8)
    factory = DecoderFactory(DECODERS[decoder].needs_maps, partial(DECODERS[decoder], **sizes))
    return Captioner(network=network, decoder=factory, captions=captions, **options)


def small_step(split, captioner, *, epochs=2, batches=5, loss=None, **options):
    return CaptioningStep(
        **options,
        loss=loss,
        captions=words_of(split),
        vocabulary=captioner.vocabulary,
        length=captioner.length,
        steps_per_epoch=batches,
        epochs=epochs,
    )


def captioning_trainer(
    run=None, *, epochs=3, batches=5, dropout=0.2, decoder="lstm", val=None, training=None, optimizer=adamw, **options
):
    """A trainer with three phases, an epoch each."""
    split = described_squares(maps=decoder == "attention")
    captioner = small_captioner(
        split, dropout=dropout, decoder=decoder, layer="embedding", frozen=options.pop("frozen", True)
    )
    options = {"embedding_epochs": 1, "cross_entropy_epochs": 1, "samples": 3, **options}
    loss = LogRatioLoss() if options["embedding_epochs"] else None
    return Trainer(
        captioner,
        small_step(split, captioner, epochs=epochs, batches=batches, loss=loss, **options),
        split,
        DenseSampler(10, 2, 2, batches=batches, labels=split.labels, seed=3),
        augmented(resize=16, crop=14),
        Training(epochs=epochs, **(training or {})),
        optimizer=lambda groups: optimizer(groups=groups, lr=0.01),
        val=val,
        test=described_squares(20, seed=1, maps=decoder == "attention"),
        run=run,
        quiet=True,
    )


def without(changes):
    """The overrides without those of sections that the changes replace."""
    sections = {change.partition("=")[0] for change in changes}
    return [each for each in TINY if each.partition(".")[0] not in sections]
