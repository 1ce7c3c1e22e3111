"""The page in Chromium: from disk and served, on a wide and a narrow screen."""

import math
import threading

import pytest
from PIL import Image
from support.browser import opened, query, rows
from support.explored import NAMES, hostile

import contml as library
from contml.app.explore import explore_runs, server, write_page

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(explored, tmp_path_factory):
    return write_page(tmp_path_factory.mktemp("page"), explored).parent


def wait_for(page, name, message):
    """Waits until an own image was searched with."""
    page.locator("#query h2", has_text=name).wait_for()
    page.locator("#query p", has_text=message).wait_for()


def shown_errors(view):
    """The errors as the page shows them, in pixels per joint: the labels are squares over 14 joints."""
    roots = (view.means / 14).sqrt()
    return roots[:, 0] - roots[:, 1]


def test_from_disk(chromium, explored, folder):
    names, view = explored.split.names, explored.views[0]
    order = shown_errors(view).argsort(descending=True, stable=True).tolist()
    worst = [row for row in order if row in explored.split.queries]
    with opened(chromium, f"file://{folder}/index.html") as page:

        def check(row):
            assert query(page) == names[row]
            for at, each in enumerate(explored.views, start=1):
                for part, found in ((".by-embedding", each.by_embedding), (".by-label", each.by_label)):
                    assert rows(page, f".run:nth-of-type({at}) {part}") == found.rows[row].tolist()

        assert rows(page, "#list") == worst
        check(worst[0])
        shown, unit = page.inner_text("#list b").split()
        assert (unit, float(shown)) == ("px/joint", pytest.approx(float(shown_errors(view)[worst[0]]), rel=1e-2))
        texts = page.inner_text(".run .by-embedding li").split("\n")
        distance = float(view.by_embedding.distances[worst[0], 0])
        assert float(texts[0].removeprefix("e ")) == pytest.approx(distance, rel=1e-2)
        label = math.sqrt(float(view.by_embedding.label_distances[worst[0], 0]) / 14)
        letter, shown, unit = texts[1].split()
        assert (letter, float(shown), unit) == ("l", pytest.approx(label, rel=1e-2), "px/joint")
        # keys
        for key, place in (("ArrowDown", 1), ("ArrowRight", 2), ("ArrowUp", 1), ("ArrowLeft", 0), ("ArrowUp", 0)):
            page.keyboard.press(key)
            check(worst[place])
        for _ in range(10):
            page.keyboard.press("ArrowDown")
        check(worst[-1])
        # search
        page.keyboard.press("/")
        page.keyboard.type("#7")
        page.keyboard.press("Enter")
        check(7)
        page.keyboard.press("/")
        page.keyboard.type(names[11].upper()[3:])
        assert rows(page, "#found") == [11]
        page.keyboard.press("ArrowDown")  # moves in the text, not in the list
        page.click("#found button")
        check(11)
        page.fill("#search", "no such name")
        assert page.inner_text("#found") == "nothing found"
        page.keyboard.press("Escape")
        assert page.is_hidden("#found")
        # clicks: a query of the list, a neighbour, a point of the map
        page.click(f"#list [data-row='{worst[2]}']")
        check(worst[2])
        near = view.by_embedding.rows[worst[2], 3].item()
        page.click(".run .by-embedding li:nth-child(4) button")
        check(near)
        assert "only in the gallery" in page.inner_text("#query")
        x, y = page.evaluate("place(5)")
        page.click("#map", position={"x": x, "y": y})
        check(5)
        # the second run, and colours
        pixels = "document.getElementById('map').toDataURL()"
        pictures = [page.evaluate(pixels)]
        page.select_option("#colour", "error")
        pictures.append(page.evaluate(pixels))
        page.select_option("#view", "1")
        pictures.append(page.evaluate(pixels))
        assert len(set(pictures)) == 3
        other = shown_errors(explored.views[1])
        assert rows(page, "#list") == [r for r in other.argsort(descending=True, stable=True).tolist() if r in worst]
        assert "contml explore" in page.inner_text("#drop")
        assert page.url.endswith("#5")
        page.reload()
        check(5)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone(chromium, explored, folder, scheme):
    with opened(chromium, f"file://{folder}/index.html", 400, 800, color_scheme=scheme, has_touch=True) as page:
        page.tap(".run .by-label li:nth-child(2) button")
        top, best = shown_errors(explored.views[0]).nan_to_num(-1).argmax(), explored.views[0].by_label
        assert query(page) == explored.split.names[best.rows[top, 1]]
        back = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, back[4:-1].split(","))) < 100) == (scheme == "dark")


def test_hostile_names(chromium, tmp_path):
    write_page(tmp_path, hostile(metadata=[{"<b>": NAMES[0]}] * 4))
    with opened(chromium, f"file://{tmp_path}/index.html", 400) as page:
        assert page.inner_text("h1") == "<title>&"
        assert page.query_selector_all("main img[src=x], main b b, main i i, main u") == []
        assert rows(page, "#list") == [3, 0, 1]
        page.click("#list [data-row='0']")
        assert query(page) == NAMES[0]
        assert f"<b>: {NAMES[0]}" in page.inner_text("#query")
        page.hover("#map", position=dict(zip("xy", page.evaluate("place(1)"), strict=True)))
        assert NAMES[1] in page.inner_text("#tip")
        page.fill("#search", "script")
        assert rows(page, "#found") == [1]


