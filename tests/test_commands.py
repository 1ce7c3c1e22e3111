"""Every command of every page runs as it is typed, on miniatures of the official data sets.

A fast test reads each command as the command line does, loads its config and builds its task. A slow test runs them,
from the top of a page to its end. The heads of configs are pages too: `test_configs.py` takes a step of each.
"""

import itertools
import json
import re
import runpy
import shutil
import sys
import tomllib
from http.server import ThreadingHTTPServer

import numpy as np
import pyarrow
import pytest
import torch
from pyarrow import parquet
from support import commands as of_pages
from support.commands import PAGES, app_commands, commands, experiment_of, parsed
from support.paths import ROOT
from torchvision import models

from contml.app.experiment import config_names, config_text, load, task_table

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
#: Commands that no test runs, by how they begin, and why.
NOT_RUN = {
    "git clone": "needs a network", "git config": "changes the settings of a user", "cd": "changes into the clone",
    "source": "prepares a terminal", "curl": "needs a network", "python3 -m venv": "makes an environment, as CI does",
    "accelerate launch": "needs several GPUs", "contml benchmark": "trains for hours; tests/app runs a small suite",
    "hf": "needs a network and an account", "wandb": "needs an account", "tensorboard": "serves until it is stopped",
    "sphinx-build": "test_site.py builds the site", "python -m benchmarks.weights": "trains eleven networks",
    "python -m pytest": "runs this test", "contml --version": "is no command; test_imports.py calls it",
}  # fmt: skip


def begins(words):
    """A command in one line, without the folder of the program."""
    return " ".join([words[0].rpartition("/")[2], *words[1:]])


def is_not_run(words):
    return any(begins(words).startswith(start) for start in NOT_RUN)


def is_benchmark(words):
    return begins(words).startswith("python -m benchmarks.") and not is_not_run(words)


