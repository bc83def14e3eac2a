"""Notes what the names of the harness and of libraries mean before foreign code is imported, and finds what it changed.

What is timed is a graph, by the driver's functions; but code in this process can put others in their places, make a
baseline slower, or have a thread do the work.
"""

from __future__ import annotations

import builtins
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from operator import attrgetter
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from tuner.core import jail, paths
from tuner.gpu.arrays import library_version

OURS = "tuner", "cuda.bindings", "msgspec", "__main__"
"""Packages of which every name counts; the measuring process runs as the last."""
STANDARD = (
    "time",
    "math",
    "statistics",
    "random",
    "struct",
    "os",
    "gc",
    "ctypes",
    "builtins",
    "json",
    "threading",
)
LIBRARIES = "torch", "torch.cuda", "torch.nn.functional", "torch.testing", "torch.linalg", "numpy", "cupy"
"""Of which the functions and classes count."""
CLASSES = ("torch", "Tensor"), ("torch.cuda", "Event"), ("torch.cuda", "Stream"), ("torch.cuda", "CUDAGraph")
EXEMPT = "manual_seed", "Storage"
"""torch.compile wraps the first when it is first used; the other follows the default dtype."""
LAZY = "__slotnames__", "__msgspec_cache__", "__protocol_attrs__", "__annotations__", "__annotations_cache__"
"""What libraries add to classes when these are first used."""
SEARCHES = (
    "gc.get_objects", "gc.get_referrers", "gc.get_referents", "sys._getframe", "sys._current_frames",
    "sys._current_exceptions", "sys.settrace", "sys.setprofile",
)  # fmt: skip
"""Audit events by which objects are found that nothing names."""
DISGUISES = "compile", "code.__new__"
"""Audit events of new code, whose second argument is the file that it is said to be from."""
SETTINGS = (
    "are_deterministic_algorithms_enabled", "is_deterministic_algorithms_warn_only_enabled",
    "backends.cudnn.enabled", "backends.cuda.flash_sdp_enabled", "backends.cuda.mem_efficient_sdp_enabled",
    "backends.cuda.cudnn_sdp_enabled",
)  # fmt: skip
"""Of torch: values, and functions whose answers must stay, since they make a baseline slower: a captured graph, so that
threads of the CPU do not."""


class Seal:
    """What names mean now."""

    def __init__(self) -> None:
        for library in ("torch", "cupy"):
            library_version(library)  # imports it
        owners = list(_owners())
        kept = [(where, vars(owner), dict(_names(owner, every))) for where, owner, every in owners]
        hiding = frozenset(vars(builtins))  # in a module, which would find its own first
        closed = [
            (where, vars(owner), frozenset(vars(owner)), None if inspect.isclass(owner) else hiding)
            for where, owner, every in owners
            if every
        ]
        codes = [
            (f"{where}.{name}", value, value.__code__, value.__defaults__)
            for where, _, names in kept
            for name, value in names.items()
            if isinstance(value, FunctionType)
        ]
        self.broken = _check(kept, codes, closed, self._otherwise)
        """Says what has changed since; empty if nothing has."""
        self._settings = _settings()
        self._threads = set(sys._current_frames())
        self._searched, self._looking = "", False
        sys.addaudithook(self._hear)  # for good

    def _otherwise(self) -> str:
        if self._searched:
            return self._searched
        for name, value in _settings().items():
            if self._settings.get(name, value) != value:
                return f"it changes torch's {name}"
        return self._thread()

    def _hear(self, event: str, given: Any) -> None:
        """Note that code of no library itself asks for frames or all objects, among which the harness's are.

        Nor may it make code that is said to be a library's.
        """
        if (event not in SEARCHES and event not in DISGUISES) or self._looking:
            return
        self._looking = True
        try:
            frame = sys._getframe(1)
            while frame.f_back is not None and frame.f_code.co_filename == inspect.__file__:
                frame = frame.f_back
            if _of_a_library(frame.f_code.co_filename):
                return
            name = frame.f_code.co_name
            if event in SEARCHES:
                self._searched = f"{name} asks for {event}, which shows the harness"
            elif given[1] is not None and _of_a_library(os.fsdecode(given[1])):
                self._searched = f"{name} makes code under the name of a library's file"
        finally:
            self._looking = False

    def _thread(self) -> str:
        """Name a thread in which code runs that is of no library."""
        self._looking = True
        frames = sys._current_frames()
        self._looking = False
        for number, frame in frames.items():
            if number in self._threads or number == threading.get_ident():
                continue
            walked: Any = frame
            while walked is not None:
                if not _of_a_library(walked.f_code.co_filename):
                    return f"{walked.f_code.co_name} runs in a thread of its own"
                walked = walked.f_back
        return ""


