"""A model on the Hugging Face hub, without a network: the cache that a download leaves, uploads to a folder."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.refusals import refuses

import contml
from contml.search.bundle import LABELS, RECORD, WEIGHTS, read

hub = pytest.importorskip("huggingface_hub", reason="needs huggingface_hub: pip install 'contml[hub]'")
COMMIT = "0123456789abcdef0123456789abcdef01234567"
OLD = Path(__file__).parent / "format_1"


def cached(cache, folder, name="user/name", revisions=("main",), commit=COMMIT):
    """The cache of huggingface_hub after a download: files as links to blobs, and the commit of each revision."""
    place = cache / f"models--{name.replace('/', '--')}"
    snapshot = place / "snapshots" / commit
    for path in (snapshot, place / "blobs", *((place / "refs" / each).parent for each in revisions)):
        path.mkdir(parents=True, exist_ok=True)
    for number, path in enumerate(sorted(folder.iterdir())):
        blob = place / "blobs" / f"{commit[:4]}{number}"
        shutil.copy(path, blob)
        (snapshot / path.name).symlink_to(os.path.relpath(blob, snapshot))
    for each in revisions:
        (place / "refs" / each).write_text(commit)
    return snapshot


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and no network."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return tmp_path / "cache"


FRESH = """
import sys
import numpy as np, contml
images, *sources = sys.argv[1:]
np.save("found.npy", [contml.load(source, device="cpu").embed(images) for source in sources])
"""


@pytest.mark.slow
def test_a_fresh_process_has_the_same_embeddings_bit_for_bit(exported, trained, tmp_path):
    cached(tmp_path / "cache", exported)
    environment = {**os.environ, "HF_HUB_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-c", FRESH, trained.images, "hf://user/name", trained.run]
    subprocess.run(command, check=True, cwd=tmp_path, env=environment)
    found = np.load(tmp_path / "found.npy")
    assert np.array_equal(*found)
    assert np.abs(found[0] - trained.embeddings).max() <= 1e-6


def test_revisions(exported, trained, cache, bundle, pictures):
    model = contml.load(exported)
    model.model.head.bias += 1
    shutil.rmtree(bundle)
    model.save(bundle, labels=False)
    cached(cache, exported)
    cached(cache, bundle, revisions=("v2", "refs/pr/3"), commit=COMMIT[::-1])
    first = contml.load("hf://user/name").embed(pictures)
    assert np.array_equal(first, contml.load("hf://user/name@main", local_files_only=True).embed(pictures))
    for revision in ("v2", "refs/pr/3", COMMIT[::-1]):
        found = contml.load(f"hf://user/name@{revision}", local_files_only=True).embed(pictures)
        assert np.allclose(found, first + 1, atol=1e-5)
    assert np.array_equal(contml.load("hf://user/name", device="cpu").embed(pictures), first)


def test_nothing_but_the_bundle_is_asked_for_and_only_on_demand(exported, cache, monkeypatch):
    asked = []

    def download(name, **options):
        asked.append((name, options))
        return str(exported)

    monkeypatch.setattr("contml.search.hub.snapshot_download", download)
    contml.load(exported)
    assert asked == []
    contml.load("hf://user/name@v2")
    contml.load(Path("hf://user/name"), local_files_only=True)  # a path has lost a slash
    files = [RECORD, WEIGHTS, LABELS, "README.md"]
    assert [(name, options["revision"], options["local_files_only"]) for name, options in asked] == [
        ("user/name", "v2", False),
        ("user/name", None, True),
    ]
    assert all(options["allow_patterns"] == files for _, options in asked)


def test_the_options_that_are_used_are_those_of_huggingface_hub():
    """Of any version: names that a later one no longer has would fail here."""
    names = inspect.signature(hub.snapshot_download).parameters
    used = ("revision", "allow_patterns", "library_name", "local_files_only", "token", "cache_dir", "force_download")
    assert {*used} <= names.keys()
    assert {"repo_id", "private", "commit_message", "token"} <= inspect.signature(
        hub.PyTorchModelHubMixin.push_to_hub
    ).parameters.keys()


@pytest.mark.parametrize(
    ("address", "got"),
    [
        ("hf://user", "hf://user"),
        ("hf://", "hf://"),
        ("hf://user/name/more", "hf://user/name/more"),
        ("hf://user/name@", "hf://user/name@"),
        ("hf://us er/name", "Repo id must"),
        ("hf://user/..", "Repo id must"),
        ("hf://user/nothing", "not in the cache"),
        ("hf://user/name@v3", "not in the cache"),
    ],
)
@pytest.mark.parametrize("local_files_only", [False, True])
def test_an_address_that_leads_nowhere_is_one_line(exported, cache, address, got, local_files_only):
    cached(cache, exported)
    with refuses("h", got=got):
        contml.load(address, local_files_only=local_files_only)


def refusal(kind):
    """An error of the server, as huggingface_hub makes it from the answer."""
    response = SimpleNamespace(status_code=404, headers={}, request=None)  # of httpx or httpx2, by its version
    return getattr(hub.errors, kind)(f"{kind}\nfor url", response=response)


@pytest.mark.parametrize(
    ("kind", "got"),
    [
        ("RepositoryNotFoundError", "no such repository, or you have no access"),
        ("GatedRepoError", "no such repository, or you have no access"),
        ("RevisionNotFoundError", "no such revision"),
        ("HfHubHTTPError", "HfHubHTTPError"),
    ],
)
def test_a_refusal_of_the_server_is_one_line(monkeypatch, exported, kind, got):
    def fail(*_, **__):
        raise refusal(kind)

    monkeypatch.setattr("contml.search.hub.snapshot_download", fail)
    with refuses("hf://user/name@v1", got=got):
        contml.load("hf://user/name@v1")
    monkeypatch.setattr("huggingface_hub.hub_mixin.HfApi.create_repo", fail)
    with refuses("user/name", got=got):
        contml.load(exported).push_to_hub("user/name")


def test_a_repository_without_a_bundle(cache, tmp_path, trained):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text("{}")
    shutil.copy(trained.run / "config.yaml", tmp_path / "other")  # a run is read from disk only
    cached(cache, tmp_path / "other")
    with refuses("hf://user/name", got="not a model of contml: no bundle.json"):
        contml.load("hf://user/name")


def test_code_is_imported_only_with_trust(cache, monkeypatch):
    cached(cache, OLD / "images")
    with refuses("model.safetensors", hint="trust=True"):
        contml.load("hf://user/name")
    assert contml.load("hf://user/name", trust=True).embedding_dim == 4


def test_the_command_line(contml, exported, trained, cache, tmp_path):
    cached(cache, exported)
    shutil.copytree(trained.images, tmp_path / "photos")
    assert contml("embed", "hf://user/name", "photos", "--out", "f.npz")[::2] == (0, "")
    assert np.abs(np.load("f.npz")["features"] - trained.embeddings).max() <= 1e-6
    assert contml("index", "hf://user/name", "photos", "--out", "photos.index")[0] == 0
    status, _, err = contml("search", "photos.index", "photos/0003.png")  # the hub is asked only where it is named
    assert status == 2
    assert "which is on the hub; name its model: --run hf://user/name" in err
    status, out, err = contml("search", "photos.index", "photos/0003.png", "--run", "hf://user/name")
    assert (status, err) == (0, "")
    assert "0003.png" in out
    assert contml("export", "hf://user/name", "copy")[0] == 0
    assert {path.name: path.read_bytes() for path in exported.iterdir()} == {
        path.name: path.read_bytes() for path in Path("copy").iterdir()
    }


def test_a_package_that_is_missing(refused, monkeypatch, tmp_path):
    monkeypatch.delitem(sys.modules, "contml.search.hub", raising=False)
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    message = refused("export", "hf://user/name", "model")
    assert 'needs huggingface_hub; pip install "contml[hub]"' in message


# -- upload ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def uploads(tmp_path, monkeypatch):
    """A hub in a folder."""
    from huggingface_hub.hub_mixin import HfApi

    class Repository:
        def __init__(self, repo_id):
            self.repo_id = repo_id

    def upload(self, *, repo_id, folder_path, **options):
        shutil.copytree(folder_path, tmp_path / "hub" / repo_id)
        return f"https://huggingface.co/{repo_id}/commit/1 {options['commit_message']}"

    monkeypatch.setattr(HfApi, "create_repo", lambda self, repo_id, **options: Repository(repo_id))
    monkeypatch.setattr(HfApi, "upload_folder", upload)
    return tmp_path / "hub"


def test_push_and_load_again(trained, exported, uploads, cache, pictures):
    model = contml.load(trained.run, device="cpu")
    assert model.push_to_hub("me/people", commit_message="first").endswith("me/people/commit/1 first")
    folder = uploads / "me" / "people"
    assert sorted(path.name for path in folder.iterdir()) == ["README.md", RECORD, LABELS, WEIGHTS]
    assert (folder / WEIGHTS).read_bytes() == (exported / WEIGHTS).read_bytes()
    assert (folder / "README.md").read_text() == (exported / "README.md").read_text().replace("USER/NAME", "me/people")
    cached(cache, folder, "me/people")
    expected = model.embed(pictures)
    for source in ("me/people", folder, str(folder)):
        found = contml.Embedder.from_pretrained(source, local_files_only=True, device="cpu")
        assert np.array_equal(found.embed(pictures), expected)
        assert found.bundle.calibration == model.bundle.calibration
    again = contml.load("hf://me/people")
    again.push_to_hub("you/copy", labels=False)
    files = [path.name for path in sorted((uploads / "you" / "copy").iterdir())]
    assert files == ["README.md", RECORD, WEIGHTS]
    with refuses("no name", got="Repo id must"):
        model.push_to_hub("no name")


def test_the_module_of_huggingface_hub(trained, exported, uploads, tmp_path, pictures):
    from contml.search.hub import HubModel

    model = HubModel.from_pretrained(exported, device="cpu")
    assert isinstance(model, hub.PyTorchModelHubMixin)
    assert isinstance(model, torch.nn.Module)
    images = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2)
    assert np.abs(model(images).numpy() - trained.embeddings).max() <= 1e-5
    model.save_pretrained(tmp_path / "saved")
    assert {path.name: path.read_bytes() for path in exported.iterdir()} == {
        path.name: path.read_bytes() for path in (tmp_path / "saved").iterdir()
    }
    model.push_to_hub("me/people")
    contml.load(exported).save_pretrained(tmp_path / "other")
    assert sorted(path.name for path in (tmp_path / "other").iterdir()) == [
        "README.md", RECORD, LABELS, WEIGHTS
    ]  # fmt: skip
    with refuses("hf://me/nothing", got="not in the cache"):
        HubModel.from_pretrained("me/nothing", local_files_only=True, cache_dir=tmp_path)
    for name in ("modle", tmp_path / "modle"):
        with refuses(str(name), got="no such folder", allowed="USER/NAME"):
            HubModel.from_pretrained(name)


# -- model card --------------------------------------------------------------------------------------------------------


def test_the_card_says_what_the_run_knows(trained, exported):
    card = hub.ModelCard.load(exported / "README.md")
    data = card.data
    assert data.tags == ["contml"]
    assert (data.library_name, data.pipeline_tag, data.license) == ("contml", "image-feature-extraction", None)
    assert (exported / "README.md").read_text().startswith("---\n# license: (choose one")
    unit = "Label distance: pixels, over 14 joints"
    for text in ("# pose/synthetic", unit, "that of a random ranking", 'contml.load("hf://USER/NAME")'):
        assert text in card.text, text
    assert len(card.content.splitlines()) <= 24
    assert str(trained.run.parent) not in card.content


def test_the_three_lines_of_the_card_run(exported, cache, trained, tmp_path, monkeypatch):
    cached(cache, exported, "USER/NAME")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained.images, tmp_path / "photos")
    (block,) = re.findall(r"```python\n(.*?)```", (exported / "README.md").read_text(), re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(block, "README.md", "exec"), names)
    assert np.abs(names["embeddings"] - trained.embeddings).max() <= 1e-6


def test_the_card_of_the_user_stays(contml, trained, tmp_path):
    Path("mine").mkdir()
    Path("mine/README.md").write_text("my own card")
    status, out, _ = contml("export", trained.run, "mine")
    assert (status, out.count("\n")) == (0, 2)
    assert Path("mine/README.md").read_text() == "my own card"
    assert contml("export", trained.run, "plain", "--no-labels")[0] == 0
    assert sorted(path.name for path in Path("plain").iterdir()) == ["README.md", RECORD, WEIGHTS]
    Path("plain/README.md").write_text("edited")
    assert contml("export", "plain", "again")[0] == 0
    assert Path("again/README.md").read_text() == "edited"


def card_of(folder):
    return hub.ModelCard(read(folder).card)


def test_bundles_without_a_card_get_one(tmp_path):
    card = card_of(OLD / "features")
    assert card.data.tags == ["contml"]
    assert card.data.pipeline_tag == "feature-extraction"
    assert "vectors of 8 numbers" in card.text
    assert "random" not in card.text
    contml.load(OLD / "features").save(tmp_path / "new")
    assert (tmp_path / "new" / "README.md").read_text() == read(OLD / "features").card


def test_a_name_cannot_break_the_card(tmp_path, bundle):
    import json

    record = json.loads((bundle / RECORD).read_text())
    record["name"] = "a|b\n---\n# <script>alert(1)</script> ![x](http://x) \x1b[0m"
    (bundle / RECORD).write_text(json.dumps(record))
    (bundle / "README.md").unlink()
    card = card_of(bundle)
    assert card.data.tags == ["contml"]
    assert "<script>" not in card.content.replace("\\<script\\>", "")
    assert "\x1b" not in card.content
    assert len([line for line in card.text.splitlines() if line.startswith("# ")]) == 1


def test_a_broken_card_is_no_obstacle(bundle, pictures):
    (bundle / "README.md").write_bytes(b"\xff\xfe not text")
    assert contml.load(bundle).embed(pictures[:1]).shape == (1, 8)
    (bundle / "README.md").unlink()
    (bundle / "README.md").mkdir()
    with refuses("README.md", got="a folder"):
        contml.load(bundle)
