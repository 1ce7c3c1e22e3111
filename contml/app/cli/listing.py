"""`contml list`: configs and parts, and the options of each."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from contml._support.imports import import_by_name
from contml.app import experiment


def kinds() -> dict[str, Callable[[], Mapping[str, Any]]]:
    """Return the lists by name. Each returns its entries by name: a class or function, a line of text, or None."""
    return {
        "configs": _configs,
        "tasks": experiment.task_table,
        "labels": _labels,
        "label_spaces": lambda: {space.__name__: space for space in import_by_name("contml.labels:LABELS").values()},
        "binarize": partial(import_by_name, "contml.labels:BINARY_LABELS"),
        "backbones": lambda: dict.fromkeys(import_by_name("contml.models:backbone_names")()),
        "transforms": partial(import_by_name, "contml.data:TRANSFORMS"),
        "samplers": partial(import_by_name, "contml.sampling:SAMPLERS"),
        "losses": partial(import_by_name, "contml.losses:LOSSES"),
        "regularizers": partial(import_by_name, "contml.losses:REGULARIZERS"),
        "miners": partial(import_by_name, "contml.mining:MINERS"),
        "steps": partial(import_by_name, "contml.app.experiment.parts:STEPS"),
        "decoders": partial(import_by_name, "contml.captioning.decoders:DECODERS"),
        "optimizers": partial(import_by_name, "contml.training:OPTIMIZERS"),
        "schedules": partial(import_by_name, "contml.training:SCHEDULES"),
        "metrics": _metrics,
        "sections": _sections,
    }


def own_backbones() -> Mapping[str, Any]:
    """Return the backbones of contml, without torchvision's, which take a second to list."""
    from contml.models import BACKBONES

    return {**dict.fromkeys(BACKBONES), "...": "and all of torchvision: 'contml list backbones'"}


def _configs() -> Mapping[str, Any]:
    """Return the configs that come with contml, each with its first comment line."""
    texts = {name: experiment.config_text(name) for name in experiment.config_names()}
    return {name: text.splitlines()[0].lstrip("# ").strip() for name, text in texts.items()}


def _labels() -> Mapping[str, Any]:
    """Return the kinds of a label of your own table (`--data`)."""
    from contml.config import named_parts, options

    kinds = map(named_parts, options(experiment.task_table()[experiment.data_task()]))
    return next(found.parts for found in kinds if found is not None)


def _metrics() -> Mapping[str, Any]:
    """Return the meaning of each metric, and whether higher or lower is better, by its name for `contml compare`."""
    from contml.evaluation.metrics import METRICS, METRICS_AT_K

    return {name: str(metric) for name, metric in ({f"{n}@K": m for n, m in METRICS_AT_K.items()} | METRICS).items()}


def _sections() -> Mapping[str, Any]:
    from contml.config import Section

    sections = {name: section for name, section in experiment.schema().items() if isinstance(section, Section)}
    return {name: section.parts for name, section in sections.items() if not isinstance(section.parts, Mapping)}


def describe(name: str, part: Any, *, full: bool) -> str:
    """Describe an entry in one line: its name and summary. With `full`, add its documentation, one line per option."""
    from contml.config import all_options, details, summary

    if part is None or isinstance(part, str):
        return f"{name}: {part}" if part else name
    lines = [f"{name}: {summary(part)}"]
    if full:
        if body := details(part):
            lines.append(textwrap.indent(body, "  "))
        for option in all_options(part):
            default = "required" if option.required else json.dumps(option.default, default=str)
            lines.append(f"    {option.name} = {default}: {option.help}")
    return "\n".join(lines)


def as_data(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return entries as plain values, for JSON."""
    from contml.config import all_options, summary

    def described(part: Any) -> Any:
        if part is None or isinstance(part, str):
            return part
        about = ((o.name, {"required": o.required, "default": o.default, "help": o.help}) for o in all_options(part))
        return {"summary": summary(part), "options": dict(about)}

    return {name: described(part) for name, part in entries.items()}
