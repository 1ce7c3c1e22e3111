"""A captioner in use: run and bundle write the captions of the evaluation; commands say what they do with one."""

import json
import re
import shutil
import sys
from functools import cache

import numpy as np
import pytest
import torch
from PIL import Image
from support.captioning import SMALL_DECODERS, TINY
from support.refusals import refuses

import contml as library
from contml import InputError
from contml._support.tensors import load_tensors, save_tensors
from contml.app.experiment import extract_features, load as load_config, load_run, train
from contml.captioning import beam_search, captioner
from contml.runs import Run
from contml.search.bundle import _sha256


class Described:
    """A run, its bundle, its test images as files, and their captions as the evaluation wrote them."""

    def __init__(self, run, folder):
        self.run = run
        self.bundle, self.images = folder / "model", folder / "images"
        library.load(self.run).save(self.bundle)
        self.images.mkdir()
        test = load_run(run)[0].build_task().test
        for row in range(len(test)):
            Image.fromarray(np.asarray(test.image(row))).save(self.images / f"{row:02d}.png")
        self.captions = [entry["caption"] for entry in json.loads(Run(self.run).captions("test").read_text())]


@pytest.fixture(scope="module")
def made(captioners, tmp_path_factory):
    """A function: the captioner with a decoder, trained when it is first needed."""
    return cache(lambda decoder: Described(captioners(decoder), tmp_path_factory.mktemp(decoder)))


@pytest.fixture(params=SMALL_DECODERS)
def described(request, made):
    return made(request.param)


@pytest.fixture
def lstm(made):
    return made("lstm")


@pytest.fixture
def bundle(lstm, tmp_path):
    """A copy to damage."""
    return shutil.copytree(lstm.bundle, tmp_path / "damaged")


def test_run_and_bundle_write_the_captions_of_the_evaluation(described, tmp_path):
    assert len(described.captions) == 16
    assert any(described.captions)
    moved = shutil.copytree(described.bundle, tmp_path / "moved")
    models = [library.load(folder) for folder in (described.run, described.bundle, moved)]
    for model in models:
        assert model.caption(described.images) == described.captions
        assert repr(model).endswith(": 32 x 32 pixels to captions, and to 8 numbers)")
    assert len({model.identity for model in models}) == 1
    embeddings = [model.embed(described.images) for model in models]
    assert np.array_equal(embeddings[0], embeddings[1])
    paths = sorted(described.images.iterdir())
    pictures = [Image.open(path) for path in paths]
    for images in (paths, pictures, iter(paths), [np.asarray(each) for each in pictures]):
        assert models[1].caption(images) == described.captions
    assert models[1].caption(paths[3]) == described.captions[3:4]
    assert models[1].caption([]) == []


def test_the_width_of_the_beam_is_that_of_the_training_or_the_given_one(lstm, monkeypatch):
    model, widths = library.load(lstm.bundle), []
    monkeypatch.setattr(captioner, "beam_search", lambda *given: widths.append(given[2]) or beam_search(*given))
    width = model.captioner.beam
    assert model.caption(lstm.images, beam=width) == lstm.captions
    greedy = model.caption(lstm.images, beam=1)
    assert widths == [width, 1]
    model.captioner.beam = 1
    assert model.caption(lstm.images) == greedy
    for beam in (0, -1, 1.5):
        with refuses("beam"):
            model.caption(lstm.images, beam=beam)


@pytest.mark.usefixtures("no_reports")
@pytest.mark.slow
def test_a_captioner_of_feature_maps_takes_maps(tmp_path):
    out = tmp_path / "features.npz"
    sections = [each for each in TINY if not each.startswith(("step", "model", "training"))]
    extract_features(load_config("captioning/synthetic", TINY), out, maps=True)
    changes = [f"images.features={out}", "model.backbone=features", "model.dim=null", "step=captioning", "loss=null"]
    changes += ["training.epochs=1", "training.evaluate_every=1", SMALL_DECODERS["attention"]]
    experiment = load_config("captioning/synthetic", [*sections, *changes])
    run, test = train(experiment, tmp_path / "runs"), experiment.build_task().test
    expected = [entry["caption"] for entry in json.loads(run.captions("test").read_text())]
    given = np.stack([test.image(row) for row in range(len(test))])
    library.load(run.folder).save(tmp_path / "model")
    for folder in (run.folder, tmp_path / "model"):
        model = library.load(folder)
        assert model.caption(given) == model.caption(list(given)) == expected
        assert model.caption(given[0]) == expected[:1]
        for wrong, got in (("photo.jpg", "a str"), (given[:, ..., :5], ", 5]")):
            with refuses("item 0", got=got):
                model.caption(wrong)
    with refuses("item 1", got=str([len(given[0]) - 1, given.shape[-1]])):
        model.caption([given[0], given[1][:-1]])


# -- hostile and damaged bundles ---------------------------------------------------------------------------------------


def changed(bundle, change):
    """The bundle with other weights or options, and the hash of the new file."""
    weights = bundle / "model.safetensors"
    tensors, values = load_tensors(weights)
    change(tensors, values["config"])
    save_tensors(weights, tensors, **values)
    record = json.loads((bundle / "bundle.json").read_text())
    (bundle / "bundle.json").write_text(json.dumps({**record, "sha256": _sha256(weights)}))


