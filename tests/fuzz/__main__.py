"""`python -m tests.fuzz --cases 10000`: runs cases in a child process, so that a crash does not end this program."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1]))

#: A process without an answer for so long hangs in compiled code, where no signal is heard.
HANGS = 60


def drawn(cases: int, seed: int, kind: str | None) -> list[tuple[str, int]]:
    """The kind and the seed of each case."""
    from fuzz.kinds import KINDS

    chosen = {name: k.weight for name, k in KINDS.items() if kind in (None, name, name.split("/")[0])}
    if not chosen:
        raise SystemExit(f"no kind {kind}: {', '.join(KINDS)}")
    kinds = Random(seed).choices(list(chosen), list(chosen.values()), k=cases)
    return [(name, seed * 1_000_000 + number) for number, name in enumerate(kinds)]


def work(cases: list[tuple[str, int]], answers: Connection) -> None:
    """Run cases, and send the outcome of each."""
    from fuzz.cases import Miniatures

    miniatures = Miniatures()
    for name, _ in cases:
        miniatures.valid(name)
    answers.send(None)
    for name, seed in cases:
        started = time.monotonic()
        answers.send((miniatures.run(name, miniatures.case(name, seed), seed), time.monotonic() - started))
    miniatures.close()


def run(cases: list[tuple[str, int]]) -> list[tuple[str, int, object, float]]:
    """The outcome and the seconds of each case; a process that dies or hangs is a failure of its case."""
    from fuzz.cases import Outcome

    found: list[tuple[str, int, object, float]] = []
    context = multiprocessing.get_context("fork")
    while len(found) < len(cases):
        answers, sender = context.Pipe(duplex=False)
        process = context.Process(target=work, args=(cases[len(found) :], sender), daemon=True)
        process.start()
        sender.close()
        answers.recv()  # EOFError: the valid files cannot be read
        try:
            while len(found) < len(cases):
                if not answers.poll(HANGS):
                    raise EOFError(f"hangs for {HANGS} s")
                found.append((*cases[len(found)], *answers.recv()))
                if len(found) % 1000 == 0:
                    print(f"{len(found):,} of {len(cases):,}", file=sys.stderr, flush=True)
        except EOFError as error:
            process.kill()
            process.join()
            found.append(
                (*cases[len(found)], Outcome("failed", str(error) or f"the process died ({process.exitcode})"), 0.0)
            )
    return found


def main() -> int:
    """Print counts per kind, then each failure once with the seeds that reproduce it."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", help="a kind, or the first part of its name: mat")
    parser.add_argument("--case", type=int, help="the seed of one case of --kind: print all of it")
    parser.add_argument("--save", type=Path, help="with --case: write the changed file here")
    options = parser.parse_args()
    if options.case is not None:
        return show(options.kind, options.case, options.save)
    counts: Counter[tuple[str, str]] = Counter()
    failures: dict[tuple[str, str], list[int]] = {}
    seconds: dict[str, list[tuple[float, int]]] = {}
    memory: dict[str, int] = {}
    for kind, seed, found, taken in run(drawn(options.cases, options.seed, options.kind)):
        counts[kind, found.result] += 1
        seconds.setdefault(kind, []).append((taken, seed))
        memory[kind] = max(memory.get(kind, 0), found.memory)
        if found.result == "failed":
            failures.setdefault((kind, found.words), []).append(seed)
    results = ("accepted", "refused", "failed")
    heads = "".join(f"{result:>10}" for result in results)
    print(f"{'kind':<20}{heads}{'ms a case':>12}{'slowest s':>12}{'its --case':>14}{'most MB':>10}")
    for kind, each in sorted(seconds.items()):
        row = "".join(f"{counts[kind, result]:>10,}" for result in results)
        mean, (slowest, seed) = 1000 * sum(taken for taken, _ in each) / len(each), max(each)
        print(f"{kind:<20}{row}{mean:>12.0f}{slowest:>12.2f}{seed:>14}{memory[kind] / 2**20:>10,.0f}")
    for (kind, words), seeds in sorted(failures.items()):
        print(f"{kind}: {words}: {len(seeds)} cases, --kind {kind} --case {seeds[0]}")
    return bool(failures)


def show(kind: str, seed: int, save: Path | None) -> int:
    """Run one case here, and print its outcome with the traceback."""
    from fuzz.cases import Miniatures

    miniatures = Miniatures()
    files = miniatures.case(kind, seed)
    for name, content in files.items():
        print(f"{name}: {len(content):,} bytes")
        if save is not None:
            (save / name).parent.mkdir(parents=True, exist_ok=True)
            (save / name).write_bytes(content)
    found = miniatures.run(kind, files, seed)
    print(f"{found.result}: {found.words}\n{found.details}")
    miniatures.close()
    return found.result == "failed"


if __name__ == "__main__":
    sys.exit(main())
