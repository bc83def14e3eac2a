"""How many terms are added up for one element of an output, where a kernel's file does not say it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.expressions.magnitudes import UNIT
from tuner.kernel.reference import SMALLEST, UNIT_ROUNDOFF
from tuner.runtime.launches import Buffer

SHARES = (2.0**-4, 2.0**-7, 2.0**-10, 2.0**-13, 2.0**-16, 2.0**-19)
NEARLY_ALL = 0.9
"""Changed elements of an output from which on their share tells little of how many inputs each depends on."""


def terms_of(
    call: Callable[[Mapping[str, Any]], Mapping[str, npt.NDArray[Any]]],
    exact: Mapping[str, Any],
    of: Mapping[str, Buffer],
    first: Mapping[str, npt.NDArray[Any]],
) -> dict[str, int]:
    """Return how many elements of the inputs, and so about how many terms, an element of each output depends on.

    Where a random share ``s`` of the inputs is off by a rounding error, an output element that depends on ``k`` of them
    changes with probability ``1 - (1 - s)^k``. The first share with which not nearly all elements change tells ``k``;
    twice of it is returned, because elements may differ. No sum has more terms than the inputs have elements.

    Args:
        call: computes outputs of inputs.
        exact: the inputs.
        of: tensors by name.
        first: the outputs of these inputs.
    """
    random = np.random.default_rng(1)
    most = sum(np.size(array) for name, array in exact.items() if of[name].dtype in UNIT_ROUNDOFF)
    terms, enough = dict.fromkeys(first, 1), 0.0
    left = set(first)
    for share in SHARES:
        probed = call(
            {
                name: np.where(
                    random.random(np.shape(array)) < share,
                    rounded(array, of[name].dtype, random, tied=False),
                    array,
                )
                for name, array in exact.items()
            }
        )
        for name in sorted(left):
            changed = float(np.mean(probed[name] != first[name]))
            few = math.log1p(-min(changed, 1 - 1e-9)) / math.log1p(-share)
            terms[name] = max(1, min(most, math.ceil(2 * max(few, enough)))) if few > 1.5 or enough else 1
            if changed < NEARLY_ALL:
                left.discard(name)
        if not left:
            break
        enough = -math.log1p(-NEARLY_ALL) / share
    return terms


def rounded(array: Any, dtype: str, random: np.random.Generator, *, tied: bool) -> Any:
    """Return an input with an error of about one rounding in float32 in each element; integers have none.

    Args:
        array: the input.
        dtype: its own.
        random: draws the errors.
        tied: whether equal zeros become different, too: the place of the largest of equal ones is open.
    """
    if dtype not in UNIT_ROUNDOFF:
        return array
    given = array * (1.0 + UNIT * random.standard_normal(array.shape))
    given += (SMALLEST["float32"] if tied else 0.0) * random.standard_normal(array.shape)
    given.flags.writeable = False
    return given
