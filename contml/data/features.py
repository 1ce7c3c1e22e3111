"""Files of features: one vector or map per item, written by `contml features` or others, read in place of images.

`.npz` holds `names` `[N]`, `features` `[N, F]` and `split` `[N]`. Feature maps are `[N, P, F]`, at P places. Parquet
has columns of the same names. `.npy` holds only the vectors: first the training items, then the test items. Files of
other programs may also be `.safetensors`. Their arrays or columns may have other names (`_NAMES`, `_VALUES`), and may
lack the names of the items.

A file of `contml features` also holds `made`, JSON that describes what the vectors were made from. A command that is
called again uses it to find out whether its file is complete. It is the array `made` of a `.npz`, metadata of Parquet,
and a second array of `.npy`.
"""

from __future__ import annotations

import json
import os
import tokenize
import unicodedata
import zipfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from contml._support.arrays import read_arrays
from contml._support.door import opened
from contml._support.errors import InputError, one_line
from contml._support.files import FEATURES, VECTORS, atomic, check_suffix, most_unpacked, shared_folder, taken, write
from contml._support.packed_texts import Texts, as_texts
from contml._support.progress import note
from contml.data.sources import Vectors
from contml.data.split import SPLIT_TITLES, Task

Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float32]]"

#: Errors of a damaged header of an array, and of Parquet types that numpy cannot hold.
_DAMAGED = (NotImplementedError, SyntaxError, tokenize.TokenError)
#: Vectors that are checked at a time.
_CHUNK = 1 << 16
#: Names of the array or column of names, and of vectors, in files of other programs.
_NAMES = ("names", "name", "ids", "id", "image", "images", "file", "files", "path", "paths")
_VALUES = ("features", "embeddings", "embedding", "vectors", "vector")


class Features(NamedTuple):
    """Vectors and their names."""

    names: Texts | None  # [N]; None: the vectors are in the order of the items, training before test
    values: Floats  # [N,F] or [N,P,F]


class Made(NamedTuple):
    """The record in a file of features: what its vectors were made from.

    Attributes:
        key: a hash of everything that determines the vectors: the model, the options, the names and states of the
            images.
        items: number of vectors.
        dim: length of the vectors.
        broken: name and cause of each image that is left out.
        settings: the settings in the key, by name, without the images. Empty in files of contml 0.1.
        sizes: a hash of the names of the images and the sizes of their files. Empty in files of contml 0.1.
        content: a hash of the bytes of the images.
    """

    key: str
    items: int
    dim: int
    broken: dict[str, str]
    settings: Mapping[str, str] = {}
    sizes: str = ""
    content: str = ""

    def difference(self, settings: Mapping[str, str]) -> str:
        """Describe the first setting that differs from the settings of a command. Return "" if they are equal.

        Args:
            settings: the settings of a command.
        """
        if not self.settings:
            return "of another model, of other options, or of images that have changed since"
        for name in {**self.settings, **settings}:
            own = self.settings.get(name)
            if own != settings.get(name):
                made = f"without {name}" if own is None else f"with {name} {own}"
                return f"made {made}" if name[0] == "-" else f"of another {name}"
        return ""


def write_features(
    path: Path, names: Sequence[str], splits: Sequence[str] | None, values: Floats, made: Made | None = None
) -> None:
    """Write vectors `[N, F]` or maps `[N, P, F]` with the name of each item, and the split if `splits` are given.

    Args:
        path: the file.
        names: the name of each item `[N]`.
        splits: the split of each item `[N]`.
        values: the vectors or maps.
        made: the record of what they were made from.

    Raises:
        InputError: the format of the suffix cannot hold them.
    """
    suffix = check_suffix(path, FEATURES)
    if values.ndim == 3 and suffix == ".parquet":
        raise InputError(str(path), "Parquet for maps", "must end in .npz or .npy")
    about = b"" if made is None else json.dumps(made).encode()
    if suffix == ".parquet":
        import pyarrow
        from pyarrow import parquet

        columns = {"name": pyarrow.array(map(unicode_name, names), pyarrow.string())}  # the type, also of no vectors
        columns |= {} if splits is None else {"split": pyarrow.array(splits)}
        columns["features"] = pyarrow.array(list(values), pyarrow.list_(pyarrow.from_numpy_dtype(values.dtype)))
        write(path, partial(parquet.write_table, pyarrow.table(columns, metadata={_MADE: about} if about else None)))
        return
    texts: dict[str, Any] = {"names": np.array(names)} | ({} if splits is None else {"split": np.array(splits)})
    record: dict[str, Any] = {_MADE: np.frombuffer(about, np.uint8)} if about else {}
    with atomic(path) as temporary:
        if suffix == ".npy":
            with temporary.open("wb") as file:
                for array in (values, *record.values()):
                    np.save(file, array)
        else:
            np.savez(temporary, features=values, **texts, **record)


