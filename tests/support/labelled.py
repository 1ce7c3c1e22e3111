"""Labelled items of given embeddings, not fitted."""

from contml.evaluation.posterior import Coordinates
from contml.labels.saved import to_saved
from contml.search.labelled_items import Errors, LabelledItems, PredictionRecord, Record


def labelled_items(labels, embeddings, k=3, calibration=None, scale=0.5):
    each = PredictionRecord(calibration=calibration, test=Errors())
    record = Record(
        identity="abc",
        total=len(labels),
        neighbours=k,
        scale=scale,
        labels=to_saved(labels)[0],
        predictions=(each,) * len(labels.terms),
    )
    if labels.class_ids is not None:
        return LabelledItems(embeddings.float(), labels, None, labels.class_ids, record)
    coordinates = Coordinates.fit(labels)
    places = coordinates.of(labels.filled(range(len(labels)), coordinates.landmarks))
    return LabelledItems(embeddings.float(), labels, coordinates, places, record)
