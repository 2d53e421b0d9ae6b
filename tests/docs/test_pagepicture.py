"""The picture of the page is one of the page as it is now."""

from __future__ import annotations

from docs import pagepicture


def test_the_picture_was_taken_of_these_files():
    kept = pagepicture.KEYWORD + b"\0" + pagepicture.digest()
    assert kept in pagepicture.TARGET.read_bytes(), "run: python -m docs.pagepicture"
