"""Human pose: images of people, retrieved by how their joints lie."""

from contml._support.imports import LazyTable

#: Every task of this package by its name in a config, `pose/NAME`: imported when it is used.
TASKS = LazyTable(
    __name__,
    {
        "synthetic": "synthetic:SyntheticPose",
        "files": "files:PoseFiles",
        "mpii": "mpii:PoseMPII",
        "coco": "coco:PoseCOCO",
        "lsp": "lsp:PoseLSP",
    },
)
__getattr__ = TASKS.attribute
