"""Weight against similarity: what a pair loss makes of a pair, as Figure 1 of the unified view draws it.

A weight may depend on all pairs of the anchor, so an anchor is set up that is the same for every loss (`SETUP`), and
one of its pairs is moved while the others stay.
"""

from __future__ import annotations

import copy
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import matplotlib
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor, nn

from contml._support.errors import InputError
from contml.config import Part, Section, data_arguments, from_overrides, options, validate
from contml.labels import ClassLabels
from contml.losses import LOSSES, PairLoss
from contml.losses.driver import Comparison
from contml.losses.pair_weights import block_weights
from contml.mining import MINERS
from contml.report.plots import BLUE, DPI, GREY, INK, STYLE, WIDTH, Array, plain

CLASSES, ITEMS, DIM = 16, 5, 128
POSITIVES, NEGATIVES = (0.4, 0.8), (-0.2, 0.6)
SETUP = (
    f"An anchor in a batch of {CLASSES} classes with {ITEMS} items each. One of its pairs moves, the others stay: its "
    f"positives evenly from {POSITIVES[0]} to {POSITIVES[1]}, its negatives from {NEGATIVES[0]} to {NEGATIVES[1]}; "
    "the pairs of all other anchors are alike. Where a loss has proxies, they take the place of items."
)
STEPS = 200

GREEN = "#009E73"
POSITIVE: dict[str, Any] = {"color": GREEN, "linewidth": 2.0, "label": "positive pairs"}
NEGATIVE: dict[str, Any] = {"color": BLUE, "linewidth": 2.0, "linestyle": (0, (1, 1.2)), "label": "negative pairs"}
#: From this ratio of their largest weights on, positives and negatives have an axis each.
_APART = 4.0


@dataclass(frozen=True)
class Curves:
    """The weights of a positive and of a negative pair at each similarity `[S]`; name and options of the loss."""

    loss: str
    options: dict[str, Any]
    similarity: Array
    positive: Array
    negative: Array

    def as_data(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        lines = {"similarity": self.similarity, "positive": self.positive, "negative": self.negative}
        return {
            "loss": self.loss,
            "options": self.options,
            **{name: [float(f"{value:.6g}") for value in line] for name, line in lines.items()},
        }


def curves(arguments: Sequence[str]) -> list[Curves]:
    """The curves of losses named as in a config, each followed by options: `["raw", "raw", "loss.beta=10"]`.

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
            raise InputError(f"'{argument}' comes before any loss; options follow the loss that they are of")
    return [_curves_of(overrides) for overrides in losses]


def _curves_of(overrides: list[str]) -> Curves:
    schema = {"loss": Section(LOSSES), "miner": Section(MINERS, required=False)}
    parts = validate(from_overrides(overrides), schema).parts
    part = parts["loss"]
    data: dict[str, Any] = {"num_classes": CLASSES, "embedding_dim": DIM}
    if "miner" in parts:
        if "miner" not in data_arguments(part.constructor):
            raise InputError(f"{part.name} takes no miner; leave out '{overrides[-1]}'")
        data["miner"] = parts["miner"].build()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        loss = part.build(**data)
    given = {key: value for section in parts.values() for key, value in _changed(section).items()}
    similarity, positive, negative = weight_curves(loss)
    return Curves(part.name, given, similarity, positive, negative)


def _changed(part: Part) -> dict[str, Any]:
    """The options of a part that are not at their defaults; of a miner its name, too."""
    defaults = {option.name: option.default for option in options(part.constructor)}
    changed = {name: value for name, value in part.options.items() if value != defaults[name]}
    if part.section != "miner":
        return changed
    return {"miner": part.name, **{f"miner.{name}": value for name, value in changed.items()}}


def weight_curves(loss: nn.Module) -> tuple[Array, Array, Array]:
    """Similarities `[S]` over [-1, 1], and the weights of a positive and a negative pair at each, as `SETUP` says.

    The similarity is the cosine of unit vectors, whatever the loss is written on. What a loss reads in the rows of
    other anchors is the same as in that of the first, whose pair moves.

    Raises:
        InputError: the loss does not weigh positive and negative pairs.
    """
    if not isinstance(loss, PairLoss) or loss.requires in ("any", "graded"):
        raise InputError(
            f"{type(loss).__name__} has no positive and negative pairs to draw the weights of; "
            "choose a loss for labels that are 0 / 1 or classes"
        )
    loss = copy.deepcopy(loss).double()
    classes = torch.arange(CLASSES).repeat_interleave(ITEMS)
    embeddings = torch.randn(len(classes), DIM, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with torch.no_grad():
        comparison = loss.compare(embeddings, ClassLabels(classes))
        part = slice(0, len(comparison.x) if loss.whole else 1)
        shape = (len(range(len(comparison.x))[part]), len(comparison.y))
        nothing = torch.zeros(shape, dtype=torch.float64)
        block = loss.block(comparison, nothing, part)
        compared = comparison.weights(nothing, part) > 0
        positive, negative = compared & (block.label_distances == 0), compared & (block.label_distances != 0)
        still = torch.zeros(shape, dtype=torch.float64)
        for row, positives, negatives in zip(still, positive, negative, strict=True):
            row[positives] = _spread(int(positives.sum()), *POSITIVES)
            row[negatives] = _spread(int(negatives.sum()), *NEGATIVES)
    weigh = partial(_moved, loss, comparison, part, still)
    return _similarities().numpy(), weigh(positive[0]), weigh(negative[0])


def _similarities() -> Tensor:
    """`[S]` inside of [-1, 1]: at 1, where a distance is 0, it has no slope."""
    return -1 + (2 * torch.arange(STEPS, dtype=torch.float64) + 1) / STEPS


def _spread(count: int, low: float, high: float) -> Tensor:
    """Similarities `[count]`: the first, which is the one to move, in the middle, and the others evenly spread."""
    middle = torch.tensor([(low + high) / 2], dtype=torch.float64)
    return torch.cat((middle, torch.linspace(low, high, count - 1, dtype=torch.float64)))[:count]


def _moved(loss: PairLoss, comparison: Comparison, part: slice, still: Tensor, pairs: Tensor) -> Array:
    """The weights `[S]` of the first of the anchor's pairs `[B]` while it moves."""
    place = int(pairs.nonzero()[0])
    found = []
    for value in _similarities():
        s = still.clone()
        s[0, place] = value
        if loss.distance not in ("cosine", "dot"):
            s = 2 - 2 * s if loss.distance == "squared_euclidean" else (2 - 2 * s).sqrt()
        found.append(block_weights(loss, comparison, s, part, on_sphere=True)[0, place])
    return np.asarray(torch.stack(found).numpy(), dtype=np.float64)


def weights_plot(drawn: Sequence[Curves]) -> Figure:
    """One panel a loss: weight against similarity, positives solid green, negatives dotted blue."""
    columns = {1: 1, 2: 2, 4: 2}.get(len(drawn), 3)
    lines = -(-len(drawn) // columns)
    width = WIDTH if columns > 1 else 0.6 * WIDTH
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, 0.9 + 2.9 * lines), dpi=DPI, layout="constrained")
        engine = figure.get_layout_engine()
        assert engine is not None
        engine.set(w_pad=0.08, h_pad=0.08, hspace=0.03)  # type: ignore[call-arg]  # of the constrained layout
        panels = list(figure.subplots(lines, columns, squeeze=False).flat)
        for axes, curve in zip(panels, drawn, strict=False):
            _panel(axes, curve, any(each.options for each in drawn))
        for axes in panels[max(0, len(drawn) - columns) : len(drawn)]:
            axes.set_xlabel("similarity")
        for axes in panels[len(drawn) :]:
            axes.set_axis_off()
        lines_of = [Line2D([], [], **style) for style in (POSITIVE, NEGATIVE)]
        figure.legend(handles=lines_of, loc="outside upper right", ncols=2)
        caption = f"{SETUP} Weights before the common divisor.".replace(" -", " \N{MINUS SIGN}")
        figure.supxlabel(textwrap.fill(caption, int(16 * width)), fontsize=8.5, color=GREY, x=0.01, ha="left")
    return figure


