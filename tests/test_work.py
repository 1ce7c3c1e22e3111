"""Items of work: each is done once, by one process or several, also if some of them are killed or suspended."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from filelock import SoftFileLease
from hypothesis import given, settings, strategies as st
from support import searches, sweeps
from support.items import Number, Squares, begun, fails, files, square
from support.processes import script_environment
from support.refusals import refuses

from contml import work
from contml._support import files as file_functions
from contml.retrieval import Index, index as index_module, index_shards, index_structure

NUMBERS = [Number(value) for value in range(8)]
STORES = ["lines", "files", "maps", "embeddings", "index"]
SQUARES = [value**2 for value in range(8)]


@pytest.fixture(params=["lines", "files"])
def results(request, tmp_path):
    return Squares(tmp_path / "squares.jsonl") if request.param == "lines" else files(tmp_path / "squares")


def start(folder, count, seconds, store="lines", *options, lease=None):
    environment = {**script_environment(), **({} if lease is None else {"LEASE": str(lease)})}
    script = "support.items" if store in ("lines", "files") else "support.searches"
    command = [sys.executable, "-m", script, str(folder), str(count), str(seconds), store, *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


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
    assert done == NUMBERS
    assert [*begun(tmp_path)] == [*range(8)]
    assert {len(processes) for processes in begun(tmp_path).values()} == {1}
    assert values(results) == SQUARES
    assert not [*results.folder.glob("*.lease")]


def test_items_that_are_not_needed_are_not_done(results, tmp_path):
    work.run(NUMBERS, partial(square, tmp_path, 0), results, is_needed=lambda item: Number(2).key not in results)
    assert values(results) == SQUARES[:3]


def test_several_processes(results, tmp_path, monkeypatch):
    done = []
    log = tmp_path / "logs" / "log"
    work.run(NUMBERS, partial(square, tmp_path, 0.05), results, processes=2, on_done=done.append, log=lambda item: log)
    assert sorted(item.value for item in done) == [*range(8)]
    assert {len(processes) for processes in begun(tmp_path).values()} == {1}
    assert os.getpid() not in {process for processes in begun(tmp_path).values() for process in processes}
    assert values(results) == SQUARES
    monkeypatch.setattr(work.workers, "_start", None)  # no process is started if there is nothing to do
    work.run(NUMBERS, partial(square, tmp_path, 0), results, processes=2)


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
    work.run(NUMBERS, partial(square, tmp_path, 0), results, deadline=time.monotonic() + 5)  # all leases are free
    assert values(results) == SQUARES
    assert not [*results.folder.glob("*.lease")]


def test_a_process_that_dies_is_one_line(tmp_path):
    results = Squares(tmp_path / "squares.jsonl")
    with refuses("number 3", "its process died (exit status 9)", hint="number 3.log; the same command continues"):
        work.run([NUMBERS[3]], fails, results, processes=2, log=lambda item: tmp_path / f"{item}.log")
    assert (tmp_path / "number 3.log").read_text() == "item 3\n"
    work.run([NUMBERS[3]], partial(square, tmp_path, 0), results)  # its lease is free


def test_items_that_save_their_state_when_another_one_fails(tmp_path):
    """They end by an error of their own, or finish: nobody waits for them."""
    results = Squares(tmp_path / "squares.jsonl")
    with refuses("number 1", "is odd"):
        work.run([Number(5), Number(6), NUMBERS[1]], partial(fails, folder=tmp_path), results, processes=3)
    assert "number 5" not in results
    assert "number 6" in Squares(results.path)


def test_a_deadline(results, tmp_path):
    with pytest.raises(work.OutOfTimeError):
        work.run(NUMBERS, partial(square, tmp_path, 0.05), results, deadline=time.monotonic() + 0.12)
    assert 0 < len(values(results)) < 8
    work.run(NUMBERS, partial(square, tmp_path, 0), results)
    work.run(NUMBERS, partial(square, tmp_path, 0), results, deadline=time.monotonic())  # nothing is left
    held = results.lease("number 9")
    assert held.acquire()
    with pytest.raises(work.OutOfTimeError):
        work.run([Number(9)], partial(square, tmp_path, 0), results, deadline=time.monotonic() + 0.2)
    held.release()
    assert "number 9" not in results


def test_a_run_waits_for_items_that_another_process_does(results, tmp_path, monkeypatch):
    monkeypatch.setattr(work.workers, "POLL", 0.01)
    other = results.lease(NUMBERS[3].key)
    other.acquire()
    waited = []

    def on_wait(count):
        waited.append(count)
        assert [item.key for item in NUMBERS if item.key not in results] == [NUMBERS[3].key]
        results.add(NUMBERS[3].key, 9)  # by the other process
        other.release()

    work.run(NUMBERS, partial(square, tmp_path, 0), results, on_wait=on_wait)
    assert waited == [1]
    assert 3 not in begun(tmp_path)
    assert values(results) == SQUARES


def test_the_first_result_counts(tmp_path):
    results, other = (Squares(tmp_path / "squares.jsonl") for _ in range(2))
    results.add("a", 1)
    other.add("a", 2)
    assert results["a"] == other["a"] == Squares(tmp_path / "squares.jsonl")["a"] == 1
    first, second = (files(tmp_path / "squares") for _ in range(2))
    first.add("a", 1)
    second.add("a", 2)
    assert second["a"] == first["a"] == 1


def test_a_line_that_is_cut_short_is_ignored_and_a_damaged_one_is_named(tmp_path):
    path = tmp_path / "squares.jsonl"
    for end in range(3):
        path.unlink(missing_ok=True)
        results = Squares(path)
        results.add("a", 1)
        content = path.read_bytes()
        path.write_bytes(content + b'{"key": "b"'[: 4 * end])
        again = Squares(path)
        assert [*again] == ["a"]
        again.add("b", 4)
        results.refresh()
        assert dict(results) == {"a": 1, "b": 4}
    for line in (b"{}\n", b"[1]\n", b"nothing\n", b'{"key": "c", "square": "many"}\n'):
        path.write_bytes(content + line)
        with refuses(f"{path}:3", "not a line of squares", hint="remove it"):
            Squares(path)


def test_a_file_of_other_work_is_refused(tmp_path):
    path = tmp_path / "squares.jsonl"
    Squares(path).add("a", 1)
    with refuses(str(path), "holds results of something else"):
        Squares(path, "cubes")


def test_a_file_that_is_removed_while_it_is_used(tmp_path):
    results = Squares(tmp_path / "squares.jsonl")
    results.add("a", 1)
    results.path.unlink()
    with refuses(str(results.path), "removed or cut"):
        results.add("b", 4)
    assert not results.path.exists()  # it would have no first line


def test_a_full_disk(tmp_path, monkeypatch):
    results = Squares(tmp_path / "squares.jsonl")
    results.add(NUMBERS[0].key, 0)

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(file_functions.os, "fsync", full)
        with refuses(str(results.path), "No space left"):
            work.run(NUMBERS[1:], partial(square, tmp_path, 0), results)
    with monkeypatch.context() as patch:
        patch.setattr(SoftFileLease, "acquire", lambda *_, **__: full(0))
        with refuses(str(results.folder), "No space left"):
            work.run(NUMBERS[3:], partial(square, tmp_path, 0), results)
    work.run(NUMBERS, partial(square, tmp_path, 0), results)
    assert values(Squares(results.path)) == SQUARES


def test_a_second_command_must_join(tmp_path):
    first = start(tmp_path, 6, 0.15)
    assert first.stdout.readline() == "ready\n"
    first.send_signal(signal.SIGSTOP)  # until the others have begun
    second = start(tmp_path, 6, 0.15)
    _, errors = second.communicate(timeout=60)
    assert second.returncode == 1
    (line,) = errors.splitlines()
    assert line.startswith(f"{tmp_path}: another command works on it; ")
    assert "--join" in line
    joined = start(tmp_path, 6, 0.15, "lines", "--join")
    assert joined.stdout.readline() == "ready\n"
    first.send_signal(signal.SIGCONT)
    assert (first.wait(60), joined.wait(60)) == (0, 0), joined.stderr.read()
    assert {len(processes) for processes in begun(tmp_path).values()} == {1}
    for process in (first, joined):
        process.communicate()


def kill(folder, store, commands, kills, count, seconds):
    """Kills one of several commands at a random moment, and starts another, so many times."""
    choice, killed = random.Random(commands), set()
    if store == "index":
        Index.create(folder / "index", 1).close()
    if store == "codes":
        searches.code_index(folder, count)
    if store == "captions":  # compiled once, and kept: else each process compiles, and is killed before it ends
        (folder / "compiled").mkdir()
        searches.captions(folder / "compiled", 5, 0.0)
    if store == "trainings":
        sweeps.config(folder)
    running = [start(folder, count, seconds, store, "--join") for _ in range(commands)]
    try:
        for process in running:
            assert process.stdout.readline() == "ready\n"
        while len(killed) < kills:
            time.sleep(choice.uniform(0, 2 * seconds))
            number = choice.randrange(commands)
            status = running[number].poll()
            running[number].kill()
            _, errors = running[number].communicate()
            assert status is None, errors or "the items are done before the kills"
            killed.add(running[number].pid)
            running[number] = start(folder, count, seconds, store, "--join")
        for process in running:
            _, errors = process.communicate(timeout=600)
            assert process.returncode == 0, errors
    finally:
        for process in running:
            process.kill()
            process.communicate()
    found = begun(folder)
    unreadable = {number for number in range(count) if number % 10 == 9} if store == "index" else set()
    assert {*found} == {*range(count)} - unreadable
    for processes in found.values():  # once, but for the killed ones
        assert {*processes[:-1]} <= killed
    assert sum(map(len, found.values())) <= count + kills
    if store == "lines":
        _, *rows = map(json.loads, (folder / "squares.jsonl").read_text().splitlines())
        assert sorted(row["square"] for row in rows) == [value**2 for value in range(count)]
    if store in ("maps", "captions"):
        assert [path.suffix for path in (folder / "cache").iterdir()] == [".safetensors"]
    assert not [*folder.glob(".index.*"), *folder.glob(".embeddings.*")]
    assert not [*folder.rglob("*.lease")]


@pytest.mark.parametrize("store", STORES)
def test_commands_that_are_killed(tmp_path, store):
    kill(tmp_path, store, commands=3, kills=6, count=30, seconds=0.12)


@pytest.mark.slow
@pytest.mark.parametrize("store", [*STORES, "captions", "codes", "trainings"])
def test_eight_commands_with_fifty_kills(tmp_path, store):
    kill(tmp_path, store, commands=8, kills=50, count=400, seconds=0.2)


@pytest.mark.parametrize("store", ["maps", "embeddings", "index", "codes"])
def test_another_command_ends_before_an_item_is_taken(tmp_path, monkeypatch, store):
    """Nothing is computed again from then on, and nothing is left."""
    monkeypatch.setattr("contml.distances.cache._ROWS", 1)
    monkeypatch.setattr("contml.evaluation.embed_parts._PART", 1)
    count = 256 if store == "codes" else 5  # the fewest that FAISS fits quantizers to
    if store == "index":
        Index.create(tmp_path / "index", 1).close()
    if store == "codes":
        for module, name in ((index_structure, "PART"), (index_structure, "FEWEST"), (index_module, "FEWEST")):
            monkeypatch.setattr(module, name, getattr(module, name))  # put back what the script changes
        monkeypatch.setattr(index_shards, "encode_rows", index_structure.encode_rows)
        searches.code_index(tmp_path, count)
    command, acquire = partial(getattr(searches, store), tmp_path, count, 0.0), work.Lease.acquire

    def acquire_late(lease):
        monkeypatch.setattr(work.Lease, "acquire", acquire)
        command()
        return acquire(lease)

    monkeypatch.setattr(work.Lease, "acquire", acquire_late)
    command()
    assert [len(processes) for processes in begun(tmp_path).values()] == [1] * count
    assert not [*tmp_path.rglob("*.parts"), *tmp_path.rglob("*.codes")]


def test_the_last_process_that_uses_a_folder_removes_it(tmp_path):
    one, other = (files(tmp_path / "squares") for _ in range(2))
    with one.used("one"):
        one.add("a", 1)
        with other.used("other"):
            pass
        other.remove()
        assert one["a"] == 1
        with refuses("other", "another command works on it"), one.command(True, "one"), other.command(False, "other"):
            pass
        (one.folder / "0123.user").touch()  # of a process that was killed
    one.remove()
    assert [*tmp_path.iterdir()] == []
    other.remove()
    assert [*tmp_path.iterdir()] == []


def test_leases_that_are_left_are_removed_while_no_process_takes_one(tmp_path):
    results = files(tmp_path / "squares")
    with file_functions.locked(results.folder, name="leases"):
        (left := results.lease("a").path).touch()
        thread = threading.Thread(target=results.clean, args=[["a"]])
        thread.start()
        thread.join(0.2)
        assert left.exists()
    thread.join()
    assert not left.exists()


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


def test_what_a_process_leaves_that_is_killed_while_it_takes_a_lease(results, tmp_path):
    results.folder.mkdir(parents=True, exist_ok=True)
    markers = [results.folder / f"{work.results._digest(item.key)}.lease" for item in NUMBERS[:2]]
    for marker in markers:
        marker.touch()  # it had not written its name yet
    markers[1].with_name(f"{markers[1].name}.break.1.{32 * '0'}").touch()
    work.run(NUMBERS, partial(square, tmp_path, 0), results, deadline=time.monotonic() + 5)
    assert values(results) == SQUARES
    assert not [*results.folder.glob("*lease*.*")]


def test_one_process_takes_the_item_of_a_suspended_one(tmp_path):
    """Several see at the same moment that the lease has expired; the result of the suspended one is ignored."""
    first = start(tmp_path, 1, 1.0, "lines", "--join", lease=1.5)
    wait_until(lambda: (tmp_path / "begun").exists())
    first.send_signal(signal.SIGSTOP)
    others = [start(tmp_path, 1, 0.5, "lines", "--join", lease=1.5) for _ in range(4)]
    for process in others:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
    ((held, taken),) = begun(tmp_path).values()
    assert held == first.pid
    assert taken in {process.pid for process in others}
    first.send_signal(signal.SIGCONT)
    _, errors = first.communicate(timeout=60)
    assert first.returncode == 0, errors
    assert len((tmp_path / "squares.jsonl").read_text().splitlines()) == 2


# -- shards ------------------------------------------------------------------------------------------------------------


def run_shard(text, results, folder, items=NUMBERS, begin=None, **options):
    """Do a shard of the numbers; returns how many are left for others."""

    def begun_square(item):
        begin()
        return square(folder, 0, item)

    function = partial(square, folder, 0) if begin is None else begun_square
    try:
        work.run(items, function, results, join=work.Shard.parse(text), **options)
    except work.ItemsLeftError as error:
        return error.left
    return 0


@given(st.integers(0, 40), st.integers(1, 50))
def test_shards_are_disjoint_and_cover_the_list(length, count):
    items = [*range(length)]
    shares = [work.share(items, work.Shard(number, count)) for number in range(1, count + 1)]
    assert sorted(item for each in shares for item in each) == items
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    for number, each in enumerate(shares):
        assert all(item % count == number for item in each)
    assert work.share(items, False) == work.share(items, True) == items


def test_what_is_no_shard():
    assert work.Shard.parse("3/8") == work.Shard(3, 8)
    assert str(work.Shard.parse("003/8")) == "3/8"
    for text in (
        "3-8",
        "3",
        "/",
        "/8",
        "3/",
        "a/b",
        "3/8/1",
        "-1/8",
        "+1/8",
        " 1/8",
        "1/8\n",
        "٣/8",
        "1.0/2",
        "9" * 5000,
    ):
        with refuses("--shard", repr(text), "must be I/N"):
            work.Shard.parse(text)
    for text in ("0/8", "9/8"):
        with refuses("--shard", text, "must be 1/8 to 8/8"):
            work.Shard.parse(text)
    for text in ("0/0", "1/0"):
        with refuses("--shard", text, "must be I/N"):
            work.Shard.parse(text)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_shard_does_its_own_items_alone_and_the_last_one_ends_as_without_shards(results, tmp_path, processes):
    done = []
    options = {"processes": processes, "on_done": done.append, "on_wait": lambda count: pytest.fail("waits")}
    assert run_shard("3/3", results, tmp_path, **options) == 6
    assert sorted(done, key=lambda item: item.value) == [Number(2), Number(5)]
    assert [*begun(tmp_path)] == ([2, 5] if processes == 1 else [*begun(tmp_path)])
    assert run_shard("1/3", results, tmp_path, **options) == 3
    assert run_shard("1/3", results, tmp_path, **options) == 3, "nothing is left to it"
    assert run_shard("2/3", results, tmp_path, **options) == 0
    assert run_shard("1/3", results, tmp_path, **options) == 0
    assert sorted(item.value for item in done) == [*range(8)]
    assert {number: len(calls) for number, calls in begun(tmp_path).items()} == dict.fromkeys(range(8), 1)
    assert values(results) == SQUARES
    assert not [*results.folder.glob("*.lease")]


def test_what_a_shard_says():
    left = work.ItemsLeftError(work.Shard(3, 8), 2, 1200, 2000)
    assert str(left) == (
        "shard 3/8: its items of work are finished (2 of 2,000), and 1,200 are left for other shards of the same "
        "command; the last shard to finish completes the output, or the same command without --shard"
    )
    assert "and 1 is left" in str(work.ItemsLeftError(work.Shard(3, 8), 2, 1, 16))
    assert left.as_data() == {"shard": "3/8", "items": 2, "left": 1200, "total": 2000}


def test_more_shards_than_items(results, tmp_path):
    assert run_shard("9/9", results, tmp_path) == 8
    assert not (tmp_path / "begun").exists()
    assert [run_shard(f"{number}/9", results, tmp_path) for number in range(1, 9)] == [*range(7, -1, -1)]
    assert run_shard("9/9", results, tmp_path) == 0


@settings(max_examples=30)
@given(st.lists(st.integers(1, 5).flatmap(lambda n: st.tuples(st.integers(1, n), st.just(n))), max_size=6))
def test_calls_with_other_numbers_of_shards_do_no_item_again(tmp_path_factory, calls):
    folder = tmp_path_factory.mktemp("shards")
    (folder / "begun").touch()
    finished = set()
    for number, count in calls:
        finished |= {*range(number - 1, 8, count)}
        assert run_shard(f"{number}/{count}", Squares(folder / "squares.jsonl"), folder) == 8 - len(finished)
    results = Squares(folder / "squares.jsonl")
    assert {*begun(folder)} == finished
    work.run(NUMBERS, partial(square, folder, 0), results)
    assert {number: len(found) for number, found in begun(folder).items()} == dict.fromkeys(range(8), 1)
    assert values(results) == SQUARES


def test_a_shard_waits_for_its_own_items_alone(results, tmp_path, monkeypatch):
    """Another command does item 1 of the shard, and item 2 of the other one: the first is waited for."""
    monkeypatch.setattr(work.workers, "POLL", 0.01)
    own, other = (results.lease(NUMBERS[number].key) for number in (0, 1))
    assert own.acquire()
    assert other.acquire()
    waited = []

    def on_wait(count):
        waited.append(count)
        results.add(NUMBERS[0].key, 0)
        own.release()

    assert run_shard("1/2", results, tmp_path, on_wait=on_wait) == 4
    assert waited == [1]
    assert [*begun(tmp_path)] == [2, 4, 6]
    other.release()


def test_items_that_are_not_needed_are_not_left_for_other_shards(results, tmp_path):
    """As after the output was written."""
    assert run_shard("1/2", results, tmp_path, is_needed=lambda item: item.value < 2) == 1
    assert run_shard("1/2", results, tmp_path, is_needed=lambda item: False) == 0
    assert [*begun(tmp_path)] == [0]


def test_a_deadline_of_a_shard(results, tmp_path):
    with pytest.raises(work.OutOfTimeError):
        run_shard("1/2", results, tmp_path, deadline=time.monotonic())
    assert run_shard("1/2", results, tmp_path) == 4
    assert run_shard("1/2", results, tmp_path, deadline=time.monotonic()) == 4, "its items are finished"


#: Those of processes that import torch take long to start.
SHARDED = ["lines", "files", *(pytest.param(s, marks=pytest.mark.slow) for s in ("embeddings", "index", "trainings"))]


def prepared(folder, store):
    if store == "index":
        Index.create(folder / "index", 1).close()
    if store == "trainings":
        sweeps.config(folder)


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2)])
@pytest.mark.parametrize("store", ["embeddings", "index", "trainings"])
def test_the_last_shard_writes_the_output(tmp_path, monkeypatch, store, order):
    """The functions compare the output with what it must be. An index grows meanwhile, from its first item on."""
    monkeypatch.setattr("contml.evaluation.embed_parts._PART", 1)
    monkeypatch.setattr("contml.sweep.training.train", None)  # put back what the script changes
    monkeypatch.chdir(tmp_path)
    prepared(tmp_path, store)
    command = partial(getattr(searches, store), tmp_path, 8, 0.0)
    left = []
    for number in order:
        try:
            command(join=work.Shard(number, 3))
        except work.ItemsLeftError as error:
            left.append((error.own, error.left, error.total))
    sizes = {1: 3, 2: 3, 3: 2}
    assert left == [(sizes[order[0]], 8 - sizes[order[0]], 8), (sizes[order[1]], sizes[order[2]], 8)]
    assert {number: len(calls) for number, calls in begun(tmp_path).items()} == dict.fromkeys(range(8), 1)
    command(join=work.Shard(order[0], 3))  # complete: it says so, and does nothing
    assert sum(map(len, begun(tmp_path).values())) == 8
    assert not [*tmp_path.glob(".index.*"), *tmp_path.glob(".embeddings.*")]


@pytest.mark.parametrize("store", SHARDED)
def test_shards_at_the_same_time_beside_the_same_shard_and_a_command_that_joins(tmp_path, store):
    """Each item is done once; at least one command finds all of them finished."""
    prepared(tmp_path, store)
    options = ["1/3", "2/3", "3/3", "3/3", *(["--join"] if store in ("lines", "embeddings") else [])]
    running = [start(tmp_path, 24, 0.02, store, option) for option in options]
    outputs = [process.communicate(timeout=300) for process in running]
    assert [process.returncode for process in running] == [0] * len(running), outputs
    printed = [out.splitlines()[-1] for out, _ in outputs]
    for line, option in zip(printed, options, strict=True):
        assert line == "all" or line.startswith(f"shard {option}: ")
    assert "all" in printed
    if store == "index":  # an image that cannot be read is tried by each call: it is left to a late shard of others
        _, errors = start(tmp_path, 24, 0.0, store, "--join").communicate(timeout=120)
        assert not errors
    unreadable = 2 if store == "index" else 0
    assert [len(calls) for calls in begun(tmp_path).values()] == [1] * (24 - unreadable)
    assert not [*tmp_path.glob(".index.*"), *tmp_path.glob(".embeddings.*")]
    assert not [*tmp_path.rglob("*.lease")]


@pytest.mark.parametrize("store", ["lines", "files"])
def test_shards_that_end_together(tmp_path, store):
    """At least one of them sees that all items are finished."""
    barrier, left = threading.Barrier(4), []

    def command(number):
        results = Squares(tmp_path / "squares.jsonl") if store == "lines" else files(tmp_path / "squares")
        left.append(run_shard(f"{number}/4", results, tmp_path, NUMBERS[:4], barrier.wait))

    threads = [threading.Thread(target=command, args=[number]) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(left) == 4
    assert 0 in left
    assert [len(calls) for calls in begun(tmp_path).values()] == [1] * 4


@pytest.mark.parametrize("store", SHARDED)
def test_a_killed_shard_is_repeated(tmp_path, store):
    prepared(tmp_path, store)
    others = start(tmp_path, 12, 0.0, store, "1/2")
    assert (
        others.communicate(timeout=120)[0].splitlines()[-1].startswith("shard 1/2: its items of work are finished (6")
    )
    killed = start(tmp_path, 12, 1.0, store, "2/2")
    wait_until(lambda: {*begun(tmp_path)} & {1, 3, 5, 7})
    killed.kill()
    killed.communicate()
    again = start(tmp_path, 12, 0.0, store, "2/2")
    out, errors = again.communicate(timeout=120)
    assert (again.returncode, out.splitlines()[-1]) == (0, "all"), errors
    calls = begun(tmp_path)
    assert {*calls} == {*range(12)} - ({9} if store == "index" else set())
    assert [number for number, each in calls.items() if len(each) > 1 and each[0] != killed.pid] == []
    assert sum(map(len, calls.values())) <= len(calls) + 1
    assert not [*tmp_path.rglob("*.lease")]


def test_a_shard_that_ends_after_the_output_is_written_removes_what_is_left(tmp_path):
    """It saw that an item was left; the shard that did it could not remove the folder meanwhile."""
    one, other = (files(tmp_path / "squares") for _ in range(2))
    with suppress(work.ItemsLeftError), one.command(work.Shard(1, 2), "one"):
        with other.command(work.Shard(2, 2), "other"):
            pass
        other.remove()
        assert (tmp_path / "squares").is_dir()
        raise work.ItemsLeftError(work.Shard(1, 2), 1, 1, 2)
    assert [*tmp_path.iterdir()] == []
    with one.used("one"):
        other.remove()
        with other.used("the next work"):
            pass
        assert (tmp_path / "squares").is_dir(), "in use"
    assert (tmp_path / "squares").is_dir(), "other work has begun since"
