"""The differences between the configs of runs, in few columns with short titles."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

from contml._support.text import MISSING
from contml.evaluation.table import value_text
from contml.runs import WITHOUT_EFFECT

#: A config as flat keys: `{"loss.name": "triplet_margin", "loss.margin": 0.1}`; its name is under `CONFIG`.
Values: TypeAlias = "Mapping[str, Any]"

CONFIG = "config"
#: The text in a column where a config has no such key.
ABSENT = MISSING
#: The fold of a run: the part of the training items that it validates on.
FOLD = "training.val_fold"
#: Keys that do not change the trained model, and the seed and the fold, over which metrics are averaged.
_IRRELEVANT = WITHOUT_EFFECT | {CONFIG, "seed", FOLD}
#: Tables with more columns than these begin with the names of the configs.
_FEW_COLUMNS = 3
#: Longer texts are cut on the left, since paths differ at their ends.
_MAX_WIDTH = 32


def identity(config: Values) -> str:
    """A text that is equal for runs that differ only in seed and fold; a key with the value null counts as absent."""
    return json.dumps({k: value for k, value in sorted(config.items()) if k not in _IRRELEVANT and value is not None})


def differing(configs: Sequence[Values]) -> list[str]:
    """The keys whose values differ between the configs, in order, without irrelevant ones."""
    keys = dict.fromkeys(key for config in configs for key in config)
    return [key for key in keys if key not in _IRRELEVANT and _varies(key, configs)]


def _varies(key: str, configs: Sequence[Values]) -> bool:
    return len({json.dumps(config.get(key)) for config in configs}) > 1


def distinct(configs: Sequence[Values], apart: Collection[str] = ()) -> dict[str, list[str]]:
    """Columns that show where configs differ: a text for each config under a key, or under a section.

    Where configs choose different parts (`loss.name`), one column shows the part and its options that differ
    between configs with this part: "triplet_margin, margin 0.1". Columns of words come before columns of numbers. The
    names of the configs are shown where nothing else differs, and where there are many columns.

    Args:
        configs: flat configs.
        apart: keys that are omitted, since they have a column elsewhere.
    """
    keys = [key for key in differing(configs) if key not in apart]
    columns: dict[str, list[str]] = {}
    for section in dict.fromkeys(key.partition(".")[0] for key in keys):
        section_keys = [key for key in keys if key.partition(".")[0] == section]
        parts = [_part(config, section) for config in configs]
        # The options of each config that differ between the configs with the same part.
        varying_options = [
            [
                key
                for key in section_keys
                if _varies(key, [c for c, other_part in zip(configs, parts, strict=True) if other_part == part])
            ]
            for part in parts
        ]
        if len(set(parts)) == 1 or f"{section}.name" in apart:
            varying_keys = [key for key in section_keys if any(key in options for options in varying_options)]
            columns |= {key: [value_text(config.get(key)) for config in configs] for key in varying_keys}
        else:
            columns[section] = [
                ", ".join([part, *(f"{key.partition('.')[2]} {value_text(config.get(key))}" for key in options)])
                for part, config, options in zip(parts, configs, varying_options, strict=True)
            ]
    names = [value_text(config.get(CONFIG)) for config in configs]
    if CONFIG not in apart and (not (columns or apart) or (len(set(names)) > 1 and len(columns) > _FEW_COLUMNS)):
        columns = {CONFIG: names, **columns}
    word_columns = {key: texts for key, texts in columns.items() if not all(map(_numeric, texts))}
    return {key: _shortened(texts) for key, texts in (word_columns | columns).items()}


def _part(config: Values, section: str) -> str:
    """The part that a config chose in a section; "yes" where the section has only one part and is present."""
    present = any(key.startswith(f"{section}.") for key in config)
    return str(config.get(f"{section}.name", "yes")) if present else ABSENT


def _numeric(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return text == ABSENT
    return True


def _shortened(texts: list[str]) -> list[str]:
    cut = [text if len(text) <= _MAX_WIDTH else "..." + text[3 - _MAX_WIDTH :] for text in texts]
    return cut if len(set(cut)) == len(set(texts)) else texts


def short(key: str, keys: Collection[str] = ()) -> str:
    """A key as a title: "dim" for model.dim, "loss" for loss.name; unchanged if two of `keys` would get it."""

    def shortened(key: str) -> str:
        section, _, option = key.partition(".")
        return section if option in ("", "name") else option

    return shortened(key) if [shortened(other_key) for other_key in keys].count(shortened(key)) <= 1 else key


def is_name(key: str) -> bool:
    """Whether the values of a key are names of parts or configs, which need no title."""
    return key.endswith(".name") or ("." not in key and key != "seed")
