"""Kernel Tuner's interface, served by this tuner: ``import tuner.compat.kernel_tuner as kernel_tuner``.

What is served, and what is not: docs/kernel-tuner.md.
"""

import sys
from importlib.machinery import ModuleSpec
from typing import NoReturn

from tuner.compat.kernel_tuner import file_utils, util
from tuner.compat.kernel_tuner.interface import run_kernel, tune_kernel
from tuner.core.version import __version__

__all__ = ["__version__", "file_utils", "run_kernel", "strategies", "tune_kernel", "util"]


class _Strategies:
    """Each strategy by its name, as scripts pass ``kernel_tuner.strategies.minimize``."""

    def __getattr__(self, name: str) -> str:
        if name.startswith("_"):
            raise AttributeError(name)
        return name


strategies = _Strategies()


class _NotServed:
    """Says of Kernel Tuner's other modules that they are not served."""

    @staticmethod
    def find_spec(name: str, *_: object) -> ModuleSpec | None:
        """Return None for modules of others."""
        if name.startswith(f"{__name__}."):
            raise ModuleNotFoundError(_not_served(name.removeprefix(f"{__name__}.")), name=name)
        return None


def _not_served(name: str) -> str:
    return f"tuner.compat.kernel_tuner does not serve {name}; docs/kernel-tuner.md says what it serves"


sys.meta_path.append(_NotServed)


def __getattr__(name: str) -> NoReturn:
    raise AttributeError(_not_served(name))
