"""Tables and folders as they are in the wild: what is read, what is said of it, and nothing lost without a word."""

import json
import shutil
from unicodedata import normalize

import pytest
from support.refusals import refused, refuses
from support.tables import dials, write_table

from contml.tasks.table.file import file


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("messy")
    return folder, dials(folder, 30)


@pytest.fixture
def rows(made, tmp_path):
    """Thirty dials, with their images in img/."""
    folder, rows = made
    shutil.copytree(folder / "img", tmp_path / "img")
    return [{name: row[name] for name in ("image", "reading", "colour")} for row in rows]


def shown(task):
    """What is printed of the columns, on one line."""
    return " | ".join(cell for line in task.columns for cell in line)


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_names_of_images_in_another_unicode_form(tmp_path, rows, form):
    other = "NFD" if form == "NFC" else "NFC"
    for row in rows:
        name = f"größe {row['image'][4:]}"
        (tmp_path / row["image"]).rename(tmp_path / "img" / normalize(other, name))
        row |= {"image": normalize(form, f"img/{name}")}
    task = file(str(write_table(tmp_path / "items.csv", rows)), {"reading": "number"})
    assert len(task.train) + len(task.test) == 30
    assert all(task.train.image(row).is_file() for row in range(len(task.train)))


def test_rows_that_repeat_an_image_are_counted(tmp_path, rows):
    path = write_table(tmp_path / "items.csv", [*rows, rows[3], rows[3], rows[4]])
    assert "3 rows repeat the image of another row" in shown(file(str(path), {"reading": "number"}))
    path = write_table(tmp_path / "items.csv", rows)
    assert "repeat" not in shown(file(str(path), {"reading": "number"}))


@pytest.mark.parametrize("word", ["NA", "N/A", "#N/A", "<NA>", "NaT", "-nan", "null", "None", "NONE", "?", "-", "\\N"])
def test_words_that_mean_a_missing_value_are_no_class(tmp_path, rows, word):
    for row in rows[::3]:
        row["colour"] = word
    path = write_table(tmp_path / "items.csv", rows)
    with refuses("items.csv:2", "no colour (10 such of 30 rows)", hint=f"missing_words=[] if '{word}' (10 cells)"):
        file(str(path), {"colour": "class"})
    task = file(str(path), {"colour": "class"}, missing="drop")
    assert word not in task.train.labels.names
    assert f"read as missing: '{word}' (10 cells)" in shown(task)
    assert "10 without a value in 'colour'" in shown(task)
    kept = file(str(path), {"colour": "class"}, table={"missing_words": []})
    assert word in kept.train.labels.names
    assert len(kept.train) + len(kept.test) == 30


