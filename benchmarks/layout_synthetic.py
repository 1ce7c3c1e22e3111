"""Continuous labels compared with binarized labels on drawn rooms: same budget, seeds, backbone and sampler.

    python -m benchmarks.layout_synthetic [--minutes M] [--save benchmarks/results/layout_synthetic.md]

Log-ratio loss with dense sampling (layout/synthetic; four learning rates), and triplets of a thresholded layout
distance (layout/synthetic_threshold; four margins). The label distance is 1 - mean IoU.
"""

from __future__ import annotations

from benchmarks.synthetic import log_ratio_and_triplets, main

METHODS = log_ratio_and_triplets("layout/synthetic", 4e-3)

if __name__ == "__main__":
    main("layout_synthetic", "Layout distance@10 of drawn rooms", METHODS, 250, __doc__)
