"""Several runs side by side: a table, and a plot of a metric against a config key."""
