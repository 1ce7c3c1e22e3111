"""The nearest captions of two images, where the distance moves no words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PIL import Image

from contml._support.text import number
from contml.data.split import Explanation

from .distance import CaptionDistance

#: Pairs of captions that are listed.
_LISTED = 3


@dataclass(frozen=True, eq=False)
class NearestCaptions:
    """Lists the nearest captions of two rows.

    Args:
        captions: the captions of each row.
        distance: what compares them.
    """

    captions: Sequence[Sequence[str]]
    distance: CaptionDistance

    def __call__(self, rows: tuple[int, int], pictures: tuple[Image.Image, Image.Image], size: int) -> Explanation:
        """Both pictures, and the pairs of captions with the smallest distance."""
        texts = [text for row in rows for text in self.captions[row]]
        labels, kept = self.distance.labels([[text] for text in texts])
        num_query = sum(n < len(self.captions[rows[0]]) for n in kept)  # captions of the first row that have a distance
        distances = labels.pairwise()[:num_query, num_query:]
        table = []
        for pair_index in distances.flatten().argsort(stable=True)[:_LISTED].tolist():
            a, b = divmod(pair_index, distances.shape[1])
            table.append([texts[kept[a]], texts[kept[num_query + b]], number(float(distances[a, b]))])
        image_labels, _ = self.distance.labels([self.captions[row] for row in rows])
        table.append(["label distance", "", number(float(image_labels.pairwise([0], [1])))])
        thumbnails = [picture.resize((size // 3, size // 3), Image.Resampling.BICUBIC) for picture in pictures]
        header = ("caption of the query", "nearest caption of the item", "label distance of the two alone")
        return Explanation([("query", thumbnails[0]), ("item", thumbnails[1])], header, table)
