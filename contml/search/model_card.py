"""The model card of a trained model: what the Hugging Face hub shows of it, as `README.md` beside the weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from contml._support.files import read_bytes
from contml._support.text import page_text
from contml.evaluation.evaluated import Evaluated
from contml.evaluation.table import sentence

if TYPE_CHECKING:
    from contml.search.bundle import Bundle

CARD = "README.md"
#: The place of the model on the hub, until it is known.
PLACE = "USER/NAME"
#: Largest card in bytes.
_LIMIT = 1 << 20
_TEXT = """---
# license: (choose one, such as apache-2.0)
library_name: contml
pipeline_tag: {pipeline}
tags:
- contml
---

# {name}

{what}, trained with contml. Label distance: {unit}.
{results}
```python
import contml  # pip install "contml[hub]"

model = contml.load("hf://{place}")
{use}
```
"""


def read_card(folder: Path) -> str | None:
    """The card in the folder of a bundle; None if there is none.

    Raises:
        InputError: it cannot be read.
    """
    try:
        return read_bytes(folder / CARD, _LIMIT).decode(errors="replace")
    except FileNotFoundError:
        return None


def make_card(bundle: Bundle, *, captions: bool, evaluated: Evaluated | None = None) -> str:
    """The card of a trained model.

    Args:
        bundle: what is known about the model.
        captions: whether it is a captioner.
        evaluated: the result of the run; None if it is not known.
    """
    inputs, code, pipeline = "images", '"photos"', "image-feature-extraction"
    if bundle.feature_dim is not None:
        inputs, code, pipeline = f"vectors of {bundle.feature_dim} numbers", "vectors", "feature-extraction"
    lines = []
    if evaluated is not None:
        lines = [f"{evaluated.description}: {sentence(evaluated.evaluation)}"]
        lines += [f"{note}." for note in evaluated.notes]
    return _TEXT.format(
        pipeline="image-to-text" if captions else pipeline,
        name=_inline(bundle.name),
        what=f"{'Captions for' if captions else 'An embedding of'} {inputs}",
        unit=_inline(bundle.unit),
        results="".join(f"\n{_inline(line)}\n" for line in lines),
        place=PLACE,
        use=f"captions = model.caption({code})" if captions else f"embeddings = model.embed({code})",
    )


def _inline(text: str) -> str:
    """Text on one line in which nothing is Markdown or HTML."""
    plain = page_text(" ".join(text.split()))
    return "".join(f"\\{c}" if c in "\\|<>`*_[]" else c for c in plain)
