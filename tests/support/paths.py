"""Where the checkout and the packs of real data are."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]
DATA_ROOT = Path(os.environ.get("CONTML_DATA", ROOT.parent / "shared" / "data"))
