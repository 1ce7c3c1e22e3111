"""Labelled items of given embeddings, not fitted; and the weights of a posterior."""

import math

from contml.evaluation.posterior import Coordinates
from contml.labels.saved import to_saved
from contml.search.labelled_items import Errors, LabelledItems, PredictionRecord, Record


def labelled_items(labels, embeddings, k=3, calibration=None, scale=0.5):
    predictions = (PredictionRecord(calibration=calibration, test=Errors()),) * len(labels.terms)
    facts = {"identity": "abc", "total": len(labels), "labels": to_saved(labels)[0], "predictions": predictions}
    record = Record(neighbours=k, scale=scale, **facts)
    if labels.class_ids is not None:
        return LabelledItems(embeddings.float(), labels, None, labels.class_ids, record)
    coordinates = Coordinates.fit(labels)
    places = coordinates.of(labels.filled(range(len(labels)), coordinates.landmarks))
    return LabelledItems(embeddings.float(), labels, coordinates, places, record)


def loop_weights(x, query, k, scale, excluded=()):
    """The weight of each of the k nearest training items, by its row: the posterior of a query, by a loop."""
    distances = {j: math.dist(x[j].tolist(), query.tolist()) for j in range(len(x)) if j not in excluded}
    near = sorted(distances, key=lambda j: (distances[j], j))[:k]
    total = sum(math.exp(-distances[j] / scale) for j in near)
    return {j: math.exp(-distances[j] / scale) / total for j in near}
