"""The numbers that configs call published are those of PUBLISHED.md, whole rows, and no others."""

from __future__ import annotations

import re

import pytest
from support.paths import DATA_ROOT, ROOT

from contml.experiment import config_names, config_text, load

PUBLISHED = DATA_ROOT.parent / "PUBLISHED.md"
pytestmark = pytest.mark.skipif(not PUBLISHED.is_file(), reason=f"{PUBLISHED} has the papers' tables, and is absent")

DATA = {"cub": "CUB", "cars": "Cars", "sop": "SOP", "inshop": "In-shop"}
#: By the start of a config's name: the section of PUBLISHED.md for each data set, and the first cells of the row.
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
#: Name of the config without `classes/`: section, first cells of the row, data set.
WANTED = {
    f"{start}_{data}": (section, cells, DATA[data])
    for start, (sections, cells) in ROWS.items()
    for data, section in sections.items()
}
WANTED |= {f"ice_{data}_lmh": ("3.3", ["ICE-(L,M,H)"], DATA[data]) for data in ("cub", "cars", "sop")}
WANTED |= {f"ice_sop_{c}x{k}": ("3.4", [f"{c} x {k}"], "") for c, k in ((90, 2), (60, 3), (45, 4), (36, 5))}
#: Rows of the unified view's Table 1, which heads of configs on drawn classes quote.
UNIFIED_VIEW = {
    "binomial": "Binomial (all pairs)",
    "raw": "RAW (all pairs)",
    "vthm": "VTHM (mined pairs, equal weights)",
    "binomial_vthm": "Binomial+VTHM",
    "raw_distance_weighted": "RAW+DW (distance-weighted sampling)",
    "raw_semi_hard": "RAW+SemiHard",
    "raw_vthm": "RAW+VTHM (full method)",
}


def table(section):
    """The head and the rows of the table of a section."""
    text = PUBLISHED.read_text(encoding="utf-8").split(f"\n### {section} ")[1]
    lines = re.split("\n##", text)[0].splitlines()
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


@pytest.mark.parametrize("name", WANTED)
def test_a_config_quotes_its_row_whole(name):
    published = load(f"classes/{name}").config.parts["published"].build()
    assert published.metrics == pytest.approx(row(*WANTED[name]))


def test_no_other_config_has_published_numbers():
    found = {name for name in config_names() if "published" in load(name).config.parts}
    assert found == {f"classes/{name}" for name in WANTED}


@pytest.mark.parametrize("name", UNIFIED_VIEW)
def test_heads_of_the_unified_view_quote_table_1(name):
    _, rows = table("1.3")
    (values,) = (row[1:] for row in rows if row[0] == UNIFIED_VIEW[name])
    text = " ".join(config_text(f"classes/unified_view_{name}").replace("\n# ", " ").split())
    quoted = re.search(r"Published Recall@1 on CUB / Cars / SOP / In-Shop: ([\d. /]+) \(", text)[1]
    assert [float(number) for number in quoted.split(" / ")] == [float(number) for number in values]


def test_nothing_is_left_to_be_looked_up():
    texts = [path.read_text(encoding="utf-8") for path in [*ROOT.glob("configs/*/*.yaml"), *ROOT.glob("docs/*.md")]]
    assert not [line for text in texts for line in text.splitlines() if "looked up" in line]