DAMAGE = {
    "no decoder": (lambda _, config: config.pop("decoder"), "no options of a decoder"),
    "no captioner": (lambda _, config: config.pop("captioner"), "no options of a captioner"),
    "unknown decoder": (lambda _, config: config["decoder"].update(name="gru"), "gru"),
    "another size": (lambda _, config: config["decoder"].update(hidden=17), "does not fit"),
    "a text": (lambda _, config: config.update(captioner="x"), "no options of a captioner"),
    "huge": (lambda _, config: config["decoder"].update(hidden=10**15), ""),
    "length": (lambda _, config: config["captioner"].update(length=0), "0"),
    "no word": (lambda tensors, _: tensors.update(words=torch.zeros(0, dtype=torch.uint8)), ""),
    "no words": (lambda tensors, _: tensors.pop("words"), "does not fit"),
    "numbers": (lambda tensors, _: tensors.update(words=torch.zeros(9)), "must be torch.uint8 [n]"),
    "not UTF-8": (lambda tensors, _: tensors.update(words=torch.full((9,), 255, dtype=torch.uint8)), "UTF-8"),
    "fewer words": (lambda tensors, _: tensors.update(words=tensors["words"][:4]), "does not fit"),
    "one tensor less": (lambda tensors, _: tensors.pop("decoder.image.weight"), "does not fit"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_captioner_is_one_line(bundle, name):
    change, got = DAMAGE[name]
    changed(bundle, change)
    with pytest.raises(InputError) as caught:
        library.load(bundle)
    assert got in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_decoder_of_the_user_is_imported_only_with_trust(bundle, tmp_path, monkeypatch):
    changed(bundle, lambda _, config: config["decoder"].update(name="own_decoder:Own"))
    (tmp_path / "own_decoder.py").write_text(
        "open('imported', 'w').close()\nfrom contml.captioning import LSTMDecoder\nclass Own(LSTMDecoder):\n    pass\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with refuses(str(bundle), got="its decoder is code to import (own_decoder:Own)", hint="trust=True"):
        library.load(bundle)
    assert not (tmp_path / "imported").exists()
    assert type(library.load(bundle, trust=True).captioner.decoder).__name__ == "Own"
    monkeypatch.delitem(sys.modules, "own_decoder")


# -- commands ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["run", "bundle"])
def test_the_command_prints_the_captions(contml, lstm, form):
    folder = getattr(lstm, form)
    status, out, err = contml("caption", folder, lstm.images)
    assert (status, err) == (0, "")
    lines = [re.split(r"  +", line.strip()) for line in out.splitlines()]
    assert lines[0] == ["image", "caption"]
    assert lines[1:] == [[f"{row:02d}.png", text] for row, text in enumerate(lstm.captions)]
    captions = [{"image": f"{row:02d}.png", "caption": text} for row, text in enumerate(lstm.captions)]
    out = contml("caption", folder, lstm.images, "--json", "--batch-size", "128")[1]
    assert json.loads(out) == {"captions": captions, "broken": []}
    out = contml("caption", folder, lstm.images / "03.png", "--json", "--beam", "1")[1]
    assert json.loads(out)["captions"][0]["image"] == str(lstm.images / "03.png")


def test_the_command_names_images_that_cannot_be_read(contml, accepted, refused, lstm, tmp_path):
    (tmp_path / "text.png").write_text("no image")
    shutil.copy(lstm.images / "00.png", tmp_path / "a.png")
    out, err = accepted("caption", lstm.bundle, "a.png", "text.png")
    assert err.startswith("text.png: cannot be decoded (")
    assert out.splitlines()[-1] == "1 image could not be read"
    model = library.load(lstm.bundle)
    with refuses("text.png", got="cannot be decoded"):
        model.caption(["a.png", "text.png"])
    assert model.caption(["a.png", "text.png"], broken="skip") == [lstm.captions[0], ""]
    found = json.loads(contml("caption", lstm.bundle, "a.png", "text.png", "--json")[1])
    assert [each["image"] for each in found["captions"]] == ["a.png"]
    assert [each["image"] for each in found["broken"]] == ["text.png"]
    status, out, err = contml("caption", lstm.bundle, "text.png")
    assert (status, out) == (2, "")
    assert err.splitlines()[-1].startswith("contml: text.png: cannot be decoded, nor can any other image")


def test_wrong_commands_are_one_line(refused, lstm, tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    assert "none.png: no such file" in refused("caption", lstm.bundle, "none.png")
    assert "'--beam'" in refused("caption", lstm.bundle, "a.png", "--beam", "0")
    line = refused("export", lstm.run, "graph", "--format", "onnx")
    assert "captioning/synthetic: a captioner, whose search for words is no graph; export a bundle" in line
    assert not (tmp_path / "graph").exists()


def test_commands_say_which_embeddings_are_those_of_a_captioner(contml, lstm):
    note = "is a captioner: the index holds the embeddings of its visual network; 'contml caption' describes images"
    status, out, err = contml("index", lstm.run, lstm.images, "--out", "i")
    assert (status, err) == (0, "")
    assert out.splitlines()[0] == f"{lstm.run} {note}"
    status, out, err = contml("index", lstm.bundle, lstm.images, "--out", "i", "--json")
    assert json.loads(out)["present"] == 16
    assert err == f"{lstm.bundle} {note}\n"
    out = contml("embed", lstm.bundle, lstm.images, "--out", "e.npz")[1]
    assert out.splitlines()[0] == f"{lstm.bundle} {note.replace('index', 'file')}"
    found = contml("search", "i", lstm.images / "03.png", "-k", "1", "--json")[1]
    assert json.loads(found)[0]["found"][0]["id"] == "03.png"
    assert contml("export", lstm.run, "model")[1] == f"model: {library.load(lstm.run)}\n"
