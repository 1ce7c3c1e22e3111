"""Several trainings, and the comparison of their results.

item      a training: options, seed, split. Its result depends on the item alone (`record`)
record    a file of lines of JSON, one per finished training: a stopped command later does the items without a line
plan      all items that are known so far, from the results so far: a round of trials, then the next one
result    a table of settings with intervals (`statistics`, `verdict`), and the best setting

sweep         a config with different options, judged on the validation split        trials.jsonl, a table
benchmark     the same for several methods on several data sets; then the test split  raw/SUITE.jsonl, a page
compare       runs that exist                                                          a table
"""
