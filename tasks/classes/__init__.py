"""Class tasks: images of many classes; the test classes are never those trained on."""

from contml._support.imports import LazyTable

#: Every task of this package by its name in a config, `classes/NAME`: imported when it is used. A task has the name of
#: its module: `from contml.tasks.classes.cub import cub`.
TASKS = LazyTable(
    __name__,
    {
        "synthetic": "synthetic:synthetic",
        "cub": "cub:cub",
        "cars": "cars:cars",
        "sop": "sop:sop",
        "inshop": "inshop:inshop",
        "folder": "folder:folder",
        "csv": "table:csv",
    },
)
