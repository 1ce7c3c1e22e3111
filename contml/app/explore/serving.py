"""A server of the page on one machine, which also searches with images that are dropped on the page."""

from __future__ import annotations

import io
import json
import math
import socket
import sys
import traceback
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

import torch

from contml._support.errors import InputError, one_line
from contml._support.files import read_bytes
from contml._support.text import percent
from contml.app.explore.items import NEIGHBOURS, Explored
from contml.app.explore.page import DATA, LABELS, PAGE, PICTURES
from contml.data.decode import cause, decode
from contml.distances import nearest_vectors
from contml.search import Embedder
from contml.search.results import SAME

#: The largest image that is accepted, in bytes, and the seconds that a client may be silent.
LIMIT, _TIMEOUT = 20 << 20, 30
#: Where the page posts an image, and the header without which it is refused: no other page can send it.
SEARCH, HEADER = "/search", "X-Contml"
_TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".jpg": "image/jpeg"}
#: Headers of all answers: no other page can read data or pictures.
_HEADERS = (
    *(("Cache-Control", "no-store"), ("Content-Security-Policy", "frame-ancestors 'none'")),
    *(("Cross-Origin-Resource-Policy", "same-origin"), ("X-Content-Type-Options", "nosniff")),
)
#: Names of this machine alone.
_LOOPBACK = ("127.0.0.1", "localhost")


def server(
    folder: Path, explored: Explored, models: Sequence[Embedder], host: str = "127.0.0.1", port: int = 0
) -> ThreadingHTTPServer:
    """Return a server of the page with its data and pictures. It serves nothing else. `serve_forever` runs it.

    Args:
        folder: the folder that `write_page` wrote.
        explored: the content of the page.
        models: the model of each view, to search with the user's own images. Empty if the page does not search with
            them.
        host: the address to listen on.
        port: the port. 0 means any free port.

    Raises:
        InputError: the address cannot be used, as when another program uses the port.
    """
    served = [PAGE, DATA, LABELS, *(f"{PICTURES}/{row}.jpg" for row in range(len(explored.split)))]
    files = {"/": folder / PAGE, **{f"/{name}": folder / name for name in served}}
    lock = Lock()  # one image at a time: models are not made for several threads

    def found(content: bytes) -> list[dict[str, Any]]:
        with lock:
            return search(explored, models, content)

    names = {*_LOOPBACK, host.lower(), socket.gethostname().lower()}
    own = {"served": files, "names": names, "search": staticmethod(found) if models else None}
    try:
        return _Server((host, port), type("PageHandler", (_Handler,), own))
    except (OSError, OverflowError) as error:
        cause, hint = (
            error.strerror if isinstance(error, OSError) else one_line(error),
            "choose another --port or --host",
        )
        raise InputError(f"{host}:{port}", f"cannot be used ({cause})", hint=hint) from None


def search(explored: Explored, models: Sequence[Embedder], content: bytes) -> list[dict[str, Any]]:
    """Find the nearest items of an image file for each model: rows, distances, and the label distances that they mean.

    Raises:
        InputError: it is not an image.
    """
    try:
        image = decode(io.BytesIO(content), "image")
    except OSError as error:
        raise InputError("image", f"cannot be decoded ({cause(error)})") from None
    answers = []
    for view, model in zip(explored.views, models, strict=True):
        embedding = torch.from_numpy(model.embed([image]))
        gallery = explored.gallery
        nearest = nearest_vectors(embedding, view.embeddings[gallery], min(NEIGHBOURS, len(gallery)))
        distances, rows = nearest.values[0].sqrt(), gallery[nearest.positions[0]].tolist()
        meanings = _meanings(model, distances.numpy())
        same = [_is_copy(explored, row, content) for row in rows]
        if any(same):
            meanings = [SAME if copy else text for copy, text in zip(same, meanings or [""] * len(rows), strict=True)]
        answers.append({"rows": rows, "distances": distances.tolist(), "meanings": meanings})
    return answers


