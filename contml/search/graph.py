"""A trained model as one file that runs without contml: a graph of ONNX.

    decoded image -> resize -> centre crop -> uint8 [N, H, W, 3] | -> floats -> mean and std -> network -> embeddings
                     described in the file, as JSON              |    in the graph

Features `[N, F]` go straight into the network.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from contml._support.errors import InputError, one_line
from contml._support.files import GRAPHS, check_new_file, check_suffix, temporary_folder, write_new
from contml.data.features import Floats

if TYPE_CHECKING:
    from contml.search.embedder import Embedder

#: The key of the description in ONNX's metadata_props.
KEY = "contml"
#: The largest difference from the embeddings of contml, as a share of their largest number.
_TOLERANCE = 1e-4
_TRACED, _CHECKED = 2, 3  # items


class Graph(NamedTuple):
    """A graph that was written.

    Attributes:
        file: its file.
        input: the name, type and shape of its input.
        difference: the largest difference from contml's embeddings of random items.
    """

    file: Path
    input: str
    difference: float


class _OfImages(nn.Module):
    """The network with images as NumPy and Pillow hold them, uint8 `[N, H, W, 3]`."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        return self.network(images.permute(0, 3, 1, 2))


def write_graph(embedder: Embedder, file: Path) -> Graph:
    """Write the network with its normalisation of pixels as a graph, for any number of items, and run it once.

    Args:
        embedder: the model.
        file: its suffix is `.onnx`.

    Raises:
        InputError: the file has another suffix, another file has its name, or it needs a package that is not
            installed; the model is a captioner, the network cannot be exported, or the graph gives other embeddings.
    """
    check_graph(file)
    if embedder.captioner is not None:
        problem, hint = "a captioner, whose search for words is no graph", "export a bundle, or a run of embeddings"
        raise InputError(embedder.bundle.name, problem, hint=hint)
    network = copy.deepcopy(embedder.model).to("cpu")
    crop, width = embedder.bundle.transform.crop, embedder.bundle.feature_dim
    generator = torch.Generator().manual_seed(0)
    module: nn.Module = network
    name, shape = "features", [width or 0]
    if width is None:
        module, name, shape = _OfImages(network), "images", [crop, crop, 3]
        items = torch.randint(0, 256, (_TRACED + _CHECKED, *shape), dtype=torch.uint8, generator=generator)
    else:
        items = torch.randn(_TRACED + _CHECKED, *shape, generator=generator)
    module = module.eval()
    dtype = str(items.dtype).removeprefix("torch.")
    description = json.dumps(_description(embedder, {"name": name, "dtype": dtype, "shape": ["N", *shape]}), indent=1)
    traced, checked = items[:_TRACED], items[_TRACED:]
    with torch.no_grad():
        expected = module(checked).numpy()
        try:
            save, run = _onnx(module, traced, name, description)
        except Exception as error:  # a user's own network may raise anything, and so may the libraries
            raise _not_exported(embedder, one_line(error)) from error
        with temporary_folder(file.parent, file) as temporary:
            path = temporary / file.name
            save(path)
            try:
                embeddings = run(path, checked.numpy())
            except Exception as error:
                raise _not_exported(embedder, f"it cannot be run: {one_line(error)}") from error
            difference = float(np.abs(embeddings - expected).max())
            if not difference <= _TOLERANCE * max(1.0, float(np.abs(expected).max())):
                raise _not_exported(embedder, f"its embeddings would differ by {difference:.2g}")
            write_new(file, path.read_bytes())
    return Graph(file, f"{name} {dtype} [N, {', '.join(map(str, shape))}]", difference)


def check_graph(file: Path) -> None:
    """Check that a graph can be written, or may be complete.

    Raises:
        InputError: the file has another suffix, another file has its name, or it needs a package that is not installed.
    """
    check_suffix(file, GRAPHS)
    missing = [name for name in ("onnx", "onnxscript", "onnxruntime") if find_spec(name) is None]
    if missing:
        raise InputError(str(file), f".onnx needs {', '.join(missing)}", hint='pip install "contml[onnx]"')
    check_new_file(file)


def _description(embedder: Embedder, given: dict[str, Any]) -> dict[str, Any]:
    """Return the description for a user of the graph: input, output, preprocessing, and the content of a bundle."""
    transform = embedder.bundle.transform
    preprocessing = [
        {"do": "decode", "channels": "RGB", "upright": "by EXIF", "jpeg_at_least": 2 * transform.resize},
        {"do": "resize", "height": transform.resize, "width": transform.resize, "filter": "bilinear, as in Pillow"},
        {"do": "crop", "height": transform.crop, "width": transform.crop, "place": "centre"},
    ]
    return {
        "input": given,
        "output": {"name": "embeddings", "dtype": "float32", "shape": ["N", embedder.embedding_dim]},
        "preprocessing": preprocessing if embedder.bundle.feature_dim is None else [],
        "identity": embedder.identity,
        "bundle": embedder.whole_bundle.model_dump(mode="json"),
    }


_Writer = tuple[Callable[[Path], Any], Callable[[Path, Any], Floats]]  # saves the graph; runs a saved one


def _onnx(module: nn.Module, items: Tensor, name: str, about: str) -> _Writer:
    """Export the network with torch.export and ONNX, for any number of items."""
    import onnxruntime

    # The shape of the input, whose first dimension is of any size. Here: torch.export.Dim imports for half a second.
    shapes = ({0: torch.export.Dim("N")},)
    with contextlib.redirect_stderr(io.StringIO()):  # on an error it prints the network so far
        program = torch.export.export(module, (items,), dynamic_shapes=shapes)
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # paths of this machine
    # The shapes again, for the name of the dimension.
    names: dict[str, Any] = {"input_names": [name], "output_names": ["embeddings"], "dynamic_shapes": shapes}
    graph = torch.onnx.export(program, (items,), dynamo=True, verbose=False, **names)
    assert graph is not None
    for node in graph.model.graph:
        node.metadata_props.pop("pkg.torch.onnx.stack_trace", None)
    graph.model.metadata_props[KEY] = about

    def run(path: Path, given: Any) -> Floats:
        return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {name: given})[0]

    return lambda path: graph.save(path, external_data=False), run


def _not_exported(embedder: Embedder, cause: str) -> InputError:
    return InputError(embedder.bundle.name, f"cannot be exported to ONNX ({cause})")
