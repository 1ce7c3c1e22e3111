"""What would be read wrongly without a word: names that look alike, numbers, maps, pairs, and hints that mislead."""

import json

import numpy as np
import pyarrow
import pytest
from PIL import Image
from pyarrow import parquet
from support.refusals import refused, refuses

from contml import PairLabels, TripletLabels
from contml._support.errors import InputError
from contml.data.tables import read_table
from contml.tasks.table.file import file


@pytest.fixture
def table(tmp_path):
    """Write a table of 40 images with a column; returns its path."""

    def save(cells, header="image;label", mark=";"):
        for number in range(40):
            Image.fromarray(np.full((16, 16, 3), number, np.uint8)).save(tmp_path / f"{number}.png")
        lines = [f"{number}.png{mark}{cell}" for number, cell in enumerate(cells)]
        (tmp_path / "t.csv").write_text("\n".join([header, *lines]))
        return tmp_path / "t.csv"

    return save


def printed(path, kind, **options):
    return " ".join(" ".join(line) for line in file(str(path), labels={"label": kind}, **options).columns)


LOOKS = {
    "composed": ("M\u00fcller", "Mu\u0308ller"),
    "full width": ("dog", "\uff44\uff4f\uff47"),
    "byte-order mark": ("dog", "\ufeffdog"),
    "zero width": ("dog", "do\u200bg"),
    "soft hyphen": ("dogfish", "dog\u00adfish"),
    "apostrophe": ("o'brien", "o\u2019brien"),
    "hyphen": ("a-b", "a\u2011b"),
    "case": ("Dog", "dog"),
}


@pytest.mark.parametrize("pair", LOOKS.values(), ids=LOOKS)
@pytest.mark.parametrize("use", ["class", "tags", "group", "levels"])
def test_names_that_look_alike_are_named(table, pair, use):
    names = [f"{pair[number % 2]}" if number % 4 < 2 else "other" for number in range(40)]
    if use == "group":
        path = table([f"{number % 7};{name}" for number, name in enumerate(names)], "image;label;person")
        text = printed(path, "number", group="person")
    elif use == "levels":
        text = printed(table(names), {"kind": "ordinal", "levels": [*pair, "other"]})
    else:
        text = printed(table(names), use)
    if pair == LOOKS["composed"] and use in ("class", "tags") and "spelled alike" not in text:
        assert f"2 {use.removesuffix('s')}" in text, "one class"
        return
    assert not {*text.partition("spelled alike: ")[2]} & {*"\u200b\ufeff\u00ad\u0308"}, "written out"
    assert "spelled alike" in text


@pytest.mark.parametrize("pair", [("a1", "a1\u200b"), ("é", "e\u0301")])
def test_items_of_judgments_that_look_alike_are_named(tmp_path, pair):
    names = [*pair, *(f"item {letter}" for letter in "cdefghijk")]
    for number in range(len(names)):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(tmp_path / f"{number}.png")
    (tmp_path / "items.csv").write_text("id,image\n" + "".join(f"{n},{k}.png\n" for k, n in enumerate(names)))
    pairs = [(a, b) for k, a in enumerate(names) for b in names[:k]]
    (tmp_path / "p.csv").write_text("a,b,score\n" + "".join(f"{a},{b},{k % 5}\n" for k, (a, b) in enumerate(pairs)))
    lines = file(str(tmp_path / "p.csv")).columns
    assert "spelled alike" in " ".join(" ".join(line) for line in lines)


def test_thousands_that_may_be_decimals_are_named(table):
    assert "decimal=comma if it is 869500" in printed(table([*range(200_000, 239_000, 1000), "869.500"]), "number")
    cells = [f"1.{number:03}" if number % 3 else f"{900 + number}" for number in range(40)]
    path = table(cells)
    assert all(
        "decimal=comma" in printed(path, kind) for kind in ("number", "vector", {"kind": "number", "scale": "log"})
    )
    assert "decimal=comma" not in printed(path, "number", table={"decimal": "point"})
    task = file(str(path), labels={"label": {"kind": "number", "scale": "none"}}, table={"decimal": "comma"})
    distances = task.train.labels.pairwise()
    values = {int(cell.replace(".", "")) for cell in cells}
    assert 100 < distances.max() <= max(values) - min(values)
    for plain in ([f"{number / 8:.3f}" for number in range(40)], [f"{number % 9}.5" for number in range(40)]):
        assert "decimal=comma" not in printed(table(plain), "number")


def test_judged_scores_with_thousands_are_named(tmp_path):
    for number in range(12):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(tmp_path / f"{number}.png")
    pairs = [(a, b) for a in range(12) for b in range(a)]
    rows = [f"{a}.png;{b}.png;{f'1.{a:03}' if b % 2 else 900 + a}" for a, b in pairs]
    (tmp_path / "p.csv").write_text("\n".join(["a;b;score", *rows]))
    lines = file(str(tmp_path / "p.csv")).columns
    assert "decimal=comma" in " ".join(" ".join(line) for line in lines)


def maps(tmp_path, draw):
    (tmp_path / "maps").mkdir()
    for number in range(40):
        draw(number).save(tmp_path / f"maps/{number}.png")
    return [f"maps/{number}.png" for number in range(40)]


def areas(number):
    labels = np.zeros((48, 48), np.uint8)
    labels[:, : 8 + number % 30] = 1
    labels[: 10 + number % 20, :5] = 2
    return labels


@pytest.mark.parametrize("swaps", [True, False])
def test_palettes_that_differ_are_named(tmp_path, table, swaps):
    def draw(number):
        order = [0, 2, 1] if swaps and number % 2 else [0, 1, 2]
        picture = Image.fromarray(np.array(order, np.uint8)[areas(number)])
        colours = [[0, 0, 0], [200, 0, 0], [0, 200, 0]]
        picture.putpalette([c for k in order for c in colours[k]])
        return picture

    text = printed(table(maps(tmp_path, draw)), "map")
    assert (f"palette of {tmp_path}/maps/0.png" in text, "palette" in text) == (swaps, swaps)


