"""What a kernel writes, and what that is compared with: a script's answer or function, by Kernel Tuner's rule."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tuner.api.arrays import on_host
from tuner.api.calling import launch
from tuner.api.on_call import like
from tuner.compat.kernel_tuner.definition import Definition
from tuner.core.errors import UsageError
from tuner.core.model import Configuration, Value
from tuner.kernel.functions import first_line
from tuner.kernel.spec import KernelSpec
from tuner.runtime.dispatch import Policy
from tuner.runtime.driver import primary_context
from tuner.winners.compiling import compiled_on_use
from tuner.winners.contents import Contents

RELATIVE = 1e-5
"""Of ``numpy.allclose``, by which Kernel Tuner compares."""
UNIT = 3.125 * 2.0**-24
"""The allowed error of an element over its magnitude, where nothing is added up (docs/kernel-files.md)."""
Judge = Callable[[list[Any]], bool]


def expected(what: Definition, answer: Sequence[Any] | None, atol: float) -> dict[str, Any]:
    """Return reference and outputs for ``tuner.tune``; without an answer the default configuration is right.

    Args:
        what: the kernel.
        answer: the expected value of each argument that it writes, and None for each other one.
        atol: absolute error that is allowed of an element, beside :data:`RELATIVE`.

    Raises:
        UsageError: the answer does not fit the arguments.
    """
    if not (wanted := _wanted(what, answer)):
        return {"reference": "default", "outputs": dict.fromkeys(what.written(), "inout") or None}
    names = what.parameters()
    values = {names[number]: one.reshape(np.shape(what.arguments[number])) for number, one in wanted.items()}

    def reference() -> dict[str, Any]:
        return {name: _allowing(value, atol) for name, value in values.items()}

    return {"reference": reference, "outputs": dict.fromkeys(values, "inout")}


def _wanted(what: Definition, answer: Sequence[Any] | None) -> dict[int, Any]:
    """Return the expected values of arrays, by the argument's number."""
    if answer is not None and len(answer) != len(what.arguments):
        raise UsageError(
            f"answer has {len(answer)} parts, and arguments {len(what.arguments)}", "give None for inputs"
        )
    wanted = {}
    for number, (argument, one) in enumerate(zip(what.arguments, answer or (), strict=False)):
        if one is None or not (shape := np.shape(argument)):  # a number cannot be written
            continue
        wanted[number] = on_host(f"answer[{number}]", one, gaps=True)[0]
        if (size := wanted[number].size) != math.prod(shape):
            raise UsageError(f"answer[{number}] has {size} elements", f"give {math.prod(shape)}")
        dtype = str(getattr(argument, "dtype", ""))
        if wanted[number].dtype.kind == "c" and dtype and "complex" not in dtype:
            raise UsageError(f"answer[{number}] is complex, and the argument {dtype}", "give real numbers")
    return wanted


def _allowing(value: Any, atol: float) -> Any:
    """Return a value with the magnitude that allows Kernel Tuner's error; integers are exact."""
    if value.dtype.kind not in "fc":
        return value
    wide = value.astype(np.complex128 if value.dtype.kind == "c" else np.float64)
    return wide, (atol + RELATIVE * np.abs(wide)) / UNIT


def judge(
    what: Definition, answer: Sequence[Any] | None, verify: Callable[..., Any] | None, atol: float
) -> Judge | None:
    """Return what judges all arguments after a launch: the script's function, or a comparison; None without both.

    Raises:
        UsageError: the function takes something else, or fails; without it, the answer does not fit the arguments.
    """
    if verify is not None:
        signature = inspect.signature(verify)
        more = {"atol": atol} if "atol" in signature.parameters else {}
        try:
            signature.bind(answer, [], **more)
        except TypeError as error:
            raise UsageError(f"verify cannot be called: {error}", "let it take answer and results") from None

        def says(after: list[Any]) -> bool:
            try:
                return bool(np.all(verify(answer, after, **more)))
            except Exception as error:
                raise UsageError(f"verify fails: {first_line(error)}", "correct it") from error

        return says
    if not (wanted := _wanted(what, answer)):
        return None
    return lambda after: all(
        np.allclose(e.ravel(), after[n].ravel(), RELATIVE, atol) for n, e in wanted.items()
    )


def after_launch(what: Definition, kernel: KernelSpec, values: Mapping[str, Value]) -> list[Any]:
    """Return the arguments after one launch of a configuration, arrays as copies on the host.

    Args:
        what: the kernel with its arguments.
        kernel: the same as the engine has it.
        values: of the parameters.

    Raises:
        CompileError: it does not compile.
        DeviceError: the driver refuses.
    """
    contents, gpu = Contents(kernel), like(primary_context(0).limits["cc"])
    contents.add_default(kernel, kernel.problem(), gpu, Configuration.of(next(iter(kernel.variants)), values))
    after = [np.array(on_host("argument", one)[0]) if np.ndim(one) else one for one in what.arguments]
    operation = compiled_on_use(contents, policy=Policy.DEFAULT)
    try:
        launch(operation, kernel, dict(zip(what.parameters(), after, strict=True)))
    finally:
        operation.close()
    return after
