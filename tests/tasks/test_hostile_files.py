"""Files that are small, and large or slow when they are read: they are refused, and cost little."""

import importlib
import io
import pkgutil
import re
import struct
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
from fuzz.images import bomb
from PIL import Image
from scipy.io import savemat
from scipy.sparse import csc_matrix
from support.paths import ROOT
from support.refusals import refused, refuses

import contml.tasks
from contml._support.arrays import read_arrays
from contml.data.text_files import read_json
from contml.data.values import whole_number
from contml.tasks._readers import mat
from contml.tasks._readers.label_maps import check_shape, read_image_map, to_classes
from contml.tasks._readers.mat import read_mat
from contml.tasks.table.cells import looks_like_maps, number
from contml.tasks.table.columns import guess_cells

#: The pieces of which long texts are made.
PIECES = ["1", "1.", ",111", "lat", "lon", "_", "_id", "_class", "k", " ", ";", "2026-11-11", "(column 1", "[", "e"]
PIECES += ["img/", "map ", "place "]
LENGTH = 40_000


def patterns():
    """Every regular expression at the top level of a module of tasks."""
    for module in pkgutil.walk_packages(contml.tasks.__path__, "contml.tasks."):
        for name, value in vars(importlib.import_module(module.name)).items():
            if isinstance(value, re.Pattern):
                yield pytest.param(value, id=f"{module.name.removeprefix('contml.tasks.')}.{name}")


