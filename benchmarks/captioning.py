"""What a caption-aware embedding is worth to a captioner: Flickr8k, initial networks with controls, two captioners.

    python -m benchmarks.captioning DATA --weights FILE [--workers 2] [--minutes M] [--only SETUP ...] [--save FILE]

DATA holds the packs `flickr8k_1500` and `flickr8k_rest`: all 8,091 images, 128 x 128, with the official lists (6,000 /
1,000 / 1,000). FILE is torchvision's `mobilenet_v2-b0353104.pth`. The initial networks are that MobileNetV2 of
ImageNet, and the same after training on the caption distances of the training images: with triplets of binarized
labels (the 60 nearest images of an anchor are its positives), with the log-ratio loss, and with dense triplets. Two
controls see as many images: MobileNetV2 fine-tuned by the cross entropy of a captioner whose decoder was trained on its
frozen features before, and the log-ratio loss on shuffled captions: each training image has the captions of another
one. Each has two learning rates, chosen on the validation images by caption distance@10, or by CIDEr-D for the
captioner; the last weights count. The networks are frozen, and their features computed once; networks and features are
kept in --folder. The captioner lstm has the controls, attention the triplets.

A captioner (lstm: on the global features; attention: top-down attention on the 4 x 4 feature map) has 256 units and
words of 256 numbers. It is trained by cross entropy on all captions of an image, in batches of 50 images. Attention
goes on from its best weights with self-critical training, five samples per image, whose rate falls to 0 along a cosine.
The learning rate is 0.001, which was better on the validation images than 0.0005 for both captioners in earlier trials.
Weights are selected on the same images. Beside them: the first caption of the nearest training image, and one caption
for all images, the best of 1,000 on the validation images.
"""

from __future__ import annotations

import argparse
import gzip
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import save_file

from benchmarks.measure import table
from benchmarks.trials import Job, Method, Metrics, Trials, arguments, main as print_tables
from contml._support.files import write
from contml.app.experiment import extract_features, load, read_evaluation, resume, train as train_run
from contml.app.trials.record import FinishedTrainings
from contml.captioning import score_captions
from contml.captioning.evaluator import evaluate_captions
from contml.data.features import read_features
from contml.data.split import Split, Task
from contml.evaluation import half_width
from contml.evaluation.intervals import half_width_of_sum
from contml.runs import Run, create

_SIZES = ("decoder.hidden=256", "decoder.words=256")
_RATE = 1e-3
_CONFIG = "captioning/flickr8k"


class Start(NamedTuple):
    """How MobileNetV2 is trained before it is frozen."""

    changes: tuple[str, ...] = ()
    config: str = "captions/flickr8k"
    shuffled: bool = False  # each training image has the captions of another one
    is_captioner: bool = False  # trained by the cross entropy of a captioner, with a decoder that is trained already


#: Initial networks; None: MobileNetV2 is not trained.
NETWORKS: dict[str, Start | None] = {
    "ImageNet": None,
    "triplets": Start(
        (
            "binarize={name: nearest, k: 60}",
            "loss={name: triplet_margin, margin: 0.1, distance: cosine, reduction: nonzero}",
        )
    ),
    "log-ratio": Start(),
    "dense triplets": Start(("loss={name: dense_triplet, margin: 0.1}",)),
    "cross entropy": Start(
        (
            *("decoder=lstm", *_SIZES, "captioner.frozen=false", "step.cross_entropy_epochs=null"),
            *("model.freeze_batch_norm=true", "transform={name: crop, scale_jitter: 6, shift: 4}"),
            *("sampler.batch_size=60", "optimizer=adamw", "optimizer.head_lr=1e-3", "schedule=cosine"),
        ),
        config=_CONFIG,
        is_captioner=True,
    ),
    "shuffled log-ratio": Start(shuffled=True),
}


class Setup(NamedTuple):
    """A captioner, by the name of its decoder."""

    maps: bool  # it attends to places
    epochs: tuple[int, int]  # of cross entropy, and of self-critical training if there is any
    seeds: tuple[int, ...]  # of the trainings that are measured on the test split
    seconds: float  # of a training
    networks: tuple[str, ...]  # the initial networks


