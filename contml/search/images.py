"""Images in an index: adding the missing ones, with metadata from a table, and the model of an index."""

from __future__ import annotations

import re
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
from contml.data.sources import BoxCrop, ImageFile, box_names, box_of
from contml.data.text_files import written_path
from contml.evaluation.embed_parts import EmbedRows, Mask, Parts, Rows
from contml.search.embedder import Embedder
from contml.search.index import Index
from contml.search.inputs import NamedImage, changed, split_of, typed_cells
from contml.search.segments import ROWS, Metadata

if TYPE_CHECKING:
    from contml.data.tables import TableOptions

#: The name under which the path of an image is kept in its metadata.
FILE = "file"
#: The name under which the box of an image is kept in its metadata: x, y, width and height.
BOX = "box"
#: Images whose paths are compared with the paths in the index at a time.
_COMPARED = 4096


@dataclass(frozen=True)
class IndexModel:
    """The model that an index was made with.

    Attributes:
        index: the folder of the index.
        identity: the identity of the model (`contml.models.identity`). Empty if it was not recorded.
        run: the folder of the model at the time. Empty if it was not recorded.
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
        """The folder of the model. None if it was not recorded."""
        return None if not self.run or "\0" in self.run else Path(self.run)

    def check(self, identity: str, name: str = "model") -> None:
        """Check that a model is the model of the index.

        Args:
            identity: the identity of the model.
            name: the name of the model, for errors.

        Raises:
            InputError: it is another model, or the model of the index was not recorded.
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
    """The result of `add_images`.

    Args:
        added: number of images that were added.
        resumed: number of added images that an interrupted call had embedded.
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
    """Make an empty index of the embeddings and label vectors of a model, and record the folder of the model."""
    texts = {"identity": model.identity, "run": str(run.absolute())}
    return Index.create(path, model.embedding_dim, texts, label_dim=model.label_dim)


def add_images(
    index: Index,
    model: Embedder,
    images: Sequence[NamedImage],
    metadata: Metadata | None = None,
    progress: Callable[[int], None] = lambda _: None,
    *,
    cluster: str = "",
) -> Added:
    """Add images that are not in the index. If the call is interrupted, the next call continues.

    Embeddings are kept in a hidden folder beside the index until all images have one. Then they are added, 65,536 at a
    time, in the order of the images. Images that were removed from the index stay out of it, unless their files
    changed.

    Args:
        index: the index.
        model: embeds the images.
        images: files, each with a name of its own.
        metadata: of images by name, as `read_metadata` returns it. The path of the file is added to it.
        progress: called with the number of images done.
        cluster: the address of a Ray cluster that embeds, as in `contml.work.run`. Its machines need the images too.

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
        parts = Parts(index.path, f"{model.identity[:16]}-{index.dim}", {"images": split}, new)

        def on_done(item: Rows) -> None:
            nonlocal embedded
            embedded += len(item.rows)
            progress(embedded)

        loader = model.images(broken="skip")
        embed = EmbedRows({"images": split}, model.model, loader, model.device)
        try:
            work.run([each for each in parts.items if each.rows], embed, parts, cluster=cluster, on_done=on_done)
        finally:
            loader.close()
        _add_parts(index, model, parts, images, metadata or {}, result)
        parts.remove()
    result.resumed = max(0, count - embedded)
    progress(count)
    return result


