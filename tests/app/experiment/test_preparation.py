"""`contml prepare`: the facts about a data set, and one line per mistake."""

from __future__ import annotations

import json
import shutil

import pytest
from support.caption_sets import write_csv
from support.class_layouts import write_class_table, write_cub, write_inshop, write_sop
from support.paths import DATA_ROOT
from support.pose_sets import pose_files

from contml.app.preparation import prepare

DATA = DATA_ROOT
#: Images of classes in a table.
TABLE = ("table/file", "task.data=own/images.csv", "task.labels={class_name: class}")


def test_a_data_set_of_classes(contml, tmp_path):
    write_class_table(tmp_path / "own")
    status, out, err = contml("prepare", *TABLE)
    assert status == 0, err
    lines = [line.split() for line in out.splitlines()]
    assert ["train", "test"] in lines
    assert ["images", "40", "20"] in lines
    assert ["classes", "8", "4"] in lines
    assert "images per class" in out
    assert "5 to 5" in out
    assert ["cannot", "be", "decoded", "0", "0"] in lines
    assert out.splitlines()[-1].startswith("table/file: all 60 images ")


def test_copies_are_counted(contml, tmp_path):
    """As `contml check` does, and nothing is said where all images differ."""
    write_class_table(tmp_path / "own")
    assert "repeated images" not in contml("prepare", *TABLE)[1]
    first, *_, last = sorted(path for path in (tmp_path / "own").rglob("*") if path.suffix in (".png", ".jpg"))
    shutil.copy(first, last)
    status, out, err = contml("prepare", *TABLE)
    assert status == 0, err
    (line,) = [line for line in out.splitlines() if line.startswith("repeated images: ")]
    assert line.startswith("repeated images: 1 item has the image of another; 1 of the test split is also in the")
    notes = json.loads(contml("prepare", *TABLE, "--json")[1])["notes"]
    assert [*line.split(": ", 1)] in notes


def test_queries_gallery_and_excluded_images(contml, tmp_path):
    write_inshop(tmp_path / "own")
    next((tmp_path / "own/Img/img").glob("MEN/*/id_00000012/*_4_front.jpg")).unlink()
    status, out, err = contml("prepare", "classes/inshop", tmp_path / "own", "task.missing=drop", "--workers", "1")
    assert status == 0, err
    lines = [line.split() for line in out.splitlines()]
    assert ["queries", "8"] in lines
    assert ["gallery", "11"] in lines
    assert ["excluded:", "without", "an", "image", "file", "1"] in lines
    assert "all 59 images" in out


def test_any_task(contml, tmp_path):
    pose_files(tmp_path / "own", hidden=(4,))
    status, out, err = contml(
        "prepare",
        "table/file",
        "task.data=own/joints.npz",
        "task.labels={joints: pose}",
        "task.missing=drop",
        "--size",
        "32",
    )
    assert status == 0, err
    assert ["images", "19", "10"] in [line.split() for line in out.splitlines()]
    assert "excluded: without more than half of its joints" in out
    write_csv(tmp_path / "captions")
    data = ("task.data=captions/captions.csv", "task.root=captions/images", "task.labels={caption: captions}")
    status, out, err = contml("prepare", "table/file", *data, "--size", "32")
    assert status == 0, err
    assert "table/file: all 60 images " in out


def test_broken_images_are_named_and_fail(contml, tmp_path):
    write_class_table(tmp_path / "own")
    for name in ("000_1", "009_2"):
        path = tmp_path / f"own/images/{name}.png"
        path.write_bytes(path.read_bytes()[:60])
    (tmp_path / "own/images/010_0.png").write_text("Not found")
    status, out, err = contml("prepare", *TABLE)
    assert status == 2
    assert ["cannot", "be", "decoded", "1", "2"] in [line.split() for line in out.splitlines()]
    assert "all 60 images" not in out
    lines = err.strip().splitlines()
    assert lines[0].startswith("images/009_2.png: cannot be decoded (")
    assert lines[1].startswith("images/010_0.png: cannot be decoded (")
    assert lines[-1].startswith("contml: images/000_1.png: cannot be decoded (")
    assert "3 of 60 images" in lines[-1]
    assert "images.broken=skip" in lines[-1]
    assert len(lines) == 3
    status, out, err = contml("prepare", *TABLE, "--json")
    assert status == 2
    assert len(json.loads(out)["broken"]) == 3


def test_a_cache_of_resized_images(contml, tmp_path):
    write_class_table(tmp_path / "own")
    arguments = ("prepare", *TABLE, "--size", "36", "--cache", "kept")
    status, out, err = contml(*arguments)
    assert status == 0, err
    assert out.splitlines()[-1] == (
        "kept has 0.000233 GB of resized images; train with images.cache=kept images.resize=36"
    )
    first = {path.name: path.read_bytes() for path in (tmp_path / "kept").iterdir()}
    assert contml(*arguments)[0] == 0  # nothing is decoded again
    assert {path.name: path.read_bytes() for path in (tmp_path / "kept").iterdir()} == first
    changes = ["task=table/file", *TABLE[1:], "images.resize=36", "images.crop=32", "images.cache=kept"]
    sampler = ["sampler.classes=4", "sampler.instances=3"]
    status, _, err = contml("check", "classes/synthetic", *changes, *sampler)
    assert status == 0, err
    assert "decoding" not in err
    (tmp_path / "own/images/000_1.png").write_bytes(b"")
    status, _, err = contml(*arguments)
    assert status == 2
    assert "images/000_1.png: cannot be decoded (" in err
    assert "1 of 60 images" in err


