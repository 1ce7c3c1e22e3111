"""Random changes of image files."""

from __future__ import annotations

import io
import struct
import zlib
from random import Random

import numpy as np
from PIL import Image

MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I", "I;16", "F")
FORMATS = ("PNG", "PNG", "PNG", "TIFF", "GIF", "BMP", "JPEG", "WEBP", "PPM")


def changed(picture: Image.Image, random: Random) -> bytes:
    """The picture in another mode, size or format, or as a PNG that declares a size that it does not have."""
    if random.random() < 0.3:
        size = random.choice(((1, 1), (picture.width, 1), (3, 500), (picture.height, picture.width), (200, 200)))
        picture = picture.resize(size)
    if random.random() < 0.5:
        mode = random.choice(MODES)
        if mode in ("I;16", "F"):
            picture = Image.fromarray(
                np.asarray(picture.convert("L")).astype(np.uint16 if mode == "I;16" else np.float32)
            )
        else:
            picture = picture.convert(mode)
    written = io.BytesIO()
    try:
        picture.save(written, random.choice(FORMATS))
    except (OSError, ValueError):  # the format does not hold this mode
        picture.convert("RGB").save(written, "PNG")
    content = written.getvalue()
    return declaring(content, random) if content[:4] == b"\x89PNG" and random.random() < 0.3 else content


def declaring(content: bytes, random: Random) -> bytes:
    """A PNG whose header, with a valid checksum, declares another size, depth or colour type."""
    width, height, depth, colour = struct.unpack(">IIBB", content[16:26])
    match random.randrange(3):
        case 0:
            width = random.choice((0, 1, 2**16, 2**31 - 1, 2**32 - 1, width + 1))
        case 1:
            width, height = random.choice(((9000, 9000), (14000, 14000), (2**15, 2**15), (1, 2**31 - 1)))
        case _:
            depth, colour = random.choice((1, 2, 4, 8, 16, 99)), random.choice((0, 2, 3, 4, 6, 7))
    header = b"IHDR" + struct.pack(">IIBB", width, height, depth, colour) + content[26:29]
    return content[:12] + header + struct.pack(">I", zlib.crc32(header)) + content[33:]


def bomb(side: int, mode: int = 0) -> bytes:
    """A valid PNG of zeros, `side` pixels square, in few bytes; mode 0 is grey of 8 bits."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    packer = zlib.compressobj(9)
    row = bytes(1 + side * {0: 1, 2: 3, 6: 4}[mode])
    data = b"".join(packer.compress(row) for _ in range(side)) + packer.flush()
    head = struct.pack(">IIBBBBB", side, side, 8, mode, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
