"""`contml export` and `contml embed`: a trained model in use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from contml.cli.options import Json, Trust
from contml.cli.printing import echo, print_broken

EMBED_EXAMPLE = """Example: contml embed runs/pose/synthetic/2026-11-23_10-00-00 photos/ --out features.parquet"""

Model = Annotated[
    Path,
    typer.Argument(metavar="RUN", help="A run folder, one of 'contml export', or hf://USER/NAME."),
]
#: The file of a graph by its format.
_GRAPHS = {"onnx": "model.onnx", "torch": "model.pt2"}


def export(
    run: Model,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder to write: new, or empty.")],
    kind: Annotated[
        Literal["bundle", "onnx", "torch"],
        typer.Option("--format", help="'onnx' writes DIR/model.onnx, 'torch' DIR/model.pt2 (torch.export)."),
    ] = "bundle",
    pictures: Annotated[
        bool, typer.Option("--pictures/--no-pictures", help="With the gallery of the run, which shows test images.")
    ] = True,
    trust: Trust = False,
) -> None:
    """Write the model of a run in a folder of its own: weights, transform of the images, calibration, model card.

    It needs neither the data nor the config of the run: contml.load("DIR").embed(images) in Python, or 'contml embed
    DIR'. A backbone of your own is not part of it. The folder can be uploaded to the Hugging Face hub as it is.

    With --format, it is the network alone as a graph, which runs without contml; DIR may hold other files.
    """
    from contml.retrieval import load
    from contml.retrieval.bundle import check_folder
    from contml.retrieval.graph import check_graph
    from contml.retrieval.model_card import GALLERY

    if kind == "bundle":
        check_folder(folder)
    else:
        check_graph(folder / _GRAPHS[kind])
    model = load(run, trust=trust)
    if kind == "bundle":
        model.save(folder, pictures=pictures)
        echo(f"{folder}: {model}")
        if (folder / GALLERY).is_file():
            echo(f"{folder / GALLERY} shows test images: before you publish them, see that you may (--no-pictures)")
        return
    graph = model.export(folder / _GRAPHS[kind])
    output = f"embeddings float32 [N, {model.embedding_dim}]"
    echo(f"{graph.file}: {graph.input} to {output}; at most {graph.difference:.1g} from those of contml")


def embed(
    run: Model,
    images: Annotated[
        list[str],
        typer.Argument(
            metavar="IMAGES",
            help="Image files, folders (read recursively), '@list.txt' (a path per line), '@items.csv:COLUMN'.",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The file to write: .parquet, .npz, or .h5 for hloc.")],
    batch_size: Annotated[int, typer.Option(min=1, help="Images at a time.")] = 128,
    workers: Annotated[int, typer.Option(min=0, help="Processes that decode; 0 decodes in this one.")] = 0,
    as_json: Json = False,
    trust: Trust = False,
) -> None:
    """Write the embeddings of images, with the transform of the evaluation.

    The file holds the name of each image (its path below the folder that you gave, or as you wrote it) and its
    embedding. An image that cannot be read is left out and listed at the end. If it is interrupted, the same command
    continues.
    """
    from contml._support.progress import progress_bar
    from contml.retrieval import embed_to_file, load, named_images
    from contml.retrieval.files import check_file

    check_file(out)
    items = named_images(images)
    model = load(run, trust=trust)
    with progress_bar(len(items), "embeddings") as progress:
        written = embed_to_file(model, items, out, batch_size=batch_size, workers=workers, progress=progress)
    for name, cause in written.broken.items():
        print_broken(name, cause)
    if as_json:
        broken = [{"image": name, "cause": cause} for name, cause in written.broken.items()]
        numbers = {"images": written.images, "dim": written.dim, "resumed": written.resumed}
        echo(json.dumps({"file": str(out), **numbers, "broken": broken}))
        return
    resumed = f" ({written.resumed:,} images from an interrupted run)" if written.resumed else ""
    count = len(written.broken)
    left_out = f"; {count:,} image{'s' if count > 1 else ''} could not be read" if count else ""
    echo(f"{out}: {written.images:,} embeddings of {written.dim:,} numbers{resumed}{left_out}")
