"""Compilers that take as long as a test wants."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tuner.children.compilation import Compilation, CompileRequest
from tuner.devices.local import LocalDevice


def hold_compilers(device: LocalDevice, monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """Hold compilations; return what lets each of them go on, in the order of submission."""
    held: list[Callable[[], None]] = []
    submit = device._pool.submit

    def hold(
        request: CompileRequest,
        done: Callable[[Compilation], None],
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        assert wanted()  # it is asked once, when its turn comes
        held.append(partial(submit, request, done))

    monkeypatch.setattr(device._pool, "submit", hold)
    return held
