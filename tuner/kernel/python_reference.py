"""What a kernel's reference expects of its outputs, computed on the host: no GPU is needed.

A NumPy expression, a Python function and golden files are such references. The measuring process uses them, and so does
whatever checks a kernel without a GPU. A Python function runs with the user's rights: never call this in the head.

Such a function says nothing of the terms that it adds up. How its results respond to inputs that are a rounding error
off says it instead: for terms ``t_1 ... t_n`` the response to independent errors of size ``u`` is about
``u sqrt(sum t_i^2)``. Times ``sqrt(n) / u`` it is at least the sum of all ``|t_i|``: the magnitude that a NumPy
expression has.
"""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from tuner.core.errors import KernelError, TunerError
from tuner.core.model import Value
from tuner.core.signals import OutOfTimeError, time_limit
from tuner.expressions.array import Array, ArrayExpression
from tuner.expressions.magnitudes import ANYTHING, UNIT
from tuner.kernel.functions import PythonFunction, arguments_for, first_line, load_function, location
from tuner.kernel.golden import from_files, require_same
from tuner.kernel.reference import (
    OVERFLOW,
    UNIT_ROUNDOFF,
    Expected,
    SettledReference,
    as_output,
    word_of,
)
from tuner.kernel.terms import rounded, spread_of, terms_of, with_neighbours, with_room
from tuner.runtime.dtypes import DTYPES
from tuner.runtime.launches import OUTPUTS, Buffer

LIMIT_S = 240.0
"""For all calls together. The setup of a problem may take 600 s, and with a wider dtype beside it computes two."""
REPEATED_S = 5.0
"""A function that takes longer is not called again only to see that it gives the same: the run would wait for it, and
two results also show in correct kernels that fail."""
FURTHER_S = 10.0
"""For both calls of a further content: a loop over integers of the whole range has no end."""
PROBES = 8
"""Calls with inputs off by a rounding error. Their root mean square is below a fifth of the true one for 3 elements in
100,000 (chi-squared with 8 degrees of freedom), and the allowed error has more room than that."""
PROBING_S = 0.5
"""For all of these. Of a function that takes longer, one waits until an output is not right without it, and the others
until one is not right with that: most of its magnitudes are large enough, and in the mean over all elements they are as
large."""
DRAWING_S = 1.5e-8
"""For the error of one element of the inputs: 13 to 17 ns on one core of a virtual machine."""
REPEATABLE = 1e-9
"""Two calls with the same inputs may differ by so much of the largest result: libraries add up in any order."""


@dataclass(frozen=True)
class Asked:
    """How a reference is asked."""

    further: bool = False
    """Whether this is a further content of the inputs: two calls of a Python function have to do, and numbers that a
    kernel may wrap, or that overflow on the way, are refused."""
    repeatable: bool = False
    """Whether a function is known to give the same for the same inputs."""
    probes: int = 0
    """With which magnitudes are estimated, however long that takes; 0 for as many as are quick."""
    known: Mapping[str, Array] = field(default_factory=dict)
    """Values that a function has given for these inputs, by output: only these outputs are returned."""
    terms: Mapping[str, int] = field(default_factory=dict)
    """As estimated with other inputs of the same sizes, by output."""


