"""The files of the page, the Parquet, the server and the command."""

import base64
import errno
import hashlib
import http.client
import io
import json
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image
from support.explored import NAMES, hostile
from support.processes import restore_ctrl_c
from support.refusals import refuses

import contml as library
from contml.app.explore import server as make_server, write_page
from contml.app.explore.serving import HEADER, LIMIT, SEARCH, search
from contml.data.sources import ImageFile, Pixels
from contml.search.results import SAME


def data_of(folder):
    text = (folder / "data.js").read_text(encoding="ascii")
    assert text.startswith("const DATA = ")
    return json.loads(text.removeprefix("const DATA = ").rstrip().rstrip(";"))


def test_the_data_are_those_of_the_runs(explored, tmp_path):
    assert write_page(tmp_path / "page", explored) == tmp_path / "page" / "index.html"
    data = data_of(tmp_path / "page")
    assert (data["names"], len(data["views"])) == (list(explored.split.names), 2)
    for view, written in zip(explored.views, data["views"], strict=True):
        for found, near in ((view.by_embedding, written["byEmbedding"]), (view.by_label, written["byLabel"])):
            assert near["rows"] == found.rows.tolist()
            assert np.allclose(near["distances"], found.distances, rtol=1e-4)
            assert np.allclose(near["labels"], found.label_distances / 14**0.5, rtol=1e-4)  # pixels per joint
        for row, (mean, oracle) in enumerate(written["means"]):
            if row in explored.split.queries:
                assert [mean, oracle] == pytest.approx((view.means[row] / 14**0.5).tolist(), rel=1e-4)
                assert written["errors"][row] == pytest.approx(mean - oracle, abs=1e-3)
            else:
                assert (mean, oracle, written["errors"][row]) == (None, None, None)
        assert np.min(written["points"]) >= 0
        assert np.max(written["points"]) == 1
    assert {path.name for path in (tmp_path / "page" / "images").iterdir()} == {f"{row}.jpg" for row in range(24)}
    with Image.open(tmp_path / "page" / "images" / "3.jpg") as picture:
        assert picture.size == (96, 96)


def test_hostile_names_are_text(tmp_path):
    write_page(tmp_path, hostile())
    page, data = (tmp_path / "index.html").read_text(), data_of(tmp_path)
    assert "<title>&lt;title&gt;&amp;</title>" in page
    assert data["names"] == [*NAMES[:2], "line\\nbreak\\u2028", "broken \\udcff utf"]
    assert "innerHTML" not in page
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page.replace("&#39;", "'"))
    assert f"script-src 'self' file: 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "http" not in page.replace("http-equiv", "")  # nothing from elsewhere
    assert not data["searchesLabels"]
    assert not (tmp_path / "labels.js").exists()


def test_a_broken_picture_is_crossed_out(tmp_path):
    broken = tmp_path / "broken.png"
    broken.write_text("<html>")
    sources = [ImageFile(broken), ImageFile(tmp_path / "none.png"), *[Pixels(np.zeros((9, 300, 3), np.uint8))] * 2]
    write_page(tmp_path / "page", hostile(sources=sources))
    for row, size in enumerate([(96, 96), (96, 96), (96, 3), (96, 3)]):
        with Image.open(tmp_path / "page" / "images" / f"{row}.jpg") as picture:
            assert picture.size == size


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with refuses("full", "not empty"):
        write_page(tmp_path / "full", hostile())
    with refuses("mine.txt", "not empty"):
        write_page(tmp_path / "full" / "mine.txt", hostile())


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_full_disk_leaves_nothing_and_the_same_call_finishes(tmp_path, monkeypatch):
    whole = tmp_path / "whole"
    write_page(whole, hostile())
    calls = []

    def failing(self, *content, write=Path.write_bytes):
        calls.append(self)
        if len(calls) == 3:
            raise OSError(errno.ENOSPC, "No space left on device", str(self))
        return write(self, *content)

    for name in ("new", "empty"):
        calls.clear()
        folder = tmp_path / name / "page"
        folder.parent.mkdir()
        if name == "empty":
            folder.mkdir()
        with monkeypatch.context() as patch, refuses(str(folder), "cannot be written (No space left on device)"):
            patch.setattr(Path, "write_bytes", failing)
            write_page(folder, hostile())
        assert [*folder.parent.rglob("*")] == ([folder] if name == "empty" else [])
        write_page(folder, hostile())
        assert contents(folder) == contents(whole)


def test_a_page_that_is_there_is_finished_complete_or_another(tmp_path):
    page = tmp_path / "page"
    write_page(page, hostile())
    for name in ("index.html", "images/2.jpg", "data.js"):
        (page / name).unlink()  # as after a kill
    write_page(page, hostile())
    write_page(page, hostile())
    with refuses(str(page / "data.js"), "exists already"):
        write_page(page, hostile(notes=["another"]))
    (page / "images" / "mine.jpg").touch()
    with refuses(str(page / "images/mine.jpg"), "exists already"):
        write_page(page, hostile())
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith(".")]


