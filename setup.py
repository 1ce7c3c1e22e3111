"""The packages, found: tasks/ and configs/ are at the top of the repository and are installed inside contml.

So no top-level name `tasks` lands in anyone's site-packages. Everything else is in pyproject.toml.
"""

from setuptools import find_packages, setup

FOLDERS = {"contml": "contml", "contml.tasks": "tasks", "contml.configs": "configs"}

setup(
    packages=[
        name
        for package, folder in FOLDERS.items()
        for name in (package, *(f"{package}.{inner}" for inner in find_packages(folder)))
    ],
    package_dir=FOLDERS,
)
