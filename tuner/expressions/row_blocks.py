"""References whose rows are independent are evaluated in blocks of rows, in threads.

Intermediate results of a block stay in a core's cache: the page faults of whole arrays take longer than the arithmetic.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.expressions.elementwise import FUNCTIONS

BLOCK_ELEMENTS = 1 << 18
"""Of the largest array, in a block: 2 MiB in float64, and milliseconds."""
IN_A_ROW = ("sum", "mean", "max", "min", "cumsum")
"""Functions of arrays that keep rows independent along any axis but the first."""


class Depends(Enum):
    """On which rows of the arrays a node depends."""

    ROWS = "each row of it on the same row of the arrays"
    NONE = "on none: it is the same for all rows, and has no axis for them but one of length 1"
    MORE = "on other rows, or that cannot be told from the tree"


Evaluate = Callable[[Mapping[str, Any]], tuple[npt.NDArray[Any], npt.NDArray[Any]]]


def in_blocks(
    body: ast.expr, names: Mapping[str, Any], evaluate: Evaluate
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return values and magnitudes of an expression; of many independent rows in blocks.

    Args:
        body: the checked tree.
        names: values by name.
        evaluate: gives both for some of the rows.
    """
    used = {node.id for node in ast.walk(body) if isinstance(node, ast.Name)} & names.keys()
    arrays = {name: names[name] for name in used if np.ndim(names[name])}
    rank = max(map(np.ndim, arrays.values()), default=0)
    whole = {name: array for name, array in arrays.items() if np.ndim(array) == rank}
    rows = max((len(array) for array in whole.values()), default=1)
    cut = {name: array for name, array in whole.items() if len(array) == rows}
    largest = max(map(np.size, cut.values()), default=0)
    count = min(rows, largest // BLOCK_ELEMENTS)
    floats = all(np.asarray(array).dtype.kind == "f" for array in arrays.values())
    alike = all(len(array) in (1, rows) for array in whole.values())
    if (
        count < 2
        or not floats
        or not alike
        or _depends(body, cut.keys(), rank, last=True) is not Depends.ROWS
    ):
        return evaluate(names)

    def block(low: int, high: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        return evaluate({**names, **{name: array[low:high] for name, array in cut.items()}})

    def compute(low: int, high: int) -> None:
        value[low:high], magnitude[low:high] = block(low, high)

    value, magnitude = (np.empty((rows, *one.shape[1:]), one.dtype) for one in block(0, 1))
    ends = [rows * number // count for number in range(count + 1)]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
        list(threads.map(compute, ends[:-1], ends[1:]))
    return value, magnitude


def _depends(node: ast.expr, cut: Any, rank: int, *, last: bool = False) -> Depends:
    """Return on which rows a node depends; the last one, the result, may lose axes."""
    match node:
        case ast.Constant():
            return Depends.NONE
        case ast.Name(id=name):
            return Depends.ROWS if name in cut else Depends.NONE
        case ast.UnaryOp(operand=operand):
            return _depends(operand, cut, rank)
        case ast.BinOp(left=left, op=op, right=right) if not isinstance(op, ast.MatMult):
            return _of_both(_depends(left, cut, rank), _depends(right, cut, rank))
        case ast.Compare(left=left, comparators=[right]):
            return _of_both(_depends(left, cut, rank), _depends(right, cut, rank))
        case ast.Subscript(value=value, slice=ast.Tuple(elts=[ast.Slice(None, None, None), *others])):
            of = _depends(value, cut, rank)
            sliced = len(others) < rank and all(isinstance(one, ast.Slice) for one in others)
            return of if of is Depends.ROWS and sliced else Depends.MORE
        case ast.Call(func=ast.Name(id=name), args=arguments) if name in FUNCTIONS:
            return _of_both(*(_depends(one, cut, rank) for one in arguments))
        case ast.Call(func=ast.Name(id=name), args=[operand], keywords=options) if name in IN_A_ROW:
            given = {one.arg: ast.unparse(one.value) for one in options}
            axis = {str(each) for each in range(1, rank)} | {str(-each) for each in range(1, rank)}
            kept = last or name == "cumsum" or given.get("keepdims") == "True"
            of = _depends(operand, cut, rank)
            return of if of is Depends.ROWS and kept and given.get("axis") in axis else Depends.MORE
    return Depends.MORE


def _of_both(*sides: Depends) -> Depends:
    if Depends.MORE in sides:
        return Depends.MORE
    return Depends.ROWS if Depends.ROWS in sides else Depends.NONE