# -- the server --------------------------------------------------------------------------------------------------------


class Model:
    """Embeds an image as its mean colour, and one number more."""

    bundle = SimpleNamespace(calibration=None)

    def embed(self, images):
        return np.array([[*np.asarray(each).reshape(-1, 3).mean(0) / 255, 0] for each in images], np.float32)


@contextmanager
def serving(folder, explored, models):
    """A connection to a server of the page."""
    with make_server(folder, explored, models) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
        finally:
            server.shutdown()
            thread.join()


def ask(connection, method, path, body=None, **headers):
    connection.request(method, path, body, {HEADER: "1", **headers} if method == "POST" else headers)
    response = connection.getresponse()
    return response.status, response.read(), response.headers


def test_the_server_sends_its_page_and_nothing_else(tmp_path):
    page = tmp_path / "page"
    write_page(page, hostile())
    (page / "other.jpg").write_text("other")
    (tmp_path / "secret.txt").write_text("secret")
    with serving(page, hostile(), []) as connection:
        (page / "labels.js").write_text("const LABELS = {};")
        kinds = {".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".jpg": "image/jpeg"}
        for path in ("", "labels.js", "index.html?x", "data.js", "images/3.jpg"):
            file = page / (path.partition("?")[0] or "index.html")
            status, content, headers = ask(connection, "GET", f"/{path}")
            assert ((status, content), headers["Content-Type"]) == ((200, file.read_bytes()), kinds[file.suffix])
            policies = headers["Cross-Origin-Resource-Policy"], headers["X-Content-Type-Options"]
            assert policies == ("same-origin", "nosniff")
        for path in ("/images/4.jpg", "/other.jpg", "/../secret.txt", "/%2e%2e/secret.txt", "/images/", "*"):
            assert ask(connection, "GET", path)[0] == 404, path
        assert [ask(connection, "GET", "/", Host=host)[0] for host in ("evil.example:80", "localhost")] == [403, 200]
        assert ask(connection, "POST", SEARCH, b"x")[0] == 404  # without a model
        assert ask(connection, "DELETE", "/")[0] == 501
        (page / "data.js").unlink()
        assert ask(connection, "GET", "/data.js")[0] == 404


def encoded(picture, kind):
    buffer = io.BytesIO()
    picture.save(buffer, kind)
    return buffer.getvalue()


def png(colour, size=(6, 4)):
    return encoded(Image.new("RGB", size, colour), "PNG")


def test_an_own_image_that_is_a_copy_of_an_item_is_marked(tmp_path):
    (tmp_path / "red.png").write_bytes(png("red"))
    (tmp_path / "other.png").write_bytes(png("red", size=(8, 4)))
    colours = [Pixels(np.full((4, 6, 3), value, np.uint8)) for value in (0, 255)]
    explored = hostile(sources=[ImageFile(tmp_path / "red.png"), ImageFile(tmp_path / "other.png"), *colours])
    (found,) = search(explored, [Model()], png("red"))
    assert {row: text for row, text in zip(found["rows"], found["meanings"], strict=True) if text} == {0: SAME}
    (found,) = search(explored, [Model()], png("red", size=(9, 9)))
    assert found["meanings"] is None


def test_own_images_that_are_refused(tmp_path, monkeypatch):
    page = tmp_path / "page"
    write_page(page, hostile())
    with serving(page, hostile(), [Model()]) as connection:
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
        broken = b"", b"<html>", png("red")[:40], encoded(Image.new("RGB", (6, 4)), "EPS")
        for body, words in {**dict.fromkeys(broken, "cannot be decoded"), png("red", (400, 400)): "pixels"}.items():
            status, content, _ = ask(connection, "POST", SEARCH, body)
            assert status == 400
            assert words in json.loads(content)["error"]
        for length, expected in ((LIMIT + 1, 413), ("9" * 5000, 413), (-1, 411)):
            assert ask(connection, "POST", SEARCH, b"x", **{"Content-Length": str(length)})[0] == expected
        assert ask(connection, "POST", SEARCH, b"x", Host="evil.example")[0] == 403
        assert ask(connection, "POST", "/other", b"x")[0] == 404
        connection.request("POST", SEARCH, png("red"))  # a form of another page cannot send the header
        response = connection.getresponse()
        assert (response.status, response.read()) == (404, b'{"error": "not found"}')


def test_a_browser_that_disconnects_is_no_error(tmp_path, capsys):
    page = tmp_path / "page"
    write_page(page, hostile())
    (page / "data.js").write_bytes(b"x" * 10_000_000)  # more than the buffers of a connection
    requests = [
        b"GET /data.js HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /data.js HTTP/1.1\r\nHost: loc",
        f"POST {SEARCH} HTTP/1.1\r\nHost: localhost\r\n{HEADER}: 1\r\nContent-Length: 1000\r\n\r\nhalf".encode(),
    ]
    with serving(page, hostile(), [Model()]) as connection:
        for request in requests * 20:
            with socket.create_connection((connection.host, connection.port)) as client:
                client.sendall(request)
                if request.startswith(b"GET /data.js HTTP/1.1\r\nHost: localhost"):
                    client.recv(100)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # it resets
        assert ask(connection, "POST", SEARCH, png("lime"))[0] == 200
    assert capsys.readouterr() == ("", "")


def test_a_search_that_fails_is_told_in_words(tmp_path, capsys):
    class Broken(Model):
        def embed(self, images):
            raise MemoryError(f"no memory for {object()}")

    write_page(tmp_path / "page", hostile())
    with serving(tmp_path / "page", hostile(), [Broken()]) as connection:
        status, content, _ = ask(connection, "POST", SEARCH, png("lime"))
    assert (status, json.loads(content)) == (500, {"error": "the search failed (no memory for)"})
    assert "no memory" in capsys.readouterr().err  # an error of this program


def test_search_equals_the_embeddings_of_the_run(explored, runs):
    models = [library.load(folder) for folder in runs]
    row = explored.gallery[4].item()
    image = encoded(explored.split.picture(row), "PNG")
    for view, found in zip(explored.views, search(explored, models, image), strict=True):
        assert found["rows"][0] == row
        assert found["distances"][0] < 1e-3
        squared = (view.embeddings[row].double() - view.embeddings[explored.gallery].double()).square().sum(1)
        assert found["rows"] == explored.gallery[squared.argsort(stable=True)[:10]].tolist()
        wanted = [float(each) for each in models[0].label_distance(np.array(found["distances"]))[0]]
        assert len(found["meanings"]) == len(wanted)
        assert re.fullmatch(r"\S+ px/joint \(\S+ to \S+\)", found["meanings"][0])


# -- the command -------------------------------------------------------------------------------------------------------


def test_export(contml, runs, tmp_path):
    status, out, err = contml("explore", runs.first, runs.second, "--export", "page", "--items", "12")
    note = "page/labels.js has labels of training items: before you publish them, see that you may\n"
    assert (status, out, err) == (0, f"page/index.html\n{note}", "")
    assert data_of(tmp_path / "page")["ownImages"].startswith("Own images need a model")
    assert len(data_of(tmp_path / "page")["names"]) == 12


@pytest.mark.slow
def test_serve_until_ctrl_c(runs, tmp_path):
    command = [sys.executable, "-m", "contml", "explore", str(runs.first), "--port", "0"]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "cwd": tmp_path}
    with subprocess.Popen(command, **options, preexec_fn=restore_ctrl_c) as process:
        try:
            address = re.match(r"http://(127\.0\.0\.1:\d+)/", process.stdout.readline())
            assert address, process.stderr.read()
            connection = http.client.HTTPConnection(address[1], timeout=10)
            assert b'"ownImages":""' in ask(connection, "GET", "/data.js")[1]
            assert ask(connection, "POST", SEARCH, png("red"))[0] == 200
            process.send_signal(signal.SIGINT)
            assert (process.wait(10), process.stderr.read()) == (0, "stopped\n")
        finally:
            process.kill()


