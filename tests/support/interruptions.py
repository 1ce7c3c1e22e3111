"""Trainings that are stopped by signals and killed at random moments, and must end like whole ones."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from safetensors.torch import load_file

from contml.runs import Run, create
from contml.training import Trainer

from .miniature import Flat, assert_equal, small_trainer, squares
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


def _tuned(run: Run, **options) -> Trainer:
    return small_trainer(run, model=Flat(dropout=0.2), val=squares(20, seed=2), **options)


#: What is interrupted: a plain training, and one with dropout that a validation split selects from.
TRAININGS = {"plain": small_trainer, "tuned": _tuned}


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


def _compare(whole: Run, run: Run, epochs: int) -> None:
    names = [sorted(path.name for path in each.checkpoints.glob("*.safetensors")) for each in (whole, run)]
    assert names[0] == names[1]
    for name in names[0]:
        assert_equal(*(load_file(each.checkpoints / name) for each in (whole, run)))
    steps = [row["step"] for row in run.rows() if row["event"] == "train"]
    assert steps == list(range(1, 5 * epochs + 1))
