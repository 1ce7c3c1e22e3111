"""The packages, found: tasks/ and configs/ are at the top of the repository and are installed inside contml.

So no top-level name `tasks` lands in anyone's site-packages. The package index shows the README without
pictures and links of the repository, which it does not have. Everything else is in pyproject.toml.
"""

import re
from pathlib import Path

from setuptools import find_packages, setup

FOLDERS = {"contml": "contml", "contml.tasks": "tasks", "contml.configs": "configs"}


def description() -> str:
    """The README: without pictures and their captions, and with the text alone of links to files."""
    text = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
    text = re.sub(r"^!\[[^\]]*\]\([^)]*\)\n(\n\*[^*]+\*\n)?", "", text, flags=re.MULTILINE)
    return re.sub(r"\[([^\]]+)\]\((?!https?:|#)[^)]*\)", r"\1", text)


setup(
    long_description=description(),
    long_description_content_type="text/markdown",
    packages=[
        name
        for package, folder in FOLDERS.items()
        for name in (package, *(f"{package}.{inner}" for inner in find_packages(folder)))
    ],
    package_dir=FOLDERS,
)
