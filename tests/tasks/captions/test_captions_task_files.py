"""Readers of caption files: miniatures of the official layouts, your own files, and the real packs."""

import csv
import json
from pathlib import Path
from unicodedata import normalize

import pytest
import torch
from support.caption_sets import TEST, TRAIN, scenes, write_coco, write_flickr, write_karpathy
from support.paths import DATA_ROOT as DATA, needs
from support.refusals import refused

from contml.app.experiment import evaluate_run, load, train
from contml.tasks.captions.caption_files import coco, flickr, read_tokens
from contml.tasks.table.file import file as table

#: What makes the training of a protocol a matter of seconds.
SMALL = ["model.backbone=small_cnn", "model.weights=none", "images.resize=24", "images.crop=24", "images.workers=0"]
SMALL += ["transform.scale_jitter=0", "transform.shift=0", "sampler.batch_size=12", "sampler.batches=2"]
SMALL += ["training.epochs=1"]
GLOVE = DATA / "flickr8k_1500" / "word_vectors" / "glove.6B.50d.flickr8k.txt.gz"


@pytest.fixture
def flickr_folder(tmp_path):
    write_flickr(tmp_path)
    return tmp_path


@pytest.fixture
def coco_folder(tmp_path):
    write_coco(tmp_path)
    return tmp_path


def rejected(fields, task, *arguments, **options):
    """The task raises an `InputError` with these fields: subject, got, allowed, hint."""
    refused(lambda: task(*map(str, arguments), **options), *fields)


def edit(path, change):
    path.write_text(change(path.read_text(encoding="utf-8")), encoding="utf-8")


# Flickr


def test_token_file_and_lists(flickr_folder):
    task = flickr(str(flickr_folder), dim=10)
    assert (len(task.train), len(task.test)) == (TRAIN, TEST)
    assert task.test.queries is None
    assert task.train.name(0) == str(flickr_folder / "Flicker8k_Dataset" / "1000000_0000000000.jpg")
    assert task.train.labels.captions[0] == [f"{caption.capitalize()} ." for caption in scenes(1)[0][1]]


@pytest.mark.parametrize("name", ["2258277193_586949ec62.jpg.1", "none.jpg"])
def test_an_image_that_is_not_there_is_refused_or_left_out(flickr_folder, name):
    """Five captions of 2258277193_586949ec62.jpg.1 have no image; they are in no list and not used."""
    assert len(read_tokens(flickr_folder / "Flickr8k.token.txt")["2258277193_586949ec62.jpg.1"]) == 5
    edit(flickr_folder / "Flickr_8k.trainImages.txt", lambda text: f"{text}{name}\nnobody.jpg\n")
    path = flickr_folder / "Flicker8k_Dataset" / name
    rejected((str(path), f"2 of {TRAIN + 2} training images", "", "missing=drop"), flickr, flickr_folder)
    task = flickr(str(flickr_folder), missing="drop", dim=10)
    assert (len(task.train), task.train.excluded) == (TRAIN, {"without an image file": 2})


def test_images_without_captions_are_refused_or_left_out(flickr_folder):
    path = flickr_folder / "Flickr8k.token.txt"
    name = read_lists(flickr_folder)[0]
    edit(path, lambda text: "\n".join(line for line in text.split("\n") if not line.startswith(name)))
    rejected((name, f"1 of {TRAIN} training images", "", "missing=drop"), flickr, flickr_folder)
    assert flickr(str(flickr_folder), missing="drop", dim=10).train.excluded == {"without a caption": 1}


def read_lists(folder):
    return (folder / "Flickr_8k.trainImages.txt").read_text().split()


@pytest.mark.parametrize(
    ("line", "number", "got"),
    [
        ("a.jpg#0  two spaces for the tab", 4, "no tab"),
        ("a.jpg\tno number", 4, "a key without '#' and a number"),
        ("a.jpg#x\tno number", 4, "a key without '#' and a number"),
        ("#0\tno name", 4, "a key without '#' and a number"),
        ("a.jpg#0\tfirst\n\na.jpg#0\tagain", 6, "a.jpg#0 appears twice, first in line 4"),
    ],
)
def test_the_error_of_a_bad_line_has_its_number(tmp_path, line, number, got):
    path = tmp_path / "tokens.txt"
    path.write_text(f"\nb.jpg#0\tone\n\n{line}\n")
    refused(lambda: read_tokens(path), f"{path}:{number}", got)


