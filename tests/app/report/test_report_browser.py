"""The report in Chromium: no error, nothing cut at the side of a phone, dark and on paper."""

import pytest
import torch
from PIL import Image
from support.retrieval import evaluate

from contml.app.report.page import About, write_report
from contml.app.report.ranking import RankingContent
from contml.data import Pixels, Split, View
from contml.evaluation import Evaluated
from contml.labels import ClassLabels, NumberLabels, WeightedLabels

pytestmark = pytest.mark.slow

HOSTILE = "<img src=x onerror=alert(1)>&'</pre><script>alert(2)</script>" + 90 * "x" + " 写真"


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    """A report with every section, of long and hostile texts."""
    torch.manual_seed(0)
    values = torch.randn(40, 1)
    spaces = {NumberLabels(values, unit=HOSTILE): 1.0, ClassLabels(torch.arange(40) % 3): 1.0}
    images = [Pixels(Image.new("RGB", (40, 30), (6 * row, 90, 200))) for row in range(40)]
    labels = WeightedLabels(spaces).with_texts([f"{row} 歳\n{HOSTILE}" for row in range(40)])
    options = {"groups": torch.arange(40) // 4, "view": View(legend=[("#ff0000", HOSTILE)])}
    split = Split(images, [f"{HOSTILE}{row}" for row in range(40)], labels, **options)
    evaluation, ranking = evaluate(values + torch.randn(40, 1), split.labels, groups=split.groups)
    rows = [{"event": "train", "step": step, "loss": 1 / (step + 1), "learning_rate": 0.1} for step in range(9)]
    about = About(HOSTILE, HOSTILE, rows, [HOSTILE], HOSTILE)
    evaluated = Evaluated(evaluation, "test", "last", epoch=1, epochs=1)
    return write_report(tmp_path_factory.mktemp("report"), RankingContent(ranking), split, evaluated, about)


@pytest.mark.parametrize(("width", "scheme"), [(400, "light"), (1280, "dark")])
def test_nothing_is_wrong_or_cut(chromium, page_file, width, scheme):
    page = chromium.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
    problems = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: problems.append(dialog.message) or dialog.dismiss())
    page.on("request", lambda r: r.url.startswith(("data:", "file:")) or problems.append(r.url))
    try:
        page.goto(f"file://{page_file}")
        page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
        links, headings = page.locator(".contents a"), page.locator("h2")
        assert links.all_inner_texts() == headings.all_inner_texts()
        text_of_target = "document.querySelector(each.getAttribute('href')).innerText"
        assert links.evaluate_all(f"all => all.map(each => {text_of_target})") == headings.all_inner_texts()
        first = page.locator(".opening .query")
        assert first.locator("h3").all_inner_texts() == ["Best query", "Median query", "Worst query"]
        widths = first.locator(".item img").evaluate_all("all => all.map(each => each.getBoundingClientRect().width)")
        assert len(widths) == 3 * 2 * 4  # by the embedding, and by the oracle
        assert min(widths) >= 80
        assert page.evaluate("[...document.images].every(each => each.complete && each.naturalWidth > 0)")
        back = "rgb(255, 255, 255)" if scheme == "light" else "rgb(22, 24, 27)"
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == back
        assert page.inner_text("h1") == HOSTILE
        texts = page.eval_on_selector_all(".opening .label", "all => all.map(each => each.textContent)")
        assert any("歳" in text for text in texts)
        alignments = "all => all.map(e => getComputedStyle(e).textAlign)"
        assert len(set(page.eval_on_selector_all(".item b, .item .label", alignments))) == 1
        for cells, least in ((".named td:first-child", 160), ("td:last-child", 54)):
            drawn = page.eval_on_selector_all(cells, "all => all.map(each => each.getBoundingClientRect().width)")
            assert drawn
            assert width > 640 or min(drawn) >= least
        page.emulate_media(media="print")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert problems == []
    finally:
        page.close()
