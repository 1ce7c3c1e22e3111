"""Human pose: images of people, retrieved by the positions of their joints."""

from contml._support.imports import LazyTable

#: Every task of this package by its name in a config, `pose/NAME`: imported when it is used.
TASKS = LazyTable(
    __name__,
    {
        "synthetic": "synthetic:synthetic",
        "files": "files:files",
        "mpii": "mpii:mpii",
        "coco": "coco:coco",
        "lsp": "lsp:lsp",
    },
)
