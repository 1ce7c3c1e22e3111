"""Losses: functions of embeddings and label distances. A pair loss is a row function over one driver, in rows.py."""

from contml.losses.cross_entropy import CrossEntropyLoss
from contml.losses.dro import DROLoss, kl_robust
from contml.losses.ice import InstanceCrossEntropyLoss
from contml.losses.log_ratio import LogRatioLoss, log_ratio_loss
from contml.losses.margin import MarginLoss
from contml.losses.proxies import ProxyAnchorLoss
from contml.losses.rows import Block, RowLoss
from contml.losses.triplet import DenseTripletLoss, TripletMarginLoss, dense_triplet_loss, triplet_margin_loss

#: Every loss by its name in a config, in reading order.
LOSSES = {
    "log_ratio": LogRatioLoss,
    "dense_triplet": DenseTripletLoss,
    "triplet_margin": TripletMarginLoss,
    "margin": MarginLoss,
    "cross_entropy": CrossEntropyLoss,
    "instance_cross_entropy": InstanceCrossEntropyLoss,
    "dro": DROLoss,
    "proxy_anchor": ProxyAnchorLoss,
}

__all__ = [
    "LOSSES",
    "Block",
    "CrossEntropyLoss",
    "DROLoss",
    "DenseTripletLoss",
    "InstanceCrossEntropyLoss",
    "LogRatioLoss",
    "MarginLoss",
    "ProxyAnchorLoss",
    "RowLoss",
    "TripletMarginLoss",
    "dense_triplet_loss",
    "kl_robust",
    "log_ratio_loss",
    "triplet_margin_loss",
]
