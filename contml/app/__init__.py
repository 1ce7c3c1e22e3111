"""What the commands do that need several trainings: sweep, benchmark, compare, audit."""
