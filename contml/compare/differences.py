"""What differs between the configs of runs: few columns, short titles, and nothing that is the same in all."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

#: A config as flat keys: `{"loss.name": "triplet_margin", "loss.margin": 0.1}`; its name stands under `CONFIG`.
Values: TypeAlias = "Mapping[str, Any]"

CONFIG = "config"
#: What stands in a column where a config has no such key.
ABSENT = "-"
#: Keys that change nothing of what is learned, and the seed, over which figures are averaged.
_NO_MATTER = {
    *(CONFIG, "seed", "images.cache", "images.workers", "labels.cache", "sampler.cache"),
    *("training.checkpoint_minutes", "training.evaluate_every"),
}
#: From more columns than these on, the names of the configs come first.
_MANY = 3
#: Longer texts are cut from the left, as paths are told apart by their ends.
_WIDEST = 32


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested sections as flat keys."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return found


def said(value: Any) -> str:
    """A value as it stands in a table."""
    if isinstance(value, float):
        return f"{value:g}"
    text = ABSENT if value is None else value if isinstance(value, str) else json.dumps(value)
    return " ".join(text.split())


def identity(config: Values) -> str:
    """Equal for two runs that differ in nothing but the seed; a key without a value is as good as none."""
    return json.dumps({k: value for k, value in sorted(config.items()) if k not in _NO_MATTER and value is not None})


def differing(configs: Sequence[Values]) -> list[str]:
    """The keys that are not the same in all configs, in their order; but for those that do not matter."""
    keys = dict.fromkeys(key for config in configs for key in config)
    return [key for key in keys if key not in _NO_MATTER and _varies(key, configs)]


def _varies(key: str, configs: Sequence[Values]) -> bool:
    return len({json.dumps(config.get(key)) for config in configs}) > 1


def distinct(configs: Sequence[Values], apart: Collection[str] = ()) -> dict[str, list[str]]:
    """Columns that tell configs from each other: a text for each config under a key, or under a section.

    Where configs choose different parts (`loss.name`), one column has the part, and those of its options that differ
    between configs with this part: "triplet_margin, margin 0.1". Words come before numbers. The names of the configs
    stand where nothing else differs, and before many columns.

    Args:
        configs: flat configs.
        apart: keys that are left out, since they have a column elsewhere.
    """
    keys = [key for key in differing(configs) if key not in apart]
    columns: dict[str, list[str]] = {}
    for section in dict.fromkeys(key.partition(".")[0] for key in keys):
        inner = [key for key in keys if key.partition(".")[0] == section]
        kinds = [_kind(config, section) for config in configs]
        alike = [[c for c, other in zip(configs, kinds, strict=True) if other == kind] for kind in kinds]
        own = [[key for key in inner if _varies(key, others)] for others in alike]
        if len(set(kinds)) == 1:
            columns |= {key: [said(config.get(key)) for config in configs] for key in inner}
        elif f"{section}.name" in apart:
            varying = [key for key in inner if any(key in of for of in own)]
            columns |= {key: [said(config.get(key)) for config in configs] for key in varying}
        else:
            columns[section] = [
                ", ".join([kind, *(f"{key.partition('.')[2]} {said(config.get(key))}" for key in of)])
                for kind, config, of in zip(kinds, configs, own, strict=True)
            ]
    names = [said(config.get(CONFIG)) for config in configs]
    if CONFIG not in apart and (not (columns or apart) or (len(set(names)) > 1 and len(columns) > _MANY)):
        columns = {CONFIG: names, **columns}
    words = {key: texts for key, texts in columns.items() if not all(map(_numeric, texts))}
    return {key: _shortened(texts) for key, texts in (words | columns).items()}


def _kind(config: Values, section: str) -> str:
    """The part that a config chose in a section; of a section that has one part only, whether it is there."""
    there = any(key.startswith(f"{section}.") for key in config)
    return str(config.get(f"{section}.name", "yes")) if there else ABSENT


def _numeric(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text == ABSENT
    return True


def _shortened(texts: list[str]) -> list[str]:
    cut = [text if len(text) <= _WIDEST else "..." + text[3 - _WIDEST :] for text in texts]
    return cut if len(set(cut)) == len(set(texts)) else texts


def short(key: str, among: Collection[str] = ()) -> str:
    """A key as a title: "dim" for model.dim, "loss" for loss.name; whole where another column is called so."""

    def brief(key: str) -> str:
        section, _, option = key.partition(".")
        return section if option in ("", "name") else option

    return brief(key) if [brief(other) for other in among].count(brief(key)) <= 1 else key


def named(key: str) -> bool:
    """Whether what a key holds says by itself what it is: the name of a part or of a config."""
    return key.endswith(".name") or ("." not in key and key != "seed")
