"""A build that is killed at random moments ends with the files of a build that was not."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys

import numpy as np
import pytest
from support.processes import script_environment

from contml.retrieval import Index

#: Builds an index, and goes on after every kill. It forks, so that packages are imported once: for each line of its
#: input, "FOLDER KIND SECONDS", a process builds for so many seconds, and its exit status is printed.
SCRIPT = """
import os, signal, sys, time
import numpy as np
from contml.retrieval import Index, index, index_structure
import faiss, torch, contml.distances._ranking

index.FEWEST = index_structure.FEWEST = 300
index_structure.PART = 150
vectors = np.random.default_rng(0).standard_normal((1000, 8), np.float32)
names = [f"n{row}" for row in range(1000)]
REMOVED = names[::7]

def build(folder, kind):
    faiss.omp_set_num_threads(1)
    if not os.path.exists(f"{folder}/index.sqlite"):
        Index.create(folder, 8, kind)
    found = Index.open(folder)
    done = found.removed_ids
    for start in range(0, 1000, 50):
        rows = [row for row in range(start, start + 50) if names[row] not in found and names[row] not in done]
        assert len(rows) in (0, 50) or done, len(rows)
        found.add([names[row] for row in rows], vectors[rows], [{"row": row} for row in rows])
        if start == 500:
            found.build()
    found.build()
    for start in range(0, len(REMOVED), 20):
        found.remove([name for name in REMOVED[start:start + 20] if name in found])
    found.compact()
    found.build()

print("ready", flush=True)
for line in sys.stdin:
    folder, kind, seconds = line.split()
    child = os.fork()
    if not child:
        build(folder, kind)
        os._exit(0)
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end and not (ended := os.waitpid(child, os.WNOHANG))[0]:
        time.sleep(0.0005)
    if not ended[0]:
        os.kill(child, signal.SIGKILL)
        ended = os.waitpid(child, 0)
    print(ended[1], flush=True)
"""


@pytest.fixture(scope="module")
def builder():
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=script_environment(),
    )
    assert process.stdout.readline() == "ready\n", process.stderr.read()

    def build(folder, kind, seconds=1e9):
        process.stdin.write(f"{folder} {kind} {seconds}\n")
        process.stdin.flush()
        return int(process.stdout.readline())

    yield build
    process.kill()
    process.communicate()


def contents(folder):
    """Everything in an index: all rows of SQLite but the numbers of files, and the bytes of the other files."""
    connection = sqlite3.connect(folder / "index.sqlite")
    tables = [connection.execute(f"SELECT * FROM {name} ORDER BY 1").fetchall() for name in ("chunks", "items")]
    (state,) = connection.execute("SELECT content FROM state").fetchone()
    state = json.loads(state)
    removed = [row[0] for row in connection.execute("SELECT id FROM removed ORDER BY number")]
    connection.close()
    del state["vectors"], state["last"]
    number = state["structure"] and state["structure"].pop("number")
    files = {path.suffix: path.read_bytes() for path in folder.iterdir() if path.suffix in (".f32", ".safetensors")}
    assert not number or f"{number:06d}" in [p.stem.split("-")[1] for p in folder.glob("*.safetensors")]
    return tables, state, removed, files


def check_kills(builder, tmp_path, kind, kills):
    choice = random.Random(kind)
    whole = tmp_path / "whole"
    assert builder(whole, kind) == 0
    expected = contents(whole)
    done = number = 0
    # Halved while builds end before they are killed, doubled while they do not end.
    longest = 0.5
    while done < kills:
        folder = tmp_path / f"killed_{number}"
        number += 1
        in_a_row = 0
        while True:
            status = builder(folder, kind, choice.uniform(0, longest) if done < kills and in_a_row < 30 else 1e9)
            if status == 0:
                break
            assert status == signal.SIGKILL
            done += 1
            in_a_row += 1
            if (folder / "index.sqlite").exists():
                check_a_killed_index(folder)
        longest *= 0.5 if in_a_row < 3 else 2 if in_a_row > 20 else 1
        assert contents(folder) == expected
    with Index.open(whole) as index:
        assert index.ids == [f"n{row}" for row in range(1000) if row % 7]
        found = index.search(np.random.default_rng(0).standard_normal((1000, 8), np.float32)[8:9], 1)
        assert (found.ids.tolist(), found.metadata) == ([["n8"]], [[{"row": 8}]])


def check_a_killed_index(folder):
    """It is opened and searched as it is: whole chunks, in order, with their vectors, and nothing else."""
    vectors = np.random.default_rng(0).standard_normal((1000, 8), np.float32)
    with Index.open(folder) as index:
        ids = index.ids
        every = sorted({*ids, *index.removed_ids}, key=lambda name: int(name[1:]))
        assert every == [f"n{row}" for row in range(len(every))]
        assert len(every) % 50 == 0
        assert ids == [name for name in every if name not in index.removed_ids]
        if ids:
            found = index.search(vectors[[int(ids[-1][1:])]], 1)
            assert found.ids.tolist() == [ids[-1:]]
            assert found.distances.tolist() == [[0.0]]


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL and fork")
@pytest.mark.parametrize("kind", ["flat", "hnsw", "int8"])
def test_a_few_kills(builder, tmp_path, kind):
    check_kills(builder, tmp_path, kind, 4)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL and fork")
@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivf_pq", "int8", "binary"])
def test_many_kills(builder, tmp_path, kind):
    check_kills(builder, tmp_path, kind, 40)


#: Changes an index, and kills itself at the n-th call of one of these functions.
AT_A_CALL = """
import os, signal, sys
import numpy as np
from pathlib import Path
from contml.retrieval import Index, index, index_structure, index_store
import faiss, torch, contml.distances._ranking

