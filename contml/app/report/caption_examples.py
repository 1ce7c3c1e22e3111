"""The parts of a captioner's report: examples with references, intervals of scores, attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor

from contml._support.pages import csv_bytes
from contml._support.text import score_text
from contml.app.report.page import About, Album, Page, interval_rows, narrowed, texts
from contml.captioning.evaluator import Captions
from contml.data.batch import centre, cut
from contml.data.decode import resized
from contml.data.split import Split
from contml.evaluation.evaluated import Evaluated
from contml.evaluation.intervals import half_width

_PICTURE, _WORD = 448, 176  # pixels; the page shows them at half of that


@dataclass(frozen=True)
class CaptionContent:
    """Captions, as a report shows them: scores, captions under their images, attention, curves.

    Also `queries.csv`: the caption and the scores of each image.

    Attributes:
        captions: the captions of the images.
        attention: where the captioner looked before each word `[T, P]`, by row.
        size: side of the resized image and of its centre crop, which the captioner saw.
    """

    captions: Captions
    attention: Mapping[str, Tensor]
    size: tuple[int, int]

    def page(self, split: Split, evaluated: Evaluated, about: About) -> Page:  # noqa: ARG002
        """What the report shows."""
        captions, album, positions = self.captions, Album(split), self.captions.shown()
        places = {len(positions) - 1: "Worst", len(positions) // 2: "Median", 0: "Best"} if len(positions) else {}
        first = sorted(places)
        means = {name: float(values.mean()) for name, values in captions.scores.items()}
        intervals = {name: half_width(values) for name, values in captions.scores.items()}
        values = {
            "intervals": texts(interval_rows(means, intervals)),
            "first": first,
            "titles": [places[place] for place in first],
            "examples": caption_examples(captions, album, self.attention, self.size),
        }
        return Page("captions.html", album, {}, {"queries.csv": captions_csv(captions, split)}, values)


def caption_examples(
    captions: Captions, album: Album, attention: Mapping[str, Tensor], size: tuple[int, int]
) -> list[dict[str, Any]]:
    """Some images of an album from good to bad captions; it notes the rows that could not be drawn."""
    references = album.split.labels.captions
    assert references is not None  # of a captioner
    examples = []
    for position in captions.shown():
        row, text = int(captions.queries[position]), captions.texts[position]
        picture = words = None
        try:
            picture = album.split.picture(row)
            if str(row) in attention:
                seen = Image.fromarray(cut(resized(picture, "", size[0]), centre(*size), size[1]))
                words = _words(text, attention[str(row)].numpy(), seen)
        except Exception as error:  # one bad picture must not lose the report of a whole training
            album.broken[row] = f"{type(error).__name__}: {error}"
        examples.append(
            {
                "name": album.name(row),
                "picture": None if picture is None else narrowed(picture, _PICTURE),
                "text": text,
                "score": score_text(float(captions.scores["cider_d"][position])),
                "references": list(references[row]),
                "words": words,
            }
        )
    return examples


def captions_csv(captions: Captions, split: Split) -> bytes:
    """The caption of each image and its scores."""
    names = [split.name(row) for row in captions.queries.tolist()]
    columns = [values.tolist() for values in captions.scores.values()]
    return csv_bytes([["image", "caption", *captions.scores], *zip(names, captions.texts, *columns, strict=True)])


def _words(text: str, attention: np.ndarray[Any, Any], picture: Image.Image) -> list[tuple[str, Image.Image]]:
    """Each word with the picture, bright where the captioner looked before it wrote the word."""
    side = round(attention.shape[1] ** 0.5)
    words = []
    for word, weights in zip(text.split(" "), attention, strict=False):
        grid = weights[: side * side].reshape(side, side) / max(float(weights.max()), 1e-9)
        mask = Image.fromarray((255 * (0.15 + 0.85 * grid)).astype(np.uint8)).resize(
            picture.size, Image.Resampling.BICUBIC
        )
        bright = Image.composite(picture, Image.new("RGB", picture.size), mask)
        words.append((word, narrowed(bright, _WORD)))
    return words
