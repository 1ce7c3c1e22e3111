"""Miniatures of the class data sets, with their own counts instead of the published ones."""

from contml.tasks.classes import cars, cub, inshop, sop
from contml.tasks.classes.reading import PublishedCounts

from .class_layouts import write_cars_new, write_cars_old, write_cub, write_inshop, write_sop
from .refusals import refused

#: For each data set: the task, its module with the published counts, the writer of the miniature, and its counts.
SETS = {
    "cub": (cub.cub, cub, write_cub, {"train": (40, 8, range(1, 9)), "test": (20, 4, range(101, 105))}),
    "cars_old": (cars.cars, cars, write_cars_old, {"train": (40, 8, range(1, 9)), "test": (20, 4)}),
    "cars_new": (cars.cars, cars, write_cars_new, {"train": (40, 8, range(1, 9)), "test": (20, 4)}),
    "sop": (sop.sop, sop, write_sop, {"train": (40, 8, range(1, 9)), "test": (20, 4, range(11319, 11323))}),
    "inshop": (inshop.inshop, inshop, write_inshop, {"train": (40, 8), "query": (8, 4), "gallery": (12, 4)}),
}


def published(monkeypatch, name, **changed):
    """Set the counts of the miniature instead of the official ones."""
    _, module, _, counts = SETS[name]
    monkeypatch.setattr(module, "PUBLISHED", {part: PublishedCounts(*own) for part, own in (counts | changed).items()})


def rejected(fields, reader, root, **options):
    """The reader raises an `InputError` with these fields: subject, got, allowed, hint."""
    refused(lambda: reader(str(root), **options), *fields)


def edit(path, change):
    lines = path.read_text().splitlines()
    path.write_text("".join(f"{line}\n" for line in change(lines)))
