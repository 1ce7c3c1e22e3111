"""Which published orderings are measured, and with which verdict: `benchmarks/results/claims.md`.

    python -m benchmarks.claims

The measured ones are the claims of suites. The others are written below, with what they need.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.measure import table
from contml.app.trials.page import claim_verdicts, set_scores
from contml.app.trials.plan import cells
from contml.app.trials.record import FinishedTrainings
from contml.app.trials.suite import read_suite

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "benchmarks" / "results" / "claims.md"
#: Suites with claims, and what they train.
SETTINGS = {
    "class_features": "heads on frozen features",
    "benchmarks/suites/unified_view.yaml": "a small network, drawn species",
    "benchmarks/suites/pose_sizes.yaml": "a small network, drawn persons",
    "benchmarks/suites/finetuned_networks.yaml": "a whole pretrained network, small images",
}
#: Orderings that no suite tests: the source, and why.
NOT_MEASURED = {
    "every row of Table 1, of pretrained networks": ("Unified view, Table 1", "a GPU and CUB, Cars, SOP, In-Shop"),
    "HDML > its base loss, from a pretrained network": ("HDML, Tables 1 to 3", "a GPU; suites start heads at random"),
    "DAML > its base loss, HDML > DAML": ("HDML, Tables 1 to 3", "DAML, which contml does not have"),
    "contrastive is the lowest": ("HDML, Tables 1 to 3", "CUB, Cars, SOP and a GPU; contrastive with its margin"),
    "larger batches are better": ("Instance Cross Entropy, Table 5", "batches of 100 to 180 images, a GPU"),
    "512 > 256 > 128 > 64 numbers": ("Instance Cross Entropy, Table 6", "SOP and a GPU"),
    "three levels > one": ("Instance Cross Entropy, Table 3", "a whole network and a GPU (docs/classes.md)"),
    "gamma 1 > lifted structure": ("DRO poster, recovery of MS and LS", "heads that are not normalized: else one loss"),
    "gamma 0.01 > 0.001": ("DRO poster, recovery of MS and LS", "In-Shop and a GPU"),
    "DRO-TopK-PN > DRO-TopK; DRO-KL > MS; DRO of a margin loss > DRO of binomial deviance": (
        "DRO poster, comparison", "In-Shop and a GPU"),
    "DRO is robust to imbalance": ("DRO poster, a panel without numbers", "a protocol, which the poster does not give"),
    "Proxy Anchor > SoftTriple, both with 64 numbers": ("Proxy Anchor, talk, 64 numbers", "CUB, Cars, SOP and a GPU"),
    "512 > 128 numbers, of Proxy Anchor and MS": ("Proxy Anchor, talk, In-Shop", "In-Shop and a GPU"),
    "Proxy Anchor > contrastive with HORDE": ("Proxy Anchor, talk, larger images", "HORDE, which contml does not have"),
    "Proxy Anchor converges fastest": ("Proxy Anchor, talk, a curve", "Cars and a GPU"),
    "accuracy is flat from alpha = 16 and from 128 numbers on": ("Proxy Anchor, talk, curves", "a GPU"),
    "larger images and networks are better": ("Proxy Anchor, talk, table of backbones", "CUB, Cars and a GPU"),
    "log_ratio > triplets, on LSUN and COCO": ("Beyond Binary Supervision, talk", "the data and a GPU"),
}  # fmt: skip


def measured() -> str:
    """The table of the measured orderings."""
    rows = [["ordering", "source", "setting", "verdict"]]
    for name, setting in SETTINGS.items():
        suite, stem = read_suite(str(ROOT / name) if "/" in name else name), Path(name).stem
        found = set_scores(suite, cells(suite, {}), FinishedTrainings(PAGE.parent / "raw" / f"{stem}.jsonl"))
        verdicts = claim_verdicts(suite, {each.name: each for each in found})
        for claim, (difference, verdict) in zip(suite.claims, verdicts, strict=True):
            ordering = f"{claim.better} > {claim.worse}"
            shown = verdict if difference == "-" else f"{verdict}: {difference.split('; mean ')[-1]}"
            rows.append([ordering, claim.source, f"[{setting}]({stem}.md)", shown])
    return table(rows)


def not_measured() -> str:
    """The table of the other orderings."""
    return table([["ordering", "source", "needs"], *([name, *rest] for name, rest in NOT_MEASURED.items())])


def main() -> None:
    PAGE.write_text(
        "# Published orderings: measured or not\n\n"
        "`python -m benchmarks.claims` writes this page. An ordering of a paper holds in a setting if its difference\n"
        "is above 0 with p < 0.05, by Holm's correction over all orderings of the suite. The difference is of the\n"
        "first score of the suite: MAP@R or Recall@1 for classes, else the normalized score of label distance@10.\n"
        "The pages of the suites have the published numbers, the data sets and the other scores.\n\n"
        f"## Measured\n\n{measured()}\n\n## Not measured\n\n{not_measured()}\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