def _new_rows(index: Index, images: Sequence[NamedImage], result: Added) -> Mask:
    """Return which images to embed, bool `[N]`. The other images are counted in `result`.

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
    """Find files of images in an index that have changed since.

    Return a mapping from the path of the file to the command option that removes the image.

    Raises:
        InputError: an image has another path.
    """
    found, names = dict[str, str](), [image.name for image in images]
    for image, entry, source in zip(images, index.metadata(names), index.sources(names), strict=True):
        path = str(image.file.absolute())
        if (stored_path := entry.get(FILE)) != path:
            problem = f"the name of {path}, and of {stored_path}, which is in {index.path}"
            raise InputError(image.name, problem, hint="remove that one first, or give a folder that holds both")
        if entry.get(BOX) != _place(image).get(BOX) or _is_unchanged(image.file, source) is False:
            found[str(image.file) if image.box is None else image.name] = f"--remove {quote(image.name)}"
    return found


def _place(image: NamedImage) -> dict[str, str]:
    """Return the file of an image and its box, as an index keeps them."""
    place = {FILE: str(image.file.absolute())}
    if image.box is not None:
        left, top, right, bottom = image.box
        place[BOX] = f"{left:g} {top:g} {right - left:g} {bottom - top:g}"
    return place


def source_of(file: Path, box: object) -> ImageFile | BoxCrop:
    """Return the image of an item of an index, by its file and its box. Without a box, return the whole image."""
    words = str(box).split(" ")
    try:
        return BoxCrop(file, box_of([float(word) for word in words])) if len(words) == 4 else ImageFile(file)
    except ValueError:
        return ImageFile(file)


def _source(file: Path, digest: bytes) -> str | None:
    """Return the record of an image file in an index: its size, times of change, and digest.

    Return None if it is gone.
    """
    try:
        status = file.stat()
    except OSError:
        return None
    # The second time cannot be set. It differs if a file was replaced by one of the same size and first time.
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {digest.hex()}"


def _is_unchanged(file: Path, source: str | None) -> bool | None:
    """Return True if a file is as an index has it. Return None if it is gone, or if there is no record.

    If only a time differs, as after a copy or a download, the bytes are compared.
    """
    size, digest = (source or "").split(" ")[0], (source or "").split(" ")[-1]
    now = _source(file, bytes.fromhex(digest) if re.fullmatch("([0-9a-f]{2})+", digest) else b"")
    if source is None or now is None:
        return None
    return now == source or (now.split(" ")[0] == size and digest_of(str(file)).hex() == digest)


def shown_files(index: Index, ids: Sequence[str], metadata: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the image file of each item. Return "" for a file that does not hold the bytes that were indexed.

    An index may come from a stranger. A stranger can name any picture of the user, but does not know its content.
    """
    pairs = zip([str(entry.get(FILE, "")) for entry in metadata], index.sources(ids), strict=True)
    return [file if (source or "").split(" ")[-1] == digest_of(file).hex() else "" for file, source in pairs]


def _add_parts(
    index: Index, model: Embedder, parts: Parts, images: Sequence[NamedImage], metadata: Metadata, result: Added
) -> None:
    """Add the embeddings of all parts to an index, in the order of the images, a segment at a time."""
    held: list[tuple[NamedImage, Any, bytes]] = []

    def commit() -> None:
        segment, held[:] = held[:ROWS], held[ROWS:]
        names = [image.name for image, _, _ in segment]
        entries = [{**metadata.get(image.name, {}), **_place(image)} for image, _, _ in segment]
        sources = [_source(image.file, digest) for image, _, digest in segment]
        vectors = np.stack([vector for _, vector, _ in segment])
        label_vectors = None if index.label_dim is None else model.label_vectors(vectors)
        index.add(names, vectors, entries, sources, label_vectors=label_vectors)
        result.added += len(names)

    for item in (each for each in parts.items if each.rows):
        part, wanted = parts[item.key], {*item.rows}
        digests = dict(zip(sorted({*part.rows.tolist(), *part.broken}), part.digests.numpy(), strict=True))
        rows = zip(part.rows.tolist(), part.embeddings.numpy(), strict=True)
        held += [(images[row], vector, digests[row].tobytes()) for row, vector in rows if row in wanted]
        result.broken |= {images[row].name: cause for row, cause in part.broken.items() if row in wanted}
        while len(held) >= ROWS:
            commit()
    if held:
        commit()


def read_metadata(table: Path, images: Sequence[NamedImage], options: TableOptions | None = None) -> Metadata:
    """Read the metadata of images from a table. A row belongs to the image that its column "image" names.

    A column whose cells are all numbers has numbers. A column with leading zeros, or more than 15 whole digits, has
    texts.

    Args:
        table: the file: CSV, TSV, JSON, Parquet or Excel. Its paths of images are relative to its folder, or names of
            `images`.
        images: the images that are wanted. Other rows are not used.
        options: how the table is read. Default: every cell that is not empty has a value.

    Raises:
        InputError: there is no such file or column, an image has two rows, or no row is of these images.
    """
    from contml.data.tables import TableOptions, read_table  # here: it imports pyarrow

    rows = read_table(table, options or TableOptions(missing_words=[]))
    paths = rows.texts("image", "images")
    if any(image.box is not None for image in images):
        paths = box_names(paths)
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
        example = f"such as {images[0].name}"
        raise InputError(str(table), "no row is of these images", f"must be their paths or names {example}")
    wanted = [*row_by_name.values()]
    cells = {name: typed_cells(values.texts(wanted)) for name, values in rows.columns.items() if name != "image"}
    return {name: {key: values[position] for key, values in cells.items()} for position, name in enumerate(row_by_name)}
