"""Several trainings, and what their results say.

item      a training: options, seed, fold or split. Its result depends on the item alone (`record`)
record    a file of lines of JSON, one per finished training: a command that was stopped does what has no line
plan      all items that are known so far, from the results so far: a round of trials, then the next one
result    a table of settings with intervals (`statistics`, `verdict`), and which of them is the best

sweep         a config with different options, judged on the validation split        trials.jsonl, a table
benchmark     the same for several methods on several data sets; then the test split  raw/SUITE.jsonl, a page
compare       runs that exist                                                          a table
"""
