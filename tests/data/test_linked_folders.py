"""Folders that link to each other, to themselves, or to the same third folder: each image is read once."""

import pytest
from PIL import Image

from contml.data.text_files import images_below


def picture(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8)).save(path)


@pytest.mark.parametrize("links", [
    {"a/x": "../b", "b/y": "../a"}, {"a/x": "../b", "b/y": "../c", "c/z": "../a", "c/b": "../b"},
    {"a/x": "..", "b/x": "."}, {"a/x": "../b/deep", "c/link": "../a/x"},
])  # fmt: skip
def test_an_image_has_the_path_of_its_own_folder(tmp_path, links):
    own = {f"{name}/{number}.png" for name in ("a", "b", "b/deep", "c") for number in range(2)}
    for name in own:
        picture(tmp_path / name)
    for name, target in links.items():
        (tmp_path / name).symlink_to(target)
    assert {path.relative_to(tmp_path).as_posix() for path in images_below(tmp_path)} == own


def test_a_link_to_a_folder_elsewhere_is_followed_once(tmp_path):
    picture(tmp_path / "elsewhere/deep/0.png")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/a").symlink_to("../elsewhere")
    (tmp_path / "photos/b").symlink_to("../elsewhere/deep")
    (tmp_path / "elsewhere/deep/up").symlink_to("..")
    assert [str(path.relative_to(tmp_path)) for path in images_below(tmp_path / "photos")] == ["photos/a/deep/0.png"]


def test_links_in_a_linked_folder_are_not_followed(tmp_path, capsys):
    """As in /proc/self, whose links lead to all files of the machine."""
    picture(tmp_path / "machine/secret/0.png")
    picture(tmp_path / "process/1.png")
    (tmp_path / "process/root").symlink_to("../machine")
    picture(tmp_path / "photos/2.png")
    (tmp_path / "photos/p").symlink_to("../process")
    assert {path.name for path in images_below(tmp_path / "photos")} == {"1.png", "2.png"}
    assert "1 links in folders of links were not followed" in capsys.readouterr().err
