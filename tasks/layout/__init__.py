"""Room layouts and label maps of any kind: images retrieved by which surfaces or classes lie where."""

from contml._support.imports import LazyTable

#: Every task of this package by its name in a config, `layout/NAME`: imported when it is used.
TASKS = LazyTable(
    __name__,
    {
        "synthetic": "synthetic:SyntheticLayout",
        "lsun": "lsun:LayoutLSUN",
        "files": "files:LabelMaps",
    },
)
__getattr__ = TASKS.attribute
