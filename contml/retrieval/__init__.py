"""A trained model in use: load it, embed images, say what embedding distances mean."""

from contml.retrieval.calibration import Calibration, LabelDistance
from contml.retrieval.embedder import Embedder, load
from contml.retrieval.embedding_files import embed_to_file
from contml.retrieval.images import named_images

__all__ = [
    "Calibration",
    "Embedder",
    "LabelDistance",
    "embed_to_file",
    "load",
    "named_images",
]
