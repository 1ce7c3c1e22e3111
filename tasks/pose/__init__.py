"""Human pose: images of people, retrieved by the positions of their joints."""

from contml._support.imports import lazy_table

#: Every task of this package by its name in a config, `pose/NAME`:
#: a function, imported when it is used.
TASKS = lazy_table(
    __name__, {"synthetic": "drawn_persons:synthetic", "mpii": "mpii:mpii", "coco": "coco:coco", "lsp": "lsp:lsp"}
)
