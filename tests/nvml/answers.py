"""Asking the stand-in for NVIDIA's library: an installed library, its handles, and its refusals."""

from __future__ import annotations

from collections.abc import Callable

import pynvml  # type: ignore[import-untyped]  # NVIDIA ships no types
import pytest

from tests.nvml import Driver, Node

Install = Callable[[Driver], Node]


def handle(index: int = 0) -> object:
    return pynvml.nvmlDeviceGetHandleByIndex(index)


def refused(code: int, call: Callable[..., object], *arguments: object) -> None:
    with pytest.raises(pynvml.NVMLError) as caught:
        call(*arguments)
    assert caught.value.value == code
