"""The arguments of Kernel Tuner's functions by name, and what each may be; what they do is in docs/kernel-tuner.md."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from tuner.core.errors import UsageError, suggestion, typed

OPTIONS = frozenset(
    ("lang", "device", "platform", "smem_args", "cmem_args", "texmem_args", "compiler", "compiler_options", "defines",
     "log", "block_size_names", "quiet")
)  # fmt: skip
"""Of ``run_kernel``, beside those that it takes by place."""
TUNE_OPTIONS = OPTIONS | frozenset(
    ("verify", "verbose", "iterations", "strategy", "strategy_options", "cache", "metrics", "simulation_mode",
     "parallel", "observers", "objective", "objective_higher_is_better", "objectives", "seed")
)  # fmt: skip
"""The same of ``tune_kernel``."""
_SEVERAL: tuple[Any, ...] = (list, tuple)
_KINDS: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "kernel_name": ((str,), "the function's name, as text"),
    "kernel_source": ((str, Path, Callable, *_SEVERAL), "text, a path, a function, or a list of these"),
    "arguments": (_SEVERAL, "a list of NumPy's arrays and numbers"),
    "tune_params": ((Mapping,), "a dictionary: {'block_size_x': [64, 128]}"),
    "params": ((Mapping,), "a dictionary: {'block_size_x': 128}"),
    "answer": (_SEVERAL, "a list with an array, or None, for each argument"),
    "atol": ((Real,), "a number"),
    "verify": ((Callable,), "a function of answer and results"),
    "lang": ((str,), "'CUDA' or 'C'"),
    "device": ((Integral,), "a GPU's number"),
    "smem_args": ((Mapping,), "a dictionary: {'size': 1024}"),
    "cmem_args": ((Mapping,), "a dictionary of arrays by their names in the code"),
    "compiler": ((str, Path), "the compiler's name"),
    "compiler_options": ((str, *_SEVERAL), "a list of texts"),
    "defines": ((Mapping,), "a dictionary: {'WIDTH': 512}"),
    "block_size_names": ((str, *_SEVERAL), "a list of names"),
    "iterations": ((Integral,), "a whole number"),
    "strategy_options": ((Mapping,), "a dictionary: {'max_fevals': 100}"),
    "cache": ((str, Path), "a file's name"),
    "metrics": ((Mapping,), "a dictionary of functions or texts"),
    "objective": ((str,), "'time', or a metric's name"),
    "seed": ((Integral,), "a whole number"),
}  # fmt: skip
"""Types of a value, and what to pass instead of another."""
_WORDS = (
    (r"\bparams, where, grid or block\b", "tune_params, restrictions, problem_size or grid_div"),
    (r"\bparams\b", "tune_params"),
    (r"\bargs\b", "arguments"),
    (r"\bconstants(?=[ =])", "cmem_args"),
    (r"\bentry(?==)", "kernel_name"),
    (r"\bshared_memory\b", "smem_args"),
)
"""What errors of ``tuner.tune`` call arguments, and what they are called here."""
_REQUIRED = ("kernel_name", "kernel_source", "arguments", "tune_params", "params", "atol")


def require(options: Mapping[str, Any], known: Collection[str], **placed: Any) -> None:
    """Refuse names that a function does not have, and values of another type than it takes.

    Args:
        options: what it was given by name.
        known: the names that it has.
        placed: what else it was given.

    Raises:
        UsageError: the first of them.
    """
    for name in options.keys() - known:
        raise UsageError(f"there is no argument {name!r}", suggestion(name, sorted(known)))
    for name, value in {**placed, **options}.items():
        kinds, instead = _KINDS.get(name, ((object,), ""))
        if name == "atol" and isinstance(value, Real) and not float(value) >= 0:
            raise UsageError(f"atol is {value}", "give a number from 0 up")
        if not isinstance(value, kinds) and (value is not None or name in _REQUIRED):
            raise UsageError(f"{name} is {typed(value) if value is not None else None}", f"give {instead}")


def words_of_script(text: str) -> str:
    """Return a text with Kernel Tuner's names of arguments in the place of those of ``tuner.tune``."""
    for pattern, name in _WORDS:
        text = re.sub(pattern, name, text)
    return text


def positive(options: Mapping[str, Any], name: str) -> Any:
    """Return a number above 0 of ``strategy_options``, or None where it is not given.

    Raises:
        UsageError: it is something else.
    """
    value = options.get(name)
    if value is not None and not (isinstance(value, Real) and float(value) > 0):
        raise UsageError(f"strategy_options: {name} is {value!r}", "give a number above 0")
    return value
