"""What `contml list` tells: configs and parts, and the options of each."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Mapping
from typing import Any


def kinds() -> dict[str, Callable[[], Mapping[str, Any]]]:
    """What there is to list: each gives its parts by name: a class or a function, a line of text, or None."""
    from contml import experiment, labels, losses, mining, models, sampling, training
    from contml.config import Section

    return {
        "configs": lambda: {name: _first_comment(experiment.config_text(name)) for name in experiment.config_names()},
        "tasks": experiment.task_table,
        "labels": lambda: labels.VIEWS,
        "backbones": lambda: dict.fromkeys(models.backbone_names()),
        "samplers": lambda: sampling.SAMPLERS,
        "losses": lambda: losses.LOSSES,
        "miners": lambda: mining.MINERS,
        "steps": lambda: training.STEPS,
        "optimizers": lambda: training.OPTIMIZERS,
        "schedules": lambda: training.SCHEDULES,
        "sections": lambda: {
            name: section.parts
            for name, section in experiment.schema().items()
            if isinstance(section, Section) and not isinstance(section.parts, Mapping)
        },
    }


def _first_comment(text: str) -> str:
    """The first line of comment of a config."""
    return text.splitlines()[0].lstrip("# ").strip()


def described(name: str, part: Any, *, full: bool) -> str:
    """A part in a line: its name and what it is; full: all that is known of it, its options a line each."""
    from contml.config import details, options, summary

    if part is None or isinstance(part, str):
        return f"{name}: {part}" if part else name
    lines = [f"{name}: {summary(part)}"]
    if full:
        if body := details(part):
            lines.append(textwrap.indent(body, "  "))
        for option in options(part):
            given = "required" if option.required else json.dumps(option.default, default=str)
            lines.append(f"    {option.name} = {given}: {option.help}")
    return "\n".join(lines)


def as_data(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Parts as plain values, for JSON."""
    from contml.config import options, summary

    return {
        name: part
        if part is None or isinstance(part, str)
        else {
            "summary": summary(part),
            "options": {
                option.name: {"required": option.required, "default": option.default, "help": option.help}
                for option in options(part)
            },
        }
        for name, part in entries.items()
    }
