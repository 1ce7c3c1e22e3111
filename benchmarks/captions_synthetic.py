"""Continuous labels compared with binarized labels on drawn scenes: same budget, seeds, backbone and sampler.

    python -m benchmarks.captions_synthetic [--minutes M] [--save benchmarks/results/captions_synthetic.md]

Log-ratio loss with dense sampling (captions/synthetic; four learning rates), and triplets of a thresholded caption
distance (captions/synthetic_threshold; four margins).
"""

from __future__ import annotations

from benchmarks.synthetic import log_ratio_and_triplets, main

METHODS = log_ratio_and_triplets("captions/synthetic", 2e-3)

if __name__ == "__main__":
    main("captions_synthetic", "Caption distance@10 of drawn scenes", METHODS, 150, __doc__)
