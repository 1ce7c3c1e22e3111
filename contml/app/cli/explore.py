"""`contml explore` and `contml audit`: look through the items of a run, and find wrong labels."""

from __future__ import annotations

from functools import partial
from operator import methodcaller
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from contml._support.errors import InputError
from contml._support.files import check_new_folder, temporary_folder, write
from contml.app.cli.options import AcceptChanges, Cluster, RunFolder, Trainings, Trust, argument, option
from contml.app.cli.printing import complete, echo, print_table, stoppable

if TYPE_CHECKING:
    from contml.app.explore import Explored

AUDIT_EXAMPLE = """Example: contml audit runs/pose/synthetic/2026-11-23_10-00-00 --top 50"""

#: Items in the printed table, and on the page.
_PRINTED, _ON_PAGE = 10, 50
_SPLIT = option(None, "The items. For 'val' and 'test', the network of the run is used, without training.")


def audit(
    run: RunFolder,
    split: Annotated[Literal["train", "val", "test"], _SPLIT] = "train",
    folds: Annotated[int, option("K", "Train K networks, each without one of K parts of the training items.")] = 5,
    k: Annotated[int | None, option("N", "Nearest items to compare with. Default: 20.", "--neighbours", min=1)] = None,
    top: Annotated[int, option("N", "Number of items in the file.", min=1)] = 100,
    processes: Trainings = None,
    cluster: Cluster = "",
    trust: Trust = False,
) -> None:
    """Find items whose label is not what the features of their image predict: wrong labels, and unusual items.

    The features of a training item come from a network that has not seen it. K networks are trained in the same way as
    the run, each without a part of the items. No network is trained if the features of the run come from a frozen
    backbone ('contml features'). The command writes a CSV file and a page that shows the items beside their nearest
    items, in RUN/audit.

    Ctrl-C stops it. The same command continues.
    """
    from contml.app.audit import audit_run
    from contml.app.report.suspects import Suspects, errors_page

    options: Any = {"folds": folds, "k": k, "processes": processes, "cluster": cluster, "trust": trust}
    with stoppable(" this audit"):
        result = audit_run(run, split=split, **options, on_line=partial(echo, err=True))
    file = run / "audit" / f"{split}.csv"
    page = file.with_suffix(".html")
    suspects = Suspects(result.split, result.errors, ranked=result.ranked)
    about: Any = {"title": result.title, "caution": result.caution, "facts": result.facts}
    shown = errors_page(suspects, **about, count=min(top, _ON_PAGE))
    write(file, methodcaller("write_bytes", suspects.csv(top)))
    write(page, methodcaller("write_bytes", shown))
    if result.caution:
        echo(result.caution)
    order = result.errors.order
    rows = [[f"{result.errors.scores[row]:.3f}", result.split.name(row)] for row in suspects.rows(min(top, _PRINTED))]
    print_table([["score", "item"], *rows])
    if unscored := len(result.errors.scores) - len(order):
        why = "unreadable, or without a label to compare"
        echo(f"{unscored:,} of {len(result.errors.scores):,} items have no score: {why}")
    count = f"{min(top, len(order)):,} items with the highest scores of {len(order):,}"
    echo(f"{file}: the {count}; page: {page}")


EXPLORE_EXAMPLE = """Example: contml explore runs/pose/synthetic/2026-11-23_10-00-00 --export page"""
_HOST = typer.Option(help="The address to serve on; the default is reached from here alone.")


def explore(
    run: RunFolder,
    other: Annotated[Path | None, argument("[RUN]", "A second run on the same data, shown beside the first.")] = None,
    export: Annotated[Path | None, option("DIR", "Write the page there, and stop. It opens without a server.")] = None,
    items: Annotated[int, typer.Option(min=2, help="The largest number of items: of more, a random sample.")] = 5000,
    host: Annotated[str, _HOST] = "127.0.0.1",
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
    from contml.app.explore import explore_runs, server, write_page
    from contml.app.explore.page import FILES, LABELS, PAGE

    if export is not None:
        check_new_folder(export, FILES)
    folders = [run] if other is None else [run, other]
    explored = explore_runs(folders, items=items, on_start=_announce, accept_changes=accept_changes, trust=trust)
    with progress_bar(len(explored.split), "pictures") as progress:
        if export is not None:
            echo(f"{complete(export / PAGE)}{write_page(export, explored, progress=progress)}")
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
    """Print a note before a long computation: t-SNE of 5,000 items takes several seconds."""
    if items >= 1000:
        echo(f"map and neighbours of {items:,} items ...", err=True)


def _models(explored: Explored, trust: bool) -> tuple[list[Any], str]:
    """Return the models that embed the user's own images. If there are none, return a sentence with the reason."""
    from contml.search import load

    try:
        models = [load(view.folder, trust=trust).fitted_to(view.embeddings.shape[1]) for view in explored.views]
    except InputError as error:
        return [], f"Own images cannot be searched with: {error}"
    if any(model.bundle.feature_dim is not None for model in models):
        return [], "Own images cannot be searched with: the model was trained on features."
    return models, ""
