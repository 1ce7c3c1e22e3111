"""The evaluation and the ranking of `contml.evaluate`, for tests that look at each."""

from contml.evaluation import retrieval


def evaluate(*args, **options):
    """The two parts of what `contml.evaluate` returns."""
    found = retrieval.evaluate(*args, **options)
    return found.evaluation, found.ranking
