"""The values of trial n: a pure function of the space, the sampler, the seed, n, and the results that it may see."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from contml._support.errors import InputError
from contml.sweep.space import Choice, Params, Range, Space, value_text

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution


def optuna_version(sampler: str) -> str:
    """The version of Optuna, which "random" and "tpe" draw with.

    Raises:
        InputError: it is not installed.
    """
    try:
        import optuna
    except ImportError:
        raise InputError("--sampler", f"{sampler} needs optuna", hint='pip install "contml[sweep]"') from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return str(optuna.__version__)


def draw(
    space: Space,
    sampler: str,
    seed: int,
    number: int,
    finished: Sequence[tuple[Params, float | None]] = (),
    running: Sequence[Params] = (),
    better: str = "lower",
) -> dict[str, Any]:
    """The values of trial `number`.

    Args:
        space: the keys and their values.
        sampler: "random" or "tpe".
        seed: the seed of the sweep.
        number: 0 for the first trial.
        finished: values and result of the trials that "tpe" may see; None for a failed trial.
        running: values of the trials without a result, which "tpe" avoids.
        better: "lower" or "higher".
    """
    import numpy as np
    import optuna
    from optuna.trial import TrialState, create_trial

    trial_seed = int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
    distributions = {dimension.key: _distribution(dimension) for dimension in space}
    optuna_sampler: Any
    if sampler == "random":
        optuna_sampler = optuna.samplers.RandomSampler(seed=trial_seed)
    else:
        with warnings.catch_warnings():  # Optuna 4 calls constant_liar experimental
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            optuna_sampler = optuna.samplers.TPESampler(seed=trial_seed, constant_liar=True)
    study = optuna.create_study(sampler=optuna_sampler, direction="minimize" if better == "lower" else "maximize")
    for params, value in finished:
        trial_state = TrialState.FAIL if value is None else TrialState.COMPLETE
        indices = _indices(space, params)
        study.add_trial(create_trial(state=trial_state, value=value, params=indices, distributions=distributions))
    for params in running:
        indices = _indices(space, params)
        study.add_trial(create_trial(state=TrialState.RUNNING, params=indices, distributions=distributions))
    trial_params = study.ask(distributions).params
    return {
        dimension.key: dimension.values[trial_params[dimension.key]]
        if isinstance(dimension, Choice)
        else dimension.rounded(trial_params[dimension.key])
        for dimension in space
    }


def _distribution(part: Choice | Range) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(part, Choice):
        return CategoricalDistribution(range(len(part.values)))  # indices, since a value may be a list
    if part.is_integer:
        return IntDistribution(int(part.low), int(part.high), log=part.log)
    return FloatDistribution(part.low, part.high, log=part.log)


def _indices(space: Space, params: Params) -> dict[str, Any]:
    """The values of a trial, each choice as its index."""

    def index(part: Choice) -> int:  # by text, since 1 == True
        return [value_text(value) for value in part.values].index(value_text(params[part.key]))

    return {
        dimension.key: index(dimension) if isinstance(dimension, Choice) else params[dimension.key]
        for dimension in space
    }
