"""Kernels of these tests are compiled for the CPU without the lines of their sources, for a quarter of the time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import compiled_once


@pytest.fixture(scope="module", autouse=True)
def without_lines() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiled_once, "OF_KERNELS", ("-g0",))
        yield
