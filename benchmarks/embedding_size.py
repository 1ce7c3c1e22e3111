"""Embedding size against retrieval quality, for three kinds of labels, with three seeds each.

    python -m benchmarks.embedding_size [--workers 2] [--minutes M] --save benchmarks/results/embedding_size.md \\
        --plot docs/embedding_size.png

Poses and captions: mean label distance@10, relative to that of a random ranking (lower is better). Classes: Recall@1 of
held-out classes (higher is better). Everything but the size is as in the config.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import matplotlib
from matplotlib.figure import Figure

from benchmarks import classes_real, synthetic
from benchmarks.trials import Job, Method, Metrics, Trials, arguments, main as print_tables
from contml.app.report.plots import BLUE, DPI, STYLE, draw_baselines, png
from contml.app.trials.record import FinishedTrainings
from contml.evaluation import half_width
from contml.evaluation.metrics import title_of
from contml.evaluation.results import Score

DIMS = (4, 16, 64, 256)
_OVERVIEW = """\
`python -m benchmarks.embedding_size`. Everything but the size is as in the config. Each size was trained with all seeds
and measured on the test split; nothing was chosen. The trainings ran beside other jobs, so their seconds say nothing
about the size."""


class Kind(NamedTuple):
    """A kind of labels: its config, how it is trained and measured, and the seconds of one training."""

    config: str
    train: Callable[[Job], Metrics]
    metric: str
    better: Literal["lower", "higher"]
    seconds: float


KINDS = {
    "pose": Kind("pose/synthetic", synthetic.train, "label_distance@10", "lower", 160),
    "captions": Kind("captions/synthetic", synthetic.train, "label_distance@10", "lower", 150),
    "classes": Kind("classes/synthetic", classes_real.train, "recall@1", "higher", 55),
}


def trials_of(name: str, raw: Path, dims: Sequence[int] = DIMS, changes: tuple[str, ...] = ()) -> Trials:
    """The trainings of one kind of labels: a method for each size, without options to choose."""
    kind = KINDS[name]
    methods = [Method(f"dim {dim}", kind.config, ("",), (f"model.dim={dim}",)) for dim in dims]
    record = FinishedTrainings(raw / "embedding_size.jsonl")
    return Trials(methods, kind.train, record, kind.better, test_changes=changes)


def size_plot(trials: dict[str, Trials]) -> Figure:
    """The metric against the size, of each kind of labels: the mean over the seeds, and their range."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(5 * len(trials), 4), dpi=DPI, layout="constrained")
        for axes, (name, each) in zip(figure.subplots(1, len(trials), squeeze=False)[0], trials.items(), strict=True):
            kind, sizes = KINDS[name], [int(method.name.removeprefix("dim ")) for method in each.methods]
            found = [[metrics["value"] for metrics in each.tests(method)] for method in each.methods]
            axes.plot(sizes, [statistics.mean(values) for values in found], marker="o", color=BLUE)
            axes.vlines(sizes, [min(values) for values in found], [max(values) for values in found], color=BLUE)
            first = each.tests(each.methods[0])[0]
            if kind.better == "lower":
                score = Score("", kind.better, first["value"], first.get("random", 1.0), first.get("oracle", 1.0))
                draw_baselines(axes, score, None)
            axes.set_xscale("log", base=2)
            axes.set_xticks(sizes, [str(size) for size in sizes])
            title = title_of(kind.metric) + (" / random" if kind.better == "lower" else "")
            axes.set_title(f"{kind.config}, test split\n{title}", fontsize=10)
            axes.set_xlabel("model.dim")
            axes.set_ylabel(f"{kind.better} is better")
            if kind.better == "lower":
                axes.legend()
    return figure


def last_step(trials: Trials) -> str:
    """What the last step to a larger size changes, paired by seed."""
    if len(trials.methods) < 2:
        return ""
    smaller, larger = trials.methods[-2:]
    both = zip(trials.tests(larger), trials.tests(smaller), strict=True)
    pairs = [a["value"] - b["value"] for a, b in both]
    return f"{larger.name} less {smaller.name}: {statistics.mean(pairs):+.3f} ± {half_width(pairs):.3f}."


def main(given: argparse.Namespace) -> None:
    trials = {name: trials_of(name, given.raw, given.dims, tuple(given.changes)) for name in given.only}
    titles = {
        "label_distance@10": "mean label distance@10 / random, lower is better",
        "recall@1": "Recall@1, higher is better",
    }
    parts = {
        f"{KINDS[name].config}: {titles[KINDS[name].metric]}": (each, KINDS[name].seconds)
        for name, each in trials.items()
    }
    print_tables("Embedding size", parts, {}, given, last_step, lambda _: _OVERVIEW)
    if given.plot is not None and all(each.done == each.total for each in trials.values()):
        given.plot.write_bytes(png(size_plot(trials)))


if __name__ == "__main__":
    parser = arguments(__doc__)
    parser.add_argument("--only", nargs="+", default=list(KINDS), choices=list(KINDS), help="these labels alone")
    parser.add_argument("--dims", nargs="+", type=int, default=DIMS, help="the sizes")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="also plot the metric against the size")
    parser.add_argument("changes", nargs="*", metavar="KEY=VALUE", help="changes to every config")
    main(parser.parse_args())
