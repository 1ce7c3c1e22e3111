"""Tasks: a data set, its label space, an evaluation protocol and how to draw a label, one package each."""
