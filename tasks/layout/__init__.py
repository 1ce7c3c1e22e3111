"""Room layouts and other label maps: images retrieved by which surface or class lies where."""

from contml._support.imports import lazy_table

#: Every task of this package by its name in a config, `layout/NAME`:
#: a function with the name of its module, imported when it is used.
TASKS = lazy_table(__name__, {name: f"{name}:{name}" for name in ("synthetic", "lsun")})
