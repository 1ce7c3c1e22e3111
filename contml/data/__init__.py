"""Data: splits and tasks, image sources, batches and a cache of images. `__init__.pyi` lists the names."""

from __future__ import annotations

from contml._support.imports import lazy_names, names_in_stub
from contml.data.draw import draw as draw  # now: it has the name of its module

__getattr__, __dir__ = lazy_names(__name__, names_in_stub(__file__))
