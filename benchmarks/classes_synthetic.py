"""Every class loss on held-out drawn classes: Recall@1, same budget, backbone and sampler.

    python -m benchmarks.classes_synthetic [--workers 2] [--minutes M] [--only NAME ...] [--save FILE]

Trains `classes/synthetic` with each loss of the family and HDML. Each has four values of the one option that matters
most for it (miners count as one, as in Table 1 of "A Unified View of Deep Metric Learning via Gradient Analysis").
They are chosen on the validation classes, which are neither training nor test classes. The weights of a training are
the weights with the best result on the validation classes.
"""

from __future__ import annotations

import torch

from benchmarks.trials import Job, Method, Metrics, Trials, arguments, main as print_tables
from contml.app.experiment import load
from contml.app.trials.record import FinishedTrainings

#: Unnormalized embeddings: for losses whose papers do not normalize them.
_FREE = "model.normalize=false"
#: Proxies have ten times the learning rate of the network: most papers give them their own.
_PROXIES = "optimizer.loss_lr=0.02"
#: Two items per class: losses on one pair per class ignore all others.
_TWO = ("sampler.classes=48", "sampler.instances=2")


def _values(key: str, *values: float) -> tuple[str, ...]:
    return tuple(f"{key}={value:g}" for value in values)


_HDML_TRIPLET = ("loss.distance=squared_euclidean", "loss.reduction=sum", "step=hdml")
#: The base loss alone, on the tuples that HDML takes.
_BASE = ("step=hdml", "step.beta=0")
#: Name in the table: loss, the options to choose from, and what else is changed in the config.
_LOSSES: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "cross_entropy": ("cross_entropy", _values("optimizer.lr", 5e-4, 1e-3, 2e-3, 4e-3), (_FREE,)),
    "contrastive": ("contrastive", _values("loss.margin", 0.3, 0.4, 0.5, 0.6), ()),
    "triplet_margin": (
        "triplet_margin",
        ("loss.margin=0.1", "loss.margin=0.2", *(f"loss.reduction=nonzero loss.margin={m}" for m in (0.1, 0.2))),
        (),
    ),
    "n_pairs": ("n_pairs", (_FREE, f"{_FREE} loss.l2=0.02", f"{_FREE} loss.l2=0.1", "model.normalize=true"), _TWO),
    "angular": ("angular", (_FREE, *_values("loss.alpha", 36, 40, 45)), _TWO),
    "lifted_structure": ("lifted_structure", ("", "loss.margin=0.5", "loss.margin=2", "miner=vthm"), ()),
    "binomial_deviance": ("binomial_deviance", _values("loss.beta", 5, 10, 20, 50), ()),
    "raw": ("raw", ("", "loss.beta=25", "miner=semi_hard", "miner=distance_weighted"), ()),
    "multi_similarity (raw + vthm)": ("multi_similarity", _values("loss.epsilon", 0.05, 0.1, 0.2, 0.4), ()),
    "margin": ("margin", ("", "loss.margin=0.1", "loss.margin=0.4", "miner=distance_weighted"), ()),
    "ranked_list": ("ranked_list", _values("loss.margin", 0.2, 0.4, 0.6, 0.8), ()),
    "normalized_softmax": ("normalized_softmax", _values("loss.temperature", 0.03, 0.05, 0.1, 0.2), (_PROXIES,)),
    "instance_cross_entropy": ("instance_cross_entropy", _values("loss.scale", 16, 32, 64, 128), ()),
    "dro, topk": ("dro", _values("loss.k", 400, 1000, 2000, 4000), ("loss.uncertainty=topk",)),
    "dro, topk_pn": ("dro", _values("loss.k", 400, 1000, 2000, 4000), ("loss.uncertainty=topk_pn",)),
    "dro, kl": ("dro", _values("loss.gamma", 0.03, 0.1, 0.3, 1), ("loss.uncertainty=kl",)),
    "proxy_nca": (
        "proxy_nca",
        (*_values("loss.norm", 1, 3, 5), "loss.norm=3 loss.positive_in_denominator=true"),
        (_PROXIES,),
    ),
    "proxy_anchor": ("proxy_anchor", _values("optimizer.loss_lr", 0.002, 0.01, 0.02, 0.04), ()),
    "soft_triple": ("soft_triple", _values("loss.centers", 1, 2, 5, 10), (_PROXIES,)),
    "dense_triplet (0 / 1)": ("dense_triplet", _values("loss.margin", 0.03, 0.1, 0.3, 0.5), ()),
    "hdml, triplet": ("triplet_margin", _values("loss.margin", 0.2, 0.5, 1, 2), _HDML_TRIPLET),
    "hdml, n_pairs": ("n_pairs", _values("step.beta", 100, 300, 1000, 10000), ("step=hdml", _FREE, *_TWO)),
    "triplet_margin, hdml's tuples": (
        "triplet_margin",
        _values("loss.margin", 0.2, 0.5, 1, 2),
        (*_HDML_TRIPLET, *_BASE),
    ),
    "n_pairs, hdml's tuples": (
        "n_pairs",
        ("loss.l2=0", *_values("loss.l2", 0.002, 0.02, 0.1)),
        (*_BASE, _FREE, *_TWO),
    ),
}
METHODS = {
    name: Method(name, "classes/synthetic", tried, (f"loss={loss}", *changes))
    for name, (loss, tried, changes) in _LOSSES.items()
}


def train(job: Job) -> Metrics:
    """Recall@1 of the best weights on the split of the job; of the last weights where none are selected."""
    torch.set_num_threads(1)
    experiment = load(job.method.config, job.overrides)
    task = experiment.build_task()
    trainer = experiment.build_trainer(task, quiet=True)
    split = task.splits[job.split]
    before = trainer.evaluate(split)[0].curves["recall"]
    trainer.fit()
    if trainer.best is not None:
        assert trainer.best.weights is not None
        trainer.bare_model.load_state_dict(trainer.best.weights)
    evaluation = trainer.evaluate(split)[0]
    return {
        "value": evaluation.curves["recall"].model[0],
        "map_at_r": evaluation.scores["map_at_r"].model,
        "recall@10": evaluation.curves["recall"].model[9],
        "untrained": before.model[0],
        "random": before.random[0],
    }


COLUMNS = {"Recall@10": ("recall@10", ".3f"), "MAP@R": ("map_at_r", ".3f")}


def remark(trials: Trials) -> str:
    """Recall@1 without training."""
    found = [metrics for method in trials.methods for metrics in trials.tests(method)]
    untrained = sum(metrics["untrained"] for metrics in found) / len(found)
    return f"Recall@1 on the test classes; untrained weights have {untrained:.3f}, chance is {found[0]['random']:.3f}."


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--only", nargs="*", default=list(METHODS), choices=list(METHODS), help="these methods alone")
    given = parser.parse_args()
    methods = [METHODS[name] for name in given.only]
    trials = Trials(methods, train, FinishedTrainings(given.raw / "classes_synthetic.jsonl"), "higher")
    print_tables("Recall@1 of held-out drawn classes", {"": (trials, 55)}, COLUMNS, given, remark)


if __name__ == "__main__":
    main()
