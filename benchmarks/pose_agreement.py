"""Which label distance of poses agrees with people: do the nearest people do the same, by the captions of the images?

    python -m benchmarks.pose_agreement --weights FILE [--save benchmarks/results/pose_agreement.md]

Reads the packs `coco_mini_2017` and `pose_lspet` in `CONTML_DATA`, or `../shared/data` beside the checkout. FILE is
torchvision's `mobilenet_v2-b0353104.pth`. Each training is appended to `benchmarks/results/raw/pose_agreement.jsonl`;
a later call goes on from it.

Protocol, written before the first run (30 November 2026):

- Judged people: people of COCO who are the only crop of their image. Five people wrote a caption of each image. The
  verb of a person is the one of 13 verbs that most captions have, and at least two. Images are left out if two verbs
  tie, or if at least two captions name several people.
- Agreement@k: the share of the k nearest judged people who have the verb of the query, for k of 1, 5, 10. Each judged
  person is a query against all others.
- Label distances: pixels of the crop (the default of `PoseLabels`); normalized poses; and saturating distances of
  normalized poses, 1 - mean_j w_j exp(-d_j^2 / 2 s^2) / mean_j w_j over common joints, with s = .6 person scales and
  w = .2 for the five joints of the face of COCO, or 1. "Mirrored": the smaller of the distances to a pose and to its
  mirror image.
- Embeddings: a linear head (128 numbers, normalized) on 4 x 4 feature maps of MobileNetV2, reduced to 512 components,
  is trained with `LogRatioLoss` on the label distances: 200 batches of 120 dense samples, AdamW, cosine schedule. The
  training people are the people of COCO whose image is not judged, or the 2,000 training people of LSPET, who have 14
  joints and no face. Learning rates .00025, .001, .004 for each label distance; five seeds. The judged people are
  divided into halves. Each half is measured at the rate with the highest agreement@10 of the other half, so all of them
  are test items once.
- Intervals are of 95 %, over seeds and judged people (`contml.app.trials.statistics`). Galleries are given.

Known before: on 350 people, agreement@1 / 5 / 10 of label distances was .414 / .374 / .365 for pixels, - / .405 / .379
normalized, .471 / .419 / .385 saturating and .486 / .412 / .397 saturating and mirrored. Predictions: label distances
agree in that order, with an interval above 0 for the saturating ones at 5. Embeddings of a head gain half of that at
most. The default changes only if the label distance and both embeddings agree with people better, with intervals above
0.

Changed after the first trainings: .00025 was the best of three rates for all label distances, so .0000625 and .0000156
were added for all.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.models import mobilenet_v2
from torchvision.transforms.functional import pil_to_tensor

from benchmarks.measure import heading, table
from contml import LogRatioLoss, MatrixLabels, PoseLabels
from contml.app.trials.statistics import estimate
from contml.sampling import DenseSampler

DATA = Path(os.environ.get("CONTML_DATA", Path(__file__).parents[2] / "shared" / "data"))
RAW = Path(__file__).parent / "results" / "raw" / "pose_agreement.jsonl"
KS, RATES, SEEDS = (1, 5, 10), (0.0000156, 0.0000625, 0.00025, 0.001, 0.004), (1, 2, 3, 4, 5)
SIZE, BATCH, STEPS, COMPONENTS, DIM = 128, 120, 200, 512, 128

#: The verbs, and the beginnings of the words of captions that count as each.
VERBS = {
    "sit": "sit|sat|seated", "stand": "stand|stood", "walk": "walk", "run": "run|ran|jog", "jump": "jump|leap",
    "ride": "rid|rode", "ski": "ski", "surf": "surf", "swing": "swing|swung|batting|batter", "throw": "throw|pitch",
    "kneel": "kneel|crouch|squat", "lie": "lying|laying|lies|lays|laid", "lean": "lean|bend|bent",
}  # fmt: skip
_SEVERAL = re.compile(
    r"\b(people|persons|men|women|boys|girls|children|kids|two|three|several|group|couple|crowd|players)\b"
)
#: The joints of both sides, in the order of COCO and of LSP.
_SWAPPED = {
    "COCO": [(1, 2), (3, 4), (5, 6), (7, 8), (9, 10), (11, 12), (13, 14), (15, 16)],
    "LSPET": [(0, 5), (1, 4), (2, 3), (6, 11), (7, 10), (8, 9)],
}


class Distance(NamedTuple):
    """A label distance of poses. `scale` is s of a saturating distance, in person scales; 0: it does not saturate."""

    normalize: bool = True
    scale: float = 0.0
    face: float = 1.0
    mirrored: bool = False


DISTANCES = {
    "pixels": Distance(normalize=False),
    "normalized": Distance(),
    "normalized, mirrored": Distance(mirrored=True),
    "saturating": Distance(scale=0.6),
    "saturating, face .2": Distance(scale=0.6, face=0.2),
    "saturating, face .2, mirrored": Distance(scale=0.6, face=0.2, mirrored=True),
}


class People(NamedTuple):
    """People of one data set. `visible` is `[N, J]`, `features` are feature maps `[N, D]`."""

    source: str
    joints: Tensor
    visible: Tensor
    features: Tensor

    def at(self, rows: list[int]) -> People:
        """Some of the people."""
        return People(self.source, *(each[rows] for each in self[1:]))

    def distances(self, kind: Distance) -> Tensor:
        """Label distances `[N, N]`, float64."""
        weights = np.ones(self.joints.shape[1])
        if self.source == "COCO":
            weights[:5] = kind.face
        return (
            PoseLabels(
                self.joints,
                self.visible,
                kind.normalize,
                weights=weights.tolist(),
                saturation=kind.scale or None,
                mirror=_SWAPPED[self.source] if kind.mirrored else (),
            )
            .pairwise()
            .double()
        )


# People


def read_coco(weights: Path) -> tuple[People, list[str]]:
    """The people of COCO, and the verb of each judged person; "" for people who are not judged."""
    pack = DATA / "coco_mini_2017"
    found = np.load(pack / "pose_crops" / "keypoints.npz")
    captions: dict[int, list[str]] = {}
    with gzip.open(pack / "captions_val2017.full.json.gz", "rt") as file:
        notes = json.load(file)["annotations"]
    notes += json.loads((pack / "annotations" / "captions_train2017.json").read_text())["annotations"]
    for note in notes:
        captions.setdefault(note["image_id"], []).append(note["caption"].lower())
    ids = found["image_id"].tolist()
    crops = Counter(ids)
    verbs = [verb_of(captions[image]) if crops[image] == 1 and image in captions else "" for image in ids]
    files = [pack / "pose_crops" / "images" / name for name in found["names"].tolist()]
    joints, visible = torch.from_numpy(found["joints"]), torch.from_numpy(found["visibility"] > 0)
    return People("COCO", joints, visible, feature_maps(files, weights)), verbs


def verb_of(captions: list[str]) -> str:
    """The verb that most captions have, and at least two; "" if there is none, or the captions name several people."""
    if sum(bool(_SEVERAL.search(caption)) for caption in captions) >= 2:
        return ""
    counts = [
        (sum(bool(re.search(rf"\b({words})", caption)) for caption in captions), verb) for verb, words in VERBS.items()
    ]
    (most, verb), (second, _) = sorted(counts, reverse=True)[:2]
    return verb if most >= 2 and most > second else ""


def read_lspet(weights: Path) -> People:
    """The training people of LSPET."""
    pack = DATA / "pose_lspet"
    found = np.load(pack / "joints.npz")
    rows = np.flatnonzero(found["split"] == "train")
    files = [pack / "images" / found["names"][row] for row in rows.tolist()]
    joints, visible = torch.from_numpy(found["joints"][rows]), torch.from_numpy(found["visible"][rows])
    return People("LSPET", joints, visible, feature_maps(files, weights))


@torch.no_grad()
def feature_maps(files: list[Path], weights: Path) -> Tensor:
    """Feature maps `[N, 1280 * 16]` of MobileNetV2 for images of 128 pixels."""
    network = mobilenet_v2()
    network.load_state_dict(torch.load(weights, weights_only=True))
    network.eval()
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    found = []
    for start in range(0, len(files), 64):
        pixels = torch.stack(
            [
                pil_to_tensor(Image.open(file).convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR))
                for file in files[start : start + 64]
            ]
        )
        found.append(network.features((pixels / 255 - mean[:, None, None]) / std[:, None, None]).flatten(1))
    return torch.cat(found)


# Agreement


def agreement(distances: Tensor, verbs: list[str]) -> Tensor:
    """The share of the k nearest with the same verb, `[3, Q]` for k of 1, 5, 10. Ties go to the lower row."""
    same = torch.tensor([[a == b for b in verbs] for a in verbs], dtype=torch.float64)
    order = distances.clone().fill_diagonal_(torch.inf).argsort(dim=1, stable=True)[:, :-1]  # without the query
    ranked = same.gather(1, order)
    return torch.stack([ranked[:, :k].mean(1) for k in KS])


def chance(verbs: list[str]) -> float:
    """The mean share of the other people with the same verb."""
    counts = Counter(verbs)
    return sum(n * (n - 1) for n in counts.values()) / (len(verbs) * (len(verbs) - 1))


def embed(train: Tensor, labels: MatrixLabels, queries: Tensor, rate: float, seed: int) -> Tensor:
    """Embeddings of queries by a linear head that is trained on training features `[N, D]`."""
    torch.manual_seed(seed)
    head = torch.nn.Linear(train.shape[1], DIM)
    optimizer = torch.optim.AdamW(head.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    loss = LogRatioLoss(squared=True)
    sampler = DenseSampler(BATCH, 20, 5, all_anchors=True, batches=STEPS, labels=labels, seed=seed)
    for rows in sampler:
        value = loss(torch.nn.functional.normalize(head(train[rows])), labels[rows])
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        return torch.nn.functional.normalize(head(queries))


def components(train: Tensor, queries: Tensor) -> tuple[Tensor, Tensor]:
    """Both features on the first principal components of the training features, scaled to a mean norm of 1."""
    mean = train.mean(0)
    directions = torch.linalg.svd(train - mean, full_matrices=False).Vh[:COMPONENTS].T
    first, second = (train - mean) @ directions, (queries - mean) @ directions
    scale = first.norm(dim=1).mean()
    return first / scale, second / scale


# Runs


def recorded() -> dict[tuple[str, ...], list[float]]:
    """The agreement `[3 Q]` of each training, by source, distance, rate and seed."""
    lines = RAW.read_text(encoding="utf-8").splitlines() if RAW.exists() else []
    return {tuple(row["key"]): row["agreement"] for row in map(json.loads, lines)}


def _record(key: tuple[str, ...], agreement_of_queries: Tensor) -> list[float]:
    values = [round(each, 6) for each in agreement_of_queries.flatten().tolist()]
    with RAW.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"key": key, "agreement": values}) + "\n")
    return values


def train_missing(people: dict[str, People], judged: People, verbs: list[str]) -> None:
    """Train what is not recorded."""
    found = recorded()
    for source, of_source in people.items():
        train, queries = components(of_source.features, judged.features)
        untrained, key = torch.nn.functional.normalize(queries), (source, "untrained features", "", "")
        if key not in found:
            found[key] = _record(key, agreement(torch.cdist(untrained, untrained), verbs))
        for name, kind in DISTANCES.items():
            if source != "COCO" and name == "saturating":  # without joints of the face it equals the next one
                continue
            labels = None
            for rate in RATES:
                for seed in SEEDS:
                    key = (source, name, str(rate), str(seed))
                    if key in found:
                        continue
                    labels = labels or MatrixLabels(of_source.distances(kind))
                    embeddings = embed(train, labels, queries, rate, seed)
                    values = agreement(torch.cdist(embeddings, embeddings), verbs)
                    found[key] = _record(key, values)
                    print(*key, *(f"{each:.3f}" for each in values.mean(1).tolist()), flush=True)


def chosen(found: dict[tuple[str, ...], list[float]], source: str, name: str) -> np.ndarray:
    """Agreement `[3, S, Q]`: each half of the judged people at the rate that is best for the other half."""
    values = {
        rate: np.stack([np.reshape(found[source, name, str(rate), str(seed)], (len(KS), -1)) for seed in SEEDS], 1)
        for rate in RATES
    }
    half = np.arange(values[RATES[0]].shape[2]) % 2 == 0
    result = np.empty_like(values[RATES[0]])
    for part in (half, ~half):
        best = max(RATES, key=lambda rate: values[rate][-1][:, ~part].mean())
        result[:, :, part] = values[best][:, :, part]
    return result


def rows_of(values: dict[str, np.ndarray], reference: str) -> list[list[str]]:
    """Rows of a table: agreement@k of each name `[3, S, Q]`, and the difference to the reference with its interval."""
    rows = []
    for name, each in values.items():
        row = [name]
        units = [list(range(each.shape[2]))]
        for n in range(len(KS)):
            row.append(f"{each[n].mean():.3f}")
            if name == reference:
                row.append("")
            else:
                difference = estimate([each[n] - values[reference][n]], units)
                row.append(f"{difference.mean:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]")
        rows.append(row)
    return rows


HEAD = [title for k in KS for title in (f"@{k}", "difference to pixels")]


def heads(source: str) -> str:
    """The table of the heads that are trained on people of a source, from the recorded trainings."""
    found = recorded()
    values = {name: chosen(found, source, name) for name in DISTANCES if (source, name, str(RATES[0]), "1") in found}
    values["untrained features"] = np.reshape(found[source, "untrained features", "", ""], (len(KS), 1, -1))
    return table([["trained on", *HEAD], *rows_of(values, "pixels")])


def page(weights: Path) -> str:
    """The tables."""
    coco, verbs_of_all = read_coco(weights)
    rows = [row for row, verb in enumerate(verbs_of_all) if verb]
    verbs, judged = [verbs_of_all[row] for row in rows], coco.at(rows)
    rest = coco.at([row for row, verb in enumerate(verbs_of_all) if not verb])
    people = {"COCO": rest, "LSPET": read_lspet(weights)}
    train_missing(people, judged, verbs)
    of_labels = {name: agreement(judged.distances(kind), verbs)[:, None].numpy() for name, kind in DISTANCES.items()}
    counts = ", ".join(f"{verb} {count}" for verb, count in Counter(verbs).most_common())
    parts = [
        f"{len(verbs)} judged people: {counts}. By chance, agreement is {chance(verbs):.3f}.",
        "## Label distances",
        table([["label distance", *HEAD], *rows_of(of_labels, "pixels")]),
    ]
    for source, of_source in people.items():
        parts += [f"## Embeddings of heads trained on {len(of_source.joints):,} people of {source}", heads(source)]
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weights", type=Path, required=True, help="torchvision's mobilenet_v2-b0353104.pth")
    parser.add_argument("--save", type=Path, help="write the tables to this file")
    given = parser.parse_args()
    torch.set_num_threads(1)
    text = f"{heading('Label distances of poses judged by people')}\n{page(given.weights)}\n"
    print(text)
    if given.save:
        given.save.write_text(text)


if __name__ == "__main__":
    main()