def run_function(
    function: PythonFunction,
    tensors: Sequence[Buffer],
    wanted: Sequence[str],
    inputs: Mapping[str, Array],
    numbers: Mapping[str, Value],
    asked: Asked = Asked(),
    *,
    reduction: int = 0,
    limit_s: float = LIMIT_S,
) -> dict[str, Expected]:
    """Return what a function expects of some outputs.

    It gets what its parameters name: tensors as arrays that it cannot write to (float64 or complex128; int64, uint64 or
    bool where the tensor has these), sizes and scalars. It returns an array, or a table of arrays by output; in place
    of each array perhaps a pair of the array and its magnitude, which says of integers that they are exact where inputs
    are equal, too. It is called once more with the same inputs, unless it
    takes :data:`REPEATED_S`. Where a magnitude is missing, it is called with inputs that are off by a rounding error of
    float32: :data:`PROBES` times, and up to three times for the terms, unless that takes long.

    Args:
        function: in the user's file, which is run.
        tensors: of the problem.
        wanted: names of the outputs.
        inputs: values by tensor, in the shape that the kernel means.
        numbers: sizes and scalars by name.
        asked: how.
        reduction: terms of a sum; 0 if that is to be estimated with the magnitudes.
        limit_s: seconds for all calls together.

    Raises:
        BeyondIntegersError: of a further content, an integer is beyond its output's dtype.
        TunerError: it cannot be loaded, fails, takes too long, or returns something else; the text names file and line.
    """
    further, probes = asked.further, asked.probes
    of = {tensor.name: tensor for tensor in tensors}
    exact = {name: read_only(inputs[name], of[name].dtype) for name in of if name in inputs}
    with limited(function, limit_s, "use smaller sizes, or a CUDA reference"):
        call = ArrayFunction(function, {name: of[name] for name in wanted}, numbers)

        def values_of(given: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
            return {name: value for name, (value, _) in call(given).items()}

        first: dict[str, tuple[npt.NDArray[Any], Array | None]]
        first = {name: (value, None) for name, value in asked.known.items()}
        call_s = math.inf
        for turn in range(0 if asked.known else 1 if further or asked.repeatable else 2):
            began = time.monotonic()
            results = call(exact)
            call_s = min(call_s, time.monotonic() - began)
            for name, (value, _) in (results if turn else {}).items():
                call.require_same(name, first[name][0], value)
            first = first or results
            if call_s > REPEATED_S:
                break
        floats = [name for name in first if of[name].dtype in UNIT_ROUNDOFF]
        missing = [name for name in floats if first[name][1] is None]
        inexact = any(of[name].dtype in UNIT_ROUNDOFF for name in exact)
        integers = [name for name in first if inexact and name not in floats and first[name][1] is None]
        spread = {}
        if integers and probes and not further:
            values = {name: first[name][0] for name in integers}
            spread = spread_of(values_of, exact, of, values, probes)
        call_s += DRAWING_S * sum(map(np.size, exact.values()))
        if not probes and call_s * PROBES <= PROBING_S:
            probes = PROBES
        tied = further and bool(integers)
        probes = 1 if tied else min(probes, 1 if further else PROBES) if missing else 0
        squares, random = {name: np.zeros(first[name][0].shape) for name in missing}, np.random.default_rng(0)
        for _ in range(probes):
            probed = values_of(
                {name: rounded(one, of[name].dtype, random, tied=tied) for name, one in exact.items()}
            )
            for name in missing:
                with np.errstate(all="ignore"):
                    squares[name] += np.abs((probed[name] - first[name][0]) / UNIT) ** 2
            for name in integers if tied else ():
                if not np.array_equal(first[name][0], probed[name]):
                    raise KernelError(f"rounding alone decides elements of {name}", "have other inputs")
        told = dict(asked.terms)
        probed_ones = floats if probes else [name for name in floats if name not in missing]
        unknown = {name: first[name][0] for name in probed_ones if name not in told and not reduction}
        if unknown:
            told |= terms_of(values_of, exact, of, unknown)
    expected = {}
    for name, (value, magnitude) in first.items():
        more = 0
        if magnitude is None:
            magnitude = np.abs(value if value.dtype.kind == "c" else value.astype(np.float64))
            if name in missing and probes:
                square = squares[name] / probes
                if probes == 1:  # it says little of one element
                    square = with_room(square) if further else with_neighbours(square)
                response = np.sqrt(square * (reduction or told[name]))
                magnitude = np.where(np.isfinite(response), magnitude + response, ANYTHING)
            if name in missing:
                more = 1 if not probes else 0 if further or probes >= PROBES else PROBES
        output = as_output(name, of[name].dtype, value, magnitude, "the Python reference", wraps=not further)
        if name in integers:
            more = PROBES if not further and name not in spread else 0
            output = replace(output, magnitude=spread.get(name, output.magnitude))
        expected[name] = replace(output, probes=more, terms=told.get(name, 1))
    return expected


class ArrayFunction:
    """Calls a loaded function, and checks what it returns.

    Args:
        function: which is loaded now.
        wanted: the outputs by name.
        numbers: sizes and scalars by name.
        what: it is, for errors.
    """

    def __init__(
        self,
        function: PythonFunction,
        wanted: Mapping[str, Buffer],
        numbers: Mapping[str, Value],
        what: str = "reference",
    ) -> None:
        self.function, self._wanted, self._numbers, self._what = function, wanted, numbers, what
        self._function: Callable[..., Any] = load_function(function.name, function.file)

    def __call__(self, arrays: Mapping[str, Any]) -> dict[str, tuple[npt.NDArray[Any], Array | None]]:
        """Return values and magnitudes by output; None for a magnitude that the function leaves open."""
        positional, named = arguments_for(self._function, {**self._numbers, **arrays}, self.function.text)
        try:
            result = self._function(*positional, **named)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a user's function throws
            where = location(error, self.function.file)
            raise KernelError(f"{where}: {first_line(error)}", f"correct the {self._what}") from None
        return {name: self._result(name, item) for name, item in self._by_output(result).items()}

    @property
    def parameters(self) -> set[str]:
        """The names of what it takes; what is no Python function says so when it is called."""
        with suppress(TypeError, ValueError):
            return set(inspect.signature(self._function).parameters)
        return set()

    def require_same(self, name: str, first: npt.NDArray[Any], second: npt.NDArray[Any]) -> None:
        """Refuse a function whose results differ for the same inputs: nothing could be compared with them."""
        if np.array_equal(first, second):
            return
        finite = np.abs(first[np.isfinite(first)])
        near = REPEATABLE * float(finite.max()) if finite.size and first.dtype.kind in "fc" else 0.0
        if first.dtype.kind != second.dtype.kind or not np.isclose(first, second, 0.0, near).all():
            self.refuse(f"returns another {name} for the same inputs", "seed its random numbers")

    def _by_output(self, result: Any) -> Mapping[str, Any]:
        if isinstance(result, Mapping):
            if set(result) != set(self._wanted):
                self.refuse(
                    f"returns {', '.join(map(str, result)) or 'nothing'}",
                    f"return a dict of exactly {', '.join(self._wanted)}",
                )
            return result
        if len(self._wanted) > 1 and isinstance(result, tuple | list) and len(result) == len(self._wanted):
            return dict(zip(self._wanted, result, strict=True))
        if len(self._wanted) != 1:
            names = ", ".join(f"{name!r}: ..." for name in self._wanted)
            self.refuse(f"returns {type(result).__name__} for several outputs", f"return {{{names}}}")
        return dict.fromkeys(self._wanted, result)

    def _result(self, name: str, item: Any) -> tuple[npt.NDArray[Any], Array | None]:
        if isinstance(item, tuple) and len(item) == 2:
            value, magnitude = (self._array(name, part) for part in item)
            magnitude = magnitude.astype(np.float64)
            if not (magnitude >= 0.0).all():
                self.refuse(
                    f"returns a magnitude of {name} that is below 0, or not a number", "return np.abs"
                )
            return value, magnitude
        return self._array(name, item), None

    def _array(self, name: str, item: Any) -> npt.NDArray[Any]:
        """Return an output as float64 or complex128, or the integers that it is."""
        try:
            array = np.asarray(item)
        except Exception as error:  # noqa: BLE001 - the array of another library
            self.refuse(f"returns {type(item).__name__} for {name}: {first_line(error)}", "return an array")
        shape, dtype = self._wanted[name].meant_shape, self._wanted[name].dtype
        if item is None or array.dtype.kind not in "biufc":
            what = "None" if item is None else f"{array.dtype} values"
            self.refuse(f"returns {what} for {name}", "return an array of numbers")
        if array.dtype.kind == "c" and DTYPES[dtype].kind != "complex":
            self.refuse(f"returns {array.dtype} values for {name}, which has {dtype}", "return their .real")
        if array.shape != shape:
            self.refuse(f"returns shape {array.shape} for {name}", f"this problem needs {shape}")
        wrong = np.argwhere(np.isnan(array))
        if len(wrong):
            index = ", ".join(map(str, wrong[0]))
            self.refuse(
                f"returns NaN in {len(wrong)} of {array.size} elements of {name} ([{index}])",
                "it must be defined for its inputs: change the function, or the inputs' init",
            )
        if array.dtype.kind in "biu":
            return array
        return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)

    def refuse(self, problem: str, remedy: str) -> NoReturn:
        """Raise an error that names the function with its file and line."""
        code = getattr(inspect.unwrap(self._function), "__code__", None)
        where = f"{self.function.file.name}:{code.co_firstlineno}" if code else self.function.file.name
        raise KernelError(f"{where}: {self.function.name} {problem}", remedy)


