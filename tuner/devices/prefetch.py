"""What is compiled ahead of any trial: kept until somebody submits it, or forgets it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from tuner.devices.base import Compiled
from tuner.model import Configuration
from tuner.protocol.compilation import Compilation

GoOn = Callable[[Compilation], None]
"""What happens to a compilation whose configuration has been submitted."""


@dataclass(eq=False)
class Kept:
    """A compilation that somebody began; another of the same configuration, perhaps for another problem, is another."""

    configuration: Configuration
    compilation: Compilation | None = None
    compiled: Compiled | None = None
    go_on: GoOn | None = None


class CompiledAhead:
    """Joins two threads: one ends a compilation, another submits the configuration, in either order."""

    def __init__(self) -> None:
        self._kept: dict[Configuration, Kept] = {}
        self._lock = threading.Lock()

    def begin(self, configuration: Configuration) -> Kept:
        """Expect a compilation."""
        kept = Kept(configuration)
        with self._lock:
            self._kept[configuration] = kept
        return kept

    def expects(self, kept: Kept) -> bool:
        """Say whether it is still wanted: it was not forgotten, nor begun anew."""
        return self._kept.get(kept.configuration) is kept

    def end(self, kept: Kept, compilation: Compilation, compiled: Compiled) -> None:
        """Note what became of it; called from a compiling thread."""
        with self._lock:
            if not self.expects(kept):
                return
            kept.compilation, kept.compiled = compilation, compiled
            go_on = kept.go_on
            if go_on is not None:
                del self._kept[kept.configuration]
        if go_on is not None:
            go_on(compilation)

    def get(self, configuration: Configuration) -> Compiled | None:
        """Say what became of it; None while it is under way.

        Raises:
            KeyError: nobody began it.
        """
        return self._kept[configuration].compiled

    def submit(self, configuration: Configuration, go_on: GoOn) -> bool:
        """Go on with a compilation, now or when it ends; False where there is none."""
        with self._lock:
            if (kept := self._kept.get(configuration)) is None:
                return False
            if kept.compilation is None:
                kept.go_on = go_on
                return True
            del self._kept[configuration]
            compilation = kept.compilation
        go_on(compilation)
        return True

    def forget(self, configuration: Configuration) -> None:
        """Let go of a compilation, ended or not."""
        with self._lock:
            self._kept.pop(configuration, None)

    def clear(self) -> None:
        """Let go of all of them."""
        with self._lock:
            self._kept.clear()
