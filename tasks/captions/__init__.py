"""Captioned images: the label distance compares their captions by the Word Mover's Distance."""

from contml._support.imports import lazy_table

_FUNCTIONS = {"synthetic": "drawn_scenes:synthetic", "coco": "caption_files:coco", "flickr": "caption_files:flickr"}
#: Every task of this package by its name in a config, `captions/NAME`: imported when it is used.
TASKS = lazy_table(__name__, _FUNCTIONS)
