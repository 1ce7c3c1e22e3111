"""What the commands print in a normal run, as in `tests/normal_run.txt`, where `#` stands for a number.

When a change of the words is wanted, run this file and copy the file that the failure names.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.tables import dials, write_table

pytestmark = pytest.mark.slow
GOLDEN = Path(__file__).parents[2] / "normal_run.txt"
RUN = "runs/table/default/first"
SMALL = "images.resize=32 images.crop=32 images.workers=0 transform=null model.dim=8 sampler.batches=4"
COMMANDS = (
    f"check --data items.csv --label reading=number {SMALL}",
    f"train --data items.csv --label reading=number {SMALL} training.epochs=2 --name first", f"evaluate {RUN}",
    f"index {RUN} img --out own.index --metadata items.csv", "search own.index img/007.png -k 3",
    "search own.index --label reading=50 -k 3", f"predict {RUN} img/007.png img/008.png",
    f"train --data items.csv --label reading=number {SMALL} training.epochs=1 --name second",
    f"compare {RUN} runs/table/default/second",
)  # fmt: skip


def without_numbers(text):
    """The words of an output: numbers become `#`, and more than two spaces are two.

    Another processor rounds differently. It may find other images, pairs that are farther apart, and another order of
    rows that are tied.
    """
    text = re.sub(r"'(embedding|labels), training.epochs", "'ROW, training.epochs", text)
    text = re.sub(r"(?m)  (red|green|blue|orange)$", "  COLOUR", text)
    text = re.sub(r"; [\d.]+ % of test pairs are farther apart than all pairs of the validation split", "", text)
    text = re.sub(r"(?<![A-Za-z@])[-+]?\d[\d,.]*(e-?\d+)?(?![A-Za-z])", "#", text)
    return re.sub(r"  +", "  ", text)


def test_what_the_commands_print(contml, tmp_path):
    rows = [{"image": row["image"], "reading": row["reading"], "colour": row["colour"]} for row in dials(tmp_path, 120)]
    write_table(tmp_path / "items.csv", rows)
    found = []
    for command in COMMANDS:
        status, out, err = contml(*command.split())
        assert status == 0, err
        found.append(f"$ contml {command}\n{without_numbers(out + err)}")
    (tmp_path / "normal_run.txt").write_text("\n".join(found), encoding="utf-8")
    expected = GOLDEN.read_text(encoding="utf-8") if GOLDEN.exists() else ""
    assert "\n".join(found) == expected, f"cp {tmp_path / 'normal_run.txt'} {GOLDEN}"
