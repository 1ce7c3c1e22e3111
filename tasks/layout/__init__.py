"""Room layouts and label maps of any kind: images retrieved by which surfaces or classes lie where."""
