from contml.sweep.results import Sweep as Sweep
from contml.sweep.search import sweep as sweep