def _panel(axes: Axes, curve: Curves, room: bool) -> None:
    """room: for a line of options under the title."""
    axes.set_title(plain(curve.loss), pad=20 if room else None)
    said = ", ".join(f"{name} {_said(value)}" for name, value in curve.options.items())
    said = plain(textwrap.shorten(said, 48, placeholder=" ..."))
    axes.annotate(said, (0, 1), (0, 6), xycoords="axes fraction", textcoords="offset points", fontsize=9, color=GREY)
    axes.set_xlim(-1, 1)
    axes.set_xticks([-1, -0.5, 0, 0.5, 1])
    sides = [(curve.positive, POSITIVE), (curve.negative, NEGATIVE)]
    sizes = [float(np.abs(weights).max()) for weights, _ in sides]
    if 0 < _APART * min(sizes) <= max(sizes):
        other = axes.twinx()
        other.grid(visible=False)
        ranges = [
            _drawn(axes, [sides[0]], "weight of positives", GREEN),
            _drawn(other, [sides[1]], "weight of negatives", BLUE),
        ]
    else:
        other = axes
        ranges = [_drawn(axes, sides, "weight", None)]
    # Weights below 0 go the wrong way, and are seen; those of rounding are not. 0 is at one height on both sides.
    below = max(0.02, *(-1.08 * low / high for low, high in ranges))
    for side, (_, high) in zip((axes, other), ranges, strict=False):
        side.set_ylim(-below * high, 1.08 * high)


def _drawn(axes: Axes, lines: list[tuple[Array, dict[str, Any]]], label: str, color: str | None) -> tuple[float, float]:
    """Lines on an axis of theirs; their least and their largest weight, that above 0."""
    for weights, style in lines:
        axes.plot(_similarities().numpy(), weights, **style)
    axes.set_ylabel(label, color=color or INK)
    if color:
        axes.tick_params(axis="y", labelcolor=color)
    low, high = min(float(w.min()) for w, _ in lines), max(float(w.max()) for w, _ in lines)
    return low, max(high, -low) or 1.0


def _said(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)
