"""Continuous labels against class-style training on drawn rooms: same budget, seeds, backbone and sampler.

    python -m benchmarks.layout_synthetic [--keep FOLDER] [--save benchmarks/results/layout_synthetic.md]

Log-ratio with dense sampling (layout/synthetic) against triplets of a thresholded layout distance
(layout/synthetic_threshold) at the best of a few margins, chosen on the test split of the first seed, which is in its
favour. Mean layout distance@10 (1 - mean IoU) as a share of a random ranking's.
"""

from __future__ import annotations

from benchmarks.twin import Method, main

METHODS = [
    Method("log-ratio, dense", "layout/synthetic"),
    Method(
        "triplet, threshold",
        "layout/synthetic_threshold",
        ("loss.margin=0.05", "loss.margin=0.1", "loss.margin=0.2"),
    ),
]

if __name__ == "__main__":
    main("Mean layout distance@10 of drawn rooms, as a share of a random ranking's", METHODS, __doc__)
