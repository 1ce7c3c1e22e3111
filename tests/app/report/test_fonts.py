"""Text in pictures: an installed font where matplotlib's lacks the characters, else nothing, never boxes."""

import shutil
from pathlib import Path

import pytest

from contml.data.renderers import text as fonts
from contml.data.renderers.text import font_for, load_font


@pytest.fixture
def no_fonts(monkeypatch):
    monkeypatch.setattr("matplotlib.font_manager.findSystemFonts", list)
    fonts._installed_font.cache_clear()
    yield
    fonts._installed_font.cache_clear()


@pytest.mark.usefixtures("no_fonts")
def test_words_without_a_font_are_omitted():
    font, text = font_for("Größe Ж Ω 4.1 km", 24)
    assert (font.path, text) == (load_font(24).path, "Größe Ж Ω 4.1 km")
    font, text = font_for("differ by 4.1 in 価格; random: 3", 24)
    assert ((font.path, text), font_for("写真", 24)[1]) == ((load_font(24).path, "differ by 4.1 in random: 3"), "")


def test_an_installed_font_that_has_the_characters_is_used(tmp_path, monkeypatch):
    shutil.copy(load_font(24).path, tmp_path / "Other-Sans-Regular.ttf")
    (tmp_path / "A-Sans-Regular.ttf").write_bytes(b"no font")
    monkeypatch.setattr("matplotlib.font_manager.findSystemFonts", lambda: [*map(str, tmp_path.iterdir())])
    monkeypatch.setattr(fonts, "_matplotlib_font", lambda _: tmp_path / "A-Sans-Regular.ttf")
    fonts._installed_font.cache_clear()
    font, text = font_for("4.1 km", 24)
    assert (Path(font.path).name, text) == ("Other-Sans-Regular.ttf", "4.1 km")
    fonts._installed_font.cache_clear()
