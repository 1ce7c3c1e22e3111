"""SIGKILL at random moments: the same command again ends with the result of one that was not killed. Run by hand.

    python -m support.kills [--times 20] [--only NAME ...] [--interrupts 1 | --full FOLDER]       in the folder tests

Each command is called in a process of its own, which is killed after a random time, until it ends by itself; this is
repeated with new folders until there were so many kills. With --interrupts it gets SIGINT so many times in place of
SIGKILL, as by Ctrl-C, and must end with one line and exit status 130. With --full it runs in a folder of a small file
system (`mount -t tmpfs -o size=200m tmpfs FOLDER`), whose free space is a random part of what it needs. It must end
with one line and exit status 2, and the same command goes on when there is space. Printed are the stops, and the calls
that ended by themselves.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache
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
    names = {path.name for path in index.path.iterdir() if path.name[0] != "."}
    left = left_in(folder, "model", "photos", "index")
    assert not left, left
    content = index.ids, index.embeddings(index.ids).tolist(), index.metadata(index.ids), index.removed
    return json.dumps(content).replace(str(folder), ""), names


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
    left = left_in(folder, "model", "photos", "f.npz")
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


# -- trainings and what follows them -----------------------------------------------------------------------------------

SUITE = ("benchmark", str(Path(__file__).parents[1] / "app/trials/tiny.yaml"), "data=.", "--results", "results")


def scores_of(folder: Path) -> object:
    """The scores of the trainings of a suite without their times, and the tables of its page."""
    rows = map(json.loads, (folder / "results/raw/tiny.jsonl").read_text().splitlines())
    scores = sorted(json.dumps({key: value for key, value in row.items() if key != "seconds"}) for row in rows)
    page = (folder / "results/tiny.md").read_text().splitlines()
    return scores, [line.rsplit("|", 2)[0] for line in page if line.startswith("|")]  # the last column may be seconds


CAPTIONS = (
    *("task.train=24", "task.val=9", "task.test=9", "task.queries=4", "images.resize=32", "images.crop=32"),
    "sampler.batch_size=8",
    *("captioner.threshold=1", "captioner.length=6", "step.cross_entropy_epochs=1"),
    "training.epochs=2",
)


def train(config: str, *changes: str) -> None:
    """Train, or go on with the training that was killed."""
    run = Path("runs", config, "one")
    if (run / "config.yaml").exists():
        contml("train", "--resume", str(run))
    else:
        contml("train", config, *changes, "images.workers=0", "--name", "one")


def run_of(folder: Path) -> object:
    """The weights and the results of a run."""
    from contml._support.tensors import load_tensors

    (run,) = folder.glob("runs/*/*/one")
    assert not left_in(folder, "runs")
    tensors, values = load_tensors(run / "checkpoints/last.safetensors")
    weights = {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}
    return weights, values, (run / "evaluation.json").read_bytes(), (run / "metrics.jsonl").read_bytes().count(b"\n")


@cache
def _run() -> Path:
    """The folder of a run that was not killed."""
    folder = Path(tempfile.mkdtemp())
    assert call(CASES["train"], folder, 1e9) == 0, LOG.read_text()
    return folder / RUN


def trained(folder: Path) -> None:
    """A run."""
    shutil.copytree(_run(), folder / RUN)


def written(*patterns: str) -> Callable[[Path], object]:
    """The files that fit patterns."""

    def found(folder: Path) -> object:
        paths = sorted(path for pattern in patterns for path in folder.glob(pattern))
        return {str(path.relative_to(folder)): path.read_bytes() for path in paths}

    return found


def many_vectors(folder: Path) -> None:
    """A file of vectors."""
    np.save(folder / "v.npy", np.random.default_rng(0).standard_normal((30_000, 16)).astype(np.float32))


RUN = "runs/pose/synthetic/one"
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
    "train": Case(nothing, lambda: train("pose/synthetic", *SMALL), run_of),
    "train a captioner": Case(nothing, lambda: train("captioning/synthetic", *CAPTIONS), run_of),
    "benchmark": Case(nothing, lambda: contml(*SUITE, "--inputs", "inputs"), scores_of),
    "audit": Case(trained, lambda: contml("audit", RUN), written(f"{RUN}/audit/*.csv")),
    "export": Case(trained, lambda: contml("export", RUN, "model"), written("model/*")),
    "index vectors": Case(
        many_vectors, lambda: contml("index", "--vectors", "v.npy", "--out", "index"), written("index/*.parquet")
    ),
    "index compact": Case(half_removed, lambda: contml("index", "--out", "index", "--compact"), index_of),
}


# -- killing -----------------------------------------------------------------------------------------------------------


#: What the last command printed.
LOG = Path(tempfile.gettempdir()) / f"kills-{os.getpid()}.log"
#: The last line of a command that was interrupted.
STOPPED = re.compile(r"contml: stopped.*\n\Z")


def left_in(folder: Path, *made: str) -> set[str]:
    """What is in a folder beside what a command made; a temporary file of a killed process is removed an hour later."""
    return {path.name for path in folder.iterdir() if not path.name.startswith(".contml-")} - {*made}


#: What joblib prints because a fork of this program ends without its exit functions.
LEAKED = re.compile(r".*resource_tracker.*leaked.*\n.*warn.*\n")
#: The last line of a command that had no space.
FULL = re.compile(r"contml: .*No space left on device.*\n\Z")


def fill(folder: Path, free: float) -> Path:
    """Write a file of zeros into a folder, of all of its space but so many bytes."""
    filler = folder.parent / "filler"
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, shutil.disk_usage(folder).free - int(free)))
    return filler


def call(case: Case, folder: Path, seconds: float, interrupts: int = 0) -> int:
    """Call the command, and kill or interrupt it after some seconds; returns its status."""
    child = os.fork()
    if not child:
        os.chdir(folder)
        log = os.open(LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
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
            for _ in range(interrupts or 1):
                os.kill(child, signal.SIGINT if interrupts else signal.SIGKILL)
                time.sleep(0.05 * (interrupts > 1))
            ended = os.waitpid(child, 0)
            break
        time.sleep(0.0005)
    return ended[1]


def kill(name: str, times: int, folder: Path, interrupts: int, full: bool) -> tuple[int, int]:
    """Stop a command so many times; returns the numbers of stops and of calls that ended by themselves."""
    case, choice, kills, ends = CASES[name], random.Random(name), 0, 0

    def new(place: Path) -> Path:
        place.mkdir()
        case.prepare(place)
        return place

    def stopped(place: Path) -> int:
        """Call the command, which stops at a random moment: after some time, or after some bytes."""
        if kills >= times:
            return call(case, place, 1e9)
        if not full:
            return call(case, place, choice.uniform(0, longest), interrupts)
        filler = fill(place, choice.uniform(0, needed))
        status = call(case, place, 1e9)
        filler.unlink()
        return status

    empty = shutil.disk_usage(folder).used
    whole = new(folder / "whole")
    before = shutil.disk_usage(folder).used
    start = time.monotonic()
    assert call(case, whole, 1e9) == 0, LOG.read_text()
    longest, expected, number = time.monotonic() - start, case.result(whole), 0
    used = shutil.disk_usage(folder).used
    needed = used - before if used > before else used - empty  # a compaction writes all that is left
    ending, exit_status = (FULL, 2 << 8) if full else (STOPPED, 130 << 8)
    while kills < times:
        number += 1
        place = new(folder / str(number))
        while status := stopped(place):
            log = LEAKED.sub("", LOG.read_text())
            assert status == (exit_status if full or interrupts else signal.SIGKILL), (status, log)
            assert not (full or interrupts) or (ending.search(log) and "Traceback" not in log), log
            kills += 1
        ends += 1
        if (got := case.result(place)) != expected:
            sys.exit(f"{name}: expected {expected}\ngot {got}")
        assert call(case, place, 1e9) == 0, LOG.read_text()  # the same command on what is complete
        assert case.result(place) == expected
        shutil.rmtree(place)
    return kills, ends


def main() -> None:
    """Kill all commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--interrupts", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=[*CASES], choices=CASES)
    parser.add_argument("--full", type=Path)
    given = parser.parse_args()
    import contml.app.cli.commands
    import contml.evaluation.embed_parts
    import contml.search
    import contml.search.images

    assert contml
    for name in given.only:
        with tempfile.TemporaryDirectory(dir=given.full) as folder:
            kills, ends = kill(name, given.times, Path(folder), given.interrupts, given.full is not None)
        print(f"{name}: {kills} stops, {ends} results equal to one without a stop", flush=True)


if __name__ == "__main__":
    main()
