"""`--shard I/N` as a user types it: each command does its items alone, and the last completes what one command writes.

The shards of an audit and of a benchmark are in the tests of those.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image
from support import sweeps
from support.miniature import TINY
from support.shards import png, tar

from contml.evaluation import embed_parts
from contml.retrieval import Index, index as index_module, index_images, index_shards, index_structure

COMMANDS = {
    "embed": ["run", "photos", "--out", "f.npz"],
    "features": ["pose/synthetic"],
    "index": ["run", "photos", "--out", "f.index"],
    "sweep": ["pose/synthetic", "--try", "loss.margin=0.1,0.2"],
    "benchmark": ["pose_networks"],
    "audit": ["run"],
}


@pytest.fixture
def photos(tmp_path):
    """A folder of 24 photographs."""
    (tmp_path / "photos").mkdir()
    for number, pixels in enumerate(np.random.default_rng(0).integers(0, 255, (24, 32, 32, 3), np.uint8)):
        Image.fromarray(pixels).save(tmp_path / "photos" / f"{number:04d}.png")
    return tmp_path / "photos"


@pytest.fixture
def embedded(monkeypatch):
    """Which parts of 5 images are embedded, in order."""
    found = []
    monkeypatch.setattr(embed_parts, "_PART", 5)
    for module in (embed_parts, index_images):
        call = module._Embed.__call__

        def noted(embed, item, call=call):
            found.append((item.split_name, item.span.start))
            return call(embed, item)

        monkeypatch.setattr(module._Embed, "__call__", noted)
    return found


def in_shards(contml, numbers, count, *command):
    """Call the shards one after the other; returns what the last one printed."""
    for position, number in enumerate(numbers):
        status, out, err = contml(*command, "--shard", f"{number}/{count}")
        assert status == 0, err
        is_left = out.startswith(f"shard {number}/{count}: its items of work are finished (")
        assert is_left == (position < len(numbers) - 1), out
        assert not is_left or len(out.splitlines()) == 1
    return out


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--shard", "3-8"], "--shard: '3-8'; must be I/N"),
        (["--shard", "/"], "--shard: '/'; must be I/N"),
        (["--shard", "0/8"], "--shard: 0/8; must be 1/8 to 8/8"),
        (["--shard", "9/8"], "--shard: 9/8; must be 1/8 to 8/8"),
        (["--shard", "3/8", "--join"], "--join: used with --shard; omit it"),
    ],
)
def test_refused_before_anything_is_read(refused, tmp_path, command, options, says):
    assert refused(command, *COMMANDS[command], *options).startswith(f"contml: {says}")
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("suffix", ["npz", "parquet"])
def test_embed(contml, tiny_run, photos, tmp_path, embedded, suffix):
    out = in_shards(contml, (2, 3, 1), 3, "embed", tiny_run, "photos", "--out", f"f.{suffix}")
    assert out == f"f.{suffix}: 24 embeddings of 8 numbers (14 images from an earlier run or other commands)\n"
    assert embedded == [("images", start) for start in (5, 20, 10, 0, 15)]
    assert contml("embed", tiny_run, "photos", "--out", f"whole.{suffix}")[0] == 0
    assert (tmp_path / f"f.{suffix}").read_bytes() == (tmp_path / f"whole.{suffix}").read_bytes()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    before = len(embedded)
    status, out, _ = contml("embed", tiny_run, "photos", "--out", f"f.{suffix}", "--shard", "3/3")
    assert (status, out) == (0, f"f.{suffix}: complete already: 24 embeddings of 8 numbers\n")
    assert len(embedded) == before


def test_embed_as_json(contml, tiny_run, photos, embedded):
    command = ["embed", tiny_run, "photos", "--out", "f.npz", "--json", "--shard"]
    assert json.loads(contml(*command, "1/2")[1]) == {"shard": "1/2", "items": 3, "left": 2, "total": 5}
    assert json.loads(contml(*command, "2/2")[1])["images"] == 24


def test_other_numbers_of_shards_and_changed_images(contml, tiny_run, photos, tmp_path, embedded):
    command = ["embed", tiny_run, "photos", "--out", "f.npz"]
    for text, left in (("1/2", 2), ("2/3", 1)):  # parts 0, 2, 4; then 1, 4
        assert f", and {left} " in contml(*command, "--shard", text)[1]
    assert [start for _, start in embedded] == [0, 10, 20, 5]
    Image.new("RGB", (32, 32)).save(photos / "0012.png")
    assert ", and 1 is left " in contml(*command, "--shard", "2/2")[1]
    assert contml(*command)[1].startswith("f.npz: 24 embeddings of 8 numbers (19 images from an earlier run)")
    assert [start for _, start in embedded] == [0, 10, 20, 5, 15, 10]
    assert contml("embed", tiny_run, "photos", "--out", "whole.npz")[0] == 0
    assert (tmp_path / "f.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()


def test_a_file_for_each_shard_of_images(contml, tiny_run, tmp_path, embedded):
    for number in range(3):
        tar(tmp_path / "shards" / f"p-{number}.tar", {f"{row}.png": png(10 * number + row) for row in range(6)})
    out = in_shards(contml, (2, 1), 2, "embed", tiny_run, "shards", "--out", "out")
    assert out == "out: 3 shards, 18 embeddings of 8 numbers (6 images from an earlier run or other commands)\n"
    assert len(embedded) == 6
    assert contml("embed", tiny_run, "shards", "--out", "whole")[0] == 0
    files = sorted(path.name for path in (tmp_path / "whole").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "out").iterdir()) == [f"p-{n}.parquet" for n in range(3)]
    assert all((tmp_path / "out" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes() for name in files)


def test_features(contml, tmp_path, embedded):
    """Parts of all splits are one list."""
    out = in_shards(contml, (2, 1), 2, "features", "pose/synthetic", *TINY, "--out", "f.npz")
    assert out.startswith("f.npz: 80 vectors of 1,024 numbers (36 from an earlier run or other commands)\n")
    parts = [("train", start) for start in range(0, 40, 5)]
    parts += [(name, start) for name, size in (("val", 16), ("test", 24)) for start in range(0, size, 5)]
    assert sorted(embedded) == sorted(parts)
    assert contml("features", "pose/synthetic", *TINY, "--out", "whole.npz")[0] == 0
    assert (tmp_path / "f.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()


@pytest.mark.parametrize("numbers", [(1, 2, 3), (3, 2, 1)])
def test_index(contml, refused, tiny_run, photos, tmp_path, embedded, numbers):
    """The first shard adds its first images at once; the list of the others stays the same."""
    out = in_shards(contml, numbers, 3, "index", tiny_run, "photos", "--out", "f.index")
    assert "24 in all\n" in out
    assert sorted(start for _, start in embedded) == [0, 5, 10, 15, 20]
    assert contml("index", tiny_run, "photos", "--out", "whole.index")[0] == 0
    with Index.open(tmp_path / "f.index") as found, Index.open(tmp_path / "whole.index") as whole:
        assert found.ids == whole.ids
        assert np.array_equal(found.embeddings(found.ids), whole.embeddings(whole.ids))
        assert found.metadata(found.ids) == whole.metadata(whole.ids)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    before = len(embedded)
    Image.new("RGB", (32, 32)).save(photos / "new.png")
    out = in_shards(contml, (2, 1), 2, "index", tiny_run, "photos", "--out", "f.index")  # item 5 of 5
    assert "1 images added, 25 in all\n24 images were in the index already" in out
    assert len(embedded) == before + 1, "images that are in the index are not embedded again"
    assert "--shard: used with --remove" in refused(
        "index", "--out", "f.index", "--remove", "new.png", "--shard", "1/2"
    )


def test_the_last_shard_builds_the_search_structure(contml, tiny_run, photos, tmp_path, monkeypatch):
    for path in sorted(photos.iterdir()):
        for copy in range(11):
            pixels = np.asarray(Image.open(path)) // (copy + 2)
            Image.fromarray(pixels).save(photos / f"{path.stem}-{copy:02d}.png")
    monkeypatch.setattr(embed_parts, "_PART", 64)
    for module, name, value in (
        (index_structure, "PART", 100),
        (index_structure, "FEWEST", 200),
        (index_module, "FEWEST", 200),
    ):
        monkeypatch.setattr(module, name, value)
    encoded, encode = [], index_shards.encode_rows
    monkeypatch.setattr(index_shards, "encode_rows", lambda q, rows: encoded.append(len(rows)) or encode(q, rows))
    in_shards(contml, (2, 1), 2, "index", tiny_run, "photos", "--out", "f.index", "--kind", "ivf_pq")
    assert encoded == [100, 100, 88]
    assert contml("index", tiny_run, "photos", "--out", "whole.index", "--kind", "ivf_pq")[0] == 0
    arrays = []
    for name in ("f.index", "whole.index"):
        with Index.open(tmp_path / name) as index:
            quantizers, lists = index_shards.codes_of(index._current().searcher.structure)
            arrays.append(quantizers | lists)
    assert all(np.array_equal(array, arrays[1][name]) for name, array in arrays[0].items())


def test_sweep(contml, refused, tmp_path, monkeypatch):
    fake = sweeps.Trainings()
    sweeps.config(tmp_path)
    monkeypatch.setattr("contml.sweep.training.train", fake.train)
    command = ["sweep", "own.yaml", "--try", "loss.margin=0.05,0.1,0.2", "--seeds", 2]
    out = in_shards(contml, (3, 1, 4, 2), 4, *command, "--name", "a")
    assert [(margin, seed) for margin, _, seed, _ in fake.done] == [
        *[(0.1, 3)],  # items 3; 1 and 5; 4; 2 and 6 of the list
        *[(0.05, 3), (0.2, 3)],
        *[(0.1, 4)],
        *[(0.05, 4), (0.2, 4)],
    ]
    status, alone, _ = contml(*command, "--name", "b")
    assert status == 0
    assert out.replace("sweep_a", "sweep_b") == alone
    says = refused("sweep", "own.yaml", "--try", "loss.margin=0.05..0.2", "--trials", 3, "--shard", "1/2")
    assert says.startswith(
        "contml: --shard: 1/2 with sampler tpe, which draws trials by the results of earlier ones; use"
    )
    random = ["sweep", "own.yaml", "--try", "loss.margin=0.05..0.2", "--trials", 3, "--sampler", "random"]
    assert in_shards(contml, (2, 1), 2, *random, "--name", "c").startswith("trial ")
