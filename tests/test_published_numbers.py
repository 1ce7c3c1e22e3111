"""The numbers that docs/classes.md and configs call published are those of PUBLISHED.md, whole rows, and no others."""

import re
import shlex
from functools import cache

import pytest
from support.commands import protocol_rows
from support.paths import DATA_ROOT, ROOT

from contml.app.experiment import config_names, load

PUBLISHED = DATA_ROOT.parent / "PUBLISHED.md"
pytestmark = pytest.mark.skipif(not PUBLISHED.is_file(), reason=f"{PUBLISHED} has the papers' tables, and is absent")

DATA = {"cub": "CUB", "cars": "Cars", "sop": "SOP", "inshop": "In-shop"}
#: By protocol: the section of PUBLISHED.md for each data set, and the first cells of the row.
ROWS = {
    "raw_vthm": ({"cub": "1.4", "cars": "1.4", "sop": "1.5", "inshop": "1.5"}, ["RAW+VTHM"]),
    "hdml_triplet": ({"cub": "2.2", "cars": "2.2", "sop": "2.3"}, ["HDML (Triplet)"]),
    "hdml_n_pairs": ({"cub": "2.2", "cars": "2.2", "sop": "2.3"}, ["HDML (N-pair)"]),
    "ice": ({"cub": "3.3", "cars": "3.3"}, ["ICE"]),
    "dro_topk": ({"inshop": "4.4"}, ["DRO-TopK_M"]),
    "dro_topk_pn": ({"inshop": "4.4"}, ["DRO-TopK-PN_M"]),
    "dro_kl": ({"inshop": "4.4"}, ["DRO-KL_M"]),
    "dro_kl_grouped": ({"inshop": "4.3"}, ["DRO-KL-G, gamma = 0.01"]),
    "proxy_anchor": ({"cub": "5.2", "cars": "5.2", "sop": "5.3", "inshop": "5.3"}, ["Proxy-Anchor", "512"]),
}
#: Protocol, data set and variant: section, first cells of the row, data set.
WANTED = {
    f"{start}_{data}": (section, cells, DATA[data])
    for start, (sections, cells) in ROWS.items()
    for data, section in sections.items()
}
WANTED |= {f"ice_{data}_lmh": ("3.3", ["ICE-(L,M,H)"], DATA[data]) for data in ("cub", "cars", "sop")}
WANTED |= {f"ice_sop_{c}x{k}": ("3.4", [f"{c} x {k}"], "") for c, k in ((90, 2), (60, 3), (45, 4), (36, 5))}


def table(section):
    """The head and the rows of the table of a section."""
    lines = re.split("\n##", PUBLISHED.read_text(encoding="utf-8").split(f"\n### {section} ")[1])[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return rows[0], rows[2:]


def row(section, cells, data):
    """The metrics of a row of a data set, as a config names them."""
    head, rows = table(section)
    (values,) = (row for row in rows if any(row[at : at + len(cells)] == cells for at in range(3)))
    found, current = {}, ""
    for name, value in zip(head, values, strict=True):
        if match := re.match(rf"({'|'.join(DATA.values())}) (.+)", name):
            current, name = match.groups()
        if current in ("", data) and value != "-" and (match := re.fullmatch(r"(?:R@)?(\d+)|NMI|F1", name)):
            key = f"recall@{match[1]}" if match[1] else name.lower()
            found[key] = float(value.rstrip("?≠ ")) / 100
    return found


@cache
def named(*words):
    """The name of a row of docs/classes.md in `WANTED`, and its experiment."""
    experiment = load(words[0], words[1:])
    parts, (protocol, data) = experiment.config.parts, (words[0].split("/")[1], "")
    data = parts["task"].name.split("/")[1]
    if protocol == "dro":
        protocol += f"_{parts['loss'].options['uncertainty']}"
    sampler = parts["sampler"].options
    if protocol == "ice" and parts["model"].options["levels"]:
        data += "_lmh"
    elif protocol == "ice" and data == "sop":
        data += f"_{sampler['classes']}x{sampler['instances']}"
    return f"{protocol}_{data}", experiment


def rows_of_page():
    return dict(named(*words) for words in protocol_rows() if words[0] != "classes/unified_view")


@pytest.mark.parametrize("name", WANTED)
def test_a_row_of_the_page_quotes_its_row_whole(name):
    assert rows_of_page()[name].config.parts["published"].build().metrics == pytest.approx(row(*WANTED[name]))


def test_no_other_row_or_config_has_published_numbers():
    assert {name for name, row in rows_of_page().items() if "published" in row.config.parts} == {*WANTED}
    configs = {name for name in config_names() if "published" in load(name).config.parts}
    assert configs == {words[0] for words in protocol_rows()} - {"classes/unified_view"}


def test_the_page_quotes_recall_at_1():
    text = (ROOT / "docs/classes.md").read_text(encoding="utf-8")
    cells = re.findall(r"\| ([\d.]+|not reported) \| `(classes/(?!unified)[^`]+)` \|$", text, re.MULTILINE)
    assert len(cells) == len(rows_of_page()) == 29
    for printed, words in cells:
        name, _ = named(*shlex.split(words))
        assert printed == (f"{row(*WANTED[name])['recall@1']:.6g}" if name in WANTED else "not reported")


def test_the_page_quotes_table_1_of_the_unified_view():
    _, rows = table("1.3")
    text = (ROOT / "docs/classes.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| ([^|]+) \| ([\d.]+ / [\d./ ]+) \|.*`classes/unified_view", text, re.MULTILINE)
    quoted = {method: [float(number) for number in numbers.split(" / ")] for method, numbers in found}
    assert quoted == {row[0]: [float(number) for number in row[1:]] for row in rows if row[0] in quoted}
    assert len(quoted) == 7


def test_nothing_is_left_to_be_looked_up():
    texts = [path.read_text(encoding="utf-8") for path in [*ROOT.glob("configs/*/*.yaml"), *ROOT.glob("docs/*.md")]]
    assert not [line for text in texts for line in text.splitlines() if "looked up" in line]
