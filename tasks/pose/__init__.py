"""Human pose: images of people, retrieved by the positions of their joints."""

from contml._support.imports import lazy_table

#: Every task of this package by its name in a config, `pose/NAME`:
#: a function with the name of its module, imported when it is used.
TASKS = lazy_table(__name__, {name: f"{name}:{name}" for name in ("synthetic", "mpii", "coco", "lsp")})
