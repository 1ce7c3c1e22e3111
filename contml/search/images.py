"""Images in an index: add the missing ones, with metadata from a table; the model of an index."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Self
from unicodedata import normalize

import numpy as np

from contml import work
from contml._support.errors import InputError
from contml.data.copies import digest_of
from contml.data.text_files import written_path
from contml.evaluation.embed_parts import EmbedRows, Mask, Parts, Rows
from contml.search.embedder import Embedder, on_hub
from contml.search.index import Index
from contml.search.inputs import NamedImage, NamedImages, changed, split_of
from contml.search.segments import ROWS, Value

if TYPE_CHECKING:
    from contml.data.tables import TableOptions

#: The name under which the path of an image is kept in its metadata.
FILE = "file"
#: Images whose paths are compared with the paths in the index at a time.
_COMPARED = 4096
#: A cell of a table that is a number: no leading zeros, which codes have, and no more digits than a float holds.
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]{1,9})?")


@dataclass(frozen=True)
class IndexModel:
    """The model that an index was made with.

    Attributes:
        index: the folder of the index.
        identity: of the model (`contml.models.identity`); empty if it was not recorded.
        run: where the model was; empty if it was not recorded.
    """

    index: Path = field(compare=False)
    identity: str
    run: str

    @classmethod
    def of(cls, index: Index) -> Self:
        """Return the model of an index."""
        facts = index.model
        return cls(index.path, facts.get("identity", ""), facts.get("run", ""))

    @property
    def folder(self) -> Path | None:
        """Where the model is on this machine; None if it was not recorded, or is on the hub.

        An index may come from a stranger: the hub is asked only where the user names it.
        """
        return None if not self.run or on_hub(self.run) or "\0" in self.run else Path(self.run)

    def check(self, identity: str, name: str = "model") -> None:
        """Check that a model is this one.

        Args:
            identity: of the model.
            name: of the model, for errors.

        Raises:
            InputError: it is another one, or this one was not recorded.
        """
        if self.identity == identity:
            return
        if not self.identity:
            raise InputError(str(self.index), "made without a model of contml", hint="make a new index")
        if name == self.run or str(Path(name).absolute()) == self.run:
            hint = "it changed since; make a new index"
        else:
            hint = f"the index was made with {self.run or 'another model'}: use it, or make a new index"
        raise InputError(name, f"not the model of {self.index}", hint=hint)


@dataclass
class Added:
    """What `add_images` did.

    Args:
        added: number of images that were added.
        resumed: number of these that an interrupted call embedded.
        present: number of images that were in the index before.
        removed: number of images that are left out because they were removed from the index before.
        broken: name and cause of each image that could not be read. Each call tries them again.
    """

    added: int = 0
    resumed: int = 0
    present: int = 0
    removed: int = 0
    broken: dict[str, str] = field(default_factory=dict)


def create(path: Path, model: Embedder, run: Path) -> Index:
    """Make an empty index of the embeddings and label vectors of a model, whose place it records."""
    place = str(run if on_hub(run) else run.absolute())
    texts = {"identity": model.identity, "run": place}
    return Index.create(path, model.embedding_dim, texts, label_dim=model.label_dim)


def pending_text(index: Index) -> str:
    """Return that images are still to come, in words; empty for a whole index."""
    if not index.pending:
        return ""
    is_in = f"{len(index):,} of {len(index) + index.pending:,} images are in {index.path}"
    return f"{is_in}: 'contml index' was interrupted, or is at work; the same command adds the others"


def add_images(
    index: Index,
    model: Embedder,
    images: NamedImages | Sequence[NamedImage],
    metadata: Mapping[str, Mapping[str, Value]] | None = None,
    progress: Callable[[int], None] = lambda _: None,
    *,
    cluster: str = "",
) -> Added:
    """Add images that are not in the index. If it is interrupted, the next call continues.

    Embeddings are kept in a hidden folder beside the index until all are added, 65,536 at a time, in the order of the
    images. Images that were removed from the index stay out of it, unless their files changed.

    Args:
        index: the index.
        model: embeds the images.
        images: files, each with a name of its own.
        metadata: of images by name, as `read_metadata` returns it; the path of the file is added to it.
        progress: called with the number of images done.
        cluster: the address of a Ray cluster that embeds, as in `contml.work.run`: its machines share the images too.

    Raises:
        InputError: an image has the name of another file in the index, its file has changed since it was added, or
            another process changes the index.
    """
    result, split = Added(), split_of(images)
    if index.label_dim not in (None, model.label_dim):
        got = f"label vectors of {model.label_dim or 0} numbers, and of {index.label_dim} in {index.path}"
        raise InputError(model.bundle.name, got, hint="make a new index: 'contml evaluate' changed its labels")
    with index.lock():
        new = _new_rows(index, images, result)
        count, embedded = int(new.sum()), 0
        index.expect(count)
        parts = Parts(index.path, f"{model.identity[:16]}-{index.dim}", {"images": split}, new)
        adding = _Adding(index, model, parts, images, metadata or {}, result)

        def on_done(item: Rows) -> None:
            nonlocal embedded
            embedded += len(item.rows)
            progress(adding.add())

        loader = model.images(broken="skip")
        embed = EmbedRows({"images": split}, model.model, loader, model.device)
        try:
            work.run([each for each in parts.items if each.rows], embed, parts, cluster=cluster, on_done=on_done)
        finally:
            loader.close()
        adding.add(last=True)
        index.expect(0)
        parts.remove()
    result.resumed = max(0, count - embedded)
    progress(count)
    return result


def _new_rows(index: Index, images: Sequence[NamedImage], result: Added) -> Mask:
    """Return which images are to be embedded `[N]`; the others are counted in `result`.

    Raises:
        InputError: an image of the index is another one now.
    """
    is_new, removed = np.ones(len(images), bool), index.removed
    changed_files: dict[str, str] = {}
    for start in range(0, len(images), _COMPARED):
        present = []
        for row, image in enumerate(images[start : start + _COMPARED], start):
            path = str(image.file.absolute())
            if image.name in index:
                present.append(image)
            elif path != path.encode(errors="replace").decode():
                result.broken[image.name] = "its name is not valid Unicode: rename it"
            elif image.name in removed and _is_unchanged(image.file, removed[image.name]) is not False:
                result.removed += 1
            else:
                continue
            is_new[row] = False
        changed_files |= _changed(index, present)
        result.present += len(present)
    if changed_files:
        raise changed(changed_files, index.path, f"remove them: contml index --out {quote(str(index.path))}")
    return is_new


def _changed(index: Index, images: Sequence[NamedImage]) -> dict[str, str]:
    """Return the files of images of an index that have changed since, by path: the options that remove their images.

    Raises:
        InputError: an image has another path.
    """
    found, names = dict[str, str](), [image.name for image in images]
    for image, entry, source in zip(images, index.metadata(names), index.sources(names), strict=True):
        path = str(image.file.absolute())
        if (stored_path := entry.get(FILE)) != path:
            problem = f"the name of {path}, and of {stored_path}, which is in {index.path}"
            raise InputError(image.name, problem, hint="remove that one first, or give a folder that holds both")
        if _is_unchanged(image.file, source) is False:
            found[str(image.file)] = f"--remove {quote(image.name)}"
    return found


def _source(file: Path, digest: bytes) -> str | None:
    """Return what an index keeps of an image file: its size, times of change, and digest; None if it is gone."""
    try:
        status = file.stat()
    except OSError:
        return None
    # The second time cannot be set: it differs if a file was replaced by one of the same size and first time.
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {digest.hex()}"


def _is_unchanged(file: Path, source: str | None) -> bool | None:
    """Return whether a file is as an index has it; None if it is gone, or nothing is known of it.

    Where only a time differs, as after a copy or a download, the bytes are compared.
    """
    size, digest = (source or "").split(" ")[0], (source or "").split(" ")[-1]
    now = _source(file, bytes.fromhex(digest) if re.fullmatch("([0-9a-f]{2})+", digest) else b"")
    if source is None or now is None:
        return None
    return now == source or (now.split(" ")[0] == size and digest_of(str(file)).hex() == digest)


def shown_files(index: Index, ids: Sequence[str], metadata: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the image file of each item; "" if it does not hold the bytes that were indexed.

    An index may come from a stranger, who can name any picture of the user, but does not know its content.
    """
    files = [str(entry.get(FILE, "")) for entry in metadata]
    pairs = zip(files, index.sources(ids), strict=True)
    return [file if (source or "").split(" ")[-1] == digest_of(file).hex() else "" for file, source in pairs]


