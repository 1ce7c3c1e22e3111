"""Search by label on the page, in Chromium: as in Python, by mouse, by touch and by keys."""

import numpy as np
import pytest
import torch
from support.browser import opened, query, rows
from support.explored import numbers, poses, searchable

import contml as library
from contml.app.explore import write_page
from contml.contracts import Measure

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(explored, tmp_path_factory):
    return write_page(tmp_path_factory.mktemp("page"), explored).parent


def label_of(page):
    """The joints of the skeleton `[J, 2]`, and which are shown."""
    values, visible = page.evaluate("[[...label.values], [...label.visible]]")
    return np.array(values).reshape(len(visible), -1), np.array(visible, bool)


def place_of(page, joint):
    """Where a joint is on the screen, and the pixels of the screen per unit of the labels."""
    box, joints = page.locator("#skeleton").bounding_box(), label_of(page)[0]
    read = "(dots) => dots.map((dot) => [dot.getAttribute('cx'), dot.getAttribute('cy')].map(Number))"
    dots = np.array(page.eval_on_selector_all("#skeleton .dot", read)) * box["width"] / 240
    per_unit = np.linalg.norm(dots[0] - dots[1]) / np.linalg.norm(joints[0] - joints[1])
    return (box["x"] + dots[joint, 0], box["y"] + dots[joint, 1]), per_unit


def assert_answers(page, explored, models):
    """The first items are those that Python finds for the pose of the skeleton."""
    joints, shown = label_of(page)
    for number, (view, model) in enumerate(zip(explored.views, models, strict=True), start=1):
        target = model.embed_label({"joints": joints.tolist(), "visible": shown.tolist()})
        gallery = explored.gallery
        distances = torch.from_numpy(model.label_vectors(view.embeddings[gallery].numpy()) - target).norm(dim=1)
        wanted = gallery[distances.argsort(stable=True)[:10]].tolist()
        assert rows(page, f".run:nth-of-type({number}) .by-embedding") == wanted


def test_a_pose_is_dragged_and_the_right_items_answer(chromium, explored, runs, folder):
    models = [library.load(run) for run in runs]
    names = list(explored.split.labels.part_names)
    elbow, wrist = names.index("right_elbow"), names.index("right_wrist")
    with opened(chromium, f"file://{folder}/index.html#3") as page:
        page.locator("#own-label:not([hidden])").wait_for()
        start, shown = label_of(page)
        assert shown.all()
        assert np.allclose(start, explored.split.labels.joints[3], atol=1e-5)
        before = rows(page, ".run:nth-of-type(1) .by-embedding")
        (x, y), per_unit = place_of(page, elbow)
        page.mouse.move(x, y)
        page.mouse.down()
        for step in range(1, 9):  # answers while it moves
            page.mouse.move(x - 1.5 * step, y - 3 * step)
        page.locator("#query h2", has_text="Your pose").wait_for()
        page.evaluate("new Promise(requestAnimationFrame)")
        assert_answers(page, explored, models)
        page.mouse.up()
        moved = label_of(page)[0] - start
        assert np.allclose(moved[elbow], np.array([-12, -24]) / per_unit, atol=0.5 / per_unit)
        assert np.allclose(moved[wrist], moved[elbow])  # it follows
        assert np.allclose(moved[[at for at in range(14) if at not in (elbow, wrist)]], 0)
        assert_answers(page, explored, models)
        assert rows(page, ".run:nth-of-type(1) .by-embedding") != before
        text = page.inner_text("#query")
        assert f"begun with {explored.split.names[3]}" in text
        assert "mean label distance" in text
        # keys: an arrow moves, the space bar leaves a joint out
        joint = page.locator(f"#skeleton [data-joint='{wrist}']")
        joint.focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Shift+ArrowDown")
        step = label_of(page)[0] - start - moved
        assert step[wrist, 0] > 0
        assert step[wrist, 1] == pytest.approx(5 * step[wrist, 0], rel=1e-6)
        assert np.allclose(step[elbow], 0)
        page.keyboard.press("Space")
        assert not label_of(page)[1][wrist]
        assert "left out" in joint.get_attribute("aria-label")
        assert_answers(page, explored, models)
        for other in range(6):  # 7 of 14 joints are too few
            page.locator(f"#skeleton [data-joint='{[at for at in range(14) if at != wrist][other]}']").focus()
            page.keyboard.press("Space")
        assert label_of(page)[1].sum() == 8
        assert "More than half of the 14 joints are needed" in page.inner_text("#own-label-help")
        assert_answers(page, explored, models)
        # the whole pose, its mirror image, and the start
        page.click("text=Reset")
        assert query(page) == explored.split.names[3]
        assert np.allclose(label_of(page)[0], start)
        assert rows(page, ".run:nth-of-type(1) .by-embedding") == before
        page.locator("#skeleton .limbs").focus()
        page.keyboard.press("ArrowLeft")
        step = label_of(page)[0] - start
        assert step[0, 0] < 0
        assert np.allclose(step, step[0])
        page.click("text=Reset")
        page.click("text=Mirror")
        mirrored, (low, high) = label_of(page)[0], (start[:, 0].min(), start[:, 0].max())
        swap = [names.index(n.replace("left", "X").replace("right", "left").replace("X", "right")) for n in names]
        assert np.allclose(mirrored, np.stack([low + high - start[swap, 0], start[swap, 1]], 1))
        assert_answers(page, explored, models)
        # a click on an item takes its pose; a double click on a joint leaves it out
        page.click(".run .by-label li:nth-child(3) button")
        row = page.evaluate("query")
        assert np.allclose(label_of(page)[0], explored.split.labels.joints[row], atol=1e-5)
        page.mouse.dblclick(*place_of(page, wrist)[0])
        assert not label_of(page)[1][wrist]
        page.keyboard.press("Tab")
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("ArrowDown")
        assert query(page) in explored.split.names


