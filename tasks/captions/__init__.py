"""Captioned images: retrieved by what their captions say, as the Word Mover's Distance tells it."""

from .coco import CaptionsCOCO
from .files import CaptionFiles
from .flickr import CaptionsFlickr
from .synthetic import SyntheticCaptions

#: Every source of captioned images by its name in a config, `captions/NAME`.
TASKS = {"synthetic": SyntheticCaptions, "coco": CaptionsCOCO, "flickr": CaptionsFlickr, "files": CaptionFiles}