def test_a_token_file_is_read_exactly(tmp_path):
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
    refused(lambda: read_tokens(path), f"{path}:2", "utf-8 text (byte 0xe9)", hint="UTF-8")


def test_lists_without_the_ending(flickr_folder):
    train = flickr_folder / "Flickr_8k.trainImages.txt"
    names = read_lists(flickr_folder)
    train.write_text("\n".join(name.removesuffix(".jpg") for name in names))
    assert len(flickr(str(flickr_folder), dim=10).train) == TRAIN


def test_the_table_of_kaggle_is_no_token_file_and_is_read_as_a_table(flickr_folder):
    texts = read_tokens(flickr_folder / "Flickr8k.token.txt")
    listed = read_lists(flickr_folder)
    with (flickr_folder / "captions.txt").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["image", "caption"])
        rows.writerows([name, caption] for name in listed for caption in texts[name])
    fields = ("captions.txt:1", "'image,caption'", "", "contml train --data")
    rejected(fields, flickr, flickr_folder, captions="captions.txt")
    (flickr_folder / "lists.json").write_text(json.dumps({"train": listed[:30], "test": listed[30:]}))
    root = str(flickr_folder / "Flicker8k_Dataset")
    task = table(str(flickr_folder / "captions.txt"), {"caption": "captions"}, root=root, split="lists.json")
    assert ((len(task.train), len(task.test)), task.train.labels.captions[0]) == ((30, 10), texts[listed[0]])


def test_files_that_are_not_there(flickr_folder):
    holds = f"no such file ({flickr_folder} holds Flicker8k_Dataset, Flickr8k.token.txt"
    rejected(("results.token", holds, "", "set captions"), flickr, flickr_folder, captions="results.token")
    rejected(("train.txt", "no such file", "", "set train"), flickr, flickr_folder, train="train.txt")
    found = f"glove.txt in {flickr_folder} or in the current folder"
    rejected(("vectors", found, "", "null"), flickr, flickr_folder, vectors="glove.txt")
    rejected(("Flicker8k_Dataset", "a folder", "must be a file"), flickr, flickr_folder, captions="Flicker8k_Dataset")
    fields = ("images", f"no such image ({TRAIN} of {TRAIN} training images")
    rejected(fields, flickr, flickr_folder, images="images")


def test_check_says_what_trained_the_word_vectors(accepted, tmp_path):
    write_flickr(tmp_path / "own")
    out, _ = accepted("check", "captions/flickr8k", "task.root=own", "sampler.anchors_per_batch=2", *SMALL)
    text = " ".join(out.split())
    assert "word vectors Word2Vec, trained on the 200 captions of 40 training images; vectors of a large corpus" in text


def test_check_says_what_is_left_out_of_a_file_of_word_vectors(accepted, tmp_path):
    write_flickr(tmp_path / "own")
    words = sorted({word for _, texts in scenes() for text in texts for word in text.replace(",", "").split()})
    rows = "".join(f"{word} {number} 1.5\n" for number, word in enumerate([*words, "cat", "cat"]))
    (tmp_path / "own" / "vectors.txt").write_text(rows + " 7 1.5\n")
    overrides = ["task.root=own", "sampler.anchors_per_batch=2", *SMALL]
    out, _ = accepted("check", "captions/flickr8k", "task.vectors=vectors.txt", *overrides)
    counts = "2 of words that appeared before, 1 without a word"
    assert f"word vectors vectors.txt; rows left out: {counts}" in " ".join(out.split())


