"""Trainings that are stopped by signals and killed at random moments, and must end with the bits of a whole one.

python -m tests.support.interruptions --kills 50 --signals 200
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from safetensors.torch import load_file

from contml.runs import Run, create

from .miniature import assert_equal
from .processes import script_environment, start_two

#: Trains, and goes on after every signal. Arguments: run folder, number of epochs, minutes between checkpoints.
SCRIPT = """
import signal, sys
from pathlib import Path
from support.miniature import *
from contml.runs import Run
from contml.training import Interrupted
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda *_: None)  # between two trainings
while True:
    trainer = small_trainer(Run(Path(sys.argv[1])), epochs=int(sys.argv[2]), checkpoint_minutes=float(sys.argv[3]))
    trainer.resume()
    print("ready", flush=True)
    try:
        trainer.fit()
        break
    except Interrupted as stop:
        print(trainer.steps_done, flush=True)
"""


def signals(folder: Path, times: int) -> None:
    """Stops a training of two processes with so many signals, to one or both of them."""
    epochs = 10 + 5 * times  # a fast machine trains several between two signals
    runs = [create(folder, name) for name in ("whole", "stopped")]
    for run, count in zip(runs, (0, times), strict=True):
        _signals(run, count, epochs)
    _compare(*runs, epochs)


def _signals(run: Run, times: int, epochs: int) -> None:
    choice, stops = random.Random(0), 0
    processes = start_two(SCRIPT, str(run.folder), str(epochs), "10")
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


def kills(folder: Path, times: int) -> None:
    """Kills trainings that save after every step so many times, and continues them."""
    choice, epochs, done = random.Random(0), 12, 0
    whole = create(folder, "whole")
    assert _train(whole, epochs) is None
    while done < times:
        run = create(folder, f"killed {done}")
        while (step := _train(run, epochs, choice.uniform(0, 2) if done < times else None)) is not None:
            done += 1
            print(f"kill {done}, with {step} steps saved", flush=True)
        _compare(whole, run, epochs)


def _train(run: Run, epochs: int, seconds: float | None = None) -> int | None:
    """Trains, and kills it after some seconds. Returns the number of rows; None if training was finished."""
    command = [sys.executable, "-c", SCRIPT, run.folder, str(epochs), "0"]
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


def _compare(whole: Run, run: Run, epochs: int) -> None:
    assert_equal(*(load_file(each.checkpoints / "last.safetensors") for each in (whole, run)))
    steps = [row["step"] for row in run.rows() if row["event"] == "train"]
    assert steps == list(range(1, 5 * epochs + 1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--signals", type=int, default=200)
    given = parser.parse_args()
    for function, count in ((signals, given.signals), (kills, given.kills)):
        with tempfile.TemporaryDirectory() as folder:
            start = time.monotonic()
            function(Path(folder), count)
            print(f"{count} {function.__name__}: equal to the last bit, {time.monotonic() - start:.0f} s")
