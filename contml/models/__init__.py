"""Embedding models: a backbone by name, features of one or of several of its levels, and a linear layer on each."""

from contml.models.backbones import BACKBONES, backbone_names
from contml.models.embedding import EmbeddingModel
from contml.models.levels import LEVELS

__all__ = ["BACKBONES", "LEVELS", "EmbeddingModel", "backbone_names"]
