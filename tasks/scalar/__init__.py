"""Images with one number each as the label."""

from contml._support.imports import lazy_table

#: Every task of this package by its name in a config, `scalar/NAME`: imported when it is used.
TASKS = lazy_table(__name__, {"synthetic": "drawn_gauges:synthetic", "judged": "drawn_judges:judged"})
