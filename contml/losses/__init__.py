"""Losses on embeddings and label distances. A pair loss defines its formula, `values`; driver.py does the rest."""

from contml.losses.driver import Block, PairLoss
from contml.losses.dro import DROLoss, kl_robust
from contml.losses.ice import InstanceCrossEntropyLoss
from contml.losses.log_ratio import LogRatioLoss
from contml.losses.margin import MarginLoss
from contml.losses.memory import CrossBatchMemory
from contml.losses.n_pairs import AngularLoss, NPairsLoss
from contml.losses.pair_weights import pair_weights
from contml.losses.pairs import BinomialDevianceLoss, ContrastiveLoss, LiftedStructureLoss, MultiSimilarityLoss, RAWLoss
from contml.losses.proxies import ProxyAnchorLoss, ProxyNCALoss
from contml.losses.proxy_softmax import CrossEntropyLoss, NormalizedSoftmaxLoss, SoftTripleLoss
from contml.losses.ranked_list import RankedListLoss
from contml.losses.triplet import DenseTripletLoss, TripletMarginLoss

#: Every loss by its name in a config, in reading order.
LOSSES = {
    "log_ratio": LogRatioLoss,
    "dense_triplet": DenseTripletLoss,
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

__all__ = [
    "LOSSES", "AngularLoss", "BinomialDevianceLoss", "Block", "ContrastiveLoss", "CrossBatchMemory", "CrossEntropyLoss",
    "DROLoss", "DenseTripletLoss", "InstanceCrossEntropyLoss", "LiftedStructureLoss", "LogRatioLoss", "MarginLoss",
    "MultiSimilarityLoss", "NPairsLoss", "NormalizedSoftmaxLoss", "PairLoss", "ProxyAnchorLoss", "ProxyNCALoss",
    "RAWLoss", "RankedListLoss", "SoftTripleLoss", "TripletMarginLoss", "kl_robust", "pair_weights",
]  # fmt: skip
