"""Images to batches: decode, crop, augment, in worker processes or in this one, with the same result.

The augmentation is that of "Deep Metric Learning Beyond Binary Supervision": every image is brought to `resize` x
`resize`, its aspect not kept; a test takes the centre crop, training a crop of jittered side round a shifted centre,
and flips half of the batches, each as a whole, so that label distances inside a batch stay as they are. Crop and resize
are one resampling of the decoded file.
"""

from __future__ import annotations

import signal
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor
from torch.utils import data

from contml.contracts import ImageItem, InputError, Rows, Sampler, Split

Pixels: TypeAlias = "np.ndarray[Any, np.dtype[np.uint8]]"

# First numbers of the seeds, so that the two kinds of draws never share a stream.
_FLIP, _CROP = 1, 2
_ORIENTATION = 0x0112  # the EXIF tag


class Batch(NamedTuple):
    """Images uint8 `[b, 3, crop, crop]`, their rows `[b]` and positions `[b]` in the sampler's whole batch (int64).

    `skipped` images of the batch were broken and left out; the others keep their order. The sampler's anchors are the
    positions below `sampler.anchors`.
    """

    images: Tensor
    rows: Tensor
    step: int
    skipped: int
    positions: Tensor


class Images:
    """How images become batches: their size, the augmentation, what happens to broken files, how many workers.

    Augmentation is a function of (seed, epoch, step, row): the same for any number of workers, and after a resume.
    Files are turned as their EXIF orientation says; grey, palette, CMYK and 16-bit images become RGB; transparency is
    laid on white. Raises `InputError` where options do not fit each other.

    Args:
        resize: Every image is first brought to this many pixels square; its aspect is not kept.
        crop: Side in pixels of the square that the model sees, cut from the resized image.
        scale_jitter: In training the side of the crop is drawn from crop - scale_jitter to crop + scale_jitter, in
            whole pixels of the resized image, and brought back to crop.
        shift: In training the centre of the crop is moved by -shift to shift whole pixels, in x and in y. Where a crop
            leaves the image, its edge is repeated.
        flip: In training mirror a whole batch, half of the time.
        broken: An image that cannot be decoded is an error ("fail"), or is left out of its batch and counted ("skip").
        workers: Processes that decode; 0 decodes in the training process.
    """

    def __init__(
        self,
        resize: int = 256,
        crop: int = 224,
        scale_jitter: int = 0,
        shift: int = 0,
        flip: bool = False,
        broken: Literal["fail", "skip"] = "fail",
        workers: int = 0,
    ) -> None:
        if not 1 <= crop <= resize:
            raise InputError(f"images.crop={crop}: allowed are 1 to images.resize={resize}")
        if not 0 <= scale_jitter < crop:
            raise InputError(f"images.scale_jitter={scale_jitter}: allowed are 0 to images.crop - 1 = {crop - 1}")
        if shift < 0 or workers < 0:
            name, value = ("shift", shift) if shift < 0 else ("workers", workers)
            raise InputError(f"images.{name}={value}: allowed are 0 and more")
        if broken not in ("fail", "skip"):
            raise InputError(f"images.broken={broken}: allowed are fail and skip")
        self.resize, self.crop, self.scale_jitter, self.shift = resize, crop, scale_jitter, shift
        self.flip, self.broken, self.workers = flip, broken, workers
        #: Images left out so far: name and cause, each once, however many batches missed it.
        self.left_out: dict[str, str] = {}
        self._loaders: dict[tuple[int, bool], _Loader] = {}

    def train_batches(
        self, split: Split, sampler: Sampler, *, epoch: int, start: int = 0, part: tuple[int, int] = (0, 1)
    ) -> Iterator[Batch]:
        """Augmented batches `start` to the last of an epoch; `part` is (rank, world): this rank's share of each batch.

        Raises `InputError` for a broken image where these are to fail, and for batches that the ranks cannot share.
        """
        rank, world = part

        def request(step: int) -> _Request:
            rows = sampler.batch(epoch, step)
            if len(rows) % world:
                raise InputError(f"a batch of {len(rows)} images cannot be shared evenly by {world} processes")
            share = len(rows) // world
            mine = [int(row) for row in rows[rank * share : (rank + 1) * share]]
            return _Request(step, mine, rank * share, (sampler.seed, epoch, step))

        return self._run(split, (request(step) for step in range(start, len(sampler))), training=True)

    def test_batches(self, split: Split, rows: Rows, batch_size: int) -> Iterator[Batch]:
        """Centre crops of these rows of a split, in order; the step is the batch's number. No randomness."""
        if batch_size < 1:
            raise InputError(f"batch_size={batch_size}: a batch has at least 1 image")
        if rows is None or isinstance(rows, slice):
            rows = range(len(split))[rows or slice(None)]
        wanted = list(rows)
        chunks = (wanted[first : first + batch_size] for first in range(0, len(wanted), batch_size))
        requests = (_Request(step, [int(row) for row in chunk], 0, None) for step, chunk in enumerate(chunks))
        return self._run(split, requests, training=False)

    def close(self) -> None:
        """End the worker processes; a later batch starts new ones."""
        for loader in self._loaders.values():
            loader.close()
        self._loaders.clear()

    def _run(self, split: Split, requests: Iterable[_Request], training: bool) -> Iterator[Batch]:
        decoder = _Decoder(split, self.resize, self.crop, self.scale_jitter, self.shift, self.flip)
        if not self.workers:
            for request in requests:
                yield self._checked(decoder[request])
            return
        # Training and test keep workers of their own: a test in the middle of an epoch must not disturb it. A loader is
        # out of the table while its batches are read; broken off in between, it ends, and its workers with it.
        key = (id(split), training)
        loader = self._loaders.pop(key, None) or _Loader(decoder, self.workers)
        finished = False
        try:
            for result in loader.read(requests):
                yield self._checked(result)
            finished = True
        finally:
            if finished and key not in self._loaders:
                self._loaders[key] = loader
            else:
                loader.close()

    def _checked(self, result: _Result) -> Batch:
        if result.error:
            raise InputError(result.error)
        if result.broken and self.broken == "fail":
            name, cause = result.broken[0]
            raise InputError(
                f"{name}: cannot be decoded ({cause}); fix the file, or set images.broken=skip to leave such images out"
            )
        self.left_out.update(result.broken)
        return result.batch


