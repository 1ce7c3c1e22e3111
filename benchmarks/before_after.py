"""Processor time of this checkout beside that of another one, such as the parent of a commit, in turn.

    git worktree add /tmp/parent HEAD~1
    python -m benchmarks.before_after --before /tmp/parent [--only NAME ...] [--rounds 5]

Each checkout has a process with one thread; the two take turns, and the least processor time of each counts, which
other programs on the machine disturb least. The figures of both results are printed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.measure import heading, table

ROOT = Path(__file__).parents[1]
#: A training of drawn people that takes seconds.
SMALL = [
    *("task.train=40", "task.val=16", "task.test=24", "task.queries=6", "task.size=32"),
    *("images.resize=32", "images.crop=32", "transform.scale_jitter=2", "transform.shift=1", "model.dim=8"),
    *("sampler.batch_size=10", "sampler.anchors_per_batch=2", "sampler.neighbours=2", "sampler.batches=4"),
    "training.epochs=2",
]

#: A measurement: a function whose processor time counts, unless it returns another one, and a figure of its result.
Measurement: TypeAlias = "tuple[Callable[[], float | None], Callable[[], str]]"


#: Runs a command of contml until the first training step is done.
FIRST_STEP = """
import os, sys
from contml.training.trainer import Trainer
train_step = Trainer.train_step
def first(*args, **options):
    train_step(*args, **options)
    os._exit(0)
Trainer.train_step = first
from contml.app.cli import main
sys.argv[0] = "contml"
main()
"""


def command(*call: str) -> Measurement:
    """A call of Python in a process of its own, user and system time, with a cache that a first call has filled."""

    def run() -> float:
        before = os.times()
        with tempfile.TemporaryDirectory() as folder:
            runs = ["--runs", folder] if "train" in call else []
            subprocess.run([sys.executable, *call, *runs], check=True, capture_output=True)
        after = os.times()
        return after.children_user + after.children_system - before.children_user - before.children_system

    return run, lambda: ""


def first_step_of_a_table() -> Measurement:
    """`contml train --data items.csv --label age=number --preset quick` until the first step: 240 images."""
    import numpy as np
    from PIL import Image

    folder, random = Path(tempfile.mkdtemp()), np.random.default_rng(0)
    rows = ["image,age"]
    for n in range(240):
        pixels = np.full((96, 96, 3), n, np.uint8) + random.integers(0, 16, (96, 96, 3), np.uint8)
        Image.fromarray(pixels).save(folder / f"{n}.jpg")
        rows.append(f"{n}.jpg,{n % 80}")
    (folder / "items.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    data = ["--data", str(folder / "items.csv"), "--label", "age=number", "--preset", "quick"]
    return command("-c", FIRST_STEP, "train", *data)


def report() -> Measurement:
    """The report of a small run."""
    from contml.app.experiment import load, train
    from contml.app.experiment.train_and_evaluate import report_run

    run = train(load("pose/synthetic", SMALL), Path(tempfile.mkdtemp()))
    assert run is not None
    folder = run.folder
    return lambda: void(report_run(folder)), lambda: ""


def loss(name: str) -> Measurement:
    """Forward and backward of a loss on 128 embeddings, 20 times."""
    import torch

    from benchmarks.losses import PEERS, inputs, make

    embeddings, classes = inputs(128)
    embeddings.requires_grad_()
    made = make(name, 128, **PEERS[name].options)
    leaves = [embeddings, *made.parameters()]

    def run() -> None:
        for _ in range(20):
            torch.autograd.grad(made(embeddings, classes), leaves, allow_unused=True)

    return run, lambda: f"{float(made(embeddings, classes)):.6g}"


def evaluation(kind: str, items: int) -> Measurement:
    """The evaluation of items that follow their graded labels in part: 128 dimensions, each searches all others."""
    import torch

    from contml.evaluation import evaluate
    from contml.labels import PoseLabels, VectorLabels

    random = torch.Generator().manual_seed(0)
    z = torch.randn(items, 6, generator=random)
    noise = 0.3 * torch.randn(items, 128, generator=random)
    x = torch.tanh(z @ torch.randn(6, 128, generator=random)) + noise
    joints = (z @ torch.randn(6, 32, generator=random)).view(items, 16, 2)
    labels = {"numbers": VectorLabels(z[:, 0]), "vectors": VectorLabels(z), "poses": PoseLabels(joints)}[kind]

    def figure() -> str:
        found = evaluate(x, labels).evaluation
        scores = ", ".join(f"{name} {score.model:.9g}" for name, score in found.scores.items())
        return f"{scores}, Spearman {found.spearman:.9g}"

    return lambda: void(evaluate(x, labels)), figure


def void(_: Any) -> None:
    return None


def measurements() -> dict[str, Callable[[], Measurement]]:
    from benchmarks.losses import PEERS

    return {
        "contml check pose/synthetic": lambda: command("-m", "contml", "check", "pose/synthetic"),
        "first step of contml train pose/synthetic": lambda: command("-c", FIRST_STEP, "train", "pose/synthetic"),
        "first step of a table of 240 images": first_step_of_a_table,
        "report of a small run": report,
        **{
            f"evaluation of {items:,} {kind}": partial(evaluation, kind, items)
            for kind in ("numbers", "vectors", "poses")
            for items in (5000, 20000)
        },
        **{f"{name}, 128 items, 20 times": partial(loss, name) for name in PEERS},
    }


def serve() -> None:
    """Answers each line of stdin, the name of a measurement or "figure NAME", with its time or its figure."""
    import torch

    torch.set_num_threads(1)
    answers = os.dup(1)
    os.dup2(2, 1)  # what is measured may print
    prepared: dict[str, Measurement] = {}
    for line in sys.stdin:
        name = line.strip().removeprefix("figure ")
        if name not in prepared:
            prepared[name] = measurements()[name]()
            prepared[name][0]()
        run, figure = prepared[name]
        start = time.process_time()
        answer: Any = figure() if line.startswith("figure ") else run()
        os.write(answers, json.dumps(time.process_time() - start if answer is None else answer).encode() + b"\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="the other checkout")
    parser.add_argument("--only", nargs="*", help="these measurements alone")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve()
        return
    processes: list[Any] = []
    for checkout in (given.before.resolve(), ROOT):
        environment = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        call = [sys.executable, str(Path(__file__).resolve()), "--serve"]
        processes.append(subprocess.Popen(call, cwd=checkout, env=environment, text=True, **pipes))

    def ask(process: Any, line: str) -> Any:
        process.stdin.write(line + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    rows = [["processor seconds of", "before", "after", "before / after", "result before", "result after"]]
    for name in given.only or measurements():
        rounds = [[ask(process, name) for process in processes] for _ in range(given.rounds)]
        before, after = (min(spent) for spent in zip(*rounds, strict=True))
        figures = [ask(process, f"figure {name}") for process in processes]
        rows.append([name, f"{before:.4g}", f"{after:.4g}", f"{before / after:.2f}", *figures])
        print(*rows[-1], sep=" | ", file=sys.stderr, flush=True)
    for process in processes:
        process.stdin.close()
        process.wait()
    print(heading("Before and after"))
    print(table(rows))


if __name__ == "__main__":
    main()
