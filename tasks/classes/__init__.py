"""Class tasks: images of many classes; the test classes are never trained on."""

from contml._support.imports import LazyTable

#: Every task of this package by its name in a config, `classes/NAME`: imported when it is used.
TASKS = LazyTable(
    __name__,
    {name: f"{name}:{name}" for name in ("synthetic", "cub", "cars", "sop", "inshop", "folder")} | {"csv": "table:csv"},
)