SETUPS = {
    "lstm": Setup(
        maps=False,
        epochs=(4, 0),
        seeds=(1, 2, 3),
        seconds=120,
        networks=("ImageNet", "log-ratio", "dense triplets", "shuffled log-ratio", "cross entropy"),
    ),
    "attention": Setup(
        maps=True, epochs=(6, 3), seeds=(1,), seconds=700, networks=("ImageNet", "triplets", "log-ratio")
    ),
}
_LISTS = "flickr8k_1500/official_lists"


def places(given: argparse.Namespace, shuffled: bool = False) -> list[str]:
    """The files of Flickr8k in the two packs."""
    lists = {"train": "train", "val": "dev", "test": "test"}
    return [
        f"task.root={given.data}",
        f"task.captions={tokens(given, shuffled).absolute()}",
        "task.images=[flickr8k_1500/images,flickr8k_rest/images]",
        *(f"task.{key}={_LISTS}/Flickr_8k.{name}Images.txt" for key, name in lists.items()),
        "task.vectors=flickr8k_1500/word_vectors/glove.6B.50d.flickr8k.txt.gz",
        "task.missing=drop",
    ]


def tokens(given: argparse.Namespace, shuffled: bool = False) -> Path:
    """The token file of all 8,091 images, unpacked; shuffled: each training image has the captions of another one."""
    path: Path = given.folder / f"Flickr8k.{'shuffled' if shuffled else 'token'}.txt"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        text = gzip.decompress((given.data / "flickr8k_1500/Flickr8k.token.full.txt.gz").read_bytes()).decode()
        if shuffled:
            text = shuffle(text, (given.data / _LISTS / "Flickr_8k.trainImages.txt").read_text().split())
        write(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    return path


def shuffle(text: str, names: list[str]) -> str:
    """A token file in which each of some images has the captions of the next one in a random order."""
    order = [names[n] for n in np.random.default_rng(0).permutation(len(names))]
    other = dict(zip(order, [*order[1:], order[0]], strict=True))
    lines = []
    for line in text.splitlines(keepends=True):
        name, hash_sign, rest = line.partition("#")
        lines.append(f"{other.get(name, name)}{hash_sign}{rest}")
    return "".join(lines)


def network(name: str, start: Start, given: argparse.Namespace) -> Path:
    """The run of an initial network: of two learning rates, the one with the better result on validation."""
    found: dict[Path, float] = {}
    for rate in (1e-4, 3e-4):
        folder = given.folder / f"{name}-{rate:g}"
        if not Run(folder).evaluation().exists():
            changes = [
                *places(given, start.shuffled),
                f"model.weights={given.weights}",
                "images.resize=128",
                "images.crop=120",
                "sampler.batches=80",
                "training.epochs=3",
                "training.select=none",  # also where it was better before: as many steps for each
                "training.evaluate_every=3",
                *start.changes,
                f"optimizer.lr={rate:g}",
            ]
            if start.is_captioner:
                changes.append(f"captioner.weights={with_decoder(changes, given)}")
            config = load(start.config, changes)
            if folder.exists():
                resume(folder, split="val")
            else:
                train_run(config, folder.parent, split="val", folder=folder)
        main_score = read_evaluation(Run(folder)).evaluation.main
        found[folder] = main_score.model if main_score.better == "higher" else -main_score.model
        print(f"{name}, rate {rate:g}: {main_score.title} of the validation images {main_score.model:.4g}")
    return max(found, key=lambda folder: found[folder])


def with_decoder(changes: list[str], given: argparse.Namespace) -> Path:
    """The weights of a captioner on MobileNetV2 of ImageNet, whose decoder was trained on the frozen features."""
    path: Path = given.folder / "ImageNet.safetensors"
    if not path.exists():
        file = features("ImageNet", maps=False, given=given)
        own = (f"images.features={file}", "model.backbone=features")
        epochs = (f"training.epochs={SETUPS['lstm'].epochs[0]}", "step.cross_entropy_epochs=null", "schedule=constant")
        rate = (f"optimizer.lr={_RATE:g}", "model.weights=none", "decoder=lstm", *_SIZES)
        trainer = (frozen := load(_CONFIG, [*places(given), *own, *epochs, *rate])).build_trainer(frozen.build_task())
        trainer.fit()
        assert trainer.best is not None
        assert trainer.best.weights is not None
        whole = load(_CONFIG, changes)
        weights = whole.build_trainer(whole.build_task()).bare_model.state_dict()
        own_keys = ("decoder.", "feature_")
        weights |= {key: value for key, value in trainer.best.weights.items() if key.startswith(own_keys)}
        write(path, lambda temporary: save_file({key: each.contiguous() for key, each in weights.items()}, temporary))
    return path


def features_file(name: str, maps: bool, given: argparse.Namespace) -> Path:
    """The file of the features of an initial network."""
    path: Path = given.folder / f"{name}{'-maps' if maps else ''}.npz"
    return path


def features(name: str, maps: bool, given: argparse.Namespace) -> Path:
    """The features of all images by an initial network."""
    path = features_file(name, maps, given)
    if not path.exists():
        start = NETWORKS[name]
        weights = f"model.weights={given.weights}" if start is None else f"backbone={network(name, start, given)}"
        same_images = ("images.resize=128", "images.crop=128")
        extract_features(load(_CONFIG, [*places(given), weights, *same_images]), path, maps=maps)
    return path


def setup(name: str, given: argparse.Namespace, record: FinishedTrainings) -> tuple[Trials, float]:
    """The trials of a captioner, and the seconds of one of its trainings."""
    chosen = SETUPS[name]
    first, second = chosen.epochs
    epochs = [f"training.epochs={first + second}", f"step.cross_entropy_epochs={first}", "schedule=constant"]
    epochs += [] if second else ["training.evaluate_every=2"]
    sizes = (*_SIZES, "decoder.attention=256") if chosen.maps else _SIZES
    tried = (f"optimizer.lr={_RATE:g}",)
    methods = []
    for each in chosen.networks:
        file = features_file(each, chosen.maps, given)
        own = (f"images.features={file}", "model.backbone=features", "model.weights=none")
        methods.append(Method(f"{name}, {each}", _CONFIG, tried, (f"decoder={name}", *sizes, *epochs, *own)))
    changes = tuple(places(given))
    return Trials(methods, train, record, "higher", changes, changes, seeds=chosen.seeds), chosen.seconds


def train(job: Job) -> Metrics:
    """CIDEr-D after cross entropy; on the test split after self-critical training, if there is any."""
    torch.set_num_threads(1)
    values = load(job.method.config, job.overrides).document.values
    first = values["step"]["cross_entropy_epochs"]
    second = values["training"]["epochs"] - first
    found: Metrics = {}
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / "xe" / "checkpoints" / "best.safetensors"
        phases = {
            "xe": (f"training.epochs={first}", "step.cross_entropy_epochs=null"),
            "scst": (
                f"training.epochs={second}",
                "step.cross_entropy_epochs=0",
                "schedule=cosine",
                f"captioner.weights={weights}",
            ),
        }
        if job.split == "val" or not second:
            del phases["scst"]
        for name, changes in phases.items():
            experiment = load(job.method.config, [*job.overrides, *changes])
            task = experiment.build_task()
            trainer = experiment.build_trainer(task, create(Path(folder), name, Path(folder) / name), quiet=True)
            trainer.fit()
            assert trainer.best is not None
            assert trainer.best.weights is not None
            trainer.bare_model.load_state_dict(trainer.best.weights)
            evaluation, captions, _ = trainer.evaluate(task.splits[job.split])
            value, half = evaluation.main.model, half_width(captions.values)
            found |= {
                "value": value,
                f"{name}_value": value,
                f"{name}_low": value - half,
                f"{name}_high": value + half,
                "bleu@4": evaluation.curves["bleu"].model[3],
                "rouge_l": evaluation.scores["rouge_l"].model,
                f"{name}_val": trainer.best.value,
            }
    return found


COLUMNS = {"BLEU-4": ("bleu@4", ".3f"), "ROUGE-L": ("rouge_l", ".3f")}


def remark(trials: Trials, baselines: str) -> str:
    """Differences to the first network after cross entropy, what self-critical training changes, and baselines."""
    rows = []
    first, second = SETUPS[trials.methods[0].name.partition(",")[0]].epochs
    reference = trials.tests(trials.methods[0])
    for method in trials.methods:
        found = trials.tests(method)
        rows.append(
            [
                method.name,
                over_seeds_and_images(found),
                "-" if method is trials.methods[0] else over_seeds_and_images(found, reference),
                ", ".join(f"{m['xe_low']:.3f} to {m['xe_high']:.3f}" for m in found),
            ]
        )
        if second:
            rows[-1].append(", ".join(f"{m['scst_low']:.3f} to {m['scst_high']:.3f}" for m in found))
            rows[-1].append(", ".join(f"{m['scst_val'] - m['xe_val']:+.3f}" for m in found))
    head = ["after cross entropy", "CIDEr-D", f"less {trials.methods[0].name}", "95 % interval over images, per seed"]
    head += ["the same after self-critical training", "what it adds on validation, per seed"] if second else []
    budget = f"Each training: {first} epochs of cross entropy"
    budget += f", {second} of self-critical training; 6,000 images each." if second else ", 6,000 images each."
    about = "±: 95 % interval over seeds and images; of a difference, as if the errors over images were independent."
    return f"CIDEr-D on the test split. {budget} {about}\n\n{table([head, *rows])}\n\n{baselines}"


def over_seeds_and_images(found: Sequence[Mapping[str, Any]], reference: Sequence[Mapping[str, Any]] = ()) -> str:
    """The mean CIDEr-D after cross entropy, or its difference to other trainings, with an interval.

    The scores of the images are not recorded, only the interval of their mean. So a difference has the sum of both
    variances over images, which is too much where the scores of an image are alike.
    """
    values = np.array([metrics["xe_value"] for metrics in found])
    if reference:
        values = values - [metrics["xe_value"] for metrics in reference]
    variances: list[tuple[float, float]] = [(float(values.var(ddof=1)) / len(values), len(values) - 1)]
    for each in filter(None, (found, reference)):
        halves = [(metrics["xe_high"] - metrics["xe_low"]) / 2 for metrics in each]
        variances.append((float(np.mean(np.square(halves))) / 1.96**2, np.inf))
    return f"{values.mean():{'+.3f' if reference else '.3f'}} ± {half_width_of_sum(variances):.3f}"


def baseline_scores(given: argparse.Namespace) -> str:
    """CIDEr-D of the caption of the nearest training image by each network, and of one caption for all images."""
    task = load(_CONFIG, places(given)).read_task()
    names = [name for split in task.splits.values() for name in split.names]
    train_rows, test_rows = len(task.train), len(names) - len(task.splits["test"])
    captions = task.train.labels.captions
    assert captions is not None
    scores = []
    for name in dict.fromkeys(name for each in given.only for name in SETUPS[each].networks):
        found = read_features(features(name, maps=False, given=given))
        assert found.names == names
        unit = torch.nn.functional.normalize(torch.from_numpy(found.values), dim=1)
        nearest = (unit[test_rows:] @ unit[:train_rows].T).argmax(1).tolist()
        texts = [captions[row][0] for row in nearest]
        scores.append(f"{_cider(texts, task.splits['test']):.3f} ({name})")
    return (
        f"CIDEr-D of the test images without a captioner: first caption of the nearest image {', '.join(scores)}; "
        f"one caption for all images {_cider(_constant(task), task.splits['test']):.3f}."
    )


def _cider(texts: list[str], split: Split) -> float:
    return evaluate_captions(texts, split, torch.arange(len(split)))[0].main.model


def _constant(task: Task) -> list[str]:
    """For all test images the training caption, of 1,000 drawn ones, with the best CIDEr-D on 200 validation images."""
    captions, val_captions = task.train.labels.captions, task.splits["val"].labels.captions
    assert captions is not None
    assert val_captions is not None
    drawn = np.random.default_rng(0).permutation(len(task.train))[:1000].tolist()
    candidates = [captions[row][0] for row in drawn]
    references = [list(texts) for texts in val_captions[:200]]
    best = max(candidates, key=lambda text: score_captions([text] * len(references), references).corpus["cider_d"])
    return [best] * len(task.splits["test"])


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("data", type=Path, help="folder of the packs")
    parser.add_argument("--weights", type=Path, required=True, help="torchvision's mobilenet_v2-b0353104.pth")
    parser.add_argument("--folder", type=Path, default=Path("runs/benchmarks.captioning"), help="networks and features")
    parser.add_argument("--only", nargs="*", default=list(SETUPS), choices=list(SETUPS), help="these captioners alone")
    given = parser.parse_args()
    baselines = ""
    if not given.plan:
        for each in given.only:
            for name in SETUPS[each].networks:
                features(name, SETUPS[each].maps, given)
        baselines = baseline_scores(given)
    record = FinishedTrainings(given.raw / "captioning_controls.jsonl")
    parts = {name: setup(name, given, record) for name in given.only}
    title = "Captions of Flickr8k by the initial network of the captioner"
    print_tables(title, parts, COLUMNS, given, partial(remark, baselines=baselines))


if __name__ == "__main__":
    main()
