"""`contml index` and `contml search`: images in an index, found by the embedding of a trained model."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from contml._support.errors import InputError
from contml._support.files import GALLERIES, check_suffix
from contml._support.text import score_text
from contml.app.cli.embed import note_on_model, note_on_weights, with_dim
from contml.app.cli.options import Cluster, Dim, Json, Tables, Trust, table_options
from contml.app.cli.printing import complete, echo, print_table, print_unread, stoppable, unread_data

if TYPE_CHECKING:
    from contml.search.labelled_items import LabelledItems, LabelQuery
    from contml.search.results import QueryResult

INDEX_EXAMPLE = """Example: contml index runs/pose/synthetic/2026-11-23_10-00-00 photos/ --out photos.index"""
SEARCH_EXAMPLE = """Example: contml search photos.index photo.jpg --gallery found.html"""

_IMAGES = "Image files, folders (read recursively), '@list.txt' (a path per line), '@items.csv:COLUMN'."


def index(
    run: Annotated[Path | None, typer.Argument(metavar="RUN", help="A run folder, or one of 'contml export'.")] = None,
    images: Annotated[list[str] | None, typer.Argument(metavar="IMAGES...", help=_IMAGES)] = None,
    *,
    out: Annotated[Path, typer.Option(metavar="INDEX", help="The folder of the index: new, or one to add to.")],
    metadata: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A table with a column 'image': its other columns are shown in results."),
    ] = None,
    dim: Dim = None,
    tables: Tables = None,
    remove: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="Remove this image from the index instead, or all of a folder; repeatable."),
    ] = None,
    compact: Annotated[bool, typer.Option(help="Delete what belongs to removed images from disk instead.")] = False,
    cluster: Cluster = "",
    as_json: Json = False,
    trust: Trust = False,
) -> None:
    """Embed images and add them to an index, which 'contml search' searches.

    The id of an image is its path below the folder that you gave, or as you wrote it. Images that are in the index are
    not embedded again; images that were removed stay out. If it is interrupted, the same command continues.
    """
    change_options = [name for name, value in (("--remove", remove), ("--compact", compact)) if value]
    if change_options and (run is not None or metadata is not None or dim is not None or cluster):
        given = "RUN and images" if run is not None else "--dim, --metadata or --cluster"
        raise InputError(change_options[0], f"used with {given}", hint=f"omit {given}")
    if not change_options and not (run is not None and images):
        raise InputError("RUN IMAGES", "missing", hint=INDEX_EXAMPLE.removeprefix("Example: "))
    with stoppable():
        if run is None:
            _change(out, remove or [], compact, as_json)
        else:
            _add(run, images or [], out, metadata, dim, tables, cluster, as_json, trust)


def _change(out: Path, remove: list[str], compact: bool, as_json: bool) -> None:
    from contml.search import Index

    index = Index.open(out)
    with index.lock():
        removed = index.remove(remove)
        if compact:
            index.compact()
    if as_json:
        counts = {"removed": removed.items, "removed_before": removed.before, "items": len(index)}
        echo(json.dumps({"index": str(out), **counts}))
        return
    before = f"{removed.before:,} removed already, " if removed.before else ""
    text = f"{removed.items:,} images removed, " if removed.items or (remove and not before) else ""
    echo(f"{out}: {text}{before}{len(index):,} left{', compacted' if compact else ''}")


def _add(
    run: Path,
    images: list[str],
    out: Path,
    metadata: Path | None,
    dim: int | None,
    tables: list[str] | None,
    cluster: str,
    as_json: bool,
    trust: bool,
) -> None:
    from contml._support.files import check_new_folder
    from contml._support.progress import progress_bar
    from contml.search import Index, load, named_images
    from contml.search.embedding_files import check_takes_images
    from contml.search.images import IndexModel, add_images, create, read_metadata
    from contml.search.segments import MANIFEST

    is_new = not (out / MANIFEST).exists()
    if is_new:
        check_new_folder(out)
    options = table_options(tables)
    image_files = named_images(images, options, out)
    table = None if metadata is None else read_metadata(metadata, image_files, options=options)
    model = load(run, trust=trust)
    if is_new:
        model = model if dim is None else with_dim(model, dim)
    else:
        index = Index.open(out)
        if dim not in (None, index.dim):
            raise InputError("--dim", str(dim), f"must be {index.dim}, as in {out}", "make a new index for another")
        model = model.fitted_to(index.dim)
        IndexModel.of(index).check(model.identity, str(run))
    check_takes_images(model)
    note_on_model(run, model, "the index holds", as_json=as_json)
    if is_new:
        index = create(out, model, run)
    with index.lock():
        with progress_bar(len(image_files), "images") as progress:
            result = add_images(index, model, image_files, table, progress, cluster=cluster)
        unread = print_unread(result.broken)
        if not len(index):
            raise InputError(str(out), "none of the images could be read", hint="check the image files")
        with progress_bar(len(index), "search graph") as progress:
            index.build(progress)
    if as_json:
        counts = {**asdict(result), "broken": unread_data(result.broken)}
        echo(json.dumps({"index": str(out), **counts, "items": len(index), "search": index.search_text}))
        return
    resumed = f" ({result.resumed:,} from an earlier run)" if result.resumed else ""
    echo(f"{out}: {result.added:,} images added{resumed}, {len(index):,} in all")
    if table is not None and (without := sum(image.name not in table for image in image_files)):
        echo(f"{metadata}: no row for {without:,} of {len(image_files):,} images")
    if result.present:
        kept = "" if table is None else "; their metadata stay as they were"
        echo(f"{result.present:,} images were in the index already{kept}")
    if others := len(index) - result.added - result.present:
        are = "1 image of the index is" if others == 1 else f"{others:,} images of the index are"
        echo(f"{are} not among these images, and stay in it")
    if result.removed:
        echo(f"{result.removed:,} images were removed from the index earlier and stay out of it")
    if unread:
        echo(f"{unread}, and left out")
    echo(f"search: {index.search_text}")


def search(
    index: Annotated[Path, typer.Argument(metavar="INDEX", help="The folder of an index, made by 'contml index'.")],
    queries: Annotated[list[str] | None, typer.Argument(metavar="[QUERY]...", help=_IMAGES)] = None,
    *,
    labels: Annotated[
        list[str] | None,
        typer.Option(
            "--label",
            metavar="NAME=VALUE",
            help="Search with a label instead: price_usd=500000, class=cat, 'captions=two dogs on a beach', "
            "pose=pose.json, 'label map=map.png'; repeatable for a sum of labels.",
        ),
    ] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Items per query.")] = 10,
    by: Annotated[
        Literal["embedding", "labels"] | None,
        typer.Option(
            help="Rank by the distance of embeddings, or through labels: by the labels that are likely. "
            "Default: what was better on the validation split.",
            show_default=False,
        ),
    ] = None,
    gallery: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a page with the pictures there: .html.")
    ] = None,
    tables: Tables = None,
    run: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Where the model is, if it was moved since the index was made.")
    ] = None,
    as_json: Json = False,
    trust: Trust = False,
) -> None:
    """Find the images of an index that are nearest to each query, by embedding or through labels.

    If the model is calibrated, the label distance that a distance means is printed too, with its interval. The query's
    own image is marked. If the model has labels of training items, the labels of the query and of each image that is
    found are predicted, as 'contml predict' does.

    With --label, a label is searched for: by the mean squared distance of the labels that an image may have.
    """
    if gallery is not None:
        check_suffix(gallery, GALLERIES)
    from contml.search import Index, load, named_images
    from contml.search.gallery import check_gallery, write_gallery
    from contml.search.images import IndexModel, pending_text
    from contml.search.results import (
        TypedLabel,
        label_results,
        label_unit,
        ranked_words,
        ranking_of,
        results_of,
        search_images,
    )

    if gallery is not None:
        check_gallery(gallery)
    if labels and by is not None:
        raise InputError("--by", "used with --label", hint="omit it: a label is searched for through labels")
    if bool(queries) == bool(labels):
        got = "used with QUERY" if queries else "missing"
        raise InputError(
            "--label" if queries else "QUERY", got, hint=f"contml search {index} QUERY, or --label NAME=VALUE"
        )
    if any(not query.strip() for query in queries or []):
        raise InputError("QUERY", "empty", "must be an image file or a folder")
    query_images = named_images(queries or [], table_options(tables), gallery)
    opened = Index.open(index)
    made_with = IndexModel.of(opened)
    run_path = run or made_with.folder
    if run_path is None:
        place = re.sub("^hf:/+", "hf://", made_with.run)  # a `Path` has lost a slash
        got = f"made with {place}, which is on the hub" if place else "made without a run"
        raise InputError(str(index), got, hint=f"name its model: --run {place or 'RUN'}")
    model = load(run_path, trust=trust).fitted_to(opened.dim)
    made_with.check(model.identity, str(run_path))
    note_on_weights(run_path, model)

    def answering(ids: list[str]) -> Any:
        """Return the labels of items of the index."""
        return _answers(model, opened.embeddings(ids))

    about = list[str]()
    if labels:
        query = _label_query(model, labels)
        ranked, found = query.by, opened.search(query.vector[None], k, by=query.by)
        results = [label_results(TypedLabel(" ".join(labels), query.labels), found, answering)]
    else:
        ranked, calibration = ranking_of(opened, model, by)
        embeddings = model.embed([query.source for query in query_images])
        found = search_images(opened, model, embeddings, k, ranked)
        results = results_of(query_images, found, model, calibration, _answers(model, embeddings), answering)
        about = [*filter(None, (label_unit(model, calibration), ranked_words(opened, model, ranked)))]
    if gallery is not None:
        note = "; ".join([f"the first of {len(opened):,} images", *about])
        line = f"{complete(gallery)}{gallery}"
        write_gallery(gallery, str(index), note, [_shown(opened, result) for result in results])
    if as_json:
        label = {"by": ranked, "unit": model.unit, "measure": asdict(model.measure)}
        echo(json.dumps([{**result.as_data(), **label} for result in results]))
    else:
        _print(results)
        for words in about:
            echo(words)
    for note in (*(result.contradiction for result in results), pending_text(opened)):
        if note:
            echo(f"note: {note}", err=True)
    if gallery is not None:
        echo(line, err=as_json)


def _shown(index: Any, result: QueryResult) -> QueryResult:
    """The result, without the pictures of files that do not hold what was indexed."""
    from contml.search.images import FILE, shown_files

    files = shown_files(index, [hit.id for hit in result.hits], [hit.metadata for hit in result.hits])
    hits = zip(result.hits, files, strict=True)
    return result._replace(hits=[hit._replace(metadata={**hit.metadata, FILE: file}) for hit, file in hits])


def _label_query(model: Any, labels: list[str]) -> LabelQuery:
    """A typed label as a query; prints what is unusual about it."""
    from contml.search.inputs import typed_label

    labelled: LabelledItems = model.labelled
    query = labelled.query(typed_label(labelled.labels, labels))
    for remark in (*query.remarks, labelled.sample_words):
        if remark:
            echo(f"note: {remark}", err=True)
    return query


def _answers(model: Any, embeddings: Any) -> list[list[Any]]:
    """The labels of embeddings; none if the model has no labels."""
    from contml.search.embedder import answers_of

    if not model.has_labels:
        return [[] for _ in embeddings]
    return [list((answers or {}).values()) for answers in answers_of(model.labelled, embeddings)]


def _print(results: list[QueryResult]) -> None:
    """Print a table per query: what it found, with all metadata but the path."""
    for query, query_hits, answers in results:
        predicted = list(dict.fromkeys(name for hit in query_hits for name in hit.answer_texts))
        meanings = list(dict.fromkeys(name for hit in query_hits for name in hit.meaning))
        columns = list(dict.fromkeys(name for hit in query_hits for name in hit.metadata if name != "file"))
        rows = [["rank", "id", "distance", *meanings, *predicted, *columns]]
        for hit in query_hits:
            metadata_values = [str(hit.metadata.get(name, "")) for name in columns]
            meaning = [hit.meaning.get(name, "") for name in meanings]
            texts = [hit.answer_texts.get(name, "") for name in predicted]
            rows.append([str(hit.rank), hit.id, score_text(hit.distance), *meaning, *texts, *metadata_values])
        echo(query.name)
        for answer in answers:
            echo(answer)
        print_table(rows, text_columns=2)
        echo("")