def read_only(array: npt.NDArray[Any], dtype: str) -> Any:
    """Return an input as a function gets it."""
    given = array.astype("bool" if dtype == "bool" else DTYPES[dtype].exact)
    given.flags.writeable = False
    return given


@contextmanager
def limited(function: PythonFunction, limit_s: float, remedy: str) -> Iterator[None]:
    """Stop a function that takes too long; only in a main thread, elsewhere the process's own deadline stops it."""
    try:
        with time_limit(limit_s):
            yield
    except OutOfTimeError as error:
        raise TunerError(
            f"{location(error, function.file)}: {function.name} has no result after {math.ceil(limit_s)} s",
            remedy,
        ) from None


def expected_on_host(
    reference: SettledReference,
    tensors: Sequence[Buffer],
    inputs: Mapping[str, Array],
    numbers: Mapping[str, Value],
    wanted: Collection[str] | None = None,
    asked: Asked = Asked(),
) -> dict[str, Expected]:
    """Return what is expected of each output that has a reference on the host; CUDA references are not run.

    Args:
        reference: of one problem, see :func:`tuner.kernel.reference.settle_reference`.
        tensors: of the problem, see :func:`tuner.kernel.plan.tensors_of`.
        inputs: values of the inputs and inouts before the run, as rounded to their dtypes, each in the dtype that has
            all of its numbers, in the shape that the kernel means (of a transposed tensor not the one in memory).
        numbers: the problem's sizes, and its scalars as rounded to their dtypes.
        wanted: outputs; a function gives the others, too. None for all.
        asked: how.

    Raises:
        BeyondIntegersError: of a further content, there are such integers.
        KernelError: a reference fails, does not fit its output, or a file cannot be read.
    """
    outputs = {tensor.name: tensor for tensor in tensors if tensor.role in OUTPUTS}
    golden = from_files({name: file for name, file in reference.golden.items() if name in outputs}, outputs)
    wanted = outputs.keys() if wanted is None else wanted
    names = {**inputs, **numbers}
    limits = dict[str, dict[str, float]]()
    for name, output in outputs.items():
        largest = OVERFLOW.get(reference.sums_in(output.dtype), math.inf)
        limits[name] = {"word": word_of(output, tensors), "largest": largest} if asked.further else {}
    computed = {}
    for name, text in reference.numpy.items():
        if name in outputs and name in wanted:
            expression = ArrayExpression(text)
            one = _from_expression(expression, outputs[name], names, limits[name])
            if not reference.reduction and outputs[name].dtype in UNIT_ROUNDOFF:
                many = asked.terms.get(name, 0)
                if asked.probes and not many:
                    many = _terms_of(expression, outputs[name], inputs, names, tensors, one)
                one = replace(one, probes=0 if many else 1, terms=many or 1)
            computed[name] = one
    by_function = [name for name in outputs if name not in reference.numpy]
    if reference.python is not None and not set(by_function).isdisjoint(wanted):
        computed |= run_function(
            reference.python,
            tensors,
            by_function,
            inputs,
            numbers,
            replace(asked, known={name: asked.known[name] for name in by_function if name in asked.known}),
            reduction=reference.reduction,
            limit_s=FURTHER_S if asked.further else LIMIT_S,
        )
    require_same(golden, computed, reference, outputs)
    return {**golden, **computed}


