"""`contml audit`: items whose label is not what the features of their image predict, or judgments that contradict."""

from __future__ import annotations

from operator import methodcaller
from pathlib import Path
from typing import Annotated, Literal

import typer

from contml._support.endings import check_suffix
from contml._support.files import check_new_file, write, write_new
from contml.app.cli.options import Cluster, RunFolder, Trainings, Trust
from contml.app.cli.printing import complete, echo, print_table, stoppable

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
