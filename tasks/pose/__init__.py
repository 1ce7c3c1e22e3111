"""Human pose: images of people, retrieved by how their joints lie."""

from .coco import PoseCOCO
from .files import PoseFiles
from .lsp import PoseLSP
from .mpii import PoseMPII
from .synthetic import SyntheticPose

#: Every source of pose data by its name in a config, `pose/NAME`.
TASKS = {"synthetic": SyntheticPose, "files": PoseFiles, "mpii": PoseMPII, "coco": PoseCOCO, "lsp": PoseLSP}
