"""Items of work on a Ray cluster of two simulated machines: equal to one process; a machine is lost."""

import sys
from functools import partial

import pytest
import torch
from support.items import Number, Squares, fails, square
from support.processes import script_environment
from support.refusals import refuses

from contml import work
from contml.labels import CaptionLabels, NumberLabels, VectorLabels, nearest

IGNORED = "ignore::FutureWarning", "ignore::ResourceWarning", "ignore::DeprecationWarning"
pytestmark = pytest.mark.filterwarnings(*IGNORED)


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
        sys.modules["ray"].shutdown()
        started.shutdown()


def test_no_cluster_answers(tmp_path):
    pytest.importorskip("ray", reason="Ray is not installed")
    for address in ("127.0.0.1:1", "nobody.invalid:6379", "127.0.0.1:99999"):
        with refuses("cluster", got="no cluster answers"):
            work.run([Number(0)], fails, Squares(tmp_path / "squares.jsonl"), cluster=address)
    for address in ("127.0.0.1", "remote", ":", "host:port"):
        with refuses("cluster", got=address, allowed="HOST:PORT"):
            work.run([Number(0)], fails, Squares(tmp_path / "squares.jsonl"), cluster=address)


def test_ray_is_not_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(work, "find_spec", lambda name: None)
    with refuses("cluster", got="Ray is not installed", hint="contml[cluster]"):
        nearest(NumberLabels(torch.arange(4.0)), 1, cache=tmp_path, cluster="local")


def test_a_cluster_needs_a_cache():
    with refuses("cluster", got="local", hint="cache="):
        nearest(NumberLabels(torch.arange(4.0)), 1, cluster="local")


def test_a_machine_that_does_not_share_the_folder(tmp_path, monkeypatch):
    """It would train on no data, and the failed trainings would be results."""
    monkeypatch.setattr(work, "_work", (partial(square, tmp_path, 0), tmp_path / "elsewhere" / "stop"))
    key, failed = work._do(Number(0), None)
    assert key == Number(0).key
    with refuses("machine", got="does not share", hint="call the command in a folder that all machines"):
        raise failed


@pytest.mark.slow
def test_neighbours(ray, tmp_path, monkeypatch):
    """Each part is searched once; a second call reads the result."""
    generator = torch.Generator().manual_seed(0)
    words = [f"word{n}" for n in range(40)]
    chosen = torch.randint(40, (300, 6), generator=generator).tolist()
    vectors = {word: torch.randn(8, generator=generator).tolist() for word in words}
    captions = CaptionLabels([[" ".join(words[n] for n in row)] for row in chosen], vectors)
    monkeypatch.setattr("contml.labels.neighbours._ROWS", 20)
    for space in (VectorLabels(torch.randn(200, 3, generator=generator)), captions):
        folder = tmp_path / type(space).__name__
        found = nearest(space, 5, cache=folder, cluster=ray.address)
        expected = space.nearest(5)
        assert torch.equal(found.rows, expected.rows)
        assert torch.equal(found.distances, expected.distances)
        assert len([*folder.rglob("*.safetensors")]) == len(space) // 20
        assert torch.equal(nearest(space, 5, cache=folder, cluster="nobody:1").rows, expected.rows)


@pytest.mark.slow
def test_a_cluster_of_one_processor_is_no_cluster(ray, tmp_path):
    with refuses("cluster", got="1 item at a time"):
        work.run([Number(0)], fails, Squares(tmp_path / "squares.jsonl"), processes=1, cluster=ray.address)


@pytest.mark.slow
def test_a_machine_that_is_lost(ray, tmp_path):
    """One line; a later call goes on. Ray keeps the lost pool until this process ends, so this test is the last."""
    lost, done = ray.add_node(num_cpus=1), []

    def on_done(item):
        done.append(item)
        if len(done) == 5:
            ray.remove_node(lost, allow_graceful=False)

    items, results = [Number(value) for value in range(24)], Squares(tmp_path / "squares.jsonl")
    with refuses("number 1", got="is odd"):
        work.run([Number(0), Number(1)], fails, results, cluster=ray.address)
    assert results[Number(0).key] == 0
    with refuses("cluster", "a process or a machine was lost", hint="the same command continues"):
        work.run(items, partial(square, tmp_path, 0.5), results, cluster=ray.address, on_done=on_done)
    assert 5 <= len(done) == len(results) - 1 < 23
    work.run(items, partial(square, tmp_path, 0), results)
    assert [results[item.key] for item in items] == [item.value**2 for item in items]
