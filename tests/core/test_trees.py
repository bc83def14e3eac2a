"""Python's text as a tree, from several threads."""

from __future__ import annotations

import ast
import gc
import inspect
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tuner.core.trees import parsed


def test_two_threads_at_once() -> None:
    """A collection of garbage lets the other thread run in the middle of a tree, where Python 3.11 counts in one."""

    def pause(*_: Any) -> None:
        time.sleep(0.001)

    text, threshold = inspect.getsource(ast), gc.get_threshold()
    gc.callbacks.append(pause)
    gc.set_threshold(2000)
    try:
        with ThreadPoolExecutor(4) as pool:
            trees = list(pool.map(parsed, [text] * 8))
    finally:
        gc.callbacks.remove(pause)
        gc.set_threshold(*threshold)
    assert {len(tree.body) for tree in trees} == {len(ast.parse(text).body)}


def test_what_is_none() -> None:
    assert isinstance(parsed("a + 1", "eval").body, ast.BinOp)
    with pytest.raises(SyntaxError):
        parsed("a +", "eval")
