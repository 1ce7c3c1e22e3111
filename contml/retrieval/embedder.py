"""Load a trained model, and embed images with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import nn

from contml._support.errors import InputError, one_line
from contml._support.validation import check_whole
from contml._support.versions import versions
from contml.config import Document, Section, import_user_code, validate
from contml.contracts import Measure
from contml.data import Images, Pixels
from contml.data.decode import BrokenError, resized
from contml.data.features import Floats
from contml.evaluation.embed import BATCH, embed_rows
from contml.models import EmbeddingModel
from contml.models.pixel_format import PixelFormat
from contml.models.weights import network_of
from contml.retrieval import bundle as bundles
from contml.retrieval.bundle import Bundle, Source, Transform
from contml.retrieval.calibration import Array, Calibration, LabelDistance
from contml.retrieval.graph import Graph, write_graph
from contml.retrieval.images import ImageInput, Item, items_of, split_of
from contml.retrieval.model_card import PLACE, Card


def load(
    source: str | Path,
    *,
    trust: bool = False,
    device: torch.device | str | None = None,
    local_files_only: bool = False,
) -> Embedder:
    """Load the model of a run, or of a bundle that `contml export` wrote. It needs no data; a folder needs no network.

    Args:
        source: the folder of the run or of the bundle; or "hf://user/name", or "hf://user/name@revision", a bundle on
            the Hugging Face hub, which is downloaded once.
        trust: import the user's own backbone (`module:Name`), if the model has one. It is never downloaded.
        device: where it embeds; None: the GPU if there is one.
        local_files_only: do not download; a bundle on the hub must be in the cache.

    Raises:
        InputError: the folder is neither, the run is not evaluated yet, a file is damaged, of a later version or of
            another model, it cannot be downloaded, or the backbone is code and `trust` is False.
    """
    if on_hub(source):
        from contml.retrieval.hub import download  # here: the import is slow, and the package optional

        source = download(str(source), local_files_only=local_files_only)
    loaded = bundles.read(Path(source).expanduser())
    target_device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    return Embedder(_build(loaded, trust), loaded.bundle, loaded.options, loaded.card).to(target_device)


def on_hub(source: str | Path) -> bool:
    """Whether this is an address on the hub, and not a folder; as a `Path`, it has lost a slash."""
    return str(source).startswith("hf:/")


class Embedder:
    """A trained model in use: images to embeddings, embedding distances to label distances.

    model = contml.load("runs/pose/synthetic/2026-11-23_10-00-00")
    embeddings = model.embed(["a.jpg", "b.jpg"])

    Attributes:
        model: the network, in evaluation mode.
        bundle: what is known about it: transform, calibration, versions.
        device: where it embeds.
        left_out: name and cause of each image that the last `embed(..., broken="skip")` could not read.
    """

    def __init__(self, model: EmbeddingModel, bundle: Bundle, options: dict[str, Any], card: Card) -> None:
        self.model = model.eval().requires_grad_(False)
        self.bundle = bundle
        self.device = torch.device("cpu")
        self.left_out: dict[str, str] = {}
        self._options = options
        self._card = card

    @property
    def embedding_dim(self) -> int:
        """The length of an embedding."""
        return self.model.embedding_dim

    @property
    def unit(self) -> str:
        """What a label distance of 1 means, in words."""
        return self.bundle.unit

    @property
    def measure(self) -> Measure:
        """How label distances are printed in the unit of the labels."""
        return self.bundle.measure

    @property
    def whole_bundle(self) -> Bundle:
        """`bundle` with the pixels that the network expects, which a run does not name."""
        pixels = bundles.Pixels(**self.model.pixel_format._asdict())
        return self.bundle.model_copy(update={"transform": self.bundle.transform.model_copy(update={"pixels": pixels})})

    def to(self, device: torch.device | str) -> Self:
        """Move the model to a device; returns it.

        Raises:
            InputError: there is no such device.
        """
        try:
            self.model.to(device)
        except (RuntimeError, AssertionError) as error:
            raise InputError("device", f"{device} ({one_line(error)})", hint="choose another device") from None
        self.device = torch.device(device)
        return self

    def embed(
        self,
        images: ImageInput,
        *,
        batch_size: int = BATCH,
        workers: int = 0,
        broken: Literal["fail", "skip"] = "fail",
    ) -> Floats:
        """Returns the embeddings `[N, d]` of images, in order, with the transform of the evaluation.

        Args:
            images: a file; a folder, which is read recursively, its images sorted by path; a PIL image; pixels, uint8
                `[H, W, 3]`; an image source of `contml.data`, such as `BoxCrop`; or a list or a generator of these. A
                model that was trained on features takes vectors `[N, F]`.
            batch_size: images at a time.
            workers: number of processes that decode; 0 decodes in this process, as do all for a generator.
            broken: an image that cannot be read is an error ("fail"), or a row of NaN, named in `left_out` ("skip").

        Raises:
            InputError: something is no image, a folder has none, or an image is broken.
        """
        check_whole(1, batch_size=batch_size)
        lazy = isinstance(images, Iterator)
        loader = self.images(broken=broken, workers=0 if lazy else workers)
        self.left_out = loader.left_out
        items = items_of(images, self.bundle.feature_dim)
        all_embeddings = [np.empty((0, self.embedding_dim), np.float32)]
        try:
            for chunk in filter(None, self._chunks(items, batch_size) if lazy else [[*items]]):
                split = split_of(chunk)
                rows, embeddings = embed_rows(
                    self.model, split, loader, None, device=self.device, batch_size=batch_size
                )
                chunk_embeddings = np.full((len(split), self.embedding_dim), np.nan, np.float32)
                if len(rows):
                    chunk_embeddings[rows.numpy()] = embeddings.numpy()
                all_embeddings.append(chunk_embeddings)
        finally:
            loader.close()
        return np.concatenate(all_embeddings)

    def images(self, *, broken: Literal["fail", "skip"] = "fail", workers: int = 0) -> Images:
        """The loader of images, with the transform of the evaluation."""
        transform = self.bundle.transform
        return Images(transform.resize, transform.crop, broken=broken, workers=workers)

    def label_distance(self, embedding_distances: Any) -> LabelDistance:
        """The label distances of retrieved items by their embedding distances: estimate, and low and high end.

        The interval holds for the nearest items of a query, among items like those of the validation split: for the
        share `bundle.calibration.level` of them, 90 % unless set otherwise.

        Args:
            embedding_distances: Euclidean, of any shape.

        Raises:
            InputError: the model has no calibration, its labels are classes, or a distance is negative or not a number.
        """
        return self._calibration.label_distance(embedding_distances)

    def same_class(self, embedding_distances: Any) -> Array:
        """The probability that retrieved items have the class of the query, by their embedding distances.

        Args:
            embedding_distances: Euclidean, of any shape.

        Raises:
            InputError: the model has no calibration, its labels are not classes, or a distance is negative or not a
                number.
        """
        return self._calibration.same_class(embedding_distances)

    def save(self, folder: str | Path, *, pictures: bool = True, place: str = PLACE) -> None:
        """Write the model as a bundle, which `contml.load` reads anywhere; a backbone of your own is not part of it.

        Args:
            folder: a new folder, or an empty one. A `README.md` that is there stays as it is.
            pictures: also write the gallery of the model card, which shows test images, if the run has one.
            place: "user/name" on the Hugging Face hub, for the model card.

        Raises:
            InputError: the folder has other files, or cannot be written.
        """
        path = Path(folder).expanduser()
        source = Source(self.whole_bundle, self._options, self.model.state_dict(), path / bundles.WEIGHTS, self._card)
        bundles.save(source, path, pictures=pictures, place=place)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the model as a bundle: `save`, by the name that huggingface_hub has for it."""
        self.save(folder)

    @classmethod
    def from_pretrained(cls, source: str | Path, **options: Any) -> Embedder:
        """Load a folder, or "user/name" on the Hugging Face hub, with the options of `HubModel.from_pretrained`."""
        from contml.retrieval.hub import HubModel

        return HubModel.from_pretrained(source, **options).embedder

    def push_to_hub(self, repo_id: str, *, pictures: bool = True, **options: Any) -> str:
        """Upload the bundle with its model card to the Hugging Face hub; returns the address of the commit.

        Args:
            repo_id: "user/name"; made if there is no such repository.
            pictures: with the gallery of the model card, which shows test images.
            options: of `PyTorchModelHubMixin.push_to_hub`: `private`, `commit_message`, `branch`, `create_pr`, `token`.

        Raises:
            InputError: it is no name of a repository, or cannot be uploaded.
        """
        from contml.retrieval.hub import HubModel

        module = HubModel(self)
        module.pictures = pictures
        return module.push_to_hub(repo_id, **options)

    def export(self, file: str | Path) -> Graph:
        """Write the network as a graph that runs without contml: `.onnx` for ONNX, `.pt2` for torch.export.

        It takes images after resize and crop, uint8 `[N, crop, crop, 3]` (or features `[N, F]`), any number of them.

        Raises:
            InputError: the file has another suffix, exists, or needs a package that is not installed; or the network
                cannot be exported.
        """
        return write_graph(self, Path(file).expanduser())

    @property
    def _calibration(self) -> Calibration:
        calibration = self.bundle.calibration
        if calibration is None:
            hint = "train with a validation split, or run 'contml evaluate' if the run is older"
            raise InputError(self.bundle.name, "no calibration", hint=hint)
        return calibration

    def _chunks(self, items: Iterator[Item], size: int) -> Iterator[list[Item]]:
        """The images of a generator. Pictures are resized at once: it may change them, and they may be large."""
        side = self.bundle.transform.resize
        while chunk := [_resized(item, side) for item in islice(items, size)]:
            yield chunk

    def __repr__(self) -> str:
        transform: Transform = self.bundle.transform
        size = f"{transform.crop} x {transform.crop} pixels"
        inputs = size if self.bundle.feature_dim is None else f"{self.bundle.feature_dim} features"
        untrained = "" if self.bundle.epoch else ", untrained weights"
        dims = f"{inputs} to {self.embedding_dim} numbers"
        return f"Embedder({self.bundle.name}{untrained}: {dims}; label distance: {self.unit})"


