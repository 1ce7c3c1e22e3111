"""Plot the weight of a pair against its similarity for some losses, one panel per loss.

    python -m benchmarks.pair_weights contrastive triplet_margin --output weights.png
    python -m benchmarks.pair_weights raw raw loss.beta=10 miner=vthm --output weights.png

The weight of a pair is dH/ds for negatives and -dH/ds for positives: how strongly the loss H changes the similarity s
(cosine of unit vectors), as in Figure 1 of "A Unified View of Deep Metric Learning via Gradient Analysis", without the
common divisor of all pairs. A weight may depend on all pairs of the anchor. So every loss gets the same anchor
(`SETUP`): the similarity of one of its pairs varies, the other pairs are fixed.
"""

from __future__ import annotations

import argparse
import copy
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from torch import Tensor, nn

from contml import InputError
from contml.app.report.plots import BLUE, DPI, GREY, INK, STYLE, WIDTH, Array, panels, plain, png
from contml.config import ConfiguredPart, Section, data_arguments, from_overrides, options, validate
from contml.evaluation.evaluated import value_text
from contml.labels import ClassLabels
from contml.losses import LOSSES, PairLoss
from contml.losses.pair_weights import block_weights
from contml.mining import MINERS, Miner

CLASSES, ITEMS, DIM = 16, 5, 128
POSITIVES, NEGATIVES = (0.4, 0.8), (-0.2, 0.6)
SETUP = (
    f"An anchor in a batch of {CLASSES} classes with {ITEMS} items each. The similarity of one of its pairs varies, "
    f"its other pairs are fixed: positives evenly spaced from {POSITIVES[0]} to {POSITIVES[1]}, negatives from "
    f"{NEGATIVES[0]} to {NEGATIVES[1]}. All other anchors have the same similarities. In a loss with proxies, these "
    "replace the items."
)
STEPS = 200
#: `[S]` within (-1, 1): at 1, where a distance is 0, it has no gradient.
SIMILARITIES = -1 + (2 * torch.arange(STEPS, dtype=torch.float64) + 1) / STEPS

GREEN = "#009E73"
POSITIVE: dict[str, Any] = {"color": GREEN, "linewidth": 2.0, "label": "positive pairs"}
NEGATIVE: dict[str, Any] = {"color": BLUE, "linewidth": 2.0, "linestyle": (0, (1, 1.2)), "label": "negative pairs"}
#: From this ratio of their largest weights on, positives and negatives have separate axes.
_SEPARATE_AXES = 4.0


@dataclass(frozen=True)
class Curves:
    """The weights of a positive and of a negative pair at each similarity `[S]`; name and options of the loss."""

    loss: str
    options: dict[str, Any]
    similarity: Array
    positive: Array
    negative: Array


def curves(arguments: Sequence[str]) -> list[Curves]:
    """The curves of losses named as in a config, each followed by its options: `["raw", "raw", "loss.beta=10"]`.

    Raises:
        InputError: no such loss or option, or a loss without such curves.
    """
    losses: list[list[str]] = []
    for argument in arguments:
        if "=" not in argument:
            losses.append([f"loss={argument}"])
        elif losses:
            losses[-1].append(argument)
        else:
            raise InputError(argument, "an option before any loss", hint="give options after the loss that has them")
    return [_curves_of(overrides) for overrides in losses]


def _curves_of(overrides: list[str]) -> Curves:
    schema = {
        "loss": Section(LOSSES, contract=nn.Module),
        "miner": Section(MINERS, required=False, contract=Miner),
    }
    parts = validate(from_overrides(overrides), schema).parts
    part = parts["loss"]
    data: dict[str, Any] = {"num_classes": CLASSES, "embedding_dim": DIM}
    if "miner" in parts:
        if "miner" not in data_arguments(part.constructor):
            option = next(override for override in overrides if override.startswith("miner"))
            raise InputError(option, f"{part.name} takes no miner", hint="omit this option")
        data["miner"] = parts["miner"].build()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        loss = part.build(**data)
    changed_options = {key: value for section in parts.values() for key, value in _changed_options(section).items()}
    return Curves(part.name, changed_options, SIMILARITIES.numpy(), *weight_curves(loss))


def _changed_options(part: ConfiguredPart) -> dict[str, Any]:
    """The options of a part that are not at their defaults; of a miner also its name."""
    defaults = {option.name: option.default for option in options(part.constructor)}
    changed = {name: value for name, value in part.options.items() if value != defaults[name]}
    if part.section != "miner":
        return changed
    return {"miner": part.name, **{f"miner.{name}": value for name, value in changed.items()}}


