"""Loading of a trained model, and embedding of images with it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from contml._support.errors import InputError, one_line
from contml._support.imports import versions
from contml._support.tensors import check_weights
from contml._support.validation import check_whole
from contml.captioning import DECODERS, Decoder, Vocabulary
from contml.captioning.captioner import Captioner, DecoderFactory
from contml.config import Document, Section, import_user_code, validate
from contml.contracts import Measure
from contml.data import Images, Pixels
from contml.data.decode import resized
from contml.data.features import Floats
from contml.evaluation.embed import BATCH, embed_rows
from contml.models import EmbeddingModel
from contml.models.identity import identity
from contml.models.network import PixelFormat
from contml.search import bundle as bundles
from contml.search.answers import Answer
from contml.search.bundle import Bundle, SavedModel, Transform
from contml.search.calibration import Array, Calibration, LabelDistance
from contml.search.graph import Graph, write_graph
from contml.search.inputs import ImageInput, SourceItem, items_of, split_of
from contml.search.labelled_items import LabelledItems


def load(source: str | Path, *, trust: bool = False, device: torch.device | str | None = None) -> Embedder:
    """Load the model of a run, or of a bundle that `contml export` wrote. It needs neither data nor network.

    Args:
        source: the folder of the run or of the bundle.
        trust: import the user's own backbone or decoder (`module:Name`), if the model has one. It is never downloaded.
        device: where the model embeds. Default: the GPU if there is one.

    Raises:
        InputError: the folder is neither, the run is not evaluated yet or its weights are not the ones that it
            evaluated, a file is damaged, of a later version or of another model, or the backbone or the decoder is code
            and `trust` is False.
    """
    loaded = bundles.read(Path(source).expanduser())
    embedder = Embedder(_build(loaded, trust), loaded.bundle, loaded.config, loaded.labels)
    if loaded.evaluated not in ("", embedder.identity):
        problem = "not the model that the run evaluated: its weights or its options changed since"
        raise InputError(str(loaded.file), problem, hint=f"restore it, or run 'contml evaluate {source}'")
    return embedder.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))


class Embedder:
    """A trained model in use. It maps images to embeddings, and embedding distances to label distances.

    A captioner also writes captions.

    model = contml.load("runs/pose/synthetic/2026-11-23_10-00-00")
    embeddings = model.embed(["a.jpg", "b.jpg"])

    Attributes:
        model: the network, in evaluation mode. For a captioner, it is its visual network.
        captioner: the captioner. None for an embedding.
        bundle: the record of the model: transform, calibration, versions.
        device: where the model embeds.
        left_out: name and cause of each image that the last call with `broken="skip"` could not read.
    """

    def __init__(
        self, network: EmbeddingModel | Captioner, bundle: Bundle, config: dict[str, Any], labels: Path | None = None
    ) -> None:
        self._network = network.eval().requires_grad_(False)
        self.captioner = network if isinstance(network, Captioner) else None
        self.model: EmbeddingModel = network.network if isinstance(network, Captioner) else network
        self.bundle = bundle
        self.device = torch.device("cpu")
        self.left_out: dict[str, str] = {}
        self._config = config
        self._labels = labels

    @property
    def identity(self) -> str:
        """A hash of all that determines the embeddings (`contml.models.identity`). Computing it reads all weights.

        It is the same for a run and its bundle, wherever they are.
        """
        return identity(self.model, self.bundle.transform.resize, self.bundle.transform.crop)

    @property
    def embedding_dim(self) -> int:
        """The length of an embedding."""
        return self.model.embedding_dim

    @property
    def unit(self) -> str:
        """The meaning of a label distance of 1, as text."""
        return self.bundle.unit

    @property
    def measure(self) -> Measure:
        """The format of label distances in the unit of the labels."""
        return self.bundle.measure

    @property
    def whole_bundle(self) -> Bundle:
        """`bundle` with the pixels that the network expects, which a run does not record."""
        pixels = bundles.SavedPixelFormat(**self.model.pixel_format._asdict())
        return self.bundle.model_copy(update={"transform": self.bundle.transform.model_copy(update={"pixels": pixels})})

    def with_dim(self, dim: int) -> Embedder:
        """Return the model whose embeddings are the first `dim` numbers, scaled to length 1 if the whole ones are.

        The calibration and the labels of training items are left out, since they hold only for whole embeddings.

        Raises:
            InputError: the model was not trained for this length (`model.nested_dims`).
        """
        if dim == self.embedding_dim:
            return self
        model = self.model.with_dim(dim)
        options = {**self._config["model"], "dim": dim, "nested_dims": model.nested_dims[:-1] or None}
        config, bundle = {**self._config, "model": options}, self.bundle.model_copy(update={"calibration": None})
        return Embedder(model, bundle, config).to(self.device)

    def fitted_to(self, dim: int) -> Embedder:
        """Return the model with embeddings of `dim` numbers, as in an index, if it was trained for this length."""
        return self.with_dim(dim) if dim in self.model.nested_dims else self

    def to(self, device: torch.device | str) -> Self:
        """Move the model to a device, and return it.

        Raises:
            InputError: there is no such device.
        """
        try:
            self._network.to(device)
        except (RuntimeError, AssertionError) as error:
            raise InputError("device", f"{device} ({one_line(error)})", hint="choose another device") from None
        self.device = torch.device(device)
        return self

    @property
    def label_dim(self) -> int | None:
        """The length of a label vector. None without labels of training items, and for classes."""
        if not self.has_labels or self.labelled.coordinates is None:
            return None
        return self.labelled.coordinates.projection.shape[1] + 1

    @cached_property
    def labelled(self) -> LabelledItems:
        """Training items with their embeddings and labels, which `predict` and `embed_label` need.

        Raises:
            InputError: the model has none, or their file is damaged or of another model.
        """
        with suppress(FileNotFoundError):
            if self._labels is not None:
                return LabelledItems.read(self._labels, self.identity)
        problem = "no labels of training items, which predictions and label queries need"
        hint = "judgments and shortened embeddings have none; 'contml evaluate' adds labels to an older run"
        hint += "; 'contml export --no-labels' leaves them out"
        raise InputError(self.bundle.name, problem, hint=hint)

    @property
    def has_labels(self) -> bool:
        """True if there are training items with labels."""
        return self._labels is not None and self._labels.is_file()

    def embed_label(self, label: Any) -> Floats:
        """Return the vector of a label as a query. Images with near label vectors probably have near labels.

        Compare the vector with `embed(images, through_labels=True)` by Euclidean distance. The vector of a class is the
        mean embedding of its training items `[d]`. Compare it with `embed(images)`. The method warns if a label is far
        from all training labels, or has words that no training label has.

        Args:
            label: in the unit of the data: a number, as many numbers as a label has, a class, a level, a date or its
                ISO text, latitude and longitude in degrees, tags, a caption or several, joints `[J, 2]`, a label map
                `[H, W]`; or as text, as `--label` of `contml search` takes it. If the model has several labels, give a
                mapping of some of them by their titles.

        Raises:
            InputError: it is not a label of this kind, or the model has no labels.
        """
        query = self.labelled.query(label)
        for remark in query.remarks:
            warnings.warn(remark, UserWarning, stacklevel=2)
        return np.asarray(query.vector.numpy())

    def predict(
        self, images: ImageInput, *, batch_size: int = BATCH, workers: int = 0, broken: Literal["fail", "skip"] = "fail"
    ) -> list[dict[str, Answer] | None]:
        """Predict the labels of N images from their nearest training items, with an interval: answers by label title.

        A label with a mean (numbers, vectors, dates, levels) is the weighted mean of the neighbours. Any other label is
        the most central of the neighbours' labels (`contml.evaluation.posterior`). `Answer` describes the result.

        Args:
            images: as in `embed`.
            batch_size: as in `embed`.
            workers: as in `embed`.
            broken: as in `embed`. With "skip", the answer of an image that cannot be read is None.

        Raises:
            InputError: as `embed`, or the model has no labels.
        """
        # The labels first: a model without them is refused before images are read.
        return answers_of(self.labelled, self.embed(images, batch_size=batch_size, workers=workers, broken=broken))

    def embed(
        self,
        images: ImageInput,
        *,
        batch_size: int = BATCH,
        workers: int = 0,
        broken: Literal["fail", "skip"] = "fail",
        through_labels: bool = False,
    ) -> Floats:
        """Compute the embeddings `[N, d]` of images, in order, with the transform of the evaluation.

        With `through_labels`, compute label vectors `[N, label_dim]` instead, from the labels of the nearest training
        items. The Euclidean distance of label vectors to a query ranks items by the mean squared distance of the
        labels. The squared distance is smaller than this mean by a number that depends only on the query. To search
        with the label vector of an image, set its last number to 0. `embed_label` returns vectors with 0.

        Args:
            images: a file; a folder, which is read recursively, its images sorted by path; a PIL image; pixels `[H, W]`
                or `[H, W, 1 to 4]`, of uint8, uint16, bool, or floats from 0 to 1; an image source of `contml.data`,
                such as `BoxCrop`; or a list or a generator of these. A model that was trained on features takes
                vectors `[N, F]`.
            batch_size: images at a time.
            workers: number of processes that decode. 0 decodes in this process. A generator is always decoded in this
                process.
            broken: "fail" makes an image that cannot be read an error. "skip" makes it a row of NaN, and names it in
                `left_out`.
            through_labels: return label vectors.

        Raises:
            InputError: something is not an image, a folder has no image, or an image is broken; or the model has no
                label vectors.
        """
        if through_labels and self.label_dim is None:
            problem = "has no label vectors" + (": its labels are classes" if self.has_labels else "")
            raise InputError(self.bundle.name, problem, hint="omit through_labels")
        empty = np.full(self.embedding_dim, np.nan, np.float32)
        embeddings: Floats = self._outputs(images, self.model, empty, batch_size, workers, broken)
        return self.label_vectors(embeddings) if through_labels else embeddings

    def label_vectors(self, embeddings: Floats) -> Floats:
        """Compute the label vectors `[N, label_dim]` of embeddings `[N, d]`.

        They are NaN for a row that is not finite.
        """
        assert self.label_dim is not None
        vectors = np.full((len(embeddings), self.label_dim), np.nan, np.float32)
        readable = np.isfinite(embeddings).all(1)
        vectors[readable] = self.labelled.posterior.label_vectors(torch.from_numpy(embeddings[readable])).numpy()
        return vectors

    def caption(
        self,
        images: ImageInput,
        *,
        beam: int | None = None,
        batch_size: int = BATCH,
        workers: int = 0,
        broken: Literal["fail", "skip"] = "fail",
    ) -> list[str]:
        """Write a caption for each of N images, in order, as in the evaluation of the captioner.

        Args:
            images: as in `embed`. A captioner that was trained on feature maps takes maps `[N, P, F]`.
            beam: number of captions that beam search keeps. Default: the number of the training.
            batch_size: as in `embed`.
            workers: as in `embed`.
            broken: as in `embed`. With "skip", the caption of an image that cannot be read is empty.

        Raises:
            InputError: the model is not a captioner, something is not an image, a folder has no image, or an image is
                broken.
        """
        captioner = self.captioner
        if captioner is None:
            hint = "load a run of 'contml train captioning/...', or its bundle"
            raise InputError(self.bundle.name, "an embedding, which writes no captions", hint=hint)
        if beam is not None:
            check_whole(1, beam=beam)
        empty = np.full(captioner.length + 1, Vocabulary.PAD)
        tokens = self._outputs(images, partial(captioner.describe, beam=beam), empty, batch_size, workers, broken)
        return [captioner.vocabulary.decode(row) for row in tokens]

    def _outputs(
        self,
        images: ImageInput,
        function: Callable[[Tensor], Tensor],
        empty: np.ndarray[Any, Any],
        batch_size: int,
        workers: int,
        broken: Literal["fail", "skip"],
    ) -> np.ndarray[Any, Any]:
        """Compute the outputs of a function for images `[N, ...]`.

        `empty` is the output for an image that cannot be read.
        """
        check_whole(1, batch_size=batch_size)
        lazy = isinstance(images, Iterator)
        loader = self.images(broken=broken, workers=0 if lazy else workers)
        self.left_out = loader.left_out
        maps = self.captioner is not None and self.captioner.decoder.needs_maps
        items = items_of(images, self.bundle.feature_dim, maps=maps)
        all_outputs = [empty[None][:0]]
        try:
            for chunk in filter(None, self._chunks(items, batch_size) if lazy else [[*items]]):
                split = split_of(chunk)
                rows, outputs = embed_rows(
                    self._network, split, loader, None, device=self.device, batch_size=batch_size, function=function
                )
                chunk_outputs = np.repeat(empty[None], len(split), 0)
                if len(rows):
                    chunk_outputs[rows.numpy()] = outputs.numpy()
                for row in rows[~torch.isfinite(outputs).flatten(1).all(1)].tolist():
                    if broken == "fail":
                        raise InputError(split.names[row], _NOT_FINITE, hint="train the model again")
                    self.left_out[split.names[row]] = _NOT_FINITE
                all_outputs.append(chunk_outputs)
        finally:
            loader.close()
        return np.concatenate(all_outputs)

    def images(self, *, broken: Literal["fail", "skip"] = "fail", workers: int = 0) -> Images:
        """Return the loader of images, with the transform of the evaluation."""
        transform = self.bundle.transform
        return Images(transform.resize, transform.crop, broken=broken, workers=workers)

    def label_distance(self, embedding_distances: Any) -> LabelDistance:
        """Estimate the label distances of retrieved items from their embedding distances, with low and high ends.

        The interval holds for the nearest items of a query, if items are like the items of the validation split. It
        holds for the share `bundle.calibration.level` of them, 90 % unless set otherwise. If an item is farther away
        than all items of the validation split, nothing is known: estimate and ends are NaN.

        Args:
            embedding_distances: Euclidean, of any shape.

        Raises:
            InputError: the model has no calibration, its labels are classes, or a distance is negative or not a number.
        """
        return self._calibration.label_distance(embedding_distances)

    def same_class(self, embedding_distances: Any) -> Array:
        """Estimate the probability that retrieved items have the class of the query, from their embedding distances.

        Args:
            embedding_distances: Euclidean, of any shape.

        Raises:
            InputError: the model has no calibration, its labels are not classes, or a distance is negative or not a
                number.
        """
        return self._calibration.same_class(embedding_distances)

    def save(self, folder: str | Path, *, labels: bool = True) -> None:
        """Write the model as a bundle, which `contml.load` reads anywhere. A network of your own is not part of it.

        Args:
            folder: a new folder, or an empty one. A `README.md` in the folder stays as it is.
            labels: also write embeddings and labels of training items, if there are any.

        Raises:
            InputError: the folder has other files, or cannot be written.
        """
        path = Path(folder).expanduser()
        source = SavedModel(self.whole_bundle, self._config, self._network.state_dict(), path / bundles.WEIGHTS)
        bundles.save(source, path, labels=self.labelled if labels and self.has_labels else None)

    def export(self, file: str | Path) -> Graph:
        """Write the network as a graph that runs without contml: a file `.onnx`.

        It takes any number of images after resize and crop, uint8 `[N, crop, crop, 3]`, or features `[N, F]`.

        Raises:
            InputError: the file has another suffix, another file has its name, or it needs a package that is not
                installed; the model is a captioner, or the network cannot be exported.
        """
        return write_graph(self, Path(file).expanduser())

    @property
    def _calibration(self) -> Calibration:
        calibration = self.bundle.calibration
        if calibration is None:
            hint = "train with a validation split, or run 'contml evaluate' if the run is older"
            raise InputError(self.bundle.name, "no calibration", hint=hint)
        return calibration

    def _chunks(self, items: Iterator[SourceItem], size: int) -> Iterator[list[SourceItem]]:
        """Yield the images of a generator in lists.

        Pictures are resized at once: the generator may change them later.
        """
        side = self.bundle.transform.resize
        while chunk := [_resized(item, side) for item in islice(items, size)]:
            yield chunk

    def __repr__(self) -> str:
        transform: Transform = self.bundle.transform
        size = f"{transform.crop} x {transform.crop} pixels"
        inputs = size if self.bundle.feature_dim is None else f"{self.bundle.feature_dim} features"
        untrained = "" if self.bundle.epoch else ", untrained weights"
        dims = f"{self.embedding_dim} numbers"
        outputs = f"{dims}; label distance: {self.unit}" if self.captioner is None else f"captions, and to {dims}"
        return f"Embedder({self.bundle.name}{untrained}: {inputs} to {outputs})"


def answers_of(labelled: LabelledItems, embeddings: Floats) -> list[dict[str, Answer] | None]:
    """Return the answers to embeddings `[N, d]` by the titles of the labels.

    The answer is None for a row that is not finite.
    """
    rows = np.flatnonzero(np.isfinite(embeddings).all(1))
    found: list[dict[str, Answer] | None] = [None] * len(embeddings)
    for start in range(0, len(rows), _ANSWERED):
        part = rows[start : start + _ANSWERED]
        for row, answers in zip(part.tolist(), labelled.answer(torch.from_numpy(embeddings[part])), strict=True):
            found[row] = {answer.title: answer for answer in answers}
    return found


def _resized(item: SourceItem, side: int) -> SourceItem:
    if isinstance(item.source, Pixels):
        with suppress(OSError):  # it is broken when its batch is read, too
            return item._replace(source=Pixels(resized(item.source.read(), item.name, side)))
    return item


#: Embeddings that are answered at a time.
_ANSWERED = 256
#: Why an image has no embedding.
_NOT_FINITE = "its embedding is not finite"
#: The parts of a model, by their sections in a config.
_SCHEMA = {
    "model": Section(EmbeddingModel),
    "captioner": Section(Captioner, required=False),
    "decoder": Section(DECODERS, required=False, contract=Decoder),
}


def _build(found: SavedModel, trust: bool) -> EmbeddingModel | Captioner:
    """Build the model of a source, with its weights."""
    config, file = found.config, str(found.file)
    backbone, decoder = config["model"]["backbone"], config.get("decoder", {}).get("name", "")
    own_backbone = ":" in backbone and not backbone.startswith("timm:")
    for part, name in {"backbone": backbone * own_backbone, "decoder": decoder}.items():
        if ":" in str(name) and not trust:
            problem, hint = f"its {part} is code to import ({name})", "pass trust=True (--trust) if you trust it"
            raise InputError(file, problem, hint=hint)
    document = Document(file, config)
    try:
        parts = validate(document, _SCHEMA).parts
        if own_backbone:
            import_user_code(document, ("model", "backbone"), backbone, nn.Module)
        with torch.random.fork_rng(devices=[]):  # the weights that it draws are replaced
            model: EmbeddingModel = parts["model"].build(feature_dim=found.bundle.feature_dim, pretrained=False)
            network: EmbeddingModel | Captioner = model
            if "captioner" in parts:
                factory = DecoderFactory.of(parts["decoder"].constructor, parts["decoder"].build)
                vocabulary = Vocabulary.from_weights(found.weights, file)
                network = parts["captioner"].build(network=model, decoder=factory, captions=vocabulary)
    except InputError as error:
        hint = "; ".join(filter(None, (error.hint, _other_versions(found.bundle))))
        raise InputError(error.subject, error.got, error.allowed, hint, error.origin) from None
    except (RuntimeError, MemoryError) as error:
        raise InputError(file, f"its model cannot be built ({one_line(error)})") from None
    pixels = found.bundle.transform.pixels
    if pixels is not None:
        model.pixel_format = PixelFormat(pixels.mean, pixels.std, pixels.maximum, pixels.order)
        model.mean, model.std = (torch.tensor(values).view(1, 3, 1, 1) for values in (pixels.mean, pixels.std))
    if isinstance(network, EmbeddingModel):
        network = network.fitted_to(found.weights)
    check_weights(found.weights, network.state_dict(), file)
    try:
        network.load_state_dict(found.weights)
    except RuntimeError as error:
        problem = f"does not fit the model that its options name ({str(error).splitlines()[-1].strip()})"
        raise InputError(file, problem, hint=_other_versions(found.bundle)) from None
    return network


def _other_versions(bundle: Bundle) -> str:
    """Return the packages whose versions differ from the versions that trained the model."""
    installed = versions()
    differing = [f"{name} {version}" for name, version in bundle.versions.items() if installed.get(name) != version]
    return f"it was trained with {', '.join(differing)}" if differing else ""
