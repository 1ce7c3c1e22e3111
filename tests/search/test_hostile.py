"""An index from a stranger: it is refused in one line, runs nothing, follows no name outside, writes nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from support.refusals import refuses

from contml import InputError
from contml.search import Index, bundle
from contml.search.images import FILE, IndexModel

SEGMENT, REMOVED = "segment-000001.parquet", "removed-000002.parquet"
VECTOR = pa.list_(pa.field("element", pa.float32(), nullable=False), 3)
NAMES = [f"i{n}" for n in range(6)]


@pytest.fixture
def index(tmp_path):
    """An index of six items, of which one was removed."""
    made = Index.create(tmp_path / "stranger" / "index", 3, {"identity": "abc", "run": "/nowhere"})
    metadata = [{"year": 2000 + n, "note": "text", FILE: f"/photos/{n}.png"} for n in range(6)]
    made.add(NAMES, np.eye(6, 3), metadata, [f"source {n}" for n in range(6)])
    made.remove(["i5"])
    (made.path / ".lock").unlink()
    return made.path


def use(folder: Path) -> None:
    """All that reads an index."""
    opened = Index.open(folder)
    ids = opened.ids
    opened.search(np.zeros((1, 3)), 5)
    opened.metadata(ids), opened.embeddings(ids), opened.sources(ids), opened.removed
    IndexModel.of(opened)


def changed(**values):
    """Change values of the manifest."""

    def change(folder):
        path = folder / "manifest.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    return change


def text(content):
    return lambda folder: (folder / "manifest.json").write_bytes(content)


def linked(name, target):
    """Replace a file by a link to a copy of it outside, or to something else."""

    def change(folder):
        path = folder / name
        place = folder.parent.parent / "outside" if target is None else Path(target)
        if target is None:
            path.rename(place)
        else:
            path.unlink()
        path.symlink_to(place)

    return change


def replaced(name, make):
    def change(folder):
        (folder / name).unlink()
        make(folder / name)

    return change


def column(name, array, nullable=True, **options):
    """Write the segment again with another column."""

    def change(folder):
        table = parquet.read_table(folder / SEGMENT)
        values = array(table) if callable(array) else array
        field = pa.field(name, values.type, nullable=nullable)
        place = table.column_names.index(name) if name in table.column_names else None
        table = table.append_column(field, values) if place is None else table.set_column(place, field, values)
        write(folder / SEGMENT, table, **options)

    return change


def write(path, table, **options):
    defaults = {"compression": "none", "use_dictionary": False, "write_page_checksum": True}
    parquet.write_table(table, path, **{**defaults, **options})


def again(**options):
    return lambda folder: write(folder / SEGMENT, parquet.read_table(folder / SEGMENT), **options)


def vectors(values, dtype=np.float32, of=VECTOR):
    return pa.FixedSizeListArray.from_arrays(pa.array(np.asarray(values, dtype).reshape(-1)), type=of)


def removed(*rows):
    def change(folder):
        ids, sources, numbers = zip(*rows, strict=True)
        own, row = pa.field("id", pa.string(), nullable=False), pa.field("row", pa.int64(), nullable=False)
        schema = pa.schema([own, ("source", pa.string()), row])
        write(folder / REMOVED, pa.table([ids, sources, numbers], schema=schema))
        changed(removed={REMOVED: len(rows)})(folder)

    return change


def flipped(name, place):
    def change(folder):
        content = bytearray((folder / name).read_bytes())
        content[int(place * len(content))] ^= 0x55
        (folder / name).write_bytes(content)

    return change


def cut(name, share):
    return lambda folder: (folder / name).write_bytes(
        (folder / name).read_bytes()[: int(share * (folder / name).stat().st_size)]
    )


def page(before, after):
    """Change the headers of pages."""

    def change(folder):
        content = (folder / SEGMENT).read_bytes()
        assert before in content
        (folder / SEGMENT).write_bytes(content.replace(before, after))

    return change


def bomb(folder):
    """Columns of 65,536 times the same 900 kB, in a file of 1 MB: 59 GB."""
    rows = 1 << 16
    note = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["x" * 900_000]))
    ids = pa.array([f"i{n}" for n in range(rows)])
    columns = {"id": ids, "vector": vectors(np.zeros((rows, 3))), "source": pa.nulls(rows, pa.string()), "note": note}
    write(folder / SEGMENT, pa.table(columns), use_dictionary=["note"])
    changed(segments={SEGMENT: rows}, removed={})(folder)


def zipped_bomb(folder):
    """A text of 128 MB in a small file."""
    column("note", pa.array(["x" * (1 << 27), *"abcde"]), compression="zstd")(folder)


NO_TEXTS = pa.StringArray.from_buffers(6, pa.py_buffer(np.arange(7, dtype=np.int32)), pa.py_buffer(b"\xff" * 6))
CASES = {
    "no manifest": lambda folder: (folder / "manifest.json").unlink(),
    "a manifest that is no JSON": text(b"\x80\x04cos\nsystem\n"), "a deep manifest": text(b'{"dim":' + b"[" * 100_000),
    "a large manifest": text(b" " * (5 << 20)), "a manifest that is a link": linked("manifest.json", None),
    "a manifest that is a device": linked("manifest.json", "/dev/zero"),
    "a manifest that is a pipe": replaced("manifest.json", os.mkfifo), "another format": changed(format=2),
    "an unknown key": changed(code="os:system"), "a huge dimension": changed(dim=1 << 40),
    "another dimension": changed(dim=4), "a huge dimension of label vectors": changed(label_dim=1 << 40),
    "a model that is no object": changed(model=[1]),
    "a type of column that is none": changed(columns={"year": "pickle"}),
    "too many columns": changed(columns={f"k{n}": "int" for n in range(300)}),
    "a column of a narrower type": changed(columns={"year": "int", "note": "int", FILE: "text"}),
    "a name outside": changed(segments={"../segment-000001.parquet": 6}),
    "a name of another file": changed(segments={"manifest.json": 6}),
    "a name that ends a line": changed(segments={"segment-000001.parquet\n": 6}),
    "a segment that is missing": changed(segments={SEGMENT: 6, "segment-000009.parquet": 6}),
    "no rows": changed(segments={SEGMENT: 0}), "another number of rows": changed(segments={SEGMENT: 7}),
    "two files of removed ids": changed(removed={REMOVED: 1, "removed-000003.parquet": 1}),
    "a removed file that is missing": changed(removed={"removed-000003.parquet": 1}),
    "a segment for removed ids": changed(removed={SEGMENT: 6}),
    "removed ids for a segment": changed(segments={REMOVED: 1}), "a pending text": changed(pending="many"),
    "a huge number of pending items": changed(pending=10**4000),
    "a segment that is a link outside": linked(SEGMENT, None),
    "a segment that is a device": linked(SEGMENT, "/dev/zero"),
    "a segment that is a pipe": replaced(SEGMENT, os.mkfifo), "removed ids that are a link": linked(REMOVED, None),
    "a segment that is no Parquet": lambda folder: (folder / SEGMENT).write_bytes(b"PAR1" + bytes(100) + b"PAR1"),
    "a segment cut short": cut(SEGMENT, 0.5), "a damaged vector": flipped(SEGMENT, 0.05),
    "a compressed segment": again(compression="snappy"), "a segment with dictionaries": again(use_dictionary=True),
    "a segment with differences": again(column_encoding={"id": "DELTA_BYTE_ARRAY"}),
    "pages with dictionaries of which the footer is silent": page(
        b"\x15\x00\x15\x06\x15\x06", b"\x15\x10\x15\x06\x15\x06"
    ),
    "pages with other numbers of values": page(b"\x15\x0c\x15\x00\x15\x06", b"\x15\x0e\x15\x00\x15\x06"),
    "a segment of several groups": again(row_group_size=2), "a bomb of equal texts": bomb,
    "a bomb of a compressed text": zipped_bomb, "a long text": column("note", pa.array(["x" * (2 << 20), *"abcde"])),
    "vectors of another length": column("vector", vectors(np.zeros((6, 2)), of=pa.list_(VECTOR.value_field, 2)), False),
    "vectors of any length": column("vector", pa.array([[0.0] * 3] * 6, pa.list_(VECTOR.value_field)), False),
    "a missing vector": column("vector", pa.array([None, *[[0.0] * 3] * 5], VECTOR)),
    "a vector that is not finite": column("vector", vectors([[np.nan] * 3] * 6), False),
    "an id twice": column("id", pa.array([*NAMES[:4], "i0", "i5"]), False),
    "an empty id": column("id", pa.array(["", *NAMES[1:]]), False),
    "an id that is no text": column("id", NO_TEXTS, False),
    "no ids": lambda folder: write(folder / SEGMENT, parquet.read_table(folder / SEGMENT).drop_columns(["id"])),
    "no vectors": lambda folder: write(folder / SEGMENT, parquet.read_table(folder / SEGMENT).drop_columns(["vector"])),
    "metadata that are lists": column("note", pa.array([["x"]] * 6)),
    "a removed id of another row": removed(("i5", None, 4)), "a removed id of no row": removed(("i5", None, 6)),
    "a removed id twice": removed(("i5", None, 5), ("i5", None, 5)),
}  # fmt: skip


def snapshot(root):
    """Names, kinds, sizes and times of all that is below a folder."""
    found = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        found[str(path)] = (status.st_mode, status.st_size, status.st_mtime_ns)
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_hostile_index_is_refused(index, tmp_path, case):
    CASES[case](index)
    before = snapshot(tmp_path)
    with pytest.raises(InputError) as error:
        use(index)
    assert error.value.subject == str(index)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 1000
    assert snapshot(tmp_path) == before


def test_what_is_not_hostile_is_read(index):
    use(index)
    assert len(CASES) >= 40


@pytest.mark.slow
@pytest.mark.parametrize("case", ["a bomb of equal texts", "a bomb of a compressed text", "a huge dimension"])
def test_the_memory_of_a_bomb_is_limited(index, tmp_path, case):
    healthy = shutil.copytree(index, tmp_path / "healthy")
    CASES[case](index)
    process = subprocess.run(
        [sys.executable, "-c", MEASURE, Path(__file__).parents[1], healthy, index], capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    line, kilobytes = process.stdout.splitlines()
    assert str(index) in line
    assert int(kilobytes) < 50_000


#: Reads a healthy index and a hostile one; prints by how many kB the second needs more memory.
MEASURE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from search.test_hostile import use
def most():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0])
use(Path(sys.argv[2]))
before = most()
try:
    use(Path(sys.argv[3]))
except ValueError as error:
    print(error)
print(most() - before)
"""


