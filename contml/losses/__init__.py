"""Losses on embeddings and label distances. A pair loss defines its formula, `values`; driver.py does the rest."""

from contml.losses.cosent import CoSENTLoss
from contml.losses.driver import Block, PairLoss
from contml.losses.dro import DROLoss, kl_robust
from contml.losses.graded_contrastive import GeneralizedContrastiveLoss, RelaxedContrastiveLoss
from contml.losses.graded_ice import GradedInstanceCrossEntropyLoss
from contml.losses.ice import InstanceCrossEntropyLoss
from contml.losses.levels import MatryoshkaLoss
from contml.losses.log_ratio import LogRatioLoss
from contml.losses.margin import MarginLoss
from contml.losses.memory import CrossBatchMemory
from contml.losses.n_pairs import AngularLoss, NPairsLoss
from contml.losses.pair_weights import pair_weights
from contml.losses.pairs import BinomialDevianceLoss, ContrastiveLoss, LiftedStructureLoss, MultiSimilarityLoss, RAWLoss
from contml.losses.proxies import ProxyAnchorLoss, ProxyNCALoss
from contml.losses.proxy_softmax import CrossEntropyLoss, NormalizedSoftmaxLoss, SoftTripleLoss
from contml.losses.rank_n_contrast import RankNContrastLoss
from contml.losses.rank_sim import RankSimLoss
from contml.losses.ranked_list import RankedListLoss
from contml.losses.regularized import RegularizedLoss
from contml.losses.smooth_rank import SmoothRankLoss
from contml.losses.soft_info_nce import SoftInfoNCELoss
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
