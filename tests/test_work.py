"""Items of work: each is done once, in this process or in others, also if the command is killed."""

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from support.items import Number, Squares, begun, fails, files, square
from support.processes import script_environment
from support.refusals import refuses

from contml import work
from contml._support import files as file_functions

NUMBERS = [Number(value) for value in range(8)]
STORES = ["lines", "files", "maps", "embeddings"]
SQUARES = [value**2 for value in range(8)]


@pytest.fixture(params=["lines", "files"])
def results(request, tmp_path):
    return Squares(tmp_path / "squares.jsonl") if request.param == "lines" else files(tmp_path / "squares")


def start(folder, count, seconds, store="lines", *options):
    script = "support.items" if store in ("lines", "files") else "support.searches"
    command = [sys.executable, "-m", script, str(folder), str(count), str(seconds), store, *options]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=script_environment(), **pipes)


def wait_until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def values(results):
    return [results[item.key] for item in NUMBERS if item.key in results]


def test_items_are_done_in_order_and_once(results, tmp_path):
    done = []
    work.run(NUMBERS[:5], partial(square, tmp_path, 0), results, on_done=done.append)
    work.run(NUMBERS, partial(square, tmp_path, 0), results, on_done=done.append)
    assert (done, [*begun(tmp_path)]) == (NUMBERS, [*range(8)])
    assert ({len(processes) for processes in begun(tmp_path).values()}, values(results)) == ({1}, SQUARES)


def test_several_processes(results, tmp_path, monkeypatch):
    done, factor = [], 3
    log = tmp_path / "logs" / "log"

    def closure(item):
        return square(tmp_path, 0.05, item) * factor

    work.run(NUMBERS, closure, results, processes=2, on_done=done.append, log=lambda item: log)
    assert sorted(item.value for item in done) == [*range(8)]
    assert {len(processes) for processes in begun(tmp_path).values()} == {1}
    processes = {process for processes in begun(tmp_path).values() for process in processes}
    assert len(processes) == 2
    assert os.getpid() not in processes
    wait_until(lambda: not any(Path(f"/proc/{process}").exists() for process in processes))
    assert values(results) == [factor * value for value in SQUARES]
    monkeypatch.setattr(work, "_pool", None)  # no process is started if there is nothing to do
    work.run(NUMBERS, partial(square, tmp_path, 0), results, processes=2)


@pytest.mark.parametrize(("given", "threads"), [("", 4), ("8", 4), ("3", 3)])
def test_processes_divide_the_threads(tmp_path, monkeypatch, given, threads):
    """Also in a container with a quota of 8 processors, for which `contml` sets OMP_NUM_THREADS=8."""
    monkeypatch.setattr("joblib.cpu_count", lambda: 8)
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    results = Squares(tmp_path / "threads.jsonl")
    work.run(NUMBERS[:2], lambda _: int(os.environ["OMP_NUM_THREADS"]), results, processes=2)
    assert [*results.values()] == [threads, threads]


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_of_an_item_is_raised_and_not_recorded(tmp_path, processes):
    results = Squares(tmp_path / "squares.jsonl")
    options = {"processes": processes, "log": lambda item: tmp_path / f"{item}.log"}
    with refuses("number 1", "is odd"):
        work.run(NUMBERS[:2], fails, results, **options)
    with pytest.raises(KeyboardInterrupt):
        work.run([NUMBERS[2]], fails, results, **options)
    with pytest.raises(ArithmeticError if processes == 1 else RuntimeError, match="a bug"):
        work.run([NUMBERS[4]], fails, results, **options)
    assert [*results] in (["number 0"], [])
    work.run(NUMBERS, partial(square, tmp_path, 0), results)
    assert values(results) == SQUARES


def test_a_process_that_dies_is_one_line(tmp_path):
    results = Squares(tmp_path / "squares.jsonl")
    with refuses("number 3", "a process died", hint="number 3.log; the same command continues"):
        work.run([NUMBERS[3]], fails, results, processes=2, log=lambda item: tmp_path / f"{item}.log")
    assert (tmp_path / "number 3.log").read_text() == "item 3\n"
    work.run([NUMBERS[3]], partial(square, tmp_path, 0), results)


