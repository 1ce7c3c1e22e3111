"""Room layouts and label maps of any kind: images retrieved by which surfaces or classes lie where."""

from .files import LabelMaps
from .lsun import LayoutLSUN
from .synthetic import SyntheticLayout

#: Every source of label maps by its name in a config, `layout/NAME`.
TASKS = {"synthetic": SyntheticLayout, "lsun": LayoutLSUN, "files": LabelMaps}
