"""`contml explore`: a page to look through what a model retrieves."""

from __future__ import annotations

from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contml._support.errors import InputError
from contml._support.files import check_new_folder, temporary_folder
from contml.app.cli.options import AcceptChanges, Trust
from contml.app.cli.printing import complete, echo

if TYPE_CHECKING:
    from contml.app.explore import Explored

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
            help="Write the page there, with its data as explore.parquet, and stop. It opens without a server.",
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
                write_page(folder, explored, own_images=reason, parquet=False, progress=progress)
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
