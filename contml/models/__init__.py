"""Embedding models: a backbone, and a linear layer on its features or on the features of each of its levels."""

from contml.models.backbones import BACKBONES as BACKBONES, backbone_names as backbone_names
from contml.models.embedding import EmbeddingModel as EmbeddingModel
from contml.models.maps import LEVELS as LEVELS
from contml.models.network import PixelFormat as PixelFormat
