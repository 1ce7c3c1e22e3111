"""Label distances of a batch of every task, beside a step of ResNet-18 on images of 64 pixels.

    python -m benchmarks.batch_distances [--save]

A step is forward, log-ratio loss, backward and SGD on a batch of 150 images that lie in memory; label distances are
of 150 random rows of the task's training labels, packed beforehand as in a training. Both run in turn in one
process. Drawn data always; the real packs where CONTML_DATA, or shared/data beside the checkout, has them.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

import torch

from benchmarks.measure import FLICKR8K_PACK, alternate, heading, table
from contml.app.experiment import load
from contml.losses import LogRatioLoss
from contml.models import EmbeddingModel

DATA = Path(os.environ.get("CONTML_DATA", Path(__file__).parents[2] / "shared" / "data"))
BATCH, SIDE, ROUNDS = 150, 64, 5
#: Configs, and what of DATA they read; none is drawn.
TASKS = {
    "pose/synthetic": None,
    "pose/lspet": "pose_lspet/joints.npz",
    "layout/synthetic": None,
    "layout/nyuv2": "rooms_nyuv2/pairs.csv",
    "layout/camvid": "labelmaps_camvid/pairs.csv",
    "captions/synthetic": None,
    "captions/flickr8k": "flickr8k_1500",
    "classes/synthetic": None,
}


def label_distances(config: str, pack: str | None) -> tuple[Callable[[], object], str]:
    """A call that computes the label distances of the next of eight random batches, and what the labels are."""
    overrides = [f"task.{'root' if (DATA / pack).is_dir() else 'data'}={DATA / pack}"] if pack else []
    if pack == "flickr8k_1500":
        overrides += FLICKR8K_PACK
    labels = load(config, overrides).build_task().train.labels
    generator = torch.Generator().manual_seed(0)
    batches = cycle([torch.randperm(len(labels), generator=generator)[:BATCH] for _ in range(8)])
    return lambda: labels[next(batches)].pairwise(), f"{len(labels):,} x {type(labels).__name__}"


def step() -> Callable[[], object]:
    """A call that takes one step of ResNet-18."""
    torch.manual_seed(0)
    model = EmbeddingModel("resnet18", dim=128).train()
    loss, optimizer = LogRatioLoss(), torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    images, labels = torch.rand(BATCH, 3, SIDE, SIDE), torch.rand(BATCH, BATCH)
    labels = (labels + labels.T).fill_diagonal_(0)

    def take() -> None:
        optimizer.zero_grad()
        loss(model(images), labels).backward()
        optimizer.step()

    return take


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/batch_distances.md")
    save = parser.parse_args().save
    torch.set_num_threads(2)
    rows = [["labels", "of", "label distances", "ResNet-18 step", "share"]]
    train = step()
    for config, pack in TASKS.items():
        if pack and not (DATA / pack).exists():
            print(f"{config}: left out, {DATA / pack} is absent")
            continue
        distances, what = label_distances(config, pack)
        times = alternate({"distances": distances, "step": train}, ROUNDS)
        share = times["distances"] / times["step"]
        rows.append(
            [config, what, f"{1e3 * times['distances']:.1f} ms", f"{1e3 * times['step']:.0f} ms", f"{share:.1%}"]
        )
        print("  ".join(rows[-1]), flush=True)
    title = f"Label distances of a batch of {BATCH}, beside a ResNet-18 step at {SIDE} pixels"
    text = f"{heading(title)}\n{table(rows)}\n"
    print("\n" + text)
    if save:
        (Path(__file__).parent / "results" / "batch_distances.md").write_text(text)


if __name__ == "__main__":
    main()
