"""The captioner: its vocabulary, decoders, the search for captions, the step that trains it; scores of captions.

`__init__.pyi` lists the names. Each is imported on first use.
"""

from contml._support.imports import lazy_names, names_in_stub

_MODULES = names_in_stub(__file__)
__all__ = [name for names in _MODULES.values() for name in names]

__getattr__, __dir__ = lazy_names(__name__, _MODULES)
