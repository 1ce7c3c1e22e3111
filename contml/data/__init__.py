"""Data: splits and tasks, image sources, batches and a cache of images. `__init__.pyi` lists the names."""

from __future__ import annotations

from contml._support.imports import lazy_names, names_in_stub
from contml.data.draw import draw as draw  # now: it has the name of its module

_MODULES = names_in_stub(__file__)
__all__ = sorted({"draw", *(name for names in _MODULES.values() for name in names)})
__getattr__, __dir__ = lazy_names(__name__, _MODULES)
