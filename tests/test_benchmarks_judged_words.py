"""Judged words and captions of the data packs, with vectors as items; skipped where the packs are absent."""

import re

import numpy as np
import pytest
from support.paths import DATA_ROOT, ROOT

from benchmarks.judged_words import captions, glove, measure, simlex, simlex_rows
from contml.tasks.table.file import file


@pytest.fixture(scope="module")
def vectors():
    if not (DATA_ROOT / "flickr8k_1500").is_dir():
        pytest.skip("the pack flickr8k_1500 is not there")
    return glove(DATA_ROOT)


def test_the_words_of_simlex_are_judged_by_their_vectors(vectors, tmp_path):
    judged = simlex(vectors)
    assert judged.about == "686 of 1,028 words have a vector, both words of 567 of 999 pairs"
    known = [row for row in simlex_rows() if row[0] in vectors and row[1] in vectors]
    (tmp_path / "simlex.csv").write_text("a,b,score\n" + "".join(f"{a},{b},{score}\n" for a, b, score in known))
    np.savez(tmp_path / "words.npz", names=judged.names, features=judged.vectors.numpy())
    judgments = {"items": str(tmp_path / "words.npz"), "largest": 10.0}
    task = file(str(tmp_path / "simlex.csv"), judgments=judgments)
    assert task.train.feature_dim == 50
    assert not set(task.train.names) & set(task.test.names)  # no test word is in training
    assert task.train.labels.judged + task.test.labels.judged + task.train.labels.left_out == judged.labels.judged


def test_the_page_has_the_measured_differences():
    results = (ROOT / "benchmarks/results/judged_words.md").read_text()
    page = " ".join((ROOT / "docs/judgments.md").read_text().split())
    for name, change in (("SimLex-999", "new words fell"), ("CxC captions", "captions rose")):
        found = re.findall(rf"^\| {name} \| \d \| .* \| (-?[\d.]+) ± [\d.]+ \|$", results, re.MULTILINE)
        assert len(found) == 3
        sizes = sorted(each.removeprefix("-") for each in found)
        assert f"{change} by {sizes[0]} to {sizes[-1]}" in page


@pytest.mark.slow
def test_captions_are_measured(vectors):
    if not (DATA_ROOT / "cxc_val2017").is_dir():
        pytest.skip("the pack cxc_val2017 is not there")
    judged = captions(DATA_ROOT, vectors)
    assert (judged.about, measure(judged, 0)[:2]) == ("6,531 of 6,531 pairs, of 5,993 captions", ["4,716", "1,815"])
