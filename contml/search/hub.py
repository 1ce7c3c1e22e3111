"""The Hugging Face hub: bundles downloaded from it, and a trained model as a module that it knows how to upload."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from torch import Tensor, nn

from contml._support.errors import InputError, one_line
from contml.search.bundle import CARD, LABELS, PLACE, RECORD, WEIGHTS

try:
    from huggingface_hub import PyTorchModelHubMixin, errors, snapshot_download
except ImportError:
    raise InputError("hub", "needs huggingface_hub", hint='pip install "contml[hub]"') from None

if TYPE_CHECKING:
    from contml.search.embedder import Embedder

_ADDRESS = re.compile(r"hf:/{1,2}([^/@]+/[^/@]+)(?:@(.+))?")  # a Path has lost a slash


def download(address: str, **options: Any) -> Path:
    """The folder of a bundle on the hub, downloaded into the cache of huggingface_hub unless it is there.

    Without a network, it is read from the cache.

    Args:
        address: "hf://user/name", or "hf://user/name@revision": a branch, a tag or a commit.
        options: of `huggingface_hub.snapshot_download`: `local_files_only`, `token`, `cache_dir`, `force_download`.

    Raises:
        InputError: it is no address, there is no such repository or none that may be read, it is no bundle, or it is
            neither in the cache nor can be downloaded.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise InputError("hub", address, "must be hf://USER/NAME or hf://USER/NAME@REVISION")
    name, revision = match.groups()
    subject = f"hf://{name}{f'@{revision}' if revision else ''}"
    files = [RECORD, WEIGHTS, LABELS, CARD]
    try:
        snapshot = snapshot_download(name, revision=revision, allow_patterns=files, library_name="contml", **options)
    except Exception as error:  # of the network, of the hub, of the cache: each has its own
        raise _refusal(subject, error) from None
    folder = Path(snapshot)
    if not (folder / RECORD).is_file():
        raise InputError(subject, f"not a model of contml: no {RECORD}", hint="'contml export' writes one")
    return folder


class HubModel(nn.Module, PyTorchModelHubMixin):
    """A trained model as a `torch.nn.Module` with the methods of huggingface_hub.

    model = HubModel.from_pretrained("user/name")  # or a folder
    model.save_pretrained("folder")
    model.push_to_hub("user/name")

    Attributes:
        embedder: the model with its transform and calibration, as `contml.load` returns it.
        labels: whether labels of training items are written too.
    """

    def __init__(self, embedder: Embedder) -> None:
        super().__init__()
        self.embedder = embedder
        self.network = embedder.model
        self.labels = True  # no argument: the mixin writes arguments in a file of its own
        self._place = PLACE

    def forward(self, images: Tensor) -> Tensor:
        """Returns embeddings `[B, dim]` of images `[B, 3, H, W]`, uint8 or floats in 0..1, resized and cropped."""
        embeddings: Tensor = self.network(images)
        return embeddings

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | Path,
        *,
        force_download: bool = False,
        token: str | bool | None = None,
        cache_dir: str | Path | None = None,
        local_files_only: bool = False,
        revision: str | None = None,
        **model_kwargs: Any,
    ) -> Self:
        """Load the folder of a run or of a bundle, or "user/name" on the hub.

        Args:
            pretrained_model_name_or_path: the folder, or "user/name".
            force_download: download again what is in the cache.
            token: for a repository that is not public; None: that of 'hf auth login'.
            cache_dir: the cache; None: that of huggingface_hub.
            local_files_only: do not download; the bundle must be in the cache.
            revision: a branch, a tag or a commit.
            model_kwargs: `trust` and `device` of `contml.load`.

        Raises:
            InputError: as `contml.load`.
        """
        from contml.search.embedder import load

        folder = Path(pretrained_model_name_or_path)
        if not folder.is_dir():
            name = str(pretrained_model_name_or_path)
            address = f"hf://{name}{f'@{revision}' if revision else ''}"
            if not _ADDRESS.fullmatch(address):
                raise InputError(name, "no such folder", "must be a folder, or USER/NAME on the hub")
            options = {"force_download": force_download, "token": token, "cache_dir": cache_dir}
            folder = download(address, local_files_only=local_files_only, **options)
        return cls(load(folder, **model_kwargs))

    def _save_pretrained(self, save_directory: Path) -> None:
        self.embedder.save(save_directory, labels=self.labels, place=self._place)

    def push_to_hub(self, repo_id: str, **options: Any) -> str:
        """Upload the bundle with its model card; returns the address of the commit.

        Args:
            repo_id: "user/name"; made if there is no such repository.
            options: of `PyTorchModelHubMixin.push_to_hub`: `private`, `commit_message`, `branch`, `create_pr`, `token`.

        Raises:
            InputError: it is no name of a repository, or cannot be uploaded.
        """
        self._place = repo_id
        try:
            return super().push_to_hub(repo_id, **options)
        except (InputError, TypeError):
            raise
        except Exception as error:
            raise _refusal(repo_id, error) from None
        finally:
            self._place = PLACE


def _refusal(subject: str, error: Exception) -> InputError:
    """The error of huggingface_hub in one line."""
    if isinstance(error, errors.HFValidationError):
        return InputError(subject, one_line(error))
    if isinstance(error, errors.LocalEntryNotFoundError):
        return InputError(subject, "not in the cache, and the hub cannot be reached", hint="connect to the network")
    if isinstance(error, errors.RevisionNotFoundError):
        return InputError(subject, "no such revision")
    if isinstance(error, errors.RepositoryNotFoundError):  # also one that is gated
        return InputError(subject, "no such repository, or you have no access", hint="log in with 'hf auth login'")
    return InputError(subject, f"the hub cannot be used ({type(error).__name__}: {one_line(error)})")