def test_metadata_of_any_type_are_texts_where_they_are_used(index):
    """The path of an image may be a number, or no path at all."""
    column(FILE, pa.array(range(6)))(index)
    changed(columns={"year": "int", "note": "text", FILE: "int"})(index)
    from contml.search.inputs import NamedImage
    from contml.search.results import SearchHit, is_same_image

    for value in (Index.open(index).metadata(["i3"])[0][FILE], "\0", "x" * 5000, "/dev/zero"):
        hit = SearchHit(1, "i3", 0.5, {}, {}, {FILE: value})
        assert not is_same_image(NamedImage("q", Path(__file__)), hit, 1.0)


def test_numbers_that_are_not_finite_are_missing(index):
    column("year", pa.array([float("nan"), float("inf"), *range(4)], pa.float64()))(index)
    changed(columns={"year": "float", "note": "text", FILE: "text"})(index)
    assert ["year" in entry for entry in Index.open(index).metadata(NAMES[:3])] == [False, False, True]


@pytest.mark.parametrize("name", [".lock", "manifest.json", "segment-000003.parquet"])
def test_a_change_follows_no_link(index, tmp_path, name):
    """A stranger's link leads to a file of the user, which stays as it is."""
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (index / name).unlink(missing_ok=True)
    (index / name).symlink_to(mine)
    with suppress(InputError):
        Index.open(index).add(["new"], np.zeros((1, 3)))
    assert mine.read_text() == "mine"
    assert not (index / name).is_symlink() or name != "segment-000003.parquet"


def test_a_compaction_of_hostile_metadata_is_refused(index):
    changed(columns={"year": "int", "note": "int", FILE: "text"})(index)
    before = (index / SEGMENT).read_bytes()
    with pytest.raises(InputError):
        Index.open(index).compact()
    assert (index / SEGMENT).read_bytes() == before


@pytest.mark.parametrize("segments", [{SEGMENT: 65536}, {f"segment-{n:06d}.parquet": 65536 for n in range(50_000)}])
def test_vectors_get_no_more_memory_than_the_files_can_hold(index, segments):
    changed(segments=segments, dim=1 << 14)(index)
    with pytest.raises(InputError, match="damaged"):
        Index.open(index).search(np.zeros((1, 1 << 14)), 5)


def test_a_model_that_an_index_names_is_looked_at_before_its_folder_is_walked(index):
    with refuses("/proc/self/root", "neither a run folder nor a bundle"):
        bundle.read(Path("/proc/self/root"))
