"""Batches of images: decoded, cropped and augmented in worker processes or in this one, with the same result.

The augmentation follows "Deep Metric Learning Beyond Binary Supervision". Every image is resized to `resize` x `resize`
pixels. Evaluation takes the centre crop. Training takes a crop of random size around a shifted centre. It flips half of
the batches as a whole, so that label distances inside a batch stay valid. Crops are cut from the resized image, so that
a cache of resized images gives the same batches, bit for bit.

If the backbone is frozen and images are the same in every epoch, a batch has features instead (`Extractor`).
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import warnings
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.utils import data

from contml._support.errors import InputError, lost_worker
from contml._support.files import user_cache
from contml._support.progress import note, progress_bar
from contml._support.signals import ignore_in_worker
from contml._support.validation import NonNegativeInt, PositiveInt, as_rows, check_ranges, check_whole
from contml.contracts import Rows, Sampler
from contml.data.batch import BatchDecoder, BatchResult, CropTransform, Decoded, Flip, Request, SplitFeatures, Transform
from contml.data.cache import CHUNK, CachedImages, CacheKind, CacheReport, ImageCache
from contml.data.split import Batch, Split

#: The most images and the most bytes of a part of a batch. The bytes stay in the processor's cache.
_PART_ROWS, _PART_BYTES = 64, 1 << 22
#: Parts that are sent to a worker at a time.
_PARTS_PER_WORKER = 2


class Extractor(Protocol):
    """A frozen backbone. It maps images uint8 `[b, 3, crop, crop]` to features float32 `[b, F]` on the CPU."""

    @property
    def key(self) -> str:
        """A hash of all that features depend on except the image. It is read when the first features are needed."""

    @property
    def dim(self) -> int:
        """The length F of features."""

    def __call__(self, images: Tensor) -> Tensor:
        """Return the features of images."""


class Images:
    """The source of batches of images: their size, augmentation, broken files, cache and number of workers.

    Augmentation is a function of (seed, epoch, step, row): the same for any number of workers, and after a resume.
    Images are turned by their EXIF orientation. Grey, palette, CMYK and 16-bit images become RGB. Transparent pixels
    become white. Pixels of a split may be uint8, uint16, bool, or floats from 0 to 1. Batches are uint8,
    `[B, 3, crop, crop]`. Options that contradict each other raise `InputError`.

    Args:
        resize: Every image is first resized to this many pixels square. Its aspect ratio is not kept.
        crop: Side in pixels of the square that the model sees, cut from the resized image.
        flip: What training flips with probability 1/2. "batch" flips the whole batch, so that label distances of poses
            and label maps stay valid. "image" flips each image, for other labels. "none" flips nothing.
        broken: An image that cannot be decoded is an error ("fail"), or is left out of its batch and counted ("skip").
        workers: Number of worker processes. 0 decodes in the training process.
        cache: A folder for decoded and resized images (resize * resize * 3 bytes each), filled before the first
            epoch. Batches are the same as without it. Any number of runs, tasks and sizes can share
            it. With null, files are decoded in every epoch. The features of a frozen backbone are kept in the folder
            too, or in the user's cache (~/.cache/contml).
        features: A file of your own vectors, or a file of 'contml features' (.npz, .npy or .parquet). They replace the
            images, and model.backbone=features trains a head on them, a model of vectors. With null, images are used.
        extractor: a frozen backbone. If nothing changes the images from epoch to epoch, batches have their features.
    """

    @check_ranges
    def __init__(
        self,
        resize: PositiveInt = 256,
        crop: PositiveInt = 224,
        flip: Flip = "none",
        broken: Literal["fail", "skip"] = "fail",
        workers: NonNegativeInt = 0,
        cache: Path | None = None,
        features: Path | None = None,
        *,
        transform: Transform | None = None,
        skip: str = 'broken="skip"',
        extractor: Extractor | None = None,
    ) -> None:
        if crop > resize:
            raise InputError("crop", str(crop), f"must be 1 to resize, {resize}")
        self.resize, self.crop = resize, crop
        self.transform = transform or CropTransform(resize=resize, crop=crop)
        self.flip, self.broken, self.workers, self.cache, self.features = flip, broken, workers, cache, features
        self.skip = skip
        is_fixed = isinstance(self.transform, CropTransform) and self.transform.is_fixed and flip == "none"
        #: The backbone that makes features of images. If it is None, batches have images.
        self.extractor = extractor if is_fixed else None
        #: Name and cause of each broken image left out so far.
        self.left_out: dict[str, str] = {}
        self._loaders: dict[tuple[int, bool], _Workers] = {}
        self._cached: dict[int, tuple[Split, CachedImages]] = {}  # by id of the split, which this keeps alive
        self._features: dict[int, tuple[Split, SplitFeatures]] = {}  # the same

    def train_batches(
        self, split: Split, sampler: Sampler, *, epoch: int, start: int = 0, part: tuple[int, int] = (0, 1)
    ) -> Iterator[Batch]:
        """Yield the augmented batches of an epoch from step `start`. `part` is (rank, number of processes).

        Raises:
            InputError: an image is broken and `broken` is "fail", or the processes cannot share a batch evenly.
        """
        rank, world = part

        def request(step: int) -> Request:
            rows = sampler.batch(epoch, step)
            if rows and not 0 <= min(rows) <= max(rows) < len(split):
                got, hint = f"row {max(rows)} of {len(split)} items", "give the sampler the labels of this split"
                raise InputError("sampler", got, "must choose rows of the split", hint)
            if len(rows) % world:
                got = f"a batch of {len(rows)} images"
                raise InputError("batch_size", got, f"must be a multiple of the {world} processes")
            rows_per_process = len(rows) // world
            process_rows = [int(row) for row in rows[rank * rows_per_process : (rank + 1) * rows_per_process]]
            return Request(step, process_rows, rank * rows_per_process, (sampler.seed, epoch, step))

        return self._run(split, (request(step) for step in range(start, len(sampler))), training=True)

    def test_batches(self, split: Split, rows: Rows, batch_size: int) -> Iterator[Batch]:
        """Yield centre crops of these rows of a split, in order. `step` is the number of the batch."""
        check_whole(1, batch_size=batch_size)
        index = as_rows(rows, len(split))
        chunks = (index[start : start + batch_size].tolist() for start in range(0, len(index), batch_size))
        return self._run(split, (Request(step, chunk, 0, None) for step, chunk in enumerate(chunks)), training=False)

    def fill(self, split: Split) -> CacheReport:
        """Decode every image of a split that the cache lacks or whose file has changed.

        Without a cache, decode every image. Images that an interrupted run has decoded are not decoded again. Broken
        images are in the report.

        Raises:
            InputError: the folder cannot be written or is damaged, or the images of this split come from no files.
        """
        images = Images(self.resize, self.resize, broken="skip", workers=self.workers)  # not cropped
        try:
            if self.cache is None:
                with progress_bar(len(split), "decoding images") as progress:
                    for batch in images.test_batches(split, None, CHUNK):
                        progress(min(len(split), (batch.step + 1) * CHUNK))
                return CacheReport(len(split), len(split), [*images.left_out.items()])
            cache = ImageCache(self.cache, CacheKind.resized(self.resize))
            cached, report = cache.fill(split, lambda rows: images.test_batches(split, rows, CHUNK), images.left_out)
        finally:
            images.close()
        self._cached[id(split)] = split, cached
        return report

    def prepare(self, split: Split) -> CachedImages | SplitFeatures | None:
        """Fill the cache, if there is one, before the first batch is needed. Return the cached images of the split.

        With an `extractor`, fill and return the features of the split.

        Raises:
            InputError: as `fill`; also, an image is broken and `broken` is "fail".
        """
        if split.feature_dim is not None:
            return None
        if self.extractor is not None:
            if id(split) not in self._features:
                self._features[id(split)] = split, self._extract(split, self.extractor)
            return self._features[id(split)][1]
        if self.cache is None:
            return None
        if id(split) not in self._cached:
            broken = self.fill(split).broken
            if broken and self.broken == "fail":
                raise self._broken_error(*broken[0])  # now, not in the middle of an epoch
        return self._cached[id(split)][1]

    def _extract(self, split: Split, extractor: Extractor) -> SplitFeatures:
        """Return the features of a split, from the cache if possible.

        The cache is filled with missing features. If images come from no file, their features are computed and not
        cached.
        """
        images = Images(self.resize, self.crop, broken="skip", workers=self.workers, cache=self.cache)

        def make(rows: Rows) -> Iterator[Batch]:
            for batch in images.test_batches(split, rows, CHUNK):
                yield batch._replace(images=extractor(batch.images)) if len(batch.rows) else batch

        features = SplitFeatures(split, torch.zeros(len(split), extractor.dim))
        missing = [*range(len(split))]
        try:
            if all(split.stamp(row) is not None for row in missing):
                try:
                    cached, report = self._feature_cache(extractor).fill(split, make, images.left_out)
                except InputError as error:
                    if self.cache is not None:
                        raise
                    note(f"features are not kept: {error}")
                else:
                    missing = features.take(cached, dict(report.broken))
            with progress_bar(len(missing), "features") as progress:
                for start, batch in zip(range(0, len(missing), CHUNK), make(missing), strict=True):
                    chunk = missing[start : start + CHUNK]
                    unread = {*chunk} - {*batch.rows.tolist()}
                    features.broken |= {row: images.left_out[split.name(row)] for row in unread}
                    if len(batch.rows):
                        features.values[batch.rows] = batch.images
                    progress(start + len(chunk))
        finally:
            images.close()
        if features.broken and self.broken == "fail":
            row = min(features.broken)
            raise self._broken_error(split.name(row), features.broken[row])
        return features

    def _feature_cache(self, extractor: Extractor) -> ImageCache:
        return ImageCache(self.cache or user_cache("features"), CacheKind.features(extractor.key[:32], extractor.dim))

    def count_without_features(self, split: Split) -> int:
        """Count the images of a split whose features are not in the cache. An image from no file is never in the cache.

        Raises:
            InputError: there is no `extractor`.
        """
        if self.extractor is None:
            raise InputError("extractor", "None", "must be a frozen backbone")
        try:
            return self._feature_cache(self.extractor).count_missing(split)
        except InputError:  # reported when the features are computed
            return len(split)

    def check(self, split: Split, rows: range) -> None:
        """Decode some images that will be needed at the end of a training, if broken images are errors.

        Raises:
            InputError: an image is broken.
        """
        read_later = self.cache is None and self.extractor is None
        if self.broken == "fail" and read_later and rows and split.stamp(0) is not None:
            broken = self.fill(split.subset(rows)).broken
            if broken:
                raise self._broken_error(*broken[0])

    def close(self) -> None:
        """End the worker processes. A later batch starts new ones."""
        for loader in self._loaders.values():
            loader.close()
        self._loaders.clear()

    def _run(self, split: Split, requests: Iterable[Request], training: bool) -> Iterator[Batch]:
        decoder = BatchDecoder(split, self.resize, self.crop, self.transform, self.flip, self.prepare(split))
        if not self.workers or decoder.has_features:  # vectors need no decoding
            for request in requests:
                yield self._checked(decoder.batch(request))
            return
        # Training and test have separate workers: a test in the middle of an epoch must not disturb it. A loader is not
        # in the table while its batches are read; if reading stops early, the loader and its workers end.
        key = (id(split), training)
        loader = self._loaders.pop(key, None) or _Workers(decoder, self.workers)
        finished, errors = False, []

        def valid_requests() -> Iterator[Request]:
            # An error raised inside of torch's loader while it starts would leave its queues half closed.
            try:
                yield from requests
            except InputError as error:
                errors.append(error)

        try:
            for result in loader.read(valid_requests()):
                yield self._checked(result)
            for error in errors:
                raise error
            finished = True
        finally:
            if finished and key not in self._loaders:
                self._loaders[key] = loader
            else:
                loader.close()

    def _checked(self, result: BatchResult | InputError) -> Batch:
        if isinstance(result, InputError):
            raise result
        if result.broken and self.broken == "fail":
            raise self._broken_error(*result.broken[0])
        self.left_out.update(result.broken)
        return result.batch

    def _broken_error(self, name: str, cause: str) -> InputError:
        hint = f"fix the file, or set {self.skip} to leave out broken images"
        return InputError(name, f"cannot be decoded ({cause})", hint=hint)


# -- workers -----------------------------------------------------------------------------------------------------------


class _BatchPart(NamedTuple):
    """Rows of a batch, from its position `start`, and the place in shared memory where a worker writes their images."""

    place: int
    start: int
    rows: list[int]
    seed: tuple[int, int, int] | None


class _PartDecoder(data.Dataset["Decoded | InputError"]):
    """The decoder of parts of batches into shared memory, in the worker processes.

    Errors are returned and not raised: torch would wrap them in a traceback.
    """

    def __init__(self, decoder: BatchDecoder, shared: Tensor) -> None:
        self.decoder, self.shared = decoder, shared  # [places, rows, 3, crop, crop]

    def __getitem__(self, part: _BatchPart) -> Decoded | InputError:
        try:
            return self.decoder.decode(part.rows, part.seed, self.shared[part.place])
        except InputError as error:
            return error


class _Workers:
    """Worker processes that stay alive between epochs.

    Batches are divided into parts, which the workers write to shared memory. The memory is allocated once, since new
    memory for each batch would take longer than cropping. The images are copied to the batch, which may live longer.

        requests -> parts -> workers: shared[place] -> batch[position]
    """

    def __init__(self, decoder: BatchDecoder, workers: int) -> None:
        self._decoder = decoder  # keeps the split alive, whose id is the key of this loader
        self._rows = max(1, min(_PART_ROWS, _PART_BYTES // decoder.empty().nbytes))
        places = workers * _PARTS_PER_WORKER + 1  # and one that is copied
        self._shared = decoder.empty(places, self._rows).share_memory_()  # type: ignore[no-untyped-call]
        self._parts = _ReplacedSampler()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="This DataLoader will create")  # the user chose the number
            self._loader: data.DataLoader[Decoded | InputError] = data.DataLoader(
                _PartDecoder(decoder, self._shared),
                batch_size=None,
                sampler=self._parts,
                num_workers=workers,
                prefetch_factor=_PARTS_PER_WORKER,
                collate_fn=_unchanged,
                worker_init_fn=ignore_in_worker,
                persistent_workers=True,
                # In a process of `contml.work`, the default would be joblib's own, which starts no worker of a loader.
                multiprocessing_context=multiprocessing.get_all_start_methods()[0],
                generator=torch.Generator(),  # otherwise every epoch would draw from the global generator
            )

        # The workers ignore SIGTERM, with which Python ends them at exit: without this, it would wait for them forever.
        self._end = weakref.finalize(self, _end_workers, self._loader, os.getpid())

    def read(self, requests: Iterable[Request]) -> Iterator[BatchResult | InputError]:
        waiting: deque[tuple[Request, int]] = deque()  # batches and the number of their parts
        sent: deque[_BatchPart] = deque()
        free = deque(range(len(self._shared)))

        def parts() -> Iterator[_BatchPart]:
            for request in requests:
                # Parts of equal size: the workers take turns, and one of two would always have the small last parts.
                count = max(1, -(-len(request.rows) // self._rows))
                ends = [len(request.rows) * number // count for number in range(count + 1)]
                waiting.append((request, count))
                for start, end in itertools.pairwise(ends):
                    sent.append(_BatchPart(free.popleft(), start, request.rows[start:end], request.seed))
                    yield sent[-1]

        self._parts.pending = parts()
        try:
            with warnings.catch_warnings():
                # Python 3.12 warns about forking a process with threads; the workers do not use the threads.
                warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
                results = iter(self._loader)
            while waiting:
                request, count = waiting.popleft()
                images, decoded, error = self._decoder.empty(len(request.rows)), Decoded([], []), None
                for _ in range(count):
                    result = next(results)
                    part = sent.popleft()
                    if isinstance(result, InputError):
                        error = error or result
                    else:
                        end = len(decoded.positions)
                        new_end = end + len(result.positions)
                        images[end:new_end] = self._shared[part.place, : new_end - end]
                        decoded.positions.extend(part.start + position for position in result.positions)
                        decoded.broken.extend(result.broken)
                    free.append(part.place)
                yield error or request.result(images[: len(decoded.positions)], *decoded)
            next(results, None)  # the loader is then ready for the next epoch
        except RuntimeError as error:
            if (lost := lost_worker(error)) is None:
                raise
            raise lost from None

    def close(self) -> None:
        self._end()


class _ReplacedSampler(data.Sampler[_BatchPart]):
    """A sampler whose parts are replaced for each epoch."""

    pending: Iterator[_BatchPart] = iter(())

    def __iter__(self) -> Iterator[_BatchPart]:
        return self.pending


def _end_workers(loader: data.DataLoader[Decoded | InputError], process: int) -> None:
    # The garbage collector may call this in a worker that was forked later. There it would wait for seconds.
    if loader._iterator is not None and os.getpid() == process:
        loader._iterator._shutdown_workers()  # type: ignore[attr-defined]
        loader._iterator = None


def _unchanged(result: Any) -> Any:
    return result
