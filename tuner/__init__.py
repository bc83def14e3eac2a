"""Auto-tuning of generated CUDA kernels: every result is verified, repeatable and kept."""

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from tuner.core.version import __version__ as __version__

if TYPE_CHECKING:
    from tuner.api.opened import open as open
    from tuner.api.result import Result as Result
    from tuner.api.tune import Kernel as Kernel
    from tuner.api.tune import tune as tune
    from tuner.program.calls import record as record
    from tuner.program.replace import replace as replace
    from tuner.winners.load import load as load

_LAZY = {
    "Kernel": "tuner.api.tune",
    "Result": "tuner.api.result",
    "load": "tuner.winners.load",
    "open": "tuner.api.opened",
    "record": "tuner.program.calls",
    "replace": "tuner.program.replace",
    "tune": "tuner.api.tune",
}
"""Functions of the package, and where they are defined."""

__all__ = [*(name for name in _LAZY if name != "open"), "__version__"]
"""What ``from tuner import *`` takes: not :func:`open`, which Python has, too."""


def __dir__() -> list[str]:
    return sorted([*_LAZY, "__version__"])


def __getattr__(name: str) -> object:
    """Return a function of the package, imported when it is asked for: commands must not wait for CUDA's bindings."""
    if name in _LAZY:
        try:
            module = importlib.import_module(_LAZY[name])
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            return _without_torch(name)
        return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _without_torch(name: str) -> Callable[..., NoReturn]:
    """Return what stands for a function that torch is missing for: ``help`` and ``import *`` only look at it."""

    def stand_in(*_: object, **__: object) -> NoReturn:
        from tuner.core.errors import CallError

        raise CallError(f"tuner.{name} needs torch", "install torch 2.10 or later")

    stand_in.__name__ = stand_in.__qualname__ = name
    stand_in.__doc__ = f"Say that ``tuner.{name}`` needs torch, which is not installed."
    return stand_in
