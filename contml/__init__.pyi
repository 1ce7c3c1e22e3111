# Every name of the package, once: type checkers read it, and __init__.py imports each name on first use.

from contml import (
    captioning as captioning,
    data as data,
    distances as distances,
    evaluation as evaluation,
    labels as labels,
    losses as losses,
    models as models,
    sampling as sampling,
    search as search,
    testing as testing,
    training as training,
)
from contml._support.errors import InputError as InputError
from contml._support.progress import progress_bar as progress_bar
from contml.estimator import ContinuousMetric as ContinuousMetric
from contml.evaluation import (
    Evaluation as Evaluation,
    evaluate as evaluate,
)
from contml.labels import (
    CaptionLabels as CaptionLabels,
    CaptionVectorLabels as CaptionVectorLabels,
    ClassLabels as ClassLabels,
    DateLabels as DateLabels,
    FunctionLabels as FunctionLabels,
    GeoLabels as GeoLabels,
    LabelSpace as LabelSpace,
    MatrixLabels as MatrixLabels,
    MultiHotLabels as MultiHotLabels,
    NearestLabels as NearestLabels,
    OrdinalLabels as OrdinalLabels,
    PairLabels as PairLabels,
    PoseLabels as PoseLabels,
    RankingLabels as RankingLabels,
    SegmentationLabels as SegmentationLabels,
    SequenceLabels as SequenceLabels,
    TagLabels as TagLabels,
    TeacherLabels as TeacherLabels,
    ThresholdLabels as ThresholdLabels,
    TripletLabels as TripletLabels,
    VectorLabels as VectorLabels,
    WeightedLabels as WeightedLabels,
    idf_weights as idf_weights,
    nearest as nearest,
)
from contml.losses import (
    AngularLoss as AngularLoss,
    BinomialDevianceLoss as BinomialDevianceLoss,
    ContrastiveLoss as ContrastiveLoss,
    CoSENTLoss as CoSENTLoss,
    CrossBatchMemory as CrossBatchMemory,
    CrossEntropyLoss as CrossEntropyLoss,
    DenseTripletLoss as DenseTripletLoss,
    DROLoss as DROLoss,
    GeneralizedContrastiveLoss as GeneralizedContrastiveLoss,
    GradedInstanceCrossEntropyLoss as GradedInstanceCrossEntropyLoss,
    InstanceCrossEntropyLoss as InstanceCrossEntropyLoss,
    LiftedStructureLoss as LiftedStructureLoss,
    LogRatioLoss as LogRatioLoss,
    MarginLoss as MarginLoss,
    MatryoshkaLoss as MatryoshkaLoss,
    MultiSimilarityLoss as MultiSimilarityLoss,
    NormalizedSoftmaxLoss as NormalizedSoftmaxLoss,
    NPairsLoss as NPairsLoss,
    PairLoss as PairLoss,
    ProxyAnchorLoss as ProxyAnchorLoss,
    ProxyNCALoss as ProxyNCALoss,
    RankedListLoss as RankedListLoss,
    RankNContrastLoss as RankNContrastLoss,
    RankSimLoss as RankSimLoss,
    RAWLoss as RAWLoss,
    RegularizedLoss as RegularizedLoss,
    RelaxedContrastiveLoss as RelaxedContrastiveLoss,
    SmoothRankLoss as SmoothRankLoss,
    SoftInfoNCELoss as SoftInfoNCELoss,
    SoftTripleLoss as SoftTripleLoss,
    TripletMarginLoss as TripletMarginLoss,
    kl_robust as kl_robust,
    pair_weights as pair_weights,
)
from contml.search import (
    Embedder as Embedder,
    Index as Index,
    load as load,
)
from contml.training import (
    HDML as HDML,
    EmbeddingStep as EmbeddingStep,
    RankingStep as RankingStep,
    Trainer as Trainer,
    Training as Training,
    TrainingStep as TrainingStep,
    TripletStep as TripletStep,
)

__version__: str
