"""The kernel's notices of changes in directories, and what holds where they cannot be had."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

import pytest

from fairlead.kit.notices import Notices


async def test_what_comes_and_goes_in_a_directory_is_noticed(tmp_path: Path):
    changed = asyncio.Event()
    notices = Notices(changed.set)
    notices.arm([tmp_path])
    try:
        assert notices.complete
        for change in ((tmp_path / "file").touch, (tmp_path / "file").unlink):
            changed.clear()
            change()
            async with asyncio.timeout(10):
                await changed.wait()
    finally:
        notices.close()


async def test_without_a_descriptor_they_are_incomplete_until_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def none_left(*_args: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    changed = asyncio.Event()
    notices = Notices(changed.set)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", none_left)
            notices.arm([tmp_path])
        without = notices.complete
        notices.arm([tmp_path])
        assert (without, notices.complete) == (False, True)
        (tmp_path / "file").touch()
        async with asyncio.timeout(10):
            await changed.wait()
    finally:
        notices.close()


async def test_a_directory_that_was_replaced_is_armed_again(tmp_path: Path):
    changed = asyncio.Event()
    place = tmp_path / "place"
    place.mkdir()
    notices = Notices(changed.set)
    try:
        notices.arm([place])
        place.rename(tmp_path / "old")
        notices.arm([place])
        without = notices.complete
        place.mkdir()
        notices.arm([place])
        assert (without, notices.complete) == (False, True)
        changed.clear()
        (place / "file").touch()
        async with asyncio.timeout(10):
            await changed.wait()
    finally:
        notices.close()