def test_boxes_in_a_cache(tmp_path):
    root = write_cub(tmp_path)
    options = ["task.missing=drop", "task.crop_boxes=true"]
    found = prepare("classes/cub", root, options, size=32, cache=tmp_path / "kept")
    assert (found.images, found.broken, found.cache_bytes) == (60, [], 60 * 32 * 32 * 3)
    both = prepare("classes/cub", root, options[:1], size=32, cache=tmp_path / "kept")
    assert both.cache_bytes == 2 * found.cache_bytes  # whole images and cropped ones are kept separately


def test_a_config_says_which_options_size_and_cache(contml, tmp_path):
    write_cub(tmp_path / "own")
    options = (
        "task.missing=drop",
        "task.crop_boxes=true",
        "images.resize=32",
        "images.crop=28",
        "images.workers=0",
        "images.cache=kept",
    )
    status, out, err = contml("prepare", "classes/proxy_anchor", "own", *options)
    assert status == 0, err
    assert out.splitlines()[-2] == "classes/proxy_anchor: all 60 images exist and can be decoded"
    assert out.splitlines()[-1].endswith("train with images.cache=kept images.resize=32")
    content = {path.name: path.read_bytes() for path in (tmp_path / "kept").iterdir()}
    batches = ("sampler.batch_size=12", "model.backbone=small_cnn", "model.weights=none", "model.pooling=average")
    status, _, err = contml("check", "classes/proxy_anchor", "task.root=own", *options, *batches)
    assert status == 0, err
    assert {path.name: path.read_bytes() for path in (tmp_path / "kept").iterdir()} == content
    assert contml("prepare", "classes/proxy_anchor", "task.root=own", *options)[0] == 0
    assert contml("copy", "classes/proxy_anchor", "mine.yaml")[0] == 0
    assert contml("prepare", "mine.yaml", "own", *options)[0] == 0


def test_broken_images_that_the_config_skips(contml, tmp_path):
    root = write_cub(tmp_path / "own")
    for image in sorted(root.glob("images/*/*_1_*.jpg"))[:2]:
        image.write_bytes(b"Not found")
    options = ("task.missing=drop", "images.resize=32", "images.crop=28", "images.workers=0", "images.broken=skip")
    status, out, err = contml("prepare", "classes/proxy_anchor", "own", *options)
    assert status == 0, err
    assert out.splitlines()[-1].endswith("all 60 images exist; 2 cannot be decoded, and training skips them")
    assert err.count("cannot be decoded") == 2


def test_help(contml):
    status, out, _ = contml("prepare", "--help")
    assert status == 0
    for word in ("CONFIG", "ROOT", "--size", "--cache", "--workers", "task.missing=drop"):
        assert word in out


def test_json(contml, tmp_path):
    write_class_table(tmp_path / "own")
    status, out, _ = contml("prepare", *TABLE, "--json")
    assert status == 0
    found = json.loads(out)
    assert found["facts"][:2] == [["", "train", "test"], ["images", "40", "20"]]
    assert (found["images"], found["broken"]) == (60, [])


#: A data set that is drawn at once.
FEW = ("task.classes=4", "task.per_class=4", "task.test_classes=4", "task.test_per_class=4")


@pytest.mark.parametrize(
    ("arguments", "texts"),
    [
        (("classes/cup", "own"), ["classes/cup: no such config or task", "'classes/cub'"]),
        (("x", "own"), ["x: no such config or task", "contml list configs", "contml list tasks"]),
        (("classes/raw_vthm", "own"), ["images.txt", "40 train images of 8 classes"]),
        (("classes/synthetic", "own"), ["classes/synthetic: its task has no option 'root'", "omit own"]),
        (("classes/synthetic", *FEW), ["classes/synthetic: reads no files"]),
        (("classes/cub",), ["task.root: missing"]),
        (("own",), ["own: a folder, not a config", "contml check --data PATH --images all"]),
        (("none.yaml", "own"), ["none.yaml: cannot be read"]),
        (("classes/cub", "none"), ["none", "CUB-200-2011"]),
        (("classes/cub", "own"), ["images.txt", "40 train images of 8 classes", "9, 10, 11", "5,864"]),
        (("classes/cub", "own", "task.mising=drop"), ["command line: task.mising: unknown key", "'missing'"]),
        (("classes/cub", "own", "missing=drop"), ["'missing=drop'", "task.KEY=VALUE"]),
        (("classes/cub", "own", "task.missing=maybe"), ["task.missing: 'maybe'", "refuse, drop"]),
        (("classes/sop", "own"), ["Ebay_train.txt", "Stanford Online Products"]),
    ],
)
def test_mistakes(refused, tmp_path, arguments, texts):
    write_cub(tmp_path / "own")
    line = refused("prepare", *arguments)
    for text in texts:
        assert text in line


def test_a_folder_whose_name_looks_like_a_number(contml, tmp_path):
    write_sop(tmp_path / "1e3")
    status, _, err = contml("prepare", "classes/sop", "1e3", "task.missing=drop")
    assert status == 0, err


@pytest.mark.parametrize(("pack", "label"), [("omniglot_small", "class_name"), ("cars196_small", "class_id")])
def test_the_packs(contml, pack, label):
    if not (DATA / pack).is_dir():
        pytest.skip(f"no pack {pack}: set CONTML_DATA to its folder")
    status, out, err = contml(
        "prepare",
        "table/file",
        f"task.data={DATA / pack / 'images.csv'}",
        f"task.labels={{{label}: class}}",
        "--size",
        "32",
    )
    assert status == 0, err
    assert {"omniglot_small": "all 2,260 images", "cars196_small": "all 2,352 images"}[pack] in out
