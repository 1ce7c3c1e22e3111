"""Images in an index: add images that are not in it yet, with metadata from a table; say what a search found."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from filecmp import cmp
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias
from unicodedata import normalize

import numpy as np
import torch

from contml import work
from contml._support.errors import InputError
from contml._support.files import read_bytes
from contml._support.text import percent
from contml.data import Split
from contml.data.copies import is_unchanged, with_digest
from contml.data.decode import cause
from contml.data.shards import exists, file_of, file_state, find, metadata as metadata_in_shard, read_image
from contml.data.sources import ImageFile
from contml.data.text_files import written_path
from contml.evaluation.embed_parts import Mask, Part, Parts, Rows, device_here, digests_of
from contml.labels.base import LabelSpace
from contml.retrieval.images import NamedImage, NamedImages, changed, split_of
from contml.retrieval.index import ImageEmbedder, Index, SearchResult
from contml.retrieval.index_store import Floats, LeftOut
from contml.retrieval.labelled_items import Answer

if TYPE_CHECKING:
    from contml.data.tables import TableOptions

#: The labels of items by their ids.
Answering: TypeAlias = "Callable[[list[str]], list[list[Answer]]]"
#: Images that `bind` embeds again, and the largest `Bound.difference` that it accepts. Convolutions of a GPU in TF32
#: change embeddings by about 0.002; another training changes them by far more.
_CHECKED, _TOLERANCE = 32, 0.005
#: The name under which the path of an image is kept in its metadata, and that of a value of a shard with this name.
FILE, _OF_SHARD = "file", "shard.file"
#: Images whose paths are compared with those of the index at a time.
_COMPARED = 4096
#: The largest file in bytes that is compared with an image in a shard.
_MOST_COMPARED = 1 << 28


class TypedLabel(NamedTuple):
    """A label that is searched with: as it was typed, as a space of one item, and the training items it stands for."""

    name: str
    labels: LabelSpace
    #: Number of training items whose mean embedding is searched with.
    items: int
    #: The largest label distance of these items to the label, with its unit; "" for classes.
    away: str

    @property
    def words(self) -> str:
        """What is searched with, for a line below the label."""
        one = self.items == 1
        away = f", whose label{' is' if one else 's are at most'} {self.away} away" if self.away else ""
        return f"the {'' if one else 'mean '}embedding of {self.items:,} training item{'' if one else 's'}{away}"


class Model(ImageEmbedder, Protocol):
    """A trained model, as adding images needs it: a broken image is a row of NaN, and named in `left_out`."""

    @property
    def left_out(self) -> Mapping[str, str]:
        """Name and cause of each image that the last `embed(..., broken="skip")` could not read."""
        ...

    def embed(self, images: Any, *, broken: Any = "fail") -> Floats:
        """Returns the embeddings `[N, d]` in float32 of N images."""
        ...

    def to(self, device: Any) -> Any:
        """Moves it to a device."""
        ...


@dataclass
class Added:
    """What `add_images` did.

    Args:
        added: number of images that were added, by this call or by others that it shared the work with.
        resumed: number of these that others embedded, or an interrupted call.
        present: number of images that were in the index before.
        removed: number of images that are left out because they were removed from the index before.
        broken: name and cause of each image that could not be added, by this call or an earlier one. It is tried again
            when its file has changed.
        without_metadata: name and cause of each image that was added without what its shard says about it.
    """

    added: int = 0
    resumed: int = 0
    present: int = 0
    removed: int = 0
    broken: dict[str, str] = field(default_factory=dict)
    without_metadata: dict[str, str] = field(default_factory=dict)


class Bound(NamedTuple):
    """How `bind` checked a model.

    Attributes:
        images: number of images that were embedded again.
        difference: the largest difference from a stored embedding, as a share of the mean distance of the stored
            embeddings from their mean.
    """

    images: int
    difference: float


def add_images(
    index: Index,
    model: Model,
    images: NamedImages | Sequence[NamedImage],
    metadata: Mapping[str, Mapping[str, str]] | None = None,
    progress: Callable[[int], None] = lambda _: None,
    *,
    cluster: str = "",
) -> Added:
    """Adds images that are not in the index. If it is interrupted, the next call continues.

    Embeddings are kept in a hidden folder beside the index until all are added. They are added in the order of the
    images. Images that were removed from the index stay out of it: `Index.add` adds them again.

    Args:
        index: the index.
        model: embeds the images.
        images: files, each with a name of its own.
        metadata: of images by name, as `read_metadata` returns it; what shards say about their images, and the path of
            the file, is added to it.
        progress: called with the number of images done.
        cluster: the address of a Ray cluster that embeds, as in `contml.work.run`: its machines share the images too.

    Raises:
        InputError: an image has the name of another file in the index, or its file has changed since it was added; or
            another process adds images.
    """
    result, metadata, embedded = Added(), metadata or {}, 0
    split = split_of(images)
    key = f"{model.identity[:16]}-{index.dim}"
    with Parts(index.path, key, {}).command(str(index.path)):
        with index.lock(wait=True):
            new = _new_rows(index, images, result)
            new_names = [images[row].name for row in np.flatnonzero(new).tolist()]
            if new_names:
                index.leave_out(LeftOut(name, None, None) for name in new_names)
        parts = Parts(index.path, key, {"images": split}, new)
        adding = _Adding(index, parts, images, metadata, result)

        def on_done(item: Rows) -> None:
            nonlocal embedded
            embedded += len(item.rows)
            adding.add()
            progress(adding.done)

        work.run(
            parts.items,
            _Embed(model, split),
            parts,
            cluster=cluster,
            is_needed=lambda item: bool(item.rows),
            on_done=on_done,
        )
        adding.add()
    parts.remove()
    result.added = sum(name in index for name in new_names)
    result.resumed = max(0, len(new_names) - embedded)
    progress(len(new_names))
    return result


def _new_rows(index: Index, images: Sequence[NamedImage], result: Added) -> Mask:
    """Which images are to be embedded `[N]`; the others are counted in `result`.

    Raises:
        InputError: an image of the index is another one now.
    """
    is_new, left_out, removed_ids = np.ones(len(images), bool), index.left_out, index.removed_ids
    changed_files: dict[str, str] = {}
    for start in range(0, len(images), _COMPARED):
        present = []
        for row, image in enumerate(images[start : start + _COMPARED], start):
            name, path = image.name, str(image.file.absolute())
            known = left_out.get(name)
            if name in index:
                present.append(image)
            elif path != path.encode(errors="replace").decode():
                result.broken[name] = "its name is not valid Unicode: rename it"
            elif name in removed_ids and (known is None or known.state is None or _is_unchanged(image, known.state)):
                result.removed += 1
            elif known is not None and name not in removed_ids and _is_unchanged(image, known.state):
                result.broken[name] = str(known.cause)
            else:
                continue
            is_new[row] = False
        changed_files |= _changed(index, present)
        result.present += len(present)
    for name in images.broken if isinstance(images, NamedImages) else ():  # shards that cannot be read any more
        changed_files |= _damaged(index, name)
    if changed_files:
        raise changed(changed_files, index.path, f"remove them: contml index --out {index.path}")
    return is_new


def _damaged(index: Index, shard: str) -> dict[str, str]:
    """As `_changed`, of a shard that cannot be read; empty if the index has no images of it."""
    names = [name for name in index.ids if name.startswith(f"{shard}/")]
    if not names:
        return {}
    path = index.metadata(names[:1])[0].get(FILE)
    file = str(path).removesuffix(names[0].removeprefix(f"{shard}/")).rstrip("/")
    try:
        now = file_state(file)  # its images cannot be compared
    except OSError:
        now = ""
    is_same = all(state is None or now == " ".join(state.split(" ")[:2]) for state in index.states(names))
    return {} if is_same else {file: f"--remove {quote(shard)}"}


def _state(image: NamedImage, digest: bytes) -> str | None:
    """The state of the file that an image is in, with a digest of the image; None if there is none."""
    try:
        return with_digest(file_state(image.file), digest)
    except OSError:
        return None


def _is_unchanged(image: NamedImage, state: str | None) -> bool:
    """Whether the file that an image is in has a state that was recorded; both may be none."""
    try:
        return state is not None and is_unchanged(image.file, state)
    except OSError:
        return state is None


def _changed(index: Index, images: Sequence[NamedImage]) -> dict[str, str]:
    """The files of images of an index that have changed since, by path: the options that remove their images.

    Raises:
        InputError: an image has another path.
    """
    found: dict[str, str] = {}
    names = [image.name for image in images]
    new_states: dict[str, str] = {}
    for image, entry, state in zip(images, index.metadata(names), index.states(names), strict=True):
        if (stored_path := entry.get(FILE)) != str(image.file.absolute()):
            problem = f"the name of {image.file.absolute()}, and of {stored_path}, which is in {index.path}"
            raise InputError(image.name, problem, hint="remove that one first, or give a folder that holds both")
        try:
            now = file_state(image.file)
        except OSError:  # it is gone
            continue
        if state is None or state.split(" ")[:2] == now.split(" "):
            continue
        if is_unchanged(image.file, state):
            new_states[image.name] = with_digest(now, bytes.fromhex(state.split(" ")[-1]))
        else:
            in_shard = find(image.file)
            name = image.name if in_shard is None else image.name.removesuffix(f"/{in_shard[1]}")
            found[file_of(image.file)] = f"--remove {quote(name)}"
    index.set_states(new_states)
    return found


class _Adding:
    """Adds the embeddings of finished parts to an index, in order.

    Attributes:
        done: the number of images of the parts that are added.
    """

    def __init__(
        self,
        index: Index,
        parts: Parts,
        images: Sequence[NamedImage],
        metadata: Mapping[str, Mapping[str, str]],
        result: Added,
    ) -> None:
        self._index, self._parts, self._images, self._metadata, self._result = index, parts, images, metadata, result
        self._left = deque(parts.items)
        self.done = 0

    def add(self) -> None:
        """Add what is finished, up to the first part that is not."""
        index = self._index
        with index.lock(wait=True):  # of several commands, each adds what the others have not added yet
            left_out = index.left_out  # another command may have removed images meanwhile
            while self._left and (not self._left[0].rows or self._left[0].key in self._parts):
                item = self._left.popleft()
                if not item.rows:
                    continue
                part = self._parts[item.key]
                wanted = {*item.rows}
                names, vectors, new_metadata, states = [], [], [], []
                digests = dict(zip(sorted({*part.rows.tolist(), *part.broken}), part.digests.numpy(), strict=True))
                for row, vector in zip(part.rows.tolist(), part.embeddings.numpy(), strict=True):
                    if row not in wanted:
                        continue
                    image = self._images[row]
                    name, path = image.name, str(image.file.absolute())
                    if name not in index and name not in left_out:
                        names.append(name)
                        vectors.append(vector)
                        in_shard = self._in_shard(name, image.file)
                        new_metadata.append({**in_shard, **self._metadata.get(name, {}), FILE: path})
                        states.append(_state(image, digests[row].tobytes()))
                broken = {row: (self._images[row], cause) for row, cause in part.broken.items() if row in wanted}
                self._result.broken |= {image.name: cause for image, cause in broken.values()}
                if broken:
                    index.leave_out(
                        LeftOut(image.name, _state(image, digests[row].tobytes()), cause)
                        for row, (image, cause) in broken.items()
                    )
                if names:
                    index.add(names, np.stack(vectors), new_metadata, states)
                self.done = item.end

    def _in_shard(self, name: str, file: Path) -> dict[str, str]:
        """What its shard says about an image."""
        try:
            found = metadata_in_shard(file)
        except OSError as error:
            self._result.without_metadata[name] = cause(error)
            return {}
        return {_OF_SHARD if key == FILE else key: text for key, text in found.items()}


class _Embed:
    """Embeds the images of a part, in this process or on another machine."""

    def __init__(self, model: Model, split: Split) -> None:
        self.model, self.split = model, split

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "model": copy.deepcopy(self.model).to("cpu")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.model.to(device_here())

    def __call__(self, item: Rows) -> Part:
        item.check(self.split)
        stamps = [self.split.stamp(row) for row in item.rows]
        files = [stamp.file for stamp in stamps if stamp is not None]
        # Not the files: a folder among them would be many images.
        embeddings = self.model.embed([self.split.images[row] for row in item.rows], broken="skip")
        is_read = np.asarray(np.isfinite(embeddings).all(1))
        broken = {
            row: self.model.left_out.get(str(file), "its embedding is not finite")
            for row, file, found in zip(item.rows, files, is_read.tolist(), strict=True)
            if not found
        }
        rows = torch.tensor([*item.rows])[torch.from_numpy(is_read)]
        return Part(rows, torch.from_numpy(embeddings[is_read]), broken, digests_of(self.split, item.rows))


def bind(index: Index, model: Model, run: str) -> Bound:
    """Records the model of an index, after a check: it must embed images of the index as they were embedded.

    Up to 32 of its images that can be read are embedded again, drawn at random with a fixed seed.

    Args:
        index: the index, which may be of an older version, or of another model.
        model: the model.
        run: where it is.

    Raises:
        InputError: it embeds an image differently, or no image can be read.
    """
    if model.embedding_dim != index.dim:
        got, allowed = f"embeddings of {model.embedding_dim} numbers", f"must be {index.dim}, as in {index.path}"
        raise InputError(run, got, allowed, "use the model that the index was made with")
    with index.lock():
        ids = np.random.default_rng(0).permutation(index.ids).tolist()
        checked: list[str] = []
        embeddings = [np.empty((0, index.dim), np.float32)]
        for start in range(0, len(ids), _CHECKED):
            chunk = ids[start : start + _CHECKED]
            files = [Path(entry.get(FILE, name)) for name, entry in zip(chunk, index.metadata(chunk), strict=True)]
            found = [(name, file) for name, file in zip(chunk, files, strict=True) if exists(file)]
            if not found:
                continue
            vectors = model.embed([ImageFile(file) for _, file in found], broken="skip")
            rows = np.flatnonzero(np.isfinite(vectors).all(1))[: _CHECKED - len(checked)]
            checked += [found[row][0] for row in rows]
            embeddings.append(vectors[rows])
            if len(checked) == _CHECKED:
                break
        if not checked:
            problem, hint = "none of its images can be read, so no model can be checked", "make a new index"
            raise InputError(str(index.path), problem, hint=f"bind it where its images are, or {hint}")
        stored = index.embeddings(checked)
        differences = np.linalg.norm(np.concatenate(embeddings) - stored, axis=1)
        scale = np.linalg.norm(stored - stored.mean(0), axis=1).mean() or np.linalg.norm(stored, axis=1).mean()
        shares = differences / (scale or 1.0)
        if len(others := np.flatnonzero(~(shares <= _TOLERANCE))):
            problem = f"not the model of {index.path}: it embeds {len(others)} of {len(checked)} images differently"
            hint = (
                "use the model that the index was made with; an image that changed since can be removed from the index"
            )
            raise InputError(run, f"{problem}, such as {checked[others[0]]}", hint=hint)
        index.bind(model, run)
    return Bound(len(checked), float(shares.max()))


def read_metadata(
    table: Path, images: Sequence[NamedImage], column: str = "image", options: TableOptions | None = None
) -> dict[str, dict[str, str]]:
    """Reads the metadata of images from a table; the cells of a row are the metadata of its image.

    Args:
        table: the file: CSV, TSV, JSON, Parquet or Excel. Its paths of images are relative to its folder, or names of
            `images`.
        images: the images that are wanted; other rows are not used.
        column: the column of image paths.
        options: how the table is read; None: every cell that is not empty has a value.

    Raises:
        InputError: there is no such file or column, an image has two rows, or no row is of these images.
    """
    from contml.data.tables import TableOptions, read_table  # here: it imports pyarrow

    rows = read_table(table, options or TableOptions(missing_words=[]))
    paths = rows.texts(column, "images")
    if FILE in rows:
        raise InputError(str(table), f"a column '{FILE}'", hint="rename it: the path of the image has this name")
    names = {normalize("NFC", image.name): image.name for image in images}
    names |= {normalize("NFC", str(image.file.absolute())): image.name for image in images}
    row_by_name: dict[str, int] = {}
    for row, path in enumerate(paths):
        path = normalize("NFC", written_path(path))
        name = names.get(str((table.parent / path).absolute()), names.get(path))
        if name is not None and row_by_name.setdefault(name, row) != row:
            raise InputError(rows.where(row), f"{path} has two rows", hint="remove one")
    if images and not row_by_name:
        example = f"such as {paths[0] or images[0].file}"
        raise InputError(str(table), "no row is of these images", f"must be their paths or names {example}")
    wanted = [*row_by_name.values()]
    cells = {name: values.texts(wanted) for name, values in rows.columns.items() if name != column}
    return {name: {key: texts[position] for key, texts in cells.items()} for position, name in enumerate(row_by_name)}


# -- what a search found -----------------------------------------------------------------------------------------------

#: What a result says of the query's own image.
SAME = "the same image"
#: That of an item which is farther away than all pairs that the calibration knows.
FARTHER = "not known: too far"


class SearchHit(NamedTuple):
    """An item that was found for a query."""

    rank: int
    id: str
    distance: float
    #: By title, as text: the label distance and its interval, or the probability of the same class.
    meaning: dict[str, str]
    #: The same as numbers.
    numbers: dict[str, float]
    metadata: dict[str, Any]
    #: Whether it is the query's own image.
    is_same: bool = False
    #: Its labels by those of training items.
    answers: Sequence[Answer] = ()

    @property
    def answer_texts(self) -> dict[str, str]:
        """The answers in words, by name."""
        return {each.name: each.words for each in self.answers}

    @property
    def file(self) -> Path:
        """The image."""
        return Path(self.metadata.get(FILE, self.id))

    def as_data(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        numbers: dict[str, Any] = {"same_image": True} if self.is_same else self.numbers
        text: dict[str, Any] = {"text": next(iter(self.meaning.values()))} if self.meaning else {}
        if self.answers:
            text["answers"] = [each.as_data() for each in self.answers]
        return {
            "rank": self.rank,
            "id": self.id,
            "distance": self.distance,
            **numbers,
            **text,
            "metadata": self.metadata,
        }


class QueryResult(NamedTuple):
    """What was found for a query, nearest first, and the answers to the query: its own labels, if it is an image."""

    query: NamedImage | TypedLabel
    hits: list[SearchHit]
    answers: list[Answer]

    @property
    def contradiction(self) -> str:
        """That most images found have a predicted label that excludes the one searched for; "" if not."""
        if not isinstance(self.query, TypedLabel):
            return ""
        terms = self.query.labels.terms
        asked = [present is None or bool(present.any()) for _, present in terms]
        excluding = sum(
            any(asked[n] and answer.excludes(terms[n][0]) for n, answer in enumerate(hit.answers)) for hit in self.hits
        )
        if 2 * excluding <= len(self.hits):
            return ""
        return f"the predicted labels of {excluding:,} of {len(self.hits):,} images exclude {self.query.name}"

    def as_data(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        found: dict[str, Any] = {"query": self.query.name, "found": [hit.as_data() for hit in self.hits]}
        if isinstance(self.query, TypedLabel):
            found["training_items"] = self.query.items
        return {**found, "answers": [each.as_data() for each in self.answers]} if self.answers else found


def label_results(query: TypedLabel, result: SearchResult, answers: Answering) -> QueryResult:
    """What was found for a label; distances to it say nothing of label distances, so that only answers do.

    Args:
        query: the label.
        result: the result of the search of one query.
        answers: the labels of items by their ids.
    """
    ids = result.ids[0].tolist()
    found = zip(ids, result.distances[0].tolist(), answers(ids), strict=True)
    metadata = [{}] * len(ids) if result.metadata is None else result.metadata[0]
    hits = [
        SearchHit(rank + 1, item, distance, {}, {}, metadata[rank], answers=item_answers)
        for rank, (item, distance, item_answers) in enumerate(found)
    ]
    return QueryResult(query, hits, [])


def results_of(
    queries: Sequence[NamedImage],
    result: SearchResult,
    model: Any,
    query_answers: Sequence[list[Answer]] | None = None,
    answers: Answering = lambda ids: [[] for _ in ids],
) -> list[QueryResult]:
    """What was found for each query, with label distances where the model has a calibration.

    The query's own image is marked: it has no label distance.

    Args:
        queries: the images that were searched with.
        result: the result of the search.
        model: what `contml.load` returns.
        query_answers: the labels of the queries; None: not known.
        answers: the labels of items by their ids.
    """
    calibration, distances = model.bundle.calibration, result.distances
    title, numbers = "", np.empty((*distances.shape, 0))
    keys: list[str] = []
    if calibration is not None and distances.size:
        if calibration.kind == "interval":
            title, keys = f"label distance ({percent(calibration.level)} interval)", ["label_distance", "low", "high"]
            numbers = np.stack(model.label_distance(distances), -1)  # [Q,k,3]
        else:
            title, keys = "same class", ["same_class"]
            numbers = np.asarray(model.same_class(distances))[..., None]
    results = []
    for q, query in enumerate(queries):
        hits = []
        item_answers = answers(result.ids[q].tolist())
        for rank, name in enumerate(result.ids[q]):
            metadata = result.metadata[q][rank] if result.metadata else {}
            values, distance = numbers[q, rank].tolist(), float(distances[q, rank])
            hit = SearchHit(rank + 1, name, distance, {}, dict(zip(keys, values, strict=True)), metadata)
            hit = hit._replace(answers=item_answers[rank])
            if is_same_image(query, hit, float(distances[q].max())):
                hit = hit._replace(meaning={title or "note": SAME}, numbers={}, is_same=True)
            elif np.isnan(values).any():
                hit = hit._replace(meaning={title: FARTHER}, numbers={})
            elif keys:
                text = model.measure.text(*values) if len(values) == 3 else percent(values[0])
                hit = hit._replace(meaning={title: text})
            hits.append(hit)
        results.append(QueryResult(query, hits, [] if query_answers is None else query_answers[q]))
    return results


def is_same_image(query: NamedImage, hit: SearchHit, farthest: float) -> bool:
    """Whether an item is the query itself: the same file or a copy of it.

    Where the file of the item is gone, the name decides, if the embeddings are equal up to rounding. Shards are opened
    for near items alone. `farthest` is the largest distance that was found.
    """
    in_shards = find(hit.file) is not None, find(query.file) is not None
    if any(in_shards) and hit.distance > max(1e-3, 1e-2 * farthest):
        return False
    try:
        if not exists(hit.file):
            return hit.id == query.name and hit.distance <= max(1e-5, 1e-4 * farthest)
        if any(in_shards):
            return exists(query.file) and _content(query.file) == _content(hit.file)
        if hit.file.samefile(query.file):
            return True
        return query.file.is_file() and cmp(query.file, hit.file, shallow=False)
    except (OSError, InputError):
        return False


def _content(file: Path) -> bytes:
    """The content of an image file, which may be in a shard."""
    in_shard = read_image(file)
    return read_bytes(file, _MOST_COMPARED) if in_shard is None else in_shard
