"""A trained model in use: load it, embed images, index and search them, and interpret embedding distances.

`__init__.pyi` lists the names. Each name is imported on first use: an index of vectors needs no model.
"""

from contml._support.imports import lazy_names, names_in_stub

_MODULES = names_in_stub(__file__)
__all__ = [name for names in _MODULES.values() for name in names]

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
