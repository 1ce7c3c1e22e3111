"""Losses: functions of embeddings and label distances. A pair loss is a row function over one driver, in rows.py."""

from contml.losses.cross_entropy import CrossEntropyLoss
from contml.losses.dro import DROLoss, kl_robust
from contml.losses.ice import InstanceCrossEntropyLoss
from contml.losses.log_ratio import LogRatioLoss, log_ratio_loss
from contml.losses.margin import MarginLoss
from contml.losses.n_pairs import AngularLoss, NPairsLoss
from contml.losses.pairs import BinomialDevianceLoss, ContrastiveLoss, LiftedStructureLoss, MultiSimilarityLoss, RAWLoss
from contml.losses.proxies import ProxyAnchorLoss, ProxyNCALoss
from contml.losses.proxy_softmax import NormalizedSoftmaxLoss, SoftTripleLoss
from contml.losses.ranked_list import RankedListLoss
from contml.losses.rows import Block, RowLoss
from contml.losses.triplet import DenseTripletLoss, TripletMarginLoss, dense_triplet_loss, triplet_margin_loss
from contml.losses.weights import pair_weights

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
    "LOSSES",
    "AngularLoss",
    "BinomialDevianceLoss",
    "Block",
    "ContrastiveLoss",
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
    "ProxyAnchorLoss",
    "ProxyNCALoss",
    "RAWLoss",
    "RankedListLoss",
    "RowLoss",
    "SoftTripleLoss",
    "TripletMarginLoss",
    "dense_triplet_loss",
    "kl_robust",
    "log_ratio_loss",
    "pair_weights",
    "triplet_margin_loss",
]
