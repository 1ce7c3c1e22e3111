"""Embedding models: a backbone, and a linear layer on its features or on the features of each of its levels."""

from contml.models.backbones import BACKBONES, backbone_names
from contml.models.embedding import EmbeddingModel
from contml.models.maps import LEVELS
from contml.models.network import PixelFormat

__all__ = ["BACKBONES", "LEVELS", "EmbeddingModel", "PixelFormat", "backbone_names"]
