"""A kernel's reference for one problem: the correct outputs, and how far a kernel's may be off, by bounds derived from
dtypes and reduction length."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from msgspec import field

from tuner.core.errors import KernelError
from tuner.core.messages import Record
from tuner.core.model import Gpu, Problem
from tuner.expressions.array import Array, ArrayExpression
from tuner.expressions.array_evaluation import INT64, UINT64, BeyondIntegersError
from tuner.kernel.functions import PythonFunction
from tuner.runtime.dtypes import DTYPES, PARTS
from tuner.runtime.launches import Buffer

if TYPE_CHECKING:  # the measuring process has tolerances, and no kernels
    from tuner.kernel.spec import KernelSpec


MOST_UNKNOWN = 0.5
"""Share of an output that may be beyond judgement; the rest still tells a right kernel from a wrong one."""


OF_ROUNDED = 1024
"""Terms of an output's sum where a rounded result says what is right, and the file does not: other orders of summing up
so many are right, too."""
ROUNDED = {"default": "the default configuration", "kernel": "the CUDA reference"}
"""What says what is right in the outputs' own dtypes, by ``checked_against``."""


@dataclass(frozen=True)
class Expected:
    """The expected values of one output, in the shape that the kernel means."""

    value: npt.NDArray[Any]
    """In the dtype that has all of its numbers: float64, complex128, and of integers int64 or uint64."""
    magnitude: Array
    """What rounding errors are proportional to: see :func:`tuner.kernel.reference.tolerance`. Of integers, how far a
    rounding error may move them."""
    probes: int = 0
    """With which more is known of magnitudes and terms, should an output look wrong with these: none where nothing is.
    What is right with these is right."""
    terms: int = 1
    """That are added up for one element, as estimated where the kernel's file does not say it."""


class SettledReference(Record, frozen=True):
    """How to find out what a problem's outputs must be, and how far they may be from it."""

    accumulate: str = ""
    """Dtype of the kernel's sums, see :meth:`sums_in`."""
    reduction: int = 0
    """Terms of a sum; 0 where the kernel's file does not say it."""
    tolerance: float = 1.0
    """Factor of the allowance."""
    operand_rounding: float = 0.0
    """Relative error of an operand that the kernel rounds."""
    numpy: Mapping[str, str] = field(default_factory=dict)
    """Expression for each output that the problem has."""
    golden: Mapping[str, Path] = field(default_factory=dict)
    """File of each output."""
    python: PythonFunction | None = None
    """For the outputs without an expression."""
    rounded: str = ""
    """Name of the kernel that says what is right in the outputs' own dtypes; empty if none does."""

    def on_host(self, outputs: Iterable[Buffer]) -> bool:
        """Return whether expressions or a function say all outputs."""
        return self.python is not None or all(output.name in self.numpy for output in outputs)

    def sums_in(self, dtype: str) -> str:
        """Return the dtype in which an output of a dtype is summed: its file's, or the usual one."""
        return self.accumulate or ("float64" if dtype in ("float64", "complex128") else "float32")

    def tolerance_of(self, dtype: str, expected: Expected | None = None) -> Tolerance:
        """Return how far an output of a dtype may be off from what is expected; errors as of :func:`tolerance`."""
        terms = self.reduction or (expected.terms if expected else 1)
        allowed = tolerance(terms, self.sums_in(dtype), dtype, self.tolerance, self.operand_rounding)
        return replace(allowed, coefficient=1.0) if expected and dtype not in UNIT_ROUNDOFF else allowed


def numpy_of(kernel: KernelSpec, problem: Problem) -> dict[str, ArrayExpression]:
    """Return the NumPy expression of each output, with options and element expressions replaced by the problem's.

    Raises:
        KernelError: an expression uses a tensor that the problem lacks.
    """
    present = kernel.present(problem)
    texts = {name: str(problem.options[name]) for name in kernel.elements}
    expressions = {}
    for output, expression in kernel.reference.numpy.items():
        if output not in present:
            continue
        settled = expression.settled({**problem.dtypes, **problem.options}, texts)
        for name in sorted(settled.names & (kernel.tensors.keys() - present.keys())):
            raise KernelError(
                f"the numpy reference of {output} uses {name}, which is absent for {problem}",
                f"correct {name}'s when, or the reference",
            )
        expressions[output] = settled
    return expressions


