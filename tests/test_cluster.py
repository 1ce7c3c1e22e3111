"""Items of work on a Ray cluster of two simulated machines: equal to one process, also if a machine is lost."""

from __future__ import annotations

import json
import os
import shutil
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import faiss
import numpy as np
import pytest
import torch
from support import searches, sweeps
from support.items import Number, Squares, begun, square
from support.processes import script_environment
from support.refusals import refuses
from support.shards import png, tar

from contml import InputError, cluster, work
from contml.benchmark import Output, benchmark
from contml.data.features import read_features
from contml.evaluation import embed_parts
from contml.experiment import audit_run
from contml.labels import CaptionLabels, VectorLabels
from contml.retrieval import Index, embed_shards, index_structure, load, named_shards
from contml.sweep import sweep
from contml.training import load_weights

pytestmark = pytest.mark.filterwarnings(
    "ignore::FutureWarning", "ignore::ResourceWarning", "ignore::DeprecationWarning"
)


@pytest.fixture(scope="module")
def ray():
    """A cluster of two machines with a processor each."""
    cluster_utils = pytest.importorskip("ray.cluster_utils", reason="Ray is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", script_environment()["PYTHONPATH"])
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        started = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        started.add_node(num_cpus=1)
        yield started
        started.shutdown()


def fails(item):
    if item.value == 1:
        raise InputError("number 1", "is odd")
    if item.value == 2:
        os._exit(3)
    return item.value**2


@pytest.mark.slow
def test_neighbours_and_a_machine_that_is_lost(ray, tmp_path, monkeypatch):
    """Each part is searched once, but for those of the lost machine; a second call reads the result."""
    generator = torch.Generator().manual_seed(0)
    words = [f"word{n}" for n in range(40)]
    chosen = torch.randint(40, (300, 6), generator=generator).tolist()
    captions = CaptionLabels(
        [[" ".join(words[n] for n in row)] for row in chosen],
        {word: torch.randn(8, generator=generator).tolist() for word in words},
    )
    monkeypatch.setattr("contml.distances.cache._ROWS", 20)
    for space in (VectorLabels(torch.randn(200, 3, generator=generator)), captions):
        folder = tmp_path / type(space).__name__
        found = space.nearest(5, cache=folder, cluster=ray.address)
        expected = space.nearest(5)
        assert torch.equal(found.rows, expected.rows)
        assert torch.equal(found.distances, expected.distances)
        assert [path.suffix for path in folder.iterdir()] == [".safetensors"]
        assert torch.equal(space.nearest(5, cache=folder, cluster="nobody:1").rows, expected.rows)

    lost, done = ray.add_node(num_cpus=1), []

    def on_done(item):
        done.append(item)
        if len(done) == 5:
            ray.remove_node(lost, allow_graceful=False)

    items, results = [Number(value) for value in range(24)], Squares(tmp_path / "squares.jsonl")
    work.run(items, partial(square, tmp_path, 0.5), results, cluster=ray.address, on_done=on_done)
    assert [results[item.key] for item in items] == [item.value**2 for item in items]
    assert len(done) == 24
    times = [len(processes) for processes in begun(tmp_path).values()]
    assert len(times) == 24
    assert sum(times) <= 26  # at most what the lost machine did


@pytest.mark.slow
def test_shards_on_a_cluster(ray, tmp_path):
    items, results = [Number(value) for value in range(8)], Squares(tmp_path / "squares.jsonl")
    with pytest.raises(work.ItemsLeftError) as stopped:
        work.run(items, partial(square, tmp_path, 0), results, join=work.Shard(2, 2), cluster=ray.address)
    assert stopped.value.left == 4
    assert sorted(begun(tmp_path)) == [1, 3, 5, 7]
    work.run(items, partial(square, tmp_path, 0), results, join=work.Shard(1, 2), cluster=ray.address)
    assert {number: len(calls) for number, calls in begun(tmp_path).items()} == dict.fromkeys(range(8), 1)


@pytest.mark.slow
def test_items_that_fail(ray, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "_RETRIES", 1)
    results = Squares(tmp_path / "squares.jsonl")
    with refuses("number 1", got="is odd"):
        work.run([Number(0), Number(1)], fails, results, cluster=ray.address)
    with refuses("number 2", got="its process died 2 times"):
        work.run([Number(0), Number(2), Number(3)], fails, results, cluster=ray.address)
    assert results[Number(0).key] == 0
    assert not [*results.folder.glob("*.lease")]


