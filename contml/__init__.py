"""contml: metric learning for graded labels.

    import contml

    labels = contml.VectorLabels(ages)
    loss_function = contml.LogRatioLoss()
    loss = loss_function(model(images[rows]), labels[rows])

Each name is imported when it is first used, so that `import contml` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from contml._support.imports import lazy_names

if TYPE_CHECKING:
    from contml._support.errors import (
        InputError as InputError,
    )
    from contml._support.progress import (
        progress_bar as progress_bar,
    )
    from contml.evaluation import (
        Evaluation as Evaluation,
    )
    from contml.evaluation import (
        evaluate as evaluate,
    )
    from contml.labels import (
        CaptionLabels as CaptionLabels,
    )
    from contml.labels import (
        ClassLabels as ClassLabels,
    )
    from contml.labels import (
        LabelSpace as LabelSpace,
    )
    from contml.labels import (
        MatrixLabels as MatrixLabels,
    )
    from contml.labels import (
        MultiLabels as MultiLabels,
    )
    from contml.labels import (
        NearestLabels as NearestLabels,
    )
    from contml.labels import (
        OrdinalLabels as OrdinalLabels,
    )
    from contml.labels import (
        PlaceLabels as PlaceLabels,
    )
    from contml.labels import (
        PoseLabels as PoseLabels,
    )
    from contml.labels import (
        PrecomputedLabels as PrecomputedLabels,
    )
    from contml.labels import (
        RegionLabels as RegionLabels,
    )
    from contml.labels import (
        SequenceLabels as SequenceLabels,
    )
    from contml.labels import (
        TagLabels as TagLabels,
    )
    from contml.labels import (
        ThresholdLabels as ThresholdLabels,
    )
    from contml.labels import (
        VectorLabels as VectorLabels,
    )
    from contml.labels import (
        WeightedLabels as WeightedLabels,
    )
    from contml.labels import (
        nearest as nearest,
    )
    from contml.losses import (
        AngularLoss as AngularLoss,
    )
    from contml.losses import (
        BinomialDevianceLoss as BinomialDevianceLoss,
    )
    from contml.losses import (
        ContrastiveLoss as ContrastiveLoss,
    )
    from contml.losses import (
        CrossBatchMemory as CrossBatchMemory,
    )
    from contml.losses import (
        CrossEntropyLoss as CrossEntropyLoss,
    )
    from contml.losses import (
        DenseTripletLoss as DenseTripletLoss,
    )
    from contml.losses import (
        DROLoss as DROLoss,
    )
    from contml.losses import (
        InstanceCrossEntropyLoss as InstanceCrossEntropyLoss,
    )
    from contml.losses import (
        LiftedStructureLoss as LiftedStructureLoss,
    )
    from contml.losses import (
        LogRatioLoss as LogRatioLoss,
    )
    from contml.losses import (
        MarginLoss as MarginLoss,
    )
    from contml.losses import (
        MultiSimilarityLoss as MultiSimilarityLoss,
    )
    from contml.losses import (
        NormalizedSoftmaxLoss as NormalizedSoftmaxLoss,
    )
    from contml.losses import (
        NPairsLoss as NPairsLoss,
    )
    from contml.losses import (
        PairLoss as PairLoss,
    )
    from contml.losses import (
        ProxyAnchorLoss as ProxyAnchorLoss,
    )
    from contml.losses import (
        ProxyNCALoss as ProxyNCALoss,
    )
    from contml.losses import (
        RankedListLoss as RankedListLoss,
    )
    from contml.losses import (
        RAWLoss as RAWLoss,
    )
    from contml.losses import (
        SoftTripleLoss as SoftTripleLoss,
    )
    from contml.losses import (
        TripletMarginLoss as TripletMarginLoss,
    )
    from contml.losses import (
        kl_robust as kl_robust,
    )
    from contml.losses import (
        pair_weights as pair_weights,
    )
    from contml.training import (
        HDML as HDML,
    )
    from contml.training import (
        EmbeddingStep as EmbeddingStep,
    )
    from contml.training import (
        Trainer as Trainer,
    )
    from contml.training import (
        Training as Training,
    )
    from contml.training import (
        TrainingStep as TrainingStep,
    )

    __version__: str

#: The module of each name; the imports above say the same to type checkers.
_MODULES = {
    "contml._support.errors": ("InputError",),
    "contml._support.progress": ("progress_bar",),
    "contml.evaluation": (
        "Evaluation",
        "evaluate",
    ),
    "contml.labels": (
        "CaptionLabels",
        "ClassLabels",
        "LabelSpace",
        "MatrixLabels",
        "MultiLabels",
        "NearestLabels",
        "OrdinalLabels",
        "PlaceLabels",
        "PoseLabels",
        "PrecomputedLabels",
        "RegionLabels",
        "SequenceLabels",
        "TagLabels",
        "ThresholdLabels",
        "VectorLabels",
        "WeightedLabels",
        "nearest",
    ),
    "contml.losses": (
        "AngularLoss",
        "BinomialDevianceLoss",
        "ContrastiveLoss",
        "CrossBatchMemory",
        "CrossEntropyLoss",
        "DROLoss",
        "DenseTripletLoss",
        "InstanceCrossEntropyLoss",
        "LiftedStructureLoss",
        "LogRatioLoss",
        "MarginLoss",
        "MultiSimilarityLoss",
        "NPairsLoss",
        "NormalizedSoftmaxLoss",
        "PairLoss",
        "ProxyAnchorLoss",
        "ProxyNCALoss",
        "RAWLoss",
        "RankedListLoss",
        "SoftTripleLoss",
        "TripletMarginLoss",
        "kl_robust",
        "pair_weights",
    ),
    "contml.training": (
        "EmbeddingStep",
        "HDML",
        "Trainer",
        "Training",
        "TrainingStep",
    ),
}
__all__ = ["__version__", *(name for names in _MODULES.values() for name in names)]

_get, __dir__ = lazy_names(__name__, _MODULES)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("contml")
    return _get(name)
