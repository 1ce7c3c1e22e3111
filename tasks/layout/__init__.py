"""Room layouts and other label maps. Images are similar if the same surface or class lies in the same place."""

from contml._support.imports import lazy_table

#: Every task of this package by its name in a config, `layout/NAME`:
#: a function, imported when it is used.
TASKS = lazy_table(__name__, {"synthetic": "drawn_rooms:synthetic", "lsun": "lsun:lsun"})