def settle_reference(kernel: KernelSpec, problem: Problem, gpu: Gpu) -> SettledReference:
    """Return a kernel's reference for a problem.

    Raises:
        KernelError: the tolerance or the rounding is out of range.
    """
    reference = kernel.reference
    names = kernel.environment(problem, gpu)
    tolerance = reference.tolerance.number(names)
    if tolerance <= 0.0:
        raise KernelError(
            f"{reference.tolerance.where}: {reference.tolerance.text} = {tolerance}", "it is a factor above 0"
        )
    rounding = reference.operand_rounding.number(names)
    if not 0.0 <= rounding < 1.0:
        raise KernelError(
            f"{reference.operand_rounding.where}: {reference.operand_rounding.text} = {rounding}",
            "it is a relative error, such as 2**-10",
        )
    rounded = ROUNDED.get(reference.checked_against, "")
    terms = OF_ROUNDED if rounded else 0
    return SettledReference(
        problem.dtypes.get(reference.accumulate, reference.accumulate),
        _reduction(reference.reduction.number(names)) if reference.reduction else terms,
        2.0 * tolerance if rounded else tolerance,  # both are rounded
        rounding,
        {name: expression.text for name, expression in numpy_of(kernel, problem).items()},
        {name: path for name, path in reference.golden.items() if name in kernel.present(problem)},
        reference.python,
        rounded,
    )


def as_results(name: str, dtype: str, value: npt.NDArray[Any], reference: SettledReference) -> Expected:
    """Return what the default configuration, or the user's own kernel, made of an output as what is expected of others.

    Its magnitudes are not known: of a sum of so many terms of either sign they are about the square root of that times
    what such sums are.

    Args:
        name: of the output.
        dtype: the output's.
        value: in the dtype that has all of its numbers.
        reference: its ``rounded`` made it, of ``reduction`` terms.

    Raises:
        KernelError: it left an output as it was.
    """
    if dtype not in UNIT_ROUNDOFF:
        return Expected(value, np.zeros(value.shape))
    nan = np.isnan(value)
    left = nan & _untouched(value)
    if (wrong := np.argwhere(left if left.any() else nan)).size:
        where = f"in {len(wrong)} of {value.size} elements of {name} ({list(map(int, wrong[0]))})"
        does, remedy = (
            ("leaves", 'outputs begin as NaN: it must write all of them, or they have role = "inout"')
            if left.any()
            else (
                "computes",
                "say what its inputs are, as init = { uniform = [0.1, 1] }: else they have either sign",
            )
        )
        raise KernelError(
            f"{reference.rounded} {does} NaN {where}",
            f"{remedy}; or it reads shared memory before it is written, as without a __syncthreads()",
        )
    size = np.where(np.isfinite(value), np.abs(value), 0.0)
    largest = float(size.max()) or 1.0  # whose square may be beyond float64
    return Expected(
        value, size + largest * math.sqrt(reference.reduction * float(np.mean((size / largest) ** 2)))
    )