def _resized(item: Item, side: int) -> Item:
    if isinstance(item.source, Pixels):
        with suppress(BrokenError):  # it is broken when its batch is read, too
            return item._replace(source=Pixels(resized(item.source.read(), item.name, side)))
    return item


def _build(found: Source, trust: bool) -> EmbeddingModel:
    """The model of a source, with its weights."""
    backbone, file = found.options["backbone"], str(found.file)
    is_code = ":" in backbone and not backbone.startswith("timm:")
    if is_code and not trust:
        problem, hint = f"its backbone is code to import ({backbone})", "pass trust=True (--trust) if you trust it"
        raise InputError(file, problem, hint=hint)
    document = Document(file, {"model": found.options})
    try:
        part = validate(document, {"model": Section(EmbeddingModel)}).parts["model"]
        if is_code:
            import_user_code(document, ("model", "backbone"), backbone, nn.Module)
        with torch.random.fork_rng(devices=[]):  # the weights that it draws are replaced
            model: EmbeddingModel = part.build(feature_dim=found.bundle.feature_dim)
    except InputError as error:
        hint = "; ".join(filter(None, (error.hint, _other_versions(found.bundle))))
        raise InputError(error.subject, error.got, error.allowed, hint, error.origin) from None
    except (RuntimeError, MemoryError) as error:
        raise InputError(file, f"its model cannot be built ({one_line(error)})") from None
    pixels = found.bundle.transform.pixels
    if pixels is not None:
        model.pixel_format = PixelFormat(pixels.mean, pixels.std, pixels.maximum, pixels.order)
        model.mean, model.std = (torch.tensor(values).view(1, 3, 1, 1) for values in (pixels.mean, pixels.std))
    try:
        model.load_state_dict(network_of(found.weights))  # of a captioner: its visual network
    except RuntimeError as error:
        problem = f"does not fit the model that its options name ({str(error).splitlines()[-1].strip()})"
        raise InputError(file, problem, hint=_other_versions(found.bundle)) from None
    return model


def _other_versions(bundle: Bundle) -> str:
    """Which packages have other versions than those that trained the model."""
    installed = versions()
    differing = [f"{name} {version}" for name, version in bundle.versions.items() if installed.get(name) != version]
    return f"it was trained with {', '.join(differing)}" if differing else ""