def test_captions_are_in_one_form(flickr_folder):
    """Both forms of an accent are one word, in the captions that a captioner and a report get too."""
    file = flickr_folder / "Flickr8k.token.txt"
    text = file.read_text()
    for form in ("NFC", "NFD"):
        file.write_text(normalize(form, text.replace("cat", "chaton doré")))
        task = flickr(str(flickr_folder), dim=5)
        captions = [caption for image in task.train.labels.captions for caption in image]
        assert any("doré" in caption for caption in captions)
        assert all(caption == normalize("NFC", caption) for caption in captions)


def test_vectors_of_a_file_are_those_of_both_splits(flickr_folder, monkeypatch, tmp_path_factory):
    words = sorted({word for _, texts in scenes() for text in texts for word in text.replace(",", "").split()})
    lines = [f"{word} {number} {number % 7} 1.5" for number, word in enumerate(words)]
    (flickr_folder / "vectors.txt").write_text(f"{len(words)} 3\n" + "\n".join(lines) + "\n")
    task = flickr(str(flickr_folder), vectors="vectors.txt")
    for split in (task.train, task.test):
        vector = split.labels._costs.vectors[split.labels.words.index("cat")]
        assert vector.tolist() == [words.index("cat"), words.index("cat") % 7, 1.5]
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    Path("here.txt").write_bytes((flickr_folder / "vectors.txt").read_bytes())
    here = flickr(str(flickr_folder), vectors="here.txt")
    torch.testing.assert_close(here.test.labels.pairwise(), task.test.labels.pairwise(), rtol=0, atol=0)
    elsewhere = flickr(str(flickr_folder), vectors=str(flickr_folder / "vectors.txt"))
    assert torch.equal(elsewhere.test.labels.pairwise(), task.test.labels.pairwise())
    scaled = flickr(str(flickr_folder), vectors="vectors.txt", normalize=True)
    assert scaled.test.labels.pairwise().max() < task.test.labels.pairwise().max()


@pytest.mark.slow
def test_a_run_and_its_evaluation_have_the_same_queries(coco_folder):
    """Drawn by task.seed, not by the seed of the training, and the same in every later evaluation of a run."""
    overrides = [f"task.root={coco_folder}", "task.queries=4", "task.dim=10", *SMALL]
    limits = []
    for seed in (0, 1):
        experiment = load("captions/coco", [*overrides, f"seed={seed}"])
        run = train(experiment, coco_folder / "runs")
        scores = json.loads((run.folder / "evaluation.json").read_text())
        assert (scores["queries"], scores["gallery"]) == (4, TEST - 4)
        again = evaluate_run(run.folder).evaluation
        assert again.curves["label_distance"].model == pytest.approx(scores["curves"]["label_distance"]["model"])
        limits.append([scores["curves"]["label_distance"][which] for which in ("random", "oracle")])
    assert limits[0] == limits[1]
    other = load("captions/coco", [*overrides, "task.seed=1"]).build_task()
    assert other.test.queries.tolist() != experiment.build_task().test.queries.tolist()


# Karpathy


def test_karpathys_file_of_flickr(tmp_path):
    write_karpathy(tmp_path, coco=False)
    task = flickr(str(tmp_path), karpathy="dataset_flickr8k.json", dim=10)
    assert (len(task.train), len(task.test)) == (TRAIN, 15), "restval is trained on"
    assert (task.train.labels.captions[1][0], len(task.val)) == (f"{scenes(2)[1][1][0]}.", 5)


def test_karpathys_file_of_coco_finds_images_of_both_years(tmp_path):
    write_karpathy(tmp_path, coco=True)
    task = coco(str(tmp_path), karpathy="dataset_coco.json", queries=3, dim=10)
    assert (len(task.train), len(task.test), len(task.test.queries)) == (TRAIN, 15, 3)
    assert task.train.image(0) == tmp_path / "train2014" / "COCO_train2014_000000000100.jpg"
    (tmp_path / "train2017").mkdir()
    for path in (tmp_path / "train2014").iterdir():
        path.rename(tmp_path / "train2017" / path.name.removeprefix("COCO_train2014_"))
    task = coco(str(tmp_path), karpathy="dataset_coco.json", queries=3, dim=10)
    assert task.train.image(0) == tmp_path / "train2017" / "000000000100.jpg"


