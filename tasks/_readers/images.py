"""Opens image files, which may be broken or declare more pixels than fit in memory."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image

from contml import InputError
from contml._support.errors import one_line

#: The largest width or height of an image that annotations may declare.
MOST_PIXELS = 1_000_000


@contextmanager
def opened(path: Path | str) -> Iterator[Image.Image]:
    """An image file. Every error of opening or decoding it is raised as an OSError.

    So is an image of more than 89 million pixels, Pillow's limit (`PIL.Image.MAX_IMAGE_PIXELS`).
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns about unusual metadata
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path) as picture:
                yield picture
    except (OSError, MemoryError, InputError):
        raise
    except Exception as error:  # on broken files, Pillow's decoders raise nearly any exception
        raise OSError(one_line(error)) from error