def _from_expression(
    expression: ArrayExpression, output: Buffer, names: Mapping[str, Any], limits: Mapping[str, float]
) -> Expected:
    value, magnitude = expression.evaluate(names, whole=output.dtype not in UNIT_ROUNDOFF, **limits)
    try:
        value, magnitude = (np.broadcast_to(array, output.meant_shape) for array in (value, magnitude))
    except ValueError:
        raise KernelError(
            f"the numpy reference of {output.name} has shape {value.shape}, not {output.meant_shape}"
        ) from None
    return as_output(output.name, output.dtype, value, magnitude, "the numpy reference")


def _terms_of(
    expression: ArrayExpression,
    output: Buffer,
    inputs: Mapping[str, Array],
    names: Mapping[str, Any],
    tensors: Sequence[Buffer],
    expected: Expected,
) -> int:
    """Return how many terms an element of a NumPy expression has, about."""

    def call(given: Mapping[str, Any]) -> Mapping[str, npt.NDArray[Any]]:
        value, _ = expression.evaluate({**names, **given}, whole=False)
        return {output.name: np.broadcast_to(value, output.meant_shape)}

    of = {tensor.name: tensor for tensor in tensors}
    exact = {name: read_only(array, of[name].dtype) for name, array in inputs.items()}
    return terms_of(call, exact, of, {output.name: expected.value})[output.name]
