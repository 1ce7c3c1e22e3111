"""Your own table of image paths and labels of any kind, or folder of images, as a task without code."""

from contml._support.imports import lazy_table

#: Every task of this package by its name in a config, `table/NAME`: imported when it is used.
TASKS = lazy_table(__name__, {"file": "file:file"})
