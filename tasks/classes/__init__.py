"""Classes: images that belong to one of many classes, retrieved among classes that training never saw."""

from contml._support.imports import LazyTable

#: Every task of this package by its name in a config, `classes/NAME`: imported when it is used.
TASKS = LazyTable(
    __name__,
    {
        "synthetic": "synthetic:SyntheticClasses",
        "cub": "cub:CUB",
        "cars": "cars:Cars",
        "sop": "sop:SOP",
        "inshop": "inshop:InShop",
        "folder": "folder:ClassFolder",
        "csv": "table:ClassTable",
    },
)
__getattr__ = TASKS.attribute
