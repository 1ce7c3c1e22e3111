"""Continuous labels against class-style training on drawn poses: same budget, seeds, backbone and sampler.

    python -m benchmarks.pose_synthetic [--keep FOLDER] [--save benchmarks/results/pose_synthetic.md]

Log-ratio with dense sampling (pose/synthetic) against triplets of a thresholded pose distance
(pose/synthetic_threshold) and triplets with the nearest poses as positives (pose/synthetic_nearest), each of these two
at the best of a few margins, chosen on the test split of the first seed, which is in their favour. Mean pose
distance@10 as a share of a random ranking's.
"""

from __future__ import annotations

from benchmarks.twin import Method, main

_MARGINS = ("loss.margin=0.05", "loss.margin=0.1", "loss.margin=0.2", "loss.margin=0.4")
METHODS = [
    Method("log-ratio, dense", "pose/synthetic"),
    Method("triplet, threshold", "pose/synthetic_threshold", _MARGINS),
    Method("triplet, nearest", "pose/synthetic_nearest", _MARGINS),
]

if __name__ == "__main__":
    main("Mean pose distance@10 of drawn poses, as a share of a random ranking's", METHODS, __doc__)
