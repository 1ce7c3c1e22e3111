"""Shards of images: archives as WebDataset writes them, Parquet files, and data sets as `datasets` saves them."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
from PIL import Image
from pyarrow import parquet


def png(value):
    """The content of an image of one grey."""
    content = io.BytesIO()
    Image.fromarray(np.full((8, 8, 3), value, np.uint8)).save(content, "PNG")
    return content.getvalue()


def tar(path, members, kind=tarfile.GNU_FORMAT):
    """Write an archive of members by name; a text is the target of a link, None a folder."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", format=kind) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            if content is None:
                info.type = tarfile.DIRTYPE
                archive.addfile(info)
            elif isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                archive.addfile(info)
            else:
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return Path(path)


IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def table(contents, paths=None, **columns):
    """A table with the column "image", as `datasets` has it: bytes, and paths if they are given."""
    paths = paths or [None] * len(contents)
    images = [{"bytes": content, "path": path} for content, path in zip(contents, paths, strict=True)]
    return pa.table({"image": pa.array(images, IMAGE), **columns})


def write_parquet(path, found, **options):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(found, path, **options)
    return Path(path)


def write_dataset(folder, *parts):
    """Save a data set as `Dataset.save_to_disk` of datasets 5.2 does: each table is a file, an Arrow stream."""
    folder = Path(folder)
    folder.mkdir(parents=True)
    names = [f"data-{number:05d}-of-{len(parts):05d}.arrow" for number in range(len(parts))]
    for name, part in zip(names, parts, strict=True):
        with pa.OSFile(str(folder / name), "wb") as file, pa.ipc.new_stream(file, part.schema) as writer:
            writer.write_table(part, max_chunksize=3)
    state = {"_data_files": [{"filename": name} for name in names], "_format_type": None, "_split": None}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text(json.dumps({"features": {"image": {"_type": "Image"}}}))
    return folder