@pytest.mark.parametrize("pattern", list(patterns()))
def test_patterns_take_linear_time(pattern):
    started = time.process_time()
    for piece in PIECES:
        text = piece * (LENGTH // len(piece))
        for long in (text, f"{text}!", f"-{text}x", f"id_{text}\n"):
            pattern.fullmatch(long)
            pattern.match(long)
    assert time.process_time() - started < 3


def test_a_long_cell_takes_no_time():
    started = time.process_time()
    assert number("1" * LENGTH + "x", comma=False) is None
    assert number("1" * LENGTH + "x", comma=True) is None
    guess_cells("lat" * (LENGTH // 3), ["1;" * (LENGTH // 2), "a"], comma=False)
    assert time.process_time() - started < 3


@pytest.mark.parametrize(("text", "found"), [("7", 7), ("0", 0), ("-1", None), ("²", None), ("1" * 5000, None)])
def test_whole_numbers(text, found):
    assert whole_number(text) == found


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": ' + "1" * 5000 + "}", "\ufeff\0"])
def test_json_that_the_parser_gives_up_on(tmp_path, text):
    (tmp_path / "a.json").write_text(text)
    refused(lambda: read_json(tmp_path / "a.json"), str(tmp_path / "a.json"))


# images


@pytest.mark.parametrize("mode", [0, 2])
def test_an_image_of_too_many_pixels(tmp_path, mode):
    path = tmp_path / "a.png"
    path.write_bytes(bomb(10_000, mode))
    assert path.stat().st_size < 400_000
    refused(lambda: read_image_map(path), str(path), "100000000 pixels")
    assert not looks_like_maps([str(path)])
    check_shape(path, np.zeros((3, 4), np.uint8), path)  # images.broken decides about the image


def test_class_numbers_of_a_map_of_32_bits(tmp_path):
    maps = np.array([[[0, 1], [2, 2_000_000_000]]])
    with refuses("a.tif", "class number 2000000000", "below 65,536", hint="ignore=2000000000"):
        to_classes(["a.tif"], maps, None, None, None)


@pytest.mark.parametrize("mode", ["L", "P", "I;16", "LA", "RGB", "RGBA"])
def test_one_map_in_every_mode(tmp_path, mode):
    values = np.arange(12, dtype=np.uint8).reshape(3, 4)
    picture = Image.fromarray(values)
    if mode == "I;16":
        values = values.astype(np.uint16) * 5957  # up to 65,527
        picture = Image.fromarray(values)
    elif mode == "P":
        picture.putpalette([255 - k // 3 for k in range(768)])
    else:
        picture = picture.convert(mode)
    picture.save(tmp_path / "a.png")
    assert (read_image_map(tmp_path / "a.png") == values).all()


# MATLAB files and arrays


def matlab_file(path, *variables):
    """A MATLAB 5 file of these elements."""
    path.write_bytes(b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM" + b"".join(variables))
    return path


def element(kind, data):
    return struct.pack("<II", kind, len(data)) + data + bytes(-len(data) % 8)


def matrix(kind, dims, data, name=b"joints"):
    head = element(6, struct.pack("<II", kind, 0)) + element(5, struct.pack(f"<{len(dims)}i", *dims)) + element(1, name)
    return element(14, head + data)


def test_a_matlab_file_that_unpacks_to_too_much(tmp_path, monkeypatch):
    monkeypatch.setattr(mat, "MOST_BYTES", 1 << 20)
    savemat(tmp_path / "a.mat", {"joints": np.zeros((2000, 1000), np.uint8)}, do_compression=True)
    assert (tmp_path / "a.mat").stat().st_size < 20_000
    refused(lambda: read_mat(tmp_path / "a.mat"), str(tmp_path / "a.mat"), "unpacks to more than 1 MB")


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        (matrix(1, (1, 1_000_000), element(14, b"") * 1_000_000), "MB of memory"),
        (matrix(1, (30_000, 30_000), b""), "MB of memory"),
        (matrix(4, (30_000, 30_000), element(4, b"")), "MB of memory"),
        (matrix(6, (1, -1), element(9, bytes(8))), "wrong dimensions"),
        (matrix(6, (1, 1), element(99, bytes(8))), "an element of kind 99"),
        (matrix(2, (1, 1), element(5, bytes(4)) + element(1, b"xxxx")), "wrong length"),
        (matrix(6, (1, 1), b""), "cut short"),
        (matrix(6, (1, 1), element(9, bytes(8)))[:-4], "cut short"),
        (matrix(1, (1, 1), matrix(5, (1, 1), b"")), "a sparse matrix"),
    ],
)
def test_a_matlab_file_that_scipy_should_not_read(tmp_path, monkeypatch, variable, words):
    monkeypatch.setattr(mat, "MOST_MEMORY", 100 << 20)
    refused(lambda: read_mat(matlab_file(tmp_path / "a.mat", variable)), str(tmp_path / "a.mat"), words)


def test_nested_cells(tmp_path):
    value = matrix(6, (1, 1), element(9, struct.pack("<d", 3)), b"")
    for level in range(150):
        if level == 50:
            fine = matlab_file(tmp_path / "fine.mat", matrix(1, (1, 1), value))
        value = matrix(1, (1, 1), value, b"")
    assert list(read_mat(fine)) == ["joints"]
    with refuses(str(tmp_path / "deep.mat"), "nested more than 100 levels"):
        read_mat(matlab_file(tmp_path / "deep.mat", value))


def test_variables_that_no_reader_wants_are_left_out(tmp_path):
    savemat(tmp_path / "a.mat", {"joints": np.eye(3), "sparse": csc_matrix(np.eye(3))})
    assert list(read_mat(tmp_path / "a.mat")) == ["joints"]


@pytest.mark.slow
def test_damaged_matlab_files_do_not_end_the_process(tmp_path):
    """scipy itself crashes on some of these: they are read in another process."""
    savemat(
        tmp_path / "a.mat", {"a": np.array([[(1, "x", np.eye(2))]], dtype=[(n, object) for n in ("x", "name", "m")])}
    )
    code = """
import random, sys
from pathlib import Path
from contml import InputError
from contml.tasks._readers.mat import read_mat
path, valid = Path(sys.argv[1]), Path(sys.argv[1]).read_bytes()
for seed in range(3000):
    r, content = random.Random(seed), bytearray(valid)
    for _ in range(r.randint(1, 4)):
        content[r.randrange(len(valid))] = r.choice((0, 1, 14, 15, 255, r.randrange(256)))
    path.write_bytes(content)
    try:
        read_mat(path)
    except InputError:
        pass
"""
    command = [sys.executable, "-W", "ignore", "-c", code, str(tmp_path / "a.mat")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr[-500:]


def packed_array(path, shape, data=b"", kind="<f8"):
    """A .npz file with an array that declares a shape."""
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {"descr": kind, "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("joints.npy", content.getvalue() + data)
    return path


def test_arrays_that_unpack_to_too_much(tmp_path):
    path = packed_array(tmp_path / "a.npz", (1000, 1000), bytes(8_000_000))
    assert read_arrays(path, 1 << 24)["joints"].shape == (1000, 1000)
    assert path.stat().st_size < 20_000
    refused(lambda: read_arrays(path, 1 << 20), str(path), "unpacks to 7 MB", "1 MB")


@pytest.mark.parametrize("shape", [(10**12,), (10**6, 10**6), (2**62, 4), (-1, 5)])
def test_an_array_that_declares_more_than_it_holds(tmp_path, shape):
    path = packed_array(tmp_path / "a.npz", shape, bytes(80))
    refused(lambda: read_arrays(path, 1 << 24), str(path), "not a readable file of arrays")


def test_arrays_of_python_objects_are_refused(tmp_path):
    np.savez(tmp_path / "a.npz", joints=np.array([{"a": 1}], dtype=object))
    refused(lambda: read_arrays(tmp_path / "a.npz", 1 << 24), str(tmp_path / "a.npz"), "Python objects")


def test_names_that_no_file_can_have(tmp_path):
    from contml.tasks._readers.folders import DiskFiles

    for name in ("a\0b/c.png", "\ud800/c.png", "x" * 5000 + "/c.png"):
        assert not DiskFiles().has(Path(tmp_path) / name)
