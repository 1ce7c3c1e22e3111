"""`contml embed`: the embeddings of many images in a file."""

from __future__ import annotations

import copy
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from contml import work
from contml._support.endings import EMBEDDINGS, check_suffix
from contml._support.errors import InputError
from contml.data.features import Floats, Made, finished_file, write_features
from contml.data.shards import close
from contml.evaluation.embed import BATCH
from contml.evaluation.embed_parts import Parts, device_here, embed_to, key_of
from contml.retrieval.embedder import Embedder
from contml.retrieval.images import NamedImage, NamedImages, NamedShard, SourceItem, changed, shard_cause, split_of

#: The name of the images among the parts.
_SPLIT = "images"


class Written(NamedTuple):
    """What `embed_to_file` wrote."""

    images: int
    dim: int
    resumed: int  # images whose embeddings come from an earlier run
    broken: dict[str, str]  # name and cause of each image that is not in the file
    broken_shards: Mapping[str, str] = {}  # name and cause of each shard that cannot be read


def check_file(out: Path) -> None:
    """Checks that a file of embeddings can be written, or may be complete.

    Raises:
        InputError: another file has its name, or its suffix is another one.
    """
    check_suffix(out, EMBEDDINGS)
    finished_file(out)


def embed_to_file(
    embedder: Embedder,
    items: NamedImages | Sequence[SourceItem | NamedImage],
    out: Path,
    *,
    state: str = "",
    batch_size: int = BATCH,
    workers: int = 0,
    cluster: str = "",
    progress: Callable[[int], None] = lambda _: None,
) -> Written:
    """Write the names and the embeddings of images; broken images are left out.

    Parts are kept beside the file until all are written, so that an interrupted run continues where it stopped. A file
    that is complete, with these images embedded by this model, stays as it is. With `cluster`, the
    address of a Ray cluster (`contml.work.run`), its machines embed: they share the images too.
    `state` is a hash of the names and files of the images, if it is known. `progress` is called with the number of
    images finished so far.

    Raises:
        InputError: the file cannot be written there, the model embeds features, no image could be read, or another
            command writes the file.
    """
    check_file(out)
    check_takes_images(embedder)
    split, images = split_of(items), embedder.images(broken="skip", workers=workers)

    def write(names: list[str], values: Floats, made: Made) -> None:
        write_features(out, names, None, values, made)

    made, resumed = embed_to(
        out,
        _settings(embedder, batch_size),
        {_SPLIT: split},
        embedder.model,
        images,
        write,
        device=embedder.device,
        batch_size=batch_size,
        state=state,
        cluster=cluster,
        progress=progress,
    )
    return Written(made.items, made.dim, resumed, made.broken)


def embed_shards(
    embedder: Embedder,
    shards: Sequence[NamedShard],
    folder: Path,
    *,
    batch_size: int = BATCH,
    workers: int = 0,
    cluster: str = "",
    progress: Callable[[int], None] = lambda _: None,
) -> Written:
    """Write the embeddings of each shard in a Parquet file of its own: those of `0042.tar` in `folder/0042.parquet`.

    A shard is an item of work, and is opened by the process that does it alone. Its images are parts, as in
    `embed_to_file`: a shard that was interrupted continues. Files that are complete stay as they are. That of a shard
    that cannot be read has no rows, and is written again when the shard has changed.

    Args:
        embedder: the model.
        shards: the shards.
        folder: the folder of the files; it may have others.
        batch_size: images at a time.
        workers: processes that decode.
        cluster: the address of a Ray cluster that embeds: as in `embed_to_file`.
        progress: called with the number of shards finished so far.

    Raises:
        InputError: as `embed_to_file`; two shards have one name, or none can be read.
    """
    check_takes_images(embedder)
    shard_of: dict[Path, str] = {}
    for shard in shards:
        out = _file_of(folder, shard)
        if (other := shard_of.get(out)) is not None:
            is_repeated = other == shard.name
            problem = "appears twice" if is_repeated else f"its file, {out}, is that of {other} too"
            raise InputError(
                shard.name, problem, hint="give it once" if is_repeated else "give the folder that holds both"
            )
        if out.resolve() == Path(shard.address.file).resolve():
            raise InputError(str(out), "one of the shards that are read", hint="choose another folder")
        shard_of[out] = shard.name
        check_file(out)
    settings = _settings(embedder, batch_size)
    results = _ShardFiles(folder, settings, {shard.below: shard for shard in shards})
    items = [_ShardItem(shard) for shard in shards]
    results.check(items)
    embedded = 0

    def on_done(item: _ShardItem) -> None:
        nonlocal embedded
        embedded += results[item.key].items
        progress(sum(each.key in results for each in items))

    with results.command(str(folder)):
        function = _EmbedShard(embedder, folder, batch_size, workers)
        work.run(items, function, results, cluster=cluster, on_done=on_done)
    made = [results[item.key] for item in items]
    results.remove()
    progress(len(items))
    images = sum(each.items for each in made)
    broken = {name: cause for each in made for name, cause in each.broken.items()}
    damaged = {shard.name: broken.pop(shard.name) for shard in shards if shard.name in broken}
    for name, cause in (damaged | broken).items():
        if not images:
            raise InputError(name, f"cannot be read ({cause}), nor can any other image")
    return Written(images, embedder.embedding_dim, images - embedded, broken, damaged)


