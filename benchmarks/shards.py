"""`contml embed` of images in shards, beside the same images as files of a folder, in turn; what opening shards costs.

    python -m benchmarks.shards [--images 256] [--rounds 5] [--members 100000]

The photographs are synthetic, 500 x 375, quality 90. They are written to a folder, and with these bytes to tar
archives of 64 samples (each with a `.json`), to a Parquet file with row groups of 64, and to a data set as `datasets`
saves it. A small network embeds them at 224 x 224. A round lists the images and embeds them in a new file, in each way;
all files are in memory (the page cache). Processor time of one thread, the median of the rounds. The embeddings of all
ways are compared: they must be equal to the bit.

Opening is measured with many small members: seconds, and the memory that stays of each image (traced objects of Python
and NumPy; the texts, and the memory of Arrow).
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import statistics
import tarfile
import tempfile
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from pyarrow import parquet

from benchmarks.loading import photograph
from benchmarks.measure import heading, table
from contml.data import shards
from contml.data.features import read_features
from contml.experiment import load, train
from contml.retrieval import Embedder, embed_to_file, load as load_model, named_images

RESULTS = Path(__file__).parent / "results"
PER_SHARD = 64
#: A small network, whose training takes a second.
MODEL = [
    *("task.train=24", "task.val=8", "task.test=8", "task.queries=2", "task.size=32", "model.dim=64"),
    *("images.resize=256", "images.crop=224", "sampler.batch_size=6", "sampler.anchors_per_batch=2"),
    *("sampler.neighbours=2", "sampler.batches=1", "training.epochs=1"),
]


def write(folder: Path, contents: dict[str, bytes]) -> dict[str, str]:
    """The images in each way; returns the arguments of `contml embed`."""
    photos, items = folder / "photos", [*contents.items()]
    for place in (photos, folder / "shards", folder / "hf"):
        place.mkdir()
    for name, content in items:
        (photos / name).write_bytes(content)
    for start in range(0, len(items), PER_SHARD):
        members = []
        for name, content in items[start : start + PER_SHARD]:
            members += [(name, content), (f"{Path(name).stem}.json", b'{"n": 1}')]
        write_tar(folder / "shards" / f"{start // PER_SHARD:06d}.tar", members)
    images = pa.array([{"bytes": content, "path": name} for name, content in items])
    found = pa.table({"image": images})
    parquet.write_table(found, folder / "photos.parquet", row_group_size=PER_SHARD)
    with pa.OSFile(str(folder / "hf" / "data.arrow"), "wb") as file, pa.ipc.new_stream(file, found.schema) as writer:
        writer.write_table(found, max_chunksize=PER_SHARD)
    (folder / "hf" / "state.json").write_text('{"_data_files": [{"filename": "data.arrow"}]}')
    (folder / "hf" / "dataset_info.json").write_text("{}")
    return {
        "files in a folder": str(photos),
        "tar archives": str(folder / "shards"),
        "Parquet file": str(folder / "photos.parquet"),
        "data set of Hugging Face": str(folder / "hf"),
    }


def write_tar(path: Path, members: list[tuple[str, bytes]]) -> None:
    """Write an archive."""
    with tarfile.open(path, "w") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def embedded(model: Embedder, argument: str, out: Path) -> tuple[float, Any]:
    """Processor time of a `contml embed`, and the embeddings."""
    shards._opened.clear()
    gc.collect()
    start = time.process_time()
    embed_to_file(model, named_images([argument]), out)
    seconds = time.process_time() - start
    values = read_features(out).values
    out.unlink()
    return seconds, values


def opening(folder: Path, members: int) -> list[list[str]]:
    """Seconds and bytes per image of shards with many small images."""
    folder.mkdir()
    names = [f"{number:09d}" for number in range(members)]
    pairs = [(f"{name}.{ending}", b"{}") for name in names for ending in ("jpg", "json")]
    write_tar(folder / "s.tar", pairs)
    contents = [json.dumps(number).encode() for number in range(members)]
    parquet.write_table(pa.table({"image": contents, "id": names}), folder / "s.parquet")
    rows = []
    for title, argument in {
        "tar archive, an image and a .json per sample": folder / "s.tar",
        "Parquet file, column of names": f"{folder / 's.parquet'}::id",
    }.items():
        shards._opened.clear()
        start = time.process_time()
        named_images([str(argument)])
        seconds = time.process_time() - start
        shards._opened.clear()
        gc.collect()
        arrow = pa.total_allocated_bytes()
        tracemalloc.start()
        found = named_images([str(argument)])
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes() - arrow
        tracemalloc.stop()
        assert len(found) == members
        rows.append([title, f"{members:,}", f"{1e6 * seconds / members:.0f} us", f"{kept / members:.0f}"])
    return rows


def main() -> None:
    """Measure, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--members", type=int, default=100_000)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder, random = Path(name), np.random.default_rng(0)
        contents = {}
        for number in range(options.images):
            content = io.BytesIO()
            photograph(500, 375, random).save(content, "JPEG", quality=90)
            contents[f"{number:06d}.jpg"] = content.getvalue()
        run = train(load("pose/synthetic", MODEL), folder / "run")
        assert run is not None
        model = load_model(run.folder)
        arguments = write(folder, contents)
        times: dict[str, list[float]] = {way: [] for way in arguments}
        expected = None
        for turn in range(options.rounds + 1):
            for way, argument in arguments.items():
                seconds, values = embedded(model, argument, folder / "out.npz")
                expected = values if expected is None else expected
                assert np.array_equal(values, expected), way
                if turn:  # the first one warms up
                    times[way].append(seconds)
        rows = [["images", "ms of processor time per image", "images per second", "relative to files"]]
        base = statistics.median(times["files in a folder"])
        for way, spent in times.items():
            middle = statistics.median(spent)
            rate = options.images / middle
            rows.append([way, f"{1000 / rate:.2f}", f"{rate:.0f}", f"{middle / base:.3f}"])
        memory = [["shard", "images", "processor time per image", "bytes kept per image"]]
        memory += opening(folder / "many", options.members)
    text = "\n\n".join(
        [
            heading("Images in shards").rstrip(),
            f"`python -m benchmarks.shards --images {options.images} --rounds {options.rounds} --members "
            f"{options.members}`: `contml embed` of photographs of 500 x 375 pixels, median of {options.rounds} "
            "rounds in turn. The embeddings of all ways are equal to the bit.",
            table(rows),
            "Listing the images of a shard, which opens it; of each image stay its name, its path, and where it is:",
            table(memory),
        ]
    )
    (RESULTS / "shards.md").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