def python_blocks(page):
    return re.findall(r"```py(?:thon)?\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)


def write_birds(folder):
    """The function and the data set of CONTRIBUTING, and a config of one's own."""
    (folder / "birds.py").write_text(python_blocks("CONTRIBUTING.md")[0])
    (folder / "FOLDER" / "images").mkdir(parents=True)
    lines = ["file,wingspan,split"]
    for number, photo in enumerate(sorted(folder.glob("photos/*/*.jpg"))):
        shutil.copy(photo, folder / "FOLDER/images" / f"{number}.jpg")
        lines.append(f"{number}.jpg,{20 + number},{'train' if number < 40 else 'test'}")
    (folder / "FOLDER/birds.csv").write_text("\n".join(lines))
    (folder / "mine.yaml").write_text(config_text("pose/synthetic"))


def write_encoder(folder):
    """The encoder of the page, without sentence-transformers: the letters of a caption."""
    function = python_blocks("docs/caption_distances.md")[0].partition("def encode")
    body = "return np.array([[text.count(each) for each in 'aeiou'] for text in captions])\n"
    text = f"import numpy as np\n\n\ndef encode{function[2].partition('return')[0]}{body}"
    (folder / "my_encoder.py").write_text(text)


def write_tables(folder):
    """Sizes, boxes, objects, poses, and the dials that the Python of the page on tables draws."""
    exec(compile(python_blocks("docs/table.md")[0], "docs/table.md", "exec"), {})
    head, *rows = (folder / "items.csv").read_text().splitlines()
    sized = [f"{row},{size}" for row, size in zip(rows, itertools.cycle(("small", "medium", "large")))]
    (folder / "items.csv").write_text("\n".join([f"{head},size", *sized]) + "\n")
    photos = sorted(path.relative_to(folder).as_posix() for path in folder.glob("photos/*/*.jpg"))
    cars = [f"{photo},{x},2,12,9,{(7 * n + 90 * x) % 360}" for n, photo in enumerate(photos) for x in (1, 15)]
    (folder / "cars.csv").write_text("\n".join(["image,x,y,w,h,angle", *cars]) + "\n")
    write_objects(folder)
    of_pages.write_poses(folder)


#: The columns of the tables of docs/recipes.md beside that of the images.
NAMES = {"scans.csv": "grade,patient", "photographs.csv": "rating", "streets.csv": "lat,lon,east,north,drive"}


def write_objects(folder):
    """COCO's instances: an image with one or two objects each."""
    (folder / "val2017").mkdir()
    images, objects = [], []
    for number, photo in enumerate(sorted(folder.glob("photos/*/*.jpg"))):
        shutil.copy(photo, folder / f"val2017/{number:012d}.jpg")
        images.append({"id": number, "file_name": f"{number:012d}.jpg", "width": 32, "height": 32})
        for category in {1 + number % 3, 1 + number % 2}:
            box = {"bbox": [1, 1, 9, 9], "area": 81, "iscrowd": 0}
            objects.append({"id": len(objects), "image_id": number, "category_id": category, **box})
    categories = [{"id": number, "name": name} for number, name in enumerate(("bird", "boat", "tree"), 1)]
    (folder / "annotations").mkdir()
    content = {"images": images, "annotations": objects, "categories": categories}
    (folder / "annotations/instances_val2017.json").write_text(json.dumps(content))


def write_recipes(folder):
    """The loss of the page, and its tables: photographs of eyes, of a contest and of streets."""
    photos = sorted(path.relative_to(folder).as_posix() for path in folder.glob("photos/*/*.jpg"))

    def write(name, columns):
        rows = [f"{photo},{','.join(map(str, columns(number)))}" for number, photo in enumerate(photos)]
        (folder / name).write_text("\n".join([f"image,{NAMES[name]}", *rows]) + "\n")

    write("scans.csv", lambda n: (n % 5, f"patient {n // 2}"))
    write("photographs.csv", lambda n: (1 + (7 * n % 90) / 10,))
    write("streets.csv", lambda n: (48 + n / 1000, 11 + n % 7 / 1000, 100 * n, 70 * (n % 7), f"drive {n // 3}"))
    shutil.copy(folder / "pairs.csv", folder / "judgments.csv")
    blocks = python_blocks("docs/recipes_python.md")
    (folder / "stress.py").write_text(next(block for block in blocks if "Stress" in block))


def write_words(folder):
    """Judgments without a split, and vectors of the judged items."""
    head, *rows = (line.split(",")[:3] for line in (folder / "pairs.csv").read_text().splitlines())
    (folder / "judgments.csv").write_text("\n".join(map(",".join, [head, *rows])))
    write_vectors(folder / "words.npz", sorted({name for row in rows for name in row[:2]}))


def write_teacher(folder):
    """A table with a column for a teacher, whose embeddings of the photographs a command of the page writes."""
    head, *rows = (folder / "items.csv").read_text().splitlines()
    (folder / "items.csv").write_text("\n".join([f"{head},id", *(f"{row},{n}" for n, row in enumerate(rows))]) + "\n")


def write_rooms(folder):
    """A table with rooms, and vectors of its images and of others."""
    head, *rows = (folder / "items.csv").read_text().splitlines()
    rooms = [f"{row},{('kitchen', 'bath')[number % 2]}" for number, row in enumerate(rows)]
    (folder / "items.csv").write_text("\n".join([f"{head},room", *rooms]) + "\n")
    names = ["item17", *(row.split(",")[0] for row in rows)]
    values = np.random.default_rng(0).normal(size=(len(names), 4)).astype(np.float32)
    parquet.write_table(pyarrow.table({"id": names, "vector": list(values)}), folder / "clip.parquet")
    write_vectors(folder / "more.npz", names[:3])


def write_vectors(path, names):
    np.savez(path, names=names, features=np.random.default_rng(0).normal(size=(len(names), 4)).astype(np.float32))


#: What a page assumes beside the files that its commands name.
OWN = {
    "CONTRIBUTING.md": write_birds, "docs/caption_distances.md": write_encoder, "docs/judgments.md": write_words,
    "docs/recipes.md": write_recipes, "docs/recipes_python.md": write_recipes, "docs/search.md": write_rooms,
    "docs/table.md": write_tables, "docs/table_columns.md": write_tables, "docs/training.md": write_teacher,
    "docs/in_your_code.md": lambda folder: shutil.copytree(ROOT / "examples", folder, dirs_exist_ok=True),
}  # fmt: skip
TYPED = [page for page in PAGES if commands(page)]


@pytest.fixture
def world(request, tmp_path, contml, tiny_run, monkeypatch):
    """The folder of a page."""
    of_pages.use_counts_of_miniatures(monkeypatch)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    of_pages.write_world(tmp_path, tiny_run)
    if "--weights" in (ROOT / request.getfixturevalue("page")).read_text(encoding="utf-8"):
        # Random weights, which have not the hash in the name of the file.
        torch.save(models.get_model("mobilenet_v2").state_dict(), tmp_path / "mobilenet_v2-b0353104.pth")
        monkeypatch.setattr("contml.models.weights.is_whole", lambda _: True)
    return tmp_path


def prepare(params, words, *, train=False, small=False):
    """Write the files that a command names; returns the overrides that make it short."""
    experiment = experiment_of(params)
    of_pages.write_files(experiment, weights=not small or any(word.startswith("model.") for word in words))
    changes = of_pages.short(experiment, words, own=params["data"] is not None, small=small)
    return changes + (of_pages.one_step(experiment) if train else [])


@pytest.mark.parametrize("page", TYPED)
def test_commands_are_read(page, world, contml):
    """Each command is one, its options exist, and its config is valid; those of blocks build their task."""
    OWN.get(page, lambda _: None)(world)
    for words, block in commands(page):
        start = begins(words)
        if is_not_run(words) or "..." in words:
            continue
        if start.startswith("pip install"):
            for extra in re.findall(r"(?:\.|contml)\[(\w+)\]", start):
                assert extra in EXTRAS, start
        elif is_benchmark(words):
            continue  # below
        elif re.fullmatch("contml [a-z]+", start):
            assert words[1] in app_commands(), start
        else:
            assert start.startswith("contml "), start
            name, params = parsed(words)
            if "overrides" in params and params["config"] in config_names() and "backbone=RUN" not in words:
                experiment_of(params)  # of sentences too
            if block is None or params.get("resume") or page.endswith(".yaml"):  # test_configs.py takes a step
                continue
            if name in ("copy", "list"):
                assert contml(*words[1:])[0] == 0, start
            elif name in ("check", "features", "sweep", "train"):
                changes = prepare(params, words)
                assert len(experiment_of(params, changes).read_task().train) >= 3, start
                if name == "features":  # later commands read them
                    assert contml(*words[1:], *changes)[0] == 0, start
            elif name == "embed" and "teacher.npz" in words:  # as here
                assert contml(*words[1:])[0] == 0, start


def test_the_page_on_runs_names_every_file_of_a_run(tiny_run):
    page = (ROOT / "docs/runs.md").read_text(encoding="utf-8")
    for path in tiny_run.iterdir():
        assert f"`{path.name}{'/' * path.is_dir()}" in page or path.suffix == ".png", path


@pytest.mark.slow
@pytest.mark.parametrize("page", TYPED)
def test_commands_run(page, world, contml, monkeypatch):
    OWN.get(page, lambda _: None)(world)
    monkeypatch.setattr(ThreadingHTTPServer, "serve_forever", stop)
    for words, block in commands(page):
        start = begins(words)
        if block is None or is_not_run(words) or not start.startswith("contml "):
            continue
        name, params = parsed(words)
        changes = []
        if name in ("check", "features", "sweep", "train") and not params.get("resume"):
            changes = prepare(params, words, train=name == "train", small=page.endswith(".yaml"))
        if name == "sweep":
            changes += ["training.epochs=1", "sampler.batches=1", "--processes=1"]
            changes += ["--trials=2"] * (params["trials"] is not None) + ["--seeds=2"] * (params["seeds"] > 1)
        if name == "prepare":
            config = params["config"]
            task = config if config in task_table() else load(config).config.parts["task"].name
            of_pages.write_layout(task, params["arguments"][0])
            changes = ["--size=36", "--workers=0"]
        files = [sorted(world.glob(word)) or [word] if "*" in word else [word] for word in words[1:]]
        before = set(world.glob("runs/*/*/*/config.yaml"))
        status, _, err = contml(*(word for given in files for word in given), *changes)
        assert status == 0, (start, err)
        for made in set(world.glob("runs/*/*/*/config.yaml")) - before if name == "train" else ():
            (world / "RUN").unlink()
            (world / "RUN").symlink_to(made.parent)


def stop(server):
    raise KeyboardInterrupt


#: The programs with arguments, and those that a page names.
PROGRAMS = {words[2] for page in TYPED for words, _ in commands(page) if is_benchmark(words)}
SOURCES = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "benchmarks").glob("*.py")}
PROGRAMS |= {f"benchmarks.{name}" for name, text in SOURCES.items() if "argparse" in text and "__main__" in text}


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_benchmarks_explain_themselves(name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    monkeypatch.delitem(sys.modules, name, raising=False)  # another test may have imported it
    with pytest.raises(SystemExit) as stopped:
        runpy.run_module(name, run_name="__main__")
    assert not stopped.value.code
    assert "usage:" in capsys.readouterr().out


def test_every_command_that_is_not_run_is_typed_somewhere():
    typed = [begins(words) for page in TYPED for words, _ in commands(page)]
    assert [start for start in NOT_RUN if not any(each.startswith(start) for each in typed)] == []
    assert len(typed) > 150
