from contml.benchmark.command import Benchmark as Benchmark, Output as Output, benchmark as benchmark
from contml.benchmark.suite import Suite as Suite, read_suite as read_suite, suite_names as suite_names
