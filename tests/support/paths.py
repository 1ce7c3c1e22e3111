"""Where the checkout and the packs of real data are."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DATA_ROOT = Path(os.environ.get("CONTML_DATA", ROOT.parent / "shared" / "data"))


def needs(pack: str) -> pytest.MarkDecorator:
    """Skip a test where a pack of real data is missing."""
    reason = f"no pack {pack}: set CONTML_DATA to its folder"
    return pytest.mark.skipif(not (DATA_ROOT / pack).is_dir(), reason=reason)
