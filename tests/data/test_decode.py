"""One decoder: the same pixels become the same image, whichever way they come."""

import contextlib
import io
import os
import re
import socket
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageCms
from support.images import noise, split_of
from support.refusals import refused

from contml.app.report.examples import drawn
from contml.data import BoxCrop, ImageFile, Images, Pixels, Square, SquareCrop
from contml.data.decode import IMAGE_SUFFIXES, contained, decode, from_file, resized
from contml.search.gallery import _drawing

SIDE = 16
#: Grey values of an image, and its red, green and blue.
RAMP = np.tile(np.linspace(0, 255, SIDE).round().astype(np.uint8), (SIDE, 1))
COLOURS = np.stack([RAMP, RAMP.T, 255 - RAMP], -1)
ALPHA = np.where(np.arange(SIDE)[:, None] < SIDE // 2, 255, 0).astype(np.uint8) * np.ones((1, SIDE), np.uint8)


def on_white(rgb):
    return np.where(ALPHA[..., None] == 255, rgb, 255)


def grey(values):
    return np.repeat(np.asarray(values)[..., None], 3, -1)


def saved(picture, suffix, **options):
    content = io.BytesIO()
    picture.save(content, Image.registered_extensions()[suffix], **options)
    return content.getvalue()


def chunk(kind, content, damage=0):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content) ^ damage)


def png(values, colour, *chunks, bits=16):
    """A PNG of 16 bits, which Pillow does not write in colour."""
    height, width = values.shape[:2]
    kind = ">u2" if bits == 16 else np.uint8
    lines = b"".join(b"\0" + row.astype(kind).tobytes() for row in values)
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(chunks) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def tiff(data, bits, sample_format=1, photometric=1, order="<"):
    """A grey TIFF of a kind that Pillow reads and does not write."""
    shorts = {256: SIDE, 257: SIDE, 258: bits, 259: 1, 262: photometric, 277: 1, 278: SIDE, 339: sample_format}
    longs = {273: 8, 279: len(data)}
    entries = sorted([(tag, 3, value) for tag, value in shorts.items()] + [(t, 4, value) for t, value in longs.items()])
    fields = b"".join(
        struct.pack(f"{order}HHI{'HH' if kind == 3 else 'I'}", tag, kind, 1, value, *([0] if kind == 3 else []))
        for tag, kind, value in entries
    )
    start = struct.pack(f"{order}2sHI", b"II" if order == "<" else b"MM", 42, 8 + len(data))
    return start + data + struct.pack(f"{order}H", len(entries)) + fields + bytes(4)


