"""Facts that `contml check` and `contml train` report about the data before training."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from support.caption_sets import TRAIN, scenes, write_csv

from contml.data import Pixels, Split, Task
from contml.experiment import check, load
from contml.experiment.checking import report_columns
from contml.labels import ClassLabels
from contml.labels.captions import tokens

SMALL = [
    *("task.root=own", "task.vectors=vectors.txt", "images.resize=36", "images.crop=32", "transform.scale_jitter=2"),
    *("transform.shift=1", "images.workers=0", "sampler.batch_size=12", "sampler.anchors_per_batch=2"),
]


def test_check_counts_the_words_without_a_vector(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_csv(tmp_path / "own")
    captions = [[tokens(caption) for caption in texts] for _, texts in scenes()]
    counts = Counter(word for texts in captions[:TRAIN] for caption in texts for word in caption)
    (first, first_count), (second, second_count) = counts.most_common(2)
    known = sorted({word for texts in captions for caption in texts for word in caption} - {first, second})
    lines = [f"{word} {number} {number % 7} 1.5" for number, word in enumerate(known)]
    (tmp_path / "own/vectors.txt").write_text(f"{len(known)} 3\n" + "\n".join(lines) + "\n")
    facts = dict(check(load("captions/files", SMALL)))
    expected = f"{first_count + second_count:,}, 2 different, most often '{first}'"
    assert facts["training words without a vector"] == expected
    assert facts["test words without a vector"].startswith(
        f"{sum(_uses(t, (first, second)) for t in captions[TRAIN:])}"
    )
    assert facts["training images"] == str(TRAIN)

    (tmp_path / "own/vectors.txt").write_text(
        f"{len(known) + 2} 3\n" + "\n".join([*lines, f"{first} 1 2 3", f"{second} 1 1 1\n"])
    )
    assert not [name for name in dict(check(load("captions/files", SMALL))) if "without a vector" in name]


def _uses(texts, words):
    return sum(word in words for caption in texts for word in caption)


@pytest.mark.parametrize(("rank", "expected"), [(None, ["column", "age"]), ("0", ["column", "age"]), ("1", [])])
def test_only_the_main_process_reports_the_columns(monkeypatch, rank, expected):
    monkeypatch.delenv("RANK", raising=False)
    if rank is not None:
        monkeypatch.setenv("RANK", rank)
    split = Split([Pixels(np.zeros((4, 4, 3), np.uint8))], ["a"], ClassLabels([0]))
    cells = []
    report_columns(
        Task(split, split, columns=[["column"], ["age"]]), lambda rows: cells.extend(c for row in rows for c in row)
    )
    assert cells == expected
