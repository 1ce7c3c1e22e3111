"""A run whose data change: reordered data give the same numbers to the last bit; other changes are refused and counted.

Each kind of data is trained once, as a user does it. Each case copies the folder, changes the data, and evaluates,
reports and resumes. With `accept_changes`, the metrics are those of the items that are left.
"""

from __future__ import annotations

import csv
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from support.refusals import refuses
from support.retrieval import evaluate
from support.runs import without_reports, without_speed
from support.tables import dials, write_table

from contml import InputError
from contml.app.experiment import evaluate_run, load, load_run, read_evaluation, report_run, resume, train
from contml.app.experiment.run_results import RetrievalResults
from contml.data.identity import DataRecord, item_names
from contml.runs import Run
from contml.training import Trainer

CONFIG = """
task: {name: table/file, data: data/items.csv, %s}
model: {backbone: small_cnn, dim: 4}
images: {resize: 16, crop: 16}
transform: {scale_jitter: 0, shift: 0}
sampler: {name: dense, batch_size: 6, anchors_per_batch: 3, neighbours: 1, batches: 3}
loss: {name: log_ratio, squared: false}
optimizer: {name: adamw, lr: 0.001}
training: {epochs: 2, evaluate_every: 1, val_share: 0.3, checkpoint_minutes: 0.0}
"""


# -- the data before they change ---------------------------------------------------------------------------------------


def write_numbers(data):
    write_table(data / "items.csv", dials(data), ["image", "reading", "colour", "size"])


def write_parts(data):
    rows = dials(data, 50)
    for number, row in enumerate(rows):
        row["split"] = ["train", "train", "train", "val", "test" if number % 3 else "query"][number % 5]
    write_table(data / "items.csv", rows, ["image", "reading", "split"])


#: How the data of each kind are written, and what the config says of them.
KINDS = {
    "numbers": (write_numbers, "labels: {reading: number, colour: class}, test: 0.3"),
    "parts": (write_parts, "labels: {reading: number}"),
}


class Killed(BaseException):
    """Stands for SIGKILL."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A function: the folder of a kind of data with data/, runs/whole and runs/killed, trained when first needed."""
    folders: dict[str, Path] = {}

    def get(kind):
        if kind in folders:
            return folders[kind]
        folder = folders[kind] = tmp_path_factory.mktemp(kind)
        write, task = KINDS[kind]
        (folder / "data").mkdir()
        with pytest.MonkeyPatch.context() as patch, without_reports():
            patch.chdir(folder)
            write(Path("data"))
            Path("own.yaml").write_text(CONFIG % task)
            step = Trainer.train_step

            def step_or_die(trainer, batch):
                if trainer.steps_done == 4:
                    raise Killed
                return step(trainer, batch)

            with patch.context() as dying:
                dying.setattr(Trainer, "train_step", step_or_die)
                with pytest.raises(Killed):
                    train(load("own.yaml"), Path("runs"), folder=Path("runs/killed"))
            resume(Path(shutil.copytree("runs/killed", "runs/whole")))
        shutil.copytree(folder, folder.with_name(f"{folder.name}-kept"))
        return folder

    return get


# -- changes of the data -----------------------------------------------------------------------------------------------


