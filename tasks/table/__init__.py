"""A task without code: your own table of image paths and labels, or your own folder of images."""

from contml._support.imports import lazy_table

#: Every task of this package by its name in a config, `table/NAME`: imported when it is used.
TASKS = lazy_table(__name__, {"file": "file:file"})
