"""The first numbers of a Matryoshka embedding against separately trained shorter embeddings.

    python -m benchmarks.matryoshka data=FOLDER weights=FILE

FOLDER holds the data packs of the maintainers, FILE is `mobilenet_v2-b0353104.pth` of torchvision. Every training is
that of the preset `features` (`benchmarks/presets.py`): a linear head on the frozen features, 128 numbers, except for
the length. Of one training with `model.nested_dims=[8, 16, 32, 64]`, the first 8 and 32 numbers are measured; beside
them trainings for 8, 32 and 128 numbers, and the first numbers of the one for 128. A finished training is a line of
`benchmarks/results/raw/matryoshka.jsonl`; the same command goes on. Every item of the test split is a query. Intervals
are over seeds and groups of queries (`contml.app.trials.statistics`). Page and plot:
`benchmarks/results/matryoshka.md`, `docs/matryoshka.png`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import heading, table
from benchmarks.presets import MEAN, SEEDS, every_query, experiment_of, per_query, with_matrices
from contml.app.trials.statistics import estimate
from contml.data import Task
from contml.models import EmbeddingModel
from contml.models.heads import cut_head

NESTED, DIMS, WHOLE = [8, 16, 32, 64], (8, 32), 128
NAMES = ("poses", "houses")
RAW = Path(__file__).parent / "results" / "raw" / "matryoshka.jsonl"
PAGE, PLOT = RAW.parents[1] / "matryoshka.md", RAW.parents[3] / "docs" / "matryoshka.png"
#: What is trained, and its changes to the preset.
TRAININGS = {
    "matryoshka": [f"model.nested_dims={NESTED}"],
    **{f"alone {dim}": [f"model.dim={dim}"] for dim in (*DIMS, WHOLE)},
}


def trainings(data: str, weights: str) -> Iterator[dict[str, Any]]:
    """Trains what has no line yet: the scores of each length that is measured."""
    done = {(row["set"], row["seed"], row["training"]) for row in read()}
    tasks: dict[str, Task] = {}
    for name, seed, training in itertools.product(NAMES, SEEDS, TRAININGS):
        if (name, seed, training) in done:
            continue
        experiment = experiment_of(name, data, weights, seed, [MEAN, *TRAININGS[training]])
        if name not in tasks:
            tasks[name] = with_matrices(experiment.build_task())
        trainer = experiment.build_trainer(tasks[name], quiet=True)
        model = trainer.bare_model
        assert isinstance(model, EmbeddingModel)
        model.has_new_head = False  # heads are compared, not the features
        trainer.fit()
        trainer.take_best()
        split = every_query(tasks[name].evaluated)
        lengths = [model.embedding_dim, *(dim for dim in DIMS if model.embedding_dim == WHOLE)]
        scores = {dim: per_query(*trainer.evaluate(split, shortened(model, dim))[:2]) for dim in lengths}
        groups = list(range(len(split))) if split.groups is None else split.groups.tolist()
        yield {"set": name, "seed": seed, "training": training, "scores": scores, "groups": groups}


def shortened(model: EmbeddingModel, dim: int) -> EmbeddingModel:
    """The first numbers of an embedding, also where it was not trained for that."""
    if dim == model.embedding_dim or dim in model.nested_dims:
        return model if dim == model.embedding_dim else model.with_dim(dim)
    cut = copy(model)
    cut._modules, cut.parts = {**model._modules, "head": cut_head(model.head, dim)}, [dim]
    return cut


def read() -> list[dict[str, Any]]:
    """The finished trainings."""
    return [json.loads(line) for line in RAW.read_text(encoding="utf-8").splitlines()] if RAW.exists() else []


def scores(name: str) -> dict[str, dict[int, np.ndarray[Any, Any]]] | None:
    """The scores `[seeds, queries]` of a set by what was trained and length; None: a training is missing."""
    rows = {(row["training"], row["seed"]): row["scores"] for row in read() if row["set"] == name}
    if len(rows) < len(TRAININGS) * len(SEEDS):
        return None

    def of(training: str, dim: int) -> np.ndarray[Any, Any]:
        return np.array([rows[training, seed][str(dim)] for seed in SEEDS])

    return {
        "matryoshka": {dim: of("matryoshka", dim) for dim in (*DIMS, WHOLE)},
        "alone": {dim: of(f"alone {dim}", dim) for dim in (*DIMS, WHOLE)},
        "first numbers": {dim: of(f"alone {WHOLE}", dim) for dim in (*DIMS, WHOLE)},
    }


def tables() -> str:
    """The table of each set whose trainings are finished."""
    parts = []
    for name in NAMES:
        found = scores(name)
        if found is None:
            continue
        rows = [["length", "trained alone", "Matryoshka", "less alone", "first numbers of 128", "less alone"]]
        groups = next(row["groups"] for row in read() if row["set"] == name)
        for dim in (*DIMS, WHOLE):
            alone, cells = found["alone"][dim], [str(dim), f"{found['alone'][dim].mean():.3f}"]
            for way in ("matryoshka", "first numbers"):
                gap = found[way][dim] - alone
                each = estimate([gap], [groups])
                same = way == "first numbers" and dim == WHOLE
                words = "-" if same else f"{each.mean:+.3f} ({each.low:+.3f} to {each.high:+.3f})"
                cells += [f"{found[way][dim].mean():.3f}", words]
            rows.append(cells)
        parts.append(f"## {name}\n\n{len(groups):,} queries.\n\n{table(rows)}")
    return "\n\n".join(parts)


def plot() -> bytes:
    """The scores by length, a panel for each set."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    from contml.app.report.plots import png

    names = [name for name in NAMES if scores(name) is not None]
    figure, axes = pyplot.subplots(1, len(names), figsize=(3.2 * len(names), 3), squeeze=False, layout="constrained")
    for axis, name in zip(axes[0], names, strict=True):
        found = scores(name)
        assert found is not None
        for way, style in {"alone": "o-", "matryoshka": "s-", "first numbers": "^:"}.items():
            label = {"alone": "trained alone", "matryoshka": "Matryoshka", "first numbers": "first numbers of 128"}[way]
            axis.plot(
                [*found[way]], [values.mean() for values in found[way].values()], style, label=label, markersize=4
            )
        axis.set(title=name, xscale="log", xlabel="numbers of the embedding", xticks=(*DIMS, WHOLE))
        axis.set_xticks((*DIMS, WHOLE), map(str, (*DIMS, WHOLE)))
        axis.minorticks_off()
    axes[0][0].set_ylabel("normalized score")
    axes[0][0].legend(fontsize=8)
    return png(figure)


def main() -> None:
    """Train what is missing, and write the page and the plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("places", nargs=2, metavar="NAME=PATH", help="data=FOLDER weights=FILE")
    places = dict(word.split("=", 1) for word in parser.parse_args().places)
    for row in trainings(places["data"], places["weights"]):
        with RAW.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        means = " ".join(f"{dim}: {np.mean(values):.4f}" for dim, values in row["scores"].items())
        sys.stderr.write(f"{row['set']}, seed {row['seed']}, {row['training']}: {means}\n")
    text = (
        f"{heading('Matryoshka embeddings')}\n`python -m benchmarks.matryoshka data=FOLDER weights=FILE`. Normalized "
        "score of label distance@10 on the test split, higher is better: the mean of three seeds. In brackets the 95 % "
        f"interval over seeds and queries.\n\n{tables()}\n"
    )
    PAGE.write_text(text, encoding="utf-8")
    PLOT.write_bytes(plot())
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