def _is_copy(explored: Explored, row: int, content: bytes) -> bool:
    """Return True if an item is a whole file of this content."""
    stamp = explored.split.images[row].stamp
    if stamp is None or stamp.crop:
        return False
    try:
        return stamp.file.stat().st_size == len(content) and read_bytes(stamp.file, LIMIT) == content
    except (InputError, OSError):
        return False


def _meanings(model: Embedder, distances: Any) -> list[str] | None:
    """Return the label distances that embedding distances mean. Return None if the model is not calibrated."""
    calibration = model.bundle.calibration
    if calibration is None:
        return None
    if calibration.kind != "interval":
        return [f"same class: {percent(probability)}" for probability in model.same_class(distances).tolist()]
    ranges = zip(*(values.tolist() for values in model.label_distance(distances)), strict=True)
    return ["" if math.isnan(value) else model.measure.text(value, low, high) for value, low, high in ranges]


class _Server(ThreadingHTTPServer):
    """A server that prints nothing when a browser closes a connection, as it does when a page is left or reloaded."""

    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print any other error, which is an error of this program."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    """A handler that sends the files of a table, and answers images."""

    served: dict[str, Path]
    search: Callable[[bytes], list[dict[str, Any]]] | None
    names: Collection[str]
    timeout = _TIMEOUT
    server_version, sys_version = "contml", ""

    def do_GET(self) -> None:
        """Send a file of the page."""
        if not self._is_local():
            return
        try:
            file = self.served[self.path.partition("?")[0]]
            content = file.read_bytes()
        except (KeyError, OSError):
            self._answer(HTTPStatus.NOT_FOUND, b"not found", "text/plain")
        else:
            self._answer(HTTPStatus.OK, content, _TYPES[file.suffix])

    def do_POST(self) -> None:
        """Answer an image with its nearest items, as JSON."""
        if not self._is_local():
            return
        length = self.headers.get("Content-Length", "")
        if self.path != SEARCH or self.search is None or self.headers.get(HEADER) is None:
            self._refuse(HTTPStatus.NOT_FOUND, "not found")
        elif not (length.isascii() and length.isdecimal()):
            self._refuse(HTTPStatus.LENGTH_REQUIRED, "the length of the content is missing")
        elif len(length) > 15 or int(length) > LIMIT:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"larger than {LIMIT >> 20} MB")
        else:
            content = self.rfile.read(int(length))
            if len(content) < int(length):
                raise ConnectionAbortedError  # it was closed before the image had come
            try:
                results = self.search(content)
            except InputError as error:
                self._refuse(HTTPStatus.BAD_REQUEST, str(error))
            except Exception as error:  # such as no memory left
                traceback.print_exc()
                self._refuse(HTTPStatus.INTERNAL_SERVER_ERROR, f"the search failed ({one_line(error)})")
            else:
                self._answer(HTTPStatus.OK, json.dumps(results).encode(), "application/json")

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Print nothing: a page has thousands of pictures."""

    def _is_local(self) -> bool:
        """Return True if the page was opened by an IP address, or by a name of this machine.

        Another name may belong to another site (DNS rebinding), so it is refused.
        """
        name = ""
        with suppress(ValueError):
            name = urlsplit(f"//{self.headers.get('Host', '')}").hostname or ""
            ip_address(name)
            return True
        if name not in self.names:
            self._refuse(HTTPStatus.FORBIDDEN, "open the page by the address that was printed")
            return False
        return True

    def _refuse(self, status: HTTPStatus, message: str) -> None:
        self.close_connection = True  # what it sent is not read
        self._answer(status, json.dumps({"error": message}).encode(), "application/json")

    def _answer(self, status: HTTPStatus, content: bytes, kind: str) -> None:
        self.send_response(status)
        for name, value in (("Content-Type", kind), ("Content-Length", str(len(content))), *_HEADERS):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)
