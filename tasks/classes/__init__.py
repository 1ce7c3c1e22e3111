"""Class tasks: images of many classes; the test classes are never trained on."""

from contml._support.imports import lazy_table

_PUBLISHED = {name: f"{name}:{name}" for name in ("cub", "cars", "sop", "inshop")}
#: Every task of this package by its name in a config, `classes/NAME`: imported when it is used.
TASKS = lazy_table(__name__, {"synthetic": "drawn_beetles:synthetic", **_PUBLISHED})