def test_hidden_joints_of_an_item_have_a_place_and_can_be_shown(chromium, tmp_path):
    explored = searchable(poses(40, 0, hidden=True), poses(21, 1, hidden=True))
    visible = explored.split.labels.visible
    row = int((~visible).sum(1).argmax())
    write_page(tmp_path / "page", explored)
    with opened(chromium, f"file://{tmp_path}/page/index.html#{row}") as page:
        page.locator("#own-label:not([hidden])").wait_for()
        assert np.array_equal(label_of(page)[1], visible[row])
        hidden = int((~visible[row]).nonzero()[0])
        assert np.isfinite(label_of(page)[0]).all()
        page.locator(f"#skeleton [data-joint='{hidden}']").focus()
        page.keyboard.press("Space")
        assert label_of(page)[1].sum() == visible[row].sum() + 1
        assert rows(page, ".by-label")


def test_a_number_is_searched_by_a_slider(chromium, tmp_path):
    train, items = (numbers(40, seed, Measure("USD", 1e6)) for seed in (0, 1))
    explored = searchable(train, items)
    write_page(tmp_path / "page", explored)
    with opened(chromium, f"file://{tmp_path}/page/index.html#4", 400) as page:
        page.locator("#own-label:not([hidden])").wait_for()
        assert page.inner_text("#slider-value") == items.text(4)
        page.locator("#slider").focus()
        page.keyboard.press("ArrowRight")
        value = page.evaluate("label.values[0]")
        assert value == pytest.approx(float(items.values[4]) + float(train.values.max() - train.values.min()) / 100)
        assert query(page) == f"number: {page.inner_text('#slider-value')}"
        assert page.inner_text("#slider-value") == items.of_vectors(torch.tensor([[value]])).text(0)
        (labelled,), gallery = explored.labelled, explored.gallery
        vectors = labelled.posterior.label_vectors(explored.views[0].embeddings[gallery])
        found = gallery[(vectors - labelled.query(1e6 * value).vector).norm(dim=1).argsort()[:4]].tolist()
        assert rows(page, ".by-embedding") == found
        page.click("text=Reset")
        assert query(page) == "item 4"