def unicode_name(name: str) -> str:
    """Return a name as Parquet can hold it. Bytes of a file name that are not UTF-8 are escaped, as in messages."""
    return name.encode("utf-8", "backslashreplace").decode()


def finished_file(
    path: Path,
    key: Callable[[], str] | None = None,
    settings: Mapping[str, str] | None = None,
    is_same: Callable[[Made], bool] = lambda _: False,
) -> Made | None:
    """Return the record of a file, if the file is complete. Return None if there is no file.

    Args:
        path: a file of features, or of embeddings (`contml embed`).
        key: computes the key of a complete file. It is called if there is a file. None if the key is not known yet.
        settings: the settings in the key, by name, without the images. None if they are not recorded.
        is_same: called if the key differs and the settings are equal. It returns True if the images are the same
            anyway.

    Raises:
        InputError: another file has its name, or a file of other settings or images.
    """
    if not os.path.lexists(path):
        return None
    try:
        opened(path).close()
        made = Made(*json.loads(_READERS[path.suffix.lower()](path)))
    except Exception:  # any content, and errors of several libraries
        raise taken(path) from None
    if not all(map(isinstance, made, (str, int, int, dict, Mapping, str, str))):
        raise taken(path)
    if key is not None and key() != made.key:
        if settings is None:
            raise taken(path)
        if (difference := made.difference(settings)) or not is_same(made):
            got = difference or "of other images, or of images that have changed since"
            raise InputError(str(path), f"exists already, {got}", hint="choose another file, or remove it")
    return made


def _of_npz(path: Path) -> bytes:
    with zipfile.ZipFile(path) as packed, packed.open(f"{_MADE}.npy") as file:
        return np.lib.format.read_array(file, allow_pickle=False).tobytes()


def _of_npy(path: Path) -> bytes:
    with path.open("rb") as file:
        version = np.lib.format.read_magic(file)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read_header(file)
        file.seek(int(np.prod(shape, dtype=object)) * dtype.itemsize, os.SEEK_CUR)
        return np.lib.format.read_array(file, allow_pickle=False).tobytes()


def _of_parquet(path: Path) -> bytes:
    from pyarrow import parquet

    return bytes(parquet.read_schema(path).metadata[_MADE.encode()])


#: The key of the record in a file, and the functions that read it, by suffix.
_MADE = "made"
_READERS: dict[str, Callable[[Path], bytes]] = {".npz": _of_npz, ".npy": _of_npy, ".parquet": _of_parquet}


def read_features(path: Path) -> Features:
    """Read a file of vectors.

    Raises:
        InputError: there is no such file, it has another format, or a vector is not finite.
    """
    check_suffix(path, VECTORS)
    file = str(path)
    try:
        names, values = _read(path)
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(file, "no such file", hint="'contml features' writes one of images") from None
    except (LookupError, ValueError, ArithmeticError, OSError, EOFError, MemoryError, *_DAMAGED) as error:
        raise InputError(file, f"not a file of features ({one_line(error)})") from None
    if values.ndim not in (2, 3) or values.dtype.kind not in "fiu" or not values.size:
        allowed = "must be numbers [items, features] or [items, places, features]"
        raise InputError(file, f"features of {values.dtype} {list(values.shape)}", allowed)
    if names is not None and len(names) != len(values):
        raise InputError(file, f"{len(names):,} names for {len(values):,} vectors", hint="give one name per vector")
    values = values.astype(np.float32, copy=False)
    for start in range(0, len(values), _CHUNK):  # the values may be more than the memory holds
        # Parts that were read stay in memory as long as the file is mapped. So each part has its own map.
        part = _read(path)[1] if isinstance(values, np.memmap) else values
        is_finite = np.isfinite(part[start : start + _CHUNK])
        if not is_finite.all():
            row = start + int(np.argwhere(~is_finite)[0, 0])
            raise InputError(file, f"the features of {names[row] if names else f'item {row}'} are not finite")
    return Features(names, values)


