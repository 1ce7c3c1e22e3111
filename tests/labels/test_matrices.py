"""A matrix of label distances as labels: in memory, in a file, of a batch; what is checked, and what rounding is."""

import copy
import pickle

import numpy as np
import pytest
import torch
from support.choices import pairwise
from support.refusals import refused, refuses

from contml.labels import MatrixLabels, nearest


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


#: Ways to give a square matrix.
WAYS = {
    "file": lambda matrix, saved: MatrixLabels(saved(matrix)),
    "file, as text": lambda matrix, saved: MatrixLabels(str(saved(matrix))),
    "array": lambda matrix, saved: MatrixLabels(matrix),
    "read-only array": lambda matrix, saved: MatrixLabels(np.load(saved(matrix), mmap_mode="r")),
    "tensor": lambda matrix, saved: MatrixLabels(torch.from_numpy(np.array(matrix, dtype=np.float64))),
    "lists": lambda matrix, saved: MatrixLabels(matrix.tolist()),
}


@pytest.mark.parametrize(
    ("way", "dtype", "order"), pairwise(WAYS, ["float16", "float32", "float64", ">f4", "int32", "uint8"], ["C", "F"])
)
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
    assert torch.equal(space.distances(part, space).float(), expected[[7, 5]])
    assert torch.equal(space.distances(space, part).float(), expected[:, [7, 5]])
    source = MatrixLabels(distances().astype(dtype).tolist())
    assert torch.equal(nearest(space, 5, [7, 3], among=range(8)).rows, nearest(source, 5, [7, 3], among=range(8)).rows)
    for other in (pickle.loads(pickle.dumps(space)), copy.deepcopy(space)):
        assert torch.equal(other.pairwise(), expected)
        assert other.fingerprint() == space.fingerprint()


def test_the_matrix_stays_on_disk(saved):
    space = MatrixLabels(saved(distances(200)))
    for part in (space, space[range(100)], space.to("cpu"), pickle.loads(pickle.dumps(space))):
        array = part._matrix.array
        assert isinstance(array, np.memmap)
        assert array.mode == "r"
    assert len(pickle.dumps(space)) < 5000
    block = space.pairwise([0], [1])
    before = block.clone()
    block += 1  # a block is a copy
    assert torch.equal(space.pairwise([0], [1]), before)


def test_a_matrix_of_0_and_1():
    space = MatrixLabels(np.array([[0, 1, 1], [1, 0, 0], [1, 0, 0]]), kind="binary", unit="another judge")
    assert (space.kind, space[[0, 1]].kind, space.unit) == ("binary", "binary", "another judge")


def test_frames_of_pandas():
    pandas = pytest.importorskip("pandas")
    d = distances()
    names = list("abcdefghi")
    assert torch.equal(MatrixLabels(pandas.DataFrame(d, names, names)).pairwise(), torch.from_numpy(d))
    with refuses("label distance", got="row 0 is 'i', column 0 is 'a'", allowed="one order"):
        MatrixLabels(pandas.DataFrame(d, names, names).loc[names[::-1]])


# ---------------------------------------------------------------------------------------------------------------------
# what is no matrix of label distances


class Bomb:
    """An object that fails the test if it is unpickled."""

    def __reduce__(self):
        return (pytest.fail, ("unpickled",))


