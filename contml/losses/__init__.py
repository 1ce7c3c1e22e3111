"""Losses on embeddings and label distances. A pair loss defines its formula, `values`; driver.py does the rest."""

from contml.losses.driver import Block, PairLoss
from contml.losses.dro import DROLoss, kl_robust
from contml.losses.graded_pairs import GeneralizedContrastiveLoss, RelaxedContrastiveLoss
from contml.losses.ice import GradedInstanceCrossEntropyLoss, InstanceCrossEntropyLoss
from contml.losses.label_order import CoSENTLoss, RankNContrastLoss, SoftInfoNCELoss
from contml.losses.levels import MatryoshkaLoss
from contml.losses.log_ratio import LogRatioLoss
from contml.losses.memory import CrossBatchMemory
from contml.losses.n_pairs import AngularLoss, NPairsLoss
from contml.losses.pair_weights import pair_weights
from contml.losses.pairs import (
    BinomialDevianceLoss,
    ContrastiveLoss,
    LiftedStructureLoss,
    MarginLoss,
    MultiSimilarityLoss,
    RankedListLoss,
    RAWLoss,
)
from contml.losses.proxies import CrossEntropyLoss, NormalizedSoftmaxLoss, ProxyAnchorLoss, ProxyNCALoss, SoftTripleLoss
from contml.losses.regularizers import RankSimLoss, RegularizedLoss
from contml.losses.smooth_rank import SmoothRankLoss
from contml.losses.triplet import DenseTripletLoss, TripletMarginLoss

#: Every loss by its name in a config, in reading order.
LOSSES = {
    "log_ratio": LogRatioLoss,
    "dense_triplet": DenseTripletLoss,
    "rank_n_contrast": RankNContrastLoss,
    "soft_info_nce": SoftInfoNCELoss,
    "cosent": CoSENTLoss,
    "generalized_contrastive": GeneralizedContrastiveLoss,
    "relaxed_contrastive": RelaxedContrastiveLoss,
    "graded_instance_cross_entropy": GradedInstanceCrossEntropyLoss,
    "smooth_rank": SmoothRankLoss,
    "rank_sim": RankSimLoss,
    "contrastive": ContrastiveLoss,
    "triplet_margin": TripletMarginLoss,
    "n_pairs": NPairsLoss,
    "angular": AngularLoss,
    "lifted_structure": LiftedStructureLoss,
    "binomial_deviance": BinomialDevianceLoss,
    "raw": RAWLoss,
    "multi_similarity": MultiSimilarityLoss,
    "margin": MarginLoss,
    "ranked_list": RankedListLoss,
    "instance_cross_entropy": InstanceCrossEntropyLoss,
    "dro": DROLoss,
    "cross_entropy": CrossEntropyLoss,
    "normalized_softmax": NormalizedSoftmaxLoss,
    "proxy_nca": ProxyNCALoss,
    "proxy_anchor": ProxyAnchorLoss,
    "soft_triple": SoftTripleLoss,
}
#: Losses that are added to another one, by their names in a config.
REGULARIZERS = {"rank_sim": RankSimLoss}

__all__ = [
    "LOSSES", "REGULARIZERS", "AngularLoss", "BinomialDevianceLoss", "Block", "CoSENTLoss", "ContrastiveLoss",
    "CrossBatchMemory", "CrossEntropyLoss", "DROLoss", "DenseTripletLoss", "GeneralizedContrastiveLoss",
    "GradedInstanceCrossEntropyLoss", "InstanceCrossEntropyLoss",
    "LiftedStructureLoss", "LogRatioLoss", "MarginLoss", "MatryoshkaLoss", "MultiSimilarityLoss", "NPairsLoss",
    "NormalizedSoftmaxLoss", "PairLoss", "ProxyAnchorLoss", "ProxyNCALoss", "RAWLoss", "RankNContrastLoss",
    "RankSimLoss", "RankedListLoss", "RegularizedLoss", "RelaxedContrastiveLoss", "SmoothRankLoss",
    "SoftInfoNCELoss", "SoftTripleLoss", "TripletMarginLoss", "kl_robust", "pair_weights",
]  # fmt: skip
