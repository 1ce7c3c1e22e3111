"""`contml export`, `contml embed` and `contml caption`: a trained model in use."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from contml._support.errors import InputError
from contml._support.files import EMBEDDINGS, PREDICTIONS, check_suffix, write_new
from contml.app.cli.options import Box, Cluster, Dim, Json, Tables, Trust, argument, option, table_options
from contml.app.cli.printing import complete, echo, print_table, print_unread, unread_data

EMBED_EXAMPLE = """Example: contml embed runs/pose/synthetic/2026-11-23_10-00-00 photos/ --out features.parquet"""
PREDICT_EXAMPLE = """Example: contml predict runs/pose/synthetic/2026-11-23_10-00-00 photos/ --out predicted.csv"""
CAPTION_EXAMPLE = """Example: contml caption runs/captioning/synthetic/2026-11-23_10-00-00 photos/ a.jpg"""

#: The help on images.
IMAGES = "Image files, folders (read recursively), '@list.txt' (a path per line), '@items.csv:COLUMN'"
Model = Annotated[Path, argument("RUN", "A run folder, or one of 'contml export'.")]
Images = Annotated[list[str], argument("IMAGES", f"{IMAGES}; for a model of features a file of vectors.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Images at a time.")]
Workers = Annotated[int, typer.Option(min=0, help="Processes that decode; 0 decodes in this one.")]
#: Images that are described before progress is shown.
_CHUNK = 512
#: The file of a graph.
_GRAPH = "model.onnx"
_LABELS = "With embeddings and labels of training items, without their images."


def export(
    run: Model,
    target: Annotated[str, argument("DIR", "The folder to write: new, or empty.")],
    kind: Annotated[Literal["bundle", "onnx"], option(None, "'onnx' writes DIR/model.onnx.", "--format")] = "bundle",
    labels: Annotated[bool, typer.Option("--labels/--no-labels", help=_LABELS)] = True,
    trust: Trust = False,
) -> None:
    """Write the model of a run in a folder of its own: weights, transform of the images, calibration.

    The folder needs neither the data nor the config of the run. In Python, use contml.load("DIR").embed(images). On the
    command line, use 'contml embed DIR'. For a captioner, use contml.load("DIR").caption(images), or 'contml caption
    DIR'. A network of your own is not part of the folder. The folder can be uploaded to the Hugging Face hub as it is.

    With --format onnx, only the network of an embedding is written, as a graph that runs without contml. DIR may then
    hold other files.
    """
    from contml.search import load
    from contml.search.bundle import LABELS, RECORD, check_folder
    from contml.search.graph import check_graph

    folder, graph_file = Path(target), Path(target) / _GRAPH
    if kind == "bundle":
        check_folder(folder)
        before, model = complete(folder / RECORD), load(run, trust=trust)
        model.save(folder, labels=labels)
        echo(f"{folder}: {before}{model}")
        if (folder / LABELS).is_file():
            what = model.labelled.sample_words or f"{len(model.labelled.labels):,} training items"
            echo(f"{folder / LABELS} has the labels of {what}: before you publish them, see that you may (--no-labels)")
        return
    check_graph(graph_file)
    before, model = complete(graph_file), load(run, trust=trust)
    graph = model.export(graph_file)
    difference = f"at most {graph.difference:.1g} from the embeddings of contml"
    echo(f"{graph.file}: {before}{graph.input} to embeddings float32 [N, {model.embedding_dim}]; {difference}")


def embed(
    run: Model,
    images: Images,
    out: Annotated[Path, option("FILE", "The file to write: .parquet or .npz.")],
    dim: Dim = None,
    box: Box = None,
    tables: Tables = None,
    batch_size: BatchSize = 128,
    workers: Workers = 0,
    cluster: Cluster = "",
    as_json: Json = False,
    trust: Trust = False,
) -> None:
    """Write the embeddings of images, with the transform of the evaluation.

    The file holds the name of each image (its path below the folder that you gave, or as you wrote it) and its
    embedding. An image that cannot be read is left out and listed at the end. After an interruption, the same command
    continues. A complete file stays as it is.
    """
    check_suffix(out, EMBEDDINGS)
    from contml._support.progress import progress_bar
    from contml.search import embed_to_file, load, named_images
    from contml.search.embedding_files import check_file

    check_file(out)
    items = named_images(images, table_options(tables), out, box=box)
    before = complete(out)
    model = load(run, trust=trust)
    model = model if dim is None else with_dim(model, dim)
    note_on_model(run, model, "the file holds", as_json=as_json)
    options: Any = {"batch_size": batch_size, "workers": workers, "cluster": cluster}
    with progress_bar(len(items), "embeddings") as progress:
        written = embed_to_file(model, items, out, **options, progress=progress)
    unread = print_unread(written.broken)
    if as_json:
        numbers = {"images": written.images, "dim": written.dim, "resumed": written.resumed}
        echo(json.dumps({"file": str(out), **numbers, "broken": unread_data(written.broken)}))
        return
    resumed = f" ({written.resumed:,} images from an earlier run)" if written.resumed else ""
    left_out = f"; {unread}" if unread else ""
    echo(f"{out}: {before}{written.images:,} embeddings of {written.dim:,} numbers{resumed}{left_out}")


_WHERE = option("CONDITION", "Only rows of '@items.csv:COLUMN' that meet this: 'price < 500000'.")


def predict(
    run: Model,
    images: Images,
    out: Annotated[Path | None, option("FILE", "Write a table there instead: .csv or .parquet.")] = None,
    where: Annotated[str | None, _WHERE] = None,
    box: Box = None,
    tables: Tables = None,
    batch_size: BatchSize = 128,
    workers: Workers = 0,
    as_json: Json = False,
    trust: Trust = False,
) -> None:
    """Predict the labels of images from the nearest training items, with an interval.

    A number, vector, date or level is the weighted mean of the neighbours' labels. Any other label is the most central
    of the neighbours' labels. The brackets show the interval that holds the true label with a probability of 90 %. For
    some labels, they show the largest distance to the true label, or the probability of a class. The command needs the
    labels that a run keeps, or a bundle with labels. An image that cannot be read is left out and listed.
    """
    if out is not None:
        check_suffix(out, PREDICTIONS)
    from contml._support.files import check_new_file
    from contml.search import load, named_images
    from contml.search.embedding_files import check_takes
    from contml.search.results import prediction_bytes

    if out is not None:
        check_new_file(out, begins=b"image," if out.suffix.lower() == ".csv" else b"PAR1")
    items = named_images(images, table_options(tables), out, where, box)
    model = load(run, trust=trust)
    check_takes(model, items)
    labelled = model.labelled
    note_on_weights(run, model)
    if labelled.sample_words:
        echo(f"note: {labelled.sample_words}", err=True)
    options: Any = {"batch_size": batch_size, "workers": workers, "broken": "skip"}
    predicted, broken = _described(model, items, batch_size, "answers", partial(model.predict, **options))
    unread = print_unread(broken)
    if out is not None:
        before = complete(out)
        write_new(out, prediction_bytes(predicted, out.suffix.lower()))
    if as_json:
        answers_data = [{"image": name, "answers": [a.as_data() for a in each.values()]} for name, each in predicted]
        echo(json.dumps({"predictions": answers_data, "broken": unread_data(broken)}))
    elif out is not None:
        echo(f"{out}: {before}{len(predicted):,} images")
    else:
        rows = [[name, *(a.words + " *" * a.same for a in each.values())] for name, each in predicted]
        print_table([["image", *labelled.titles], *rows], text_columns=1 + len(labelled.titles))
        if any(answer.same for _, each in predicted for answer in each.values()):
            echo("* a training image, whose own label is left out")
    if unread:
        echo(unread, err=as_json)


def _described(
    model: Any, items: Sequence[Any], batch_size: int, title: str, describe: Callable[..., Sequence[Any]]
) -> tuple[list[tuple[str, Any]], dict[str, str]]:
    """Return the output of the model for each image by its name, and the cause for each unreadable image.

    Raises:
        InputError: no image can be read.
    """
    from contml._support.progress import progress_bar

    found, broken = list[tuple[str, Any]](), dict[str, str]()
    step = batch_size * max(1, _CHUNK // batch_size)
    with progress_bar(len(items), title) as progress:
        for start in range(0, len(items), step):
            chunk = items[start : start + step]
            for item, value in zip(chunk, describe([item.source for item in chunk]), strict=True):
                name = str(item.source.stamp) if item.source.stamp else item.name
                if cause := model.left_out.get(name, value is None and "unreadable"):
                    broken[item.name] = cause
                else:
                    found.append((item.name, value))
            progress(min(start + step, len(items)))
    if not found:
        print_unread(broken)
        raise InputError(items[0].name, "cannot be decoded, nor can any other image", hint="check the image files")
    return found, broken


def with_dim(model: Any, dim: int) -> Any:
    """Return the model with embeddings of `dim` numbers.

    Raises:
        InputError: it was not trained for this length.
    """
    try:
        return model.with_dim(dim)
    except InputError as error:
        raise InputError("--dim", error.got, error.allowed, error.hint) from None


def note_on_model(run: Path, model: Any, holds: str, *, as_json: bool) -> None:
    """Print a note if the weights are untrained, and a note that a captioner gives embeddings here, not captions."""
    note_on_weights(run, model)
    if model.captioner is not None:
        embeddings = "the embeddings of its visual network; 'contml caption' describes images"
        echo(f"{run} is a captioner: {holds} {embeddings}", err=as_json)


def note_on_weights(run: Path, model: Any) -> None:
    """Print a note if the weights are the initial ones. Distances then say nothing about the labels."""
    if not model.bundle.epoch:
        echo(f"note: {run} has its initial weights: no training changed or improved them", err=True)


_BEAM = option("N", "Captions that beam search keeps. Default: captioner.beam of the run.", min=1)


def caption(
    run: Model,
    images: Images,
    beam: Annotated[int | None, _BEAM] = None,
    box: Box = None,
    tables: Tables = None,
    batch_size: BatchSize = 128,
    workers: Workers = 0,
    as_json: Json = False,
    trust: Trust = False,
) -> None:
    """Describe images with a captioner, in the same way as its evaluation.

    An image that cannot be read is left out and listed.
    """
    from contml.search import load, named_images
    from contml.search.embedding_files import check_takes

    items = named_images(images, table_options(tables), box=box)
    model = load(run, trust=trust)
    check_takes(model, items)
    options: Any = {"beam": beam, "batch_size": batch_size, "workers": workers, "broken": "skip"}
    rows, broken = _described(model, items, batch_size, "captions", partial(model.caption, **options))
    unread = print_unread(broken)
    if as_json:
        captions = [{"image": name, "caption": text} for name, text in rows]
        echo(json.dumps({"captions": captions, "broken": unread_data(broken)}))
        return
    print_table([["image", "caption"], *rows], text_columns=2)
    if unread:
        echo(unread)
