"""Experiments: build the parts of a config, train, evaluate, check. `__init__.pyi` lists the names."""

from __future__ import annotations

from contml._support.imports import lazy_names, names_in_stub

__getattr__, __dir__ = lazy_names(__name__, names_in_stub(__file__))
