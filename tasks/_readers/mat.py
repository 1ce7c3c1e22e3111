"""MATLAB files, read by scipy: structs are arrays of records."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from contml import InputError
from contml._support.errors import one_line
from contml.data.text_files import no_such_file

from .mat_check import unpacked


def read_mat(path: Path, option: str = "") -> dict[str, np.ndarray[Any, Any]]:
    """The variables of a MATLAB file; `option` is the task's option that names the file.

    Raises:
        InputError: no such file, damaged, or much larger than any published file.
    """
    from scipy.io import loadmat
    from scipy.io.matlab import matfile_version

    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise no_such_file(path, option) from None
    try:
        version, _ = matfile_version(io.BytesIO(content))  # type: ignore[arg-type]
        if version == 2:
            raise InputError(str(path), "a MATLAB 7.3 (HDF5) file", hint="save it with '-v7'")
        stream = io.BytesIO(unpacked(content) if version == 1 else content)
        variables: dict[str, Any] = loadmat(stream)  # type: ignore[arg-type]
    except InputError:
        raise
    except Exception as error:  # scipy raises errors of many types on damaged files
        raise InputError(str(path), f"not a readable MATLAB file ({one_line(error)[:120]})") from None
    return {name: v for name, v in variables.items() if not name.startswith("__") and isinstance(v, np.ndarray)}


def read_variable(path: Path, name: str, option: str = "") -> Any:
    """One variable of a MATLAB file.

    Raises:
        InputError: the file cannot be read, or has no such variable.
    """
    variables = read_mat(path, option)
    if name not in variables:
        raise InputError(str(path), f"has no variable '{name}' (it has {', '.join(variables) or 'nothing'})")
    return variables[name]


def read_records(path: Path, variables: dict[str, Any], name: str, fields: Sequence[str], hint: str = "") -> list[Any]:
    """The records of a struct array. Use their fields by name: their order differs between copies.

    Raises:
        InputError: there is no such struct array, or its records lack a field.
    """
    table = variables.get(name)
    if table is None or table.dtype.names is None:
        raise InputError(str(path), f"has no struct array '{name}' (it has {', '.join(variables) or 'nothing'})")
    if missing_fields := [field for field in fields if field not in table.dtype.names]:
        problem = f"its records have no field '{missing_fields[0]}' (they have {', '.join(table.dtype.names)})"
        raise InputError(str(path), problem, hint=hint)
    return list(table.ravel())
