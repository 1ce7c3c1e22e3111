"""The packages: `contml/tasks` and `contml/configs` are links to the folders at the top of the repository.

The links give an editable install one plain path, so that `import contml` works in any folder. This includes the
folder above a clone that is called contml. A wheel has the files themselves, once. The package index shows the README
without pictures and links of the repository, which it does not have. Everything else is in pyproject.toml.
"""

import re
from pathlib import Path

from setuptools import find_packages, setup


def description() -> str:
    """Return the README without pictures and their captions. Links to files become plain text."""
    text = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
    text = re.sub(r"^!\[[^\]]*\]\([^)]*\)\n(\n\*[^*]+\*\n)?", "", text, flags=re.MULTILINE)
    return re.sub(r"\[([^\]]+)\]\((?!https?:|#)[^)]*\)", r"\1", text)


setup(
    long_description=description(),
    long_description_content_type="text/markdown",
    packages=find_packages(include=["contml", "contml.*"]),
    package_dir={"": "."},
)
