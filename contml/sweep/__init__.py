"""Sweeps: try values of options, judge each trial on the validation split, choose the best."""

from contml.sweep.results import Sweep as Sweep
from contml.sweep.search import sweep as sweep
