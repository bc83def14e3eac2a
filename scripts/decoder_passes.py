"""Passes of a decoder that can be repeated, timed in turn."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch


class Program:
    """A pass that can be repeated.

    Args:
        function: does it once.
        around: what must hold meanwhile.
    """

    def __init__(self, function: Callable[[], Any], around: AbstractContextManager[Any]) -> None:
        self._function, self._around = function, around

    def __call__(self) -> Any:
        with self._around:
            return self._function()

    def timed_ns(self, cuda: bool) -> float:
        """Return what one pass takes."""
        with self._around:
            if not cuda:
                began = time.perf_counter_ns()
                self._function()
                return float(time.perf_counter_ns() - began)
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            self._function()
            end.record()
            end.synchronize()
            return float(start.elapsed_time(end)) * 1e6


def in_turn(programs: Sequence[Program], rounds: int, cuda: bool) -> list[list[float]]:
    """Return the times of programs in ns, one of each for each round, in shuffled order."""
    samples: list[list[float]] = [[] for _ in programs]
    turns = random.Random(0)
    for _ in range(2):
        for program in programs:
            program()
    for _ in range(rounds):
        order = list(range(len(programs)))
        turns.shuffle(order)
        for number in order:
            samples[number].append(programs[number].timed_ns(cuda))
    return samples