@pytest.mark.parametrize("method", [Image.Resampling.BILINEAR, Image.Resampling.NEAREST])
def test_interpolated_maps_are_named(tmp_path, table, method):
    def draw(number):
        return Image.fromarray(areas(number) * 100).resize((30, 30), method)

    is_named = "interpolation" in printed(table(maps(tmp_path, draw)), "map")
    assert is_named == (method == Image.Resampling.BILINEAR)


@pytest.mark.parametrize("ignore", [None, 0])
def test_a_usual_number_of_no_class_is_named_whatever_is_ignored(tmp_path, table, ignore):
    def draw(number):
        labels = areas(number)
        labels[0] = 255
        return Image.fromarray(labels)

    with refuses("maps/0.png", "class number 255", hint="ignore=255" if ignore is None else "write 0 in its place"):
        file(str(table(maps(tmp_path, draw))), labels={"label": {"kind": "map", "ignore": ignore}})


@pytest.mark.parametrize("header", ["photo_x;photo_y;likeness", "before;after;mark", "one;other;third"])
@pytest.mark.parametrize("image", [None, 0])
def test_a_score_of_two_images_is_no_label_of_the_first(table, header, image):
    third = "{}.png" if "third" in header else "{}"
    path = table([f"{(n + 3) % 40}.png;{third.format((n * 7 + 1) % 40)}" for n in range(40)], header)
    options = {} if image is None else {"image": header.split(";")[image]}
    with pytest.raises(InputError, match=r"a, b, score"):
        file(str(path), **options)


@pytest.mark.parametrize("header", ["image_a;image_b;similarity", "img1;img2;rating", "anchor;positive;negative"])
def test_two_images_under_a_name_of_judgments_are_judgments(table, header):
    third = "{}.png" if "negative" in header else "{}"
    path = table([f"{(n + 3) % 40}.png;{third.format((n + 9) % 40)}" for n in range(40)], header)
    task = file(str(path), judgments={"by": "judgment"})
    assert isinstance(task.train.labels, TripletLabels if "negative" in header else PairLabels)


@pytest.mark.parametrize("scale", [1, 16])
def test_joints_that_are_shares_of_the_image_are_named(table, scale):
    random = np.random.default_rng(0)
    path = table([json.dumps((scale * random.random((5, 2))).round(3).tolist()) for _ in range(40)])
    assert ("shares of the image" in printed(path, "pose")) == (scale == 1)


def test_classes_of_hugging_face_have_their_names(tmp_path):
    kind = {"names": ["cat", "dog"], "_type": "ClassLabel"}
    for of_list in ({"feature": kind, "_type": "Sequence"}, {"feature": kind, "_type": "List"}):
        about = json.dumps({"info": {"features": {"label": kind, "all": of_list, "x": {"_type": "Value"}}}})
        values = {"label": [1, 0, -1, None], "all": [[0, 1], [], None, [-1]], "x": [1, 0, 1, 0]}
        parquet.write_table(
            pyarrow.table(values).replace_schema_metadata({"huggingface": about}), tmp_path / "a.parquet"
        )
        columns = read_table(tmp_path / "a.parquet").columns
        assert columns["label"].texts() == ["dog", "cat", "", ""]
        assert (columns["all"].lists()[:3], columns["x"].kind) == ([["cat", "dog"], [], None], "number")
    parquet.write_table(
        pyarrow.table({"label": [2]}).replace_schema_metadata({"huggingface": about}), tmp_path / "b.parquet"
    )
    refused(lambda: read_table(tmp_path / "b.parquet"), "b.parquet: column label", "class numbers 2 to 2", "below 2")


@pytest.mark.parametrize("day", ["0001-01-01", "1600-05-01", "9999-12-31"])
def test_dates_of_spark_are_exact(tmp_path, day):
    days = pyarrow.array([day]).cast(pyarrow.date32()).cast(pyarrow.timestamp("us"))
    parquet.write_table(pyarrow.table({"day": days}), tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    assert read_table(tmp_path / "a.parquet").columns["day"].texts() == [f"{day} 00:00:00"]


def test_a_cell_that_unpacks_to_much_more_than_the_file_is_refused(tmp_path):
    parquet.write_table(pyarrow.table({"x": ["x" * 60_000_000]}), tmp_path / "a.parquet", compression="zstd")
    refused(lambda: read_table(tmp_path / "a.parquet"), "a.parquet", "unpacks to")


def test_lists_of_many_texts_count_as_what_they_take(tmp_path):
    texts = pyarrow.DictionaryArray.from_arrays(pyarrow.array(np.zeros(50_000_000, np.int8)), ["a"])
    lists = pyarrow.ListArray.from_arrays(pyarrow.array([0, len(texts)], pyarrow.int32()), texts)
    parquet.write_table(pyarrow.table({"x": lists}), tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").stat().st_size < 1_000_000
    refused(lambda: read_table(tmp_path / "a.parquet"), "a.parquet", "unpacks to 1,200,000,000 bytes")


def test_joints_that_are_numbers_are_refused(tmp_path):
    people = [{"name": "0.png", "joints": [0.8, 1.5], "visible": [1, 1]}]
    (tmp_path / "joints.json").write_text(json.dumps({"people": people}))
    Image.new("RGB", (8, 8)).save(tmp_path / "0.png")
    refused(lambda: file(str(tmp_path / "joints.json"), labels={"joints": "pose"}), "row 1: joints", "[0.8, 1.5]")