# COCO


def test_official_files_of_coco(coco_folder, capsys):
    task = coco(str(coco_folder), queries=4, dim=10)
    assert (len(task.train), len(task.test), len(task.test.queries)) == (TRAIN, TEST, 4)
    assert capsys.readouterr().out == ""
    for index, (_, captions) in enumerate(scenes(TRAIN)):
        # In the order of their ids, stripped, of any number.
        assert task.train.labels.captions[index] == [f"{caption}." for caption in captions[: 3 + index % 3]]
        assert task.train.name(index).endswith(f"train2014/COCO_train2014_{100 + 7 * index:012d}.jpg")


def test_files_of_2017(tmp_path):
    write_coco(tmp_path, 2017)
    annotations = [f"annotations/captions_{part}2017.json" for part in ("train", "val")]
    task = coco(str(tmp_path), *annotations, "train2017", "val2017", queries=0, dim=10)
    assert task.test.image(0) == tmp_path / "val2017" / f"{100 + 7 * TRAIN:012d}.jpg"
    assert task.test.gallery is None


def test_a_broken_file_of_coco(coco_folder):
    path = coco_folder / "annotations" / "captions_val2014.json"
    edit(path, lambda text: text[:500])
    rejected((str(path), "not JSON"), coco, coco_folder)
    path.write_text("[1]")
    rejected((str(path), "no list 'images'"), coco, coco_folder)
    path.unlink()
    rejected((str(path), "no such file", "", "set test"), coco, coco_folder)
    same = {"test": "annotations/captions_train2014.json", "test_images": "train2014"}
    rejected(("captions_train2014.json", "is in train and in test"), coco, coco_folder, **same)


# The real packs


@pytest.mark.slow
@needs("flickr8k_1500")
def test_real_flickr8k():
    root = str(DATA / "flickr8k_1500")
    options = {"images": "images", "vectors": str(GLOVE)}
    parts = {"train": "train", "val": "dev", "test": "test"}
    lists = {part: f"official_lists/Flickr_8k.{name}Images.txt" for part, name in parts.items()}
    task = flickr(root, missing="drop", **lists, **options)
    assert (len(task.train), len(task.test)) == (1091, 199)
    assert task.train.excluded == {"without an image file": 6000 - 1091}
    rejected((f"{root}/images", "no such image (4,909 of 6,000 training images"), flickr, root, **lists, **options)
    ours = flickr(root, train="split.trainImages.txt", val=None, test="split.testImages.txt", queries=60, **options)
    assert (len(ours.train), len(ours.test), len(ours.test.queries)) == (1200, 300, 60)
    assert all(len(texts) == 5 for texts in ours.train.labels.captions)
    near = ours.test.labels.pairwise([0], None)[0]
    assert 20 < near[1:].min() < near.mean() < 60
    form = flickr(root, karpathy="dataset_flickr8k.karpathy_form.json", **options)
    by_name = dict(zip(form.test.names, form.test.labels.captions, strict=True))
    assert all(by_name[name] == texts for name, texts in zip(ours.test.names, ours.test.labels.captions, strict=True))
    assert ours.test.draw(0, 200).size == (200, 200)


@pytest.mark.slow
@needs("coco_mini_2017")
@needs("flickr8k_1500")
def test_real_coco():
    root = str(DATA / "coco_mini_2017")
    annotations = [f"annotations/captions_{part}2017.json" for part in ("train", "val")]
    task = coco(root, *annotations, "train2017", "val2017", queries=50, vectors=str(GLOVE))
    assert (len(task.train), len(task.test), len(task.test.queries)) == (130, 470, 50)
    assert sum(map(len, task.test.labels.captions)) == 2352
    assert all(text == text.strip() for texts in task.test.labels.captions for text in texts)
    form = coco(root, karpathy="dataset_coco.karpathy_form.json", queries=30, vectors=str(GLOVE))
    assert (len(form.train), len(form.test)) == (480, 120)
    wrong = "annotations/instances_train2017.json"
    rejected((wrong, "no 'caption'", "train must be a captions_*.json"), coco, root, wrong)