def test_own_images(chromium, explored, runs, tmp_path):
    """Served, an image is chosen and dropped; a file that is no image is a message, not an error."""
    shown = explore_runs([runs.first])
    write_page(tmp_path / "page", shown, own_images="")
    row = int(shown.gallery[3])
    shown.split.picture(row).save(tmp_path / "mine <b>.png")
    Image.new("RGB", (5, 5)).save(tmp_path / "black.png")
    (tmp_path / "text.png").write_text("no image")
    with server(tmp_path / "page", shown, [library.load(runs.first)]) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        try:
            address = f"http://127.0.0.1:{serving.server_address[1]}/"
            with opened(chromium, address, 400) as page:
                page.set_input_files("#drop input", tmp_path / "mine <b>.png")
                wait_for(page, "mine <b>.png", "has no label")
                assert rows(page, ".by-embedding")[0] == row
                assert "l ≈" in page.inner_text(".by-embedding li")
                assert page.query_selector(".by-label") is None
                content = [*(tmp_path / "black.png").read_bytes()]
                page.evaluate(
                    """(content) => {
                        const carried = new DataTransfer();
                        carried.items.add(new File([new Uint8Array(content)], "black.png", { type: "image/png" }));
                        document.dispatchEvent(new DragEvent("dragover", { dataTransfer: carried, cancelable: true }));
                        document.dispatchEvent(new DragEvent("drop", { dataTransfer: carried, cancelable: true }));
                    }""",
                    content,
                )
                wait_for(page, "black.png", "has no label")
                assert len(rows(page, ".by-embedding")) == 10
                page.keyboard.press("ArrowDown")
                assert query(page) in shown.split.names
            page = chromium.new_page()  # Chromium itself writes to the console that an answer was a refusal
            page.goto(address)
            page.set_input_files("#drop input", tmp_path / "text.png")
            wait_for(page, "text.png", "cannot be decoded")
            serving.shutdown()
            serving.server_close()
            page.set_input_files("#drop input", tmp_path / "black.png")
            wait_for(page, "black.png", "does not answer")
            page.close()
        finally:
            serving.shutdown()
            thread.join()


METADATA = [
    {"price": 7.0, "room": "kitchen <b>", "note": "first of 3"},
    {"price": 17.0, "room": "bath", "note": "second"},
    {"price": 70_000.0, "room": "bath", "note": "7"},
    {"price": None, "room": "kitchen <b>", "note": "x7y"},
]


def test_colours_filters_and_search_by_other_values(chromium, tmp_path):
    plain = [f"item {row}" for row in "abcd"]
    write_page(tmp_path, hostile(texts=["1", "2", "3", "4"], names=plain, metadata=METADATA))
    with opened(chromium, f"file://{tmp_path}/index.html") as page:
        colours = []
        for name in ("label", "column 0", "column 1"):
            page.select_option("#colour", name)
            colours.append(page.evaluate("colours"))
        assert len({tuple(each) for each in colours}) == 3
        assert colours[2][0] == colours[2][3] != colours[2][1]
        assert page.inner_text("#legend").splitlines()[0] == "kitchen <b>"
        page.select_option("#colour", "column 0")
        assert "log scale" in page.inner_text("#legend")
        assert colours[1][3] == page.evaluate("css('--faint')")  # without a value
        # filters: a class, a range of numbers, a text; the list and the map follow
        drawn = "$('map').toDataURL()"
        whole = page.evaluate(drawn)
        page.select_option("#filter", label="room")
        page.select_option("#filter-value select", label="bath (2)")
        assert sorted(rows(page, "#list")) == [1]  # 2 is no query
        assert page.evaluate(drawn) != whole
        assert page.evaluate("[0, 1, 2, 3].filter(kept)") == [1, 2]
        page.select_option("#filter", label="price")
        assert sorted(rows(page, "#list")) == [0, 1, 3]
        page.fill("#filter-value input:nth-child(1)", "10")
        page.fill("#filter-value input:nth-child(2)", "70000")
        assert page.evaluate("[0, 1, 2, 3].filter(kept)") == [1, 2]
        assert page.evaluate("found(0).near.rows.every(kept)")
        page.select_option("#filter", label="note")
        page.fill("#filter-value input", "FIRST")
        assert page.evaluate("[0, 1, 2, 3].filter(kept)") == [0]
        page.select_option("#filter", "")
        assert page.evaluate("[0, 1, 2, 3].filter(kept)") == [0, 1, 2, 3]
        # search: the item of that number, then equal numbers, then words, then the rest
        page.fill("#search", "7")
        assert rows(page, "#found") == [0, 2, 1, 3]
        page.fill("#search", "70,000")
        assert rows(page, "#found") == [2]
        page.fill("#search", "3")
        assert rows(page, "#found") == [3, 2, 0]  # item 3, the label 3, the word 3


def test_zoom_and_pan(chromium, tmp_path):
    write_page(tmp_path, hostile())
    with opened(chromium, f"file://{tmp_path}/index.html") as page:
        box = page.locator("#map").bounding_box()
        before = page.evaluate("place(1)")
        page.mouse.move(box["x"] + before[0], box["y"] + before[1])
        page.mouse.wheel(0, -400)
        page.wait_for_function("camera.zoom > 2")
        assert page.evaluate("place(1)") != before
        page.click("#zoom-in")
        moved = page.evaluate("place(1)")
        page.mouse.move(box["x"] + 150, box["y"] + 200)
        page.mouse.down()
        page.mouse.move(box["x"] + 200, box["y"] + 170, steps=5)
        page.mouse.up()
        after = page.evaluate("place(1)")
        assert (after[0] - moved[0], after[1] - moved[1]) == (pytest.approx(50, abs=8), pytest.approx(-30, abs=8))
        assert page.evaluate("query") == 3  # dragging picks nothing
        page.click("#zoom-all")
        assert (page.evaluate("place(1)"), page.evaluate("scrollY")) == (before, 0)
        page.click("#map", position=dict(zip("xy", before, strict=True)))
        assert page.evaluate("query") == 1