def _read(path: Path) -> tuple[Texts | None, np.ndarray[Any, Any]]:
    opened(path).close()
    if path.suffix == ".npy":
        return None, np.load(path, mmap_mode="r", allow_pickle=False)  # its header may ask for any amount of memory
    if path.suffix == ".parquet":
        return _read_parquet(path)
    most = most_unpacked(path.stat().st_size)
    arrays = _read_safetensors(path) if path.suffix == ".safetensors" else read_arrays(path, most)
    maybe = {name for name, array in arrays.items() if array.ndim in (2, 3) or name in _VALUES}
    values = _called(path, maybe, _VALUES)
    lists = {name for name, array in arrays.items() if array.ndim == 1 and array.dtype.kind in "USiu"}
    names = _called(path, lists - {"split", _MADE}, _NAMES, needed=False)
    return Texts(map(str, arrays[names])) if names else None, arrays[values]


def _read_safetensors(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:  # numpy has no bfloat16
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(str(error)) from None
    return {name: (each.float() if each.is_floating_point() else each).numpy() for name, each in tensors.items()}


def _read_parquet(path: Path) -> tuple[Texts | None, np.ndarray[Any, Any]]:
    from pyarrow import compute, parquet, types

    schema = parquet.read_schema(path)
    is_list = {field.name: types.is_list(field.type) or types.is_fixed_size_list(field.type) for field in schema}
    column = _called(path, {name for name, found in is_list.items() if found or name in _VALUES}, _VALUES)
    others = {name for name, found in is_list.items() if not found} - {"split", column}
    name = _called(path, others, _NAMES, needed=False)
    table = parquet.read_table(path, columns=[*filter(None, (name, column))])
    values = table[column]
    names = Texts.of_arrow(table[name].cast("string")) if name else None
    lengths = compute.list_value_length(values)
    if len(values) and (not lengths[0].as_py() or len(lengths.unique()) > 1):
        counts = lengths.to_pylist()
        row = next((row for row, count in enumerate(counts) if count != counts[0]), 0)
        first, other = (f"row {at}" if names is None else names[at] for at in (0, row))
        found = f"the vector of {other} has {counts[row] or 'no'} numbers"
        others_have = f", the one of {first} {counts[0] or 'none'}" if row else ""
        raise InputError(str(path), f"{found}{others_have}", "must be vectors of one length")
    numbers = np.concatenate([part.flatten().to_numpy(zero_copy_only=False) for part in values.chunks])
    return names, numbers.reshape(len(values), -1)


def _called(path: Path, found: Collection[str], known: Sequence[str], *, needed: bool = True) -> str:
    """Return the array or column of a file that has one of the known names, or is the only one.

    Return "" if there is none and it is not needed.

    Raises:
        InputError: there is none and it is needed, or there are several.
    """
    if name := next((name for name in known if name in found), None):
        return name
    if len(found) == 1:
        return next(iter(found))
    if not found and not needed:
        return ""
    what = "vectors" if needed else "names"
    got = f"has {', '.join(sorted(found)[:8])}" if found else f"has no {what}"
    raise InputError(str(path), got, f"must call its {what} {known[0]}, or have no others that may be {what}")


def with_features(task: Task, path: Path) -> Task:
    """Return the task with vectors in place of its images.

    A file with the names of the task's items in their order is matched row by row, so that items may share a name.

    Raises:
        InputError: the file cannot be read, lacks an item of the task, its vectors are all equal, or two of them have
            the same name.
    """
    features = read_features(path)
    values = features.values
    chunks = (values[start : start + _CHUNK] for start in range(0, len(values), _CHUNK))
    if len(values) > 1 and all(bool((chunk == values[0]).all()) for chunk in chunks):
        raise InputError(str(path), f"all {len(values):,} vectors are equal", "must differ")
    splits = list(task.splits.values())
    ends = np.cumsum([len(split) for split in splits])
    if features.names is not None:
        rows = _rows_of(Texts.concatenated([as_texts(split.names) for split in splits]), features.names, path)
        if unused := len(values) - len(np.unique(rows)):
            note(f"{path}: {unused:,} of {len(values):,} vectors are of no item, and not used")
    elif len(features.values) != ends[-1]:
        got = f"{len(features.values):,} vectors for {ends[-1]:,} items"
        raise InputError(str(path), got, hint="give one vector per item")
    elif any(line[1] == "split" and line[2].startswith("drawn") for line in task.columns) and not _is_made(path):
        hint = "save them as .npz or Parquet with names; or name the split in the table: they are in its order"
        raise InputError(str(path), "has no names, and the split is drawn", "must have the names of the items", hint)
    else:
        rows = np.arange(ends[-1])
        order = ", then ".join(f"{len(split):,} {SPLIT_TITLES[name]}" for name, split in task.splits.items())
        first = splits[0].name(0)
        note(f"{path} has no names: its vectors are taken for {order} items in turn, the first one for {first}")
    parts = zip(splits, np.split(rows, ends[:-1]), strict=True)
    new_splits = [replace(split, images=Vectors(features.values, split.images, its_rows)) for split, its_rows in parts]
    return task.with_splits(dict(zip(task.splits, new_splits, strict=True)))


def _is_made(path: Path) -> bool:
    """Return True if `contml features` wrote this file of vectors without names.

    Its vectors are in the order of the splits.
    """
    try:
        return finished_file(path) is not None
    except InputError:
        return False


def _rows_of(item_names: Texts, names: Texts, path: Path) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the row of each item among the names of a file."""
    compose = partial(unicodedata.normalize, "NFC")  # ä may be one character or two
    item_keys, keys = (Texts(map(compose, map(os.path.normpath, each))) for each in (item_names, names))
    if item_keys == keys:
        return np.arange(len(names))
    rows = item_keys.positions(keys)
    if (rows < 0).any():  # the root folder may have moved: names are compared below the folder that all of them share
        (item_keys, item_folder), (keys, folder) = map(_below_shared_folder, (item_keys, keys))
        rows = np.arange(len(names)) if item_keys == keys else item_keys.positions(keys)
        if (rows >= 0).all():
            own, others = (f"below {each}" if each else "as they are" for each in (item_folder, folder))
            note(f"{path}: its names ({others}) are the names of the items ({own})")
        if item_keys == keys:
            return rows
    first = keys.positions(keys)
    for row in np.flatnonzero(first != np.arange(len(keys)))[:1].tolist():
        got = f"features[{first[row]}] and features[{row}] have the same name, {names[row]}"
        hint = "write the file again with 'contml features' for the items of this task"
        raise InputError(str(path), got, "names must differ, or equal the task's names in order", hint)
    missing = np.flatnonzero(rows < 0)
    if len(missing):
        got = f"no features of {item_names[int(missing[0])]} ({len(missing):,} of {len(rows):,} items are missing)"
        raise InputError(str(path), got, hint=f"the file has names such as {names[0]}")
    return rows


def _below_shared_folder(names: Texts) -> tuple[Texts, str]:
    """Return the names below the folder that all of them share, and this folder.

    The folder is "" if they share none.
    """
    folder = shared_folder({os.path.dirname(name) for name in names})  # noqa: PTH120
    prefix = os.path.join(folder, "") if folder else ""  # noqa: PTH118
    return Texts(name.removeprefix(prefix) for name in names), folder
