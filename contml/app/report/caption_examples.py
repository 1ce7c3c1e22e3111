"""The parts of a captioner's report: examples with references, intervals of scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from contml._support.text import score_text
from contml.app.report.page import Album, Page, interval_rows, narrowed, texts
from contml.captioning.evaluator import Captions
from contml.data.split import Split
from contml.evaluation.evaluated import Evaluated
from contml.evaluation.intervals import half_width

_PICTURE = 448  # pixels; the page shows half of that


@dataclass(frozen=True)
class CaptionContent:
    """Captions for a report: scores, captions under their images, curves.

    Attributes:
        captions: the captions of the images.
    """

    captions: Captions

    def page(self, split: Split, evaluated: Evaluated) -> Page:  # noqa: ARG002
        """Return the content of the report."""
        captions, album, positions = self.captions, Album(split), self.captions.shown()
        places = {len(positions) - 1: "Worst", len(positions) // 2: "Median", 0: "Best"} if len(positions) else {}
        means = {name: float(values.mean()) for name, values in captions.scores.items()}
        intervals = {name: half_width(values) for name, values in captions.scores.items()}
        values = {"intervals": texts(interval_rows(means, intervals)), "examples": caption_examples(captions, album)}
        values |= {"first": sorted(places), "titles": [places[place] for place in sorted(places)]}
        return Page("captions.html", album, {}, values)


def caption_examples(captions: Captions, album: Album) -> list[dict[str, Any]]:
    """Return some images of an album from good to bad captions. The album notes the rows that could not be drawn."""
    references = album.split.labels.captions
    assert references is not None  # of a captioner
    examples = []
    for position in captions.shown():
        row, score = int(captions.queries[position]), score_text(float(captions.scores["cider_d"][position]))
        picture = None
        try:
            picture = narrowed(album.split.picture(row), _PICTURE)
        except Exception as error:  # one bad picture must not lose the report of a whole training
            album.broken[row] = f"{type(error).__name__}: {error}"
        about = {"name": album.name(row), "picture": picture, "text": captions.texts[position], "score": score}
        examples.append({**about, "references": list(references[row])})
    return examples
