"""Captioned images: retrieved by what their captions say, by the Word Mover's Distance."""

from contml._support.imports import LazyTable

#: Every task of this package by its name in a config, `captions/NAME`: imported when it is used.
TASKS = LazyTable(
    __name__,
    {
        "synthetic": "synthetic:synthetic",
        "coco": "coco:coco",
        "flickr": "flickr:flickr",
        "files": "files:files",
    },
)
