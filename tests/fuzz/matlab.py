"""Random changes of MATLAB files and of numpy arrays."""

from __future__ import annotations

import io
from random import Random

import numpy as np
from scipy.io import loadmat, savemat
from scipy.sparse import csc_matrix

ODD_ARRAYS = (
    *(
        np.array([[np.nan]]),
        np.array([[np.inf]]),
        np.array([[-1]]),
        np.array([[1e300]]),
        np.array([[2**62]]),
        np.array([[0.5]]),
    ),
    *(np.zeros((0, 0)), np.zeros((0, 5)), np.array([["text"]]), np.array([[""]]), np.array([["../../etc/passwd"]])),
    *(np.array([[1j]]), np.array([[True]]), np.ones((3, 14, 2)), np.arange(200.0)[None], np.array([["a\0b"]])),
    np.array([[np.array([[1]]), np.array([["x"]])]], dtype=object),
    np.array([[np.zeros((0, 0))]], dtype=object),
    np.array([[(np.array([[1]]), np.array([["x"]]))]], dtype=[("x", object), ("name", object)]),
    csc_matrix(np.eye(3)),
)


def changed(content: bytes, random: Random) -> bytes:
    """A MATLAB file with a variable, a field or an element replaced, removed or renamed."""
    variables = {k: v for k, v in loadmat(io.BytesIO(content)).items() if not k.startswith("__")}
    name = random.choice(list(variables))
    match random.randrange(8):
        case 0:
            del variables[name]
        case 1:
            variables[random.choice(("x", "joints", "RELEASE"))] = variables.pop(name)
        case 2:
            variables[name] = changed_array(variables[name], random)
        case _:
            variables[name] = _changed_inside(variables[name], random)
    written = io.BytesIO()
    savemat(written, variables, do_compression=random.random() < 0.5)
    return written.getvalue()


def changed_array(array, random: Random):
    """An array with other values, another type, or another shape; or a different array."""
    if not isinstance(array, np.ndarray):
        return random.choice(ODD_ARRAYS)
    match random.randrange(8):
        case 0:
            return array[..., :-1] if array.ndim else array
        case 1:
            return array[:-1] if array.ndim else array
        case 2:
            return array.T
        case 3 if array.dtype.kind in "buif" and array.size:
            array = array.astype(float)
            array.flat[random.randrange(array.size)] = random.choice((np.nan, np.inf, -1, 1e300, 0.5, 2**62, 99))
            return array
        case 3 if array.dtype.kind == "U" and array.size:
            array = array.astype("U40")
            array.flat[random.randrange(array.size)] = random.choice(("", "/", "/a/b.png", "../x", "a\0b", "\ud800"))
            return array
        case 4 if array.dtype.kind in "buif":
            with np.errstate(invalid="ignore"):
                return array.astype(random.choice((np.uint8, np.float32, np.int64, bool, str, complex)))
        case 5:
            return array.reshape(-1)
        case 6:
            return array[None]
        case _:
            return random.choice(ODD_ARRAYS)


def _changed_inside(array, random: Random):
    """The array with one of its elements or fields changed, at any depth."""
    if not isinstance(array, np.ndarray) or not array.size or array.dtype.kind not in "OV" or random.random() < 0.25:
        return changed_array(array, random)
    array = array.copy()
    place = random.randrange(array.size)
    if array.dtype.names is None:
        array.flat[place] = _changed_inside(array.flat[place], random)
        return array
    field = random.choice(array.dtype.names)
    if random.random() < 0.1:
        return array[[name for name in array.dtype.names if name != field]]
    column = array[field]
    column.flat[place] = _changed_inside(column.flat[place], random)
    array[field] = column
    return array
