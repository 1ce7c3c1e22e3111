"""The wording of refusals: `tests/messages.txt` holds one line per case. Every other test reads fields.

A failure names a file with the new wording: read its difference, and copy it to `tests/messages.txt`.
"""

import re
import sys
from pathlib import Path

import pytest
import torch
from support.miniature import TINY
from support.pose_sets import pose_files
from support.tables import dials, write_table

import contml
from contml import InputError
from contml.app.cli import main
from contml.data import Images
from contml.evaluation import mean_average_precision_at_r, recall_at_k
from contml.sampling import ClassSampler, TripletSampler, UniformSampler

GOLDEN = Path(__file__).parent / "messages.txt"
embeddings, classes = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 0, 1, 1, 2, 2])
ages = contml.NumberLabels(torch.arange(6.0))
#: Calls of the library, by what is wrong with them. The commands are in messages.txt. They are typed in a folder with
#: items.csv, own/ (poses), broken/ (poses with a broken image), *.yaml.
CALLS = {
    "labels: NaN": lambda: contml.NumberLabels([1.0, float("nan")]),
    "labels: text": lambda: contml.NumberLabels(["a", "b"]),
    "labels: a pose without joints": lambda: contml.PoseLabels(torch.zeros(2, 3)),
    "labels: a latitude of 100": lambda: contml.GeoLabels([[100.0, 0.0]]),
    "labels: an unknown level": lambda: contml.OrdinalLabels(["a", "c"], ["a", "b"]),
    "labels: weights below 0": lambda: contml.WeightedLabels({ages: -1.0}),
    "labels: a threshold below 0": lambda: contml.ThresholdLabels(ages, -1.0),
    "labels: more neighbours than items": lambda: ages.nearest(k=6),
    "labels: a missing matrix": lambda: contml.MatrixLabels("nowhere.npy"),
    "loss: one label too few": lambda: contml.LogRatioLoss()(embeddings, torch.arange(5.0)),
    "loss: embeddings of one dimension": lambda: contml.LogRatioLoss()(embeddings[:, 0], ages),
    "loss: whole embeddings": lambda: contml.LogRatioLoss()(embeddings.long(), ages),
    "loss: log-ratio of classes": lambda: contml.LogRatioLoss()(embeddings, contml.ClassLabels(classes)),
    "loss: bare integers": lambda: contml.DenseTripletLoss()(embeddings, classes),
    "loss: pairs of graded labels": lambda: contml.MultiSimilarityLoss()(embeddings, ages),
    "loss: a matrix that is not square": lambda: contml.LogRatioLoss()(embeddings, torch.rand(6, 5)),
    "loss: an anchor outside of the batch": lambda: contml.LogRatioLoss()(embeddings, ages, anchors=torch.tensor([6])),
    "loss: a class without a proxy": lambda: contml.ProxyAnchorLoss(num_classes=2, embedding_dim=4)(
        embeddings, classes
    ),
    "loss: a temperature of 0": lambda: contml.NormalizedSoftmaxLoss(0.0, num_classes=3, embedding_dim=4),
    "evaluation: K of 0": lambda: recall_at_k(embeddings, classes, k=[0]),
    "evaluation: one label too few": lambda: mean_average_precision_at_r(embeddings, classes[:5]),
    "evaluation: NaN": lambda: recall_at_k(embeddings * float("nan"), classes),
    "sampler: a batch of one": lambda: UniformSampler(1, labels=ages),
    "sampler: more classes than there are": lambda: ClassSampler(4, 1, labels=contml.ClassLabels(classes)),
    "sampler: triplets of one class": lambda: TripletSampler(1, labels=contml.ClassLabels([0, 0, 0])),
    "images: a crop larger than the image": lambda: Images(32, 64),
}


def prepare(folder):
    """What the commands find where they are typed."""
    write_table(folder / "items.csv", dials(folder, 40), ["image", "reading", "colour", "maker"])
    pose_files(folder / "own")
    pose_files(folder / "broken")
    (folder / "broken" / "images" / "person03.jpg").write_text("<html>404</html>")
    text = "task: {name: table/file, data: own/joints.npz}\nimages: {resize: 32, crop: 32}\nloss: log_ratio\n"
    for name, more in {"type": "training: {epochs: ten}\n", "missing": ""}.items():
        (folder / f"{name}.yaml").write_text(text + more)


def line(case, folder, monkeypatch, capsys):
    """The one line that a case prints or raises, with the folder as FOLDER."""
    if case in CALLS:
        with pytest.raises(InputError) as caught:
            CALLS[case]()
        message = str(caught.value)
    else:
        monkeypatch.setattr(sys, "argv", case.replace("TINY", " ".join(TINY)).split())
        with pytest.raises(SystemExit) as stop:
            main()
        assert stop.value.code == 2
        message = capsys.readouterr().err.strip().splitlines()[-1]
    assert "\n" not in message
    return re.sub(r"\d+\.\d+ [GM]B are free", "N MB are free", message.replace(str(folder), "FOLDER"))


#: Commands, with TINY for options that only make them quick, and calls: the lines that are not answers.
NAMES = [line for line in GOLDEN.read_text(encoding="utf-8").splitlines() if not line.startswith("    ")]


@pytest.mark.slow
def test_messages(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    prepare(tmp_path)
    assert [name for name in NAMES if not name.startswith("contml ")] == [*CALLS]
    found = "".join(f"{name}\n    {line(name, tmp_path, monkeypatch, capsys)}\n" for name in NAMES)
    (tmp_path / "messages.txt").write_text(found, encoding="utf-8")
    assert found == GOLDEN.read_text(encoding="utf-8"), f"cp {tmp_path / 'messages.txt'} {GOLDEN}"
