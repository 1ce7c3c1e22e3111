"""`contml embed`, `index`, `search` and `predict` of images in shards: as of the same images in a folder."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from support.refusals import refuses
from support.shards import png, table, tar, write_dataset, write_parquet

import contml as library
from contml.data.features import read_features
from contml.retrieval import embed_shards, embedding_files, load, named_images, named_shards


@pytest.fixture
def contents(trained):
    """The images of a folder by name, in order."""
    return {path.name: path.read_bytes() for path in sorted(trained.images.iterdir())}


@pytest.fixture
def archives(contents, tmp_path):
    """Three archives of 8 samples."""
    items = [*contents.items()]
    for number in range(3):
        members = {}
        for name, content in items[8 * number : 8 * number + 8]:
            members |= {name: content, f"{Path(name).stem}.json": json.dumps({"shard": number, "file": "x"}).encode()}
        tar(tmp_path / "shards" / f"p-{number:04d}.tar", members)
    return tmp_path / "shards"


def names_of(contents, prefix="p-{:04d}.tar/"):
    return [prefix.format(row // 8) + name for row, name in enumerate(contents)]


@pytest.fixture
def embedded(contml, trained, exported, tmp_path):
    """The embeddings of the folder of images."""
    shutil.copytree(trained.images, tmp_path / "photos")
    assert contml("embed", exported, "photos", "--out", "photos.npz")[0] == 0
    return read_features(tmp_path / "photos.npz").values


def ways(contents, tmp_path):
    """The same images in shards of each kind: arguments, and the names of the images."""
    row_names, found = [f"{row}.png" for row in range(24)], [*contents.values()]
    write_parquet(tmp_path / "t.parquet", table(found, n=[*range(24)]), row_group_size=5)
    write_dataset(tmp_path / "hf" / "train", table(found[:20], row_names[:20]), table(found[20:], row_names[20:]))
    train = [f"train/data-0000{n // 20}-of-00002.arrow/{row_names[n]}" for n in range(24)]
    return {
        "shards": names_of(contents),
        "shards/p-{0000..0002}.tar": names_of(contents, "shards/p-{:04d}.tar/"),
        "shards/*.tar": names_of(contents, "shards/p-{:04d}.tar/"),
        "shards/*.tar:png": names_of(contents, "shards/p-{:04d}.tar:png/"),
        "shards:png": names_of(contents, "p-{:04d}.tar:png/"),
        "t.parquet": [f"t.parquet/{n}" for n in range(24)],
        "t.parquet:image:n": [f"t.parquet:image:n/{n}" for n in range(24)],
        "hf": train,
    }


def test_embeddings_are_those_of_the_files(contml, exported, archives, contents, embedded, tmp_path):
    for number, (argument, names) in enumerate(ways(contents, tmp_path).items()):
        status, _, err = contml("embed", exported, argument, "--out", f"{number}.npz")
        assert (status, err) == (0, ""), argument
        found = read_features(tmp_path / f"{number}.npz")
        assert found.names == names
        assert np.array_equal(found.values, embedded)
        listed = named_images([argument])
        assert [image.name for image in listed] == names
        assert [str(image.file).removeprefix(f"{argument}/") for image in listed] == names or "hf" not in argument
    assert contml("embed", exported, "shards", "--out", "w.npz", "--workers", 2, "--batch-size", 128)[0] == 0
    assert np.array_equal(read_features(tmp_path / "w.npz").values, embedded)
    assert contml("embed", exported, "t.parquet", "--out", "v.npz", "--workers", 2)[0] == 0
    assert np.array_equal(read_features(tmp_path / "v.npz").values, embedded)


def test_single_images_lists_and_python(contml, exported, archives, contents, embedded, tmp_path):
    names = names_of(contents, "shards/p-{:04d}.tar/")
    (tmp_path / "shards" / "l.txt").write_text("p-0001.tar/0009.png\np-0000.tar/0003.png\n")
    assert contml("embed", exported, names[5], "@shards/l.txt", "photos/0007.png", "--out", "f.npz")[0] == 0
    found = read_features(tmp_path / "f.npz")
    assert found.names == [names[5], "p-0001.tar/0009.png", "p-0000.tar/0003.png", "photos/0007.png"]
    assert np.allclose(found.values, embedded[[5, 9, 3, 7]], atol=1e-5)
    model = load(exported)
    for given, rows in (("shards", range(24)), (archives / "p-0001.tar", range(8, 16)), ([names[4]], [4])):
        assert np.allclose(model.embed(given), embedded[[*rows]], atol=1e-5)
    tar(archives / "p-0001.tar", {"a.png": png(1), "b.png": b"no image"})
    assert np.isfinite(model.embed(archives / "p-0001.tar", broken="skip")).all(1).tolist() == [True, False]
    assert [*model.left_out] == [str(archives / "p-0001.tar" / "b.png")]


def test_a_list_with_a_folder(contml, exported, archives, contents, embedded, tmp_path):
    """A folder in a list is no image; a slash after the name of a shard changes nothing."""
    (tmp_path / "l.txt").write_text("photos/0001.png\nphotos\nshards/p-0001.tar/\n")
    status, out, err = contml("index", exported, "@l.txt", "--out", "i.index")
    assert (status, err) == (0, "photos: cannot be decoded (a folder)\n")
    assert out.startswith("i.index: 9 images added, 9 in all\n")
    assert contml("embed", exported, "shards/p-0001.tar/", "--out", "f.npz")[0] == 0
    assert read_features(tmp_path / "f.npz").names == names_of(contents, "shards/p-{:04d}.tar/")[8:16]


def test_all_arguments_that_are_not_there(contml, exported, archives):
    status, out, err = contml("predict", exported, "a.png", "shards", "b.png", "shards/p-0000.tar/x.png")
    assert (status, out) == (2, "")
    *others, last = err.splitlines()
    assert last == "contml: a.png: no such file or folder"
    names = "shards/p-0000.tar/x.png"
    assert others == [
        "b.png: no such file or folder",
        f"{names}: no such image in shards/p-0000.tar; its first one is 0000.png",
    ]


def test_a_list_of_shards(contml, exported, archives, contents, tmp_path):
    (tmp_path / "shards.txt").write_text("shards/p-0001.tar\nshards/p-0000.tar/0003.png\nshards/p-0002.tar\n")
    assert contml("embed", exported, "@shards.txt", "--out", "f.npz")[0] == 0
    names = names_of(contents, "shards/p-{:04d}.tar/")
    assert read_features(tmp_path / "f.npz").names == [*names[8:16], names[3], *names[16:]]
    (tmp_path / "shards.txt").write_text("shards/p-0001.tar\nshards/p-0002.tar\n")
    assert contml("embed", exported, "@shards.txt", "--out", "out")[1].startswith("out: 2 shards, 16 embeddings")


@pytest.mark.parametrize("out", ["f.npz", "f.parquet", "f.h5", "out"])
def test_a_name_that_is_not_unicode(contml, exported, contents, tmp_path, out):
    if out.endswith("h5"):
        pytest.importorskip("h5py", reason="needs h5py: pip install 'contml[hloc]'")
    tar(tmp_path / "s.tar", {"x\udcff.png": contents["0000.png"], "ü\n.png": contents["0001.png"]})
    assert contml("embed", exported, "s.tar", "--out", out)[0] == 0
    path = tmp_path / ("out/s.parquet" if out == "out" else out)
    if not out.endswith("h5"):
        escaped = "x\udcff.png" if out.endswith("npz") else "x\\udcff.png"
        assert read_features(path).names == [f"s.tar/{escaped}", "s.tar/ü\n.png"]
    status, out, err = contml("index", exported, "s.tar", "--out", "p.index")
    assert (status, "1 images added" in out) == (0, True)
    assert err == "s.tar/x\\udcff.png: cannot be decoded (its name is not valid Unicode: rename it)\n"


def test_broken_members_are_named_with_their_shard(contml, exported, archives, tmp_path):
    tar(archives / "p-0001.tar", {"good.png": png(3), "bad.png": b"no image", "link.png": "good.png", "\x1b.png": b"?"})
    for out in ("f.npz", "out"):
        status, _, err = contml("embed", exported, "shards", "--out", out)
        assert status == 0
        lines = [line for line in err.splitlines() if "cannot be decoded" in line]
        assert [line.partition(": ")[0] for line in lines] == [f"p-0001.tar/{n}.png" for n in ("bad", "link", "\\x1b")]
    assert read_features(tmp_path / "f.npz").names[8:10] == ["p-0001.tar/good.png", "p-0002.tar/0016.png"]


def test_an_index_of_shards(contml, exported, archives, contents, embedded, tmp_path):
    status, out, err = contml("index", exported, "shards", "--out", "p.index")
    assert (status, err) == (0, "")
    assert "24 images added, 24 in all" in out
    assert contml("index", exported, "shards", "--out", "p.index")[1].splitlines()[1].startswith("24 images were in")
    names = names_of(contents)
    with library.Index.open("p.index") as index:
        assert index.ids == names
        assert np.allclose(index.embeddings(names), embedded, atol=1e-5)
        path = str(archives / "p-0002.tar" / "0017.png")
        assert index.metadata([names[17]]) == [{"shard": "2", "shard.file": "x", "file": path}]
    query = "shards/p-0002.tar/0017.png"
    (found,) = json.loads(contml("search", "p.index", query, "-k", 3, "--gallery", "g.html", "--json")[1])
    first = found["found"][0]
    assert (found["query"], first["id"], first["metadata"]["shard"]) == (query, "p-0002.tar/0017.png", "2")
    assert first["same_image"]
    assert "same_image" not in found["found"][1]
    (found,) = json.loads(contml("search", "p.index", "photos/0017.png", "-k", 1, "--json")[1])
    assert found["found"][0]["same_image"]  # a copy
    assert contml("search", "p.index", "photos/0001.png", "-k", 3, "--gallery", "g2.png")[0] == 0
    assert contml("index", exported, "--out", "p.index", "--bind")[0] == 0
    status, out, _ = contml("predict", exported, query)
    assert status == 0
    assert out.splitlines()[1].startswith(query)
    shutil.rmtree(archives)
    status, out, err = contml("search", "p.index", "photos/0017.png", "-k", 3, "--gallery", "g3.html", "--json")
    assert (status, len(json.loads(out)[0]["found"])) == (0, 3)


def test_an_index_and_shards_that_change(contml, refused, exported, archives, contents, tmp_path):
    """One of the same name and other images is named, with what to do; one that is gone is counted."""
    contml("index", exported, "shards", "--out", "p.index")
    old = library.Index.open("p.index").embeddings(["p-0001.tar/0008.png"])
    names = [*contents]
    tar(archives / "p-0001.tar", {name: contents[names[row + 16]] for row, name in enumerate(names[8:16])})
    line = refused("index", exported, "shards", "--out", "p.index")
    assert "shards/p-0001.tar: changed since it was embedded in p.index; remove" in line
    command = re.search("contml (index --out p.index --remove p-0001.tar); the same", line)[1].split()
    assert contml(*command)[1] == "p.index: 8 images removed, 16 left\n"
    assert contml("index", exported, "shards", "--out", "p.index")[1].startswith("p.index: 8 images added, 24 in all")
    with library.Index.open("p.index") as index:
        new, same = index.embeddings(["p-0001.tar/0008.png", "p-0002.tar/0016.png"])
    assert np.allclose(new, same, atol=1e-5)
    assert not np.allclose(new, old, atol=1e-3)
    whole = (archives / "p-0002.tar").read_bytes()
    (archives / "p-0002.tar").write_bytes(whole[:700])
    line = refused("index", exported, "shards", "--out", "p.index")
    assert "shards/p-0002.tar: changed since it was embedded in p.index; remove" in line
    assert "contml index --out p.index --remove p-0002.tar" in line
    (archives / "p-0002.tar").write_bytes(whole)  # of another time
    assert contml("index", exported, "shards", "--out", "p.index")[1].startswith("p.index: 0 images added, 24 in all")
    assert "omit RUN and images" in refused("index", exported, "--out", "p.index", "--remove", "p-0002.tar")
    (archives / "p-0000.tar").unlink()
    out = contml("index", exported, "shards", "--out", "p.index")[1]
    assert "8 images of the index are not among these images, and stay in it" in out.splitlines()


def test_metadata_that_cannot_be_read_is_a_line(contml, exported, contents, tmp_path):
    tar(tmp_path / "s.tar", {"a.png": contents["0000.png"], "a.json": b"[1]", "b.png": contents["0001.png"]})
    status, out, err = contml("index", exported, "s.tar", "--out", "p.index")
    assert status == 0
    assert "2 images added" in out
    assert err == "s.tar/a.png: added without the metadata of its shard (its .json: a list, not values by name)\n"


def test_a_table_of_metadata_wins_over_the_shard(contml, exported, archives, tmp_path):
    (tmp_path / "m.csv").write_text("image,shard,price\np-0000.tar/0001.png,mine,7\n")
    assert contml("index", exported, "shards", "--out", "p.index", "--metadata", "m.csv")[0] == 0
    with library.Index.open("p.index") as index:
        first, second = index.metadata(["p-0000.tar/0001.png", "p-0000.tar/0002.png"])
    assert (first["shard"], first["price"], second["shard"]) == ("mine", "7", "0")


def test_a_damaged_shard_whose_images_were_added_at_several_times(
    contml, refused, exported, archives, contents, tmp_path
):
    """The first of its images has the state of the damaged file: all of them are asked."""
    contml("index", exported, "shards", "--out", "p.index")
    shard = archives / "p-0001.tar"
    shard.write_bytes(shard.read_bytes()[:700])
    with library.Index.open("p.index") as index:
        index.set_states({"p-0001.tar/0008.png": f"700 {shard.stat().st_mtime_ns}"})
    line = refused("index", exported, "shards", "--out", "p.index")
    assert "shards/p-0001.tar: changed since it was embedded in p.index; remove" in line


def test_the_second_image_of_a_shard_is_found_when_it_is_damaged(contml, refused, exported, contents, tmp_path):
    names = [*contents][:3]
    tar(tmp_path / "s.tar", {name: b"no image" if row == 1 else contents[name] for row, name in enumerate(names)})
    for command in (["embed", exported, "s.tar", "--out", "out"], ["index", exported, "s.tar", "--out", "i"]):
        for _ in range(2):
            status, out, err = contml(*command)
            assert (status, err.startswith(f"s.tar/{names[1]}: cannot be decoded")) == (0, True)
            assert "1 image could not be read" in out
    tar(tmp_path / "s.tar", {name: contents[name] for name in names})
    assert "s.tar: changed since" in refused("embed", exported, "s.tar", "--out", "out")
    assert contml("index", exported, "s.tar", "--out", "i")[1].startswith("i: 1 images added, 3 in all")


def test_shards_that_were_downloaded_again_are_unchanged(contml, refused, exported, archives, contents, tmp_path):
    """Another time alone is no change; with one changed byte of equal size, all such shards are named."""
    commands = [
        ["embed", exported, "shards", "--out", "out"],
        ["embed", exported, "shards", "--out", "f.npz"],
        ["index", exported, "shards", "--out", "i"],
    ]
    for command in commands:
        assert contml(*command)[0] == 0
    for path in archives.iterdir():
        os.utime(path, ns=(1, 1))
    assert contml(*commands[0])[1] == "out: complete already: 3 shards, 24 embeddings of 8 numbers\n"
    assert contml(*commands[1])[1] == "f.npz: complete already: 24 embeddings of 8 numbers\n"
    assert contml(*commands[2])[1].startswith("i: 0 images added, 24 in all\n")
    with library.Index.open("i") as index:  # the next call reads no image
        assert all(" 1 " in state for state in index.states(index.ids))
    for number in (0, 2):
        path = archives / f"p-000{number}.tar"
        content = bytearray(path.read_bytes())
        content[content.rfind(b"IDAT") + 5] ^= 1
        path.write_bytes(content)
    line = refused(*commands[0])
    assert "shards/p-0000.tar: changed since it was embedded in out (as have 1 other files)" in line
    assert "remove out/p-0000.parquet out/p-0002.parquet; the same command" in line
    assert "of images that have changed since" in refused(*commands[1])
    line = refused(*commands[2])
    assert "shards/p-0000.tar: changed since" in line
    assert "--remove p-0000.tar --remove p-0002.tar" in line


# -- a file for each shard ---------------------------------------------------------------------------------------------


def test_a_file_for_each_shard(contml, refused, exported, archives, contents, embedded, tmp_path, monkeypatch):
    command = ["embed", exported, "shards", "--out", "out"]
    status, out, err = contml(*command)
    assert (status, out, err) == (0, "out: 3 shards, 24 embeddings of 8 numbers\n", "")
    assert sorted(path.name for path in Path("out").iterdir()) == [f"p-000{n}.parquet" for n in range(3)]
    found = [read_features(tmp_path / "out" / f"p-000{n}.parquet") for n in range(3)]
    assert [name for each in found for name in each.names] == names_of(contents)
    assert np.allclose(np.concatenate([each.values for each in found]), embedded, atol=1e-5)
    files = {path: path.stat().st_mtime_ns for path in Path("out").iterdir()}
    Path("out/old.parquet").write_bytes(b"")
    note = "note: in out there is another .parquet file, of none of these shards\n"
    assert contml(*command)[::2] == (0, note)
    Path("out/old.parquet").unlink()
    (tmp_path / "out" / "p-0001.parquet").unlink()
    status, out, _ = contml(*command, "--json")
    expected = {"file": "out", "images": 24, "dim": 8, "kind": None, "resumed": 16, "broken": []}
    assert json.loads(out) == expected
    assert [path.name for path, time in files.items() if path.stat().st_mtime_ns != time] == ["p-0001.parquet"]
    assert read_features(tmp_path / "out" / "p-0001.parquet").names == found[1].names
    tar(archives / "p-0002.tar", {"new.png": png(1)})
    says = "shards/p-0002.tar: changed since it was embedded in out/p-0002.parquet; remove out/p-0002.parquet; the same"
    assert says in refused(*command)
    Path("out/p-0002.parquet").unlink()
    assert contml(*command)[0] == 0
    assert read_features(tmp_path / "out" / "p-0002.parquet").names == ["p-0002.tar/new.png"]
    says = "out/p-0000.parquet: exists already, made with --batch-size 128; remove it, or choose another folder"
    assert says in refused(*command, "--batch-size", "5")
    says = "out/p-0000.parquet: exists already, of p-0000.tar; remove it"
    assert says in refused("embed", exported, "shards/p-0000.tar", "--out", "out")
    monkeypatch.setattr(library.retrieval.Embedder, "identity", "of another model")
    assert "out/p-0000.parquet: exists already, of another model or --dim; remove it" in refused(*command)


def test_subfolders_have_files_of_their_own(contml, refused, exported, archives, tmp_path):
    (tmp_path / "all").mkdir()
    for name in "ab":
        shutil.copytree(archives, tmp_path / "all" / name)
    assert contml("embed", exported, "all", "--out", "out")[0] == 0
    assert len([*Path("out").rglob("*.parquet")]) == 6
    assert read_features(tmp_path / "out/b/p-0001.parquet").names[0] == "b/p-0001.tar/0008.png"
    says = "all/b/p-0000.tar: its file, o2/p-0000.parquet, is that of all/a/p-0000.tar too; give the folder"
    assert says in refused("embed", exported, "all/a/p-0000.tar", "all/b/p-0000.tar", "--out", "o2")
    assert "appears twice" in refused("embed", exported, "all/a/p-0000.tar", "all/a/p-0000.tar", "--out", "o2")


def test_an_interrupted_shard_continues(exported, archives, tmp_path, monkeypatch):
    """Its parts are kept, and other shards stay as they are."""
    from contml.evaluation import embed_parts

    monkeypatch.setattr(embed_parts, "_PART", 3)
    model, out = load(exported), tmp_path / "out"
    begun, embed_rows = [], embed_parts.embed_rows

    def counted(network, split, images, rows, **options):
        begun.append(split.name(rows[0]))
        if len(begun) == 5:
            raise KeyboardInterrupt
        return embed_rows(network, split, images, rows, **options)

    monkeypatch.setattr(embed_parts, "embed_rows", counted)
    shards = named_shards([str(archives)])
    with pytest.raises(KeyboardInterrupt):
        embed_shards(model, shards, out)
    assert [path.name for path in out.glob("*.parquet")] == ["p-0000.parquet"]
    begun += [""] * 5
    assert embed_shards(model, shards, out).images == 24
    assert begun[10:] == [f"p-000{n // 8}.tar/{n:04d}.png" for n in (11, 14, 16, 19, 22)]


REFUSED = {
    "photos": (
        "out",
        "photos: images; must be shards: .tar, Parquet, or a data set of Hugging Face; or write one",
    ),
    "@l.txt": ("out", "@l.txt: images; must be shards"),
    "shards/*.tgz": ("f.npz", "shards/*.tgz: no such file or folder"),
    "shards/p-{0000..0003}.tar": ("f.npz", "shards/p-0003.tar: no such file"),
    "shards/p-{0003..0000}.tar": ("f.npz", "{0003..0000}; must ascend"),
    "shards/p-{0..9999999}.tar": ("f.npz", "and have at most 1,000,000 numbers"),
    "shards/p-0000.tar/gone.png": ("f.npz", "no such image in shards/p-0000.tar; its first one is 0000.png"),
    "shards/p-0000.tar:jpg": ("f.npz", "shards/p-0000.tar:jpg: no images named KEY.jpg"),
    "photos:png": ("f.npz", "photos: a folder without shards; omit ':png'"),
    "photos/0000.png:png": ("f.npz", "photos/0000.png is not a shard; omit ':png'"),
    "packed": ("f.npz", "packed/s.tar.gz: a compressed archive; must be a .tar; unpack it: gunzip -k packed/s.tar.gz"),
    "packed/s.tar.gz": ("f.npz", "packed/s.tar.gz: a compressed archive"),
    "shards shards/p-0000.tar shards": ("f.npz", "p-0000.tar/0000.png: appears twice; give it once"),
    "two.parquet": ("f.npz", "two.parquet: 2 columns of bytes; choose one: 'two.parquet:a'; one of a, b"),
    "paths.parquet": ("f.npz", "a column of paths is read with '@FILE:COLUMN'"),
    "t": ("f.npz", "t/cut.tar: cut short"),
}


@pytest.mark.parametrize("content", [b"", "cut", b"no archive" * 100])
def test_a_shard_that_cannot_be_read_is_left_out(contml, exported, archives, contents, tmp_path, content):
    """As an image is: with a line, and counted; it is read when it is repaired."""
    good, bad = (archives / "p-0001.tar").read_bytes(), archives / "p-0001.tar"
    bad.write_bytes(good[:1600] if content == "cut" else content)
    for out, command in {
        "f.npz": ["embed", exported, "shards", "--out", "f.npz"],
        "out": ["embed", exported, "shards", "--out", "out"],
        "i": ["index", exported, "shards", "--out", "i"],
        "rank": ["predict", exported, "shards"],
    }.items():
        for _ in range(2):
            status, printed, err = contml(*command)
            assert status == 0
            (line,) = err.splitlines()
            assert line.startswith(("p-0001.tar: cannot be read (", "shards/p-0001.tar: cannot be read (")), line
            assert "1 shard could not be read" in printed
        data = json.loads(contml(*command, "--json")[1])
        assert [[*each] for each in data["broken"]] == [["shard", "cause"]], out
    assert len(read_features(tmp_path / "f.npz").names) == 16
    assert contml("embed", exported, "shards", "--out", "out")[0] == 0
    bad.write_bytes(good)
    assert contml("embed", exported, "shards", "--out", "out")[1] == (
        "out: 3 shards, 24 embeddings of 8 numbers (16 images from an earlier run)\n"
    )
    assert contml("index", exported, "shards", "--out", "i")[1].startswith("i: 8 images added, 24 in all")


def test_the_file_of_a_shard_without_images_that_can_be_read(contml, refused, exported, archives, tmp_path):
    """The other shards do not wait for it, and its file has the columns of theirs."""
    tar(archives / "p-0001.tar", {"a.png": b"no image"})
    status, out, err = contml("embed", exported, "shards", "--out", "out")
    assert (status, out) == (0, "out: 3 shards, 16 embeddings of 8 numbers; 1 image could not be read\n")
    assert err.startswith("p-0001.tar/a.png: cannot be decoded")
    first, second = (parquet.read_schema(f"out/p-000{n}.parquet") for n in (0, 1))
    assert first.remove_metadata() == second.remove_metadata()
    assert parquet.read_table("out/p-0001.parquet").num_rows == 0
    assert "nor can any other image" in refused("embed", exported, "shards/p-0001.tar", "--out", "alone")


#: Arguments that would name the output too, when the command is called again; and what is said of it.
INSIDE = {
    "shards --out shards": "shards: in the folder of shards that is read, shards; write it elsewhere",
    "shards --out shards/f.parquet": "shards/f.parquet: in the folder of shards that is read, shards",
    "shards:png --out shards/new/f.npz": "shards/new/f.npz: in the folder of shards that is read, shards",
    "pq --out link/f.parquet": "link/f.parquet: in the folder of shards that is read, pq",
    "pq/*.parquet --out pq/f.parquet": "pq/f.parquet: one of pq/*.parquet, which are read; write it elsewhere",
    "pq/* --out pq/out": "pq/out: one of pq/*, which are read",
    "pq/*.parquet --out pq": "pq/a.parquet: one of the shards that are read; choose another folder",
}


@pytest.mark.parametrize("given", INSIDE)
def test_an_output_among_the_inputs_is_refused(refused, exported, archives, contents, tmp_path, given):
    write_parquet(tmp_path / "pq" / "a.parquet", table([*contents.values()]))
    (tmp_path / "link").symlink_to("pq")
    before = sorted(tmp_path.rglob("*"))
    assert INSIDE[given] in refused("embed", exported, *given.split())
    if "f.parquet" in given:
        assert INSIDE[given] in refused("predict", exported, *given.split())
    assert "i: in the folder of shards that is read" in refused("index", exported, "pq", "--out", "pq/i")
    assert sorted(tmp_path.rglob("*")) == before


def test_an_output_in_a_folder_of_images(contml, refused, trained, exported, tmp_path):
    """Embeddings and an index are skipped there: the same commands find them complete. A picture would be an image."""
    shutil.copytree(trained.images, tmp_path / "photos")
    for command in (
        ["embed", exported, "photos", "--out", "photos/f.parquet"],
        ["index", exported, "photos", "--out", "photos/i"],
    ):
        assert contml(*command)[0] == 0
        status, out, _ = contml(*command)
        assert status == 0
        assert "complete already: 24 emb" in out or out.startswith("photos/i: 0 images added, 24 in all")
    assert "complete already: 24" in contml("embed", exported, "photos", "--out", "photos/f.parquet")[1]
    says = "photos/g.png: in the folder of images that is read, photos; write it elsewhere"
    assert says in refused("search", "photos/i", "photos", "--gallery", "photos/g.png")


@pytest.mark.parametrize("given", REFUSED)
def test_what_is_refused_in_one_line(refused, exported, archives, trained, tmp_path, given):
    shutil.copytree(trained.images, tmp_path / "photos")
    (tmp_path / "l.txt").write_text("photos/0000.png\n")
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / "s.tar.gz").write_bytes(b"\x1f\x8b")
    write_parquet(tmp_path / "two.parquet", pa.table({"a": [b"1"], "b": [b"2"]}))
    write_parquet(tmp_path / "paths.parquet", pa.table({"image": ["photos/0000.png"]}))
    path = tar(tmp_path / "t" / "cut.tar", {"a.png": png(1), "b.png": png(2)})
    path.write_bytes(path.read_bytes()[:1600])
    out, message = REFUSED[given]
    assert message in refused("embed", exported, *given.split(), "--out", out)


def test_a_list_of_a_table_of_paths(contml, exported, trained, tmp_path):
    """What the message about a column of paths says."""
    shutil.copytree(trained.images, tmp_path / "photos")
    write_parquet(tmp_path / "paths.parquet", pa.table({"image": ["photos/0000.png", "photos/0002.png"]}))
    assert contml("embed", exported, "@paths.parquet:image", "--out", "f.npz")[0] == 0
    assert read_features(tmp_path / "f.npz").names == ["photos/0000.png", "photos/0002.png"]


def test_kinds_are_of_one_file(refused, exported, archives):
    assert "--kind: used with a folder, out" in refused("embed", exported, "shards", "--out", "out", "--kind", "int8")


def test_what_a_folder_of_shards_skips(contml, exported, archives, tmp_path):
    """img2dataset writes a Parquet file and statistics beside each archive."""
    write_parquet(archives / "p-0000.parquet", pa.table({"url": ["x"]}))
    (archives / "p-0000_stats.json").write_text("{}")
    tar(archives / "p-0003.tar", {"a.png": png(1), "a.npy": b"1", "b.npy": b"1"})
    status, _, err = contml("embed", exported, "shards", "--out", "f.npz")
    assert status == 0
    assert sorted(err.splitlines()) == [
        "shards: skipped 1 .parquet file, 1 .json",
        "skipped in the shards: 2 .npy",
    ]


def test_a_shard_that_changes_between_two_commands(exported, archives, contents, tmp_path, monkeypatch):
    """Its parts are made again, those of the other shards are not."""
    from contml.evaluation import embed_parts

    monkeypatch.setattr(embed_parts, "_PART", 8)
    model, begun, embed_rows = load(exported), [], embed_parts.embed_rows

    def counted(network, split, images, rows, **options):
        begun.append(split.name(rows[0]))
        return embed_rows(network, split, images, rows, **options)

    monkeypatch.setattr(embed_parts, "embed_rows", counted)
    monkeypatch.setattr(embedding_files, "write_features", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        embedding_files.embed_to_file(model, named_images([str(archives)]), tmp_path / "f.npz")
    monkeypatch.undo()
    monkeypatch.setattr(embed_parts, "_PART", 8)
    monkeypatch.setattr(embed_parts, "embed_rows", counted)
    os.utime(archives / "p-0001.tar", ns=(1, 1))
    embedding_files.embed_to_file(model, named_images([str(archives)]), tmp_path / "f.npz")
    assert begun == [f"p-000{n}.tar/{8 * n:04d}.png" for n in (0, 1, 2, 1)]


def test_many_images_need_few_bytes_each(tmp_path):
    """No object of Python for each image: 10^6 would need a gigabyte."""
    import tracemalloc

    count = 20_000
    write_parquet(tmp_path / "t.parquet", pa.table({"image": [b"%08d" % row for row in range(count)]}))
    named_images([str(tmp_path / "t.parquet")])  # what is loaded once
    from contml.data import shards

    shards._opened.clear()
    tracemalloc.start()
    found = named_images([str(tmp_path / "t.parquet")])
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found) == count
    assert held / count < 400
    assert found[17].name.endswith("t.parquet/17")


def test_a_model_of_features_is_refused(trained, archives, tmp_path):
    old = Path(__file__).parent / "format_1" / "features"
    with refuses("", "vectors of 8 features, not images"):
        embed_shards(load(old), named_shards([str(archives)]), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_file_of_a_shard_is_parquet(contml, exported, archives, tmp_path):
    assert contml("embed", exported, "shards/p-0000.tar", "--out", "out")[0] == 0
    found = parquet.read_table("out/p-0000.parquet")
    assert found.column_names == ["name", "features"]
    assert found["name"].to_pylist()[0] == "shards/p-0000.tar/0000.png"
