"""Continuous labels compared with binarized labels on drawn persons: same budget, seeds, backbone and sampler.

    python -m benchmarks.pose_synthetic [--minutes M] [--save benchmarks/results/pose_synthetic.md]

Log-ratio loss with dense sampling (pose/synthetic; four learning rates), dense triplets of continuous labels
(pose/synthetic_dense_triplet), triplets of a thresholded pose distance (pose/synthetic_threshold), triplets with the
nearest poses as positives (pose/synthetic_nearest): four margins each, chosen on the validation split.
"""

from __future__ import annotations

from benchmarks.synthetic import MARGINS, log_ratio_and_triplets, main
from benchmarks.trials import Method

METHODS = [
    *log_ratio_and_triplets("pose/synthetic", 4e-3),
    Method("triplet, nearest", "pose/synthetic_nearest", MARGINS),
    Method("dense triplet", "pose/synthetic_dense_triplet", MARGINS),
]

if __name__ == "__main__":
    main("pose_synthetic", "Pose distance@10 of drawn persons", METHODS, 160, __doc__)