@pytest.mark.slow
def test_a_machine_that_does_not_share_the_folder(ray, tmp_path, monkeypatch):
    """It would train on no data, and the failed trainings would be results."""
    monkeypatch.setattr(Path, "cwd", lambda: tmp_path / "elsewhere")
    with refuses("machine", got="does not share", hint="call the command in a folder that all machines"):
        work.run([Number(0)], fails, Squares(tmp_path / "squares.jsonl"), cluster=ray.address)


@pytest.mark.slow
def test_trainings_of_a_sweep_and_a_machine_that_is_lost(ray, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sweeps.config(tmp_path)
    arguments = ("own.yaml", [f"task.folder={tmp_path}", "task.name=support.sweeps:counted_task"])
    tries, options = ["loss.margin=0.01,0.1,0.3", "optimizer.lr=1e-4..1e-1"], {"trials": 3, "seeds": 2}
    serial = sweep(*arguments, tries, sampler="random", name="serial", **options)
    (tmp_path / "begun").unlink()
    lost, lines = ray.add_node(num_cpus=1), []

    def on_line(line):
        lines.append(line)
        if len(lines) == 2:
            ray.remove_node(lost, allow_graceful=False)

    found = sweep(*arguments, tries, sampler="random", cluster=ray.address, on_line=on_line, **options)
    assert [(trial.number, trial.params, trial.values) for trial in found.trials] == [
        (trial.number, trial.params, trial.values) for trial in serial.trials
    ]
    assert len(lines) == 6
    processes = [int(process) for process in (tmp_path / "begun").read_text().splitlines()]
    assert 6 <= sum(process != os.getpid() for process in processes) <= 7  # at most one was lost
    assert all((found.folder / f"trial_{n:03d}_seed_{seed}.log").exists() for n in range(3) for seed in (3, 4))
    with refuses("--processes", got="missing with --cluster", hint="sampler tpe"):
        sweep(*arguments, tries, sampler="tpe", name="tpe", cluster=ray.address, **options)


@pytest.mark.slow
def test_trainings_of_a_benchmark(ray, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parent / "benchmark/tiny.yaml").read_text()
    (tmp_path / "tiny.yaml").write_text(text)
    rows = []
    for options in ({}, {"cluster": ray.address}):
        results = tmp_path / f"results{len(rows)}"
        benchmark(
            "tiny.yaml",
            ["data=."],
            inputs=tmp_path / "inputs",
            results=results,
            only=["wide", "cosent"],
            on_line=lambda _: None,
            **options,
        )
        lines = Output.of(results, "tiny").trainings.read_text().splitlines()
        rows.append(sorted(({**json.loads(line), "seconds": 0} for line in lines), key=lambda row: row["key"]))
    assert rows[0] == rows[1]
    assert len(rows[0]) == 8


@pytest.mark.slow
def test_the_networks_of_an_audit(ray, tiny_run, tmp_path, monkeypatch):
    """Their features are equal to the bit to those of one process; a machine with other data is refused."""
    monkeypatch.chdir(tmp_path)
    runs = [shutil.copytree(tiny_run, name) for name in ("here", "there")]
    lines = []
    errors = [
        audit_run(Path(run), folds=3, cluster=address, on_line=lines.append).errors
        for run, address in zip(runs, ("", ray.address), strict=True)
    ]
    assert torch.equal(errors[0].scores, errors[1].scores)
    assert sorted(lines[:4])[:3] == sorted(lines[4:])[:3]
    for number in range(3):
        found, expected = (load_weights(Path(run, f"audit/folds_3/fold_{number}.safetensors"))[0] for run in runs)
        assert torch.equal(found["features"], expected["features"])
    assert {path.name for path in Path("there/audit").iterdir()} == {"folds_3"}
    assert {path.suffix for path in Path("there/audit/folds_3").iterdir()} == {".safetensors"}


@pytest.mark.slow
def test_embeddings_and_an_index(ray, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(embed_parts, "_PART", 5)
    for store in (searches.embeddings, searches.index):
        folder = tmp_path / store.__name__
        Index.create(folder / "index", 1).close()
        store(folder, 40, 0.02, ray.address)
        found = begun(folder)
        assert {len(processes) for processes in found.values()} == {1}
        assert os.getpid() not in {processes[0] for processes in found.values()}
        assert len(found) == (40 if store is searches.embeddings else 36)


@pytest.mark.slow
def test_the_codes_of_an_index(ray, tmp_path, monkeypatch):
    """The structure is equal to the bit to that of one process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(index_structure, "PART", 4000)
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    vectors, files = np.random.default_rng(0).standard_normal((11_000, 8), np.float32), []
    for name, address in (("here", ""), ("there", ray.address)):
        with Index.create(name, 8, "ivf_pq") as index:
            index.add([str(row) for row in range(len(vectors))], vectors)
            index.build(cluster=address)
        files += [path.read_bytes() for path in Path(name).glob("structure-*")]
    faiss.omp_set_num_threads(threads)
    assert len(files) == 2
    assert files[0] == files[1]
    assert {path.name for path in tmp_path.iterdir()} == {"here", "there"}


@pytest.mark.slow
def test_a_machine_with_other_images(ray, tmp_path, monkeypatch):
    """It would leave out all images."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(embed_parts, "_fingerprint", lambda split, rows: str(os.getpid()))
    Index.create(tmp_path / "index", 1).close()
    with refuses("images 0 to 3 of images", got="other files on", hint="the same files, at the same paths"):
        searches.index(tmp_path, 4, 0, ray.address)


def test_no_cluster_answers(tmp_path):
    pytest.importorskip("ray", reason="Ray is not installed")
    for address in ("127.0.0.1:1", "nobody.invalid:6379", "127.0.0.1:99999"):
        with refuses("cluster", got="no cluster answers"):
            work.run([Number(0)], fails, Squares(tmp_path / "squares.jsonl"), cluster=address)
    for address in ("127.0.0.1", "remote", ":", "host:port"):
        with refuses("cluster", got=address, allowed="HOST:PORT"):
            work.run([Number(0)], fails, Squares(tmp_path / "squares.jsonl"), cluster=address)


@pytest.mark.parametrize(
    ("printed", "got", "hint"),
    [
        (b"W gcs_client.cc:210", "no cluster answers (refused)", "ray start"),
        (b"InvalidAuthToken", "token", "AUTH_MODE"),
    ],
)
def test_one_line_of_a_cluster_that_does_not_answer(tmp_path, monkeypatch, capfd, printed, got, hint):
    """And not the lines that Ray prints for each attempt to connect."""
    module = pytest.importorskip("ray", reason="Ray is not installed")

    def init(*_, **__):
        os.write(2, printed)
        raise ConnectionError("refused")

    monkeypatch.setattr(module, "init", init)
    with refuses("cluster", got=got, hint=hint):
        work.run([Number(0)], fails, Squares(tmp_path / "squares.jsonl"), cluster="auto")
    os.write(2, b"after")
    assert capfd.readouterr().err == "after"


def test_the_server_of_another_program(tmp_path):
    """Ray would try to connect for minutes."""
    pytest.importorskip("ray", reason="Ray is not installed")
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        with refuses("cluster", got="no cluster answers (another program has this port)"):
            work.run(
                [Number(0)],
                fails,
                Squares(tmp_path / "squares.jsonl"),
                cluster=f"127.0.0.1:{server.server_port}",
            )


def test_ray_is_not_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "find_spec", lambda name: None)
    with refuses("cluster", got="Ray is not installed", hint="contml[cluster]"):
        VectorLabels(torch.arange(4.0)).nearest(1, cache=tmp_path, cluster="local")


def test_a_cluster_needs_a_cache():
    with refuses("cluster", got="local", hint="cache="):
        VectorLabels(torch.arange(4.0)).nearest(1, cluster="local")


@pytest.mark.slow
def test_shards_are_embedded_on_the_machines(ray, tiny_run, tmp_path, monkeypatch):
    """A file for each shard, equal to the bit to that of this process, with the same broken images."""
    monkeypatch.chdir(tmp_path)
    for number in range(3):
        members = {f"{n}.png": png(40 * number + n) for n in range(5)}
        tar(tmp_path / "shards" / f"{number}.tar", members | {"bad.png": b"no image"})
    model, shards = load(tiny_run), named_shards(["shards"])
    here = embed_shards(model, shards, Path("here"))
    there = embed_shards(model, shards, Path("there"), cluster=ray.address)
    assert (there.images, there.broken) == (here.images, here.broken) == (15, dict(here.broken))
    assert [*there.broken] == [f"{number}.tar/bad.png" for number in range(3)]
    for number in range(3):
        found, expected = (read_features(Path(folder, f"{number}.parquet")) for folder in ("there", "here"))
        assert found.names == expected.names
        assert np.array_equal(found.values, expected.values)
