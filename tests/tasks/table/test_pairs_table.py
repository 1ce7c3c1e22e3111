"""A table of judged pairs: found by its columns, items by path or in a second table; what is refused; the commands."""

import numpy as np
import pytest
from PIL import Image, ImageDraw
from support.refusals import refused

from contml.data import refuse_equal
from contml.tasks.table.file import file

ITEMS = 40


def angle(n):
    return 180 * n / ITEMS


@pytest.fixture
def folder(tmp_path):
    """Drawn dials, and judges of the angle between two: 10 for equal ones, in steps of 1 with noise."""
    (tmp_path / "dials").mkdir()
    for n in range(ITEMS):
        picture = Image.new("RGB", (32, 32), "white")
        end = 16 + 14 * np.cos(np.radians(angle(n))), 16 - 14 * np.sin(np.radians(angle(n)))
        ImageDraw.Draw(picture).line((16, 16, *end), fill="black", width=3)
        picture.save(tmp_path / "dials" / f"{n}.png")
    return tmp_path


def judged_rows(count=300, repeats=40, seed=0):
    random = np.random.default_rng(seed)
    pairs = [tuple(random.choice(ITEMS, 2, replace=False).tolist()) for _ in range(count)]
    pairs += [pair[::-1] for pair in pairs[:repeats]]
    return [(a, b, int(np.clip(round(10 - abs(angle(a) - angle(b)) / 18 + random.normal()), 0, 10))) for a, b in pairs]


def write(path, rows, name="dials/{}.png", header="a,b,score"):
    lines = [f"{name.format(a)},{name.format(b)},{score}" for a, b, score in rows]
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def values_of(split):
    """The judged distances by the names of both items."""
    pairs = split.labels.judged_pairs
    names = [frozenset(split.names[row] for row in rows) for rows in pairs.rows.tolist()]
    return dict(zip(names, zip(pairs.distances.tolist(), pairs.counts.tolist(), strict=True), strict=True))


def test_scores_are_similarities_and_repeats_are_averaged(folder):
    rows = judged_rows()
    task = file(str(write(folder / "judgments.csv", rows)))
    expected = {}
    for a, b, score in rows:
        expected.setdefault(frozenset((f"dials/{a}.png", f"dials/{b}.png")), []).append(score)
    top = max(max(scores) for scores in expected.values())
    found = {pair: value for split in task.splits.values() for pair, value in values_of(split).items()}
    for pair, (distance, count) in found.items():
        assert distance == pytest.approx(top - np.mean(expected[pair]))
        assert count == len(expected[pair])
    assert len(found) > 150
    assert not set(task.train.names) & set(task.test.names)
    columns = {line[0]: line for line in task.columns}
    assert columns["a"][1] == columns["b"][1] == "item"
    assert columns["score"][1] == "scores of pairs"
    assert "with several, which differ in" in columns["score"][3]


def test_forms_of_the_table(folder):
    rows = judged_rows()
    write(folder / "judgments.csv", rows)
    by_path = file(str(folder / "judgments.csv"), judgments={"largest": 10.0, "by": "judgment"})
    far = [(a, b, 10 - score) for a, b, score in rows]
    write(folder / "far.csv", far, header="A,B,distance")
    by_distance = file(str(folder / "far.csv"), judgments={"by": "judgment"})
    assert values_of(by_distance.train) == values_of(by_path.train)
    write(folder / "ids.csv", rows, name="dial {}")
    lines = ["id,picture", *(f"dial {n},dials/{n}.png" for n in range(ITEMS))]
    (folder / "items.csv").write_text("\n".join(lines))
    for listed in (
        file(str(folder / "ids.csv")),  # the table "items" beside it
        file(str(folder / "ids.csv"), judgments={"items": str(folder / "items.csv")}),
    ):
        assert values_of(listed.train) == values_of(file(str(folder / "judgments.csv")).train)
    part = [f"dials/{a}.png,dials/{b}.png,{s},{'test' if a % 2 else 'train'}" for a, b, s in rows]
    (folder / "split.csv").write_text("\n".join(["a,b,score,split", *part]))
    named = file(str(folder / "split.csv"))
    assert len(named.train.labels.judged_pairs.rows) + len(named.test.labels.judged_pairs.rows) >= 250
    unit = file(str(folder / "judgments.csv"), judgments={"unit": "points"}).test.labels
    assert unit.measure.unit == "points"


def test_judgments_that_are_all_equal_are_refused(folder):
    equal = [(a, a + 1, 5) for a in range(0, 30, 2)]
    refused(lambda: refuse_equal(file(str(write(folder / "j.csv", equal))).train.labels), "labels", "at distance 0")
