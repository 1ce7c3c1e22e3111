"""A matrix of label distances as labels: in memory, in a file, of a batch; what is checked, and what rounding is."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from support.refusals import refuses

from contml.labels import MatrixLabels, NearestLabels, NumberLabels, ThresholdLabels, VectorLabels, nearest
from contml.losses.inputs import as_labels


@pytest.fixture
def saved(tmp_path):
    def save(matrix, name="d.npy"):
        np.save(tmp_path / name, matrix)
        return tmp_path / name

    return save


def distances(n=9, dtype=np.float32):
    values = np.random.default_rng(0).normal(size=(n, 2))
    return np.square(values[:, None] - values[None]).sum(2).astype(dtype)


# ---------------------------------------------------------------------------------------------------------------------
# a data set


def of_file(matrix, saved):
    return MatrixLabels(saved(matrix))


#: Ways to give a square matrix.
WAYS = {
    "file": of_file,
    "file, as text": lambda matrix, saved: MatrixLabels(str(saved(matrix))),
    "array": lambda matrix, saved: MatrixLabels(matrix),
    "read-only array": lambda matrix, saved: MatrixLabels(np.load(saved(matrix), mmap_mode="r")),
    "tensor": lambda matrix, saved: MatrixLabels(torch.from_numpy(np.array(matrix, dtype=np.float64))),
    "lists": lambda matrix, saved: MatrixLabels(matrix.tolist()),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f4", "int32", "uint8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_matrix_comes_back(saved, way, dtype, order):
    matrix = np.asarray(distances(), dtype=dtype, order=order)
    space = WAYS[way](matrix, saved)
    expected = torch.from_numpy(matrix.astype(np.float32))
    assert torch.equal(space.pairwise(), expected)
    assert (len(space), space.unit, space.kind) == (9, "label distance", "graded")
    rows, cols = [4, 1, 1], [8, 0]
    assert torch.equal(space.pairwise(rows, cols), expected[rows][:, cols])
    assert torch.equal(space.pairwise(rows), expected[rows])
    assert torch.equal(space.pairwise(None, cols), expected[:, cols])
    part = space[[5, 3, 7]][[2, 0]]
    assert part.rows.tolist() == [7, 5]
    assert part.root is space
    assert torch.equal(part.pairwise(), expected[[7, 5]][:, [7, 5]])
    assert torch.equal(part.pairwise([1]), expected[[5]][:, [7, 5]])
    assert torch.equal(part.pairwise(None, [1]), expected[[7, 5]][:, [5]])
    assert torch.equal(part.as_root()[[1]].pairwise(), torch.zeros(1, 1))
    assert torch.equal(space.distances(part, space).float(), expected[[7, 5]])
    assert torch.equal(space.distances(space, part).float(), expected[:, [7, 5]])
    assert torch.equal(space[list(range(8, -1, -1))].pairwise(), expected.flip(0, 1))
    assert space.pairwise().dtype == space[[1, 2]].pairwise().dtype == torch.float32
    assert space[[2, 1]].to("cpu").pairwise()[0, 1] == expected[2, 1]


@pytest.mark.parametrize("way", WAYS)
def test_a_matrix_behaves_as_the_labels_it_was_made_of(saved, way):
    source = VectorLabels(torch.randn(30, 2, generator=torch.Generator().manual_seed(0)))
    space = WAYS[way](source.pairwise().numpy(), saved)
    assert torch.equal(nearest(space, 5).rows, nearest(source, 5).rows)
    assert torch.equal(
        nearest(space, 5, [7, 3], among=range(20)).rows, nearest(source, 5, [7, 3], among=range(20)).rows
    )
    assert torch.equal(space[[3, 1]].pairwise([1]), source.pairwise([1], [3, 1]))
    assert torch.equal(NearestLabels(space, 3)[[4, 9, 2]].pairwise(), NearestLabels(source, 3)[[4, 9, 2]].pairwise())
    assert torch.equal(ThresholdLabels(space, 1)[[4, 9]].pairwise(), ThresholdLabels(source, 1)[[4, 9]].pairwise())
    for other in (
        pickle.loads(pickle.dumps(space)),
        copy.deepcopy(space),
        pickle.loads(pickle.dumps(space[range(30)])),
    ):
        assert torch.equal(other.pairwise(), space.pairwise())
        assert other.fingerprint() == space.fingerprint()


def test_the_matrix_stays_on_disk(saved):
    path = saved(distances(200))
    space = MatrixLabels(path)
    for part in (space, space[range(100)], space.to("cpu"), pickle.loads(pickle.dumps(space))):
        array = part._matrix.array
        assert isinstance(array, np.memmap)
        assert array.mode == "r"
    assert len(pickle.dumps(space)) < 5000
    block = space.pairwise([0], [1])
    before = block.clone()
    block += 1  # a block is a copy
    assert torch.equal(space.pairwise([0], [1]), before)


def test_a_part_on_another_device_leaves_the_matrix_where_it_is():
    space = MatrixLabels(distances())
    part = space[[2, 1]].to("meta")
    assert (part.device.type, part._matrix.device.type, part.root) == ("meta", "cpu", space)
    moved = space.to("meta")
    assert moved.device == moved._matrix.device == torch.device("meta")


def test_a_matrix_of_0_and_1():
    matrix = np.array([[0, 1, 1], [1, 0, 0], [1, 0, 0]])
    space = MatrixLabels(matrix, kind="binary", unit="another judge")
    assert (space.kind, space[[0, 1]].kind, space.unit) == ("binary", "binary", "another judge")
    for bad in (0.5, 2, 1.5):
        with refuses("label distances", got=f"up to {max(bad, 1):g}", allowed="0 or 1"):
            MatrixLabels(np.array([[0, bad, 1], [bad, 0, 0], [1, 0, 0]]), kind="binary")
    with refuses("kind", got="classes", allowed="graded, binary"):
        MatrixLabels(matrix, kind="classes")


def test_frames_of_pandas():
    pandas = pytest.importorskip("pandas")
    d = distances()
    names = list("abcdefghi")
    assert torch.equal(MatrixLabels(pandas.DataFrame(d, names, names)).pairwise(), torch.from_numpy(d))
    with refuses("label distance", got="row 0 is 'i', column 0 is 'a'", allowed="one order"):
        MatrixLabels(pandas.DataFrame(d, names, names).loc[names[::-1]])


# ---------------------------------------------------------------------------------------------------------------------
# what is no matrix of label distances


def test_files_that_are_not_a_matrix(saved, tmp_path):
    missing = tmp_path / "none.npy"
    with refuses(str(missing), got="no such file", hint=".npy"):
        MatrixLabels(missing)
    whole = saved(distances())
    for name, content in (
        ("truncated.npy", whole.read_bytes()[:-40]),
        ("truncated in its head.npy", whole.read_bytes()[:40]),
        ("empty.npy", b""),
        ("text.npy", b"1 2 3\n4 5 6\n"),
        ("pickle.npy", pickle.dumps(distances())),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        with refuses(str(path), got="not a readable .npy matrix ("):
            MatrixLabels(path)
    with refuses(str(tmp_path), got="a folder"):
        MatrixLabels(tmp_path)
    with refuses("anchors", allowed="None for the matrix in a file"):
        MatrixLabels(whole, torch.arange(9))


def test_pickled_objects_are_never_loaded(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("unpickled",))

    array = np.empty((2, 2), dtype=object)
    array[:] = 0
    array[0, 1] = Bomb()
    np.save(tmp_path / "bomb.npy", array, allow_pickle=True)
    with refuses("bomb.npy", got="not a readable .npy matrix ("):
        MatrixLabels(tmp_path / "bomb.npy")


def test_an_archive_of_arrays_is_refused(tmp_path):
    np.savez(tmp_path / "d.npz", d=distances())
    with refuses("d.npz"):
        MatrixLabels(tmp_path / "d.npz")


@pytest.mark.parametrize(
    ("matrix", "got"),
    [
        (np.zeros((3, 4)), "float64 [3, 4]"),
        (np.zeros(9), "float64 [9]"),
        (np.zeros((3, 3, 3)), "float64 [3, 3, 3]"),
        (np.zeros((0, 0)), "float64 [0, 0]"),
        (np.zeros((3, 3), dtype=complex), "complex128 [3, 3]"),
        (np.zeros((3, 3), dtype="U3"), "<U3 [3, 3]"),
        (np.ones((3, 3)), "diagonal"),
        (np.diag([0, 0, np.nan]), "diagonal"),
        (np.diag([0, -1, 0]), "diagonal"),
        (np.array([[0, 1], [2, 0.0]]), "entries [0, 1] and [1, 0]"),
        (np.array([[0, np.nan], [2, 0.0]]), "entries [0, 1] and [1, 0]"),
    ],
)
def test_files_of_numbers_that_are_not_label_distances(saved, matrix, got):
    path = saved(matrix)
    with refuses(str(path), got=got):
        MatrixLabels(path)


@pytest.mark.parametrize(
    ("matrix", "fields"),
    [
        (np.zeros((3, 4)), ("label distances", "[3, 4]", "give anchors")),
        (np.zeros(9), ("label distances", "[9]")),
        (np.zeros((3, 3, 3)), ("label distances", "[3, 3, 3]")),
        (np.zeros((0, 0)), ("label distances", "[0, 0]")),
        (np.zeros((3, 3), dtype=complex), ("label distances", "complex128")),
        (torch.zeros(3, 3, dtype=torch.complex64), ("label distances", "torch.complex64")),
        (torch.eye(3).to_sparse(), ("label distances", "a sparse tensor")),
        ([[0, 1], [1]], ("label distances of item 1", "a list of 1")),
        ([[0, None], [1, 0]], ("label distances of item 0", "missing (None)")),
        ([["0", "1"], ["1", "0"]], ("label distances", "text")),
        (None, ("label distances", "None")),
        (3, ("label distances", "[]")),
        (np.ones((3, 3)), ("label distances", "1 in row 0", "0", "1 - similarity")),
        (np.eye(3), ("label distances", "1 in row 0", "0", "1 - similarity")),
        (torch.eye(3) * 0.5 + 0.5, ("label distances", "1 in row 0", "0", "1 - similarity")),
        (torch.eye(3) == 1, ("label distances", "1 in row 0", "0", "1 - similarity")),
        (torch.tensor([[1.0, -0.3], [-0.3, 1.0]]), ("label distance", "-0.3", ">= 0", "1 - similarity")),
        (torch.tensor([[0.0, -0.3], [-0.3, 0.0]]), ("label distance", "-0.3", ">= 0", "1 - similarity")),
        (torch.tensor([[0.0, torch.nan], [0.0, 0.0]]), ("label distance", "nan in row 0, column 1", "", "NaN")),
        (torch.tensor([[0.0, torch.inf], [0.0, 0.0]]), ("label distance", "inf in row 0, column 1")),
        (torch.tensor([[torch.nan, 1.0], [1.0, 0.0]]), ("label distance", "nan in row 0, column 0")),
        (torch.tensor([[0.5, 1.0], [1.0, 0.5]]), ("label distances", "0.5 in row 0", "0", "row a is that of item a")),
        (np.triu(distances()), ("label distances", "entries [0, 1] and [1, 0]", "symmetric")),
    ],
)
def test_numbers_in_memory_that_are_not_label_distances(matrix, fields):
    with refuses(*fields):
        MatrixLabels(matrix)


def test_a_large_matrix_is_checked_in_a_sample_of_rows(saved):
    matrix = distances(100)
    matrix[50:, :50] += 1
    with refuses("d.npy", got="entries [0, 50] and [50, 0]"):
        MatrixLabels(saved(matrix))
    with refuses("label distances", got="entries [0, 50] and [50, 0]"):
        MatrixLabels(matrix)
    assert MatrixLabels(torch.from_numpy(matrix)).pairwise()[50, 0] == matrix[50, 0]  # nearest items are not symmetric
    # Rounding in single precision does not count as asymmetry.
    MatrixLabels(saved(distances(100) * (1 + 1e-7 * np.random.default_rng(0).normal(size=(100, 100)))))


@pytest.mark.parametrize("bad", [np.nan, -1.0])
def test_a_bad_block_of_a_file_is_refused_when_it_is_read(saved, bad):
    matrix = distances()
    matrix[2, 5] = matrix[5, 2] = bad
    space = MatrixLabels(saved(matrix))
    assert space.pairwise([0, 1]).shape == (2, 9)
    for column, use in (
        (5, lambda: space.pairwise([0, 2])),
        (5, lambda: nearest(space, 2, [0, 2])),
        (0, lambda: space[[5, 0, 2]].pairwise([1, 2])),
    ):
        with refuses("label distance", got=f"{bad} in row 1, column {column}"):
            use()


def test_rounding_becomes_0():
    x = torch.nn.functional.normalize(torch.randn(64, 8, generator=torch.Generator().manual_seed(0)), dim=1)
    x[7] = x[3]
    for matrix in (
        1 - x @ x.T,
        torch.cdist(3 + x, 3 + x),
        1 - (x.bfloat16() @ x.bfloat16().T).float().clamp(max=1),
    ):
        given = matrix.clone()
        assert bool(matrix.diagonal().any()) or bool((matrix < 0).any())
        labels = MatrixLabels(matrix)
        assert torch.equal(matrix, given)
        d = labels.pairwise()
        assert bool((d >= 0).all())
        assert not d.diagonal().any()
        different = ~torch.eye(64, dtype=torch.bool)
        assert torch.equal(d[different], matrix.clamp(min=0)[different])
        anchors = torch.tensor([5, 3, 60])
        of_anchors = MatrixLabels(matrix[anchors], anchors).pairwise(anchors)
        assert torch.equal(of_anchors, d[anchors])
    with refuses("label distances", got="between an item and itself", hint="torch.cdist"):
        MatrixLabels(torch.cdist(100 + x, 100 + x))


# ---------------------------------------------------------------------------------------------------------------------
# a batch


def batch_of(matrix, anchors=None):
    """The labels that a loss makes of a matrix."""
    return as_labels("a loss", "graded", matrix, torch.zeros(matrix.shape[1], 2), anchors)


def test_a_matrix_that_is_given_to_a_loss_has_no_row_numbers():
    matrix = NumberLabels([0.0, 1.0, 3.0]).pairwise()
    for labels in (batch_of(matrix), batch_of(matrix)[[2, 0]], batch_of(matrix[[1]], torch.tensor([1]))):
        assert labels.rows is None
    assert batch_of(matrix)[[2, 0]].pairwise().tolist() == [[0, 3], [3, 0]]
    assert MatrixLabels(matrix).rows.tolist() == [0, 1, 2]


def test_a_matrix_of_all_items():
    matrix = NumberLabels([0.0, 1.0, 3.0]).pairwise()
    labels = MatrixLabels(matrix)
    assert (len(labels), labels.kind, labels.class_ids) == (3, "graded", None)
    assert labels.root is labels
    assert torch.equal(labels.pairwise(slice(1, 3), [0]), matrix[1:3, :1])
    assert labels.pairwise().data_ptr() == matrix.data_ptr()  # not copied
    assert labels.to("cpu").device == labels.device == torch.device("cpu")
    for rows, cols in (([3], None), (None, [3])):
        with refuses("row", got="3", allowed="0 to 2"):
            labels.pairwise(rows, cols)


def test_a_matrix_with_a_row_for_each_anchor():
    anchors = torch.tensor([3, 1])
    matrix = torch.tensor([[1.0, 2, 3, 0], [4, 0, 5, 6]])
    labels = MatrixLabels(matrix, anchors)
    assert len(labels) == 4  # the items, not the anchors
    assert labels.rows is None
    assert torch.equal(labels.pairwise(anchors), matrix)
    assert torch.equal(labels.pairwise(anchors.flip(0)), matrix.flip(0))
    assert labels.pairwise([1]).tolist() == [[4, 0, 5, 6]]
    assert labels.pairwise([3, 3], [2, 0]).tolist() == [[3, 1], [3, 1]]
    assert labels.pairwise([]).shape == (0, 4)
    assert torch.equal(labels.distances(labels, labels), matrix)
    assert torch.equal(labels.to("cpu").pairwise([1]), matrix[[1]])
    assert torch.equal(MatrixLabels(matrix.numpy(), [3, 1]).pairwise([1]), matrix[[1]])
    for rows, missing in ((None, 0), ([0], 0), ([3, 2], 2), (slice(0, 2), 0)):
        with refuses("matrix of label distances", got=f"item {missing}", allowed="anchors"):
            labels.pairwise(rows)
    with refuses("row", got="4", allowed="0 to 3"):
        labels.pairwise([4])
    with refuses("label distances", got="3 in row 0", allowed="0", hint="anchors[a]"):
        MatrixLabels(matrix, [2, 1])
    with refuses("row", got="4", allowed="0 to 3"):
        MatrixLabels(matrix, [3, 4])


def test_rows_of_anchors_are_not_indexed():
    for anchors in ([1], [1, 0]):
        labels = MatrixLabels(torch.tensor([[1.0, 0.0], [0.0, 1.0]])[: len(anchors)], anchors)
        for rows in ([0], [], slice(0, 1), None, torch.tensor([1])):
            with refuses("matrix of label distances", got="indexed by items", hint="[items, items]"):
                labels[rows]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.int64, torch.bool])
def test_a_matrix_of_any_dtype(dtype):
    matrix = torch.tensor([[0, 1, 1], [1, 0, 0], [1, 0, 0]], dtype=dtype)
    # Label distances of a batch in float64 stay so, for losses in float64.
    if dtype != torch.bool:
        assert batch_of(matrix).pairwise().dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    labels = MatrixLabels(matrix)
    assert labels.pairwise().dtype == torch.float32
    assert torch.equal(labels.pairwise().double(), matrix.double())
    found = labels.nearest(2)
    assert found.rows.tolist() == [[1, 2], [2, 0], [1, 0]]
    assert found.distances.tolist() == [[1, 1], [0, 1], [0, 1]]
    assert found.distances.dtype == torch.float32
    assert NearestLabels(labels, 1).pairwise().tolist() == [[0, 0, 1], [1, 0, 0], [1, 0, 0]]
    assert ThresholdLabels(labels, 0.5).pairwise().tolist() == matrix.tolist()


@pytest.mark.parametrize(
    ("matrix", "anchors", "allowed"),
    [
        (torch.zeros(2, 3), None, "anchors"),
        (torch.zeros(3), None, "anchors"),
        (torch.zeros(3, 3, 1), None, "anchors"),
        (torch.zeros(2, 3), torch.tensor([1]), "1 anchors"),
        (torch.zeros(3, 3), torch.tensor([1, 0]), "2 anchors"),
    ],
)
def test_matrices_of_a_batch_of_another_shape(matrix, anchors, allowed):
    with refuses("label distances", got=str(list(matrix.shape)), allowed=allowed):
        MatrixLabels(matrix, anchors)


def test_a_matrix_is_read_once_on_a_gpu(monkeypatch):
    # What waits for a GPU is what moves numbers to Python: the check of a matrix does so once.
    reads = []
    for name in ("tolist", "item", "__bool__", "__float__"):
        original = getattr(torch.Tensor, name)
        monkeypatch.setattr(torch.Tensor, name, lambda *a, original=original, **o: reads.append(1) or original(*a, **o))
    MatrixLabels(torch.from_numpy(distances()))
    assert len(reads) == 1
