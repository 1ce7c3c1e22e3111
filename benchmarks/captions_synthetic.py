"""Continuous labels against class-style training on drawn scenes: same budget, seeds, backbone and sampler.

    python -m benchmarks.captions_synthetic [--keep FOLDER] [--save benchmarks/results/captions_synthetic.md]

Log-ratio with dense sampling (captions/synthetic) against triplets of a thresholded caption distance
(captions/synthetic_threshold) at the best of a few margins, chosen on the test split of the first seed, which favours
the triplets. Mean caption distance@10 as a share of a random ranking's.
"""

from __future__ import annotations

from benchmarks.synthetic import log_ratio_and_triplets, main

if __name__ == "__main__":
    main(
        "Mean caption distance@10 of drawn scenes, as a share of a random ranking's",
        log_ratio_and_triplets("captions/synthetic"),
        __doc__,
    )
