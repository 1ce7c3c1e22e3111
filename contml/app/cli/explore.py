"""`contml explore` and `contml audit`: look through the items of a run or an index, and find wrong labels."""

from __future__ import annotations

from operator import methodcaller
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from contml._support.errors import InputError
from contml._support.files import check_new_file, check_new_folder, check_suffix, temporary_folder, write, write_new
from contml.app.cli.options import AcceptChanges, Cluster, RunFolder, Trainings, Trust
from contml.app.cli.printing import complete, echo, print_table, stoppable

if TYPE_CHECKING:
    from contml.app.explore import Explored

AUDIT_EXAMPLE = """Example: contml audit runs/pose/synthetic/2026-11-23_10-00-00 --top 50"""

#: Items or judgments in the printed table, and on the page.
_PRINTED, _ON_PAGE = 10, 50
#: What the file may begin with: of labels, pairs, triplets, rankings.
_HEADERS = (b"item,score,error,", b"a,b,score,", b"anchor,x,y,score,", b"a,b,c,score,", b"query,item,score,")


def audit(
    run: RunFolder,
    split: Annotated[
        Literal["train", "val", "test"],
        typer.Option(help="The items. For 'val' and 'test', the network of the run is used, without training."),
    ] = "train",
    folds: Annotated[
        int,
        typer.Option(
            metavar="K", help="Train K networks, each without one of K parts of the training items or judgments."
        ),
    ] = 5,
    k: Annotated[
        int | None,
        typer.Option("--neighbours", metavar="N", min=1, help="Nearest items to compare with. Default: 20."),
    ] = None,
    top: Annotated[int, typer.Option(metavar="N", min=1, help="Number of items or judgments in the file.")] = 100,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE.csv", help="The file; the page is beside it. Default: RUN/audit/SPLIT.csv."),
    ] = None,
    processes: Trainings = None,
    cluster: Cluster = "",
    trust: Trust = False,
) -> None:
    """Find items whose label is not what the features of their image predict: wrong labels, and unusual items.

    The features of a training item come from a network that has not seen it: K networks are trained as the run was,
    each without a part of the items. No network is trained if the features of the run come from a frozen backbone
    ('contml features'). Writes a CSV file and a page that shows the items beside their nearest items.

    Of a run on judgments, find the judgments that contradict others, and a network that was trained without them.

    Ctrl-C stops it; the same command goes on.
    """
    if out is not None:
        check_suffix(out, (".csv",))
        check_new_file(out, out.with_suffix(".html"), begins=_HEADERS)
    from contml.app.audit import audit_run
    from contml.app.report.suspects import errors_page, suspects_of

    with stoppable(" this audit"):
        result = audit_run(
            run,
            split=split,
            folds=folds,
            k=k,
            processes=processes,
            cluster=cluster,
            trust=trust,
            on_line=lambda line: echo(line, err=True),
        )
    file = out or run / "audit" / f"{split}.csv"
    page = file.with_suffix(".html")
    suspects = suspects_of(result.split, result.errors, ranked=result.ranked)
    files = {
        file: suspects.csv(top),
        page: errors_page(
            suspects, title=result.title, caution=result.caution, facts=result.facts, count=min(top, _ON_PAGE)
        ),
    }
    before = complete(page) if out is not None else ""
    if out is not None:
        write_new(files)
    else:
        for path, content in files.items():  # the run's own files are replaced
            write(path, methodcaller("write_bytes", content))
    if result.caution:
        echo(result.caution)
    order = result.errors.order
    rows = [[f"{result.errors.scores[row]:.3f}", suspects.words(row)] for row in suspects.rows(min(top, _PRINTED))]
    print_table([["score", suspects.what], *rows])
    if unscored := len(result.errors.scores) - len(order):
        why = "unreadable" if suspects.what == "judgment" else "unreadable, or without a label to compare"
        echo(f"{unscored:,} of {len(result.errors.scores):,} {suspects.what}s have no score: {why}")
    count = f"{min(top, len(order)):,} {suspects.what}s with the highest scores of {len(order):,}"
    echo(f"{file}: {before}the {count}; page: {page}")


EXPLORE_EXAMPLE = """Example: contml explore runs/pose/synthetic/2026-11-23_10-00-00 --export page"""


def explore(
    source: Annotated[
        Path, typer.Argument(metavar="RUN|INDEX", help="A run folder, or the folder of an index of images.")
    ],
    other: Annotated[
        Path | None, typer.Argument(metavar="[RUN]", help="A second run on the same data, shown beside the first.")
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write the page there, and stop. It opens without a server.",
        ),
    ] = None,
    items: Annotated[int, typer.Option(min=2, help="The largest number of items: of more, a random sample.")] = 5000,
    host: Annotated[str, typer.Option(help="The address to serve on; the default is reached from here alone.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Its port; 0 for any that is free.")] = 8350,
    accept_changes: AcceptChanges = False,
    trust: Trust = False,
) -> None:
    """Look through what a model retrieves, on a page in your browser.

    It has a map of the embeddings, the nearest images by embedding beside the nearest by label, and the queries with
    the largest errors first. It searches by poses, numbers or dates with a skeleton or a slider. Without --export, the
    page is served until Ctrl-C, and searches with your own images.
    """
    from contml._support.progress import progress_bar
    from contml.app.explore import explore_index, explore_runs, server, write_page
    from contml.app.explore.page import FILES, LABELS, PAGE

    if export is not None:
        check_new_folder(export, FILES)
    if (source / "manifest.json").is_file():
        if other is not None:
            raise InputError(str(other), "a second folder beside an index", hint="give one index, or two runs")
        explored = explore_index(source, items=items, on_start=_announce)
    else:
        folders = [source] if other is None else [source, other]
        load_options = {"accept_changes": accept_changes, "trust": trust}
        explored = explore_runs(folders, items=items, on_start=_announce, **load_options)
    with progress_bar(len(explored.split), "pictures") as progress:
        if export is not None:
            before = complete(export / PAGE)
            echo(f"{before}{write_page(export, explored, progress=progress)}")
            if explored.labelled:
                echo(f"{export / LABELS} has labels of training items: before you publish them, see that you may")
            return
        models, reason = _models(explored, trust)
        temporary = Path(gettempdir())
        with temporary_folder(temporary, temporary) as folder:
            folder.chmod(0o700)  # other users do not see the pictures
            # Before the pictures: a port that is in use is reported at once.
            with server(folder, explored, models, host, port) as serving:
                write_page(folder, explored, own_images=reason, progress=progress)
                echo(f"http://{host}:{serving.server_address[1]}/ (stop with Ctrl-C)")
                try:
                    serving.serve_forever()
                except KeyboardInterrupt:
                    echo("stopped", err=True)


def _announce(items: int) -> None:
    """Says why nothing happens for a while: t-SNE of 5,000 items takes several seconds."""
    if items >= 1000:
        echo(f"map and neighbours of {items:,} items ...", err=True)


def _models(explored: Explored, trust: bool) -> tuple[list[Any], str]:
    """The models that embed own images; none, and why."""
    from contml.search import load

    models = []
    try:
        for view in explored.views:
            if view.model is not None:
                models.append(load(view.model, trust=trust).fitted_to(view.embeddings.shape[1]))
                if view.made_with is not None:
                    view.made_with.check(models[-1].identity, str(view.model))
    except InputError as error:
        return [], f"Own images cannot be searched with: {error}"
    if len(models) < len(explored.views):
        return [], "Own images cannot be searched with: the index was made without a run."
    if any(model.bundle.feature_dim is not None for model in models):
        return [], "Own images cannot be searched with: the model was trained on features."
    return models, ""
