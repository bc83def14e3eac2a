"""Signals that end a run."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from tuner.core import signals


def test_a_signal_that_another_thread_has_got_ends_what_the_main_thread_waits_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As the kernel gives it to any thread of a process that stood still."""
    monkeypatch.setattr(signals, "PATIENCE_S", 0.1)

    def send() -> None:
        time.sleep(0.3)  # earlier would do as well: then nothing waits yet
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    former = signal.getsignal(signals.WAKING)
    with signals.stopping() as stopped:
        threading.Thread(target=send).start()
        with pytest.raises(KeyboardInterrupt):
            threading.Event().wait(100)
        signals.taken()
        assert stopped()
    assert signal.getsignal(signals.WAKING) == former and signal.set_wakeup_fd(-1) == -1


def test_what_was_taken_is_not_raised_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signals, "PATIENCE_S", 0.6)
    with signals.stopping(quiet=True):
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            time.sleep(100)
        signals.taken()
        time.sleep(0.4)  # it would be raised after 0.3 s
