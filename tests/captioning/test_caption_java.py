"""METEOR and SPICE: numbers of pycocoevalcap where Java is there, one clear line where something is missing."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from support.refusals import refuses

from contml.captioning import meteor, spice

EXPECTED = json.loads(Path(__file__).with_name("expected.json").read_text(encoding="utf-8"))
TEXTS = [row[0] for row in EXPECTED["tokens"]]
needs_java = pytest.mark.skipif(shutil.which("java") is None, reason="needs Java")


@needs_java
@pytest.mark.slow
def test_meteor_is_that_of_pycocoevalcap():
    pytest.importorskip("pycocoevalcap")
    own = [TEXTS[row] for row, _ in EXPECTED["sets"]]
    corpus, per_image = meteor(own, [[TEXTS[row] for row in rows] for _, rows in EXPECTED["sets"]])
    np.testing.assert_allclose(corpus, EXPECTED["meteor"][0], atol=1e-12)
    np.testing.assert_allclose(per_image, EXPECTED["meteor"][1], atol=1e-12)
    assert per_image.max() > 0.9


@pytest.mark.parametrize("score", [meteor, spice])
def test_without_java_or_the_package(monkeypatch, score):
    pytest.importorskip("pycocoevalcap")
    monkeypatch.setenv("PATH", "")
    with refuses(score.__name__.upper(), "java", hint="install"):
        score(["a dog"], [["a dog"]])
    monkeypatch.setitem(sys.modules, "pycocoevalcap", None)
    with refuses(score.__name__.upper(), "pycocoevalcap", hint="contml[captions]"):
        score(["a dog"], [["a dog"]])


@needs_java
def test_spice_downloads_nothing(monkeypatch):
    library = Path(next(iter(pytest.importorskip("pycocoevalcap").__path__))) / "spice" / "lib"
    if (library / "stanford-corenlp-3.6.0-models.jar").is_file():
        pytest.skip("the parser of SPICE is installed")
    monkeypatch.setattr("urllib.request.urlretrieve", lambda *_, **__: pytest.fail("it downloads"))
    with refuses("SPICE", "stanford-corenlp-3.6.0", hint="python -m pycocoevalcap.spice.get_stanford_models"):
        spice(["a dog"], [["a dog"]])
