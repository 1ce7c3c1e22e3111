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
        evaluate as evaluate,
    )
    from contml.labels import (
        CaptionLabels as CaptionLabels,
        ClassLabels as ClassLabels,
        GeoLabels as GeoLabels,
        LabelSpace as LabelSpace,
        MatrixLabels as MatrixLabels,
        MultiHotLabels as MultiHotLabels,
        NearestLabels as NearestLabels,
        OrdinalLabels as OrdinalLabels,
        PoseLabels as PoseLabels,
        PrecomputedLabels as PrecomputedLabels,
        SegmentationLabels as SegmentationLabels,
        SequenceLabels as SequenceLabels,
        TagLabels as TagLabels,
        ThresholdLabels as ThresholdLabels,
        VectorLabels as VectorLabels,
        WeightedLabels as WeightedLabels,
        nearest as nearest,
    )
    from contml.losses import (
        AngularLoss as AngularLoss,
        BinomialDevianceLoss as BinomialDevianceLoss,
        ContrastiveLoss as ContrastiveLoss,
        CrossBatchMemory as CrossBatchMemory,
        CrossEntropyLoss as CrossEntropyLoss,
        DenseTripletLoss as DenseTripletLoss,
        DROLoss as DROLoss,
        InstanceCrossEntropyLoss as InstanceCrossEntropyLoss,
        LiftedStructureLoss as LiftedStructureLoss,
        LogRatioLoss as LogRatioLoss,
        MarginLoss as MarginLoss,
        MultiSimilarityLoss as MultiSimilarityLoss,
        NormalizedSoftmaxLoss as NormalizedSoftmaxLoss,
        NPairsLoss as NPairsLoss,
        PairLoss as PairLoss,
        ProxyAnchorLoss as ProxyAnchorLoss,
        ProxyNCALoss as ProxyNCALoss,
        RankedListLoss as RankedListLoss,
        RAWLoss as RAWLoss,
        SoftTripleLoss as SoftTripleLoss,
        TripletMarginLoss as TripletMarginLoss,
        kl_robust as kl_robust,
        pair_weights as pair_weights,
    )
    from contml.training import (
        HDML as HDML,
        EmbeddingStep as EmbeddingStep,
        Trainer as Trainer,
        Training as Training,
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
        "MultiHotLabels",
        "NearestLabels",
        "OrdinalLabels",
        "GeoLabels",
        "PoseLabels",
        "PrecomputedLabels",
        "SegmentationLabels",
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