def _check(
    kept: list[tuple[str, Mapping[str, Any], dict[str, Any]]],
    codes: list[tuple[str, FunctionType, CodeType, tuple[Any, ...] | None]],
    closed: list[tuple[str, Mapping[str, Any], frozenset[str], frozenset[str] | None]],
    otherwise: Callable[[], str],
) -> Callable[[], str]:
    """Return what says what has changed.

    It looks up no name, not even one of this module, before it has found all of them to be what they were.

    Args:
        kept: where names are, the names now, and those that must stay.
        codes: functions, and what they must be.
        closed: where names are, the names now, those before, and those that may not be added; None for all.
        otherwise: says what else has changed.
    """

    def check() -> str:
        for where, now, names in kept:
            for name, value in names.items():
                if now.get(name) is not value:
                    return f"it replaces {where}.{name}"
        for where, function, code, defaults in codes:
            if function.__code__ is not code or function.__defaults__ is not defaults:
                return f"it rewrites {where}"
        for where, now, before, barred in closed:
            for name in now:
                if name not in before and name not in LAZY and (barred is None or name in barred):
                    return f"it adds {where}.{name}"
        return otherwise()

    return check


def _owners() -> Iterator[tuple[str, Any, bool]]:
    """Yield modules and classes with their names, and whether everything in them counts."""
    for name, module in list(sys.modules.items()):
        ours = name.startswith(tuple(f"{one}." for one in OURS)) or name in OURS
        if not isinstance(module, ModuleType):
            continue
        file = str(vars(module).get("__file__"))
        of_task = (
            not ours and file.startswith("/") and not _of_a_library(file)
        )  # references, what they import
        if not (ours or of_task or name in STANDARD or name in LIBRARIES):
            continue
        yield name, module, ours
        if of_task or name.startswith("tuner.") or name == "__main__":
            for text, value in vars(module).items():
                if inspect.isclass(value) and value.__module__ == name:
                    yield f"{name}.{text}", value, ours
    for name, text in CLASSES:
        if name in sys.modules and (found := getattr(sys.modules[name], text, None)) is not None:
            yield f"{name}.{text}", found, False
    yield "builtins", builtins, False


def _names(owner: Any, every: bool) -> Mapping[str, Any]:
    return {
        name: value
        for name, value in vars(owner).items()
        if name not in EXEMPT and (callable(value) or (every and not name.startswith("__")))
    }


def _settings() -> dict[str, object]:
    found: dict[str, object] = {}
    for name in SETTINGS if "torch" in sys.modules else ():
        with suppress(AttributeError):  # of another release
            value = attrgetter(name)(sys.modules["torch"])
            found[name] = value() if callable(value) else value
    return found


_LIBRARIES = tuple(str(one.resolve()) for one in (paths.package(), *jail.installed()))
"""As they are before foreign code can add to them; a user's own are elsewhere than Python's."""


def _is_of_a_library(file: str) -> bool:
    return file.startswith("<frozen") or str(Path(file).resolve()).startswith(_LIBRARIES)


_of_a_library = cache(_is_of_a_library)
"""Kept: torch asks for frames all the time, and the links of a path take longer than what it does."""
