"""Continuous labels compared with binarized labels on drawn persons: same budget, seeds, backbone and sampler.

    python -m benchmarks.pose_synthetic [--keep FOLDER] [--save benchmarks/results/pose_synthetic.md]

Log-ratio loss with dense sampling (pose/synthetic); triplets of a thresholded pose distance (pose/synthetic_threshold);
triplets with the nearest poses as positives (pose/synthetic_nearest). The margin of triplets is the best of a few on
the test split of the first seed, which favours them. The metric is mean pose distance@10, relative to a random ranking.
"""

from __future__ import annotations

from benchmarks.synthetic import Method, main

_MARGINS = ("loss.margin=0.05", "loss.margin=0.1", "loss.margin=0.2", "loss.margin=0.4")
METHODS = [
    Method("log-ratio, dense", "pose/synthetic"),
    Method("triplet, threshold", "pose/synthetic_threshold", _MARGINS),
    Method("triplet, nearest", "pose/synthetic_nearest", _MARGINS),
]

if __name__ == "__main__":
    main("Mean pose distance@10 of drawn persons, relative to a random ranking", METHODS, __doc__)
