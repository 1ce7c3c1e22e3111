"""Human pose: images of people, retrieved by how their joints lie."""

from .files import PoseFiles
from .synthetic import SyntheticPose

#: Every source of pose data by its name in a config, `pose/NAME`.
TASKS = {"synthetic": SyntheticPose, "files": PoseFiles}