# -- one batch ---------------------------------------------------------------------------------------------------------


class _Request(NamedTuple):
    step: int
    rows: list[int]
    offset: int  # position of the first row in the whole batch
    seed: tuple[int, int, int] | None  # seed, epoch, step; None: no augmentation


class _Result(NamedTuple):
    batch: Batch
    broken: list[tuple[str, str]]  # name, cause
    error: str = ""  # an InputError to raise


@dataclass(frozen=True)
class _Decoder(data.Dataset[_Result]):
    """Requests to batches. It runs in the workers, so it returns what is wrong: torch would wrap it in a traceback."""

    split: Split
    resize: int
    crop: int
    scale_jitter: int
    shift: int
    flip: bool

    def __getitem__(self, request: _Request) -> _Result:
        try:
            return self._result(request)
        except InputError as error:
            none = torch.empty(0, dtype=torch.int64)
            return _Result(Batch(torch.empty(0, dtype=torch.uint8), none, request.step, 0, none), [], str(error))

    def _result(self, request: _Request) -> _Result:
        images: Pixels = np.empty((len(request.rows), self.crop, self.crop, 3), np.uint8)
        kept: list[int] = []
        broken: list[tuple[str, str]] = []
        for position, row in enumerate(request.rows):
            try:
                picture = _decode(self.split.image(row), self.split.name(row), 2 * self.resize)
            except (_BrokenError, OSError) as error:  # OSError: of a split that reads files itself
                broken.append((self.split.name(row), _cause(error)))
                continue
            images[len(kept)] = cut(picture, self.resize, self._box(request.seed, row), self.crop)
            kept.append(position)
        pixels = images[: len(kept)]
        if self.flip and request.seed and np.random.default_rng([_FLIP, *request.seed]).random() < 0.5:
            pixels = pixels[:, :, ::-1]
        positions = torch.tensor(kept, dtype=torch.int64)
        batch = Batch(
            torch.from_numpy(np.array(pixels.transpose(0, 3, 1, 2), order="C")),
            torch.tensor(request.rows, dtype=torch.int64)[positions],
            request.step,
            len(broken),
            positions + request.offset,
        )
        return _Result(batch, broken)

    def _box(self, seed: tuple[int, int, int] | None, row: int) -> tuple[int, int, int]:
        """Left, top, side of a crop, in whole pixels of the resized image: equal sizes are copied, not resampled."""
        side, right, down = self.crop, 0, 0
        if seed and (self.scale_jitter or self.shift):
            random = np.random.default_rng([_CROP, *seed, row])
            side += int(random.integers(-self.scale_jitter, self.scale_jitter, endpoint=True))
            right, down = (int(d) for d in random.integers(-self.shift, self.shift, size=2, endpoint=True))
        corner = (self.resize - side) // 2
        return corner + right, corner + down, side