class _Adding:
    """Adds the embeddings of finished parts to an index, in the order of the images, a segment at a time."""

    def __init__(
        self,
        index: Index,
        model: Embedder,
        parts: Parts,
        images: Sequence[NamedImage],
        metadata: Mapping[str, Mapping[str, Value]],
        result: Added,
    ) -> None:
        self._index, self._model, self._parts, self._result = index, model, parts, result
        self._images, self._metadata = images, metadata
        self._left = deque(item for item in parts.items if item.rows)
        self._held: list[tuple[NamedImage, Any, bytes]] = []
        self._done = 0

    def add(self, *, last: bool = False) -> int:
        """Add what is finished, up to the first part that is not; returns the number of images done."""
        while self._left and self._left[0].key in self._parts:
            item = self._left.popleft()
            part, wanted, self._done = self._parts[item.key], {*item.rows}, item.end
            digests = dict(zip(sorted({*part.rows.tolist(), *part.broken}), part.digests.numpy(), strict=True))
            rows = zip(part.rows.tolist(), part.embeddings.numpy(), strict=True)
            self._held += [(self._images[row], x, digests[row].tobytes()) for row, x in rows if row in wanted]
            broken = {self._images[row].name: cause for row, cause in part.broken.items() if row in wanted}
            self._result.broken |= broken
            while len(self._held) >= ROWS:
                self._commit()
        if last and self._held:
            self._commit()
        return self._done

    def _commit(self) -> None:
        segment, self._held = self._held[:ROWS], self._held[ROWS:]
        names = [image.name for image, _, _ in segment]
        metadata = [{**self._metadata.get(image.name, {}), FILE: str(image.file.absolute())} for image, _, _ in segment]
        sources = [_source(image.file, digest) for image, _, digest in segment]
        vectors = np.stack([vector for _, vector, _ in segment])
        label_vectors = None if self._index.label_dim is None else self._model.label_vectors(vectors)
        self._index.add(names, vectors, metadata, sources, label_vectors=label_vectors)
        self._result.added += len(names)