@dataclass
class Data:
    """The data of a run and its record; a change edits the files of `folder`."""

    folder: Path
    record: DataRecord

    def name(self, split: str, place: int = 0) -> str:
        """The name of an item in the record."""
        return self.record.names[split][place]

    @property
    def path(self) -> Path:
        """The table."""
        (path,) = self.folder.glob("*.csv")
        return path

    def rows(self) -> list[dict[str, str]]:
        """The rows of the table."""
        with self.path.open(newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def write(self, rows: list[dict[str, str]], **options) -> None:
        """Write the table."""
        write_table(self.path, rows, **options)

    def edit(self, names: list[str], **cells: str) -> None:
        """Set cells in the rows of some items."""
        rows = self.rows()
        for row in rows:
            if any(name.endswith(row["image"]) for name in names):
                row.update(cells)
        self.write(rows)

    def remove(self, *names: str) -> None:
        """Remove the rows of some items."""
        self.write([row for row in self.rows() if not any(name.endswith(row["image"]) for name in names)])

    def append(self, count: int = 1, **cells: str) -> None:
        """Append rows with images of their own."""
        rows = self.rows()
        for number in range(count):
            image = f"img/new {number}.png"
            Image.new("RGB", (32, 32), (9 * number, 99, 200)).save(self.folder / image)
            rows.append({**rows[number], "image": image, **cells})
        self.write(rows)


def replaced(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


#: Changes after which every number is the same, by kind: name -> change.
SAME = {
    "numbers": {
        "reversed": lambda data: data.write(data.rows()[::-1]),
        "with a byte order mark": lambda data: data.write(data.rows(), encoding="utf-8-sig"),
    },
    "parts": {
        "sorted by split": lambda data: data.write(sorted(data.rows(), key=lambda row: row["split"])),
        "an unused row": lambda data: data.append(split=""),
    },
}

#: Changes that are refused, by kind: name -> (change, what the message says).
CHANGED = {
    "numbers": {
        "a row more": (lambda data: data.append(), ["1 added (img/new 0.png)"]),
        "a test row less": (lambda data: data.remove(data.name("test")), ["test items: 1 removed (img/"]),
        "another label in training": (
            lambda data: data.edit([data.name("train")], reading="55"),
            ["training items: 1 with another label"],
        ),
        "reversed, with a row more and a row less": (
            lambda data: (data.append(), data.remove(data.name("test")), data.write(data.rows()[::-1])),
            ["1 added (img/new 0.png)", "1 removed"],
        ),
    },
    "parts": {
        "from training to test": (
            lambda data: data.edit([data.name("train")], split="test"),
            ["training items: 1 moved to another split", "test items: 1 moved from another split"],
        ),
        "no longer used": (lambda data: data.edit([data.name("train")], split=""), ["training items: 1 removed"]),
        "a query that is no query": (
            lambda data: data.edit([data.name("test", int(data.record.queries["test"][0]))], split="test"),
            ["test items: 1 moved between queries and gallery"],
        ),
    },
}

# -- the tests ---------------------------------------------------------------------------------------------------------


def restored(folder, monkeypatch):
    """Go to a folder as it was after the training: a run has absolute paths, so a copy could not be elsewhere."""
    shutil.rmtree(folder)
    shutil.copytree(folder.with_name(f"{folder.name}-kept"), folder)
    monkeypatch.chdir(folder)


@pytest.fixture
def copied(trained, monkeypatch):
    """A function: the folder of a kind as it was after the training, in which the test goes on; reports are caught."""

    def get(kind):
        restored(trained(kind), monkeypatch)
        return Data(Path("data"), DataRecord.load(Path("runs/whole/data.safetensors")))

    reports = []
    monkeypatch.setattr(RetrievalResults, "report", lambda *arguments: reports.append(arguments[2].evaluated))
    get.reports = reports
    return get


def contents(run):
    return {path.name: path.read_bytes() for path in run.folder.rglob("*") if path.is_file()}


def assert_same(copied, *, exact=True):
    """Evaluated, reported and resumed, the run has the numbers that it had."""
    whole, killed = Run(Path("runs/whole")), Run(Path("runs/killed"))
    before, expected = contents(whole), read_evaluation(whole)
    embeddings = load_file(whole.embeddings("test"))
    assert evaluate_run(whole.folder) == expected
    for name, tensor in load_file(whole.embeddings("test")).items():
        assert torch.equal(tensor, embeddings[name])
    report_run(whole.folder)
    assert copied.reports[-1] == expected
    if exact:
        assert contents(whole) == before
    assert resume(killed.folder) is not None
    assert copied.reports[-1] == expected == read_evaluation(killed)
    assert without_speed(killed) == without_speed(whole)
    for name in ("best", "last"):
        tensors = load_file(whole.checkpoints / f"{name}.safetensors")
        for key, value in load_file(killed.checkpoints / f"{name}.safetensors").items():
            assert torch.equal(value, tensors[key])


def fast_of(cases, count):
    """The cases as parameters: the first ones are in the fast suite, which trains on numbers and on parts alone."""
    return [pytest.param(*case, marks=[] if n < count else pytest.mark.slow) for n, case in enumerate(cases)]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "change"), [(kind, change) for kind in SAME for change in SAME[kind]])
def test_the_same_numbers_to_the_last_bit(copied, kind, change):
    SAME[kind][change](copied(kind))
    assert_same(copied)


PLACES = [*(("numbers", place) for place in ("link", "absolute", "elsewhere", "./data")), ("parts", "elsewhere")]


