"""What the inputs of a problem hold: numbers of each ``init``, and the further contents on which results are verified.

A kernel can be right for the usual numbers alone: positive ones, small ones, integers below 128. So what wins, and what
``tune check`` runs, is verified with others too. The measuring process and the emulator draw them from this table.
Inputs that mean something (``zeros``, ``ones``, ``index``, a range, a file's) keep their numbers, unless these follow
from others; of ``{ uniform = [a, b] }`` none leaves the range.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from tuner.core.errors import TunerError
from tuner.expressions.array_evaluation import BeyondIntegersError
from tuner.runtime.dtypes import BITS, DTYPES, PARTS
from tuner.runtime.launches import Buffer

Array = npt.NDArray[Any]
INITS = ("normal", "uniform", "zeros", "ones", "index")
RANDOM = ("normal", "uniform")
"""The inits whose numbers mean nothing, so that others will do."""
FIXED = {"zeros": 0.0, "ones": 1.0, "inf": np.inf, "-inf": -np.inf}
EQUAL = (1.5, -0.75, 2.5, -1.25, 0.5, -3.0)
"""Of the tensors in turn. With few bits: sums of them are exact, where other equal terms are all rounded to one side,
which no bound of random errors allows."""
EXPONENTS = {"float16": 3.0, "float8_e4m3fn": 3.0}
"""Large numbers are up to two to this power, and small ones down to its inverse."""
OTHER_EXPONENTS = 5.0
FARTHEST = {"float16": 2.0**10, "float8_e4m3fn": 2.0**8}
OTHER_FARTHEST = 2.0**17
"""From zero; the others are up to eight times as near."""
NEAREST = {"float16": 2.0**-6, "float8_e4m3fn": 2.0**-3}
OTHER_NEAREST = 2.0**-12
"""Factors of the usual numbers. Products of two are still normal numbers of these dtypes, but for float8."""
ENDS = 0.1
"""Share of the integers of the whole range that are its first or last."""
CONTENTS_S = 30.0
"""In the measuring process no further content is begun that would end later, by what the reference has taken: six take
a second, unless a reference on the host is slow."""
FEWEST, FEW_OF_A_ROW = 64, 4
"""Numbers among zeros: at least so many in a tensor, and so many for each of its rows, which are its longest side."""
EDGE, LONG = 16, 1 << 12
"""In a tensor with as many numbers as the second, so many first and last ones are no zeros but about the largest of the
few, and so are those beside multiples of :data:`DRAWN`: a long sum is allowed more error than a usual one is
worth. They do not cancel, nor do their products with numbers of the next tensor."""
DRAWN = 1 << 20
"""Numbers that are drawn for that, at most."""
NAN, *OTHER_POISONS = POISONS = (0xFF, 0x7B, 0xFB, 0x00)
"""Bytes that guard zones, outputs and scratch hold before a run that is verified.

The first is NaN in every floating-point format; but -1 or the largest of integers, which may be right, and a maximum of
floats leaves it out. The others are a large number, a large negative one and zero: whatever is left there or taken into
a result, with one of the four something is wrong.
"""
REMEDY = "correct the kernel, or say what it is for by the inputs' init = { uniform = [least, largest] }"


class Content(StrEnum):
    """What random inputs hold; with other numbers than these, as usual where it is of integers alone."""

    USUAL = "the usual numbers"
    WHOLE = "integers of the whole range"
    HALF = "integers of half the bits"
    """In place of the whole range, where results have no room: a product of two of these has."""
    LARGE = "a large range of numbers"
    EQUAL = "equal numbers"
    ZEROS = "zeros"
    NEGATIVE = "negative numbers"
    SPARSE = "a few numbers among zeros"
    """Of every second tensor, the others as usual: a sum that leaves one of them out is far off, however long it is."""
    LATER = "numbers drawn after compiling"
    """The usual ones, by a seed of that moment."""
    SYMMETRIC = "integers of the whole range but the lowest"
    """In place of the whole range: the lowest has no absolute value in its dtype."""
    FAR = "numbers far below zero"
    """A maximum that begins at -1000 is above them all, and exponentials vanish unless the largest is taken off."""
    NEAR = "numbers near zero"
    """Beside larger ones they are lost in what rounding is allowed."""
    ABOVE = "numbers far above zero"
    """A minimum that begins at 1000 is below them all, and an exponential overflows unless the largest is taken off."""


WIDE = (Content.WHOLE, Content.SYMMETRIC, Content.HALF)
"""Of integers, each in place of the one before where the reference has no answer to that."""


def is_random(tensor: Buffer) -> bool:
    """Return whether a tensor may hold other numbers than it does."""
    one = tensor.between is not None and tensor.between[0] == tensor.between[1]
    return tensor.role != "output" and tensor.init in RANDOM and not one


def is_given(tensor: Buffer) -> bool:
    """Return whether the kernel's file says each number of a tensor."""
    return tensor.init == "range" or tensor.file is not None


