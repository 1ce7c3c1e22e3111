"""Human pose: images of people, retrieved by the positions of their joints."""

from contml._support.imports import lazy_table

_PUBLISHED = {name: f"{name}:{name}" for name in ("mpii", "coco", "lsp")}
#: Every task of this package by its name in a config, `pose/NAME`: imported when it is used.
TASKS = lazy_table(__name__, {"synthetic": "drawn_persons:synthetic", **_PUBLISHED})
