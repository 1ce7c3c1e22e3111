"""Labels as the command line takes them: NAME=VALUE, where the label space of the model reads the value."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contml._support.errors import InputError, did_you_mean
from contml._support.files import read_bytes
from contml.data.label_maps import read_image_map
from contml.data.text_files import parsed_json
from contml.labels.base import LabelSpace

#: Largest file of a label in bytes.
_LIMIT = 1 << 24


def typed_label(labels: LabelSpace, texts: Sequence[str]) -> Any:
    """The label that NAME=VALUE says, as `LabelSpace.item` takes it; of a sum of labels, several may be given.

    NAME is the title of a label; upper and lower case, and an s at its end, do not count. VALUE is a text that the
    label space parses; of a pose the name of a JSON file, and of a label map that of a picture.

    Raises:
        InputError: there is no such label, one appears twice, or its file cannot be read.
    """
    spaces = {space.title: space for space, _ in labels.terms}
    given: dict[str, Any] = {}
    for text in texts:
        name, value = _divided(text, list(spaces))
        if name in given:
            raise InputError("--label", f"{name} appears twice", hint="give each label once")
        given[name] = _value(spaces[name], value)
    return given if len(spaces) > 1 or labels.title not in given else given[labels.title]


def _divided(text: str, titles: Sequence[str]) -> tuple[str, str]:
    """The title of a label, and the value."""
    names = f"must be NAME=VALUE, with the name {' or '.join(titles)}"
    exact = next((title for title in titles if text.startswith(f"{title}=")), None)
    if exact is not None:
        return exact, text.removeprefix(f"{exact}=")
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError("--label", repr(text), names)
    alike = [title for title in titles if _simple(title) == _simple(name)]
    if len(alike) != 1:
        raise InputError("--label", f"no label {name!r}", names, did_you_mean(name, titles))
    return alike[0], value


def _simple(name: str) -> str:
    return name.strip().casefold().removesuffix("s")


def _value(space: LabelSpace, text: str) -> Any:
    if space.typed_as == "picture":
        return read_image_map(Path(text).expanduser())
    if space.typed_as == "json" and not text.lstrip().startswith(("[", "{")):
        try:
            content = read_bytes(Path(text).expanduser(), _LIMIT)
            return parsed_json(text, content.decode())
        except FileNotFoundError:
            raise InputError("--label", f"no such file {text}", f"a {space.title} is the name of a JSON file") from None
        except UnicodeDecodeError:
            raise InputError(text, "not text in UTF-8", f"a {space.title} is a JSON file") from None
    return parsed_json("--label", text) if space.typed_as == "json" else text
