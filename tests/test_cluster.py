"""Items of work on a Ray cluster of two simulated machines: equal to one process, also if a machine is lost."""

from __future__ import annotations

import os
from functools import partial

import pytest
import torch
from support.items import Number, Squares, begun, square
from support.processes import script_environment
from support.refusals import refuses

from contml import InputError, cluster
from contml.labels import CaptionLabels, VectorLabels

pytestmark = pytest.mark.filterwarnings(
    "ignore::FutureWarning", "ignore::ResourceWarning", "ignore::DeprecationWarning"
)


def machines():
    """A cluster of two machines with a processor each."""
    cluster_utils = pytest.importorskip("ray.cluster_utils", reason="Ray is not installed")
    return cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})


@pytest.fixture
def ray(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", script_environment()["PYTHONPATH"])
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    started = machines()
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
    cluster.run(ray.address, items, partial(square, tmp_path, 0.5), results, on_done=on_done)
    assert [results[item.key] for item in items] == [item.value**2 for item in items]
    assert len(done) == 24
    times = [len(processes) for processes in begun(tmp_path).values()]
    assert len(times) == 24
    assert sum(times) <= 26  # at most what the lost machine did


@pytest.mark.slow
def test_items_that_fail(ray, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "_RETRIES", 1)
    results = Squares(tmp_path / "squares.jsonl")
    with refuses("number 1", got="is odd"):
        cluster.run(ray.address, [Number(0), Number(1)], fails, results)
    with refuses("number 2", got="its process died 2 times"):
        cluster.run(ray.address, [Number(0), Number(2), Number(3)], fails, results)
    assert results[Number(0).key] == 0
    assert not [*results.folder.glob("*.lease")]


def test_no_cluster_answers(tmp_path):
    pytest.importorskip("ray", reason="Ray is not installed")
    for address in ("127.0.0.1:1", "nobody.invalid:6379", "127.0.0.1:99999"):
        with refuses("cluster", got="no cluster answers"):
            cluster.run(address, [Number(0)], fails, Squares(tmp_path / "squares.jsonl"))
    for address in ("127.0.0.1", "remote", ":", "host:port"):
        with refuses("cluster", got=address, allowed="HOST:PORT"):
            cluster.run(address, [Number(0)], fails, Squares(tmp_path / "squares.jsonl"))


def test_ray_is_not_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "find_spec", lambda name: None)
    with refuses("cluster", got="Ray is not installed", hint="contml[cluster]"):
        VectorLabels(torch.arange(4.0)).nearest(1, cache=tmp_path, cluster="local")


def test_a_cluster_needs_a_cache():
    with refuses("cluster", got="local", hint="cache="):
        VectorLabels(torch.arange(4.0)).nearest(1, cluster="local")
