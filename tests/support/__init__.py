"""Reference formulas, miniatures of data sets and hypothesis strategies that several test files share."""
