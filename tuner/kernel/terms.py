"""What a few calls with inputs that are a rounding error off tell of an output: how many terms an element has, where a
kernel's file does not say it, and how large they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.core.errors import KernelError
from tuner.expressions.magnitudes import UNIT
from tuner.kernel.reference import MOST_UNKNOWN, SMALLEST, UNIT_ROUNDOFF
from tuner.runtime.launches import Buffer

CHANGED, FEWER = 64, 4
"""Elements of the inputs that are off at first; and then, for an output of which that changes nearly all."""
MORE = 8
"""Times as many elements are off next for an output of which too few change."""
LARGEST = 1 / 16
"""Share of the inputs that is off at most."""
NEARLY_ALL = 0.9
"""Changed elements of an output from which on their share tells little of how many inputs each depends on."""
SEEN = 8
"""Changed elements of an output that tell it to a third or so."""
ROUNDINGS = 8
"""By so many rounding errors inputs are off for an output of integers: a quotient in float32 that a kernel computes as
a product with the inverse is two off, and each of eight probes then moves it across its rounding point with 0.4."""
ROOM = 4.0
"""Times the response to a single probe, or the root mean square of those of all elements where that is more."""


def terms_of(
    call: Callable[[Mapping[str, Any]], Mapping[str, npt.NDArray[Any]]],
    exact: Mapping[str, Any],
    of: Mapping[str, Buffer],
    first: Mapping[str, npt.NDArray[Any]],
) -> dict[str, int]:
    """Return how many elements of the inputs, and so about how many terms, an element of each output depends on.

    Where a random share ``s`` of the inputs is off by a rounding error, an output element that depends on ``k`` of them
    changes with probability ``1 - (1 - s)^k``. If each input is used, a single call tells every ``k`` up to a
    thirtieth of all inputs, and a second one larger ones. Twice of ``k`` is returned, because elements may differ. No
    sum has more terms than the inputs have elements.

    Args:
        call: computes outputs of inputs.
        exact: the inputs.
        of: tensors by name.
        first: the outputs of these inputs.
    """
    floats = {name: array for name, array in exact.items() if of[name].dtype in UNIT_ROUNDOFF}
    most = sum(map(np.size, floats.values()))
    few, random = dict.fromkeys(first, 0.0), np.random.default_rng(1)
    if most < 2:
        return dict.fromkeys(first, 1)

    def look(count: int, names: Iterable[str], largest: float) -> dict[str, int]:
        """Return how many elements of some outputs change with so many of the inputs."""
        probed = call({**exact, **_off(floats, count, random)})
        changed = {name: int(np.count_nonzero(probed[name] != first[name])) for name in names}
        for name, seen in changed.items():
            share = min(seen / first[name].size, largest)
            few[name] = max(few[name], math.log1p(-share) / math.log1p(-count / most))
        return changed

    limit = math.ceil(LARGEST * most)
    count = min(CHANGED, limit)
    changed = look(count, first, NEARLY_ALL)
    if full := [name for name, seen in changed.items() if seen >= NEARLY_ALL * first[name].size]:
        look(min(FEWER, count), full, 1 - 1e-9)
    while count < limit and (
        left := [one for one, seen in changed.items() if seen < SEEN and one not in full]
    ):
        count = min(MORE * count, limit)
        changed = look(count, left, NEARLY_ALL)
    return {name: max(1, min(most, math.ceil(2 * one))) if one > 1.5 else 1 for name, one in few.items()}


def _off(exact: Mapping[str, Any], count: int, random: np.random.Generator) -> dict[str, Any]:
    """Return inputs of which so many elements, drawn from all of them, are off by a rounding error of float32."""
    sizes = [np.size(array) for array in exact.values()]
    ends = np.cumsum(sizes)
    drawn = random.choice(ends[-1], count, replace=False)
    inputs = {}
    for (name, array), size, end in zip(exact.items(), sizes, ends, strict=True):
        places = drawn[(end - size <= drawn) & (drawn < end)] - (end - size)
        given = np.array(array)  # in the same order in memory: in another one, libraries may round otherwise
        given.flat[places] *= 1.0 + UNIT * random.standard_normal(len(places))
        given.flags.writeable = False
        inputs[name] = given if len(places) else array
    return inputs


def rounded(
    array: Any, dtype: str, random: np.random.Generator, *, tied: bool = False, error: float = UNIT
) -> Any:
    """Return an input with an error of about one rounding in float32 in each element; integers have none.

    Args:
        array: the input.
        dtype: its own.
        random: draws the errors.
        tied: whether equal zeros become different, too: the place of the largest of equal ones is open.
        error: another relative error.
    """
    if dtype not in UNIT_ROUNDOFF:
        return array
    if array.dtype.kind == "c":
        parts = array.real, array.imag
        real, imag = (rounded(part, "float32", random, tied=tied, error=error) for part in parts)
        given = real + 1j * imag
    else:
        given = array * (1.0 + error * random.standard_normal(array.shape))
        if tied:
            given += SMALLEST["float32"] * random.standard_normal(array.shape)
    given.flags.writeable = False
    return given


def spread_of(
    call: Callable[[Mapping[str, Any]], Mapping[str, npt.NDArray[Any]]],
    exact: Mapping[str, Any],
    of: Mapping[str, Buffer],
    first: Mapping[str, npt.NDArray[Any]],
    probes: int,
) -> dict[str, npt.NDArray[Any]]:
    """Return how far each integer moves where inputs are some rounding errors off: by so much a kernel's may differ.

    Args:
        call: and the following: as for :func:`terms_of`.
        exact: the inputs.
        of: tensors by name.
        first: the outputs of these inputs, all of integers.
        probes: calls.

    Raises:
        KernelError: most of an output's integers move.
    """
    spread, random = {name: np.zeros(value.shape) for name, value in first.items()}, np.random.default_rng(2)
    errors = {name: ROUNDINGS * min(UNIT, UNIT_ROUNDOFF.get(of[name].dtype, UNIT)) for name in exact}
    for _ in range(probes):
        probed = call(
            {name: rounded(one, of[name].dtype, random, error=errors[name]) for name, one in exact.items()}
        )
        for name, value in first.items():
            np.maximum(
                spread[name], np.abs(np.subtract(probed[name], value, dtype=np.float64)), out=spread[name]
            )
    for name, moved in spread.items():
        if np.count_nonzero(moved) > MOST_UNKNOWN * moved.size:
            raise KernelError(f"rounding alone decides most elements of {name}", "have other inputs")
    return spread


def with_room(square: Any) -> Any:
    """Return the squares of single responses, as large as they can be: where no other probes follow."""
    return ROOM**2 * np.maximum(square, square.mean())


def with_neighbours(square: Any) -> Any:
    """Return the squares of single responses, in the mean with those of four elements before or behind each.

    Elements side by side mostly have terms of one size, so that these are as good as more probes. Of both sides the
    smaller counts: where rounding decides an element, that says nothing of others.
    """
    four = square.ravel()
    for step in (1, 2):
        four = four + np.roll(four, step)
    beside = np.minimum(np.roll(four, 1), np.roll(four, -4)).reshape(square.shape) / 4
    return np.where(np.isfinite(beside), (square + beside) / 2, square)