def is_integer(tensor: Buffer) -> bool:
    """Return whether a tensor has integers."""
    return DTYPES[tensor.dtype].whole


def drawn(
    tensor: Buffer, rng: np.random.Generator, content: Content = Content.USUAL, number: int = 0
) -> Array:
    """Return numbers as a tensor's dtype has them, in the dtype that has all of them, as they lie in memory.

    Those of :data:`Content.SPARSE` are repeated in a large tensor: they are fewer then.

    Args:
        tensor: an input.
        rng: draws them.
        content: for random tensors.
        number: of the tensor in its problem.
    """
    count = tensor.count
    if content is Content.SPARSE and is_random(tensor):
        sparse = _sparse(tensor, rng, number)
        return sparse.reshape(tensor.shape) if len(sparse) == count else sparse
    if (of_parts := PARTS.get(tensor.dtype)) is not None:
        part = replace(tensor, dtype=of_parts)
        real = drawn(part, rng, content, number)
        return real + 1j * (drawn(part, rng, content, number) if is_random(tensor) else np.zeros(()))
    if tensor.init == "range" and tensor.between is not None:
        numbers: Array = tensor.between[0] + tensor.between[1] * np.arange(count)
        return rounded(numbers, tensor.dtype).reshape(tensor.shape)
    if not is_random(tensor) and tensor.between is None:
        numbers = np.arange(count) % 251
        if tensor.init in FIXED:
            numbers = np.full(count, FIXED[tensor.init])
    elif content is Content.ZEROS or not is_random(tensor):
        numbers = np.zeros(count, DTYPES[tensor.dtype].exact)
    elif is_integer(tensor):
        numbers = _integers(tensor, rng, content, number)
    else:
        numbers = _floats(tensor, rng, content, number)
    if tensor.between is not None:
        numbers = np.clip(numbers, *tensor.between)
    return rounded(numbers, tensor.dtype).reshape(tensor.shape)