def test_files_that_are_not_a_matrix(saved, tmp_path):
    missing = tmp_path / "none.npy"
    refused(lambda: MatrixLabels(missing), str(missing), got="no such file", hint=".npy")
    whole = saved(distances())
    for name, content in (
        ("truncated.npy", whole.read_bytes()[:-40]),
        ("truncated in its head.npy", whole.read_bytes()[:40]),
        ("empty.npy", b""),
        ("text.npy", b"1 2 3\n4 5 6\n"),
        ("pickle.npy", pickle.dumps(distances())),
        ("bomb.npy", saved(np.array([[0, Bomb()], [0, 0]], dtype=object), "objects.npy").read_bytes()),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        with refuses(str(path), got="not a readable .npy matrix ("):
            MatrixLabels(path)
    np.savez(tmp_path / "d.npz", d=distances())
    refused(lambda: MatrixLabels(tmp_path / "d.npz"), "d.npz")
    refused(lambda: MatrixLabels(tmp_path), str(tmp_path), got="a folder")
    refused(lambda: MatrixLabels(whole, torch.arange(9)), "anchors", allowed="None for the matrix in a file")


WRONG = {"<U3 [3, 3]": np.zeros((3, 3), "U3"), "diagonal": np.ones((3, 3)), "entries [0, 1] and [1, 0]": np.eye(2, k=1)}


@pytest.mark.parametrize(("got", "matrix"), WRONG.items())
def test_files_of_numbers_that_are_not_label_distances(saved, matrix, got):
    path = saved(matrix)
    refused(lambda: MatrixLabels(path), str(path), got=got)


def test_a_large_matrix_is_checked_in_a_sample_of_rows(saved):
    matrix = distances(100)
    matrix[50:, :50] += 1
    refused(lambda: MatrixLabels(saved(matrix)), "d.npy", got="entries [0, 50] and [50, 0]")
    refused(lambda: MatrixLabels(matrix), "label distances", got="entries [0, 50] and [50, 0]")
    assert MatrixLabels(torch.from_numpy(matrix)).pairwise()[50, 0] == matrix[50, 0]  # nearest items are not symmetric
    # Rounding in single precision does not count as asymmetry.
    MatrixLabels(saved(distances(100) * (1 + 1e-7 * np.random.default_rng(0).normal(size=(100, 100)))))


@pytest.mark.parametrize("bad", [np.nan, -1.0])
def test_a_bad_block_of_a_file_is_refused_when_it_is_read(saved, bad):
    matrix = distances()
    matrix[2, 5] = matrix[5, 2] = bad
    space = MatrixLabels(saved(matrix))
    assert space.pairwise([0, 1]).shape == (2, 9)
    refused(lambda: space.pairwise([0, 2]), "label distance", got=f"{bad} in row 1, column 5")
    refused(lambda: nearest(space, 2, [0, 2]), "label distance", got=f"{bad} in row 1, column 5")
    refused(lambda: space[[5, 0, 2]].pairwise([1, 2]), "label distance", got=f"{bad} in row 1, column 0")


def test_rounding_becomes_0():
    x = torch.nn.functional.normalize(torch.randn(64, 8, generator=torch.Generator().manual_seed(0)), dim=1)
    x[7] = x[3]
    for matrix in (1 - x @ x.T, torch.cdist(3 + x, 3 + x), 1 - (x.bfloat16() @ x.bfloat16().T).float().clamp(max=1)):
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
        assert torch.equal(MatrixLabels(matrix[anchors], anchors).pairwise(anchors), d[anchors])
    with refuses("label distances", got="between an item and itself", hint="torch.cdist"):
        MatrixLabels(torch.cdist(100 + x, 100 + x))


# ---------------------------------------------------------------------------------------------------------------------
# a batch


def test_a_matrix_with_a_row_for_each_anchor():
    anchors = torch.tensor([3, 1])
    matrix = torch.tensor([[1.0, 2, 3, 0], [4, 0, 5, 6]])
    labels = MatrixLabels(matrix, anchors)
    assert len(labels) == 4  # the items, not the anchors
    assert labels.rows is None
    assert torch.equal(labels.pairwise(anchors), matrix)
    assert torch.equal(labels.pairwise(anchors.flip(0)), matrix.flip(0))
    assert labels.pairwise([1]).tolist() == [[4, 0, 5, 6]]
    assert (labels.pairwise([3, 3], [2, 0]).tolist(), labels.pairwise([]).shape) == ([[3, 1], [3, 1]], (0, 4))
    assert torch.equal(labels.distances(labels, labels), matrix)
    assert torch.equal(labels.to("cpu").pairwise([1]), matrix[[1]])
    assert torch.equal(MatrixLabels(matrix.numpy(), [3, 1]).pairwise([1]), matrix[[1]])
    for rows, missing in ((None, 0), ([0], 0), ([3, 2], 2), (slice(0, 2), 0)):
        with refuses("matrix of label distances", got=f"item {missing}", allowed="anchors"):
            labels.pairwise(rows)
    refused(lambda: labels.pairwise([4]), "row", got="4", allowed="0 to 3")


def test_rows_of_anchors_are_not_indexed():
    for anchors in ([1], [1, 0]):
        labels = MatrixLabels(torch.tensor([[1.0, 0.0], [0.0, 1.0]])[: len(anchors)], anchors)
        for rows in ([0], [], slice(0, 1), None, torch.tensor([1])):
            with refuses("matrix of label distances", got="indexed by items", hint="[items, items]"):
                labels[rows]


def test_a_matrix_is_read_once_on_a_gpu(monkeypatch):
    # What waits for a GPU is what moves numbers to Python: the check of a matrix does so once.
    reads = []
    for name in ("tolist", "item", "__bool__", "__float__"):
        original = getattr(torch.Tensor, name)
        monkeypatch.setattr(torch.Tensor, name, lambda *a, original=original, **o: reads.append(1) or original(*a, **o))
    MatrixLabels(torch.from_numpy(distances()))
    assert len(reads) == 1