@pytest.mark.parametrize("where", ["is_needed", "on_done"])
def test_an_error_beside_the_items_stops_them(tmp_path, where, recwarn):
    """As of a pipe that is closed while a result is printed. The other item ends, or stops as by SIGTERM."""
    results, calls = Squares(tmp_path / "squares.jsonl"), []

    def closed(item):
        calls.append(item)
        if len(calls) == 4:
            raise BrokenPipeError("closed")
        return True if where == "is_needed" else None

    items = [Number(value) for value in range(100)]
    with pytest.raises(BrokenPipeError):
        work.run(items, partial(square, tmp_path, 0.1), results, processes=2, **{where: closed})
    assert not recwarn.list
    assert (4 if where == "on_done" else 2) <= len(results) < len(items)  # the third of two may not have begun
    assert len(begun(tmp_path)) - 1 <= len(results) <= len(begun(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_asked_to_stop_stops_its_items(tmp_path, number):
    process = start(tmp_path, 7, 0.0, "lines", "--stops")
    wait_until(lambda: (tmp_path / "5").exists() and (tmp_path / "6").exists())
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "")
    assert [*Squares(tmp_path / "squares.jsonl")] == ["number 6"]  # its state is saved, that of 5 is no result
    assert not [path for path in tmp_path.rglob("*") if path.name == "stop"]


@pytest.mark.slow
def test_items_end_with_their_command(tmp_path):
    process = start(tmp_path, 7, 0.0, "lines", "--stops")
    wait_until(lambda: (tmp_path / "5").exists() and (tmp_path / "6").exists())
    children = [int((tmp_path / name).read_text()) for name in ("5", "6")]
    process.kill()
    process.communicate()
    again = start(tmp_path, 7, 0.0)  # it waits for them
    _, errors = again.communicate(timeout=60)
    assert (again.returncode, errors) == (0, "")
    wait_until(lambda: not any(Path(f"/proc/{child}").exists() for child in children))
    assert not [*tmp_path.rglob("worker-*")]


def test_a_deadline(results, tmp_path):
    with pytest.raises(work.OutOfTimeError):
        work.run(NUMBERS, partial(square, tmp_path, 0.05), results, deadline=time.monotonic() + 0.12)
    assert 0 < len(values(results)) < 8
    work.run(NUMBERS, partial(square, tmp_path, 0), results)
    work.run(NUMBERS, partial(square, tmp_path, 0), results, deadline=time.monotonic())  # nothing is left


def test_a_line_that_is_cut_short_is_ignored_and_a_damaged_one_is_named(tmp_path):
    path = tmp_path / "squares.jsonl"
    for end in range(3):
        path.unlink(missing_ok=True)
        Squares(path).add("a", 1)
        content = path.read_bytes()
        path.write_bytes(content + b'{"key": "b"'[: 4 * end])
        again = Squares(path)
        assert [*again] == ["a"]
        again.add("b", 4)
        again.add("c", 9)
        assert dict(Squares(path)) == dict(again) == {"a": 1, "b": 4, "c": 9}
    for line in (b"{}\n", b"[1]\n", b"nothing\n", b'{"key": "c", "square": "many"}\n'):
        path.write_bytes(content + line)
        with refuses(f"{path}:3", "not a line of squares", hint="remove it"):
            Squares(path)


def test_a_file_that_is_removed_or_replaced_by_that_of_other_work(tmp_path):
    results = Squares(tmp_path / "squares.jsonl")
    results.add("a", 1)
    results.path.unlink()
    with refuses(str(results.path), "removed or cut"):
        results.add("b", 4)
    assert not results.path.exists()  # it would have no first line
    Squares(results.path).add("a", 1)
    with refuses(str(results.path), "holds results of something else"):
        Squares(results.path, "cubes")


@pytest.mark.parametrize("processes", [1, 2])
def test_a_full_disk(tmp_path, monkeypatch, processes):
    results = Squares(tmp_path / "squares.jsonl")
    results.add(NUMBERS[0].key, 0)

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(file_functions.os, "fsync", full)
        with refuses(str(results.path), "No space left"):
            work.run(NUMBERS[1:], partial(square, tmp_path, 0), results, processes=processes)
    results = Squares(results.path)
    work.run(NUMBERS, partial(square, tmp_path, 0), results)
    assert values(Squares(results.path)) == SQUARES


def test_a_second_command_is_refused(tmp_path):
    first = start(tmp_path, 6, 0.15)
    assert first.stdout.readline() == "ready\n"
    first.send_signal(signal.SIGSTOP)  # until the other one has ended
    second = start(tmp_path, 6, 0.15)
    _, errors = second.communicate(timeout=60)
    assert (second.returncode, errors) == (1, f"{tmp_path}: another command works on it; wait for it\n")
    first.send_signal(signal.SIGCONT)
    first.communicate(timeout=60)
    assert (first.returncode, {len(processes) for processes in begun(tmp_path).values()}) == (0, {1})


KILLED = [pytest.param(store, marks=[pytest.mark.slow] * (store != "lines")) for store in STORES]


@pytest.mark.parametrize("store", KILLED)
def test_a_command_that_is_killed_goes_on(tmp_path, store):
    choice, count, killed = random.Random(0), 8, set()
    for _ in range(3):
        process = start(tmp_path, count, 0.2, store)
        assert process.stdout.readline() == "ready\n"
        time.sleep(choice.uniform(0.2, 0.8))
        process.kill()
        process.communicate()
        killed.add(process.pid)
    last = start(tmp_path, count, 0.2, store)
    _, errors = last.communicate(timeout=120)
    assert last.returncode == 0, errors
    found = begun(tmp_path)
    assert {*found} == {*range(count)}
    for processes in found.values():  # once, but for the killed ones
        assert {*processes[:-1]} <= killed
    assert sum(map(len, found.values())) <= count + len(killed)
    if store == "lines":
        _, *rows = map(json.loads, (tmp_path / "squares.jsonl").read_text().splitlines())
        assert [row["square"] for row in rows] == [value**2 for value in range(count)]
    if store == "maps":
        assert [*(tmp_path / "cache").glob("*/*.safetensors")]
    assert not [*tmp_path.glob(".embeddings.*")]


@pytest.mark.parametrize("method", ["mkdir", "stat"])
def test_a_folder_that_another_process_removes_while_it_is_locked(tmp_path, monkeypatch, method):
    """As it makes the folder, and as it looks at the lock that it has."""
    called, original = [], getattr(Path, method)

    def removed(path, *arguments, **options):
        if path == tmp_path / "a" / "b":
            called.append(path)
            if len(called) in (1, 2, 3, 20):
                shutil.rmtree(tmp_path / "a", ignore_errors=True)
        return original(path, *arguments, **options)

    monkeypatch.setattr(Path, method, removed)
    for _ in range(20):
        with file_functions.locked(tmp_path / "a" / "b"):
            assert (tmp_path / "a" / "b" / ".lock").exists()