# -- columns -----------------------------------------------------------------------------------------------------------


def columns_of(folder):
    return {column["name"]: column for column in data_of(folder)["columns"]}


def test_columns_of_metadata_are_numbers_classes_or_texts(tmp_path):
    rows = [
        {"price": 10.0, "year": "1990", "zip": "a<b>", "note": "one", "label": 1, "same": "x", "flag": True},
        {"price": 20_000.0, "year": "2001", "zip": "a<b>", "note": "two", "label": 2, "same": "x", "flag": False},
        {"price": 300.0, "zip": "c", "note": "three", "label": 3, "same": "x", "flag": True},
        {"price": None, "year": "", "zip": "c", "note": "four", "label": 4, "same": "x", "flag": True},
    ]
    write_page(tmp_path, hostile(metadata=rows))
    columns = columns_of(tmp_path)
    assert list(columns) == ["price", "year", "zip", "note", "flag"]  # not the label, nor what is equal everywhere
    assert (columns["price"]["kind"], columns["price"]["scale"]) == ("number", "log")
    assert columns["price"]["values"] == [10, 20_000, 300, None]
    assert (columns["year"]["scale"], columns["year"]["values"]) == ("linear", [1990, 2001, None, None])
    zips = columns["zip"]
    assert (zips["kind"], zips["classes"], zips["values"]) == ("class", ["a<b>", "c"], [0, 0, 1, 1])
    assert (columns["note"]["kind"], columns["note"]["values"]) == ("text", ["one", "two", "three", "four"])
    assert columns["flag"]["classes"] == ["True", "False"]
