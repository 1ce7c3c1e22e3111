"""A metric learned from arrays, as a scikit-learn estimator.

metric = ContinuousMetric().fit(X, y)       # X: features [n, d]; y: numbers [n], vectors [n, k] or classes [n]
metric.transform(X)                         # embeddings [n, dim], whose distances follow the label distances
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal, Self, TypeAlias

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted, column_or_1d, validate_data
from torch import Tensor, nn

from contml._support.errors import InputError, did_you_mean, one_line
from contml._support.validation import NonNegativeInt, PositiveFloat, PositiveInt, Range, check_arguments, check_whole
from contml.config import data_arguments
from contml.contracts import Sampler
from contml.data import Images, Split, Vector
from contml.distances.euclidean import normalize
from contml.evaluation import evaluate
from contml.evaluation.evaluated import is_untrained
from contml.labels import ClassLabels, LabelSpace, NumberLabels, VectorLabels
from contml.losses import LOSSES, CrossBatchMemory, PairLoss
from contml.losses.inputs import check_loss, check_requirement
from contml.sampling import ClassSampler, UniformSampler
from contml.training import EmbeddingStep, Trainer, Training
from contml.training.optimizers import adamw, cosine

__all__ = ["ContinuousMetric"]

Array: TypeAlias = np.ndarray[Any, Any]

#: The hint if a loss does not take the labels of `fit`, by the requirement of the loss.
_HINTS = {
    "graded": 'give numbers, or choose a loss of classes, such as loss="multi_similarity"',
    "binary": 'give classes (labels="classes"), or binarized labels such as contml.NearestLabels(space, k)',
    "classes": 'give classes (labels="classes")',
}
#: Items per class in a batch that cannot hold all classes.
_INSTANCES = 4


class ContinuousMetric(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Learns an embedding of feature vectors whose distances follow the distances between labels.

    The network has fully connected layers. `contml.Trainer` trains it with AdamW and a cosine schedule. Euclidean
    distances of the embeddings are the learned metric. Scale the features first, for example with `StandardScaler`.

    `y` is one of these:

    - numbers `[n]` or vectors `[n, k]`: label distances are Euclidean;
    - classes `[n]`: strings and booleans, or integers with `labels="classes"`;
    - a label space of contml, such as `GeoLabels`, or a list of parts of one, `[space[[0]], space[[1]], ...]`, which
      `GridSearchCV` can split.

    Args:
        dim: number of dimensions of an embedding.
        hidden: width of each hidden layer; `()` learns a linear map.
        loss: the name of a loss (`contml list losses`), or a loss, which is copied. The embeddings have length 1 if the
            loss compares unit vectors.
        labels: the type of `y`: "numbers" or "classes". "auto" reads integers and floats as numbers, all else as
            classes.
        epochs: passes over the items.
        batch_size: items per batch; all items if there are fewer.
        learning_rate: learning rate of AdamW at the start.
        random_state: seed of the weights and the batches, as elsewhere in scikit-learn.
        device: "auto" trains on a CUDA device if there is one; "cpu"; "cuda".
        verbose: show the progress of the training.

    Attributes:
        network_: the trained network, on the CPU.
        embedding_: embeddings of the training items `[n, dim]`.
        n_features_in_: number of features.
        feature_names_in_: names of the features, if X had any.
    """

    def __init__(
        self,
        dim: PositiveInt = 16,
        *,
        hidden: Sequence[int] = (128,),
        loss: str | nn.Module = "log_ratio",
        labels: Literal["auto", "numbers", "classes"] = "auto",
        epochs: NonNegativeInt = 50,
        batch_size: Annotated[int, Range(2, whole=True)] = 128,
        learning_rate: PositiveFloat = 1e-3,
        random_state: int | np.random.RandomState | None = None,
        device: Literal["auto", "cpu", "cuda"] = "auto",
        verbose: bool = False,
    ) -> None:
        self.dim, self.hidden, self.loss, self.labels = dim, hidden, loss, labels
        self.epochs, self.batch_size, self.learning_rate = epochs, batch_size, learning_rate
        self.random_state, self.device, self.verbose = random_state, device, verbose

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Train on features X `[n, d]` and labels y.

        Raises:
            ValueError: X is not a matrix of finite numbers.
            InputError: a parameter or the labels do not fit, or the training diverged. An InputError is a ValueError
                too.
        """
        check_arguments(type(self), self.get_params(deep=False))
        if not isinstance(self.hidden, tuple | list | np.ndarray):
            raise InputError("hidden", repr(self.hidden), "must be the width of each layer, such as (128,)")
        for width in self.hidden:
            check_whole(1, hidden=width)
        if _parts_of_a_space(y):
            X = validate_data(self, X, dtype=np.float32, ensure_min_samples=2)  # noqa: N806
        else:
            X, y = validate_data(self, X, y, dtype=np.float32, multi_output=True, ensure_min_samples=2)  # noqa: N806
        given_loss = self._given_loss()
        labels = _label_space(y, self.labels)
        if len(labels) != len(X):
            raise InputError("y", f"{len(labels)} labels for {len(X)} items", hint="give one label per item")
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            loss = self._loss_for(labels, given_loss)
            layers: list[nn.Module] = []
            for width, next_width in pairwise([X.shape[1], *self.hidden, self.dim]):
                layers += [nn.Linear(width, next_width), nn.ReLU()]
        inner_loss = loss.loss if isinstance(loss, CrossBatchMemory) else loss
        on_sphere = isinstance(inner_loss, PairLoss) and inner_loss.on_sphere
        network = nn.Sequential(*layers[:-1], *([_UnitLength()] if on_sphere else []))
        split = Split([Vector(row) for row in X], [f"item {row}" for row in range(len(X))], labels)
        options = Training(epochs=self.epochs, select="none", precision="float32")
        rates: Any = {"schedule": lambda optimizer, _, total: cosine(optimizer=optimizer, total_steps=total)}
        rates["optimizer"] = lambda groups: adamw(lr=self.learning_rate, groups=groups)
        step, sampler = EmbeddingStep(loss=loss), self._sampler(labels, seed)
        about: Any = {"quiet": not self.verbose, "device": self.device}
        trainer = Trainer(network, step, split, sampler, Images(), options, **rates, **about)
        try:
            trainer.fit()
        except InputError as error:
            if error.subject not in ("loss", "weights"):  # not finite
                raise
            hint = "scale the features, for example with StandardScaler, or lower learning_rate"
            raise InputError(error.subject, error.got, error.allowed, hint) from None
        if self.epochs and is_untrained(trainer.epoch, trainer.trained):
            hint = "no step of the training changed it: check learning_rate, loss and y"
            warnings.warn(f"the network has its initial weights, since {hint}", UserWarning, stacklevel=2)
        self.network_ = trainer.whole_model().cpu().eval()
        self._n_features_out = self.dim
        self.embedding_ = self._embed(X)
        return self

    def transform(self, X: Any) -> Array:  # noqa: N803
        """Return the embeddings `[n, dim]` of X, in its precision: float32 or float64."""
        check_is_fitted(self)
        return self._embed(validate_data(self, X, dtype=(np.float64, np.float32), reset=False))

    def score(self, X: Any, y: Any) -> float:  # noqa: N803
        """Return how well the embedding ranks the items of X for each other: 1 as by label distance, 0 as at random.

        The score is the normalized score of the mean label distance of the 10 nearest items. With fewer than 100 items,
        a tenth of the items takes the place of the 10. For classes, it is the normalized score of Recall@1. Return NaN
        if all label distances are equal.
        """
        embeddings = self.transform(X)
        if not _parts_of_a_space(y):
            y = check_array(y, ensure_2d=False, dtype=None, input_name="y")
        return evaluate(embeddings, _label_space(y, self.labels), clusters=False).score

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _embed(self, X: Array) -> Array:  # noqa: N803
        # float64 features are embedded in float64: a row then has the same embedding alone and among others.
        network = self.network_ if X.dtype == np.float32 else copy.deepcopy(self.network_).double()
        with torch.inference_mode():
            embeddings: Array = network(torch.tensor(X)).numpy()
        return embeddings

    def _given_loss(self) -> Any:
        """Return the loss that was given, or the class of its name."""
        if not isinstance(self.loss, str):
            check_loss(self.loss)
            return self.loss
        if self.loss not in LOSSES:
            raise InputError("loss", repr(self.loss), hint=did_you_mean(self.loss, LOSSES, "see 'contml list losses'"))
        return LOSSES[self.loss]

    def _loss_for(self, labels: LabelSpace, given: Any) -> nn.Module:
        """Return a copy of the loss, or a new one of the given class, for these labels."""
        name = f"loss {self.loss}" if isinstance(self.loss, str) else type(given).__name__
        try:
            check_requirement(name, given.requires, labels.kind)
        except InputError as error:
            raise InputError(error.subject, error.got, error.allowed, _HINTS[given.requires]) from None
        if isinstance(self.loss, nn.Module):
            return copy.deepcopy(self.loss)
        data: dict[str, Any] = {"embedding_dim": self.dim, "train_labels": labels}
        if labels.class_ids is not None:
            class_ids = torch.unique(labels.class_ids)
            data |= {"class_ids": class_ids, "num_classes": len(class_ids)}
        return given(**{name: value for name, value in data.items() if name in data_arguments(given)})

    def _sampler(self, labels: LabelSpace, seed: int) -> Sampler:
        """Return a sampler of random items. For classes, it draws several items of each class of a batch."""
        batch_size = min(self.batch_size, len(labels))
        if labels.kind != "classes":
            return UniformSampler(batch_size, labels=labels, seed=seed)
        assert labels.class_ids is not None
        classes = min(len(torch.unique(labels.class_ids)), max(2, batch_size // _INSTANCES))
        return ClassSampler(classes, batch_size // classes, labels=labels, seed=seed)


class _UnitLength(nn.Module):
    """Scales embeddings to length 1."""

    def forward(self, embeddings: Tensor) -> Tensor:
        """Return unit vectors `[n, dim]`."""
        return normalize(embeddings)


def _parts_of_a_space(y: Any) -> Sequence[LabelSpace]:
    """Return the parts of a label space that y consists of: y itself, or the parts in a list.

    Return an empty list if y is something else.
    """
    if isinstance(y, LabelSpace):
        return [y]
    return y if isinstance(y, list) and y and all(isinstance(part, LabelSpace) for part in y) else []


def _label_space(y: Any, how: str) -> LabelSpace:
    """Convert the labels y to a label space, from an array of numbers or an array of classes.

    Numbers have plain label distances. A label space is returned unchanged.

    Raises:
        InputError: the labels cannot be read in this way.
    """
    if parts := _parts_of_a_space(y):
        if len(parts) == 1:
            return parts[0].as_root()
        root, rows = parts[0].root, [part.rows for part in parts]
        if any(part.root is not root or part.rows is None for part in parts):
            raise InputError("y", "parts of several label spaces", "must be [space[[0]], space[[1]], ...] of one")
        return root[torch.cat([row for row in rows if row is not None])].as_root()
    if not isinstance(y, np.ndarray):
        raise InputError("y", "a sparse array", "must be dense", "give y.toarray()")
    if y.dtype.kind == "O" and how == "auto":
        how = "classes" if all(isinstance(label, str | bool) for label in y.flat) else "numbers"
    if how == "classes" or (how == "auto" and y.dtype.kind in "bUST"):
        classes = column_or_1d(y)
        if classes.dtype.kind in "if" and bool((classes == np.floor(classes)).all()):
            classes = np.unique(classes, return_inverse=True)[1]  # in scikit-learn, -1 is a class
        return ClassLabels(classes)
    if y.dtype.kind in "mM":  # numpy converts them to floats of any unit
        raise InputError("y", f"{y.dtype}", "must be numbers or classes", "give contml.DateLabels(dates)")
    try:
        return (NumberLabels if y.ndim == 1 else VectorLabels)(y.astype(np.float64))
    except (TypeError, ValueError) as error:
        raise InputError("y", f"not numbers ({one_line(error)})", hint='set labels="classes" if they are') from None
