"""Losses of pytorch-metric-learning under its own names, `pml:TripletMarginLoss`: to compare with, or to have at all.

Their options in a config are the library's own, as far as these are numbers, words or switches; distances, reducers
and regularisers are the library's defaults. What they do with a batch is the library's affair.
"""

from __future__ import annotations

import functools
import inspect
from types import ModuleType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from contml._support.errors import InputError, did_you_mean
from contml.contracts import Requirement
from contml.distances.euclidean import full_precision
from contml.labels.base import LabelSpace
from contml.losses.class_index import ClassIndex
from contml.losses.inputs import as_anchors, as_labels, check_embeddings

PREFIX = "pml:"
#: What the library calls that which the data tell.
_DATA = {"num_classes": "num_classes", "embedding_size": "embedding_dim", "descriptors_dim": "embedding_dim"}
#: Options that are objects, and what belongs to them.
_OBJECTS = (
    "distance",
    "reducer",
    "embedding_regularizer",
    "embedding_reg_weight",
    "weight_regularizer",
    "weight_reg_weight",
    "weight_init_func",
    "collect_stats",
    "mat_based_loss",
)
_REFUSED = {
    "BaseMetricLossFunction": "is a base class",
    "GenericPairLoss": "is a base class",
    "CrossBatchMemory": "wraps a loss: give the config a section 'memory'",
    "MultipleLosses": "takes other losses, which a config cannot name",
    "SelfSupervisedLoss": "takes no labels",
    "ManifoldLoss": "takes no labels",
    "VICRegLoss": "takes no labels",
    "DynamicSoftMarginLoss": "keeps a histogram that no checkpoint would hold",
    "HistogramLoss": "indexes tensors in a way that PyTorch no longer reads as it is meant",
    "SmoothAPLoss": "needs batches in order of class, with equally many items of each",
}


def pml_loss(name: str) -> type[PMLLoss] | None:
    """The loss that a config calls `pml:NAME`, made like any of `LOSSES`; None where it is no such name.

    Raises:
        InputError: the library is not installed, or has no loss NAME that trains on class labels.
    """
    return _adapter(name) if name.startswith(PREFIX) else None


class PMLLoss(nn.Module):
    """Base of the losses of pytorch-metric-learning: each is a subclass whose signature shows its options.

    All items of a batch are anchors. In float32, or float64 for float64 embeddings, whatever autocast says.
    """

    requires: Requirement = "classes"
    library: ClassVar[type[nn.Module]]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__()
        given = inspect.signature(type(self)).bind(*args, **options)
        given.apply_defaults()
        values = dict(given.arguments)
        ids = values.pop("class_ids", None)
        self.index = ClassIndex(values["num_classes"], ids) if "num_classes" in values else None
        for theirs, ours in _data(self.library).items():
            values[theirs] = values.pop(ours)
        try:
            self.loss = self.library(**values)
        except (ArithmeticError, AssertionError, TypeError, ValueError) as error:
            raise InputError(f"{type(self).__name__}: {_line(error)}") from error

    def forward(self, embeddings: Tensor, labels: LabelSpace | Tensor, *, anchors: Tensor | None = None) -> Tensor:
        """The loss of a batch.

        Args:
            embeddings: `[B, d]`.
            labels: a label space of classes, or integer classes `[B]`.
            anchors: positions of all items, in any order.

        Raises:
            InputError: labels that are no classes, anchors that are not all items, a batch that the library refuses.
        """
        name = type(self).__name__
        check_embeddings(name, embeddings)
        positions = as_anchors(anchors, embeddings)
        if positions is not None and len(set(positions.tolist())) != len(embeddings):
            raise InputError(
                f"{name} takes all items of a batch as anchors, but {len(positions)} of {len(embeddings)} are to be "
                "anchors; let all items be anchors, or choose a loss of contml"
            )
        classes = as_labels(name, self.requires, labels, embeddings, positions).class_ids
        assert classes is not None
        classes = classes.to(embeddings.device)
        classes = classes.long() if self.index is None else self.index(classes)
        try:
            with torch.autocast(embeddings.device.type, enabled=False):
                value: Tensor = self.loss(full_precision(embeddings), classes)
        except (AssertionError, NotImplementedError, ValueError) as error:
            raise InputError(f"{name}: {_line(error)}") from error
        return value.reshape(())


@functools.cache
def _adapter(name: str) -> type[PMLLoss]:
    library, theirs = _library(name), name.removeprefix(PREFIX)
    if theirs in _REFUSED:
        raise InputError(f"{name} {_REFUSED[theirs]}; choose another loss")
    known: dict[str, Any] = {
        key: found
        for key, found in vars(library).items()
        if inspect.isclass(found) and issubclass(found, library.BaseMetricLossFunction) and key not in _REFUSED
    }
    if theirs not in known:
        hint = did_you_mean(name, [PREFIX + key for key in known], f"it has {', '.join(sorted(known))}")
        raise InputError(f"pytorch-metric-learning has no loss '{theirs}'; {hint}")
    loss: type[nn.Module] = known[theirs]
    doc = f"{theirs} of pytorch-metric-learning.\n\n{inspect.cleandoc(loss.__doc__ or '')}"
    return type(name, (PMLLoss,), {"library": loss, "__signature__": _signature(loss), "__doc__": doc})


def _library(name: str) -> ModuleType:
    try:
        from pytorch_metric_learning import losses
    except ModuleNotFoundError as error:
        raise InputError(
            f"'{name}' is a loss of pytorch-metric-learning, but '{error.name}' is not installed; "
            'pip install "contml[pml]"'
        ) from None
    module: ModuleType = losses
    return module


def _arguments(loss: type[nn.Module]) -> dict[str, inspect.Parameter]:
    """All arguments of a constructor that are no objects, those that it hands on to its bases among them."""
    found: dict[str, inspect.Parameter] = {}
    for base in loss.__mro__:
        if "__init__" in vars(base):
            own = list(inspect.signature(vars(base)["__init__"]).parameters.values())[1:]  # without self
            for p in own:
                if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name not in _OBJECTS:
                    found.setdefault(p.name, p)
            if not any(p.kind is p.VAR_KEYWORD for p in own):
                break
    return found


def _data(loss: type[nn.Module]) -> dict[str, str]:
    """What a loss has to be told of the data, by its own words: ours."""
    return {name: _DATA[name] for name, p in _arguments(loss).items() if name in _DATA and p.default is p.empty}


def _signature(loss: type[nn.Module]) -> inspect.Signature:
    # A number of classes that a loss can do without would change what it is: it stays away.
    options = [p for name, p in _arguments(loss).items() if name not in _DATA]
    positional = [p.replace(kind=p.POSITIONAL_OR_KEYWORD, annotation=_kind(p)) for p in options]
    positional.sort(key=lambda p: p.default is not p.empty)
    data = list(_data(loss).values())
    keywords = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=int) for name in data]
    if "num_classes" in data:
        keywords.append(inspect.Parameter("class_ids", inspect.Parameter.KEYWORD_ONLY, default=None))
    return inspect.Signature([*positional, *keywords])


def _kind(p: inspect.Parameter) -> Any:
    """The type of an option, which the library tells by its default alone: a whole number may stand for any number."""
    kinds: dict[type, Any] = {bool: bool, float: float, int: int | float, str: int | str}
    if p.default is p.empty:
        return int | float
    if p.default is None:
        return int | float | None
    return kinds[type(p.default)]


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
