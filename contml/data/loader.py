"""Images to batches: decode, crop, augment, in worker processes or in this one, with the same result.

The augmentation is that of "Deep Metric Learning Beyond Binary Supervision": every image is brought to `resize` x
`resize`, its aspect not kept; a test takes the centre crop, training a crop of jittered side round a shifted centre,
and flips half of the batches, each as a whole, so that label distances inside a batch stay as they are. Crops are cut
from the resized image, so that a cache of resized images gives the same batches, bit for bit.
"""

from __future__ import annotations

import signal
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import torch
from torch.utils import data

from contml._support.errors import InputError
from contml._support.progress import progress_bar
from contml._support.validation import check_at_least, check_choice
from contml.contracts import Rows, Sampler
from contml.data.batch import Batch, Decoder, Flip, Request, Result
from contml.data.cache import CHUNK, Cache, CacheReport
from contml.data.kept import Kept
from contml.data.split import Split
from contml.data.transforms import CropTransform, Transform


class Images:
    """How images become batches: their size, the augmentation, what happens to broken files, how many workers.

    Augmentation is a function of (seed, epoch, step, row): the same for any number of workers, and after a resume.
    Files are turned as their EXIF orientation says; grey, palette, CMYK and 16-bit images become RGB; transparency is
    laid on white. Raises `InputError` where options do not fit each other.

    Args:
        resize: Every image is first brought to this many pixels square; its aspect is not kept.
        crop: Side in pixels of the square that the model sees, cut from the resized image.
        flip: In training mirror, half of the time, a whole "batch", so that continuous label distances stay as they
            are; each "image", for classes; or "none".
        broken: An image that cannot be decoded is an error ("fail"), or is left out of its batch and counted ("skip").
        workers: Processes that decode; 0 decodes in the training process.
        cache: A folder that keeps every image decoded and resized (resize * resize * 3 bytes each), filled before the
            first epoch, or by 'contml prepare'; batches are the same as without. It serves any number of runs, tasks
            and sizes; delete it when it is of no more use. null: files are decoded in every epoch.
        features: A file that 'contml features' wrote, .npz, .npy or .parquet: its vectors take the place of the images,
            and model.backbone=features trains a head on them. null: images.
    """

    def __init__(
        self,
        resize: int = 256,
        crop: int = 224,
        flip: Flip = "none",
        broken: Literal["fail", "skip"] = "fail",
        workers: int = 0,
        cache: Path | None = None,
        features: Path | None = None,
        *,
        transform: Transform | None = None,
    ) -> None:
        if not 1 <= crop <= resize:
            raise InputError(f"crop is {crop}; it must be 1 to resize, {resize}")
        check_at_least(0, workers=workers)
        check_choice(("batch", "image", "none"), flip=flip)
        check_choice(("fail", "skip"), broken=broken)
        self.resize, self.crop = resize, crop
        self.transform = transform or CropTransform(resize=resize, crop=crop)
        self.flip, self.broken, self.workers, self.cache, self.features = flip, broken, workers, cache, features
        #: Images left out so far: name and cause, each once, however many batches missed it.
        self.left_out: dict[str, str] = {}
        self._loaders: dict[tuple[int, bool], _Loader] = {}
        self._kept: dict[int, tuple[Split, Kept]] = {}  # by the id of a split, which lives as long as this

    def train_batches(
        self, split: Split, sampler: Sampler, *, epoch: int, start: int = 0, part: tuple[int, int] = (0, 1)
    ) -> Iterator[Batch]:
        """Augmented batches `start` to the last of an epoch; `part` is (rank, world): this rank's share of each batch.

        Raises `InputError` for a broken image where these are to fail, and for batches that the ranks cannot share.
        """
        rank, world = part

        def request(step: int) -> Request:
            rows = sampler.batch(epoch, step)
            if len(rows) % world:
                raise InputError(f"a batch of {len(rows)} images cannot be shared evenly by {world} processes")
            share = len(rows) // world
            mine = [int(row) for row in rows[rank * share : (rank + 1) * share]]
            return Request(step, mine, rank * share, (sampler.seed, epoch, step))

        return self._run(split, (request(step) for step in range(start, len(sampler))), training=True)

    def test_batches(self, split: Split, rows: Rows, batch_size: int) -> Iterator[Batch]:
        """Centre crops of these rows of a split, in order; the step is the batch's number. No randomness."""
        if batch_size < 1:
            raise InputError(f"batch_size is {batch_size}; a batch has at least 1 image")
        if rows is None or isinstance(rows, slice):
            rows = range(len(split))[rows or slice(None)]
        wanted = list(rows)
        chunks = (wanted[first : first + batch_size] for first in range(0, len(wanted), batch_size))
        requests = (Request(step, [int(row) for row in chunk], 0, None) for step, chunk in enumerate(chunks))
        return self._run(split, requests, training=False)

    def fill(self, split: Split) -> CacheReport:
        """Decode every image of a split that the cache does not hold as its file is now; without a cache, every image.

        What the workers of a run that was broken off had done is not done again. Broken images are in the report.

        Raises:
            InputError: the folder cannot be written or is damaged, or the images of this split come from no files.
        """
        whole = Images(self.resize, self.resize, broken="skip", workers=self.workers)
        try:
            if self.cache is None:
                with progress_bar(len(split), "decoding images") as progress:
                    for batch in whole.test_batches(split, None, CHUNK):
                        progress(min(len(split), (batch.step + 1) * CHUNK))
                return CacheReport(len(split), len(split), [*whole.left_out.items()])
            kept, report = Cache(self.cache, self.resize).fill(
                split, lambda rows: whole.test_batches(split, rows, CHUNK), whole.left_out
            )
        finally:
            whole.close()
        self._kept[id(split)] = split, kept
        return report

    def prepare(self, split: Split) -> None:
        """Fill the cache, where there is one, before the first batch is asked for.

        Raises:
            InputError: as `fill`, and for a broken image where these are to fail.
        """
        self._prepared(split)

    def close(self) -> None:
        """End the worker processes; a later batch starts new ones."""
        for loader in self._loaders.values():
            loader.close()
        self._loaders.clear()

    def _run(self, split: Split, requests: Iterable[Request], training: bool) -> Iterator[Batch]:
        decoder = Decoder(split, self.resize, self.crop, self.transform, self.flip, self._prepared(split))
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

    def _prepared(self, split: Split) -> Kept | None:
        if self.cache is None or split.feature_dim is not None:
            return None
        if id(split) not in self._kept:
            broken = self.fill(split).broken
            if broken and self.broken == "fail":
                raise _broken(*broken[0])  # now, and not in the middle of an epoch
        return self._kept[id(split)][1]

    def _checked(self, result: Result) -> Batch:
        if result.error:
            raise InputError(result.error)
        if result.broken and self.broken == "fail":
            raise _broken(*result.broken[0])
        self.left_out.update(result.broken)
        return result.batch


def _broken(name: str, cause: str) -> InputError:
    return InputError(f"{name}: cannot be decoded ({cause}); fix the file, or leave out broken images (broken: skip)")


# -- workers -----------------------------------------------------------------------------------------------------------


class _Loader:
    """Worker processes that stay alive from one epoch to the next."""

    def __init__(self, decoder: Decoder, workers: int) -> None:
        self._decoder = decoder  # also keeps the split alive, whose id is the key of this loader
        self._requests = _Pending()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="This DataLoader will create")  # the user chose the number
            self._loader: data.DataLoader[Result] = data.DataLoader(
                decoder,
                batch_size=None,
                sampler=self._requests,
                num_workers=workers,
                collate_fn=_as_is,
                worker_init_fn=_quiet,
                persistent_workers=True,
                generator=torch.Generator(),  # else every epoch would draw a number from the global one
            )

    def read(self, requests: Iterable[Request]) -> Iterator[Result]:
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


class _Pending(data.Sampler[Request]):
    """A sampler whose content is set anew for each epoch."""

    pending: Iterable[Request] = ()

    def __iter__(self) -> Iterator[Request]:
        return iter(self.pending)


def _as_is(result: Any) -> Any:
    return result


def _quiet(_: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the main process, which then ends the workers
