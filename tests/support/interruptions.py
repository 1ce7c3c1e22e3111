"""Trainings and commands that are stopped by signals and killed at random moments, and must end like whole ones.

python -m tests.support.interruptions --kills 50 --signals 200 --pairs 20 --commands 20
python -m tests.support.interruptions --kills 50 --of ema
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import torch
from safetensors.torch import load_file

from contml.models import EmbeddingModel
from contml.runs import Run, create
from contml.training import Trainer

from . import sweeps
from .miniature import TINY, Flat, assert_equal, small_trainer, squares
from .processes import script_environment, start

#: Trains, and goes on after every signal. Arguments: run folder, number of epochs, minutes between checkpoints, a key
#: of `TRAININGS`.
SCRIPT = """
import signal, sys
from pathlib import Path
from support.interruptions import TRAININGS
from contml.runs import Run
from contml.training import Interrupted
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda *_: None)  # between two trainings
while True:
    train = TRAININGS[sys.argv[4]]
    trainer = train(Run(Path(sys.argv[1])), epochs=int(sys.argv[2]), checkpoint_minutes=float(sys.argv[3]))
    trainer.resume()
    print("ready", flush=True)
    try:
        trainer.fit()
        break
    except Interrupted as stop:
        print(trainer.steps_done, flush=True)
"""


def _averaged(run: Run, **options) -> Trainer:
    return small_trainer(run, model=Flat(dropout=0.2), val=squares(20, seed=2), ema=0.7, **options)


def _adapted(run: Run, **options) -> Trainer:
    torch.manual_seed(0)
    model = EmbeddingModel("small_cnn", dim=4, adapter="lora", adapter_rank=2)
    return small_trainer(run, model=model, val=squares(20, seed=2), **options)


#: What is interrupted: a plain training, one with a moving average of the weights, one of low-rank matrices.
TRAININGS = {"plain": small_trainer, "ema": _averaged, "lora": _adapted}


def signals(folder: Path, times: int) -> None:
    """Stops a training of two processes with so many signals, to one or both of them."""
    epochs = 10 + 5 * times  # a fast machine trains several between two signals
    runs = [create(folder, name) for name in ("whole", "stopped")]
    for run, count in zip(runs, (0, times), strict=True):
        _signals(run, count, epochs)
    _compare(*runs, epochs)


def _signals(run: Run, times: int, epochs: int) -> None:
    choice, stops = random.Random(0), 0
    processes = start(SCRIPT, str(run.folder), str(epochs), "10", "plain")
    try:
        for line in processes[0].stdout:
            if line != "ready\n":
                stops += 1
            elif stops < times:
                time.sleep(choice.uniform(0, 0.05))
                for process in choice.choice([processes, processes[:1], processes[1:]]):
                    process.send_signal(choice.choice([signal.SIGTERM, signal.SIGHUP, signal.SIGINT]))
        for process in processes:
            _, errors = process.communicate(timeout=300)
            assert process.returncode == 0, errors
    finally:
        for process in processes:
            process.kill()
    assert stops == times, f"only {stops} stops before the end"


def kills(folder: Path, times: int, of: str = "plain") -> None:
    """Kills trainings that save after every step so many times, and continues them; `of` is a key of `TRAININGS`."""
    choice, epochs, done = random.Random(0), 12, 0
    whole = create(folder, "whole")
    assert _train(whole, epochs, of) is None
    while done < times:
        run = create(folder, f"killed {done}")
        while (step := _train(run, epochs, of, choice.uniform(0, 2) if done < times else None)) is not None:
            done += 1
            print(f"kill {done}, with {step} steps saved", flush=True)
        _compare(whole, run, epochs)


def _train(run: Run, epochs: int, of: str, seconds: float | None = None) -> int | None:
    """Trains, and kills it after some seconds. Returns the number of rows; None if training was finished."""
    command = [sys.executable, "-c", SCRIPT, run.folder, str(epochs), "0", of]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=script_environment())
    assert process.stdout.readline() == "ready\n"
    try:
        status = process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        status = process.wait()
    process.stdout.close()
    assert status in (0, -signal.SIGKILL)
    return len(run.rows()) if status else None


def pairs(folder: Path, times: int) -> None:
    """Kills one or both processes of a training so many times, from their start on, and continues it."""
    choice, epochs, done = random.Random(0), 12, 0
    whole = create(folder, "whole")
    assert _train_two(whole, epochs) is None
    longest = whole.read_seconds() or 1.0
    while done < times:
        run, in_a_row = create(folder, f"killed {done}"), 0
        # Few in a row: a later one would find the training finished.
        while (
            step := _train_two(run, epochs, choice.uniform(0, longest) if done < times and in_a_row < 3 else None)
        ) is not None:
            done, in_a_row = done + 1, in_a_row + 1
            print(f"kill {done}, with {step} steps saved", flush=True)
        _compare(whole, run, epochs)


def _train_two(run: Run, epochs: int, seconds: float | None = None) -> int | None:
    """Trains in two processes, and kills one or both after some seconds of training.

    Returns the number of rows; None if training was finished.
    """
    processes = start(SCRIPT, str(run.folder), str(epochs), "0", "plain")
    try:
        if seconds is not None:
            assert processes[0].stdout.readline() == "ready\n"
            with suppress(subprocess.TimeoutExpired):
                processes[0].wait(seconds)
            killed = random.Random(seconds).choice([processes, processes[:1], processes[1:]])
            for process in killed:
                process.kill()
            if any(process.wait() == -signal.SIGKILL for process in killed):
                return len(run.rows())  # the other one would wait for it, or fail
        for process in processes:
            _, errors = process.communicate(timeout=300)
            assert process.returncode == 0, errors
        return None
    finally:
        for process in processes:
            process.kill()
            process.communicate()


#: Runs commands of contml. It forks, so that packages are imported once: for each line of its input, [folder,
#: arguments, seconds], a process runs the command for so many seconds, and its exit status is printed.
COMMANDS = """
import json, os, signal, sys, time
import contml.app.cli, contml.app.cli.commands, contml.evaluation.embed_parts
import contml.app.experiment.features, contml.app.report.plots
import contml.app.trials.sweep, contml.app.experiment.train_and_evaluate
import support.sweeps

