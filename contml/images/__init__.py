"""Images to batches: decode, crop, augment, in worker processes or in this one; a cache of what was decoded."""

from contml.images.batch import Batch, cut
from contml.images.cache import CacheReport
from contml.images.loader import Images

__all__ = ["Batch", "CacheReport", "Images", "cut"]