def packed(value):
    """Every pixel of this value, of 12 bits."""
    return (value << 12 | value).to_bytes(3, "big") * (SIDE * SIDE // 2)


def pgm(values, largest):
    return b"P5\n%d %d\n%d\n" % (SIDE, SIDE, largest) + values.astype(">u2").tobytes()


WIDE = RAMP.astype(np.uint16) * 257
RGB, PALETTE = Image.fromarray(COLOURS), Image.fromarray(COLOURS).quantize(64)
GREY = Image.fromarray(RAMP)


def with_alpha(picture):
    picture = picture.copy()
    picture.putalpha(Image.fromarray(ALPHA))
    return picture


def palette_with_holes():
    """A palette image whose lower half has the transparent colour 200."""
    values = np.asarray(PALETTE).copy()
    values[ALPHA == 0] = 200
    picture = Image.fromarray(values, "P")
    picture.putpalette((PALETTE.getpalette() + [7] * 768)[:768])
    return picture


ORIENTED = {o: Image.Exif() for o in range(1, 9)}
for number, exif in ORIENTED.items():
    exif[0x0112] = number
TURNED = {
    1: COLOURS, 2: COLOURS[:, ::-1], 3: COLOURS[::-1, ::-1], 4: COLOURS[::-1], 5: COLOURS.transpose(1, 0, 2),
    6: COLOURS.transpose(1, 0, 2)[:, ::-1], 7: COLOURS[::-1, ::-1].transpose(1, 0, 2),
    8: COLOURS.transpose(1, 0, 2)[::-1],
}  # fmt: skip
PALETTE_RGB = np.asarray(PALETTE.convert("RGB"))
MOVING = [Image.fromarray(COLOURS).quantize(64), Image.new("P", (SIDE, SIDE))]
THIRD, RGBA = np.full((SIDE, SIDE), 341), np.concatenate([COLOURS, ALPHA[..., None]], -1)
ONE_TRANSPARENT = png(np.where(ALPHA == 255, WIDE, 4321), 0, chunk(b"tRNS", struct.pack(">H", 4321)))
#: Content of a file, its ending, the expected pixels and the largest difference that a lossy format makes.
FILES = {
    "1": (saved(GREY.point(lambda v: 255 * (v > 127), "1"), ".png"), ".png", grey(np.where(RAMP > 127, 255, 0)), 0),
    "L": (saved(GREY, ".png"), ".png", grey(RAMP), 0),
    "LA": (saved(with_alpha(GREY), ".png"), ".png", on_white(grey(RAMP)), 0),
    "P": (saved(PALETTE, ".png"), ".png", PALETTE_RGB, 0),
    "P, transparent": (saved(palette_with_holes(), ".png", transparency=200), ".png", on_white(PALETTE_RGB), 0),
    "P, gif": (saved(palette_with_holes(), ".gif", transparency=200), ".gif", on_white(PALETTE_RGB), 0),
    "RGB": (saved(RGB, ".png"), ".png", COLOURS, 0),
    "RGBA": (saved(with_alpha(RGB), ".png"), ".png", on_white(COLOURS), 0),
    "RGB, jpeg": (saved(RGB, ".jpg", quality=100, subsampling=0), ".jfif", COLOURS, 6),
    "CMYK, tiff": (saved(RGB.convert("CMYK"), ".tif"), ".tiff", COLOURS, 0),
    "CMYK, Adobe": (saved(RGB.convert("CMYK"), ".jpg", quality=100, subsampling=0), ".jpg", COLOURS, 8),
    "YCbCr": (saved(RGB.convert("YCbCr"), ".tif"), ".tif", COLOURS, 3),
    "LAB": (saved(Image.new("LAB", (SIDE, SIDE), (255, 128, 128)), ".tif"), ".tif", np.full((SIDE, SIDE, 3), 255), 1),
    "I;16": (saved(Image.fromarray(WIDE), ".png"), ".png", grey(RAMP), 0),
    "I;16B, tiff": (tiff(WIDE.astype(">u2").tobytes(), 16, order=">"), ".tif", grey(RAMP), 0),
    "12 bits": (tiff(packed(1365), 12), ".tif", np.full((SIDE, SIDE, 3), 85), 0),
    "10 bits": (pgm(THIRD, 1023), ".pgm", np.full((SIDE, SIDE, 3), 85), 0),
    "16 bits, RGB": (png(COLOURS.astype(int) * 257, 2), ".png", COLOURS, 0),
    "16 bits, grey and alpha": (png(np.stack([WIDE, ALPHA.astype(int) * 257], -1), 4), ".png", on_white(grey(RAMP)), 0),
    "16 bits, RGBA": (png(RGBA.astype(int) * 257, 6), ".png", on_white(COLOURS), 0),
    "16 bits, one transparent": (ONE_TRANSPARENT, ".png", on_white(grey(RAMP)), 0),
    "16 bits, white is 0": (tiff(WIDE.astype("<u2").tobytes(), 16, photometric=0), ".tif", grey(255 - RAMP), 0),
    "F": (saved(Image.fromarray(RAMP.astype(np.float32) / 255), ".tif"), ".tif", grey(RAMP), 0),
    "animated": (saved(MOVING[0], ".gif", save_all=True, append_images=MOVING[1:]), ".gif", PALETTE_RGB, 0),
    "webp": (saved(RGB, ".webp", lossless=True), ".webp", COLOURS, 0),
    "jpeg 2000": (saved(RGB, ".jp2"), ".jp2", COLOURS, 0),
    **{f"EXIF {o}": (saved(RGB, ".png", exif=exif), ".png", TURNED[o], 0) for o, exif in ORIENTED.items()},
    "EXIF 6, tiff": (saved(RGB, ".tif", exif=ORIENTED[6]), ".tif", TURNED[6], 0),
    "bmp, as jpeg": (saved(RGB, ".bmp"), ".jpg", COLOURS, 0),
    "bmp, as tiff": (saved(RGB, ".bmp"), ".tif", COLOURS, 0),
}


def ways(file, content):
    """Each way in which the pixels of a file come to be an image, as a function that returns [H, W, 3]."""
    split = split_of([file])

    def batch(source):
        images = Images(resize=SIDE, crop=SIDE)
        return next(images.test_batches(split_of([source]), None, 1)).images[0].permute(1, 2, 0).numpy()

    def cached():
        images = Images(resize=SIDE, crop=SIDE, cache=file.parent / "cache")
        return next(images.test_batches(split, None, 1)).images[0].permute(1, 2, 0).numpy()

    def pictures():
        with Image.open(file) as opened:
            return batch(Pixels(opened))

    def picture(load):
        with Image.open(file) as opened:
            if load:
                opened.load()
            return np.asarray(decode(opened, "picture"))

    def shown():
        return drawn(split, 0, 2 * SIDE, {}, label=False)

    return {
        "file": lambda: np.asarray(decode(file, "file")),
        "content": lambda: np.asarray(decode(io.BytesIO(content), "content")),
        "opened picture": lambda: picture(load=False), "loaded picture": lambda: picture(load=True),
        "resized": lambda: resized(file, "file", SIDE), "batch": lambda: batch(ImageFile(file)),
        "batch of pictures": pictures, "box": lambda: batch(BoxCrop(file, (0, 0, SIDE, SIDE))), "cache": cached,
        "report": lambda: np.asarray(split.picture(0)), "drawn": lambda: np.asarray(split.draw(0, SIDE)),
        "explore": lambda: np.asarray(shown().resize((SIDE, SIDE), Image.Resampling.BOX)),
        "gallery": lambda: np.asarray(
            _drawing(ImageFile(file)).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BOX)
        ),
    }  # fmt: skip


