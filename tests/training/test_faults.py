"""Training that is interrupted, diverges, or loses a process: good checkpoints stay, and every process ends."""

import errno
import hashlib
import os
import signal
import threading
import time
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from support.interruptions import kills, pairs, signals
from support.miniature import Flat, assert_equal, fitted, small_trainer, squares, weights
from support.processes import start, start_group
from support.refusals import refuses
from torch import nn

from contml._support.signals import StopRequest
from contml.losses import LogRatioLoss
from contml.processes import _wait_for_threads
from contml.runs import create
from contml.training import Interrupted, trainer as trainer_module


class Diverges(LogRatioLoss):
    """Its gradient is NaN from one step on; its value is always finite."""

    def __init__(self, step):
        super().__init__()
        self.steps = step

    def forward(self, embeddings, labels, **options):
        self.steps -= 1
        if self.steps < 0:
            embeddings.register_hook(lambda gradient: gradient * torch.nan)
        return super().forward(embeddings, labels, **options)


@pytest.mark.parametrize(("step", "val"), [(5, None), (7, squares(20, seed=2)), (9, squares(20, seed=2))])
def test_weights_that_are_not_finite_replace_no_checkpoint(tmp_path, step, val):
    run = create(tmp_path, "run")
    trainer = small_trainer(run, loss=Diverges(step), epochs=3, checkpoint_minutes=0.0, val=val)
    with refuses("weights", got=f"not finite in epoch 2, by step {step - 4}", hint="earlier checkpoints are kept"):
        trainer.fit()
    with refuses("weights"):
        trainer.save()
    for name in ("last", "best", "state") if val else ("last", "state"):
        for key, value in load_file(run.checkpoints / f"{name}.safetensors").items():
            assert value.isfinite().all(), (name, key)
    rest = small_trainer(run, loss=Diverges(100), epochs=3, checkpoint_minutes=0.0, val=val)
    rest.resume()
    assert rest.steps_done == step
    rest.fit()
    whole = fitted(small_trainer(epochs=3))
    assert_equal(weights(rest), weights(whole))


@pytest.mark.parametrize("name", ["last", "state"])
def test_the_weights_of_a_last_save_that_failed_are_written_by_the_next_training(tmp_path, monkeypatch, name):
    run, write = create(tmp_path, "run"), trainer_module.save_tensors if name == "last" else trainer_module.save_state
    trainer = small_trainer(run)

    def full(path, *given, **options):
        if path.stem == name and trainer.finished:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, *given, **options)

    with monkeypatch.context() as patch:
        patch.setattr(trainer_module, write.__name__, full)
        with pytest.raises(OSError, match="No space left"):
            trainer.fit()
    rest, whole = small_trainer(run), small_trainer(create(tmp_path, "whole"))
    rest.resume()
    rest.fit()
    whole.fit()
    for file in ("last.safetensors", "state.safetensors"):
        found, expected = (load_file(each.run.checkpoints / file) for each in (rest, whole))
        assert_equal(found, expected)


def test_a_buffer_that_is_not_finite_is_found():
    model = Flat()
    model.register_buffer("mean", torch.zeros(()))
    model.linear.bias.register_hook(lambda _: model.mean.fill_(torch.inf) and None)
    with refuses("weights", got="not finite in epoch 1, by step 1"):
        small_trainer(model=model).fit()


def test_parameters_without_entries_and_buffers_that_are_not_saved_may_have_any_value():
    model = Flat()
    model.unused = nn.Parameter(torch.empty(0))
    model.register_buffer("mask", torch.full((2, 2), -torch.inf), persistent=False)
    assert fitted(small_trainer(model=model)).finished


@contextmanager
def handled(number, handler=signal.default_int_handler):
    """A signal has a handler: a shell may have started pytest with SIGINT ignored."""
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


def test_a_signal_during_the_last_evaluation_stops_too(tmp_path):
    run = create(tmp_path, "run")
    trainer = small_trainer(run, epochs=1, val=squares(12, seed=2))
    evaluate, calls = trainer.evaluate, []

    def last(split, *model, **options):
        calls.append(split)
        if len(calls) == 2:  # the first one is of the untrained model
            os.kill(os.getpid(), signal.SIGINT)
        return evaluate(split, *model, **options)

    trainer.evaluate = last
    with handled(signal.SIGINT), pytest.raises(Interrupted, match="stopped by SIGINT after epoch 1"):
        trainer.fit()
    rest = small_trainer(run, epochs=1, val=squares(12, seed=2))
    rest.resume()
    assert rest.finished


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_saves_and_is_reported(tmp_path, number):
    run = create(tmp_path, "run")
    trainer = small_trainer(run)
    sends_at(trainer, (1, 2), number)
    with handled(number):
        with pytest.raises(Interrupted, match=f"stopped by {number.name} in epoch 2, after step 2"):
            trainer.fit()
        assert signal.getsignal(number) is signal.default_int_handler
    whole = fitted(small_trainer())
    rest = fitted(small_trainer(run), resume=True)
    assert_equal(weights(rest), weights(whole))


def test_an_ignored_signal_stays_ignored():
    with handled(signal.SIGHUP, signal.SIG_IGN):
        trainer = small_trainer()
        sends_at(trainer, (0, 2), signal.SIGHUP)
        trainer.fit()
        assert trainer.finished
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


