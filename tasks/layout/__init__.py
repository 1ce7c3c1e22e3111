"""Room layouts and other label maps: images retrieved by which surface or class lies where."""

from contml._support.imports import LazyTable

#: Every task of this package by its name in a config, `layout/NAME`:
#: a function with the name of its module, imported when it is used.
TASKS = LazyTable(__name__, {name: f"{name}:{name}" for name in ("synthetic", "lsun", "files")})
