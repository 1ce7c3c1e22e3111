"""Images in shards: names, content, metadata, and what is wrong with an archive or a table."""

from __future__ import annotations

import gzip
import os
import pickle
import tarfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.refusals import refuses
from support.shards import png, table, tar, write_dataset, write_parquet

from contml.data import shards
from contml.data.decode import decode
from contml.data.shards import Address, opened
from contml.data.sources import BoxCrop, ImageFile, Stamp


def grey(path):
    return int(np.asarray(decode(Path(path), str(path)))[0, 0, 0])


def greys(address):
    return {name: grey(address.path(name)) for name in opened(address).names}


def samples(values, folder="a/"):
    """The members of an archive with an image, values and a text for each sample."""
    return {
        f"{folder}{value:03d}.{ending}": content
        for value in values
        for ending, content in (
            ("json", f'{{"n": {value}, "nothing": null, "box": [1, 2]}}'.encode()),
            ("png", png(value)),
            ("txt", f"grey {value}\n".encode()),
        )
    }


# -- archives ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT, tarfile.USTAR_FORMAT])
def test_an_archive_as_webdataset_writes_it(tmp_path, kind):
    address = Address(str(tar(tmp_path / "s.tar", samples(range(20)), kind)))
    assert greys(address) == {f"a/{value:03d}.png": value for value in range(20)}
    path = Path(address.path("a/007.png"))
    assert shards.metadata(path) == {"n": "7", "box": "[1, 2]", "txt": "grey 7"}
    assert shards.exists(path)
    assert shards.file_of(path) == str(tmp_path / "s.tar")
    assert Stamp(path, "").stat().st_size == (tmp_path / "s.tar").stat().st_size


def test_the_texts_of_a_sample_may_be_anywhere(tmp_path):
    """`tar cf s.tar *.png *.json` has all images first; a sample may lack some."""
    members = samples(range(6), "")
    del members["003.json"]
    ordered = dict(sorted(members.items(), key=lambda item: item[0].partition(".")[2], reverse=True))
    address = Address(str(tar(tmp_path / "s.tar", ordered)))
    assert shards.metadata(Path(address.path("005.png")))["n"] == "5"
    assert shards.metadata(Path(address.path("003.png"))) == {"txt": "grey 3"}


def test_hidden_members_folders_links_and_others(tmp_path):
    members = {
        "./a/1.png": png(1),
        "a/._1.png": b"?",
        ".hidden/2.png": b"?",
        "l.png": "a/1.png",
        "x.npy": b"?",
        "README": b"?",
    }
    address = Address(
        str(tar(tmp_path / "s.tar", {"a": None, "../up.png": png(3), "/etc/root.png": png(4), **members}))
    )
    shard = opened(address)
    assert [*shard.names] == ["../up.png", "etc/root.png", "a/1.png", "l.png"]
    assert shard.skipped == {".npy": 1, "other": 1}
    assert [grey(address.path(name)) for name in ("../up.png", "etc/root.png", "a/1.png")] == [3, 4, 1]
    with pytest.raises(OSError, match="a link or a special file"):
        decode(Path(address.path("l.png")), "l.png")


@pytest.mark.parametrize(
    "name", ["a b/ü ñ.png", "tab\tline\nbreak\x1b[31m.png", "x\udcff.png", "x" * 300 + ".png", "a\\b.png"]
)
def test_names_with_odd_characters(tmp_path, name):
    address = Address(str(tar(tmp_path / "s.tar", {name: png(9)})))
    assert greys(address) == {name: 9}


