"""Classes: images that belong to one of many classes, retrieved among classes that training never saw."""

from .cars import Cars
from .cub import CUB
from .folder import ClassFolder
from .inshop import InShop
from .sop import SOP
from .synthetic import SyntheticClasses
from .table import ClassTable

#: Every source of class data by its name in a config, `classes/NAME`.
TASKS = {
    "synthetic": SyntheticClasses,
    "cub": CUB,
    "cars": Cars,
    "sop": SOP,
    "inshop": InShop,
    "folder": ClassFolder,
    "csv": ClassTable,
}
