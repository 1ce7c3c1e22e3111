"""The errors of support/planted.py can still be planted: the text of each is in its file once."""

import pytest
from support.planted import PLANTED, ROOT


@pytest.mark.parametrize("error", PLANTED, ids=lambda error: f"{error.file}: {error.after[:30]}")
def test_the_text_of_an_error_is_in_its_file_once(error):
    assert (ROOT / error.file).read_text(encoding="utf-8").count(error.before) == 1