def test_two_images_in_a_sample(tmp_path):
    path = str(tar(tmp_path / "s.tar", {"a.png": png(1), "a.mask.png": png(2), "b.png": png(3), "b.mask.png": png(4)}))
    with refuses(path, "a.png and a.mask.png", hint=f"'{path}:png' reads those named KEY.png, and '{path}:*' all"):
        opened(Address(path))
    assert greys(Address(path, ":mask.png")) == {"a.mask.png": 2, "b.mask.png": 4}
    assert greys(Address(path, ":PNG")) == {"a.png": 1, "b.png": 3}
    assert len(opened(Address(path, ":*")).names) == 4
    with refuses(f"{path}:jpg", "no images named KEY.jpg"):
        opened(Address(path, ":jpg"))


def test_a_name_that_appears_twice_in_an_archive(tmp_path):
    path = tar(tmp_path / "s.tar", {"a.png": png(1), "./a.png": png(2)})
    with refuses(str(path), "two images named a.png", hint="must differ"):
        opened(Address(str(path)))


def cut(keep):
    def change(path):
        content = path.read_bytes()
        path.write_bytes(content[: keep(content)])

    return change


def members_end(content):
    """Where the archive ends, without the marker of its end."""
    return len(content.rstrip(b"\0")) // 512 * 512 + 512


def put(content, at):
    def change(path):
        found = bytearray(path.read_bytes())
        start = at(found)
        found[start : start + len(content)] = content
        path.write_bytes(bytes(found))

    return change


def twice(path):
    path.write_bytes(path.read_bytes() * 2)


