"""Room layouts and other label maps: images retrieved by which surface or class lies where."""

from contml._support.imports import LazyTable

#: Every task of this package by its name in a config, `layout/NAME`: imported when it is used. A task has the name of
#: its module: `from contml.tasks.layout.lsun import lsun`.
TASKS = LazyTable(
    __name__,
    {
        "synthetic": "synthetic:synthetic",
        "lsun": "lsun:lsun",
        "files": "files:files",
    },
)