def is_broken(file, cause):
    """No way to read a file finds an image in it."""
    crops = [SquareCrop(file, Square(0, 0, 4), 4).read, BoxCrop(file, (0, 0, 4, 4)).read]
    whole = [lambda: decode(file, ""), lambda: decode(file, "", 32), lambda: resized(file, "", 16)]  # 32: a fraction
    whole += [lambda: from_file(file, lambda picture: decode(picture, "")), lambda: split_of([file]).picture(0)]
    for read in (*whole, *crops):
        with pytest.raises(OSError, match=cause):
            read()


@pytest.mark.parametrize("kind", FILES)
def test_the_same_pixels_whichever_way_they_come(tmp_path, kind):
    content, suffix, expected, tolerance = FILES[kind]
    file = tmp_path / f"image{suffix}"
    file.write_bytes(content)
    first = np.asarray(decode(file, "file"))
    assert np.abs(first.astype(int) - expected).max() <= tolerance
    for way, read in ways(file, content).items():
        if way in ("explore", "gallery"):
            # Enlarged: compared in the middle, where edges do not reach.
            assert np.median(np.abs(read().astype(int) - first)[2:-2, 2:-2]) <= 4, way
        else:
            np.testing.assert_array_equal(read(), first, err_msg=way)


@pytest.mark.parametrize("kind", [kind for kind in FILES if "EXIF" not in kind])
def test_the_crop_of_a_person_has_the_pixels_of_its_image(tmp_path, kind):
    content, suffix, *_ = FILES[kind]
    file = tmp_path / f"image{suffix}"
    file.write_bytes(content)
    whole = np.asarray(decode(file, "file"))
    np.testing.assert_array_equal(SquareCrop(file, Square(0, 0, SIDE), SIDE).read(), whole)
    np.testing.assert_array_equal(SquareCrop(file, Square(4, 2, 8), 8).read(), whole[2:10, 4:12])
    np.testing.assert_array_equal(np.asarray(BoxCrop(file, (4, 2, 12, 10)).read()), whole[2:10, 4:12])


@pytest.mark.parametrize("o", range(1, 9))
def test_the_crop_of_a_turned_image_is_cut_before_it_is_turned(tmp_path, o):
    RGB.save(tmp_path / "image.png", exif=ORIENTED[o])
    with Image.open(tmp_path / "image.png") as picture:
        part = picture.crop((4, 2, 12, 10))
    np.testing.assert_array_equal(
        np.asarray(BoxCrop(tmp_path / "image.png", (4, 2, 12, 10)).read()), np.asarray(decode(part, ""))
    )