def test_a_class_may_be_written_in_two_unicode_forms(tmp_path, rows):
    for number, row in enumerate(rows):
        row["colour"] = normalize(("NFC", "NFD")[number // 2 % 2], ("grün", "blau")[number % 2])
    assert "2 classes of" in shown(file(str(write_table(tmp_path / "items.csv", rows)), {"colour": "class"}))


def photographs(tmp_path, rows, name):
    """The images in photos/, named by their row number."""
    (tmp_path / "photos").mkdir()
    for number, row in enumerate(rows):
        target = tmp_path / "photos" / name(number)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(tmp_path / row["image"], target)
    return str(tmp_path / "photos")


@pytest.mark.parametrize(
    ("name", "pattern", "column", "kind"),
    [
        (lambda n: f"{20 + n % 9}_{'fm'[n % 2]}_{n:04}.PNG", "{age}_{sex}_*.png", "age", "number"),
        (lambda n: f"{n / 8}_m.png", "{age}_*.png", "age", "number"),
        (lambda n: f"{10 - n}.{n % 10}°_m.png", "{degrees}°_*.png", "degrees", "number"),
        (lambda n: f"Größe {n % 7} cm, Nr {n}.png", "größe {size} cm*.png", "size", "number"),
        (lambda n: normalize("NFD", f"größe_{'äö'[n % 2]}_{n}.png"), "größe_{sex}_*", "sex", "class"),
        (lambda n: f"2024-01-{n + 1:02}_{n}.png", "{day}_*.png", "day", "date"),
        (lambda n: f"IMG_202401{n + 1:02}_1234{n:02}.png", "IMG_{day}_*.png", "day", "date"),
        (lambda n: f"{'ab'[n % 2]}/{n + 0.5}.png", "{place}/{age}.png", "age", "number"),
    ],
)  # fmt: skip
def test_labels_in_names_as_cameras_and_people_write_them(tmp_path, rows, name, pattern, column, kind):
    task = file(photographs(tmp_path, rows, name), {column: "auto"}, pattern=pattern)
    assert [column, kind] in [line[:2] for line in task.columns]
    assert len(task.train) + len(task.test) == 30


def test_the_folder_of_a_class_and_what_is_beside_it_are_shown(tmp_path, rows):
    root = photographs(tmp_path, rows, lambda n: f"{'ab'[n % 2]}/{'xyz'[n % 3]}/{n}.png")
    assert "a folder for each class, the outer of several" in shown(file(root))
    write_table(tmp_path / "photos" / "items.csv", rows)
    (tmp_path / "photos" / "README.txt").write_text("notes")
    assert "the outer of several; items.csv not read" in shown(file(root))
    assert "README" not in shown(file(root))


def test_of_two_columns_of_images_none_is_taken_without_a_word(tmp_path, rows):
    pairs = [{"left": row["image"], "right": rows[-1 - n]["image"], "score": n % 7} for n, row in enumerate(rows)]
    path = write_table(tmp_path / "items.csv", pairs)
    with refuses("items.csv", "2 columns of image paths: left, right", hint="image=left"):
        file(str(path), {"score": "number"})
    assert len(file(str(path), {"score": "number"}, image="right").train) > 15
    same = [row | {"copy": row["image"]} for row in rows]
    assert len(file(str(write_table(tmp_path / "items.csv", same)), {"reading": "number"}).train) > 15


def test_images_that_are_not_decoded_do_not_hide_their_column(tmp_path, rows):
    for row in rows[:15]:
        row["image"] = row["image"].replace(".png", ".heic")
    path = write_table(tmp_path / "items.csv", rows)
    refused(lambda: file(str(path), {"reading": "number"}), "items.csv:2", "no image", hint="root")


def test_dates_of_a_given_form(tmp_path, rows):
    for n, row in enumerate(rows):
        row |= {"day": f"{n % 28 + 1:02}.{n % 12 + 1:02}.2024", "iso": f"2024-{n % 12 + 1:02}-{n % 28 + 1:02}"}
    path = str(write_table(tmp_path / "items.csv", rows))
    one, two = (file(path, {name: kind}, image="image") for name, kind in (("day", "date:%d.%m.%Y"), ("iso", "date")))
    assert (one.train.labels.pairwise() == two.train.labels.pairwise()).all()
    section = '{"kind": "date", "weight": 1.0, "format": "%d.%m.%Y", "scale": "std"}'
    assert f'task.labels={{"day": {section}}}' in one.suggested(one.train)[1]
    refused(lambda: file(path, {"day": "date:%m/%d/%Y"}, image="image"), "items.csv:2: day", "'01.01.2024'")
    for form in ("%d.%m", "%q"):
        with refuses("labels.day.format", f"'{form}'", "with a year"):
            file(path, {"day": f"date:{form}"}, image="image")


def test_annotations_of_coco(tmp_path, rows):
    images = [{"id": n + 1.0, "file_name": row["image"], "width": 32, "height": 32} for n, row in enumerate(rows)]
    note = {"iscrowd": "0", "bbox": [0, 0, 1, 1]}
    notes = [note | {"id": n, "image_id": n // 2 + 1, "category_id": n % 3} for n in range(60)]
    notes[5]["iscrowd"] = "1"
    categories = [{"id": n, "name": name} for n, name in enumerate(("cat", "dog", "owl"))]
    content = {"images": images, "annotations": [*notes, {"id": 99, "image_id": 99, "category_id": 1}]}
    (tmp_path / "a.json").write_text(json.dumps(content | {"categories": categories}))
    task = file(str(tmp_path / "a.json"), {"category": "tags"})
    assert len(task.train) + len(task.test) == 30
    assert "1 annotations of images that are not listed" in shown(task)
    assert "1 crowds" in shown(task)
    assert "3 tags, up to 2 per row" in shown(task)
    captions = [{"id": n, "image_id": n // 2 + 1, "caption": f"a dial number {n} on the wall"} for n in range(60)]
    (tmp_path / "b.json").write_text(json.dumps({"images": images, "annotations": captions}))
    assert "up to 2 per row" in shown(file(str(tmp_path / "b.json"), {"caption": {"kind": "captions", "dim": 8}}))
    people = [note | {"keypoints": [1, 1, 2]} for note in notes]
    (tmp_path / "c.json").write_text(json.dumps({"images": images, "annotations": people, "categories": categories}))
    refused(lambda: file(str(tmp_path / "c.json"), {"keypoints": "vector"}), "c.json: column keypoints", "pose/coco")
