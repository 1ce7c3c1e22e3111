"""Readers of caption files: the official layouts in miniature with their traps, anyone's files, and the real packs."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import pytest
import torch
from caption_sets import TEST, TRAIN, save, scenes, write_coco, write_csv, write_flickr, write_karpathy
from contml.tasks.captions import CaptionFiles, CaptionsCOCO, CaptionsFlickr
from contml.tasks.captions.flickr import read_tokens

from contml import InputError
from contml.contracts import Split, Task
from contml.experiment import evaluate_run, load, train
from contml.images import Images

DATA = Path(os.environ.get("CONTML_DATA", Path(__file__).parents[3] / "shared" / "data"))
needs = {
    pack: pytest.mark.skipif(not (DATA / pack).is_dir(), reason=f"no pack {pack}: set CONTML_DATA to its folder")
    for pack in ("flickr8k_1500", "coco_mini_2017")
}
#: gensim leaves text files of vectors open.
gensim_leaves_open = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
#: What makes the training of a protocol a matter of seconds.
SMALL = [
    *("model.backbone=small_cnn", "model.weights=none", "images.resize=24", "images.crop=24", "images.workers=0"),
    *("images.scale_jitter=0", "images.shift=0", "sampler.batch_size=12", "sampler.batches=2", "training.epochs=1"),
]
GLOVE = DATA / "flickr8k_1500" / "word_vectors" / "glove.6B.50d.flickr8k.txt.gz"


@pytest.fixture
def flickr(tmp_path):
    write_flickr(tmp_path)
    return tmp_path


@pytest.fixture
def coco(tmp_path):
    write_coco(tmp_path)
    return tmp_path


@pytest.fixture
def own(tmp_path):
    write_csv(tmp_path)
    return tmp_path


def rejected(message, task, *arguments, **options):
    with pytest.raises(InputError, match=message) as caught:
        task(*map(str, arguments), **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def edit(path, change):
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")


def edit_json(path, change):
    told = json.loads(path.read_text())
    change(told)
    path.write_text(json.dumps(told))


# Flickr


def test_token_file_and_lists(flickr):
    task = CaptionsFlickr(str(flickr), dim=10)
    assert isinstance(task, Task)
    assert isinstance(task.test, Split)
    assert (len(task.train), len(task.test)) == (TRAIN, TEST)
    assert task.test.queries is None
    assert task.train.name(0) == str(flickr / "Flicker8k_Dataset" / "1000000_0000000000.jpg")
    assert task.train.captions[0] == [f"{caption.capitalize()} ." for caption in scenes(1)[0][1]]
    batch = next(iter(Images(resize=16, crop=16).test_batches(task.test, None, 8)))
    assert batch.images.shape == (8, 3, 16, 16)
    picture = task.train.draw(0, 200)
    assert picture.size == (200, 200)


def test_an_image_that_is_not_there_is_refused_or_left_out(flickr):
    """Five captions of 2258277193_586949ec62.jpg.1 have no image; in no list, they are left alone."""
    said = read_tokens(flickr / "Flickr8k.token.txt")
    assert len(said["2258277193_586949ec62.jpg.1"]) == 5
    edit(flickr / "Flickr_8k.trainImages.txt", lambda text: text + "2258277193_586949ec62.jpg.1\nnobody.jpg\n")
    message = rejected("no such image", CaptionsFlickr, flickr)
    assert str(flickr / "Flicker8k_Dataset" / "2258277193_586949ec62.jpg.1") in message
    assert f"2 of {TRAIN + 2} training images" in message
    assert "task.missing=drop" in message
    task = CaptionsFlickr(str(flickr), missing="drop", dim=10)
    assert len(task.train) == TRAIN
    assert task.train.dropped == 2


def test_images_without_captions_are_refused_or_left_out(flickr):
    path = flickr / "Flickr8k.token.txt"
    name = read_lists(flickr)[0]
    edit(path, lambda text: "\n".join(line for line in text.split("\n") if not line.startswith(name)))
    rejected(f"no captions of .*{name} \\(1 of {TRAIN} training images have none\\)", CaptionsFlickr, flickr)
    assert CaptionsFlickr(str(flickr), missing="drop", dim=10).train.dropped == 1


def read_lists(folder):
    return (folder / "Flickr_8k.trainImages.txt").read_text().split()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("a.jpg#0  two spaces for the tab", "no tab after the key"),
        ("a.jpg\tno number", "a key without '#' and a number"),
        ("a.jpg#x\tno number", "a key without '#' and a number"),
        ("#0\tno name", "a key without '#' and a number"),
        ("a.jpg#0\tfirst\n\na.jpg#0\tagain", "6: repeats a.jpg#0 of line 4"),
    ],
)
def test_a_bad_line_is_told_by_its_number(tmp_path, line, message):
    path = tmp_path / "tokens.txt"
    path.write_text(f"\nb.jpg#0\tone\n\n{line}\n")
    with pytest.raises(InputError, match=message) as caught:
        read_tokens(path)
    assert str(caught.value).startswith(f"{path}:4: " if "repeats" not in message else f"{path}:6: ")


def test_a_token_file_is_read_to_the_letter(tmp_path):
    path = tmp_path / "tokens.txt"
    lines = [
        "c#4.jpg.1#1\tsecond, number # 2 of\ttwo",  # the name is before the last '#' of the key
        "c#4.jpg.1#0\tfirst \u2028 still first \x85 and \x1c too",
        "a.jpg#0\t   ",
        "a.jpg#2\tA dog .\r",
        "b.jpg#0\t",
    ]
    path.write_bytes(b"\xef\xbb\xbf" + "\n".join(lines).encode())
    assert read_tokens(path) == {
        "c#4.jpg.1": ["first \u2028 still first \x85 and \x1c too", "second, number # 2 of\ttwo"],
        "a.jpg": ["A dog ."],
        "b.jpg": [],
    }


def test_encodings(tmp_path):
    path = tmp_path / "tokens.txt"
    path.write_bytes("a.jpg#0\tplain\nb.jpg#0\tcaf\xe9\n".encode("latin-1"))
    with pytest.raises(InputError, match="not utf-8 text") as caught:
        read_tokens(path)
    assert str(caught.value).startswith(f"{path}:2: ")
    assert "byte 0xe9" in str(caught.value)
    assert read_tokens(path, "latin-1")["b.jpg"] == ["caf\xe9"]
    with pytest.raises(InputError, match=r"task\.encoding=latin-9999: no such encoding"):
        read_tokens(path, "latin-9999")


def test_captions_without_words_are_dropped_from_the_labels(flickr):
    name = read_lists(flickr)[0]
    edit(flickr / "Flickr8k.token.txt", lambda text: text.replace(f"{name}#0\t", f"{name}#0\tA\n{name}#7\t", 1))
    task = CaptionsFlickr(str(flickr), dim=10)
    assert len(task.train) == TRAIN
    assert task.train.labels.dropped == 1
    for k in range(5):
        edit(flickr / "Flickr8k.token.txt", lambda text, k=k: change_line(text, f"{name}#{k}", "a the of"))
    edit(flickr / "Flickr8k.token.txt", lambda text: change_line(text, f"{name}#7", "is on"))
    rejected(f"{name}: no caption has a word that has a vector", CaptionsFlickr, flickr)
    task = CaptionsFlickr(str(flickr), empty="drop", dim=10)
    assert task.train.dropped == 1


def change_line(text, key, caption):
    return "\n".join(f"{key}\t{caption}" if line.startswith(f"{key}\t") else line for line in text.split("\n"))


def test_lists_without_the_ending_and_bad_lists(flickr):
    train = flickr / "Flickr_8k.trainImages.txt"
    names = read_lists(flickr)
    train.write_text("\n".join(name.removesuffix(".jpg") for name in names))
    assert len(CaptionsFlickr(str(flickr), dim=10).train) == TRAIN
    train.write_text("\n".join([*names, "", names[3]]))
    rejected(f"Flickr_8k.trainImages.txt:{TRAIN + 2}: {names[3]} stands twice, first in line 4", CaptionsFlickr, flickr)
    train.write_text("\n \n")
    rejected("names no images", CaptionsFlickr, flickr)
    train.write_text("\n".join(names[:2]))
    rejected(r"2 of 2 training images have a file and a caption; a split needs at least 3", CaptionsFlickr, flickr)
    train.write_text("\n".join(names))
    test = flickr / "Flickr_8k.testImages.txt"
    edit(test, lambda text: text + names[5])
    rejected(f"{names[5]} is in train and in test \\(1 such images\\)", CaptionsFlickr, flickr)


def test_the_table_that_kaggle_hands_out_is_told_from_a_token_file_and_read(flickr):
    said = read_tokens(flickr / "Flickr8k.token.txt")
    listed = read_lists(flickr)
    with (flickr / "captions.txt").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["image", "caption"])
        rows.writerows([name, caption] for name in listed for caption in said[name])
    rejected(
        r"captions.txt:1: a header \('image,caption'\), so no token file; read it with task=captions/files",
        CaptionsFlickr,
        flickr,
        captions="captions.txt",
    )
    (flickr / "lists.json").write_text(json.dumps({"train": listed[:30], "test": listed[30:]}))
    options = {"captions": "captions.txt", "images": "Flicker8k_Dataset", "lists": "lists.json"}
    task = CaptionFiles(str(flickr), **options)
    assert (len(task.train), len(task.test)) == (30, 10)
    assert task.train.captions[0] == said[listed[0]]


def test_files_that_are_not_there(flickr, tmp_path):
    rejected("task.root=nowhere: no such folder", CaptionsFlickr, "nowhere")
    message = rejected("no such file; task.captions names it in", CaptionsFlickr, flickr, captions="results.token")
    assert "which has Flicker8k_Dataset, Flickr8k.token.txt" in message
    rejected("no such file; task.train names it", CaptionsFlickr, flickr, train="train.txt")
    rejected(
        r"task.vectors: no such file glove.txt, in .* or in the current folder; give a file of word vectors, or null",
        CaptionsFlickr,
        flickr,
        vectors="glove.txt",
    )
    rejected("is a directory|cannot be read", CaptionsFlickr, flickr, captions="Flicker8k_Dataset")
    message = rejected("no such image", CaptionsFlickr, flickr, images="images")
    assert f"{TRAIN} of {TRAIN} training images" in message


@pytest.mark.parametrize("option", ["queries", "dim", "seed"])
def test_options_that_cannot_be(flickr, option):
    rejected(f"task.{option}=-1: allowed are", CaptionsFlickr, flickr, **{option: -1})


def test_queries_are_drawn(flickr):
    tasks = [CaptionsFlickr(str(flickr), queries=5, dim=10, seed=seed) for seed in (0, 0, 1)]
    assert [len(task.test.queries) for task in tasks] == [5, 5, 5]
    assert tasks[0].test.queries.tolist() == tasks[1].test.queries.tolist() != tasks[2].test.queries.tolist()
    rejected(f"task.queries={TEST - 1}: allowed are 0 to {TEST - 2}", CaptionsFlickr, flickr, queries=TEST - 1)


def test_vectors_of_a_file_are_those_of_both_splits(flickr, monkeypatch, tmp_path_factory):
    words = sorted({word for _, said in scenes() for text in said for word in text.replace(",", "").split()})
    lines = [f"{word} {number} {number % 7} 1.5" for number, word in enumerate(words)]
    (flickr / "vectors.txt").write_text(f"{len(words)} 3\n" + "\n".join(lines) + "\n")
    task = CaptionsFlickr(str(flickr), vectors="vectors.txt")
    for split in (task.train, task.test):
        assert split.vectors["cat"].tolist() == [words.index("cat"), words.index("cat") % 7, 1.5]
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    Path("here.txt").write_bytes((flickr / "vectors.txt").read_bytes())
    here = CaptionsFlickr(str(flickr), vectors="here.txt")
    torch.testing.assert_close(here.test.labels.pairwise(), task.test.labels.pairwise(), rtol=0, atol=0)
    elsewhere = CaptionsFlickr(str(flickr), vectors=str(flickr / "vectors.txt"))
    assert torch.equal(elsewhere.test.labels.pairwise(), task.test.labels.pairwise())
    scaled = CaptionsFlickr(str(flickr), vectors="vectors.txt", normalize=True)
    assert scaled.test.labels.pairwise().max() < task.test.labels.pairwise().max()


def test_a_run_and_its_evaluation_ask_the_same_queries(coco):
    """Drawn by task.seed, not by the seed of the training, and the same for all that look at a run later."""
    overrides = [f"task.root={coco}", "task.queries=4", "task.dim=10", *SMALL]
    asked = []
    for seed in (0, 1):
        experiment = load("captions/coco", [*overrides, f"seed={seed}"])
        run = train(experiment, coco / "runs")
        told = json.loads((run.folder / "evaluation.json").read_text())
        assert (told["queries"], told["gallery"]) == (4, TEST - 4)
        again = evaluate_run(run.folder)
        assert again.curves["label_distance"].model == pytest.approx(told["curves"]["label_distance"]["model"])
        asked.append([told["curves"]["label_distance"][which] for which in ("random", "oracle")])
    assert asked[0] == asked[1]
    other = load("captions/coco", [*overrides, "task.seed=1"]).build_task()
    assert other.test.queries.tolist() != experiment.build_task().test.queries.tolist()


# Karpathy


def test_karpathys_file_of_flickr(tmp_path):
    write_karpathy(tmp_path, coco=False)
    task = CaptionsFlickr(str(tmp_path), karpathy="dataset_flickr8k.json", dim=10)
    assert (len(task.train), len(task.test)) == (TRAIN, 15), "restval is trained on"
    assert task.train.captions[1][0] == f"{scenes(2)[1][1][0]}."
    assert len(CaptionsFlickr(str(tmp_path), karpathy="dataset_flickr8k.json", held_out="val", dim=10).test) == 5


def test_karpathys_file_of_coco_finds_images_of_both_years(tmp_path):
    write_karpathy(tmp_path, coco=True)
    task = CaptionsCOCO(str(tmp_path), karpathy="dataset_coco.json", queries=3, dim=10)
    assert (len(task.train), len(task.test), len(task.test.queries)) == (TRAIN, 15, 3)
    assert task.train.image(0) == tmp_path / "train2014" / "COCO_train2014_000000000100.jpg"
    (tmp_path / "train2017").mkdir()
    for path in (tmp_path / "train2014").iterdir():
        path.rename(tmp_path / "train2017" / path.name.removeprefix("COCO_train2014_"))
    task = CaptionsCOCO(str(tmp_path), karpathy="dataset_coco.json", queries=3, dim=10)
    assert task.train.image(0) == tmp_path / "train2017" / "000000000100.jpg"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda told: told.pop("images"), "has no list 'images'"),
        (lambda told: told["images"][4].pop("sentences"), "image 4 has no 'sentences'"),
        (lambda told: told["images"][4].update(sentences=["text"]), "image 4 is not of the form"),
        (
            lambda told: told["images"][4].update(split="dev"),
            "image 4 has split 'dev'; it takes train, restval, val, test",
        ),
        (lambda told: told["images"].append(told["images"][2]), "image 60 repeats 1000002_0000000002.jpg of image 2"),
    ],
)
def test_bad_files_of_karpathys_form(tmp_path, change, message):
    edit_json(write_karpathy(tmp_path, coco=False), change)
    rejected(message, CaptionsFlickr, tmp_path, karpathy="dataset_flickr8k.json")


def test_a_file_cut_short_is_told(tmp_path):
    path = write_karpathy(tmp_path, coco=False)
    edit(path, lambda text: text[:1000])
    rejected("dataset_flickr8k.json: not JSON, or cut short", CaptionsFlickr, tmp_path, karpathy=path.name)
    path.write_text("[]")
    rejected("has no list 'images'", CaptionsFlickr, tmp_path, karpathy=path.name)


# COCO


def test_official_files_of_coco(coco, capsys):
    task = CaptionsCOCO(str(coco), queries=4, dim=10)
    assert isinstance(task, Task)
    assert (len(task.train), len(task.test), len(task.test.queries)) == (TRAIN, TEST, 4)
    assert capsys.readouterr().out == "", "pycocotools talks"
    for index, (_, captions) in enumerate(scenes(TRAIN)):
        # In the order of their ids, stripped, of any number.
        assert task.train.captions[index] == [f"{caption}." for caption in captions[: 3 + index % 3]]
        assert task.train.name(index).endswith(f"train2014/COCO_train2014_{100 + 7 * index:012d}.jpg")


def test_files_of_2017(tmp_path):
    write_coco(tmp_path, 2017)
    files = [f"annotations/captions_{part}2017.json" for part in ("train", "val")]
    task = CaptionsCOCO(str(tmp_path), *files, "train2017", "val2017", queries=0, dim=10)
    assert task.test.image(0) == tmp_path / "val2017" / f"{100 + 7 * TRAIN:012d}.jpg"
    assert task.test.gallery is None


def test_an_image_that_is_listed_again_and_again_counts_once(coco):
    edit_json(coco / "annotations" / "captions_train2014.json", lambda told: told["images"].extend(told["images"][:9]))
    assert len(CaptionsCOCO(str(coco), queries=4, dim=10).train) == TRAIN


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda told: told["images"][3].update(id=100),
            "image id 100 stands for COCO_train2014_000000000100.jpg and for",
        ),
        (lambda told: told["images"].pop(2), r"captions of image id 114, which 'images' does not list \(1 such ids\)"),
        (lambda told: told["annotations"][5].pop("caption"), "has no caption; is it a file of instances or keypoints"),
        (lambda told: told["annotations"].append(told["annotations"][5]), "stands twice; every caption has an id"),
        (lambda told: told["annotations"][5].pop("image_id"), "an image or an annotation has no 'image_id'"),
        (lambda told: told["images"][5].pop("file_name"), "an image or an annotation has no 'file_name'"),
        (lambda told: told.pop("annotations"), "has no lists 'images' and 'annotations'"),
        (lambda told: told.update(images="none"), "has no lists|not an annotation file"),
    ],
)
def test_bad_files_of_coco(coco, change, message):
    edit_json(coco / "annotations" / "captions_train2014.json", change)
    assert "captions_train2014.json: " in rejected(message, CaptionsCOCO, coco)


def test_captions_of_unknown_images_and_silent_images_may_be_left_out(coco):
    def change(told):
        told["images"].pop(2)
        silent = told["images"][0]["id"]
        told["annotations"] = [note for note in told["annotations"] if note["image_id"] != silent]

    edit_json(coco / "annotations" / "captions_train2014.json", change)
    task = CaptionsCOCO(str(coco), missing="drop", queries=4, dim=10)
    assert len(task.train) == TRAIN - 2
    assert task.train.dropped == 1


def test_a_broken_file_of_coco(coco):
    path = coco / "annotations" / "captions_val2014.json"
    edit(path, lambda text: text[:500])
    rejected("captions_val2014.json: not an annotation file of COCO, or cut short", CaptionsCOCO, coco)
    path.write_text("[1]")
    rejected("captions_val2014.json: not an annotation file of COCO", CaptionsCOCO, coco)
    path.unlink()
    rejected("captions_val2014.json: no such file; task.test names the official file", CaptionsCOCO, coco)
    rejected(
        "is in train and in test",
        CaptionsCOCO,
        coco,
        test="annotations/captions_train2014.json",
        test_images="train2014",
    )


# Anyone's files


def test_a_csv_file_of_pairs(own):
    task = CaptionFiles(str(own), dim=10)
    assert (len(task.train), len(task.test)) == (TRAIN, TEST)
    assert task.train.captions == [said for _, said in scenes(TRAIN)], "commas and all"
    asking = [Path(task.test.name(row)).stem for row in task.test.queries.tolist()]
    assert asking == [str(TRAIN + number) for number in range(4)]


def test_rows_of_an_image_need_not_stand_together(own):
    path = own / "captions.csv"
    before = CaptionFiles(str(own), dim=10)
    with path.open(newline="") as file:
        header, *rows = list(csv.reader(file))
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows[::-1]])
    after = CaptionFiles(str(own), dim=10)
    assert {n: sorted(c) for n, c in zip(after.test.names, after.test.captions, strict=True)} == {
        n: sorted(c) for n, c in zip(before.test.names, before.test.captions, strict=True)
    }


def test_other_columns_and_delimiters(own):
    """The form of a well-known copy of Flickr30k, with its one bad row."""
    rows = [f"{i}.png| {k}| {said}" for i, (_, texts) in enumerate(scenes()) for k, said in enumerate(texts)]
    path = own / "results.csv"
    path.write_text("\n".join(["image_name| comment_number| comment", *rows]))
    (own / "lists.json").write_text(json.dumps({"train": names(range(40)), "test": names(range(40, 60))}))
    options = {"captions": "results.csv", "image": "image_name", "caption": "comment", "delimiter": "|"}
    task = CaptionFiles(str(own), lists="lists.json", queries=5, dim=10, **options)
    assert task.train.captions[7] == scenes(8)[7][1]
    assert len(task.test.queries) == 5
    path.write_text("\n".join(["image_name| comment_number| comment", *rows[:9], "9.png| 4   A dog runs .", *rows[9:]]))
    message = rejected(
        "results.csv:11: 2 fields, but the header has 3", CaptionFiles, own, lists="lists.json", **options
    )
    assert "put captions that hold '|' in double quotes" in message
    rejected("task.delimiter='||': it is one character", CaptionFiles, own, delimiter="||")


def names(rows):
    return [f"{row}.png" for row in rows]


@pytest.mark.parametrize("form", ["lists", "captions", "object", "pairs"])
def test_json_files(own, form):
    said = [texts for _, texts in scenes()]
    part = ["train"] * TRAIN + ["test"] * TEST
    told = {
        "lists": [{"image": f"{i}.png", "caption": c, "split": part[i]} for i, c in enumerate(said)],
        "captions": [{"image": f"{i}.png", "captions": c, "split": part[i]} for i, c in enumerate(said)],
        "object": {f"{i}.png": c for i, c in enumerate(said)},
        "pairs": [{"image": f"{i}.png", "caption": t, "split": part[i]} for i, c in enumerate(said) for t in c],
    }[form]
    (own / "own.json").write_text(json.dumps(told))
    (own / "lists.json").write_text(
        json.dumps({"train": names(range(40)), "test": names(range(40, 60)), "queries": names([59, 41])})
    )
    lists = "lists.json" if form == "object" else None
    task = CaptionFiles(str(own), "own.json", lists=lists, dim=10)
    assert task.train.captions == said[:TRAIN]
    assert task.test.captions == said[TRAIN:]
    assert (task.test.queries.tolist() == [1, 19]) if lists else (task.test.queries is None)


def test_a_part_to_tune_on_is_left_out_and_other_names_of_parts_are_known(own):
    edit(own / "captions.csv", lambda text: text.replace(",train", ",Training").replace(",query", ",dev"))
    task = CaptionFiles(str(own), dim=10)
    assert (len(task.train), len(task.test)) == (TRAIN, TEST - 4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"captions.csv:1: no column 'image'; the header has nothing"),
        (
            "img,caption,split\n",
            r"captions.csv:1: no column 'image'; the header has img, caption, split: set task.image",
        ),
        ("image,caption,caption\n", "captions.csv:1: more than one column 'caption'"),
        ("image,caption,split\n", "captions.csv: has no captions"),
        ("image,caption,split\n\n0.png,a red, big cat,train\n", "captions.csv:3: 4 fields, but the header has 3"),
        ('image,caption,split\n0.png,"a\nb",train\n1.png,c\n', "captions.csv:4: 2 fields"),
        ('image,caption,split\n0.png,"open,train\n', "captions.csv:2: not readable as CSV"),
        ("image,caption,split\n ,a cat,train\n", "captions.csv:2: no image is named"),
        ("image,caption\n0.png,a cat\n", "0.png has no 'split'; give every image train, test, query or val"),
        ("image,caption,split\n0.png,a cat,learn\n", "0.png has split 'learn'; it takes train, test, query, val"),
        (
            "image,caption,split\n0.png,a,train\n0.png,b,test\n",
            "captions.csv:3: 0.png is in test here, and in train before",
        ),
        ("image,caption,split\n0.png,a cat,train\n", "1 of 1 training images have a file and a caption"),
    ],
)
def test_bad_csv_files(own, text, message):
    (own / "captions.csv").write_text(text)
    rejected(message, CaptionFiles, own)


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ("[]", "neither a list of"),
        ("3", "neither a list of"),
        ('[{"image": 3}]', "item 0 has no 'image' that is text"),
        ('[{"image": "0.png", "caption": [1]}]', r"item 0 \(0.png\) has no 'caption' that is text or a list of texts"),
        ('[{"image": "0.png", "text": "a"}]', r"item 0 \(0.png\) has no 'caption'"),
        ('{"0.png": null}', r"item 0 \(0.png\) has no 'caption'"),
        ("{", "not JSON, or cut short"),
    ],
)
def test_bad_json_files(own, told, message):
    (own / "own.json").write_text(told)
    rejected(message, CaptionFiles, own, "own.json")


@pytest.mark.parametrize(
    ("told", "message"),
    [
        ([], "'train' is no list of names"),
        ({"train": ["0.png"]}, "'test' is no list of names"),
        ({"train": ["0.png", 1], "test": []}, "'train' is no list of names"),
        ({"train": ["0.png", "0.png"], "test": []}, "0.png stands twice in train"),
        ({"train": names(range(10)), "test": names(range(9, 20))}, "9.png is in train and in test"),
        ({"train": ["away.png", *names(range(10))], "test": names(range(10, 20))}, "away.png: no such image"),
    ],
)
def test_bad_lists(own, told, message):
    (own / "lists.json").write_text(json.dumps(told))
    rejected(message, CaptionFiles, own, lists="lists.json")


def test_all_test_images_cannot_query(own):
    (own / "lists.json").write_text(
        json.dumps({"train": names(range(9)), "test": names(range(9, 20)), "queries": names(range(9, 20))})
    )
    rejected(
        "11 of 11 test images query; an evaluation needs at least 1 query and 2 others",
        CaptionFiles,
        own,
        lists="lists.json",
    )


def test_other_files_are_refused(own):
    rejected(r"captions are read from .csv, .tsv, .txt or .json files", CaptionFiles, own, "captions.parquet")
    rejected("no such file; task.captions names it", CaptionFiles, own, "away.csv")
    rejected("no such file; task.lists names it", CaptionFiles, own, lists="away.json")


def test_images_in_folders_of_their_own(own):
    pixels, said = scenes(1)[0]
    for row in range(6):
        save(own / "images" / "deep" / f"{row}.png", pixels)
    told = {f"deep/{row}.png": said for row in range(6)}
    (own / "own.json").write_text(json.dumps(told))
    (own / "lists.json").write_text(json.dumps({"train": list(told)[:3], "test": list(told)[3:]}))
    task = CaptionFiles(str(own), "own.json", lists="lists.json", dim=5)
    assert task.train.image(0) == own / "images" / "deep" / "0.png"


# The real packs


@needs["flickr8k_1500"]
@gensim_leaves_open
def test_real_flickr8k():
    root = str(DATA / "flickr8k_1500")
    options = {"images": "images", "vectors": str(GLOVE)}
    lists = {part: f"official_lists/Flickr_8k.{part}Images.txt" for part in ("train", "test")}
    task = CaptionsFlickr(root, missing="drop", **lists, **options)
    assert (len(task.train), len(task.test)) == (1091, 199)
    assert task.train.dropped == 6000 - 1091
    rejected(r"no such image \(4,909 of 6,000 training images", CaptionsFlickr, root, **lists, **options)
    ours = CaptionsFlickr(root, train="split.trainImages.txt", test="split.testImages.txt", queries=60, **options)
    assert (len(ours.train), len(ours.test), len(ours.test.queries)) == (1200, 300, 60)
    assert all(len(said) == 5 for said in ours.train.captions)
    near = ours.test.labels.pairwise([0], None)[0]
    assert 20 < near[1:].min() < near.mean() < 60
    form = CaptionsFlickr(root, karpathy="dataset_flickr8k.karpathy_form.json", **options)
    by_name = dict(zip(form.test.names, form.test.captions, strict=True))
    assert all(by_name[name] == said for name, said in zip(ours.test.names, ours.test.captions, strict=True))
    assert ours.test.explain(0, int(near[1:].argmin()) + 1, 600).width == 600
    assert ours.test.draw(0, 200).size == (200, 200)


@needs["flickr8k_1500"]
def test_the_whole_real_token_file(tmp_path):
    import gzip

    path = tmp_path / "Flickr8k.token.txt"
    path.write_bytes(gzip.decompress((DATA / "flickr8k_1500" / "Flickr8k.token.full.txt.gz").read_bytes()))
    said = read_tokens(path)
    assert len(said) == 8092
    assert all(len(captions) == 5 for captions in said.values())
    assert "2258277193_586949ec62.jpg.1" in said


@needs["coco_mini_2017"]
@needs["flickr8k_1500"]
@gensim_leaves_open
def test_real_coco():
    root = str(DATA / "coco_mini_2017")
    files = [f"annotations/captions_{part}2017.json" for part in ("train", "val")]
    task = CaptionsCOCO(root, *files, "train2017", "val2017", queries=50, vectors=str(GLOVE))
    assert (len(task.train), len(task.test), len(task.test.queries)) == (130, 470, 50)
    assert sum(map(len, task.test.captions)) == 2352
    assert all(text == text.strip() for said in task.test.captions for text in said)
    form = CaptionsCOCO(root, karpathy="dataset_coco.karpathy_form.json", queries=30, vectors=str(GLOVE))
    assert (len(form.train), len(form.test)) == (480, 120)
    rejected("is it a file of instances or keypoints", CaptionsCOCO, root, "annotations/instances_train2017.json")
