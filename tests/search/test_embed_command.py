"""`contml export` and `contml embed`: names, lists, formats, broken images, a kill and what is left of it."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from support.images import PHONE, phone, without_heif
from support.refusals import refuses

import contml as library
from contml.data.features import finished_file, read_features, write_features
from contml.evaluation.embed_parts import Parts
from contml.search import embed_to_file, named_images


@pytest.fixture
def images(trained, tmp_path):
    return shutil.copytree(trained.images, tmp_path / "photos")


@pytest.mark.parametrize("suffix", ["npz", "parquet"])
def test_names_and_embeddings_of_a_folder(contml, trained, exported, images, tmp_path, suffix):
    (images / "more").mkdir()
    shutil.copy(images / "0003.png", images / "more" / "0003.png")
    status, out, err = contml("embed", exported, "photos", "--out", f"f.{suffix}")
    assert (status, err) == (0, "")
    names, found = read_features(tmp_path / f"f.{suffix}")
    assert names == [*(f"{row:04d}.png" for row in range(24)), "more/0003.png"]
    assert found.dtype == np.float32
    assert np.abs(found - trained.embeddings[[*range(24), 3]]).max() <= 1e-6
    assert out == f"f.{suffix}: 25 embeddings of 8 numbers\n"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_broken_images_are_listed_and_left_out(contml, accepted, exported, images, tmp_path):
    (images / "0001.png").write_text("no image")
    (images / "0002.png").write_bytes(b"")
    out, err = accepted("embed", exported, "photos", "--out", "f.npz")
    assert [line.split(": ")[0] for line in err.splitlines()] == ["0001.png", "0002.png"]
    assert out == "f.npz: 22 embeddings of 8 numbers; 2 images could not be read\n"
    assert read_features(tmp_path / "f.npz")[0] == [f"{row:04d}.png" for row in range(24) if row not in (1, 2)]
    _, out, err = contml("embed", exported, "photos", "--out", "g.npz", "--json", "--workers", 1, "--batch-size", 5)
    data = json.loads(out)
    assert [each["image"] for each in data.pop("broken")] == ["0001.png", "0002.png"]
    assert data == {"file": "g.npz", "images": 22, "dim": 8, "resumed": 0}


def test_lists(contml, trained, exported, images, tmp_path):
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "l.txt").write_text("\ufeff../photos/0004.png\n\n../photos/0002.png\r\n")
    (tmp_path / "lists" / "t.csv").write_text('id,"image, path"\n1,../photos/0005.png\n2,"../photos/0006.png"\n')
    (tmp_path / "lists" / "t.tsv").write_text("image\tid\n../photos/0007.png\t1\n")
    arguments = ["@lists/l.txt", "@lists/t.csv:image, path", "@lists/t.tsv:image", images / "0000.png"]
    assert contml("embed", exported, *arguments, "--out", "f.npz")[0] == 0
    names, found = read_features(tmp_path / "f.npz")
    assert names == [*(f"../photos/000{n}.png" for n in (4, 2, 5, 6, 7)), str(images / "0000.png")]
    assert np.allclose(found, trained.embeddings[[4, 2, 5, 6, 7, 0]], atol=1e-5)


def test_how_a_list_is_read(contml, refused, exported, images, tmp_path):
    """The options of every table, as `--table`."""
    (tmp_path / "t.csv").write_bytes("place|image\nKöln|photos/0005.png\nBonn|-\n".encode("latin-1"))
    options = ["--table", "encoding=latin-1", "--table", "delimiter=|"]
    command = ["embed", exported, "@t.csv:image", "--out", "f.npz", *options]
    assert "t.csv:3: no path in column" in refused(*command, "--table", "missing_words=[-]")
    assert contml(*command)[0] == 0


def test_models_that_cannot_embed_images(refused, images, tmp_path):
    old = Path(__file__).parent / "format_1"
    assert "vectors of 8 features, not images" in refused("embed", old / "features", "photos", "--out", "f.npz")


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_why_a_file_is_another_one(contml, refused, exported, images, monkeypatch, suffix):
    command, out = ["embed", exported, "photos", "--out", f"f{suffix}"], f"f{suffix}: exists already, "
    contml(*command)
    assert f"{out}made with --batch-size 128; choose another file, or remove it" in refused(*command, "--batch-size", 5)
    with monkeypatch.context() as patch:
        patch.setattr(library.search.Embedder, "identity", "of another model")
        assert f"{out}of another model or --dim" in refused(*command)
    os.utime("photos/0001.png", ns=(1, 1))
    assert f"f{suffix}: complete already: " in contml(*command)[1]
    size = Path("photos/0001.png").stat().st_size
    Path("photos/0001.png").write_bytes(Path("photos/0002.png").read_bytes().ljust(size, b"\0")[:size])
    assert f"{out}of other images, or of images that have changed since; choose" in refused(*command)


def test_why_a_file_of_0_1_is_another_one(contml, refused, exported, images, tmp_path):
    """It does not say what it was made with."""
    command, path = ["embed", exported, "photos", "--out", "f.npz"], tmp_path / "f.npz"
    contml(*command)
    found, made = read_features(path), finished_file(path)
    write_features(path, found.names, None, found.values, made[:4])
    assert contml(*command)[0] == 0
    assert "of another model, of other options, or of images" in refused(*command, "--batch-size", 5)


def test_export(contml, trained, exported, refused):
    Path("model").mkdir()
    Path("model/README.md").write_text("my own page")
    status, out, err = contml("export", trained.run, "model")
    assert (status, err) == (0, "")
    first, second = out.splitlines()
    assert first == f"model: {library.load(exported)!r}"
    assert second.startswith("model/labels.safetensors has the labels of 40 training items: before you publish them")
    assert Path("model/README.md").read_text() == "my own page"
    assert Path("model/model.safetensors").read_bytes() == (exported / "model.safetensors").read_bytes()
    assert Path("model/bundle.json").read_bytes() == (exported / "bundle.json").read_bytes()
    status, out, err = contml("export", trained.run, "model")
    assert (status, err) == (0, "")
    assert out.startswith("model: complete already: ")
    Path("model/notes.txt").touch()
    assert "model: exists already and is not empty" in refused("export", trained.run, "model")
    assert "labels.safetensors" not in contml("export", trained.run, "private", "--no-labels")[1]
    assert sorted(path.name for path in Path("private").iterdir()) == ["bundle.json", "model.safetensors"]


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_killed_when_its_file_was_whole(contml, refused, exported, images, tmp_path, monkeypatch, suffix):
    def killed(_):
        raise SystemExit(9)  # stands for SIGKILL

    out = tmp_path / f"f{suffix}"
    (images / "0001.png").write_text("no image")
    with monkeypatch.context() as patch:
        patch.setattr(Parts, "remove", killed)
        assert contml("embed", exported, images, "--out", out)[0] == 9
    before = out.read_bytes()
    assert (tmp_path / f".{out.name}.parts").is_dir()
    for _ in range(2):
        status, printed, err = contml("embed", exported, images, "--out", out)
        assert (status, err.split(":")[0]) == (0, "0001.png")
        assert printed == f"{out}: complete already: 23 embeddings of 8 numbers; 1 image could not be read\n"
        assert not (tmp_path / f".{out.name}.parts").exists()
    for other in ((exported, images, "--batch-size", 8), (exported, images / "0000.png")):
        assert f"{out}: exists already" in refused("embed", *other, "--out", out)
    shutil.copy(images / "0000.png", images / "0001.png")
    assert f"{out}: exists already" in refused("embed", exported, images, "--out", out)
    assert out.read_bytes() == before


def test_what_changed_since_the_kill_is_embedded_again(exported, trained, images, tmp_path, monkeypatch):
    monkeypatch.setattr("contml.evaluation.embed_parts._PART", 8)
    (images / "0010.png").write_text("no image")
    model, out = library.load(exported), tmp_path / "f.npz"

    def resumed(stop=False, model=model):
        class StopError(Exception):
            pass

        def progress(finished):
            if stop and finished == 24:  # all parts are on disk
                raise StopError

        try:
            return embed_to_file(model, named_images([str(images)]), out, progress=progress, batch_size=8).resumed
        except StopError:
            return None

    assert resumed(stop=True) is None
    shutil.copy(trained.images / "0010.png", images / "0010.png")  # repaired
    (part,) = tmp_path.glob(".f.npz.parts/*/images-000000016*")
    part.write_bytes(part.read_bytes()[:-1])  # damaged
    assert resumed() == 8
    assert np.allclose(read_features(out)[1], trained.embeddings, atol=1e-5)
    out.unlink()
    assert resumed(stop=True) is None
    monkeypatch.setattr(type(model), "identity", property(lambda _: "of another model"))
    assert resumed() == 0


def test_commands_say_what_they_skip_in_a_folder(contml, exported, tmp_path, monkeypatch):
    phone(tmp_path / "photos")
    commands = [[name, exported, "photos", "--out", out] for name, out in (("embed", "f.npz"), ("index", "i"))]
    for command in (*commands, ["search", "i", "photos", "--run", exported]):
        without_heif(monkeypatch)
        status, out, err = contml(*command)
        assert (status, err) == (0, f"photos: {PHONE}\n"), command
    assert "a/0.jpg" in out


def test_embeddings_that_are_not_finite_are_not_written(exported, images, tmp_path):
    model, out = library.load(exported), tmp_path / "f.npz"
    model.model.head.weight.data.fill_(3e38)
    with refuses("0000.png", "its embedding is not finite"):
        embed_to_file(model, named_images([str(images)]), out)
    assert not out.exists()
