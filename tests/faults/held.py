"""Compilers that take as long as a test wants."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

import pytest

from tuner.children.compilation import Compilation, CompileRequest
from tuner.devices.local import LocalDevice


def hold_compilers(device: LocalDevice, monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """Hold compilations; return what lets each of them go on, in the order of submission."""
    held: list[Callable[[], None]] = []
    submit = device._pool.submit

    def hold(request: CompileRequest, *, ahead: bool = False) -> Future[Compilation]:
        future: Future[Compilation] = Future()
        assert future.set_running_or_notify_cancel()  # its turn has come
        held.append(lambda: future.set_result(submit(request, ahead=ahead).result()))
        return future

    monkeypatch.setattr(device._pool, "submit", hold)
    return held
