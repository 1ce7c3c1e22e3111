"""Class tasks: images of many classes; the test classes are never trained on."""

from contml._support.imports import lazy_table

#: Every task of this package by its name in a config, `classes/NAME`: imported when it is used.
TASKS = lazy_table(
    __name__,
    {
        "synthetic": "drawn_beetles:synthetic",
        "cub": "cub:cub",
        "cars": "cars:cars",
        "sop": "sop:sop",
        "inshop": "inshop:inshop",
    },
)