index.FEWEST = index_structure.FEWEST = 100
calls = 0

def counted(function, last):
    def call(*given, **options):
        global calls
        calls += 1
        if calls == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*given, **options)
    return call

def change(folder, last):
    faiss.omp_set_num_threads(1)
    found = Index.open(folder)
    os.fsync, Path.replace, Path.unlink = (counted(call, last) for call in (os.fsync, Path.replace, Path.unlink))
    index_store._put_state = counted(index_store._put_state, last)
    found.add([f"b{n}" for n in range(50)], np.ones((50, 4)) * np.arange(50)[:, None])
    found.remove(["a3", "b3"])
    found.build()
    found.compact()

for line in sys.stdin:
    folder, last = line.split()
    child = os.fork()
    if not child:
        change(folder, int(last))
        os._exit(calls)
    print(os.waitpid(child, 0)[1], flush=True)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
@pytest.mark.slow
def test_a_kill_at_each_step_of_each_change(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", AT_A_CALL],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=script_environment(),
    ) as process:

        def run(folder, last):
            process.stdin.write(f"{folder} {last}\n")
            process.stdin.flush()
            return int(process.stdout.readline())

        def make(folder):
            index = Index.create(folder, 4, "hnsw")
            index.add([f"a{n}" for n in range(100)], -np.ones((100, 4)) * np.arange(1, 101)[:, None])
            index.close()

        make(tmp_path / "whole")
        calls = os.waitstatus_to_exitcode(run(tmp_path / "whole", 0))
        assert calls > 15
        a, b = [f"a{n}" for n in range(100)], [f"b{n}" for n in range(50)]
        possible = [a, a + b, [name for name in a + b if name not in ("a3", "b3")]]
        seen = []
        for last in range(1, calls + 1):
            folder = tmp_path / str(last)
            make(folder)
            assert run(folder, last) == signal.SIGKILL
            with Index.open(folder) as index:
                assert index.ids in possible
                seen.append(possible.index(index.ids))
                found = index.search(np.zeros((1, 4)), 500)
                assert sorted(found.ids[0]) == sorted(index.ids)
                with index.lock():  # removes what was left
                    pass
            state = json.loads(
                sqlite3.connect(folder / "index.sqlite").execute("SELECT content FROM state").fetchone()[0]
            )
            names = {"index.sqlite", ".lock", f"vectors-{state['vectors']:06d}.f32"}
            if state["structure"]:
                names.add(f"structure-{state['structure']['number']:06d}.safetensors")
            names.add("index.sqlite-journal")  # may be left: SQLite uses its name again
            found = {path.name for path in folder.iterdir()}
            assert names - {"index.sqlite-journal"} <= found <= names
        assert seen == sorted(seen)
        assert {*seen} == {0, 1, 2}
