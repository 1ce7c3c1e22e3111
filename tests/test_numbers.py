"""Numbers in pages are those of the code, and of the raw results of benchmarks.

`CLAIMS` has, for each page, phrases and what is true. A phrase is a regular expression whose groups are the numbers.
The page must contain it once, and each number must be the true one, rounded to the digits that it is printed with. To
hold another number, add a row.
"""

from __future__ import annotations

import importlib
import json
import math
import re
import statistics
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import typer.main
from PIL import Image
from support.paths import ROOT

from benchmarks import captioning, classes_synthetic, finetuning, label_errors as planted, presets
from contml._support import files
from contml.app.cli import explore
from contml.app.cli.commands import app
from contml.app.experiment import config_names, load
from contml.app.explore import items as explored, page as explore_page, serving
from contml.app.report import embedding_map, page as report_page
from contml.app.trials.suite import suite_names
from contml.captioning import scores
from contml.config import document, options
from contml.distances import nearest as nearest_module
from contml.evaluation import clustering, embed_parts, graded, half_width, metrics, results, retrieval
from contml.labels import SegmentationLabels, neighbours as neighbour_cache
from contml.losses import LOSSES, ContrastiveLoss, DenseTripletLoss, SoftInfoNCELoss, graded_pairs, pairs
from contml.models.bn_inception import BNInception
from contml.search import calibration, graph, nearest, segments
from contml.tasks.captions import distance as caption_distance
from contml.tasks.classes import cars, cub, inshop, sop
from contml.tasks.layout import lsun
from contml.tasks.table import (
    columns,
    file as table_file,
    items as table_items,
    kinds as table_kinds,
    text_labels,
)
from contml.training import Training, setup
from contml.transport import bags, caption_distances, solver_gpu

#: The module, which its function of the same name hides.
errors_module = importlib.import_module("contml.evaluation.label_errors")

NAMES = "zero one two three four five six seven eight nine ten eleven twelve"
WORDS = {word: float(number) for number, word in enumerate(NAMES.split())} | {
    "an": 1.0,
    "eighteen": 18.0,
    "twenty": 20.0,
    "fifth": 5.0,
    "tenth": 10.0,
}
#: A number; one with its interval; the cell of a table.
N, PLUS, CELL = r"([+-]?[\d.,]*\d(?:e[+-]?\d+)?)", r"([+-]?[\d.]+) ± ([\d.]+)", r"[^|]*"
WORD = "((?i:" + "|".join(WORDS) + "))"


def value_of(text: str) -> tuple[float, int]:
    """A printed number and the number of its decimals: "0.393", "5,864", "+0.006", "1e-4", "two"."""
    text = text.replace(",", "").lower()
    if text in WORDS:
        return WORDS[text], 0
    mantissa, _, exponent = text.partition("e")
    return float(text), len(mantissa.partition(".")[2]) - int(exponent or 0)


def assert_printed(text: str, true: float, where: str) -> None:
    value, decimals = value_of(text)
    assert abs(value - true) <= 0.5 * 10.0**-decimals * (1 + 1e-6), f"{where}: {text}, but it is {true:.6g}"


@cache
def text_of(page: str) -> str:
    """A page on one line; of a config its head."""
    text = (ROOT / page).read_text(encoding="utf-8")
    if page.endswith(".yaml"):
        text = "\n".join(line.removeprefix("#") for line in text.splitlines() if line.startswith("#"))
    return " ".join(text.split())


# ---------------------------------------------------------------------------------------------------------------------
# what is true


@cache
def raw(name: str) -> list[dict[str, Any]]:
    """The trainings of a benchmark in the order of their seeds; of equal ones of a data set the last.

    On the test split, trainings of other options are equal ones: those that were chosen at last count.
    """
    lines = (ROOT / f"benchmarks/results/raw/{name}.jsonl").read_text(encoding="utf-8").splitlines()
    rows = {}
    for each in map(json.loads, lines):
        method, chosen, seed, split = each["key"][:4]
        rows[method, seed, split, each["metrics"].get("oracle"), "" if split == "test" else chosen] = each
    return sorted(rows.values(), key=lambda each: each["key"][2])


def raw_lines(name: str) -> list[str]:
    """The lines of the finished trainings of a benchmark."""
    return (ROOT / f"benchmarks/results/raw/{name}.jsonl").read_text(encoding="utf-8").splitlines()


@cache
def suite_scores(name: str) -> dict[tuple[str, str], float]:
    """The mean score on the test split of each set and method of a suite of `contml benchmark`."""
    values: dict[tuple[str, str], list[float]] = {}
    for each in map(json.loads, raw_lines(name)):
        kind, method, _, _, split, _ = json.loads(each["key"])
        if split == "test":
            values.setdefault((kind, method), []).append(each["value"])
    return {key: statistics.mean(found) for key, found in values.items()}


def best_trial(name: str, kind: str, method: str, option: str) -> float:
    """The highest score on the validation split of the trials of a method with an option, "loss.scale=4"."""
    keys = [(json.loads(each["key"]), each) for each in map(json.loads, raw_lines(name))]
    of_method = [(key[2].split(), each) for key, each in keys if key[:2] == [kind, method] and key[4] == "val"]
    return max(each["value"] for words, each in of_method if option in words and "value" in each)


def graded_ice(kind: str, scale: int) -> float:
    """The best trial of graded instance cross entropy with a scale."""
    return best_trial("graded_features", kind, "graded_instance_cross_entropy", f"loss.scale={scale}")


def suite_means(name: str, method: str) -> list[float]:
    """The mean score of a method on each set in order, and the mean of these."""
    found = [score for (_, each), score in suite_scores(name).items() if each == method]
    return [*found, statistics.mean(found)]


def measured(name: str, method: str, metric: str = "value", oracle: str = "") -> list[float]:
    """A metric on the test split, one per seed; `oracle` is that of the data set, where a benchmark has several."""
    rows = [row["metrics"] for row in raw(name) if row["key"][0] == method and row["key"][3] == "test"]
    return [row[metric] for row in rows if not oracle or f"{row.get('oracle', 0):.3f}" == oracle]


def spread(values: list[float]) -> list[float]:
    """The mean and its interval."""
    return [statistics.mean(values), half_width(values)]


def mean(name: str, method: str, metric: str = "value", oracle: str = "") -> float:
    return statistics.mean(measured(name, method, metric, oracle))


def less(name: str, method: str, other: str, metric: str = "value") -> list[float]:
    """The difference of two methods, paired by seed, and its interval."""
    pairs = zip(measured(name, method, metric), measured(name, other, metric), strict=True)
    return spread([a - b for a, b in pairs])


def stated(name: str, phrase: str) -> float:
    """A number in the page of a benchmark's results."""
    (found,) = {*re.findall(phrase, text_of(f"benchmarks/results/{name}.md"))}
    return value_of(found)[0]