def _untouched(value: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Return which NaNs are those that outputs begin as: of bytes 0xff, which no computation makes.

    The GPU's own have no sign, those of the CPU only the first bit of the mantissa.
    """
    bits = value.astype(np.float64).view(np.uint64)
    return np.asarray(bits >> np.uint64(45) == 0x7FFFF)  # sign, exponent and the seven bits that bfloat16 has


def as_output(
    name: str, dtype: str, value: npt.NDArray[Any], magnitude: Array, what: str, *, wraps: bool = True
) -> Expected:
    """Return a reference's values as the output of a dtype has them; integers of a wider one wrap, as in C.

    Args:
        name: of the output.
        dtype: the output's.
        value: of any dtype.
        magnitude: what rounding errors are proportional to; of integers nothing.
        what: names the reference.
        wraps: whether they may.

    Raises:
        BeyondIntegersError: they wrap, and may not.
        KernelError: the output has integers, and an element is none, or a float that may have been rounded to one; or
            it has real numbers, and the reference has complex ones.
    """
    exact = DTYPES[dtype].exact
    if value.dtype.kind == "c" and exact != "complex128":
        raise KernelError(f"{what} of {name} has complex numbers, and {name} has {dtype}", "take real(...)")
    if dtype in UNIT_ROUNDOFF:
        return Expected(value.astype(exact, copy=False), magnitude)
    if value.dtype.kind in "biu":
        whole = value.astype(dtype).astype(exact)
        if not wraps and (whole != value).any():
            raise BeyondIntegersError(f"{what} of {name} is beyond {dtype}", "have smaller inputs")
        return Expected(whole, np.zeros(whole.shape))
    remedies = {
        "not a number": (
            np.isfinite(value),
            "it must be defined for its inputs: change it, or the inputs' init",
        ),
        "not an integer": (
            value == np.rint(value),
            "round it as the kernel does: a Python reference (python = 'FILE.py:FUNCTION') can",
        ),
        "a float above 2^53": (
            np.abs(value) <= 2.0**53,
            "floats do not have every integer: compute it from integers alone"
            + (
                ", with .astype('uint64'): NumPy makes floats of int64 and uint64"
                if exact == "uint64"
                else ""
            ),
        ),
    }
    for wrong, (right, remedy) in remedies.items():
        if not right.all():
            index = ", ".join(map(str, np.argwhere(~right)[0]))
            count = right.size - np.count_nonzero(right)
            raise KernelError(
                f"{what} of {name} is {wrong} in {count} of {right.size} elements ([{index}])", remedy
            )
    return Expected(value.astype(np.int64).astype(exact), np.zeros(value.shape))


def _reduction(terms: float) -> int:
    if terms < 1:
        raise KernelError(
            f"reduction is {terms:g}", "it is the number of terms of one output element, at least 1"
        )
    return int(terms)


UNIT_ROUNDOFF = {
    "float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8, "float8_e4m3fn": 2.0**-4,
}  # fmt: skip
"""Largest relative error of rounding to nearest."""
SMALLEST = {
    "float64": 2.0**-1074, "float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133, "float8_e4m3fn": 2.0**-9,
}  # fmt: skip
"""Smallest positive number: rounding errors of smaller results have no relative bound."""
SATURATED = {"float8_e4m3fn": 448.0}
"""What stands for infinity in a dtype that has none."""
OVERFLOW = {"float32": 2.0**128 - 2.0**103, "float16": 65520.0, "bfloat16": 2.0**128 - 2.0**119, **SATURATED}
"""From where on rounding to nearest gives infinity."""
for _complex, _part in PARTS.items():  # complex numbers are rounded part by part
    UNIT_ROUNDOFF[_complex], SMALLEST[_complex] = UNIT_ROUNDOFF[_part], SMALLEST[_part]
    OVERFLOW[_complex] = OVERFLOW.get(_part, math.inf)


@dataclass(frozen=True)
class Tolerance:
    """The allowed error of an output.

    An element passes when ``|error| <= coefficient * magnitude + unit * |expected| + tiny``, and the output as a whole
    when the norm of its errors is at most :func:`norm_allowed`. A ``scale^2`` is ``expected^2 + magnitude^2 /
    reduction``, the size of a sum of that many independent terms.
    """

    coefficient: float
    unit: float
    tiny: float
    norm_coefficient: float
    reduction: float

    def allowed(self, expected: Expected) -> npt.NDArray[Any]:
        """Return how far each element may be off."""
        by_terms = self.coefficient * expected.magnitude
        return np.asarray(by_terms + self.unit * np.abs(expected.value) + self.tiny)


def tolerance(
    reduction: int, accumulate: str, output: str, factor: float = 1.0, operand_rounding: float = 0.0
) -> Tolerance:
    """Return the allowed error, derived from the number of terms summed and the dtypes.

    With ``n`` terms and unit roundoff ``u`` of the accumulating dtype, an element may be off by ``u (min(n, 8 sqrt(n))
    + n/8 + 2)`` magnitudes. ``min(n, 8 sqrt(n))`` is the worst case for few terms and the probabilistic bound for many
    (Higham and Mary, SIAM J. Sci. Comput. 41(5), 2019, with lambda = 8). ``n/8`` covers tensor cores, which truncate
    once for every 16 terms; the 2 covers rounding inputs and products. The norm is far tighter, because errors of many
    elements average out: ``2 sqrt(n) + n/16 + 2`` of ``u``; it distinguishes tf32 from float32. The output's own
    rounding adds its unit roundoff to the first, and 0.6 of it (the root mean square of a uniform error, 1/sqrt(3)) to
    the second. Where the kernel may round both factors of a product by ``r``, each term may be off by ``2r`` of itself,
    always in the same direction if it truncates: ``2r`` is added to both. Integers must be exact.

    Args:
        reduction: terms summed for one output element.
        accumulate: dtype they are summed in.
        output: dtype of the output.
        factor: the kernel's own ``tolerance``.
        operand_rounding: largest relative error with which each factor of a product may be rounded.
    """
    if output not in UNIT_ROUNDOFF:
        return Tolerance(0.0, 0.0, 0.5, 0.0, float(reduction))
    u = UNIT_ROUNDOFF.get(accumulate, 0.0)
    n = float(reduction)
    unit = UNIT_ROUNDOFF[output]
    return Tolerance(
        coefficient=factor * u * (min(n, 8.0 * math.sqrt(n)) + n / 8.0 + 2.0) + 2.0 * operand_rounding,
        unit=factor * unit * (1.0 + 2.0**-10),
        tiny=SMALLEST[output],
        norm_coefficient=factor * (u * (2.0 * math.sqrt(n) + n / 16.0 + 2.0) + 0.6 * unit)
        + 2.0 * operand_rounding,
        reduction=n,
    )


def expected_dtype(tensor: Buffer) -> str:
    """Return the dtype in which an output's expected values lie in memory."""
    return DTYPES[tensor.dtype].exact


def written_dtype(tensor: Buffer) -> str:
    """Return the dtype in which a CUDA reference writes an output."""
    return "complex128" if DTYPES[tensor.dtype].kind == "complex" else "float64"


def norm_allowance(count: int) -> float:
    """Return the factor on the norm's bound for an output of few elements, whose errors average out less."""
    return 1.0 + 4.0 / math.sqrt(count)


def norm_allowed(bound: Tolerance, count: int, scales: float) -> float:
    """Return how large the norm of all errors may be.

    Below its normal numbers a dtype rounds to multiples of the smallest: with a root mean square of 0.29 of it, however
    small the result. A softmax of 131,072 columns in float16 has nothing but such numbers.

    Args:
        bound: of the output.
        count: elements.
        scales: sum of the squares of their scales.
    """
    rounded = 0.3 * bound.tiny * math.sqrt(count)
    return norm_allowance(count) * (bound.norm_coefficient * math.sqrt(scales) + rounded)


def relative_norm(squares: float, scales: float) -> float:
    """Return the norm of errors over that of numbers, from the sums of their squares; 0 where there is no error."""
    return math.sqrt(squares / scales) if scales > 0 else (math.inf if squares else 0.0)


def word_of(output: Buffer, tensors: Iterable[Buffer]) -> float:
    """Return from what size on integers on the way to an output may have wrapped in a kernel that is right.

    C computes in 32 bits at least, and a kernel in no more than its output needs, or with floats its inputs.
    """
    dtypes = [output.dtype] if output.dtype not in UNIT_ROUNDOFF else [tensor.dtype for tensor in tensors]
    wide = {"int64": INT64, "uint64": UINT64, "uint32": 2.0**32}
    return max(wide.get(dtype, 2.0**31) for dtype in dtypes)


def place_of(index: int, shape: tuple[int, ...]) -> str:
    """Return where in a tensor an element is, from its index in memory."""
    return f"[{', '.join(map(str, np.unravel_index(index, shape)))}]"


def wrong_text(got: Any, expected: Any, wrong: int, count: int) -> str:
    """Return what the first wrong element is and should be, and how many of a tensor's are wrong."""
    for digits in (6, 9, 17):
        found, right = got if isinstance(got, str) else in_full(got, digits), in_full(expected, digits)
        if found != right:
            break
    return f"is {found}, expected {right}; {wrong} of {count} elements are wrong"


def in_full(number: Any, digits: int = 6) -> str:
    """Return a number of a message: of an integer all digits, of others so many."""
    return str(int(number)) if isinstance(number, int | np.integer) else f"{number:.{digits}g}"