contml.evaluation.embed_parts._PART = 8
print("ready", flush=True)
for line in sys.stdin:
    folder, arguments, seconds = json.loads(line)
    child = os.fork()
    if not child:
        os.chdir(folder)
        output = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1), os.dup2(output, 2)
        sys.argv = ["contml", *arguments]
        contml.app.cli.main()
    end = time.monotonic() + seconds
    while time.monotonic() < end and not (ended := os.waitpid(child, os.WNOHANG))[0]:
        time.sleep(0.0005)
    if not ended[0]:
        os.kill(child, signal.SIGKILL)
        ended = os.waitpid(child, 0)
    print(ended[1], flush=True)
"""
#: What is killed, and what must be as after a command that was not: the file of features, the values of all trainings.
_FEATURES = ["features", "pose/synthetic", *TINY, "--out", "f.npz"]
_SWEEP = [
    *("sweep", "own.yaml", "--try", "loss.margin=0.01,0.1,0.3", "--try", "optimizer.lr=1e-4..1e-1"),
    *("--trials", "3", "--seeds", "2", "--sampler", "random"),
]


def commands(folder: Path, times: int) -> None:
    """Kills `contml features` and `contml sweep` so many times each, and calls them again."""
    process = subprocess.Popen(
        [sys.executable, "-c", COMMANDS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=script_environment(),
    )
    try:
        assert process.stdout.readline() == "ready\n"
        for arguments, result in ((_FEATURES, _features_of), (_SWEEP, _sweep_of)):
            _commands(folder / arguments[0], process, arguments, result, times)
    finally:
        process.kill()
        process.communicate()


def _commands(folder: Path, process: subprocess.Popen[str], arguments: list[str], result, times: int) -> None:
    choice, done, number = random.Random(arguments[0]), 0, 0

    def run(place: Path, seconds: float = 1e9) -> int:
        process.stdin.write(json.dumps([str(place), arguments, seconds]) + "\n")
        process.stdin.flush()
        return int(process.stdout.readline())

    def new(name: str) -> Path:
        place = folder / name
        place.mkdir(parents=True)
        sweeps.config(place)
        return place

    whole = new("whole")
    start = time.monotonic()
    assert run(whole) == 0, (whole / "log").read_text()
    longest = time.monotonic() - start
    expected = result(whole)
    while done < times:
        place = new(f"killed {number}")
        number += 1
        while status := run(place, choice.uniform(0, longest) if done < times else 1e9):
            assert status == signal.SIGKILL, (place / "log").read_text()
            done += 1
            print(f"{arguments[0]}: kill {done}", flush=True)
        assert result(place) == expected
        assert run(place) == 0, "the same command on what is complete"
        assert result(place) == expected


def _features_of(folder: Path) -> object:
    """The names and contents of all files: nothing is left of a killed process."""
    assert {path.name for path in folder.iterdir()} == {"f.npz", "log", "own.yaml"}
    return (folder / "f.npz").read_bytes()


def _sweep_of(folder: Path) -> object:
    (sweep,) = (folder / "runs").glob("*/sweep")
    _, *lines = map(json.loads, (sweep / "trials.jsonl").read_text().splitlines())
    assert not [*sweep.rglob("checkpoints/*.safetensors"), *sweep.rglob(".contml-*")]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def _compare(whole: Run, run: Run, epochs: int) -> None:
    names = [sorted(path.name for path in each.checkpoints.glob("*.safetensors")) for each in (whole, run)]
    assert names[0] == names[1]
    for name in names[0]:
        assert_equal(*(load_file(each.checkpoints / name) for each in (whole, run)))
    steps = [row["step"] for row in run.rows() if row["event"] == "train"]
    assert steps == list(range(1, 5 * epochs + 1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--signals", type=int, default=200)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--commands", type=int, default=20)
    parser.add_argument("--of", choices=TRAININGS, default="plain", help="which training --kills kills")
    given = parser.parse_args()
    for function in (signals, kills, pairs, commands):
        count = getattr(given, function.__name__)
        if not count:
            continue
        with tempfile.TemporaryDirectory() as folder:
            start = time.monotonic()
            function(Path(folder), count, *([given.of] if function is kills else []))
            print(f"{count} {function.__name__}: equal to the last bit, {time.monotonic() - start:.0f} s")
