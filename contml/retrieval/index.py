"""An index of embeddings on disk: add items, remove items, search.

index = Index.create("photos.index", dim=128)
index.add(["a.jpg", "b.jpg"], embeddings)
index.build()
ids, distances, metadata = Index.open("photos.index").search(queries, k=10)
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import torch

from contml._support.errors import InputError, one_line
from contml._support.validation import check_range, check_whole
from contml.retrieval.index_shards import CodeParts, Codes
from contml.retrieval.index_store import ChangedError, Content, Floats, Ids, IndexState, Kind, LeftOut, Store
from contml.retrieval.index_structure import (
    COMPARED_GROWTH,
    FEWEST,
    RECALL,
    Positions,
    Searcher,
    grow,
    kind_for,
    load,
    share_found,
    true_nearest,
    tuned,
)

#: The largest norm of an embedding: squares of sums of two stay finite in float32.
_LARGEST = 1e18


class ImageEmbedder(Protocol):
    """A trained model, as an index needs it: what `contml.load` returns, or your own."""

    @property
    def identity(self) -> str:
        """A hash of all that decides its embeddings: an index refuses a model with another one."""
        ...

    @property
    def embedding_dim(self) -> int:
        """The dimension of its embeddings."""
        ...

    def embed(self, images: Any) -> Floats:
        """Returns the embeddings `[N, d]` in float32 of N images."""
        ...


class SearchResult(NamedTuple):
    """The nearest items of each query, nearest first."""

    ids: Ids  # [Q,k]
    distances: Floats  # [Q,k] Euclidean
    metadata: list[list[dict[str, Any]]] | None  # [Q][k], {} for items without; None if no item ever had any


@dataclass(frozen=True)
class IndexModel:
    """The model that an index was made with.

    Attributes:
        index: the folder of the index.
        identity: of the model (`contml.models.identity`); empty if it was not recorded.
        run: where the model was; empty if it was not recorded.
        older: whether an older version of contml made the index: it recorded the hash of a file, not an identity.
    """

    index: Path = field(compare=False)
    identity: str
    run: str
    older: bool

    @property
    def folder(self) -> Path | None:
        """Where the model is on this machine; None if it was not recorded, or is on the hub.

        An index may come from a stranger: the hub is asked only where the user names it.
        """
        from contml.retrieval.embedder import on_hub

        return None if not self.run or on_hub(self.run) or "\0" in self.run else Path(self.run)

    def check(self, identity: str, name: str = "model") -> None:
        """Checks that a model is this one.

        Args:
            identity: of the model.
            name: of the model, for errors.

        Raises:
            InputError: it is another one, or this one was not recorded.
        """
        if self.identity == identity:
            return
        if self.identity:
            is_same_place = name == self.run or str(Path(name).absolute()) == self.run
            made = (
                "it changed since"
                if is_same_place
                else f"the index was made with {self.run or 'another model'}: use it"
            )
            hint = f"{made}{';' if is_same_place else ', or'} make a new index"
            raise InputError(name, f"not the model of {self.index}", hint=hint)
        made = "with an older version of contml, which did not record its model" if self.older else "without a model"
        run = "RUN" if name == "model" else name
        hint = f"record it once: contml index {run} --out {self.index} --bind"
        raise InputError(str(self.index), f"made {made}", hint=hint)


class _Loaded(NamedTuple):
    """What is searched at one moment."""

    content: Content
    searcher: Searcher


class Index:
    """An index of embeddings in a folder, searched by Euclidean distance.

    Unit vectors have the same ranking by cosine similarity. The distances are exact: computed by subtraction in
    float64, then rounded to float32. Items at equal distance are in the order in which they were added. The kind says
    which of the items are found:

    - "flat" compares all: nothing is missed.
    - "hnsw" walks a graph of neighbours; it keeps vectors and graph in memory.
    - "ivf_pq" searches compressed vectors, and compares at least five times k with their exact vectors on disk.
    - "int8" and "binary" compare all items by codes of a byte or a bit per number, and at least five times k with their
      exact vectors on disk.
    - "auto" is flat up to 100,000 items, HNSW up to two million, and IVF-PQ beyond; where that finds less than 95 % of
      the true nearest items, it is flat.

    How widely a structure is searched is measured when it is built, with 200 items as queries: as little as finds 95 %.

    `add` and `remove` are finished when they return: a process that is killed loses nothing of that. `build` brings the
    search structure of any kind but flat up to date; items that were added since are compared one by one.

    One process changes an index at a time, and any number search it: each search sees the last finished change.

    Use `Index.create` or `Index.open`.
    """

    def __init__(self, store: Store, embedder: ImageEmbedder | None = None) -> None:
        self._store, self.embedder = store, embedder
        self._loaded: _Loaded | None = None
        self._loading = threading.Lock()
        self._positions: tuple[Content, dict[str, int]] | None = None
        if embedder is not None and embedder.embedding_dim != self.dim:
            got, allowed = f"embeddings of {embedder.embedding_dim} numbers", f"must be {self.dim}, as in {self.path}"
            raise InputError("model", got, allowed, "use the model that the index was made with")
        if embedder is not None and (self.model.identity or self.model.older):
            self.model.check(embedder.identity)

    @classmethod
    def create(
        cls,
        path: str | Path,
        dim: int,
        kind: Kind = "auto",
        *,
        embedder: ImageEmbedder | None = None,
        run: str = "",
    ) -> Self:
        """Makes an empty index in a new folder.

        Args:
            path: the folder.
            dim: dimension of the embeddings.
            kind: "flat", "hnsw", "ivf_pq", "int8", "binary", or "auto" to choose by the number of items.
            embedder: the model of the embeddings, which embeds images for `search`. It is recorded: others are refused
                later. None: the model is not known.
            run: where the model is.
        """
        check_whole(1, dim=dim)
        check_range(Kind, "kind", kind)
        Store.create(Path(path), IndexState(int(dim), kind, _facts(embedder, run)))
        return cls.open(path, embedder)

    @classmethod
    def open(cls, path: str | Path, embedder: ImageEmbedder | None = None) -> Self:
        """Opens an index, and checks all its files against their checksums.

        Args:
            path: the folder.
            embedder: embeds images for `search`.

        Raises:
            InputError: it is not an index, damaged, or made with another model.
        """
        return cls(Store(Path(path)), embedder)

    def close(self) -> None:
        """Closes its files."""
        self._loaded = None
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def path(self) -> Path:
        """The folder."""
        return self._store.folder

    @property
    def dim(self) -> int:
        """The dimension of the embeddings."""
        return self._store.content().state.dim

    @property
    def kind(self) -> Kind:
        """The kind that the index was created with."""
        return self._store.content().state.kind

    @property
    def model(self) -> IndexModel:
        """The model that the index was made with."""
        facts = self._store.content().state.model
        identity, run = (str(facts.get(name) or "") for name in ("identity", "run"))
        return IndexModel(self.path, identity, run, not identity and "weights" in facts)

    @property
    def ids(self) -> list[str]:
        """The ids of all items, in the order in which they were added."""
        content = self._store.content()
        ids: list[str] = content.ids[content.live].tolist()
        return ids

    @property
    def removed_ids(self) -> set[str]:
        """The ids that were removed and not added again."""
        return {name for name in self._store.removed_ids() if name not in self}

    @property
    def left_out(self) -> dict[str, LeftOut]:
        """The images that were given and are not in the index, by id: removed, or not read. Not those still to come."""
        return {image.id: image for image in self._store.left_out()}

    @property
    def pending_text(self) -> str:
        """That images are still to come, in words; empty for a whole index."""
        count = self._store.pending()
        if not count:
            return ""
        is_in = f"{len(self):,} of {len(self) + count:,} images are in {self.path}"
        return f"{is_in}: 'contml index' was interrupted, or is at work; the same command adds the others"

    def fingerprint(self) -> str:
        """A hash of the items: vectors, ids and metadata."""
        return self._store.fingerprint(self._store.content())

    def metadata(self, ids: Sequence[str]) -> list[dict[str, Any]]:
        """The metadata of items; {} for items without."""
        names = _names(ids)
        while True:
            content = self._store.content()
            position_by_id = self._position_of(content)
            positions = [_known(position_by_id, name) for name in names]
            try:
                metadata = self._store.metadata(content, positions)
                return [metadata[position] for position in positions]
            except ChangedError:
                continue

    def states(self, ids: Sequence[str]) -> list[str | None]:
        """The states of the files of items when they were added; None where it is not known."""
        content = self._store.content()
        position_by_id = self._position_of(content)
        return self._store.states(content, [_known(position_by_id, name) for name in _names(ids)])

    def embeddings(self, ids: Sequence[str]) -> Floats:
        """The embeddings `[N, d]` of items."""
        content = self._store.content()
        position_by_id = self._position_of(content)
        return np.array(content.vectors[[_known(position_by_id, name) for name in _names(ids)]], np.float32)

    def __len__(self) -> int:
        return self._store.content().state.live

    def __contains__(self, item: object) -> bool:
        return item in self._position_of(self._store.content())

    def __repr__(self) -> str:
        return f"Index({str(self.path)!r}, {len(self):,} items, dim={self.dim}, kind={self.kind!r})"

    @property
    def structure(self) -> Kind:
        """What is searched: "flat" (all items, exactly), "hnsw", "ivf_pq", "int8" or "binary"."""
        file = self._store.content().state.structure
        return "flat" if file is None else file.kind

    @property
    def unbuilt(self) -> int:
        """The number of items that are not in the search structure; 0 for a flat index, which has none."""
        state = self._store.content().state
        if _kind(state) == "flat":
            return 0
        return state.count - (state.structure.count if state.structure else 0)

    @property
    def found(self) -> float | None:
        """The share of the true 10 nearest items that a search found when the structure was built, of 200 items.

        1 for a flat index; None if it was not measured yet.
        """
        file = self._store.content().state.structure
        return 1.0 if file is None else file.recall

    @property
    def bytes_per_item(self) -> float:
        """What a search keeps in memory per item: the search structure; without one, the vectors."""
        state = self._store.content().state
        file = state.structure
        structure = 0.0 if file is None else file.size / max(file.count, 1)
        return structure + (4 * state.dim if file is None or file.kind == "hnsw" else 0)

    @property
    def search_text(self) -> str:
        """How it is searched, in words, and the share of the true nearest items that this finds."""
        state = self._store.content().state
        file = state.structure
        if file is None:
            reason = f": no structure finds {RECALL:.0%} of the nearest" if state.compared else ""
            return f"exact, compares all items{reason}"
        widths = f"{file.breadth} candidates"
        if file.kind == "ivf_pq":
            widths = f"{file.breadth} lists, {file.candidates} candidates per result"
        elif file.kind != "hnsw":
            widths = f"{file.candidates} candidates per result"
        widths += f", {self.bytes_per_item:,.0f} bytes per item in memory"
        share = "" if file.recall is None else f"; finds {file.recall:.1%} of the true 10 nearest"
        low = "; kind flat finds all" if file.recall is not None and file.recall < RECALL else ""
        return f"{file.kind}, {widths}{share}{low}"

    # -- changing --------------------------------------------------------------------------------------------------

    @contextmanager
    def lock(self, *, wait: bool = False) -> Iterator[None]:
        """Keeps other processes from changing the index during several calls. They can still search it.

        Args:
            wait: wait for another process that changes it.

        Raises:
            InputError: another process changes it, or the folder cannot be written.
        """
        with self._store.lock(wait=wait):
            yield

    def add(
        self,
        ids: Sequence[str],
        embeddings: Any,
        metadata: Sequence[Mapping[str, Any] | None] | None = None,
        states: Sequence[str | None] | None = None,
    ) -> None:
        """Adds items: all of them, or none if it fails or the process is killed.

        Args:
            ids: `[N]`, not in the index. The id of a removed item is a new item.
            embeddings: `[N, d]`, finite numbers.
            metadata: `[N]`, JSON values by name for each item, or None.
            states: `[N]`, the states of the files of the items (`contml.data.copies.with_digest`), or None.
        """
        names = _names(ids)
        vectors, norm = self._vectors("embeddings", embeddings)
        if len(names) != len(vectors):
            raise InputError("ids", f"{len(names):,} for {len(vectors):,} embeddings", hint="give one id per embedding")
        texts: list[str | None] = [None] * len(names)
        if isinstance(metadata, str) or not isinstance(metadata, Iterable | None):
            raise InputError("metadata", repr(metadata), "must be a list, one per item")
        if metadata is not None:
            texts = [None if values is None else _as_json("metadata", values) for values in metadata]
        if len(texts) != len(names):
            raise InputError("metadata", f"{len(texts):,} for {len(names):,} items", hint="give one per item, or None")
        with self._store.lock() as content:
            position_by_id = self._position_of(content)
            if existing_id := next((name for name in names if name in position_by_id), None):
                raise InputError(
                    "ids", f"'{existing_id}' is in the index", hint="remove it first, or choose another id"
                )
            if names:
                self._store.append(names, vectors, texts, states or [None] * len(names), norm)
                content = self._store.content()
                position_by_id.update(
                    zip(names, range(content.state.count - len(names), content.state.count), strict=True)
                )
                self._positions = content, position_by_id

    def set_states(self, states: Mapping[str, str]) -> None:
        """Records the states of the files of items by id: files that were copied, whose content is the same."""
        with self._store.lock() as content:
            positions = self._position_of(content)
            self._store.set_states({positions[name]: state for name, state in states.items()})

    def leave_out(self, images: Iterable[LeftOut]) -> None:
        """Records images that are not added, until `add` adds them or `remove` forgets them."""
        with self._store.lock():
            self._store.leave_out(images)

    def remove(self, ids: Sequence[str]) -> int:
        """Removes items: all of them, or none if it fails or the process is killed.

        They are never found again. Their vectors stay on disk until `compact`. An image that is left out is forgotten.

        Args:
            ids: ids; or folders or shards, for all their images.

        Returns:
            The number of images.
        """
        positions: list[int] = []
        below: dict[str, list[int]] = {}
        with self._store.lock() as content:
            position_by_id = self._position_of(content)
            for name in _names(ids):
                if name in position_by_id:
                    positions.append(position_by_id[name])
                else:
                    below[name] = [row for each, row in position_by_id.items() if each.startswith(f"{name}/")]
            return self._store.remove(positions, below) if positions or below else 0

    def bind(self, embedder: ImageEmbedder, run: str = "") -> None:
        """Records the model of the embeddings, in place of what was recorded.

        It is taken at your word: `contml.retrieval.index_images.bind` checks it with images of the index.

        Args:
            embedder: the model.
            run: where it is.
        """
        with self._store.lock():
            self._store.commit_model(_facts(embedder, run))

    def build(self, progress: Callable[[int], None] | None = None, *, cluster: str = "") -> None:
        """Brings the search structure up to date. If it is killed, the next call continues after the last saved part.

        Args:
            progress: called with the number of items in the structure.
            cluster: the address of a Ray cluster that makes the parts of IVF-PQ, as in `contml.work.run`.
        """
        with self._store.lock(wait=True):
            self._build(progress, cluster)
        CodeParts(self.path).remove()

    def _missing_codes(self) -> Codes | None:
        """The codes of IVF-PQ that are to be made; None if the structure is up to date, or of another kind."""
        state = self._store.content().state
        file, kind = state.structure, _kind(state)
        is_current = file is not None and (file.kind, file.count) == (kind, state.count)
        if kind != "ivf_pq" or (file is not None and is_current and self._store.structure_path(file.number).exists()):
            return None
        return Codes(self._store)

    def _build(self, progress: Callable[[int], None] | None, cluster: str = "") -> None:
        content = self._store.content()
        state, old_file = content.state, content.state.structure
        kind, path = _kind(state), self._store.structure_path
        if kind == "flat":
            if old_file is not None:
                self._store.commit_structure(None, state.compared)
            return
        is_current = old_file is not None and (old_file.kind, old_file.count) == (kind, state.count)
        if old_file is not None and is_current and old_file.recall is not None and path(old_file.number).exists():
            return
        codes = self._missing_codes()
        # Read again: a search in another thread may use the one in memory.
        structure = None if old_file is None else load(path(old_file.number), old_file, content.vectors)
        if codes is not None:
            with codes.parts.command(str(self.path)):
                codes.make(progress, cluster)
                structure = codes.structure(state.last + 1)
            self._store.commit_structure(structure.file)
        elif structure is None or (structure.file.kind, structure.file.count) != (kind, state.count):
            for structure in grow(kind, content.vectors, structure, path, state.last + 1):  # noqa: B020
                self._store.commit_structure(structure.file)
                if progress is not None:
                    progress(structure.file.count)
        assert structure is not None
        if structure.file.recall is None and state.live > 1:
            file = tuned(structure, content.vectors, content.live, state.norm)
            if self.kind == "auto" and (file.recall or 0) < RECALL:
                self._store.commit_structure(None, compared=state.count)
            else:
                self._store.commit_structure(file)

    def compact(self, progress: Callable[[int], None] | None = None) -> None:
        """Deletes the vectors of removed items from disk, and builds the search structure again, if there is one.

        If it is killed, the index is as before, or compacted with a part of its search structure.
        """
        with self._store.lock() as content:
            if content.state.live < content.state.count:
                self._store.compact()
                if content.state.structure is not None:
                    self._build(progress)
        CodeParts(self.path).remove()

    # -- searching -------------------------------------------------------------------------------------------------

    def search(self, queries: Any, k: int = 10) -> SearchResult:
        """Finds the k nearest items of each query; all items if there are fewer.

        Args:
            queries: embeddings `[Q, d]` (an array or tensor of numbers), or images for the embedder.
            k: how many.
        """
        check_whole(1, k=k)
        if not (isinstance(queries, np.ndarray | torch.Tensor) and queries.ndim == 2):
            if self.embedder is None:
                allowed = f"must be embeddings [Q, {self.dim}]"
                raise InputError("queries", type(queries).__name__, allowed, "for images, open with an embedder")
            queries = self.embedder.embed(queries)
        vectors, _ = self._vectors("queries", queries)
        while True:
            content, searcher = self._current()
            count = min(int(k), content.state.live)
            nearest = searcher.nearest(vectors, count)
            distances = np.sqrt(nearest.squared).astype(np.float32)
            try:
                return self._search_result(content, nearest.positions, distances)
            except ChangedError:
                continue

    def recall(self, sample: int = 100, k: int = 10, seed: int = 0) -> float:
        """The share of the true k nearest items that `search` finds, for a sample of items as queries.

        An item is no result of its own. An item as near as the k-th counts as right.

        Returns:
            The mean over the sample, `nan` with fewer than two items.
        """
        check_whole(1, sample=sample, k=k)
        content, searcher = self._current()
        rows = np.flatnonzero(content.live)
        if len(rows) < 2:
            return float("nan")
        query_rows = np.sort(np.random.default_rng(seed).choice(rows, min(sample, len(rows)), replace=False))
        limits = true_nearest(Searcher(content.vectors, content.live, content.state.norm), query_rows, k)
        return share_found(searcher, query_rows, limits, k)

    def _current(self) -> _Loaded:
        """What is to be searched now, read again if it has changed."""
        with self._loading:
            content, loaded = self._store.content(), self._loaded
            if loaded is None or loaded.content is not content:
                structure, file = None if loaded is None else loaded.searcher.structure, content.state.structure
                if file is None:
                    structure = None
                elif structure is None or structure.file != file:
                    structure = load(self._store.structure_path(file.number), file, content.vectors)
                searcher = Searcher(content.vectors, content.live, content.state.norm, structure)
                self._loaded = loaded = _Loaded(content, searcher)
            return loaded

    def _search_result(self, content: Content, positions: Positions, distances: Floats) -> SearchResult:
        result_metadata = None
        if content.state.described:
            metadata = self._store.metadata(content, np.unique(positions).tolist())
            result_metadata = [[metadata[position] for position in row] for row in positions.tolist()]
        return SearchResult(content.ids[positions], distances, result_metadata)

    def _position_of(self, content: Content) -> dict[str, int]:
        """The positions of all items by id."""
        if self._positions is None or self._positions[0] is not content:
            rows = np.flatnonzero(content.live)
            self._positions = content, dict(zip(content.ids[rows].tolist(), rows.tolist(), strict=True))
        return self._positions[1]

    def _vectors(self, name: str, values: Any) -> tuple[Floats, float]:
        """A copy of the vectors in float32, checked, and the largest of their norms."""
        try:
            array = np.asarray(values.detach().cpu().double() if isinstance(values, torch.Tensor) else values)
            if array.dtype.kind not in "fiu":
                raise TypeError(f"an array of {array.dtype}")
            with np.errstate(over="ignore"):
                vectors: Floats = np.array(array, np.float32, order="C")
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise InputError(name, one_line(error), f"must be numbers [N, {self.dim}]") from None
        if vectors.ndim != 2 or vectors.shape[1] != self.dim:
            raise InputError(name, f"shape {list(vectors.shape)}", f"must be [N, {self.dim}]")
        norms = np.sqrt(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64))
        if len(invalid := np.flatnonzero(~(norms <= _LARGEST))):
            problem = (
                "are not finite" if not np.isfinite(vectors[invalid[0]]).all() else f"have a norm above {_LARGEST:g}"
            )
            raise InputError(name, f"the numbers of row {invalid[0]} {problem}")
        return vectors, float(norms.max(initial=0))


def _kind(state: IndexState) -> Kind:
    """The kind of structure that an index is to have now: "flat" for none."""
    kind = kind_for(state.kind, state.live)
    few = state.count < FEWEST or (state.kind == "auto" and state.count < COMPARED_GROWTH * state.compared)
    return "flat" if few else kind


def _facts(embedder: ImageEmbedder | None, run: str) -> dict[str, Any]:
    """What an index records of its model."""
    facts = {"identity": "" if embedder is None else embedder.identity, "run": run}
    return {name: value for name, value in facts.items() if value}


def _known(positions: Mapping[str, int], name: str) -> int:
    if name not in positions:
        raise InputError("ids", f"'{name}' is not in the index")
    return positions[name]


def _names(ids: Sequence[str]) -> list[str]:
    """A list of ids, checked."""
    if isinstance(ids, str) or not isinstance(ids, Iterable):
        raise InputError("ids", repr(ids), "must be a list of texts")
    names = list(ids)
    for name in names:
        if not isinstance(name, str) or not name:
            raise InputError("ids", repr(name), "must be texts that are not empty")
        try:
            name.encode()
        except UnicodeEncodeError:
            raise InputError("ids", repr(name), "must be valid Unicode: rename the file") from None
    if len(set(names)) < len(names):
        raise InputError("ids", f"'{Counter(names).most_common(1)[0][0]}' appears twice", hint="give each once")
    return [str(name) for name in names]  # plain str: names from a numpy array have a type of numpy


def _as_json(name: str, values: Any) -> str:
    if not isinstance(values, Mapping) or not all(isinstance(key, str) for key in values):
        raise InputError(name, repr(values), "must be JSON values by name")
    try:
        text = json.dumps(dict(values), allow_nan=False, ensure_ascii=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(name, one_line(error), "must be JSON values by name") from None
    return text
