"""Files of features: a vector for each item by its name, written by `contml features`, read in place of images.

`.npz` holds `names` `[N]`, `features` `[N, F]` and `split` `[N]`; Parquet has columns of these names. `.npy` holds the
vectors alone, the training items first, then the test items.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from contml._support.errors import InputError
from contml._support.files import atomic
from contml.data.sources import Vector
from contml.data.split import Split, Task

Floats: TypeAlias = "np.ndarray[Any, np.dtype[np.float32]]"

#: The endings of a file of features.
FORMATS = (".npz", ".npy", ".parquet")


class Features(NamedTuple):
    """Vectors by name."""

    names: list[str] | None  # [N]; None: in the order of the items, training before test
    values: Floats  # [N,F]


def check_format(path: Path) -> None:
    """Refuse a file of features that ends in something else.

    Raises:
        InputError: it does.
    """
    if path.suffix not in FORMATS:
        raise InputError(f"{path}: a file of features ends in {', '.join(FORMATS)}")


def write_features(path: Path, names: Sequence[str], splits: Sequence[str], values: Floats) -> None:
    """Write vectors `[N, F]` with the name and the split of each."""
    check_format(path)
    with atomic(path) as temporary:
        if path.suffix == ".parquet":
            import pyarrow
            from pyarrow import parquet

            table = pyarrow.table({"name": list(names), "split": list(splits), "features": list(values)})
            parquet.write_table(table, temporary)
        elif path.suffix == ".npy":
            np.save(temporary, values)
        else:
            with temporary.open("wb") as file:
                np.savez(file, names=np.array(names), split=np.array(splits), features=values)


def read_features(path: Path) -> Features:
    """What `write_features` wrote, or a file of the same form.

    Raises:
        InputError: there is no such file, it is of another form, or a vector is not finite.
    """
    check_format(path)
    try:
        names, values = _read(path)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; 'contml features' writes one") from None
    except ImportError:
        raise InputError(f'{path}: Parquet needs pyarrow: pip install "contml[table]"') from None
    except (KeyError, ValueError, OSError, EOFError) as error:
        raise InputError(f"{path}: no file of features ({' '.join(str(error).split())})") from None
    if values.ndim != 2 or values.dtype.kind not in "fiu" or not values.size:
        raise InputError(f"{path}: features are {values.dtype} {list(values.shape)}; give numbers [items, features]")
    values = values.astype(np.float32)
    if not np.isfinite(values).all():
        row = int(np.argwhere(~np.isfinite(values))[0, 0])
        raise InputError(f"{path}: the features of {names[row] if names else f'item {row}'} are not finite")
    if names is not None and len(set(names)) != len(values):
        raise InputError(f"{path}: has {len(set(names)):,} different names for {len(values):,} vectors")
    return Features(names, values)


def _read(path: Path) -> tuple[list[str] | None, np.ndarray[Any, Any]]:
    if path.suffix == ".npy":
        return None, np.load(path, allow_pickle=False)
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as found:
            return [str(name) for name in found["names"]], found["features"]
    from pyarrow import parquet

    table = parquet.read_table(path)
    return [str(name) for name in table["name"].to_pylist()], np.array(table["features"].to_pylist())


def with_features(task: Task, path: Path) -> Task:
    """The task with vectors in place of its images.

    Raises:
        InputError: the file cannot be read, or lacks an item of the task.
    """
    found = read_features(path)
    splits = [split for split in (task.train, task.test, task.val) if split is not None]
    total = sum(map(len, splits))
    if found.names is None:
        if len(found.values) != total:
            raise InputError(f"{path}: has {len(found.values):,} vectors for {total:,} items; give one for each")
        rows = iter(range(total))
        placed = [_placed(split, found.values[[next(rows) for _ in range(len(split))]]) for split in splits]
    else:
        # Under another root folder the same items have other paths: they are compared below what all have in common.
        row_of = dict(zip(_short(found.names), range(len(found.names)), strict=True))
        keys = iter(_short([name for split in splits for name in split.names]))
        placed = []
        for split in splits:
            wanted = [next(keys) for _ in range(len(split))]
            missing = [name for key, name in zip(wanted, split.names, strict=True) if key not in row_of]
            if missing:
                raise InputError(
                    f"{path}: has no features of {missing[0]} ({len(missing):,} of {len(split):,} items are missing); "
                    "write it anew with 'contml features'"
                )
            placed.append(_placed(split, found.values[[row_of[key] for key in wanted]]))
    train, test, *val = placed
    return replace(task, train=train, test=test, val=val[0] if val else None)


def _placed(split: Split, values: Floats) -> Split:
    vectors = [Vector(vector, picture=source) for vector, source in zip(values, split.images, strict=True)]
    return replace(split, images=vectors)


def _short(names: Sequence[str]) -> list[str]:
    """Names without the folders that all of them share."""
    folder = os.path.commonpath([str(Path(name).parent) for name in names]) if names else ""
    return [name[len(folder) :].lstrip("/") if folder and name.startswith(folder) else name for name in names]