def row(name: str, first: str, below: str = "") -> list[float]:
    """The first number of each cell of the row of a result's page that begins with a cell; `below`: a heading."""
    text = (ROOT / f"benchmarks/results/{name}.md").read_text(encoding="utf-8").split(below or "# ", 1)[1]
    rows = [
        [cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line.startswith("|")
    ]
    cells = next(each for each in rows if each[0] == first)
    found = [re.match(r"[+-]?[\d.,]*\d", cell) for cell in cells[1:]]
    return [value_of(match[0])[0] if match else math.nan for match in found]


def misses(section: str, kind: str, column: int, first: str = "") -> list[float]:
    """The misses of drawn data in percent, of the rows of a section whose second cell is of a kind.

    column: which of the intervals that a cell has; first: how the first cell of a row begins.
    """
    text = (ROOT / "benchmarks/results/intervals.md").read_text(encoding="utf-8").split(f"\n## {section}\n", 1)[1]
    rows = [line.strip("| ").split(" | ") for line in text.split("\n## ", 1)[0].splitlines()[4:] if line]
    cells = [cell for row in rows if row[0].startswith(first) and re.search(kind, row[1]) for cell in row[2:]]
    assert len(cells) > 3
    return [float(cell.split(" / ")[column]) for cell in cells]


def chosen(name: str, method: str) -> float:
    """The value of the option with the best result on the validation split."""
    rows = [each for each in raw(name) if each["key"][0] == method and each["key"][3] == "val"]
    return float(max(rows, key=lambda each: each["metrics"]["value"])["key"][1].partition("=")[2])


def default(part: Callable[..., Any], name: str) -> Any:
    """The default of an option of a part."""
    return next(each.default for each in options(part) if each.name == name)


def typed(command: str, name: str) -> Any:
    """The default of an option of a command."""
    return next(each.default for each in typer.main.get_command(app).commands[command].params if name in each.opts)


@cache
def config(name: str) -> dict[str, Any]:
    """The values of a config, with defaults."""
    values: dict[str, Any] = load(name).values
    return values


def drawn(name: str) -> int:
    """How many items a synthetic task draws."""
    task = config(name)["task"]
    total: int = task["train"] + task["val"] + task["test"]
    return total


def captioned(method: str, *names: str) -> list[float]:
    """A metric less another one, over the trainings of the captioner."""
    rows = [row["metrics"] for row in raw("captioning") if row["key"][0].startswith(method) and row["key"][3] == "test"]
    return [row[names[0]] - row[names[1]] for row in rows]


def planted_errors(pack: str, *columns: str) -> list[float]:
    """The mean area under the precision-recall curve: "audit, swaps"."""
    means = []
    for column in columns:
        name, kind = column.split(", ")
        means.append(statistics.mean(r["metrics"][name] for r in raw("label_errors") if r["key"][:2] == [pack, kind]))
    return means


POSE, LAYOUT, CAPTIONS, CLASSES = "pose_synthetic", "layout_synthetic", "captions_synthetic", "classes_synthetic"
DENSE, TRIPLETS, THRESHOLD = "log-ratio, dense", "dense triplet", "triplet, threshold"
UNTRAINED = r"untrained weights ([\d.]+\d)"

#: The rows of docs/losses.md, and their methods in the suites.
LOSS_ROWS = {
    "`smooth_rank`, `metric: ap`": "smooth_rank, ap",
    "`smooth_rank`, `metric: ndcg`": "smooth_rank, ndcg",
    "`graded_instance_cross_entropy`": "graded_instance_cross_entropy",
    "`log_ratio`": "log_ratio",
    "`log_ratio`, `regularizer: rank_sim`": "log_ratio and rank_sim",
    "`soft_info_nce`, `similarity: student_t`": "soft_info_nce, student_t",
    "`soft_info_nce`": "soft_info_nce",
    "`triplet_margin`, 30 nearest positive": "triplet_margin, 30 nearest positive",
    "`dense_triplet`": "dense_triplet",
    "`relaxed_contrastive`": "relaxed_contrastive",
    "`generalized_contrastive`": "generalized_contrastive",
    "`cosent`": "cosent",
    "`rank_n_contrast`": "rank_n_contrast",
    "`rank_sim`": "rank_sim",
    "untrained features": "untrained features",
}


def dense_margins() -> list[float]:
    """The margin that dense triplets chose on every set, and the default."""
    keys = [json.loads(json.loads(line)["key"]) for line in raw_lines("graded_features")]
    chosen_options = {key[2].split()[0] for key in keys if key[1] == "dense_triplet" and key[4] == "test"}
    (margin,) = (float(option.partition("=")[2]) for option in chosen_options)
    return [margin, default(DenseTripletLoss, "margin")]


CLAIMS: dict[str, list[tuple[str, Callable[[], Any]]]] = {
    "README.md": [
        (f"It draws {N} people", lambda: drawn("pose/synthetic")),
        *(
            (
                rf"\| {title} \| {N} \| {N} \| {N} \| {N} \| {N} \| {N} \|",
                lambda name=name: suite_means("graded_features", name),
            )
            for title, name in (
                (r"smooth ranks \(`smooth_rank`, `metric: ap`\)", "smooth_rank, ap"),
                (r"graded cross entropy \(`graded_instance_cross_entropy`\)", "graded_instance_cross_entropy"),
                (r"log-ratio \(`log_ratio`\)", "log_ratio"),
                (r"triplets \([^)]*\)", "triplet_margin, 30 nearest positive"),
                ("untrained features", "untrained features"),
            )
        ),
    ],
    "SECURITY.md": [
        (f"at most {N} kB and {N} levels", lambda: [document._LARGEST / 1024, document._DEEPEST]),
        (
            f"at most {N} MB and {N} million pixels",
            lambda: [serving.LIMIT / (1 << 20), Image.MAX_IMAGE_PIXELS / 1e6],
        ),
        (f"did not change for {WORD} hour", lambda: files._STALE / 3600),
    ],
    "docs/audit.md": [
        (f"The first command trains {WORD} networks", lambda: typed("audit", "--folds")),
        (f"each without a {WORD} of the training items", lambda: typed("audit", "--folds")),
        (f"shows the first {N} beside", lambda: explore._ON_PAGE),
        (
            rf"\(q_i \+ {N}\) / sqrt\(mean of q_j over the {N} nearest items j \+ {N}\)",
            lambda: [errors_module._SMOOTHING, errors_module.NEIGHBOURS, errors_module._SMOOTHING],
        ),
        (f"the one of {N} with the smallest", lambda: len(errors_module._PENALTIES)),
        (f"fitted on at most {N} items", lambda: errors_module.FITTED),
        (f"many more classes than {N} / 5", lambda: errors_module.FITTED),
        (f"the number of networks, {N} unless set", lambda: typed("audit", "--folds")),
        (
            f"{N} unless set, or a fifth of fewer than {N} items",
            lambda: [errors_module.NEIGHBOURS, 5 * errors_module.NEIGHBOURS],
        ),
        (f"rows of the file, {N} unless set", lambda: typed("audit", "--top")),
        (f"{N} % of the labels were made wrong", lambda: 100 * planted.SHARE),
        (f"a random order has {N}. The features", lambda: planted.SHARE),
        *(
            (
                rf"\| {title} \([\d,]+\) \| {N} \| {N} \| {N} \| {N} \|",
                lambda pack=pack: planted_errors(pack, "audit, swaps", "loss, swaps", "audit, noise", "loss, noise"),
            )
            for title, pack in (
                ("poses", "pose_lspet"),
                ("rooms", "rooms_nyuv2"),
                ("captions", "flickr8k_1500"),
                ("house prices", "houses_535"),
            )
        ),
        (
            rf"cleanlab's regression \| {N} \| \| {N} \|",
            lambda: planted_errors("houses_535", "cleanlab, swaps", "cleanlab, noise"),
        ),
    ],
    "docs/caption_distances.md": [
        *(
            (
                rf"\| {re.escape(title)} \| {N} \|(?: {N} \[{CELL}\||{CELL}\|) {N} \|",
                lambda name=name: row("caption_agreement", name)[:3],
            )
            for title, name in (
                ("`wmd` with `task.word_weights=idf`", "wmd (idf)"),
                ("`mean_vector`", "mean_vector"),
                ("`tfidf`", "tfidf"),
                ("`{wmd: 1, tfidf: 1}` with `task.word_weights=idf`", "wmd (idf) + tfidf"),
                ("a sentence encoder (all-MiniLM-L6-v2)", "all-MiniLM-L6-v2"),
            )
        ),
        (
            rf"\| `wmd` \(default, the papers' distance\) \| {N} \| \| {N} \|",
            lambda: [row("caption_agreement", "wmd")[0], row("caption_agreement", "wmd")[2]],
        ),
        (f"weights are rounded to 1/{N} of the largest", lambda: bags._LARGEST),
        (f"its mean between up to {N} training images", lambda: caption_distance._SAMPLE),
        (
            f'the default `"mean"`: {N} and {N} for `tfidf`, {N} and {N} for the encoder',
            lambda: [
                row("caption_agreement", name)[0]
                for name in ("tfidf (minima)", "tfidf", "all-MiniLM-L6-v2 (minima)", "all-MiniLM-L6-v2")
            ],
        ),
    ],
    "docs/caption_scores.md": [
        (f"beta {N}; precision and recall", lambda: scores._BETA),
        (rf"`cider_d` \| 0 to {N}\.", lambda: metrics.METRICS["cider_d"].high),
        (rf"`cider` \| 0 to {N}\.", lambda: metrics.METRICS["cider"].high),
        (
            rf"all captions of Flickr8k \({N}\) and COCO val2017 \({N}\)",
            lambda: [row("caption_scores", "Flickr8k")[0], row("caption_scores", "COCO val2017")[0]],
        ),
        (f"on {N} sets of captions", lambda: stated("caption_scores", rf"COCO val2017: {N} images")),
        (
            f"{N} of the {N} captions of COCO val2017 differ",
            lambda: [row("caption_scores", "COCO val2017")[3], row("caption_scores", "COCO val2017")[0]],
        ),
    ],
    "docs/captioning.md": [
        *(
            (
                rf"\| {title} \| {PLUS} \|",
                lambda network=network: spread(measured("captioning_controls", f"lstm, {network}")),
            )
            for title, network in (
                ("ImageNet, as it is", "ImageNet"),
                ("caption distances, log-ratio loss", "log-ratio"),
                ("caption distances, dense triplets", "dense triplets"),
                ("shuffled captions, log-ratio loss", "shuffled log-ratio"),
                ("cross entropy of a captioner", "cross entropy"),
            )
        ),
        *(
            (
                rf"\| {title} \| [^|]+ \| {PLUS} \|",
                lambda network=network: less("captioning_controls", f"lstm, {network}", "lstm, ImageNet"),
            )
            for title, network in (
                ("caption distances, log-ratio loss", "log-ratio"),
                ("caption distances, dense triplets", "dense triplets"),
                ("shuffled captions, log-ratio loss", "shuffled log-ratio"),
                ("cross entropy of a captioner", "cross entropy"),
            )
        ),
        (f"One caption for all images has {N}", lambda: stated("captioning", f"one caption for all images {N}")),
        (
            f"raised CIDEr-D on validation in every training, by {N} to {N};",
            lambda: [f(captioned("", "scst_val", "xe_val")) for f in (min, max)],
        ),
        (
            f"fell in {WORD} of the {WORD} trainings, by up to {N}, and rose in {WORD}, by up to {N}",
            lambda: rouge_l(),
        ),
        (f"up to {N} training images", lambda: setup._MOST_IMAGES),
        (f"a new `lstm` of {N} units", lambda: config("captioning/flickr8k")["decoder"]["hidden"]),
    ],
    "docs/classes.md": [
        (
            rf"{N}, validation \| `classes/unified_view loss",
            lambda: validated(CLASSES, "binomial_deviance", "loss.beta=50"),
        ),
        (rf"{N}, validation \| `classes/unified_view miner=null", lambda: validated(CLASSES, "raw", "")),
        (
            rf"{N}, validation \| `classes/unified_view miner=d",
            lambda: validated(CLASSES, "raw", "miner=distance_weighted"),
        ),
        (rf"{N}, unseen \| `classes/unified_view miner", lambda: mean(CLASSES, "raw")),
        (rf"{N}, unseen \| `classes/unified_view`", lambda: mean(CLASSES, "multi_similarity (raw + vthm)")),
        (
            f"species 1-100: {N} images {CELL}101-200: {N} ".replace(CELL, r"\| "),
            lambda: [cub.PUBLISHED[part].images for part in ("train", "test")],
        ),
        (
            rf"models 1-98: {N} \| 99-196: {N} ",
            lambda: [cars.PUBLISHED[part].images for part in ("train", "test")],
        ),
        (
            rf"\| {N} products: {N} \| {N} others: {N} \|",
            lambda: [
                n for part in ("train", "test") for n in (sop.PUBLISHED[part].classes, sop.PUBLISHED[part].images)
            ],
        ),
        (
            rf"\| {N} garments: {N} \| {N} others: {N} queries, {N} in the gallery",
            lambda: [
                inshop.PUBLISHED["train"].classes,
                inshop.PUBLISHED["train"].images,
                inshop.PUBLISHED["query"].classes,
                inshop.PUBLISHED["query"].images,
                inshop.PUBLISHED["gallery"].images,
            ],
        ),
        (f"minus {N}, {N} and {N}, and the model converts", lambda: BNInception.pixel_format.mean),
    ],
    "docs/engine.md": [
        (f"`memory=`, {N} MiB by default", lambda: nearest_module.MEMORY / (1 << 20)),
        (
            rf"{N} KiB at 112 x 112 x 5",
            lambda: default(SegmentationLabels, "side") ** 2 * 5 / 8 / 1024,
        ),
        (f"find k \\+ {N} candidates", lambda: nearest_module._SPARE + 1),
        (f"captions of more than {N} distinct words, and", lambda: max(solver_gpu.TILES)),
        (f"whole numbers, at most {N}: all solvers", lambda: bags._LARGEST),
        (
            f"fit in {N} bits, as it does for {N} words",
            lambda: [
                math.log2(solver_gpu.MOST_WORDS + 1),
                solver_gpu.MOST_WORDS // bags._LARGEST,
            ],
        ),
        (f"more than {N} distinct words \\(the longest", lambda: max(solver_gpu.TILES)),
        (
            f"vocabularies up to {N} words: at most {N} MB",
            lambda: [bags.WHOLE, bags.WHOLE**2 * 4 / 1e6],
        ),
        (f"for a tile of {N} x 1,280", lambda: caption_distances._TILE),
        (f"every {N} rows are saved", lambda: neighbour_cache._ROWS),
    ],
    "docs/explore.md": [
        (f"the {WORD} nearest items of the gallery", lambda: explored.NEIGHBOURS),
        (
            rf"K is {N}, or a {WORD} of a gallery of less than {N} items",
            lambda: [
                results.headline_k(retrieval.LARGEST_K),
                100 / results.headline_k(100),
                10 * results.headline_k(100),
            ],
        ),
        (f"largest number of items, {N} unless set", lambda: typed("explore", "--items")),
        (f"`127.0.0.1:{N}` unless set", lambda: typed("explore", "--port")),
        (f"Its pictures have {N} pixels", lambda: explore_page.SIDE),
        (f"Own images are at most {N} MB", lambda: serving.LIMIT / (1 << 20)),
    ],
    "docs/in_your_code.md": [
        (f"mean label distance of the {N} nearest items", lambda: results.headline_k(retrieval.LARGEST_K)),
    ],
    "docs/losses.md": [
        *(
            (rf"\| {title} \| {N} \| {N} \| {N} \|(?! [\d.])", lambda name=name: suite_means("class_features", name))
            for title, name in (
                ("`proxy_nca`", "proxy-nca"),
                ("`instance_cross_entropy`, `scale: 64`", "ice, scale 64"),
                ("`ranked_list`", "ranked list"),
                ("`normalized_softmax`", "normalized softmax"),
                (r"`raw` with `miner: vthm` \(`multi_similarity`\)", "raw + vthm"),
                ("`soft_info_nce`", "soft_info_nce"),
                ("`soft_triple`", "soft triple"),
                ("`proxy_anchor`", "proxy anchor"),
                ("`cross_entropy`", "cross entropy"),
                ("`lifted_structure`", "lifted structure"),
                ("untrained features", "untrained features"),
                ("`n_pairs`", "n-pair"),
            )
        ),
        (f"`median` is the median of {N} random pairs", lambda: graded_pairs._BLOCKS * graded_pairs._SIDE**2),
        *(
            (
                rf"\| {re.escape(title)} \| {N} \| {N} \| {N} \| {N} \| {N} \| {N} \[",
                lambda name=name: suite_means("graded_features", name),
            )
            for title, name in LOSS_ROWS.items()
        ),
        *(
            (
                rf"Which anchors\.(?:(?!\*\*[A-Z]).)*\| {re.escape(title)} \| {N} \| {N} \| {N} \| {N} \| {N} \[",
                lambda name=name: suite_means("one_anchor", name),
            )
            for title, name in LOSS_ROWS.items()
            if ("poses", name) in suite_scores("one_anchor")
        ),
        *(
            (
                rf"\| {label} [^|]*\| [^|]* \| {N} and {N}, [^|]* \| {N} and {N}, ",
                lambda kind=kind, best=best: [
                    suite_scores(name)[kind, method]
                    for name in ("graded_features", "efficientnet_lite2")
                    for method in (best, "log_ratio")
                ],
            )
            for label, kind, best in (
                ("poses", "poses", "smooth_rank, ap"),
                ("label maps", "rooms", "smooth_rank, ap"),
                ("captions", "captions", "smooth_rank, ap"),
            )
        ),
        (
            rf"one number [^|]*\| [^|]* \| {N}, {N} and {N}, within noise \| {N} and {N}, ",
            lambda: [
                *(
                    suite_scores("graded_features")["house prices", name]
                    for name in ("smooth_rank, ndcg", "log_ratio", "regression head")
                ),
                *(
                    suite_scores("efficientnet_lite2")["house prices", name]
                    for name in ("smooth_rank, ndcg", "log_ratio")
                ),
            ],
        ),
        *(
            (
                rf"\| {re.escape(title)} \| {N} \| {N} \| {N} \| {N} \| {N} \| (?=\||So )",
                lambda name=name: suite_means("efficientnet_lite2", name),
            )
            for title, name in LOSS_ROWS.items()
            if ("poses", name) in suite_scores("efficientnet_lite2")
        ),
        *(
            (
                rf"Small batches\.(?:(?!\*\*[A-Z]).)*\| {re.escape(title)} \| {N} \| {N} \| {N} \| {N} \| {N} \[",
                lambda name=name: suite_means("small_batches", name),
            )
            for title, name in (LOSS_ROWS | {"`dense_triplet`, `margin: 0.9`": "dense_triplet"}).items()
            if ("poses", name) in suite_scores("small_batches") and title != "`dense_triplet`"
        ),
        (
            rf"on captions, `smooth_rank` with `metric: ap` \({N}\) is .* `graded_instance_cross_entropy` \({N}\) by",
            lambda: [
                suite_scores("small_batches")["captions", name]
                for name in ("smooth_rank, ap", "graded_instance_cross_entropy")
            ],
        ),
        *(
            (
                rf"\| {re.escape(title)} \| {N} \| {N} \| {N} \| {N} \[",
                lambda name=name: suite_means("pose_networks", name),
            )
            for title, name in (
                LOSS_ROWS
                | {
                    "`log_ratio`, `model.normalize=true`": "log_ratio, normalized",
                    "`dense_triplet`, `margin: 0.4`": "dense_triplet",
                }
            ).items()
            if ("8 numbers", name) in suite_scores("pose_networks") and title != "`dense_triplet`"
        ),
        *(
            (
                rf"\| {re.escape(title)} \| {N} \[",
                lambda name=name: suite_scores("caption_networks")["captions", name],
            )
            for title, name in (
                ("`smooth_rank`, `metric: ap`", "smooth_rank, ap"),
                ("`soft_info_nce`, `similarity: student_t`", "soft_info_nce, student_t"),
                ("`log_ratio`, `model.normalize=true`", "log_ratio"),
                ("`dense_triplet`, `margin: 0.4`", "dense_triplet"),
            )
        ),
        (
            rf"triplets of binarized labels, by {N}; that .* with 8 numbers the difference is {N}",
            lambda: [
                suite_means("pose_networks", "log_ratio")[-1]
                - suite_means("pose_networks", "triplet_margin, 30 nearest positive")[-1],
                suite_scores("pose_networks")["8 numbers", "log_ratio"]
                - suite_scores("pose_networks")["8 numbers", "dense_triplet"],
            ],
        ),
        (
            f"normalized embeddings: {N} on the mean of the {WORD} sets, unnormalized {N}",
            lambda: [
                suite_means("log_ratio_normalization", "log_ratio, normalized")[-1],
                len(suite_means("log_ratio_normalization", "log_ratio, normalized")) - 1,
                suite_means("log_ratio_normalization", "log_ratio, unnormalized")[-1],
            ],
        ),
        (
            f"unnormalized embeddings have {N} and normalized ones {N}, within noise",
            lambda: [
                suite_scores("log_ratio_normalization")["house prices", f"log_ratio, {each}"]
                for each in ("unnormalized", "normalized")
            ],
        ),
        (
            rf"untrained features \({N}; three of the five by their 95 % intervals\), "
            "and are within noise of the first one, "
            f"`smooth_rank` with `metric: ndcg` \\({N}\\); `dense_triplet` has {N}, "
            f"`graded_instance_cross_entropy` {N}, `smooth_rank` with `metric: ap` {N}, "
            f"`log_ratio` {N} \\(",
            lambda: [
                suite_scores("held_out")["people", name]
                for name in (
                    "untrained features",
                    "smooth_rank, ndcg",
                    "dense_triplet",
                    "graded_instance_cross_entropy",
                    "smooth_rank, ap",
                    "log_ratio",
                )
            ],
        ),
        (
            f"smooth ranks of log distances, has a mean of {N}: above `log_ratio` by {N} ",
            lambda: [
                suite_means("one_loss", "ratios in smooth ranks")[-1],
                suite_means("one_loss", "ratios in smooth ranks")[-1] - suite_means("one_loss", "log_ratio")[-1],
            ],
        ),
        (
            rf"in ten groups, they have {N} \[[^\]]*\], and no loss is better by its interval",
            lambda: suite_scores("streets")["streets", "untrained features"],
        ),
        (
            f"has {N} on poses, {N} on house prices and {N} on gauges",
            lambda: [
                suite_scores("graded_features")[each, "regression head"] for each in ("poses", "house prices", "gauges")
            ],
        ),
        (f"`dense_triplet` chose `margin: {N}` on all sets; the default is {N}", dense_margins),
        (
            rf"a larger `k` \({N}\) or `gamma` \({N}\), `binomial_deviance` a smaller `beta` \({N}\)",
            lambda: [
                chosen(CLASSES, "dro, topk"),
                chosen(CLASSES, "dro, kl"),
                chosen(CLASSES, "binomial_deviance"),
            ],
        ),
        (rf"in MAP@R \({PLUS}, five seeds\)", lambda: less("hdml", "N-pair: alpha 90", "N-pair: base loss")),
        (
            f"Where that is {N}, `alpha: {N}` moves a negative by {N} %",
            lambda: [
                500,
                7,
                100 * (1 - math.exp(-7 / 500)),
            ],
        ),
    ],
    "docs/losses/graded_instance_cross_entropy.md": [
        (
            f"validation score of poses is {N} with {N} and {N} with {N}, of captions {N} and {N}",
            lambda: [
                *(value for scale in (4, 64) for value in (graded_ice("poses", scale), scale)),
                *(graded_ice("captions", scale) for scale in (4, 64)),
            ],
        ),
    ],
    "docs/losses/contrastive.md": [
        (
            f"The margin is {N} for cosine, {N} for Euclidean",
            lambda: [ContrastiveLoss(distance=each).margin for each in ("cosine", "euclidean")],
        )
    ],
    "docs/losses/margin.md": [(rf"10\^\{{-{N}\}}", lambda: -math.log10(pairs.EPSILON))],
    "docs/losses/soft_info_nce.md": [
        (
            f"{N} for gaussian, {N} for exponential; default \\$t\\$: {N} for cosine, {N} for student_t",
            lambda: [
                *(SoftInfoNCELoss(kernel=each, label_scale=1.0).sigma for each in ("gaussian", "exponential")),
                *(
                    float(SoftInfoNCELoss(similarity=each, label_scale=1.0).temperature)
                    for each in ("cosine", "student_t")
                ),
            ],
        )
    ],
    "docs/benchmark.md": [
        (
            f"the interval misses the truth in {N} to {N} % of cases; a bootstrap",
            lambda: [
                min(misses("Seeds and queries", "^[0-9.]+$", 1)),
                max(misses("Seeds and queries", "^[0-9.]+$", 1)),
            ],
        ),
        (f"which pages had before, in up to {N} %", lambda: max(misses("Seeds and queries", "^[0-9.]+$", 0))),
    ],
    "docs/metrics.md": [
        (
            f"heavy-tailed, they miss the truth in {N} to {N} % of cases; 1.96 standard errors do in up to {N} %",
            lambda: [
                min(misses("Groups", "normal|heavy", 2)),
                max(misses("Groups", "normal|heavy", 2)),
                max(misses("Groups", "normal|heavy", 0)),
            ],
        ),
        (
            f"means over new classes in {N} to {N} % of cases; if queries are taken as independent, in {N} to {N} %",
            lambda: [end(misses("Classes", "", k, "new")) for k in (1, 0) for end in (min, max)],
        ),
        (
            f"they miss in {N} to {N} % of cases. Independent queries miss in {N} to {N} %",
            lambda: [end(misses("Classes", "", k, "the same")) for k in (1, 0) for end in (min, max)],
        ),
        (f"are skewed, they miss it in up to {N} % of cases", lambda: max(misses("Groups", "skewed", 2))),
        (
            f"triplets that share items they miss it in {N} to {N} %",
            lambda: [min(misses("Shared items", "", 1)), max(misses("Shared items", "", 1))],
        ),
        (
            f"mean of {N} restarts, fewer where classes x items exceed {N}",
            lambda: [
                clustering._RESTARTS,
                clustering._DISTANCES / clustering._RESTARTS,
            ],
        ),
        (f"label distance@K over K = 1 ... {N} \\(fewer", lambda: retrieval.LARGEST_K),
        (
            rf"are the 2\^-{N}, 2\^-9, ..., 1/{N} quantiles",
            lambda: [
                -math.log2(graded.QUANTILES[0]),
                1 / graded.QUANTILES[-1],
            ],
        ),
        (f"up to {N} queries x {N} items", lambda: graded._SAMPLE),
        (f"of more than {N} queries they take a sample", lambda: graded._SORTED),
        (f"of fewer for galleries above {N} items", lambda: graded._SORTED_PAIRS / graded._SORTED),
        (f"queries and gallery together: {N} iterations", lambda: clustering.ITERATIONS),
    ],
    "docs/runs.md": [
        (f"the report, one file below {N} MB", lambda: report_page.LIMIT / 1e6),
        (f"without scripts, below {N} MB", lambda: report_page.LIMIT / 1e6),
        (f"shows at most {N} items, a sample", lambda: embedding_map.MAX_TSNE),
        (
            f"a share of which is set aside: `training.val_share={N}`".replace("a share of which", "of which a share"),
            lambda: Training().val_share,
        ),
    ],
    "docs/scale.md": [
        (
            f"keeps {N} bytes per row of a number, {N} of a class with a name of 12 characters, and {N} of a caption",
            lambda: [sum(kept_per_row(kind)[:2]) for kind in ("number", "class", "captions")],
        ),
        (
            f"While the table is read, it is {N}, {N} and {N}",
            lambda: [kept_per_row(kind)[2] for kind in ("number", "class", "captions")],
        ),
        (
            f"numbers begins with {N} GB resident, of which {N} are its own, and one of 10\\^7 classes with {N}",
            lambda: [*started("number")[1:3], started("class")[1]],
        ),
        (
            f"needs up to {N} GB with the mapped files",
            lambda: max(started(kind, "contml check, after reading")[1] for kind in ("number", "class")),
        ),
        (
            rf"to the first step \| {N} s \| {N} s \| \*\*{N} s\*\*",
            lambda: [seconds_to_start(rows) for rows in (10**5, 10**6, 10**7)],
        ),
        (
            rf"until then, at most \| {N} GB \| {N} GB \| \*\*{N} GB\*\*",
            lambda: [started("number", rows=rows)[1] for rows in (10**5, 10**6, 10**7)],
        ),
    ],
    "docs/search.md": [
        (f"Up to {N} items, all are compared", lambda: nearest.EXACT_ROWS),
        (f"{N} of the distinct vectors are queries", lambda: nearest.QUERIES),
        (
            f"candidates that finds {N} % of their true {N} nearest is kept",
            lambda: [100 * nearest.RECALL, nearest.RECALL_K],
        ),
        (f"If no number finds {N} %", lambda: 100 * nearest.RECALL),
        (f"It has up to {N} rows, and is never changed", lambda: segments.ROWS),
        (f"images per query. Default: {N}", lambda: typed("search", "-k")),
    ],
    "docs/sweep.md": [(f"after {WORD} random trials", lambda: random_trials())],
    "docs/table.md": [
        *(
            (rf"\| `{name}: {N}` \|", lambda kind=kind, name=name: default(table_kinds.TABLE_LABELS[kind], name))
            for kind, name in (("map", "side"), ("captions", "dim"), ("geo", "heading_weight"))
        ),
        (rf"`task\.test={N}` \|", lambda: default(table_file.file, "test")),
        (f"cells of up to {N} rows", lambda: columns._SAMPLE),
        (f"At least {N}% of the cells must fit", lambda: 100 * columns._MIN_SHARE),
        (f"at most {N} levels, or whole numbers that repeat", lambda: text_labels._MOST_LEVELS),
        (
            f"above {N} training rows \\(captions and maps: {N}; if they are part of a sum of labels: {N} and {N}\\)",
            lambda: [
                text_labels.TableLabel.most_rows[0],
                text_labels.CaptionsLabel.most_rows[0],
                text_labels.CaptionsLabel.most_rows[1],
                text_labels.MapLabel.most_rows[1],
            ],
        ),
        (f"of more than {N} test rows, {N} are drawn", lambda: [table_items._MANY, table_items._QUERIES]),
        (f"After {N} steps from scratch", lambda: 6 * config("table/default")["sampler"]["batches"]),
        (
            f"both train a small one from scratch on {N}-pixel images",
            lambda: config("table/default")["images"]["crop"],
        ),
    ],
    "docs/using_a_model.md": [
        (f"parts of {N} images are kept", lambda: embed_parts._PART),
        (f"embeddings differ by more than {N} \\(of", lambda: graph._TOLERANCE),
        (f"on {WORD} random images", lambda: graph._CHECKED),
        (rf"covers {N} % of the pairs", lambda: 100 * calibration.LEVEL),
        (f"Each {WORD} of the queries is measured", lambda: calibration._FOLDS),
        (
            f"needs at least {WORD} queries or groups",
            lambda: next(n for n in range(99) if n + 1 - n / calibration.LEVEL < 1e-9),
        ),
        (
            f"had a mean of {N} to {N} % and a standard deviation of {N} to {N} points",
            lambda: [f(each[n] for each in halves()) for n in (0, 1) for f in (min, max)],
        ),
    ],
    "configs/pose/synthetic.yaml": [
        (
            f"{N} to {N} of a random ranking's, a normalized score of {N}, and a rank correlation of embedding and "
            f"pose distance of {N}",
            lambda: [
                *(f(measured("embedding_size", "dim 64", oracle="0.174")) for f in (min, max)),
                *(mean("embedding_size", "dim 64", metric, "0.174") for metric in ("normalized_score", "spearman")),
            ],
        ),
        (
            f"which validation prefers: {N}, {N} and {N} ",
            lambda: [mean(POSE, DENSE, metric) for metric in ("value", "normalized_score", "spearman")],
        ),
    ],
    "configs/pose/synthetic_nearest.yaml": [
        (f"about {N} of a random", lambda: mean(POSE, "triplet, nearest")),
        (f"with a margin of {N}", lambda: chosen_margin("triplet, nearest")),
        (f"pose/synthetic: {N};", lambda: mean("embedding_size", "dim 64", oracle="0.174")),
    ],
    "configs/pose/synthetic_threshold.yaml": [
        (f"about {N} of a random", lambda: mean(POSE, THRESHOLD)),
        (f"with a margin of {N}", lambda: chosen_margin(THRESHOLD)),
        (f"pose/synthetic: {N};", lambda: mean("embedding_size", "dim 64", oracle="0.174")),
    ],
    "configs/pose/synthetic_dense_triplet.yaml": [
        (
            f"With a margin of {N}, which validation prefers: {N} ",
            lambda: [chosen_margin(TRIPLETS), mean(POSE, TRIPLETS)],
        ),
    ],
    "configs/layout/synthetic.yaml": [
        (
            f"about {N} of a random ranking's, a normalized score of {N} \\(the oracle has {N}, untrained weights "
            f"{N}\\), and a rank correlation of embedding and layout distance of {N}",
            lambda: [
                mean(LAYOUT, DENSE),
                mean(LAYOUT, DENSE, "normalized_score"),
                mean(LAYOUT, DENSE, "oracle"),
                stated(LAYOUT, UNTRAINED),
                mean(LAYOUT, DENSE, "spearman"),
            ],
        ),
    ],
    "configs/layout/synthetic_threshold.yaml": [
        (
            rf"about {N} of a random ranking's \(layout/synthetic: {N}, within the interval\), and a rank correlation "
            rf"of embedding and layout distance of {N} \({N}\)",
            lambda: [mean(LAYOUT, each, metric) for metric in ("value", "spearman") for each in (THRESHOLD, DENSE)],
        ),
    ],
    "configs/captions/synthetic.yaml": [
        (
            f"about {N} of a random ranking's, a normalized score of {N} \\(0 = random, 1 = the oracle, which is "
            f"at {N};",
            lambda: [mean(CAPTIONS, DENSE, metric) for metric in ("value", "normalized_score", "oracle")],
        ),
    ],
    "configs/captions/synthetic_threshold.yaml": [
        (
            f"about {N} of a random ranking's, not distinguishable from captions/synthetic with {N}; Spearman's "
            f"correlation is {N} for both",
            lambda: [mean(CAPTIONS, THRESHOLD), mean(CAPTIONS, DENSE), mean(CAPTIONS, DENSE, "spearman")],
        ),
    ],
    "configs/captioning/flickr8k.yaml": [
        (
            f"CIDEr-D {N} on the test images with the network of ImageNet",
            lambda: stated("captioning_controls", f"has CIDEr-D {N} on the test images"),
        ),
        (
            f"and {N} after {N} epochs of cross entropy alone",
            lambda: [mean("captioning_controls", "lstm, ImageNet"), captioning.SETUPS["lstm"].epochs[0]],
        ),
        (
            f"nearest training image has {N}",
            lambda: stated("captioning_controls", rf"caption of the nearest image {N} \(ImageNet\)"),
        ),
        (f"Cost: {N} minutes", lambda: min(measured("captioning", "lstm, ImageNet", "seconds")) / 60),
    ],
    "configs/classes/unified_view.yaml": [
        (f"Expect: Recall@1 {N} on unseen", lambda: mean(CLASSES, "multi_similarity (raw + vthm)")),
    ],
    "configs/classes/synthetic.yaml": [
        (
            rf"Recall@1 {N} on unseen species \(three seeds, 95 % interval {N}\); {N} untrained, {N} by chance",
            lambda: [
                *spread(measured(CLASSES, "multi_similarity (raw + vthm)")),
                stated(CLASSES, UNTRAINED.replace("weights", "weights have")),
                stated(CLASSES, f"chance is {N}"),
            ],
        ),
        (f"{WORD} losses and HDML", lambda: len({loss for loss, *_ in classes_synthetic._LOSSES.values()})),
        (f"miner=semi_hard it is {N};", lambda: mean(CLASSES, "raw")),
        (f"model.normalize=false, {N}\\.", lambda: mean(CLASSES, "cross_entropy")),
        (
            f"optimizer.loss_lr={N} reaches {N}",
            lambda: [chosen(CLASSES, "proxy_anchor"), mean(CLASSES, "proxy_anchor")],
        ),
    ],
    "configs/classes/cars196_small.yaml": [
        (
            f"Recall@1 {N} on unseen models; {N} untrained",
            lambda: [
                stated("classes_real", f"multi_similarity to {N}"),
                stated("classes_real", f"untrained network has {N}"),
            ],
        ),
        (
            f"reaches {N} without training, and {N} after",
            lambda: [
                row("classes_real", name, "all of MobileNetV2")[0]
                for name in ("untrained: features of the backbone", "multi_similarity (raw + vthm)")
            ],
        ),
    ],
    "configs/classes/omniglot_small.yaml": [
        (f"other losses: {N} to {N}\\)", lambda: other_losses()),
        (
            f"Recall@1 {N} on unseen characters; {N} untrained, {N} by chance",
            lambda: [
                row("classes_real", name, "## omniglot_small")[0]
                for name in ("multi_similarity (raw + vthm)", "untrained: with its new head", "by chance")
            ],
        ),
    ],
}


def validated(name: str, method: str, tried: str) -> float:
    """The result of an option on the validation split."""
    (found,) = (each for each in raw(name) if each["key"][:2] == [method, tried] and each["key"][3] == "val")
    value: float = found["metrics"]["value"]
    return value


def chosen_margin(method: str) -> float:
    """The margin with the lowest label distance on the validation split."""
    rows = [each for each in raw(POSE) if each["key"][0] == method and each["key"][3] == "val"]
    return float(min(rows, key=lambda each: each["metrics"]["value"])["key"][1].partition("=")[2])


def other_losses() -> list[float]:
    """Recall@1 of the least and the best of the other losses on Omniglot."""
    text = (ROOT / "benchmarks/results/classes_real.md").read_text(encoding="utf-8").partition("## omniglot_small")[2]
    found = [float(n) for n in re.findall(r"^\| (?!by chance)[a-z_, ]+ \| ([\d.]+) \|", text, re.MULTILINE)]
    return [min(found), max(found)]


def random_trials() -> int:
    """The trials that Optuna draws before it models the results."""
    optuna = pytest.importorskip("optuna")
    trials: int = optuna.samplers.TPESampler()._n_startup_trials
    return trials


def rouge_l() -> list[float]:
    """How often ROUGE-L fell and rose with self-critical training, and by how much."""
    changes = captioned("", "scst_rouge_l", "xe_rouge_l")
    fell, rose = [-change for change in changes if change < 0], [change for change in changes if change > 0]
    return [len(fell), len(changes), max(fell), len(rose), max(rose)]


def kept_per_row(labels: str) -> list[float]:
    """Bytes per row that a task of 10^6 rows keeps, those in tensors besides, and the most while it is read."""
    text = (ROOT / "benchmarks/results/growth.md").read_text(encoding="utf-8")
    cells = re.search(rf"^\| {labels} \| 1,000,000 \| (\d+) \| (\d+) \| (\d+) \|$", text, re.MULTILINE)
    assert cells is not None
    return [*map(float, cells.groups())]


def started(labels: str, phase: str = "first step", rows: int = 10**7) -> list[float]:
    """Seconds of a part of the start of a training; GB so far: resident, the process's own, and of mapped files."""
    return row("growth", phase, below=f"labels: {labels}, {rows:,} rows")


def seconds_to_start(rows: int) -> float:
    """Processor seconds until the end of the first step."""
    phases = ("reading, splits, queries", "model, loss, sampler, images", _RECORD, "first step")
    return sum(started("number", phase, rows)[0] for phase in phases)


_RECORD = "record of the run: 31 bytes per row"


def halves() -> list[list[float]]:
    """Mean and standard deviation of the coverage on random halves, of each data set."""
    text = (ROOT / "benchmarks/results/calibration.md").read_text(encoding="utf-8")
    return [[float(n) for n in each] for each in re.findall(r"([\d.]+) ± ([\d.]+) \|$", text, re.MULTILINE)]


#: What heads of configs say about their own options, wherever they say it.
HEADS: list[tuple[str, Callable[[dict[str, Any]], Any]]] = [
    (rf"{N} steps of {N} images", lambda v: [steps(v), batch(v)]),
    (rf"steps of [\d,]+ images of {N} pixels", lambda v: v["images"]["crop"]),
    (
        rf"{N} epochs of {N} batches of {N} images",
        lambda v: [v["training"]["epochs"], v["sampler"]["batches"] or steps(v) / v["training"]["epochs"], batch(v)],
    ),
    (rf"{N} dimensions, (?:unit length|frozen batch norm|no L2)", lambda v: v["model"]["dim"]),
    (rf"; {N} classes x {N} images; Adam", lambda v: [v["sampler"]["classes"], v["sampler"]["instances"]]),
    (rf", {N} classes x {N} images per batch", lambda v: [v["sampler"]["classes"], v["sampler"]["instances"]]),
    (rf"fixed learning rate of {N}", lambda v: v["optimizer"]["lr"]),
    (
        rf"learning rate {N}, new layers (ten) times that",
        lambda v: [v["optimizer"]["lr"], v["optimizer"]["head_lr"] / v["optimizer"]["lr"]],
    ),
    (
        rf"AdamW with learning rate {N}, proxies {N} times that, weight decay {N}",
        lambda v: [
            v["optimizer"]["lr"],
            v["optimizer"]["loss_lr"] / v["optimizer"]["lr"],
            v["optimizer"]["weight_decay"],
        ],
    ),
    (
        rf"SGD {N}, momentum {N}, weight decay {N}, lr / \(1 \+ {N} step\)",
        lambda v: [
            *(v["optimizer"][name] for name in ("lr", "momentum", "weight_decay")),
            v["schedule"]["decay"],
        ],
    ),
    (
        rf"SGD with momentum {N}, weight decay {N}",
        lambda v: [v["optimizer"]["momentum"], v["optimizer"]["weight_decay"]],
    ),
    (
        rf"1e-5, weight decay {N}; crops of {N} of {N} pixels",
        lambda v: [
            v["optimizer"]["weight_decay"],
            v["images"]["crop"],
            v["images"]["resize"],
        ],
    ),
    (rf"images of {N} x 256 pixels, random crops of {N}", lambda v: [v["images"]["resize"], v["images"]["crop"]]),
    (rf"clipped at {N};", lambda v: v["training"]["clip_value"]),
    (rf"batches of {N} images drawn uniformly", lambda v: v["sampler"]["batch_size"]),
    (rf"; scale {N}[;,]", lambda v: v["loss"]["scale"]),
    (
        rf"alpha {N}, beta {N}, base {N}; VTHM margin {N};",
        lambda v: [
            *(v["loss"][name] for name in ("alpha", "beta", "base")),
            (v.get("miner") or v["loss"])["epsilon"],
        ],
    ),
    (rf"{N} images per class;", lambda v: v["sampler"]["instances"]),
    (rf"ten times as fast as the network; alpha {N}\.", lambda v: v["step"]["alpha"]),
    (rf"halved at steps {N} and {N},", lambda v: [each * v["sampler"]["batches"] for each in v["schedule"]["epochs"]]),
    (rf"loss\.k counts ordered pairs: {N} is", lambda v: v["loss"]["k"]),
    (rf"(?:The|the|and) {N} epochs are", lambda v: v["training"]["epochs"]),
    (rf"batch norm and {N} epochs are", lambda v: v["training"]["epochs"]),
    (rf"with (?:the |a )?margin {N} on L2-normalized", lambda v: v["loss"]["margin"]),
    (rf"Ours: {N} of the validation images, drawn", lambda v: v["task"]["queries"]),
    (rf"threshold of {N}(?: \(mean IoU| pixels,)", lambda v: v["binarize"]["threshold"]),
    (rf"{N} nearest poses as positives", lambda v: v["binarize"]["k"]),
]
#: Training images of the published data sets.
IMAGES = {
    "classes/cub": cub.PUBLISHED,
    "classes/cars": cars.PUBLISHED,
    "classes/sop": sop.PUBLISHED,
    "classes/inshop": inshop.PUBLISHED,
    "layout/lsun": {"train": lsun._TRAINING},
}


def batch(values: dict[str, Any]) -> int:
    """The number of images of a batch."""
    sampler = values["sampler"]
    products = {"classes": ("classes", "instances"), "triplets": ("triplets",)}
    sizes = [sampler[name] for name in products.get(sampler["name"], ("batch_size",))]
    return math.prod(sizes) * (3 if sampler["name"] == "triplets" else 1)


def steps(values: dict[str, Any]) -> int:
    """The number of steps of a training."""
    sampler, per_epoch = values["sampler"], values["sampler"]["batches"]
    if per_epoch is None:
        per_step = sampler["anchors_per_batch"] if sampler["name"] == "dense" else batch(values)
        per_epoch = IMAGES[values["task"]["name"]]["train"].images // per_step
    total: int = values["training"]["epochs"] * per_epoch
    return total


def test_heads_of_configs_say_what_is_in_them():
    held = dict.fromkeys((phrase for phrase, _ in HEADS), 0)
    for name in config_names():
        for phrase, true in HEADS:
            for found in re.findall(phrase, text_of(f"configs/{name}.yaml")):
                held[phrase] += 1
                value = true(config(name))
                expected = value if isinstance(value, list | tuple) else [value]
                printed = [found] if isinstance(found, str) else found
                for text, each in zip(printed, expected, strict=True):
                    assert_printed(text, each, f"{name}: {phrase}")
    assert [phrase for phrase, count in held.items() if not count] == []


#: Raw files that `contml benchmark` wrote.
RAW = sorted(path.stem for path in (ROOT / "benchmarks/results/raw").glob("*.jsonl"))
OF_SUITES = {*suite_names(), *(path.stem for path in (ROOT / "benchmarks/suites").glob("*.yaml"))}
SUITES = {name for name in RAW if name in OF_SUITES}


@pytest.mark.parametrize("name", sorted(SUITES))
def test_tables_of_suites_are_those_of_the_trainings(name):
    """The score of each method is the mean of the recorded trainings on the test split."""
    scores = suite_scores(name)
    sections = (ROOT / f"benchmarks/results/{name}.md").read_text(encoding="utf-8").split("\n## ")
    held = 0
    for section in sections[1:]:
        title, _, body = section.partition("\n")
        for method, score in re.findall(r"^\| ([^|]+) \| [^|]+ \| [\d.]+ \| ([\d.]+) \[", body, re.MULTILINE):
            if title != "Overview":
                assert_printed(score, scores[title, method], f"{name}, {title}: {method}")
                held += 1
    assert held >= min(10, len(scores))  # a suite may have trials alone so far


def test_the_table_of_judged_pairs_is_that_of_the_trainings():
    text = (ROOT / "benchmarks/results/judged_pairs.md").read_text(encoding="utf-8")
    lines = (ROOT / "benchmarks/results/raw/judged_pairs.jsonl").read_text(encoding="utf-8").splitlines()
    trained = [json.loads(line) for line in lines]
    rows = re.findall(r"^\| ([\d,]+|full labels) \| [\d.,]+ \| (\S+ ± \S+) \| (\S+ ± \S+) \|$", text, re.MULTILINE)
    assert len(rows) >= 9
    for judgments, *cells in rows:
        count = 0 if judgments == "full labels" else int(judgments.replace(",", ""))
        for loss, cell in zip(("cosent", "log_ratio"), cells, strict=True):
            values = [each["metrics"]["spearman"] for each in trained if each["key"][:2] == [loss, count]]
            assert cell == f"{statistics.mean(values):.3f} ± {half_width(values):.3f}", (judgments, loss)


def test_the_table_of_nested_lengths_is_that_of_the_trainings():
    """The mean score of each length, trained alone, with the others, and as the first numbers of the longest."""
    trained = [json.loads(line) for line in raw_lines("matryoshka")]
    held = 0
    for section in (ROOT / "benchmarks/results/matryoshka.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        name, _, body = section.partition("\n")
        for length, alone, nested, _, first, _ in re.findall(r"^\| (\d+) " + 5 * r"\| ([^|]+) " + r"\|$", body, re.M):
            for cell, training in ((alone, f"alone {length}"), (nested, "matryoshka"), (first, "alone 128")):
                scores = [
                    statistics.mean(each["scores"][length])
                    for each in trained
                    if (each["set"], each["training"]) == (name, training)
                ]
                assert cell == f"{statistics.mean(scores):.3f}", (name, length, training)
                held += 1
    assert held == 18


def test_the_table_of_wrong_judgments_is_that_of_the_trainings():
    """The mean share that each method finds, over the seeds."""
    trained = [json.loads(line) for line in raw_lines("judgment_errors")]
    text = (ROOT / "benchmarks/results/judgment_errors.md").read_text(encoding="utf-8")
    head, *rows = re.findall(r"^\| (.*) \|$", text, re.MULTILINE)
    methods = head.split(" | ")[2:-1]
    pages_of_judgments = (ROOT / "docs/judgments.md").read_text(encoding="utf-8").splitlines()
    for judgments, seeds, *cells, _ in (row.split(" | ") for row in rows if not row.startswith("---")):
        found = [each["metrics"] for each in trained if each["key"][0] == judgments]
        assert len(found) == int(seeds)
        for method, cell in zip(methods, cells, strict=True):
            values = [metrics[method] for metrics in found if method in metrics]
            mean_text = f"{statistics.mean(values):.2f}" if values else "-"
            assert cell.split(" ± ")[0] == mean_text, (judgments, method)
        shown = [cell for cell in cells if cell != "-"]
        assert any(all(cell in line for cell in shown) for line in pages_of_judgments), judgments
    assert len(rows) > 6


#: Trainings whose lines and tables have another form.
OWN_FORMS = {"presets", "finetuning", "judged_pairs", "matryoshka", "judgment_errors", "teachers"}


@pytest.mark.parametrize("name", [name for name in RAW if name not in {*SUITES, *OWN_FORMS}])
def test_tables_of_results_are_those_of_the_trainings(name):
    """Each mean on the test split, with its interval, is that of the recorded trainings."""
    text = (ROOT / f"benchmarks/results/{name}.md").read_text(encoding="utf-8")
    means: dict[str, set[str]] = {}
    for method in {each["key"][0] for each in raw(name) if each["key"][3] == "test"}:
        oracles = {f"{each['metrics'].get('oracle', 0):.3f}" for each in raw(name) if each["key"][3] == "test"}
        for values in (measured(name, method, oracle=oracle) for oracle in oracles):
            several = f" ± {half_width(values):.3f}" if len(values) > 1 else ""
            means.setdefault(method, set()).add(f"{statistics.mean(values):.3f}{several}")
    held = 0
    for title, body in re.findall(r"^\| method \| (.*)\n\|[- |]+\|\n((?:\|.*\n)+)", text, re.MULTILINE):
        column = 1 + [cell.startswith("test") for cell in title.split(" | ")].index(True)
        for line in body.splitlines():
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            assert cells[column] in means[cells[0]], (name, cells[0], cells[column], means[cells[0]])
            held += 1
    assert held >= 2 or name == "label_errors"


@pytest.mark.parametrize(
    ("make", "page"),
    [
        (presets.table, "benchmarks/results/presets.md"),
        (presets.table, "docs/finetuning.md"),
        (presets.table_of_heads, "benchmarks/results/presets.md"),
        (finetuning.table, "benchmarks/results/finetuning.md"),
        (finetuning.table, "docs/finetuning.md"),
    ],
)
def test_tables_of_finetuning_are_those_of_the_trainings(make, page):
    assert make() in (ROOT / page).read_text(encoding="utf-8")


def test_the_page_on_finetuning_says_what_the_tables_say():
    """In words: the preset is above the features in all rows, larger images are better, one head differs."""
    page, rows = text_of("docs/finetuning.md"), [line.split(" | ") for line in presets.table().splitlines()[2:]]
    assert all(float(row[5].split("(")[1].split(" ")[0]) > 0 for row in rows)
    assert f"in all {len(rows)} rows" in page
    small, _, large = ([float(row[4]) for row in rows[start : start + 4]] for start in (0, 4, 8))
    assert all(a < b for a, b in zip(small, large, strict=True))
    heads = [line.strip("| ").split(" | ") for line in presets.table_of_heads().splitlines()[3:]]
    clear = [(head[0], cell) for head in heads for cell in (head[2], head[4]) if "(+" in cell or "to -" in cell]
    ((head, difference),) = clear
    assert head == "linear, from random numbers"
    assert f"except for `random` on houses, by {difference.split(' ')[0].removeprefix('+')}" in page


ROWS = [(page, phrase, true) for page, claims in CLAIMS.items() for phrase, true in claims]


@pytest.mark.parametrize(("page", "phrase", "true"), ROWS, ids=[f"{page} {n}" for n, (page, *_) in enumerate(ROWS)])
def test_the_number_is_true(page, phrase, true):
    found = re.findall(phrase, text_of(page))
    assert len(found) == 1, f"{page} has it {len(found)} times: {phrase}"
    printed = [text for text in (found[0] if isinstance(found[0], tuple) else found) if text]
    value = true()
    expected = [value] if isinstance(value, int | float) else [each for each in value if not math.isnan(each)]
    assert len(printed) == len(expected), (page, phrase, printed, expected)
    for text, each in zip(printed, expected, strict=True):
        assert_printed(text, each, f"{page}: {phrase}")


@pytest.mark.parametrize("page", sorted({*CLAIMS, *(f"configs/{name}.yaml" for name in config_names())}))
def test_results_that_a_page_names_exist(page):
    for name in re.findall(r"benchmarks/results/\w+\.md", text_of(page)):
        assert (ROOT / name).is_file(), name


def in_lines(page: str, heading: str, until: str) -> list[str]:
    """The lines of a page after a heading, before another one."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return text.split(f"{heading}\n", 1)[1].split(f"\n{until}", 1)[0].splitlines()


#: The parts of docs/losses.md that say which loss to take: the first heading, and the one after the part.
WHICH_LOSS = (
    ("## Which loss for graded labels?", "## The family"),
    ("### HDML and its parts", "```{toctree}"),
)
#: Words of a sentence that compares.
COMPARES = re.compile(
    r"\b(above|as good|at least as|behind|below|beats?|best|better|closer?|contradict\w*|confirm\w*|differ|fewer|first|"
    r"gains?|higher|highest|holds?|last|less|loses?|lower|lowest|more|needed|noise|order|outperforms?|prefer\w*|safest|"
    r"same as|second|significant(?:ly)?|smaller|stronger|ties|tied|weaker|wins?|worse|worst)\b"
)
#: A loss, or several.
NAMES_LOSS = re.compile(r"`(?:" + "|".join(LOSSES) + r")`|\bloss(?:es)?\b|\brows?\b|N-pair|triplet", re.IGNORECASE)
LINK = r"\]\(\.\./benchmarks/results/\w+\.md\)"


@pytest.mark.parametrize(("heading", "until"), WHICH_LOSS)
def test_each_sentence_that_compares_losses_cites_results(heading, until):
    """Each names the page of results itself, so that a sentence which is moved or added cannot lose it."""
    lines = in_lines("docs/losses.md", heading, until)
    text = "\n".join(line for line in lines if not line.startswith(("|", "#", "![")))
    compared = 0
    for paragraph in re.split(r"\n\s*\n", text):
        for sentence in re.split(r"(?<=[.?!])\s+(?=[A-Z*`\[])", " ".join(paragraph.split())):
            if COMPARES.search(sentence) and NAMES_LOSS.search(sentence):
                compared += 1
                assert re.search(LINK, sentence), sentence
    assert compared >= 2


@pytest.mark.parametrize(("heading", "until"), WHICH_LOSS)
def test_each_score_that_says_which_loss_is_held(heading, until):
    """Each number with three decimals is one that a phrase of `CLAIMS` compares with the trainings.

    The interval of a score is on a page of results beside the same score.
    """
    page = text_of("docs/losses.md")
    held = [found.span() for phrase, _ in CLAIMS["docs/losses.md"] for found in re.finditer(phrase, page)]
    start = page.index(f"{heading} ")
    end = page.index(f"{until} ", start)
    results = " ".join(path.read_text(encoding="utf-8") for path in (ROOT / "benchmarks/results").glob("*.md"))
    for interval_of_score in re.finditer(r"\d\.\d{3} \[[^\]]+\](?!\()", page[start:end]):
        assert interval_of_score[0] in results, interval_of_score[0]
        held.append((start + interval_of_score.start() + 5, start + interval_of_score.end()))
    for number in re.finditer(r"(?<![\d.])\d\.\d{3}(?!\d)", page[start:end]):
        at = start + number.start()
        assert any(a <= at < b for a, b in held), page[at - 60 : at + 20]