DAMAGED = {
    "in the last member": (cut(lambda content: members_end(content) - 540), "cut short: its member 2.png ends at byte"),
    "in a header": (cut(lambda content: 700 - 1), "cut short"),
    "before the end marker": (cut(members_end), "no end-of-archive marker"),
    "empty": (cut(lambda content: 0), "not a tar archive"),
    "a header is overwritten": (
        put(b"?" * 512, lambda content: content.find(b"1.png")),
        "damaged or cut short at byte",
    ),
    "the first header is overwritten": (put(b"?" * 512, lambda content: 0), "not a tar archive"),
    "two archives in a file": (twice, "continues after its end"),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_archive_is_refused_in_one_line(tmp_path, damage):
    """`tarfile` takes the first header that it cannot read for the end: images would be left out."""
    path = tar(tmp_path / "s.tar", {f"{n}.png": png(n) * 20 for n in range(3)})
    change, says = DAMAGED[damage]
    change(path)
    with refuses(str(path), says, hint="again" if "continues" not in says else "tar --concatenate"):
        opened(Address(str(path)))


def test_compressed_archives_are_refused_with_what_unpacks_them(tmp_path):
    path = tar(tmp_path / "s.tar", {"a.png": png(1)})
    packed = tmp_path / "s.tar.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    with refuses(str(packed), "compressed", hint=f"gunzip -k {packed}"):
        shards.refuse_compressed(packed)
    packed.rename(path)
    with refuses(str(path), "compressed", hint=f"gunzip {path}.gz"):
        opened(Address(str(path)))


def test_a_hostile_size_does_not_go_round_in_circles(tmp_path):
    """A size below 0 leads back to a header that was read before."""
    path = tar(tmp_path / "s.tar", {"a.png": png(1), "b.png": png(2)})
    found = bytearray(path.read_bytes())
    start = found.find(b"b.png") // 512 * 512
    found[start + 124 : start + 136] = b"\xff" * 10 + (-2048 & 0xFFFF).to_bytes(2)  # base 256
    found[start + 148 : start + 156] = b" " * 8
    found[start + 148 : start + 156] = f"{sum(found[start : start + 512]):06o}\0 ".encode()
    path.write_bytes(bytes(found))
    with refuses(str(path), "damaged near byte", hint="again"):
        opened(Address(str(path)))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
@pytest.mark.parametrize("suffix", ["tar", "parquet", "arrow"])
def test_a_pipe_is_no_shard(tmp_path, suffix):
    os.mkfifo(tmp_path / f"s.{suffix}")
    with refuses(str(tmp_path / f"s.{suffix}"), "not a regular file"):
        opened(Address(str(tmp_path / f"s.{suffix}")))


def test_a_damaged_shard_is_a_broken_image(tmp_path):
    """As a damaged file is: a page that shows other images too is drawn."""
    path = tar(tmp_path / "s.tar", {"a.png": png(1)})
    path.write_bytes(path.read_bytes()[:600])
    with pytest.raises(OSError, match="cut short"):
        decode(path / "a.png", "a.png")
    with pytest.raises(OSError, match="cut short"):
        shards.metadata(path / "a.png")


def test_an_archive_without_images(tmp_path):
    with refuses(str(tmp_path / "s.tar"), "no images", hint="it has 2 .npy"):
        opened(Address(str(tar(tmp_path / "s.tar", {"a.npy": b"1", "b.npy": b"2", "a.txt": b""}))))
    with refuses(str(tmp_path / "e.tar"), "no images", hint="empty"):
        opened(Address(str(tar(tmp_path / "e.tar", {}))))


@pytest.mark.parametrize(
    "content", [b"[1]", b"{", b"\xff{}", b"[" * 100_000, b'{"n": ' + b"9" * 5000 + b"}", b" " * (1 << 21)]
)
def test_metadata_that_cannot_be_read(tmp_path, content):
    address = Address(str(tar(tmp_path / "s.tar", {"a.png": png(1), "a.json": content})))
    with pytest.raises(OSError, match=r"\.json"):
        shards.metadata(Path(address.path("a.png")))
    assert greys(address) == {"a.png": 1}


def test_members_that_are_not_images(tmp_path):
    address = Address(str(tar(tmp_path / "s.tar", {"a.png": b"no image", "b.png": b""})))
    with pytest.raises(OSError, match="not an image"):
        decode(Path(address.path("a.png")), "a")
    with pytest.raises(OSError, match="empty file"):
        decode(Path(address.path("b.png")), "b")
    with pytest.raises(FileNotFoundError, match="no such image"):
        decode(Path(address.path("c.png")), "c")


def test_a_shard_that_has_changed_is_read_again(tmp_path):
    address = Address(str(tar(tmp_path / "s.tar", {"a.png": png(1), "b.png": png(2)})))
    assert greys(address) == {"a.png": 1, "b.png": 2}
    tar(tmp_path / "s.tar", {"b.png": png(5), "a.png": png(4)})
    os.utime(tmp_path / "s.tar", ns=(1, 1))
    assert grey(address.path("a.png")) == 4


def test_a_folder_may_have_the_name_of_a_shard(tmp_path):
    (tmp_path / "photos.tar").mkdir()
    (tmp_path / "photos.tar" / "a.png").write_bytes(png(3))
    assert grey(tmp_path / "photos.tar" / "a.png") == 3
    inner = tar(tmp_path / "photos.tar" / "b.parquet" / "s.tar", {"x.parquet/c.png": png(4)})
    assert grey(f"{inner}/x.parquet/c.png") == 4


def test_crops_of_images_in_shards(tmp_path):
    path = tar(tmp_path / "s.tar", {"a.png": png(6)})
    crop = BoxCrop(path / "a.png", (0, 0, 4, 4)).read()
    assert crop.size == (4, 4)
    assert ImageFile(path / "a.png").stamp.stat().st_mtime_ns == path.stat().st_mtime_ns


# -- tables ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@pytest.mark.parametrize("rows_per_group", [1, 7, 50])
def test_rows_in_any_order(tmp_path, suffix, rows_per_group):
    found = table([png(n) for n in range(50)], n=list(range(50)), caption=["grey"] * 50, thumbnail=[{"x": 1}] * 50)
    if suffix == "parquet":
        path = write_parquet(tmp_path / "t.parquet", found, row_group_size=rows_per_group)
    else:
        path = write_dataset(tmp_path / "d", found) / "data-00000-of-00001.arrow"
    address = Address(str(path))
    assert [*opened(address).names] == [str(n) for n in range(50)]
    for n in [*range(50), *np.random.default_rng(0).integers(0, 50, 60).tolist()]:
        assert grey(address.path(str(n))) == n
    assert shards.metadata(Path(address.path("31"))) == {"n": "31", "caption": "grey", "thumbnail": '{"x": 1}'}


def test_large_rows_are_read_in_small_blocks(tmp_path, monkeypatch):
    from contml.data import shard_tables

    monkeypatch.setattr(shard_tables, "_BLOCK_BYTES", 1000)
    address = Address(str(write_parquet(tmp_path / "t.parquet", table([png(n) + bytes(500) for n in range(30)]))))
    assert [*greys(address).values()] == [*range(30)]
    reader = shard_tables._reader(
        shard_tables.ParquetShard, address.file, opened(address)._state, ("image.bytes",), os.getpid()
    )
    assert 1 <= reader._rows < 3
    assert len(reader._block) < 3


def test_the_names_of_rows(tmp_path):
    contents = [png(n) for n in range(3)]
    paths = ["cat/1.png", "/abs/2.png", "./3.png"]
    named = write_parquet(tmp_path / "named.parquet", table(contents, paths, id=[7, 8, 9]))
    assert greys(Address(str(named))) == {"cat/1.png": 0, "abs/2.png": 1, "3.png": 2}
    assert greys(Address(str(named), "::id")) == {"7": 0, "8": 1, "9": 2}
    assert greys(Address(str(named), ":image:id")) == {"7": 0, "8": 1, "9": 2}
    for paths in (["a", "a", "b"], ["a", None, "b"]):  # they do not name each row
        other = write_parquet(tmp_path / "other.parquet", table(contents, paths))
        assert greys(Address(str(other))) == {"0": 0, "1": 1, "2": 2}
    keys = write_parquet(tmp_path / "keys.parquet", pa.table({"jpg": contents, "__key__": ["x", "y", "z"]}))
    assert greys(Address(str(keys))) == {"x": 0, "y": 1, "z": 2}


REFUSED_TABLES = {
    "paths": (pa.table({"image": ["a.png"]}), "", "no column of bytes of images (image)", "'@FILE:COLUMN'"),
    "paths that are chosen": (pa.table({"image": ["a.png"]}), ":image", "string in column 'image'", "'@{path}:image'"),
    "two columns": (pa.table({"a": [b"1"], "b": [b"2"]}), "", "2 columns of bytes", "'{path}:a'; one of a, b"),
    "no such column": (pa.table({"photo": [b"1"]}), ":phto", "no column 'phto'", "did you mean 'photo'?"),
    "no such names": (pa.table({"photo": [b"1"], "id": [1]}), "::idd", "no column 'idd'", "did you mean 'id'?"),
    "names of floats": (pa.table({"photo": [b"1"], "x": [1.5]}), "::x", "double in column 'x'", ""),
    "a name is missing": (
        pa.table({"photo": [b"1", b"2"], "id": ["a", None]}),
        "::id",
        "no name in column id",
        "another",
    ),
    "equal names": (pa.table({"photo": [b"1", b"2"], "id": ["a", "a"]}), "::id", "two images named a", "differ"),
    "a long name": (pa.table({"photo": [b"1" * 9000], "id": ["x" * 5000]}), "::id", "a name of 5,000 bytes", ""),
    "no rows": (pa.table({"photo": pa.array([], pa.binary())}), "", "no rows", ""),
    "too many rows": (pa.table({"photo": pa.nulls(10_000_000, pa.binary())}), "", "10,000,000 rows in", ""),
}


@pytest.mark.parametrize("given", REFUSED_TABLES)
def test_tables_that_are_refused(tmp_path, given):
    found, part, got, hint = REFUSED_TABLES[given]
    path = write_parquet(tmp_path / "t.parquet", found)
    with refuses(str(path), got, hint=hint.format(path=path)):
        opened(Address(str(path), part))


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_damaged_tables_are_refused_in_one_line(tmp_path, suffix):
    found = table([png(n) for n in range(20)], [f"{n}.png" for n in range(20)])
    if suffix == "parquet":
        path = write_parquet(tmp_path / "t.parquet", found)
    else:
        path = write_dataset(tmp_path / "d", found) / "data-00000-of-00001.arrow"
    content = path.read_bytes()
    for damaged in (content[: len(content) // 2], b"", b"PAR1", content[len(content) // 2 :]):
        path.write_bytes(damaged)
        with refuses(str(path), "damaged, cut short or of another format"):
            opened(Address(str(path)))


def test_hostile_offsets_of_an_arrow_file(tmp_path):
    """Compiled code would read the memory behind the file."""
    path = write_dataset(tmp_path / "d", table([b"x" * 40] * 3)) / "data-00000-of-00001.arrow"
    offsets = np.array([0, 40, 80, 120], np.int32).tobytes()
    content = path.read_bytes()
    assert content.count(offsets) == 1
    path.write_bytes(content.replace(offsets, np.array([0, 40, 1 << 30, 1 << 30], np.int32).tobytes()))
    with refuses(str(path), "damaged"):
        opened(Address(str(path)))


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_the_metadata_of_a_row_are_limited(tmp_path, suffix):
    found = table([png(1), png(2)], text=["x" * (1 << 21), "short"], missing=pa.array([None, float("nan")]))
    if suffix == "parquet":
        path = write_parquet(tmp_path / "t.parquet", found)
    else:
        path = write_dataset(tmp_path / "d", found) / "data-00000-of-00001.arrow"
    with pytest.raises(OSError, match="2,097,152 characters"):
        shards.metadata(path / "0")
    assert shards.metadata(path / "1") == {"text": "short"}


def test_rows_without_bytes(tmp_path):
    found = table([png(1), None, b"", b"no image"], ["a.png", "/etc/b.png", "c.png", "d.png"])
    address = Address(str(write_parquet(tmp_path / "t.parquet", found)))
    for name, says in (("etc/b.png", "no bytes in column image"), ("c.png", "empty file"), ("d.png", "not an image")):
        with pytest.raises(OSError, match=says):
            decode(Path(address.path(name)), name)
    assert grey(address.path("a.png")) == 1


def test_a_data_set_of_hugging_face_is_what_its_state_names(tmp_path):
    folder = write_dataset(tmp_path / "d", table([png(1)]), table([png(2)]))
    (folder / "data-00002-of-00003.arrow").write_bytes(b"of an earlier one")
    walked = [(folder, sorted(path.name for path in folder.iterdir()))]
    assert [path.name for path in shards.shards_among(walked)] == [f"data-0000{n}-of-00002.arrow" for n in (0, 1)]
    (folder / "data-00001-of-00002.arrow").unlink()
    with refuses(str(folder / "data-00001-of-00002.arrow"), "no such file", hint="state.json names it"):
        shards.shards_among(walked)
    for state in ("{", "[]", '{"_data_files": [{"filename": "../x"}]}', '{"_data_files": [{"filename": 1}]}'):
        (folder / "state.json").write_text(state)
        with refuses(str(folder / "state.json"), "does not name"):
            shards.shards_among(walked)


def test_other_processes_read_the_same(tmp_path):
    """Forked processes would share the position in an open file."""
    address = Address(str(write_parquet(tmp_path / "t.parquet", table([png(n) for n in range(40)]), row_group_size=10)))
    paths = [address.path(str(n)) for n in range(40)]
    assert [*map(grey, paths[:5])] == [*range(5)]
    with ProcessPoolExecutor(2) as pool:
        assert [*pool.map(grey, paths)] == [*range(40)]
    assert pickle.loads(pickle.dumps(ImageFile(Path(paths[3])))).read() == Path(paths[3])
