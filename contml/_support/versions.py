"""The versions of the packages that embeddings depend on."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version

_PACKAGES = ("contml", "torch", "torchvision", "timm", "pillow", "numpy")


@cache
def versions() -> dict[str, str]:
    """Returns the version of each package that is installed."""
    installed = {}
    for name in _PACKAGES:
        try:
            installed[name] = version(name)
        except PackageNotFoundError:  # timm is optional
            continue
    return installed