def read_metadata(
    table: Path, images: Sequence[NamedImage], options: TableOptions | None = None
) -> dict[str, dict[str, Value]]:
    """Read the metadata of images from a table: the cells of a row, of the image that its column "image" names.

    A column whose cells are all numbers has numbers. Cells with leading zeros or more than 15 digits are texts.

    Args:
        table: the file: CSV, TSV, JSON, Parquet or Excel. Its paths of images are relative to its folder, or names of
            `images`.
        images: the images that are wanted; other rows are not used.
        options: how the table is read; None: every cell that is not empty has a value.

    Raises:
        InputError: there is no such file or column, an image has two rows, or no row is of these images.
    """
    from contml.data.tables import TableOptions, read_table  # here: it imports pyarrow

    rows = read_table(table, options or TableOptions(missing_words=[]))
    paths = rows.texts("image", "images")
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
    cells = {name: _typed(values.texts(wanted)) for name, values in rows.columns.items() if name != "image"}
    return {name: {key: values[position] for key, values in cells.items()} for position, name in enumerate(row_by_name)}


def _typed(texts: Sequence[str]) -> list[Value]:
    """Return the cells of a column as numbers, if all are; empty ones are missing."""
    if not all(not text or _NUMBER.fullmatch(text) for text in texts):
        return [text or None for text in texts]
    number = float if any("." in text for text in texts) else int
    return [number(text) if text else None for text in texts]
