"""Data: splits and tasks, image sources, batches of images, a cache of decoded images."""

from contml.data.batch import Batch
from contml.data.cache import CacheReport
from contml.data.loader import Images
from contml.data.sources import BoxCrop, ImageFile, ImageItem, ImageSource, Pixels, Square, SquareCrop, Stamp, Vector
from contml.data.split import Split, Task, draw_queries, query_split
from contml.data.transforms import TRANSFORMS, CropTransform, Transform

__all__ = [
    "TRANSFORMS",
    "Batch",
    "BoxCrop",
    "CacheReport",
    "CropTransform",
    "ImageFile",
    "ImageItem",
    "ImageSource",
    "Images",
    "Pixels",
    "Split",
    "Square",
    "SquareCrop",
    "Stamp",
    "Task",
    "Transform",
    "Vector",
    "draw_queries",
    "query_split",
]