ARRAYS = {
    "grey": (RAMP, grey(RAMP)), "grey, one channel": (RAMP[..., None], grey(RAMP)), "RGB": (COLOURS, COLOURS),
    "grey and alpha": (np.stack([RAMP, ALPHA], -1), on_white(grey(RAMP))),
    "RGBA": (RGBA, on_white(COLOURS)),
    "bool": (RAMP > 127, grey(np.where(RAMP > 127, 255, 0))), "uint16": (WIDE, grey(RAMP)),
    "uint16, RGB": (COLOURS.astype(np.uint16) * 257, COLOURS), "float32": (COLOURS.astype(np.float32) / 255, COLOURS),
    "float16": (np.full((SIDE, SIDE), 0.5, np.float16), np.full((SIDE, SIDE, 3), 128)),
    "not contiguous": (COLOURS[::-1, ::-1], COLOURS[::-1, ::-1]),
}  # fmt: skip


@pytest.mark.parametrize("kind", ARRAYS)
def test_arrays(kind):
    values, expected = ARRAYS[kind]
    np.testing.assert_array_equal(np.asarray(decode(values, "array")), expected)


@pytest.mark.parametrize("mode", ["La", "RGBa", "PA", "RGBX", "HSV", "I;16L", "I;16B"])
def test_modes_that_only_pictures_in_memory_have(mode):
    if mode.startswith("I"):
        source = Image.fromarray(WIDE)
        picture = Image.frombytes(mode, source.size, WIDE.astype(">u2" if mode[-1] == "B" else "<u2").tobytes())
    else:
        sources = {"La": with_alpha(GREY), "RGBa": with_alpha(RGB), "PA": with_alpha(PALETTE.convert("RGB"))}
        source = sources.get(mode, RGB)
        picture = with_alpha(PALETTE) if mode == "PA" else source.convert(mode)
    assert picture.mode == mode
    expected = np.asarray(decode(source, "source")).astype(int)
    assert np.abs(np.asarray(decode(picture, "picture")).astype(int) - expected).max() <= (6 if mode == "HSV" else 0)


@pytest.mark.parametrize(("values", "cause"), [
    (np.full((4, 4), 100_000, np.int32), "32-bit or signed"),
    (np.full((4, 4), 2.5, np.float32), "floats from 2.5 to 2.5"),
    (np.full((4, 4), -0.5, np.float32), "floats from -0.5 to -0.5"), (np.full((4, 4), np.nan, np.float32), "nan"),
    (np.full((4, 4), np.inf, np.float32), "inf"),
])  # fmt: skip
def test_numbers_without_a_range_are_broken_whichever_way_they_come(tmp_path, values, cause):
    file = tmp_path / "image.tif"
    Image.fromarray(values).save(file)
    is_broken(file, cause)
    items = [io.BytesIO(file.read_bytes()), Image.fromarray(values)]
    for item in items if values.dtype == np.int32 else [*items, values]:
        with pytest.raises(OSError, match=cause):
            decode(item, "image")
    images = Images(broken="skip")
    list(images.test_batches(split_of([file]), None, 1))
    assert cause in images.left_out["images/image.tif"]


def test_signed_integers_of_16_bits_have_no_range():
    with pytest.raises(OSError, match="signed"):
        decode(io.BytesIO(tiff(WIDE.astype("<i2").tobytes(), 16, sample_format=2)), "image")


@pytest.mark.parametrize(("shape", "dtype"), [((4, 4), int), ((0, 4, 3), "u1"), ((4, 4, 5), "u1"), ((4, 4), "U2")])
def test_arrays_that_are_no_images(shape, dtype):
    values = np.zeros(shape, dtype)
    refused(lambda: decode(values, "name"), "name", got=f"{values.dtype} {list(values.shape)}", allowed="uint8")


# -- files -------------------------------------------------------------------------------------------------------------

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"


@pytest.mark.parametrize("name", ["photo.jpg", "photo.eps", "photo"])
def test_no_other_program_is_started(tmp_path, name, monkeypatch):
    from PIL import EpsImagePlugin

    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *_, **__: pytest.fail("Ghostscript is started"))
    file = tmp_path / name
    file.write_bytes(EPS)
    is_broken(file, "must be JPEG, PNG")
    with pytest.raises(OSError, match="must be JPEG, PNG"):
        decode(io.BytesIO(EPS), name)


