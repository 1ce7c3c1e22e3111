"""Losses of pytorch-metric-learning under its own names, such as `pml:TripletMarginLoss`.

A config can set options that are numbers, strings or booleans; distances, reducers and regularizers are the
library's defaults.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from contml._support.errors import InputError, did_you_mean, one_line
from contml._support.validation import Range
from contml.contracts import Requirement
from contml.distances.euclidean import full_precision
from contml.labels.base import LabelSpace
from contml.losses.inputs import as_anchors, as_labels, check_dim, check_embeddings, nan_unless_finite
from contml.losses.proxies import ClassIndex

PREFIX = "pml:"
#: Arguments of the library that come from the data, and our names for them.
_DATA_ARGUMENTS = {"num_classes": "num_classes", "embedding_size": "embedding_dim", "descriptors_dim": "embedding_dim"}
#: Options that are objects, and the options that go with them.
_OBJECT_OPTIONS = (
    "distance", "reducer", "embedding_regularizer", "embedding_reg_weight", "weight_regularizer", "weight_reg_weight",
    "weight_init_func", "collect_stats", "mat_based_loss",
)  # fmt: skip
_UNSUPPORTED = {
    **dict.fromkeys(("BaseMetricLossFunction", "GenericPairLoss"), "a base class"),
    **dict.fromkeys(("SelfSupervisedLoss", "ManifoldLoss", "VICRegLoss"), "takes no labels"),
    "CrossBatchMemory": "wraps a loss: use the config section 'memory'",
    "MultipleLosses": "takes other losses, which a config cannot name",
    "DynamicSoftMarginLoss": "keeps a histogram that is not saved in checkpoints",
    "HistogramLoss": "indexes tensors in a way that current PyTorch reads differently",
    "SmoothAPLoss": "needs batches sorted by class, with the same number of items of each",
}


def pml_loss(name: str) -> type[PMLLoss] | None:
    """Return the loss class for the name `pml:NAME`, constructed like the classes in `LOSSES`.

    Return None for other names.

    Raises:
        InputError: the library is not installed, or has no loss NAME that trains on class labels.
    """
    return _adapter_class(name) if name.startswith(PREFIX) else None


class PMLLoss(nn.Module):
    """Base of the losses of pytorch-metric-learning: each is a subclass whose signature shows its options.

    All items of a batch are anchors. Losses compute in float32 (float64 for float64 embeddings), also under autocast.
    """

    requires: Requirement = "classes"
    library: ClassVar[type[nn.Module]]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__()
        bound = inspect.signature(type(self)).bind(*args, **options)
        bound.apply_defaults()
        values = dict(bound.arguments)
        ids = values.pop("class_ids", None)
        self.index = ClassIndex(values["num_classes"], ids) if "num_classes" in values else None
        self.embedding_dim: int | None = values.get("embedding_dim")
        for option, value in values.items():
            if isinstance(value, float):
                Range().check(option, value)
        for pml_name, our_name in _data_arguments(self.library).items():
            values[pml_name] = values.pop(our_name)
        try:
            self.loss = self.library(**values)
        except (ArithmeticError, AssertionError, TypeError, ValueError) as error:
            raise InputError(type(self).__name__, one_line(error)) from error

    def forward(self, embeddings: Tensor, labels: LabelSpace | Tensor, *, anchors: Tensor | None = None) -> Tensor:
        """Compute the loss of a batch, a scalar.

        Args:
            embeddings: `[B, d]`.
            labels: a label space of classes, or integer classes `[B]`.
            anchors: positions of all items, in any order.

        Raises:
            InputError: labels are not classes, anchors are not all items, or the library refuses the batch.
        """
        name = type(self).__name__
        check_embeddings(embeddings)
        if self.embedding_dim is not None:
            check_dim(embeddings, self.embedding_dim, name)
        positions = as_anchors(anchors, embeddings)
        if positions is not None and len(set(positions.tolist())) != len(embeddings):
            got, allowed = f"{len(positions)} of {len(embeddings)} items", f"must be all items for {name}"
            raise InputError("anchors", got, allowed, "make all items anchors, or choose a loss of contml")
        space = as_labels(name, self.requires, labels, embeddings, positions)
        assert space.class_ids is not None
        classes = space.class_ids.to(embeddings.device)
        if self.index is not None:
            self.index.recognize(space)
            classes = self.index(classes)
        try:
            with torch.autocast(embeddings.device.type, enabled=False):
                value: Tensor = self.loss(full_precision(embeddings), classes)
        except (AssertionError, NotImplementedError, ValueError) as error:
            raise InputError(name, one_line(error)) from error
        return value.reshape(()) + nan_unless_finite([embeddings, *self.parameters()]).to(value)


@functools.cache
def _adapter_class(name: str) -> type[PMLLoss]:
    try:
        from pytorch_metric_learning import losses as library
    except ModuleNotFoundError as error:
        raise InputError(name, f"{error.name} is not installed", hint='pip install "contml[pml]"') from None
    loss_name = name.removeprefix(PREFIX)
    if loss_name in _UNSUPPORTED:
        raise InputError(name, _UNSUPPORTED[loss_name], hint="choose another loss")
    found = [each for each in vars(library).items() if inspect.isclass(each[1]) and each[0] not in _UNSUPPORTED]
    losses = {key: value for key, value in found if issubclass(value, library.BaseMetricLossFunction)}
    if loss_name not in losses:
        hint = did_you_mean(name, [PREFIX + key for key in losses], f"choose one of {', '.join(sorted(losses))}")
        raise InputError(name, "not a loss of pytorch-metric-learning", hint=hint)
    loss: type[nn.Module] = losses[loss_name]
    doc = f"{loss_name} of pytorch-metric-learning.\n\n{inspect.cleandoc(loss.__doc__ or '')}"
    return type(name, (PMLLoss,), {"library": loss, "__signature__": _signature(loss), "__doc__": doc})


def _arguments(loss: type[nn.Module]) -> dict[str, inspect.Parameter]:
    """Return the arguments of a constructor that are not objects, including arguments of its bases."""
    arguments: dict[str, inspect.Parameter] = {}
    for base in loss.__mro__:
        if "__init__" in vars(base):
            parameters = list(inspect.signature(vars(base)["__init__"]).parameters.values())[1:]  # without self
            for p in parameters:
                if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name not in _OBJECT_OPTIONS:
                    arguments.setdefault(p.name, p)
            if not any(p.kind is p.VAR_KEYWORD for p in parameters):
                break
    return arguments


def _data_arguments(loss: type[nn.Module]) -> dict[str, str]:
    """Return the required arguments of a loss that come from the data: a mapping from the library's names to ours."""
    required = [name for name, p in _arguments(loss).items() if p.default is p.empty]
    return {name: our_name for name, our_name in _DATA_ARGUMENTS.items() if name in required}


def _signature(loss: type[nn.Module]) -> inspect.Signature:
    # Optional arguments from the data are left out: a number of classes would change the loss.
    options = [p for name, p in _arguments(loss).items() if name not in _DATA_ARGUMENTS]
    positional = [p.replace(kind=p.POSITIONAL_OR_KEYWORD, annotation=_option_type(p)) for p in options]
    positional.sort(key=lambda p: p.default is not p.empty)
    data_names = list(_data_arguments(loss).values())
    keywords = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=int) for name in data_names]
    if "num_classes" in data_names:
        keywords.append(inspect.Parameter("class_ids", inspect.Parameter.KEYWORD_ONLY, default=None))
    return inspect.Signature([*positional, *keywords])


def _option_type(p: inspect.Parameter) -> Any:
    """Return the type of an option, from its default, since the library has no annotations.

    An option with an integer as default takes any number.
    """
    if p.default is p.empty:
        return int | float
    kinds = {bool: bool, float: float, int: int | float, str: int | str, type(None): int | float | None}
    return kinds[type(p.default)]
