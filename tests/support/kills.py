"""SIGKILL at random moments: the same command again ends with the result of one that was not killed. Run by hand.

    python -m support.kills [--times 20] [--only NAME ...]          in the folder tests

Each command is called in a process of its own, which is killed after a random time, until it ends by itself; this is
repeated with new folders until there were so many kills. Printed are the kills, and the calls that ended by themselves.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image


class Case(NamedTuple):
    """A command that is killed.

    Attributes:
        prepare: makes what the command needs, in a folder.
        command: the command, called in that folder.
        result: what must be equal, of that folder.
    """

    prepare: Callable[[Path], None]
    command: Callable[[], None]
    result: Callable[[Path], object]


# -- indexes -----------------------------------------------------------------------------------------------------------

IMAGES, SEGMENT, PART = 600, 100, 16


def contml(*arguments: str) -> None:
    """Call a command of contml with small segments and parts."""
    import contml.app.cli
    import contml.evaluation.embed_parts
    import contml.search.images
    import contml.search.index

    contml.evaluation.embed_parts._PART = PART
    contml.search.images.ROWS = contml.search.index.ROWS = SEGMENT
    sys.argv = ["contml", *arguments]
    contml.app.cli.main()


def images(folder: Path) -> None:
    """A model, and images to add."""
    shutil.copytree(Path(__file__).parents[1] / "search" / "format_1" / "images", folder / "model")
    (folder / "photos").mkdir()
    for number, pixels in enumerate(np.random.default_rng(0).integers(0, 255, (IMAGES, 16, 16, 3), np.uint8)):
        Image.fromarray(pixels).save(folder / "photos" / f"{number:04d}.png")


def vectors(folder: Path) -> None:
    """An index of vectors."""
    import contml.search.index as module

    module.ROWS = SEGMENT
    index = module.Index.create(folder / "index", 8)
    x = np.random.default_rng(0).standard_normal((3000, 8))
    names = [f"{row % 10}/{row}" for row in range(3000)]
    index.add(names, x, [{"row": row} for row in range(3000)], names)


def half_removed(folder: Path) -> None:
    """An index of which half was removed."""
    from contml.search import Index

    vectors(folder)
    Index.open(folder / "index").remove([*"13579"])


def index_of(folder: Path) -> object:
    """All that an index holds, and that nothing else is left."""
    from contml.search import Index

    index = Index.open(folder / "index")
    files = {path.name: path.read_bytes() for path in index.path.iterdir()}
    left = {path.name for path in folder.iterdir()} - {"model", "photos", "index", "log"}
    assert not left, left
    content = index.ids, index.embeddings(index.ids).tolist(), index.metadata(index.ids), index.removed, index.pending
    paths = json.dumps(content).replace(str(folder), "")
    names = {name for name in files if name != ".lock"}
    return paths, names


# -- embeddings, features, sweeps --------------------------------------------------------------------------------------

SMALL = (
    *("task.train=40", "task.val=12", "task.test=12", "task.queries=4", "images.resize=32", "images.crop=32"),
    *("sampler.batch_size=12", "sampler.anchors_per_batch=4", "sampler.neighbours=2", "sampler.batches=4"),
    "training.epochs=2",
)


def nothing(_: Path) -> None:
    """Nothing is prepared."""


def features_of(folder: Path) -> object:
    """The names and the features of a file, and that nothing else is left."""
    left = {path.name for path in folder.iterdir()} - {"model", "photos", "f.npz", "log"}
    assert not left, left
    with np.load(folder / "f.npz") as found:
        return found["names"].tolist(), found["features"].tolist()


def sweep_of(folder: Path) -> object:
    """The trainings of a sweep without their times, and that no state is left."""
    place = folder / "runs/pose/synthetic/sweep"
    assert not [*place.glob("*/checkpoints/*"), *place.rglob("stop")]
    rows = map(json.loads, (place / "trials.jsonl").read_text().splitlines())
    return sorted(json.dumps({key: value for key, value in row.items() if key != "seconds"}) for row in rows)


def sweep(processes: int) -> None:
    """A sweep of three trials."""
    tries = ("--try", "optimizer.lr=1e-3,3e-3,1e-2", "--processes", str(processes))
    contml("sweep", "pose/synthetic", *SMALL, *tries)


ADD = ("index", "model", "photos", "--out", "index", "--trust")
REMOVE = ("index", "--out", "index", *(word for number in "13579" for word in ("--remove", number)))
CASES = {
    "embed": Case(images, lambda: contml("embed", "model", "photos", "--out", "f.npz", "--trust"), features_of),
    "features": Case(
        nothing, lambda: contml("features", "pose/synthetic", "task.train=400", "--out", "f.npz"), features_of
    ),
    "sweep": Case(nothing, lambda: sweep(1), sweep_of),
    "sweep, two processes": Case(nothing, lambda: sweep(2), sweep_of),
    "index add": Case(images, lambda: contml(*ADD), index_of),
    "index remove": Case(vectors, lambda: contml(*REMOVE), index_of),
    "index compact": Case(half_removed, lambda: contml("index", "--out", "index", "--compact"), index_of),
}


# -- killing -----------------------------------------------------------------------------------------------------------


def call(case: Case, folder: Path, seconds: float) -> int:
    """Call the command, and kill it after some seconds; returns its status."""
    child = os.fork()
    if not child:
        os.chdir(folder)
        log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        try:
            case.command()
        except SystemExit as error:
            os._exit(int(error.code or 0))
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    end = time.monotonic() + seconds
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            ended = os.waitpid(child, 0)
            break
        time.sleep(0.0005)
    return ended[1]


def kill(name: str, times: int, folder: Path) -> tuple[int, int]:
    """Kill a command so many times; returns the numbers of kills, and of calls that ended by themselves."""
    case, choice, kills, ends = CASES[name], random.Random(name), 0, 0

    def new(place: Path) -> Path:
        place.mkdir()
        case.prepare(place)
        return place

    whole = new(folder / "whole")
    start = time.monotonic()
    assert call(case, whole, 1e9) == 0, (whole / "log").read_text()
    longest, expected, number = time.monotonic() - start, case.result(whole), 0
    while kills < times:
        number += 1
        place = new(folder / str(number))
        while status := call(case, place, choice.uniform(0, longest) if kills < times else 1e9):
            assert status == signal.SIGKILL, (place / "log").read_text()
            kills += 1
        ends += 1
        assert case.result(place) == expected, f"{name}: {place} is not as it must be"
        assert call(case, place, 1e9) == 0, (place / "log").read_text()  # the same command on what is complete
        assert case.result(place) == expected
        shutil.rmtree(place)
    return kills, ends


def main() -> None:
    """Kill all commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--only", nargs="*", default=[*CASES], choices=CASES)
    given = parser.parse_args()
    import contml.app.cli.commands
    import contml.evaluation.embed_parts
    import contml.search
    import contml.search.images

    assert contml
    for name in given.only:
        with tempfile.TemporaryDirectory() as folder:
            kills, ends = kill(name, given.times, Path(folder))
        print(f"{name}: {kills} kills, {ends} results equal to one without a kill", flush=True)


if __name__ == "__main__":
    main()