def test_one_place_opens_image_files():
    root = Path(__file__).parents[2]
    files = [file for folder in ("contml", "tasks") for file in (root / folder).rglob("*.py")]
    opens = re.compile(r"Image\.open\(|ImageOps\.exif_transpose")
    places = {file.relative_to(root).as_posix() for file in files if opens.search(file.read_text(encoding="utf-8"))}
    assert places == {"contml/data/decode.py"}


@pytest.mark.parametrize("kind", ["pipe", "socket", "folder", "device"])
def test_only_regular_files_are_opened(tmp_path, kind):
    file = tmp_path / "image.jpg"
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "socket":
        with contextlib.chdir(tmp_path), socket.socket(socket.AF_UNIX) as server:
            server.bind("image.jpg")  # a path of at most 107 characters
    elif kind == "folder":
        file.mkdir()
    else:
        file = Path("/dev/zero")
    link = tmp_path / "link.jpg"
    link.symlink_to(file)
    for place in (file, link):
        is_broken(place, "a folder" if kind == "folder" else "not a regular file")


@pytest.mark.parametrize("suffix", [".avif", ".heic"])
def test_formats_of_phones(tmp_path, suffix):
    if suffix not in IMAGE_SUFFIXES:
        pytest.skip(f"nothing installed reads {suffix}")
    decode_once = tmp_path / "once.png"
    RGB.save(decode_once)
    decode(decode_once, "once")  # registers HEIF
    smooth = RGB.resize((64, 64), Image.Resampling.BICUBIC)
    file = tmp_path / f"image{suffix}"
    file.write_bytes(saved(smooth, suffix, quality=95))
    assert np.abs(np.asarray(decode(file, "image")).astype(int) - np.asarray(smooth)).mean() < 4


def test_a_thumbnail_in_the_file_is_not_the_image(tmp_path):
    pillow_heif = pytest.importorskip("pillow_heif")
    pillow_heif.register_heif_opener()
    large = Image.fromarray(noise(1, 600, 600)[0])
    file = tmp_path / "image.heic"
    pillow_heif.from_pillow(large).save(file, thumbnails=[200, 100])
    np.testing.assert_array_equal(
        resized(file, "image", 32), np.asarray(decode(file, "image").resize((32, 32), Image.Resampling.BILINEAR))
    )


# -- damaged files -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [b"Exif\0\0", b"ICC_PROFILE\0"])
def test_damaged_metadata_are_not_damaged_pixels(start):
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    content = bytearray(saved(RGB, ".jpg", exif=ORIENTED[6], icc_profile=profile, quality=100, subsampling=0))
    upright = np.asarray(decode(io.BytesIO(bytes(content)), ""))
    place = content.index(start) + len(start)
    content[place : place + 8] = bytes(8)
    got = np.asarray(decode(io.BytesIO(bytes(content)), ""))
    assert any(np.array_equal(got, np.rot90(upright, turns)) for turns in range(4))


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp"])
def test_damaged_pixels_are_broken(suffix):
    """Nothing is decoded from a file that lacks pixels."""
    content = saved(Image.fromarray(noise(1, 60, 80)[0]), suffix)
    for length in (20, len(content) // 2, len(content) - 40):
        with pytest.raises(OSError, match=r"[Tt]runcated|damaged|not an image|decoder"):
            decode(io.BytesIO(content[:length]), "")


@pytest.mark.parametrize(("lost", "progressive"), [(1, False), (2, True), (500, False)])
def test_a_jpeg_without_its_last_bytes_is_broken_everywhere(tmp_path, lost, progressive):
    content = saved(Image.fromarray(noise(1, 60, 80)[0]).resize((800, 600)), ".jpg", progressive=progressive)
    file = tmp_path / "image.jpg"
    file.write_bytes(content[:-lost])
    is_broken(file, "truncated")
    with pytest.raises(OSError, match="truncated"):
        decode(io.BytesIO(file.read_bytes()), "")


@pytest.mark.parametrize("size", [(3000, 1), (1, 3000), (200, 100), (3, 3)])
def test_a_narrow_picture_keeps_a_pixel_when_it_is_fitted(size):
    fitted = contained(Image.new("RGB", size, "red"), (96, 96), Image.Resampling.LANCZOS)
    assert max(fitted.size) == 96
    assert min(fitted.size) == max(1, round(96 * min(size) / max(size)))
    assert fitted.getpixel((0, 0)) == (255, 0, 0)
