"""Tasks, one package per kind of label. A task has a data set, label space, evaluation protocol and view of labels."""
