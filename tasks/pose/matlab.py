"""One variable of a MATLAB file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from contml import InputError


def load_matlab(path: Path, name: str) -> Any:
    """A variable of a MATLAB file, as scipy gives it: structs are arrays of records.

    Raises:
        InputError: there is no such file, scipy cannot read it, or it has no such variable.
    """
    try:
        from scipy.io import loadmat

        found: dict[str, Any] = loadmat(str(path), appendmat=False)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except NotImplementedError:
        raise InputError(f"{path}: a MATLAB 7.3 (HDF5) file; save it with '-v7'") from None
    except Exception as error:  # on damaged files, scipy raises nearly anything
        raise InputError(f"{path}: not a readable MATLAB file ({' '.join(str(error).split())[:120]})") from None
    if name not in found:
        names = ", ".join(key for key in found if not key.startswith("__"))
        raise InputError(f"{path}: has no variable '{name}' (it has {names or 'nothing'})")
    return found[name]
