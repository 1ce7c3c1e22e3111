"""The Triton kernel equals numba and POT: in Triton's interpreter, and on a GPU; it compiles without spills."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from support.paths import ROOT

import contml.transport
from contml.labels import CaptionLabels
from contml.transport import caption_distances, set_distance_cpu

triton = pytest.importorskip("triton", reason="Triton is not installed: torch brings it for CUDA and ROCm on Linux")


@pytest.mark.slow
def test_in_the_interpreter():
    # In a process of its own: whether Triton interprets is decided when it is imported.
    cases = ROOT / "tests" / "support" / "interpreted_transport.py"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(cases)]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    run = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-1000:]
    assert "skipped" not in run.stdout


@pytest.mark.slow
@pytest.mark.parametrize("tile", [8, 16, 32])
def test_compiles_for_hopper_without_spills(tile, tmp_path, monkeypatch):
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from contml.transport import solver_gpu as solver

    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    if not (tools / "ptxas").exists() or not (tools / "cuobjdump").exists():
        pytest.skip(f"no ptxas or no cuobjdump in {tools}")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    types = {"words": "*i64", "counts": "*i32", "places": "*i64", "starts": "*i64", "totals": "*i32", "keys": "*i64"}
    types |= {"costs": "*fp32", "rows": "*i64", "cols": "*i64", "out": "*fp64", "width": "i32", "stride": "i32"}
    types |= {"offset": "i32", "tile": "constexpr", "same": "constexpr"}
    source = ASTSource(solver._solve_pair, types, constexprs={"tile": tile, "same": True})
    options = {"num_warps": solver._WARPS[tile], "enable_fp_fusion": False}
    built = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    path = tmp_path / "kernel.cubin"
    path.write_bytes(built.asm["cubin"])
    usage = subprocess.run([tools / "cuobjdump", "-res-usage", path], capture_output=True, text=True, check=True).stdout
    registers, stack = (int(re.search(rf"{name}:(\d+)", usage).group(1)) for name in ("REG", "STACK"))
    print(f"tile {tile}: {registers} registers, {stack} bytes of stack")
    assert stack == 0
    assert registers < 200


def test_the_cpu_needs_no_triton(monkeypatch):
    # An import of it fails, also where an earlier test imported it: the package then holds it as an attribute.
    monkeypatch.setitem(sys.modules, "contml.transport.set_distance_gpu", None)
    monkeypatch.delattr(contml.transport, "set_distance_gpu", raising=False)
    for device in ("cuda", "cpu"):
        assert caption_distances._solver(torch.device(device)) is set_distance_cpu
    code = "import sys, contml.labels; assert 'contml.transport.solver_gpu' not in sys.modules"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_a_kernel_that_does_not_work_is_told_and_the_cpu_computes(monkeypatch):
    from contml.transport import set_distance_gpu as gpu

    def broken(*_):
        raise RuntimeError("Failed to find C compiler.\nPlease install one")

    monkeypatch.setattr(gpu, "word_movers_distances", broken)
    gpu.works.cache_clear()
    with pytest.warns(UserWarning, match="computed on the CPU: the kernel does not work on cuda .*C compiler. Please"):
        assert not gpu.works(torch.device("cuda"))
    monkeypatch.setattr(gpu, "word_movers_distances", lambda *_: torch.tensor([[2.0]]))
    gpu.works.cache_clear()
    with pytest.warns(UserWarning, match=r"it returns 2.0 instead of 1.5"):
        assert not gpu.works(torch.device("cuda"))
    gpu.works.cache_clear()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu():
    from support import interpreted_transport as cases

    from contml.transport import set_distance_gpu as gpu

    device = torch.device("cuda")
    assert gpu.works(device)
    random = np.random.default_rng(0)
    for kind in ("tied", "metric", "offset"):
        for most in (1, 4, 8, 16, 32):
            cases.check(random, kind, 60, 50, most, device)
    images = [cases.some_captions(random, 5, 12, 200) for _ in range(300)]
    images[7].append(random.permutation(200)[:40].tolist())
    text = [[" ".join(f"w{word}" for word in caption) for caption in image] for image in images]
    vectors = {f"w{word}": vector for word, vector in enumerate(random.normal(size=(200, 50)))}
    space = CaptionLabels(text, vectors)
    found = space.to(device).pairwise()
    assert found.device.type == "cuda"
    torch.testing.assert_close(found.cpu(), space.pairwise(), rtol=2e-7, atol=0)
    assert torch.equal(found, found.T)