def check_takes_images(embedder: Embedder) -> None:
    """Refuse a model of features for a command that reads images.

    Raises:
        InputError: it is one.
    """
    if embedder.bundle.feature_dim is not None:
        problem = f"the model embeds vectors of {embedder.bundle.feature_dim} features, not images"
        hint = "embed them in Python: contml.load(...).embed(vectors); contml.search.Index keeps such embeddings"
        raise InputError(embedder.bundle.name, problem, hint=hint)


def _settings(embedder: Embedder, batch_size: int) -> dict[str, str]:
    """All that embeddings depend on but the images, by the name of the setting."""
    return {"model or --dim": embedder.identity[:16], "--batch-size": str(batch_size)}


def _file_of(folder: Path, shard: NamedShard) -> Path:
    """The file of the embeddings of a shard."""
    return folder / Path(shard.below).with_suffix(".parquet")


class _ShardItem:
    """A shard, as an item of work; its key also says the state of its file."""

    def __init__(self, shard: NamedShard) -> None:
        self.shard, self.state = shard, shard.state

    def __str__(self) -> str:
        return self.shard.name

    @property
    def key(self) -> str:
        return f"{self.shard.below}\n{self.state}"


class _ShardFiles(work.Files[Made]):
    """What the files of shards say about themselves.

    Args:
        folder: their folder.
        settings: all that embeddings depend on but the images, by the name of the setting.
        shards: the shards by their path below the folder that the user gave.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str], shards: Mapping[str, NamedShard]) -> None:
        super().__init__(folder / ".work", folder)
        self._settings, self._shards = settings, shards

    def _path(self, key: str) -> Path:
        return self._place / Path(key.partition("\n")[0]).with_suffix(".parquet")

    def check(self, items: Iterable[_ShardItem]) -> None:
        """Look for the files of all shards.

        Raises:
            InputError: shards have changed since: the error names all of them; or a file is of something else.
        """
        files: dict[str, str] = {}
        for item in items:
            try:
                item.key in self  # noqa: B015  # reads the file
            except _ChangedShardError as error:
                files[error.shard] = error.file
        if files:
            raise changed(files, next(iter(files.values())) if len(files) == 1 else self._place, "remove")

    def load(self, key: str, path: Path) -> Made | None:
        """What a file says, if it is there."""
        below, _, state = key.partition("\n")
        made, shard = finished_file(path), self._shards[below]
        if made is None or made.key == key_of("-".join(self._settings.values()), [state]):
            return made
        if not made.items:  # nothing is lost
            return None
        difference = made.difference(self._settings)
        if not difference and (name := made.state.rsplit(" ", 2)[0]) == shard.name:
            if _has_content(shard, state, made):
                return made
            raise _ChangedShardError(shard.address.file, str(path))
        got = f"exists already, {difference or f'of {name}'}"
        raise InputError(str(path), got, hint="remove it, or choose another folder")

    def save(self, value: Made, path: Path) -> None:  # noqa: ARG002
        """The file is there already: `embed_to_file` wrote it, perhaps on another machine."""
        raise InputError(
            str(path), "written on another machine, and not found", hint="machines need to share the folder"
        )


class _ChangedShardError(InputError):
    """A shard has changed since its file of embeddings was written.

    Attributes:
        shard: the path of the shard.
        file: its file of embeddings.
    """

    def __init__(self, shard: str, file: str) -> None:
        error = changed({shard: file}, file, "remove")
        super().__init__(error.subject, error.got, error.allowed, error.hint)
        self.shard, self.file = shard, file


def _has_content(shard: NamedShard, state: str, made: Made) -> bool:
    """Whether a file was made from the images that a shard has now; they are read if its size is the same."""
    if state.split(" ")[-2] != made.state.split(" ")[-2]:
        return False
    try:
        split = split_of(shard.images())
    except InputError:  # damaged since
        return False
    finally:
        close(shard.address)
    return Parts(Path(shard.below), "", {_SPLIT: split}).is_same(made)


class _EmbedShard:
    """Writes the file of a shard, in this process or on another machine."""

    def __init__(self, embedder: Embedder, folder: Path, batch_size: int, workers: int) -> None:
        self.embedder, self.folder, self.batch_size, self.workers = embedder, folder, batch_size, workers

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "embedder": copy.deepcopy(self.embedder).to("cpu")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.embedder.to(device_here())

    def __call__(self, item: _ShardItem) -> Made:
        shard = item.shard
        if shard.state != item.state:
            hint = "all machines need the same files, at the same paths; call the same command again"
            raise InputError(shard.name, f"another file on {socket.gethostname()}, or changed meanwhile", hint=hint)
        out = _file_of(self.folder, shard)
        if (empty := finished_file(out)) is not None and not empty.items:
            out.unlink()
        try:
            images = shard.images()
        except InputError as error:
            settings = _settings(self.embedder, self.batch_size)
            key = key_of("-".join(settings.values()), [item.state])
            made = Made(key, 0, 0, {shard.name: shard_cause(error)}, settings, item.state)
            write_features(out, [], None, np.zeros((0, 0), np.float32), made)
            return made
        try:
            written = embed_to_file(
                self.embedder,
                images,
                out,
                state=item.state,
                batch_size=self.batch_size,
                workers=self.workers,
            )
        finally:
            close(shard.address)
        return Made("", written.images, written.dim, written.broken)
