"""Continuous labels compared with binarized labels on drawn rooms: same budget, seeds, backbone and sampler.

    python -m benchmarks.layout_synthetic [--keep FOLDER] [--save benchmarks/results/layout_synthetic.md]

Log-ratio loss with dense sampling (layout/synthetic); triplets of a thresholded layout distance
(layout/synthetic_threshold). The margin of the triplets is the best of a few on the test split of the first seed, which
favours them. The metric is mean layout distance@10 (1 - mean IoU), relative to a random ranking.
"""

from __future__ import annotations

from benchmarks.synthetic import log_ratio_and_triplets, main

if __name__ == "__main__":
    main(
        "Mean layout distance@10 of drawn rooms, relative to a random ranking",
        log_ratio_and_triplets("layout/synthetic"),
        __doc__,
    )
