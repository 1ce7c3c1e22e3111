"""The pictures of README.md and docs/ that show runs on synthetic data: galleries, an explained pair, `contml explore`.

    python -m benchmarks.pictures FOLDER [--only poses rooms captions]

FOLDER has the runs, FOLDER/pose/synthetic/pictures and so on; a run that is missing is trained first, in two to three
minutes on two CPU cores. Pages are opened in Chromium, which needs playwright and a program `chromium`.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image

from contml.app.experiment import load, train
from contml.app.explore import explore_runs, write_page

DOCS = Path(__file__).parent.parent / "docs"
#: The queries of a report from good to bad.
QUERIES = ".query:not(.opening .query)"
CONFIGS = {"poses": "pose/synthetic", "rooms": "layout/synthetic", "captions": "captions/synthetic"}


def parts_of_report(run: Path, selector: str, numbers: Sequence[int], name: str, width: int) -> None:
    """Some parts of the report of a run, below each other."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(f"file://{(run / 'report.html').resolve()}")
        found = page.locator(selector).all()
        pictures = [Image.open(BytesIO(found[number].screenshot())).convert("RGB") for number in numbers]
        browser.close()
    whole = Image.new("RGB", (max(p.width for p in pictures), sum(p.height for p in pictures)), "white")
    top = 0
    for picture in pictures:
        whole.paste(picture, (0, top))
        top += picture.height
    save(whole, name, width)


def save(picture: Image.Image, name: str, width: int) -> None:
    """A picture of this width in docs/, in 256 colours: a third of the size."""
    size = (width, round(picture.height * width / picture.width))
    made = picture.convert("RGB")
    made = made if made.width == width else made.resize(size, Image.Resampling.LANCZOS)
    made.quantize(256).save(DOCS / name, optimize=True)


def pages(run: Path) -> None:
    """The page of `contml explore`."""
    with tempfile.TemporaryDirectory() as folder:
        page_pictures(write_page(Path(folder) / "page", explore_runs([run])))


def page_pictures(file: Path) -> None:
    """A query on the whole page, and beside its lists a pose that is dragged."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(0)  # the machine may be busy
        page.goto(f"file://{file}")
        page.locator("#own-label:not([hidden])").wait_for()
        page.click("#list li:nth-child(2) button")
        save(Image.open(BytesIO(page.screenshot())), "explore.png", 1280)
        page.goto(f"file://{file}#{_standing(page)}")
        page.reload()
        page.locator("#own-label:not([hidden])").wait_for()
        # Both arms up: the elbow, which the wrist follows, and then the wrist.
        for joint, (x, y) in {
            "left_elbow": (0.5, -0.3),
            "left_wrist": (0.65, -0.75),
            "right_elbow": (-0.5, -0.3),
            "right_wrist": (-0.65, -0.75),
        }.items():
            drag(page, joint, x, y)
        box = page.locator("#query").bounding_box()
        assert box is not None
        left, top = round(box["x"]) - 12, round(box["y"]) - 12  # without the map, so that a phone shows it large enough
        picture = Image.open(BytesIO(page.screenshot())).crop((left, top, 1280, 800))
        save(picture, "pose_search.png", picture.width)
        browser.close()


def _standing(page: Any) -> int:
    """The query whose pose is nearest to the most central one of training."""
    far = "labelDistances(LABELS.items, labelOf(LABELS.start, 0))"
    return int(page.evaluate(f"lowest({far}, order.slice().sort((a, b) => a - b), 1)[0]"))


def drag(page: Any, joint: str, x: float, y: float) -> None:
    """Drags a joint to a place beside the neck, in lengths of the trunk."""
    names = page.evaluate("LABELS.joints")
    box = page.locator("#skeleton").bounding_box()
    read = "(dots) => dots.map((dot) => [dot.getAttribute('cx'), dot.getAttribute('cy')].map(Number))"
    places = [
        (box["x"] + left * box["width"] / 240, box["y"] + top * box["width"] / 240)
        for left, top in page.eval_on_selector_all("#skeleton .dot", read)
    ]
    neck, hip = places[names.index("neck")], places[names.index("right_hip")]
    trunk = hip[1] - neck[1]
    page.mouse.move(*places[names.index(joint)])
    page.mouse.down()
    page.mouse.move(neck[0] + x * trunk, neck[1] + y * trunk, steps=8)
    page.mouse.up()


def main() -> None:
    """Makes the pictures of the kinds that are chosen."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", choices=CONFIGS, default=[*CONFIGS])
    given = parser.parse_args()
    for kind in given.only:
        run = given.folder / CONFIGS[kind] / "pictures"
        if not (run / "report.html").is_file():
            train(load(CONFIGS[kind], []), given.folder, folder=run)
        if kind == "poses":
            parts_of_report(run, QUERIES, (0, 2, 4), "gallery.png", 1000)
            pages(run)
        elif kind == "rooms":
            parts_of_report(run, QUERIES, (0, 2, 4), "gallery_layout.png", 1000)
        else:
            parts_of_report(run, QUERIES, (0, 4), "gallery_captions.png", 1000)


if __name__ == "__main__":
    main()