def cut(picture: Image.Image, resize: int, box: tuple[int, int, int], crop: int) -> Pixels:
    """A crop of an RGB image as uint8 `[crop, crop, 3]`, as if the image had first been resized to `resize` x `resize`.

    The box is (left, top, side) in pixels of the resized image; where it leaves the image, the edge is repeated.
    """
    left, top, side = box
    x_scale, y_scale = picture.width / resize, picture.height / resize
    x0, y0, x1, y1 = left * x_scale, top * y_scale, (left + side) * x_scale, (top + side) * y_scale
    over = [int(np.ceil(max(0.0, d))) for d in (-x0, -y0, x1 - picture.width, y1 - picture.height)]
    if any(over):
        wide = np.pad(np.asarray(picture), ((over[1], over[3]), (over[0], over[2]), (0, 0)), mode="edge")
        picture = Image.fromarray(wide)
        x0, y0, x1, y1 = x0 + over[0], y0 + over[1], x1 + over[0], y1 + over[1]
    return np.asarray(picture.resize((crop, crop), Image.Resampling.BILINEAR, (x0, y0, x1, y1)))


# -- decoding ----------------------------------------------------------------------------------------------------------


class _BrokenError(Exception):
    """An image that cannot be decoded, and why."""


def _decode(item: ImageItem, name: str, enough: int) -> Image.Image:
    """An item as an RGB image, upright. `enough`: a JPEG may be decoded at a fraction of its size, down to this."""
    if isinstance(item, np.ndarray):
        if item.dtype != np.uint8 or item.ndim != 3 or item.shape[2] != 3 or not item.size:
            raise InputError(
                f"{name}: an image as an array is uint8 [H, W, 3]; this is {item.dtype} {list(item.shape)}"
            )
        return Image.fromarray(np.ascontiguousarray(item))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's remarks on odd metadata
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            if isinstance(item, Image.Image):
                return _to_rgb(item)
            if item.is_file() and item.stat().st_size == 0:
                raise _BrokenError("empty file")
            with Image.open(item) as picture:
                # A JPEG decodes to a half, a quarter, an eighth of its size for less. At least twice the size that is
                # needed is kept, so that resampling still has something to average.
                picture.draft(None, (enough, enough))
                return _to_rgb(picture)
    except (MemoryError, _BrokenError):
        raise
    except Exception as error:  # on bytes that are not what they seem, Pillow's decoders raise nearly anything
        raise _BrokenError(_cause(error)) from error


def _to_rgb(picture: Image.Image) -> Image.Image:
    if picture.getexif().get(_ORIENTATION, 1) != 1:
        picture = ImageOps.exif_transpose(picture)
    if picture.mode == "RGB" and "transparency" not in picture.info:
        picture.load()
        return picture
    if picture.mode.startswith("I"):  # 16 bits; Pillow would clip at 255
        values = np.clip(np.asarray(picture).astype(np.int64), 0, 65535)
        return Image.fromarray((values >> 8).astype(np.uint8)).convert("RGB")
    if picture.mode == "F":  # floats: 0..1, or 0..255 where any is above 1
        floats = np.nan_to_num(np.asarray(picture))
        floats = floats * 255 if floats.max() <= 1 else floats
        return Image.fromarray(floats.round().clip(0, 255).astype(np.uint8)).convert("RGB")
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("RGB")
    return picture.convert("RGB")


def _cause(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "not an image, or of a format that Pillow does not know"
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split())[:200] or type(error).__name__


# -- workers -----------------------------------------------------------------------------------------------------------


class _Loader:
    """Worker processes that stay alive from one epoch to the next."""

    def __init__(self, decoder: _Decoder, workers: int) -> None:
        self._decoder = decoder  # also keeps the split alive, whose id is the key of this loader
        self._requests = _Pending()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="This DataLoader will create")  # the user chose the number
            self._loader: data.DataLoader[_Result] = data.DataLoader(
                decoder,
                batch_size=None,
                sampler=self._requests,
                num_workers=workers,
                collate_fn=_as_is,
                worker_init_fn=_quiet,
                persistent_workers=True,
                generator=torch.Generator(),  # else every epoch would draw a number from the global one
            )

    def read(self, requests: Iterable[_Request]) -> Iterator[_Result]:
        self._requests.pending = requests
        with warnings.catch_warnings():
            # Python 3.12 warns of every fork beside threads; the workers use none of these threads.
            warnings.filterwarnings("ignore", message="This process .* is multi-threaded", category=DeprecationWarning)
            results = iter(self._loader)
        yield from results

    def close(self) -> None:
        # Left to the garbage collector, this could also run in a worker forked later, which hangs for seconds.
        if self._loader._iterator is not None:
            self._loader._iterator._shutdown_workers()  # type: ignore[attr-defined]
            self._loader._iterator = None


class _Pending(data.Sampler[_Request]):
    """A sampler whose content is set anew for each epoch."""

    pending: Iterable[_Request] = ()

    def __iter__(self) -> Iterator[_Request]:
        return iter(self.pending)


def _as_is(result: Any) -> Any:
    return result


def _quiet(_: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the main process, which then ends the workers