@pytest.mark.parametrize(("kind", "place"), fast_of(PLACES, 3))
def test_a_moved_data_set_is_the_same(copied, tmp_path, monkeypatch, kind, place):
    copied(kind)
    old = Path("data").absolute()
    if place == "link":
        Path("data").rename("real")
        Path("data").symlink_to("real")
    elif place == "absolute":
        (tmp_path / "far").mkdir()
        Path("data").rename(tmp_path / "far/away")
    elif place == "elsewhere":
        Path("data").rename("elsewhere")
    new = {"absolute": str(tmp_path / "far/away"), "link": "data"}.get(place, place)
    for run in ("whole", "killed"):
        end = "/items.csv" if "items.csv" in Path(f"runs/{run}/config.yaml").read_text() else ""
        replaced(Path(f"runs/{run}/config.yaml"), f"data: {old}{end}", f"data: {new}{end}")
    assert_same(copied, exact=False)
    if place == "elsewhere":  # the run moves too
        Path("runs").rename("results")
        report_run(Path("results/whole"))


CHANGES = [(kind, change) for kind in CHANGED for change in CHANGED[kind]]


@pytest.mark.parametrize(("kind", "change"), fast_of(CHANGES, 6))
def test_changed_data_are_refused_or_accepted(copied, kind, change):
    make, texts = CHANGED[kind][change]
    make(copied(kind))
    whole, killed = Run(Path("runs/whole")), Run(Path("runs/killed"))
    before = contents(whole), contents(killed)
    for command, run in ((evaluate_run, whole), (report_run, whole), (resume, killed)):
        with pytest.raises(InputError) as error:
            command(run.folder)
        assert error.value.subject == str(run.folder)
        assert "--accept-changes" in error.value.hint
        assert "\n" not in str(error.value)
        for text in texts:
            assert text in error.value.got
    assert ((contents(whole), contents(killed)), copied.reports) == (before, [])
    expected = expected_of(whole)
    report_run(whole.folder, accept_changes=True)
    for found in (copied.reports[-1].evaluation, evaluate_run(whole.folder, accept_changes=True).evaluation):
        assert (found.queries, found.gallery) == (expected.queries, expected.gallery)
        assert found.curves["label_distance"].model == pytest.approx(expected.curves["label_distance"].model, rel=1e-5)


def expected_of(run):
    """The evaluation of the recorded test items that are left."""
    experiment, _ = load_run(run.folder)
    names = DataRecord.load(run.data).names["test"]
    split = experiment.read_task().test
    embeddings, kept = torch.zeros(len(split), 4), []
    for row, name in enumerate(item_names(split, experiment.root)):
        if name in names:
            embeddings[row] = load_file(run.embeddings("test"))["embeddings"][names.index(name)]
            kept.append(row)
    queries, gallery = ([row for row in kept if rows is None or row in rows] for rows in (split.queries, split.gallery))
    return evaluate(embeddings, split.labels, queries, gallery)[0]


def test_no_validation_item_is_left(copied):
    data = copied("parts")
    data.write([row for row in data.rows() if row["split"] != "val"])  # another one is drawn from the training rows
    whole = Path("runs/whole")
    for command in (evaluate_run, report_run, resume):
        with refuses(str(whole), got="10 removed (img/"):
            command(whole)
    before = read_evaluation(Run(whole))
    result = evaluate_run(whole, accept_changes=True)
    assert result.changes
    assert before.changes == []
    assert result.evaluation == before.evaluation  # of the test split, which did not change


def test_nothing_is_left(copied):
    data = copied("parts")
    other = {"train": "test", "test": "train", "query": "train", "val": "val"}
    data.write([{**row, "split": other[row["split"]]} for row in data.rows()])
    whole = Path("runs/whole")
    with refuses(str(whole), got="training items: 30 moved to another split"):
        evaluate_run(whole)
    for command in (evaluate_run, report_run):
        with refuses("training items", got="none", hint="restore"):
            command(whole, accept_changes=True)


def test_a_run_without_a_record_is_refused(copied):
    copied("numbers")
    Path("runs/whole/data.safetensors").unlink()
    for command in (evaluate_run, report_run, resume):
        with refuses("data.safetensors", got="no such file", hint="train again"):
            command(Path("runs/whole"))


def test_a_report_with_pictures_of_accepted_changes(trained, monkeypatch):
    restored(trained("numbers"), monkeypatch)
    data = Data(Path("data"), DataRecord.load(Path("runs/whole/data.safetensors")))
    data.remove(data.name("test"))
    data.write(data.rows()[::-1])
    assert report_run(Path("runs/whole"), accept_changes=True).exists()