@pytest.mark.parametrize("seconds", [0.2, 2.0])
def test_a_second_ctrl_c_stops_at_once_but_not_that_of_a_launcher(seconds, monkeypatch):
    clock = iter([0.0, seconds])
    monkeypatch.setattr("contml._support.signals.time", SimpleNamespace(monotonic=lambda: next(clock)))
    request = StopRequest()
    with handled(signal.SIGINT), request.listening():
        os.kill(os.getpid(), signal.SIGINT)
        assert request.name == "SIGINT"
        with pytest.raises(KeyboardInterrupt) if seconds > 1 else nullcontext():
            os.kill(os.getpid(), signal.SIGINT)


def sends_at(trainer, step, number):
    """The process signals itself while the batch of this (epoch, step) is read."""
    original = trainer.sampler.batch

    def batch(*of):
        if of == step:
            os.kill(os.getpid(), number)
        return original(*of)

    trainer.sampler.batch = batch


GROUP = """
import signal, sys
from pathlib import Path
from support.miniature import *
from contml.runs import Run
from contml.training import Interrupted
if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # nohup or a shell may have ignored them
        signal.signal(number, signal.SIG_DFL)
    trainer = small_trainer(Run(Path(sys.argv[1])), epochs=10_000)
    trainer.images.workers = 2
    try:
        trainer.fit()
    except Interrupted as stop:
        print(stop)
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_process_group_saves(tmp_path, number):
    run = create(tmp_path, "run")
    process = start_group("-c", GROUP, run.folder)
    while len(run.rows()) < 4:
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, number)  # the workers get it, too
    out, errors = process.communicate(timeout=60)
    assert out.startswith(f"stopped by {number.name}")
    assert errors == ""
    rest = small_trainer(run, epochs=10_000)
    rest.resume()
    assert rest.steps_done > 0


# -- two processes -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("interrupt", "given"), [(signals, [12]), (kills, [3]), (kills, [10, "tuned"]), (pairs, [2])])
def test_signals_and_kills_of_one_process_and_of_two(tmp_path, interrupt, given):
    interrupt(tmp_path, *given)


DURING = """
import os, signal, sys
import torch.distributed as dist
from support.miniature import *
from contml.training import Interrupted
trainer, reduce, calls = small_trainer(), dist.all_reduce, 0
step = trainer.train_step
def train_step(*arguments):
    global calls
    calls = 0  # those before were of the evaluation before the first step
    trainer.train_step = step
    return step(*arguments)
trainer.train_step = train_step
def all_reduce(*arguments, **options):
    global calls
    calls += 1
    reduce(*arguments, **options)
    if trainer.train_step == step and calls == 3 and os.environ["RANK"] == sys.argv[1]:
        os.kill(os.getpid(), signal.SIGTERM)  # after the processes have agreed to go on
dist.all_reduce = all_reduce
try:
    trainer.fit()
except Interrupted as stop:
    print(stop)
"""


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_signal_while_the_processes_agree_stops_both_after_the_same_step(rank):
    lines = [process.communicate(timeout=120)[0] for process in start(DURING, str(rank))]
    own, other = lines[rank].split(" in "), lines[1 - rank].split(" in ")
    assert (own[0], other[0]) == ("stopped by SIGTERM", "stopped by a signal to another process")
    assert own[1] == other[1]


FAILS = """
import os, sys
from support.miniature import *
from contml import InputError
split = squares(broken=(3,) if sys.argv[1] == "image" and os.environ["RANK"] == "1" else ())
trainer = small_trainer(split=split, epochs=1000)
if os.environ["RANK"] == "1" and sys.argv[1] in ("exit", "evaluation"):
    name, count = "_log" if sys.argv[1] == "evaluation" else "train_step", 0
    original = getattr(trainer, name)
    def fails(*arguments, **values):
        global count
        count += name == "train_step" or arguments[0] == "evaluation"
        if count == 2:
            if sys.argv[1] == "exit":
                os._exit(9)
            raise InputError("disk", "full")
        return original(*arguments, **values)
    setattr(trainer, name, fails)
try:
    trainer.fit()
except InputError as error:
    print(error)
os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("cause", "own", "other"), [
    ("image", "square 3: cannot be decoded", "training: another process failed"),
    ("evaluation", "disk: full", "training: another process failed"), ("exit", "", "training: another process ended"),
])  # fmt: skip
def test_the_failure_of_one_process_is_one_line_on_the_other(cause, own, other):
    processes = start(FAILS, cause)
    lines = [process.communicate(timeout=120) for process in processes]
    assert lines[1][0].startswith(own) if own else lines[1][0] == ""
    assert lines[0][0].startswith(other), lines
    assert lines[0][0].count("\n") == 1
    assert "Traceback" not in lines[0][1] + lines[1][1]


CLOSED = """
import atexit, torch.distributed as dist
atexit.register(lambda: print(dist.is_initialized()))  # runs last
from contml.training.setup import accelerator
accelerator("float32", device="cpu")
print(dist.is_initialized())
"""


@pytest.mark.slow
def test_the_process_group_is_closed_at_the_end():
    """Threads of gloo that still run would abort the process: "terminate called without an active exception"."""
    for process in start(CLOSED):
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        assert output.split() == ["True", "False"]


def test_the_end_waits_for_threads_that_run():
    """Such a thread may be about to release a tensor; one that never rests is not waited for."""
    worker = threading.Thread(target=hashlib.pbkdf2_hmac, args=("sha256", b"", b"", 800_000))  # without Python's lock
    worker.start()
    started = time.monotonic()
    _wait_for_threads()
    assert time.monotonic() - started > 0.9 or not worker.is_alive()
    worker.join()
    started = time.monotonic()
    _wait_for_threads()
    assert time.monotonic() - started < 0.9
