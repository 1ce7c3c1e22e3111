"""contml: metric learning for graded labels.

    import contml

    labels = contml.NumberLabels(ages)
    loss_function = contml.LogRatioLoss()
    loss = loss_function(model(images[rows]), labels[rows])

`__init__.pyi` lists the names and the modules. Each is imported on first use, so that `import contml` is fast.
"""

from __future__ import annotations

from typing import Any

from contml._support.imports import lazy_names, names_in_stub

_MODULES = names_in_stub(__file__)
__all__ = ["__version__", *(name for module, names in _MODULES.items() if module != __name__ for name in names)]

_get, __dir__ = lazy_names(__name__, _MODULES)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("contml")
    return _get(name)
