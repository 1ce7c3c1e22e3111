"""Classes: images that belong to one of many classes, retrieved among classes that training never saw."""

from .synthetic import SyntheticClasses

#: Every source of class data by its name in a config, `classes/NAME`.
TASKS = {"synthetic": SyntheticClasses}
