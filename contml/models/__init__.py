"""Embedding models: a backbone, and a linear layer on its features or on those of each of its levels."""

from contml.models.backbones import BACKBONES, backbone_names
from contml.models.embedding import EmbeddingModel
from contml.models.levels import LEVELS

__all__ = ["BACKBONES", "LEVELS", "EmbeddingModel", "backbone_names"]
