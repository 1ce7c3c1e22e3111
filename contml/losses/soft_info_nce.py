"""Soft-target InfoNCE: the softmax of similarities follows a softmax of label distances.

    - 1/n  sum_i sum_j  W_ij  log ( e^{x_ij} / sum_k e^{x_ik} )        W_ij = K_ij / sum_k K_ik

    kernel      gaussian      K = e^{-D^2 / (2 sigma^2)}     y-aware InfoNCE: Dufumier et al., MICCAI 2021
                exponential   K = e^{-D / sigma}             X-CLR: Sobal et al., 2024; the softmax of -D / sigma
    similarity  cosine        x = s / t
                student_t     e^x = 1 / (1 + d^2 / t)        supervised t-SNE, d the Euclidean distance
    denominator all           sum_k e^{x_ik}
                exp           sum_k e^{x_ik (1 - K_ik)}      Barbano et al., "Contrastive Learning for Regression in
                threshold     sum_{k: K_ik < K_ij} e^{x_ik}  Multi-Site Brain Age Prediction", ISBI 2023

D is the plain label distance divided by `label_scale`. The published code of y-aware InfoNCE divides K by the sums of
columns instead of rows. With "threshold" all W of a row still sum to 1, and a pair without a farther one adds nothing.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from contml._support.validation import PositiveFloat, check_ranges
from contml.labels.base import LabelSpace
from contml.losses.driver import Block
from contml.losses.label_scale import LabelScale, ScaledLabelLoss
from contml.losses.log_sum_exp import log_sum_exp, softmax_of_members
from contml.losses.sorted_rows import ranked_cross_entropy


class SoftInfoNCELoss(ScaledLabelLoss):
    """Soft-target InfoNCE: each anchor's softmax of similarities follows a kernel of its label distances.

    X-CLR is `kernel: exponential`; supervised t-SNE is `similarity: student_t`, on unnormalized embeddings.

    Args:
        kernel: the target as a function of the plain label distance: "gaussian" or "exponential".
        sigma: width of the kernel in label distances, after `label_scale`; null is 1 for gaussian and 0.1 for
            exponential.
        similarity: "cosine" of embeddings, or "student_t" of their Euclidean distances.
        temperature: divides cosines, or squared distances; null is 0.1 for cosine and 1 for student_t.
        learn_temperature: learn the temperature, from this value on.
        denominator: the terms that a pair is contrasted with: "all" of its anchor; "exp": all, each by 1 - K in the
            exponent; "threshold": those at a larger label distance.
        label_scale: divides the plain label distances: a number above 0, or "median", that of random training pairs.
    """

    @check_ranges
    def __init__(
        self,
        kernel: Literal["gaussian", "exponential"] = "gaussian",
        sigma: PositiveFloat | None = None,
        similarity: Literal["cosine", "student_t"] = "cosine",
        temperature: PositiveFloat | None = None,
        learn_temperature: bool = False,
        denominator: Literal["all", "exp", "threshold"] = "all",
        label_scale: LabelScale = "median",
        *,
        labels: LabelSpace | None = None,
    ) -> None:
        super().__init__(label_scale, labels)
        sigma = {"gaussian": 1.0, "exponential": 0.1}[kernel] if sigma is None else sigma
        temperature = {"cosine": 0.1, "student_t": 1.0}[similarity] if temperature is None else temperature
        self.kernel, self.sigma, self.similarity, self.denominator = kernel, sigma, similarity, denominator
        self.distance = "cosine" if similarity == "cosine" else "squared_euclidean"
        self.temperature, self.learn_temperature = temperature, learn_temperature
        self.log_temperature = nn.Parameter(torch.tensor(math.log(temperature))) if learn_temperature else None

    def values(self, block: Block) -> tuple[Tensor, Tensor]:
        """Cross entropy of each anchor, and 1 where it has another item."""
        s, d, member = block.scores, block.label_distances, block.weights > 0  # [A,B]
        temperature = self.temperature if self.log_temperature is None else self.log_temperature.exp().to(s.dtype)
        x = s / temperature if self.similarity == "cosine" else -(s / temperature).log1p()
        log_k = -(d / self.sigma).square() / 2 if self.kernel == "gaussian" else -d / self.sigma
        target = softmax_of_members(log_k, member)
        counts = member.any(1).to(x.dtype)
        if self.denominator == "threshold":
            return ranked_cross_entropy(x, d, target, member, strict=True), counts
        terms = x if self.denominator == "all" else x * (1 - log_k.exp())
        return log_sum_exp(terms, block.weights)[0] - (target * x).sum(1), counts
