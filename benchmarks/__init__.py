"""Benchmarks: `python -m benchmarks.NAME` prints ratios against peers: one process, results checked equal."""