def weight_curves(loss: nn.Module) -> tuple[Array, Array]:
    """The weights of a positive and of a negative pair at each of `SIMILARITIES` `[S]`, as `SETUP` describes.

    The similarity is the cosine of unit vectors, whatever the loss compares. The rows of all other anchors are equal
    to the fixed row of the first, whose pair varies.

    Raises:
        InputError: the loss does not weigh positive and negative pairs.
    """
    if not isinstance(loss, PairLoss) or loss.requires == "graded":
        raise InputError(
            type(loss).__name__,
            "no positive and negative pairs",
            "must be a loss of labels that are 0 / 1 or classes",
        )
    loss = copy.deepcopy(loss).double()
    classes = torch.arange(CLASSES).repeat_interleave(ITEMS)
    embeddings = torch.randn(len(classes), DIM, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with torch.no_grad():
        comparison = loss.compare(embeddings, ClassLabels(classes))
        row_slice = slice(0, len(comparison.x) if loss.needs_whole_batch else 1)
        fixed_scores = torch.zeros(len(comparison.x[row_slice]), len(comparison.y), dtype=torch.float64)
        block = loss.block(comparison, fixed_scores.clone(), row_slice)
        compared = comparison.weights(fixed_scores, row_slice) > 0
        positive, negative = compared & (block.label_distances == 0), compared & (block.label_distances != 0)
        for row, positives, negatives in zip(fixed_scores, positive, negative, strict=True):
            row[positives] = _spaced_similarities(int(positives.sum()), *POSITIVES)
            row[negatives] = _spaced_similarities(int(negatives.sum()), *NEGATIVES)

    def weigh(pairs: Tensor) -> Array:
        """The weight `[S]` of the first of the anchor's pairs (bool `[B]`) at each similarity."""
        column = int(pairs.nonzero()[0])
        weights = []
        for value in SIMILARITIES:
            scores = fixed_scores.clone()
            scores[0, column] = value
            if loss.distance not in ("cosine", "dot"):
                scores = 2 - 2 * scores if loss.distance == "squared_euclidean" else (2 - 2 * scores).sqrt()
            weights.append(block_weights(loss, comparison, scores, row_slice, on_sphere=True)[0, column])
        return np.asarray(torch.stack(weights).numpy(), dtype=np.float64)

    return weigh(positive[0]), weigh(negative[0])


def _spaced_similarities(count: int, low: float, high: float) -> Tensor:
    """Similarities `[count]`: the first, which will vary, in the middle, and the others evenly spread."""
    middle = torch.tensor([(low + high) / 2], dtype=torch.float64)
    return torch.cat((middle, torch.linspace(low, high, count - 1, dtype=torch.float64)))[:count]


@matplotlib.rc_context(STYLE)
def weights_plot(drawn: Sequence[Curves]) -> Figure:
    """One panel per loss: weight against similarity, positives solid green, negatives dotted blue."""
    columns = {1: 1, 2: 2, 4: 2}.get(len(drawn), 3)
    width, lines = WIDTH if columns > 1 else 0.6 * WIDTH, -(-len(drawn) // columns)
    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08, hspace=0.03)
    figure = Figure(figsize=(width, 0.9 + 2.9 * lines), dpi=DPI, layout=layout)
    grid = panels(figure, len(drawn), columns)
    for axes, curve in zip(grid, drawn, strict=True):
        # Under the titles there is room for a line of options.
        _draw_panel(axes, curve, title_pad=20 if any(each.options for each in drawn) else None)
    for axes in grid[-columns:]:
        axes.set_xlabel("similarity")
    handles = [Line2D([], [], **style) for style in (POSITIVE, NEGATIVE)]
    figure.legend(handles=handles, loc="outside upper right", ncols=2)
    caption = f"{SETUP} Weights before the loss is averaged.".replace(" -", " \N{MINUS SIGN}")
    figure.supxlabel(textwrap.fill(caption, int(16 * width)), fontsize=8.5, color=GREY, x=0.01, ha="left")
    return figure


def _draw_panel(axes: Axes, curve: Curves, title_pad: float | None) -> None:
    axes.set_title(plain(curve.loss), pad=title_pad)
    words = ", ".join(f"{name} {value_text(value)}" for name, value in curve.options.items())
    words = plain(textwrap.shorten(words, 48, placeholder=" ..."))
    axes.annotate(words, (0, 1), (0, 6), xycoords="axes fraction", textcoords="offset points", fontsize=9, color=GREY)
    axes.set_xlim(-1, 1)
    axes.set_xticks([-1, -0.5, 0, 0.5, 1])
    lines = [(curve.positive, POSITIVE), (curve.negative, NEGATIVE)]
    largest = [float(np.abs(weights).max()) for weights, _ in lines]
    scales = [(axes, lines, "weight", INK)]
    if 0 < _SEPARATE_AXES * min(largest) <= max(largest):
        right = axes.twinx()
        right.grid(visible=False)
        scales = [(axes, lines[:1], "weight of positives", GREEN), (right, lines[1:], "weight of negatives", BLUE)]
    ranges = []
    for scale, scale_lines, label, color in scales:
        for weights, style in scale_lines:
            scale.plot(curve.similarity, weights, **style)
        scale.set_ylabel(label, color=color)
        if len(scales) > 1:
            scale.tick_params(axis="y", labelcolor=color)
        low, high = min(float(w.min()) for w, _ in scale_lines), max(float(w.max()) for w, _ in scale_lines)
        ranges.append((low, max(high, -low) or 1.0))
    # Negative weights are shown, unless rounding made them negative. Both scales have 0 at the same height.
    below = max(0.02, *(-1.08 * low / high for low, high in ranges))
    for (scale, *_), (_, high) in zip(scales, ranges, strict=True):
        scale.set_ylim(-below * high, 1.08 * high)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("losses", nargs="+", metavar="LOSS [KEY=VALUE]", help="names, each followed by its options")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="the picture")
    given = parser.parse_args()
    try:
        given.output.write_bytes(png(weights_plot(curves(given.losses))))
    except InputError as error:
        parser.error(str(error))
    print(given.output)
