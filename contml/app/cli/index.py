"""`contml index` and `contml search`: images in an index, found by the embedding of a trained model."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from contml._support.errors import InputError
from contml._support.files import GALLERIES, check_suffix, remove_folder
from contml._support.text import score_text
from contml.app.cli.embed import IMAGES, note_on_model, note_on_weights, with_dim
from contml.app.cli.options import Box, Cluster, Dim, Json, Tables, Trust, argument, option, table_options
from contml.app.cli.printing import complete, echo, print_table, print_unread, stoppable, unread_data

if TYPE_CHECKING:
    from contml.search import Index
    from contml.search.images import Added
    from contml.search.inputs import NamedImage
    from contml.search.labelled_items import By, LabelledItems
    from contml.search.results import QueryResult

    Items: TypeAlias = list[NamedImage]
    #: The output of a search: the results of each query, the data for JSON, and the lines below the tables.
    Searched: TypeAlias = tuple[list[QueryResult], dict[str, Any], list[str]]

INDEX_EXAMPLE = """Example: contml index runs/pose/synthetic/2026-11-23_10-00-00 photos/ --out photos.index"""
SEARCH_EXAMPLE = """Example: contml search photos.index photo.jpg --gallery found.html"""

_VECTORS = "Vectors of another model, in place of RUN and images: .npy, .npz, .parquet or .safetensors."
_METRIC = typer.Option(help="How vectors of --vectors are compared. Default: cosine.", show_default=False)
_METADATA = option("FILE", "A table with a column 'image': its other columns are shown in results.")
_REMOVE = option("ID", "Remove this image from the index instead, or all of a folder; repeatable.")
_REMOVE_WHERE = option("CONDITION", "Remove the images whose metadata meet this instead: 'price > 500000'.")


def index(
    run: Annotated[Path | None, argument("RUN", "A run folder, or one of 'contml export'.")] = None,
    images: Annotated[list[str] | None, argument("IMAGES...", f"{IMAGES}.")] = None,
    *,
    out: Annotated[Path, option("INDEX", "The folder of the index: new, or one to add to.")],
    vectors: Annotated[Path | None, option("FILE", _VECTORS)] = None,
    metric: Annotated[Literal["cosine", "euclidean"] | None, _METRIC] = None,
    metadata: Annotated[Path | None, _METADATA] = None,
    dim: Dim = None,
    box: Box = None,
    tables: Tables = None,
    remove: Annotated[list[str] | None, _REMOVE] = None,
    remove_where: Annotated[str | None, _REMOVE_WHERE] = None,
    compact: Annotated[bool, typer.Option(help="Delete what belongs to removed images from disk instead.")] = False,
    cluster: Cluster = "",
    as_json: Json = False,
    trust: Trust = False,
) -> None:
    """Embed images and add them to an index, which 'contml search' searches; or add vectors as they are.

    The id of an image is its path below the folder that you gave, or as you wrote it. Images that are in the index are
    not embedded again. Images that were removed stay out. After an interruption, the same command continues.
    """
    changes = {"--remove": remove, "--remove-where": remove_where, "--compact": compact}
    change_options = [name for name, value in changes.items() if value]
    others = {"RUN and images": run, "--dim": dim, "--box": box, "--cluster": cluster or None}
    if change_options:
        others |= {"--vectors": vectors, "--metadata": metadata}
    if (change_options or vectors) and (given := next((n for n, v in others.items() if v is not None), "")):
        raise InputError((change_options or ["--vectors"])[0], f"used with {given}", hint=f"omit {given}")
    if metric is not None and vectors is None:
        raise InputError("--metric", "used without --vectors", hint="embeddings of a model are compared as in training")
    if not (change_options or vectors) and not (run is not None and images):
        raise InputError("RUN IMAGES", "missing", hint=INDEX_EXAMPLE.removeprefix("Example: "))
    with stoppable():
        if change_options:
            _change(out, remove or [], remove_where, compact, as_json)
            return
        from contml.search.images import read_metadata
        from contml.search.inputs import named_images, named_vectors

        is_new, options = _is_new(out), table_options(tables)
        items = named_images(images or [], options, out, box=box) if vectors is None else named_vectors(vectors)
        table = None if metadata is None else read_metadata(metadata, items, options=options)
        if vectors is not None:
            added = _add_vectors(vectors, out, is_new, metric, items, table)
        else:
            assert run is not None  # or it is refused above
            added = _add(run, out, is_new, items, table, dim, cluster, as_json, trust)
        _print_added(*added, items, metadata, table, as_json)


def _change(out: Path, remove: list[str], remove_where: str | None, compact: bool, as_json: bool) -> None:
    from contml.search import Index
    from contml.search.where import condition

    index = Index.open(out)
    where = None if remove_where is None else condition(remove_where, index.columns, "--remove-where")
    with index.lock():
        removed = index.remove(remove, where=where)
        if compact:
            index.compact()
    if as_json:
        counts = {"removed": removed.items, "removed_before": removed.before, "items": len(index)}
        echo(json.dumps({"index": str(out), **counts}))
        return
    before = f"{removed.before:,} removed already, " if removed.before else ""
    text = f"{removed.items:,} images removed, " if removed.items or not (before or compact) else ""
    echo(f"{out}: {text}{before}{len(index):,} left{', compacted' if compact else ''}")


def _add(
    run: Path,
    out: Path,
    is_new: bool,
    items: Items,
    table: Any,
    dim: int | None,
    cluster: str,
    as_json: bool,
    trust: bool,
) -> tuple[Index, Added]:
    from contml._support.progress import progress_bar
    from contml.search import Index, load
    from contml.search.embedding_files import check_takes
    from contml.search.images import IndexModel, add_images, create
    from contml.search.vectors import add_vectors

    model = load(run, trust=trust)
    if is_new:
        model = model if dim is None else with_dim(model, dim)
    else:
        index = Index.open(out)
        if dim not in (None, index.dim):
            raise InputError("--dim", str(dim), f"must be {index.dim}, as in {out}", "make a new index for another")
        model = model.fitted_to(index.dim)
        IndexModel.of(index).check(model.identity, str(run))
    check_takes(model, items)
    note_on_model(run, model, "the index holds", as_json=as_json)
    if is_new:
        index = create(out, model, run)
    with index.lock():
        if model.bundle.feature_dim is not None:
            result = add_vectors(index, items, model, table)
        else:
            with progress_bar(len(items), "images") as progress:
                result = add_images(index, model, items, table, progress, cluster=cluster)
        if not len(index):
            print_unread(result.broken)
            if is_new:
                remove_folder(out)
            raise InputError(str(out), "none of the images could be read", hint="check the image files")
    return index, result


def _is_new(out: Path) -> bool:
    """Return True if there is no index yet.

    Raises:
        InputError: there is something else.
    """
    from contml._support.files import check_new_folder
    from contml.search.segments import MANIFEST

    if (out / MANIFEST).exists():
        return False
    check_new_folder(out)
    return True


def _add_vectors(
    vectors: Path, out: Path, is_new: bool, metric: Literal["cosine", "euclidean"] | None, items: Items, table: Any
) -> tuple[Index, Added]:
    from contml.search import Index
    from contml.search.inputs import refuse_repeated
    from contml.search.vectors import add_vectors, compared, create_of_vectors, metric_of

    refuse_repeated(items)
    dim = compared(items, metric or "cosine").shape[1]
    index = create_of_vectors(out, dim, metric or "cosine") if is_new else Index.open(out)
    if (known := metric_of(index)) is None:
        raise InputError(str(out), "made with a model", hint="contml index RUN FILE embeds vectors with it")
    if metric not in (None, known):
        raise InputError("--metric", str(metric), f"must be {known}, as in {out}", "make a new index for another")
    if dim != index.dim:
        raise InputError(str(vectors), f"vectors of {dim} numbers", f"must have {index.dim}, as in {out}")
    with index.lock():
        return index, add_vectors(index, items, None, table)


def _print_added(index: Index, result: Added, items: Items, metadata: Path | None, table: Any, as_json: bool) -> None:
    """Print the images or vectors that were added to an index."""
    out, what, unread = index.path, "images" if items[0].vector is None else "vectors", print_unread(result.broken)
    if as_json:
        counts = {**asdict(result), "broken": unread_data(result.broken)}
        echo(json.dumps({"index": str(out), **counts, "items": len(index)}))
        return
    resumed = f" ({result.resumed:,} from an earlier run)" if result.resumed else ""
    echo(f"{out}: {result.added:,} {what} added{resumed}, {len(index):,} in all")
    if table is not None and (without := sum(item.name not in table for item in items)):
        echo(f"{metadata}: no row for {without:,} of {len(items):,} {what}")
    if result.present:
        kept = "" if table is None else "; their metadata stay as they were"
        echo(f"{result.present:,} {what} were in the index already{kept}")
    if others := len(index) - result.added - result.present:
        are = f"1 {what[:-1]} of the index is" if others == 1 else f"{others:,} {what} of the index are"
        echo(f"{are} not among these {what}, and stay in it")
    if result.removed:
        echo(f"{result.removed:,} {what} were removed from the index earlier and stay out of it")
    if unread:
        echo(f"{unread}, and left out")


_QUERIES = f"{IMAGES}. Of an index of vectors: ids, or a file of vectors."
_LABELS = (
    "Search with a label instead: price_usd=500000, class=cat, 'captions=two dogs on a beach', pose=pose.json, 'label "
    "map=map.png'; repeatable for a sum of labels."
)
_BY = (
    "Rank by the distance of embeddings, or through labels: by the labels that are likely. Default: what was better on "
    "the validation split."
)
_WHERE = "Only images whose metadata meet this: \"price < 500000 and room = 'kitchen'\"; also or, not, in, is null."


def search(
    index: Annotated[Path, argument("INDEX", "The folder of an index, made by 'contml index'.")],
    queries: Annotated[list[str] | None, argument("[QUERY]...", _QUERIES)] = None,
    *,
    labels: Annotated[list[str] | None, option("NAME=VALUE", _LABELS, "--label")] = None,
    k: Annotated[int, typer.Option("-k", min=1, help="Items per query.")] = 10,
    by: Annotated[Literal["embedding", "labels"] | None, typer.Option(help=_BY, show_default=False)] = None,
    where: Annotated[str | None, option("CONDITION", _WHERE)] = None,
    gallery: Annotated[Path | None, option("FILE", "Write a page with the pictures there: .html.")] = None,
    box: Box = None,
    tables: Tables = None,
    run: Annotated[Path | None, option("RUN", "Where the model is, if it was moved since the index was made.")] = None,
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
    from contml.search import Index, named_images
    from contml.search.gallery import check_gallery, write_gallery
    from contml.search.vectors import metric_of
    from contml.search.where import condition

    if gallery is not None:
        check_gallery(gallery)
    if labels and by is not None:
        raise InputError("--by", "used with --label", hint="omit it: a label is searched for through labels")
    if bool(queries) == bool(labels):
        subject, got = ("--label", "used with QUERY") if queries else ("QUERY", "missing")
        raise InputError(subject, got, hint=f"contml search {index} QUERY, or --label NAME=VALUE")
    if labels and box is not None:
        raise InputError("--box", "used with --label", hint="omit it: a label is searched for, no image")
    if any(not query.strip() for query in queries or []):
        raise InputError("QUERY", "empty", "must be an image file or a folder")
    opened = Index.open(index)
    meets = None if where is None else condition(where, opened.columns, "--where")
    if (metric := metric_of(opened)) is not None:
        options = {"--label": labels, "--run": run, "--by": by, "--box": box}
        if given := next((name for name, value in options.items() if value), ""):
            raise InputError(given, f"used with {index}, whose vectors no model made", hint=f"omit {given}")
        results, data, about = _search_vectors(opened, queries or [], k, meets, metric)
    elif labels:
        results, data, about = _search_label(opened, _model_of(opened, run, trust), labels, k, meets)
    else:
        images = named_images(queries or [], table_options(tables), gallery, box=box)
        results, data, about = _search_images(opened, _model_of(opened, run, trust), images, k, by, meets)
    if any(answer.same for result in results for hit in result.hits for answer in hit.answers):
        own = "ranked by its own label, predicted without it" if labels else "predicted without its own label"
        about = [*about, f"* a training image: {own}"]
    if gallery is not None:
        note = "; ".join([f"the first of {len(opened):,} items", *about])
        line = f"{complete(gallery)}{gallery}"
        write_gallery(gallery, str(index), note, [_shown(opened, result) for result in results])
    if as_json:
        echo(json.dumps([{**result.as_data(), **data} for result in results]))
    else:
        _print(results)
        for words in about:
            echo(words)
    for result in results:
        if where is not None and not result.hits:
            echo("note: nothing in the index meets --where", err=True)
        if result.contradiction:
            echo(f"note: {result.contradiction}", err=True)
    if gallery is not None:
        echo(line, err=as_json)


def _search_vectors(index: Index, queries: list[str], k: int, where: Any, metric: str) -> Searched:
    from contml.search.results import results_of
    from contml.search.vectors import queries_of

    named, vectors = queries_of(index, queries)
    results = results_of(named, index.search(vectors, k, where=where), None, None)
    return results, {"by": metric}, [f"distance: Euclidean{', of vectors of length 1' * (metric == 'cosine')}"]


def _search_label(index: Index, model: Any, labels: list[str], k: int, where: Any) -> Searched:
    from contml.search.inputs import typed_label
    from contml.search.results import TypedLabel, label_results

    labelled: LabelledItems = model.labelled
    query = labelled.query(typed_label(labelled.labels, labels))
    for remark in filter(None, (*query.remarks, labelled.sample_words)):
        echo(f"note: {remark}", err=True)
    found = index.search(query.vector[None], k, by=query.by, where=where)
    typed = TypedLabel(" ".join(labels), query.labels)
    results = [label_results(typed, found, lambda ids: _answers(model, index.embeddings(ids)))]
    return results, _measured(model, query.by), []


def _search_images(index: Index, model: Any, images: Items, k: int, by: By | None, where: Any) -> Searched:
    from contml.search.embedding_files import check_takes
    from contml.search.results import label_unit, ranked_words, ranking_of, results_of, search_images

    check_takes(model, images)
    ranked, calibration = ranking_of(index, model, by)
    calibration = calibration if where is None else None  # it holds for the nearest of all items
    embeddings = model.embed([image.source for image in images])
    found = search_images(index, model, embeddings, k, ranked, where)
    answers = _answers(model, embeddings)
    results = results_of(images, found, model, calibration, answers, lambda ids: _answers(model, index.embeddings(ids)))
    about = [*filter(None, (label_unit(model, calibration), ranked_words(index, model, ranked)))]
    return results, _measured(model, ranked), about


def _measured(model: Any, by: str) -> dict[str, Any]:
    return {"by": by, "unit": model.unit, "measure": asdict(model.measure)}


def _model_of(index: Index, run: Path | None, trust: bool) -> Any:
    """Return the model that an index was made with.

    Raises:
        InputError: it is not where it was, or is another one.
    """
    from contml.search import load
    from contml.search.images import IndexModel

    made_with = IndexModel.of(index)
    run_path = run or made_with.folder
    if run_path is None:
        raise InputError(str(index.path), "made without a run", hint="name its model: --run RUN")
    model = load(run_path, trust=trust).fitted_to(index.dim)
    made_with.check(model.identity, str(run_path))
    note_on_weights(run_path, model)
    return model


def _shown(index: Any, result: QueryResult) -> QueryResult:
    """Return the result, without the pictures of files that do not hold the indexed bytes."""
    from contml.search.images import FILE, shown_files

    files = shown_files(index, [hit.id for hit in result.hits], [hit.metadata for hit in result.hits])
    hits = [
        hit._replace(metadata={**hit.metadata, FILE: file}) if FILE in hit.metadata else hit
        for hit, file in zip(result.hits, files, strict=True)
    ]
    return result._replace(hits=hits)


def _answers(model: Any, embeddings: Any) -> list[list[Any]]:
    """Return the predicted labels of embeddings. Return none if the model has no labels."""
    from contml.search.embedder import answers_of

    if not model.has_labels:
        return [[] for _ in embeddings]
    return [list((answers or {}).values()) for answers in answers_of(model.labelled, embeddings)]


def _print(results: list[QueryResult]) -> None:
    """Print a table per query: the items found, with all metadata except the path."""
    for query, query_hits, answers in results:
        predicted = list(dict.fromkeys(name for hit in query_hits for name in hit.answer_texts))
        meanings = list(dict.fromkeys(name for hit in query_hits for name in hit.meaning))
        columns = [*dict.fromkeys(name for hit in query_hits for name in hit.metadata if name not in ("file", "box"))]
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