def _sparse(tensor: Buffer, rng: np.random.Generator, number: int) -> Array:
    """Return the numbers of :data:`Content.SPARSE`, at most :data:`DRAWN`; in a larger tensor they are repeated."""
    count = min(tensor.count, DRAWN)
    if number % 2:
        usual = drawn(replace(tensor, shape=(count,)), rng)
        return usual if tensor.between is not None or usual.dtype.kind == "c" else np.abs(usual)
    some = max(FEWEST, FEW_OF_A_ROW * count // max(tensor.shape))
    few = drawn(replace(tensor, shape=(min(count, some),)), rng, Content.LARGE, number)
    numbers = np.full(count, drawn(replace(tensor, shape=(1,)), rng, Content.ZEROS))
    numbers[rng.integers(count, size=few.size)] = few
    ends = np.arange(EDGE if count >= LONG else 0)
    places = np.concatenate((ends, count - 1 - ends, (tensor.count - 1 - ends) % count))
    large = np.resize(np.sort(few)[::-1], places.size)
    if tensor.between is None:  # all about as large, and no two are equal, so that one place has the largest
        large = rounded(np.abs(few).max() * (1 - np.arange(places.size) / 128), tensor.dtype)
    numbers[places] = large
    return numbers


def _floats(tensor: Buffer, rng: np.random.Generator, content: Content, number: int) -> Array:
    count = tensor.count
    if content is Content.EQUAL:
        return np.full(count, EQUAL[number % len(EQUAL)])
    if content is Content.LARGE:
        most = EXPONENTS.get(tensor.dtype, OTHER_EXPONENTS)
        return rng.choice((-1.0, 1.0), count) * 2.0 ** rng.uniform(-most, most, count)
    if content in (Content.FAR, Content.ABOVE):
        far = rng.uniform(0.125, 1.0, count) * FARTHEST.get(tensor.dtype, OTHER_FARTHEST)
        return far if content is Content.ABOVE else -far
    usual = rng.standard_normal(count) if tensor.init == "normal" else rng.random(count)
    if tensor.between is not None:
        low, high = tensor.between
        usual = low + (high - low) * usual
    elif content is Content.NEAR:
        usual = usual * NEAREST.get(tensor.dtype, OTHER_NEAREST)
    return -np.abs(usual) if content is Content.NEGATIVE else usual


def _integers(tensor: Buffer, rng: np.random.Generator, content: Content, number: int) -> Array:
    count, dtype = tensor.count, DTYPES[tensor.dtype]
    lowest, highest = dtype.limits
    half = 2 ** ((8 * dtype.size_bytes - 1) // 2)
    if content is Content.EQUAL:
        numbers: Array = np.full(count, int(4 * EQUAL[number % len(EQUAL)]))
    elif content is Content.LARGE:
        numbers = rng.choice((-1, 1), count) * (half ** rng.random(count)).astype(np.int64)
    elif content in WIDE or tensor.between is not None:
        most = min(half - 1, highest) if content is Content.HALF else highest
        least = lowest if content is Content.WHOLE or not lowest else -most
        low, high = map(int, tensor.between or (least, most))
        numbers = rng.integers(low, high, count, dtype.exact, endpoint=True)
        if content in WIDE:
            ends = np.array((low, high), dtype.exact)
            numbers = np.where(rng.random(count) < ENDS, rng.choice(ends, count), numbers)
    else:
        usual = rng.standard_normal(count) if tensor.init == "normal" else rng.random(count)
        # A range worth adding up; eight standard deviations stay within eight bits.
        numbers = np.rint(np.clip(usual * 15.0, 0.0, 127.0)).astype(np.int64)
    if content is Content.NEGATIVE:
        numbers = -1 - np.abs(numbers)
    numbers = numbers if lowest else np.abs(numbers)
    return numbers % 2 if dtype.kind == "bool" else numbers


def stored_array(file: Path) -> Array:
    """Return the array of a ``.npy`` file, which is read as it is used.

    Raises:
        OSError, ValueError: it is none: its header may say anything.
    """
    try:
        with np.errstate(over="ignore"):  # of the number of its elements
            return np.lib.format.open_memmap(file, mode="r")
    except (OverflowError, TypeError, ValueError) as error:
        raise ValueError(re.sub(r"<\S+ object at 0x\w+>", "no plain value", str(error))) from None


def rounded(numbers: Array, dtype: str) -> Array:
    """Return numbers as a dtype has them, in the dtype that has all of them."""
    return decoded(encoded(numbers, dtype), dtype)


def encoded(numbers: Array, dtype: str) -> Array:
    """Return numbers in a dtype, contiguous; those of dtypes that NumPy lacks as their bits."""
    if dtype == "float8_e4m3fn":
        return to_float8(numbers)
    return to_bfloat16(numbers) if dtype == "bfloat16" else np.ascontiguousarray(numbers, dtype)


def decoded(array: Array, dtype: str) -> Array:
    """Return what memory of a dtype holds, as :func:`in_memory` has it, in the dtype that has all of its numbers."""
    return from_bits(array, dtype).astype(DTYPES[dtype].exact)


def in_memory(dtype: str) -> str:
    """Return the dtype in which NumPy sees memory: the bits of one that it lacks, of bool bytes, which may be any."""
    return {**BITS, "bool": "uint8"}.get(dtype, dtype)


def as_meant(array: Array, tensor: Buffer) -> Array:
    """Exchange the axes of a transposed tensor: from memory to what the kernel means by it, or back."""
    return array.T if tensor.transposed else array


def to_bfloat16(numbers: Array) -> npt.NDArray[np.uint16]:
    """Return the bits of numbers rounded to the nearest bfloat16, to even in the middle."""
    bits = numbers.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bfloat16(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """Return the numbers that bits of bfloat16 are."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def to_float8(numbers: Array) -> npt.NDArray[np.uint8]:
    """Return the bits of numbers rounded to float8_e4m3fn, to even in the middle; at most 448, as in CUDA."""
    size = np.minimum(np.abs(numbers.astype(np.float64)), 448.0)
    exponent = np.where(size > 0, np.maximum(np.frexp(size)[1] - 1, -6), -6)
    # Four bits of a normal number; rounding up may carry into the exponent, as it should.
    with np.errstate(invalid="ignore"):
        code = ((exponent + 6) * 8 + np.rint(np.ldexp(size, 3 - exponent))).astype(np.uint8)
    return np.where(np.isnan(size), 0x7F, code | np.signbit(numbers) * np.uint8(0x80)).astype(np.uint8)


def from_float8(bits: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Return the numbers that bits of float8_e4m3fn are: it has no infinities, and one NaN of either sign."""
    size, exponent = bits % 8, (bits // 8 % 16).astype(np.int32)
    value = np.ldexp(np.where(exponent, size + 8.0, size), np.maximum(exponent, 1) - 10)
    value = np.where(bits % 128 == 127, np.nan, value)
    return np.copysign(value, np.where(bits < 128, 1.0, -1.0)).astype(np.float32)


def from_bits(array: Array, dtype: str) -> Array:
    """Return the numbers that an array holds as the bits of a dtype that NumPy lacks; another array as it is."""
    if dtype == "float8_e4m3fn":
        return from_float8(array)
    return from_bfloat16(array) if dtype == "bfloat16" else array


Result = TypeVar("Result")


@dataclass(frozen=True)
class Tried(Generic[Result]):
    """A content, and what the reference makes of it."""

    content: str
    result: Result | None
    why: str = ""
    """It is left out, because there is no right answer."""


def not_varied(tensors: Sequence[Buffer], golden: Mapping[str, Any]) -> str:
    """Return why no other contents can be drawn; empty if they can."""
    if not any(map(is_random, tensors)):
        return "no input is random"
    if any(tensor.name in golden for tensor in tensors):
        return "golden files are of one content"
    return ""


def further_contents(
    tensors: Sequence[Buffer],
    compute: Callable[[Mapping[str, Array]], Result],
    seed: int,
    *,
    integers: bool = True,
    later: bool = False,
    only: Collection[Content] = frozenset(Content),
    given: Callable[[Mapping[str, Array]], Mapping[str, Array]] | None = None,
) -> Iterator[Tried[Result]]:
    """Yield contents that the reference has an answer to, and those that are left out.

    Where it has none for integers (they may be indices, or their sums beyond what a dtype holds), they are drawn with
    half of their bits, and then as usual.

    Args:
        tensors: of the problem.
        compute: returns what is expected of inputs by name, as they lie in memory; raises TunerError for none.
        seed: of all but the last.
        integers: whether integers may hold others than the usual numbers.
        later: whether the last is drawn by a seed of its moment.
        only: these of them.
        given: returns what the kernel's file gives, by name and as it lies in memory, where others hold such numbers:
            it means something, and stays but for what follows from these. It may raise TunerError, as ``compute``.
    """
    inputs = [tensor for tensor in tensors if tensor.role != "output"]
    whole = [tensor for tensor in inputs if is_random(tensor) and is_integer(tensor)]
    floats = any(is_random(tensor) and not is_integer(tensor) for tensor in inputs)
    free = any(is_random(tensor) and not is_integer(tensor) and tensor.between is None for tensor in inputs)
    signed = floats or any(DTYPES[tensor.dtype].limits[0] for tensor in whole)
    vary = integers and bool(whole)
    for turn, content in sorted(enumerate(Content), key=lambda one: one[1] is Content.LATER):
        if content not in only:
            continue
        if content is Content.WHOLE:
            attempts = [(one, one) for one in WIDE] if vary else []
        elif content is Content.LATER:
            attempts = [(content, content)] if later else []
        elif content in (Content.USUAL, *WIDE) or (content is Content.NEGATIVE and not signed):
            attempts = []
        elif content in (Content.FAR, Content.NEAR, Content.ABOVE):
            attempts = [(content, Content.USUAL)] if free else []
        else:
            attempts = [(content, content)] if vary or not whole else []
            attempts += [(content, Content.USUAL)] if floats and whole else []
        rng = np.random.default_rng(None if content is Content.LATER else [seed, turn])
        left_out: Tried[Result] | None = None
        for of_floats, of_integers in attempts:
            contents = [of_integers if is_integer(tensor) else of_floats for tensor in inputs]
            numbers = {
                tensor.name: drawn(tensor, rng, one, number)
                for number, (tensor, one) in enumerate(zip(inputs, contents, strict=True))
                if not is_given(tensor)
            }
            try:
                result = compute({**numbers, **given(numbers)} if given else numbers)
            except TunerError as error:
                left_out = left_out or Tried(str(content), None, error.problem)
                if content is Content.WHOLE and not isinstance(error, BeyondIntegersError):
                    vary = False  # they are indices, or the like
                    break
                continue
            if of_floats in (content, Content.SYMMETRIC):
                left_out = None
            yield Tried(str(of_floats), result)
            break
        if left_out is not None:
            yield left_out
