"""A kernel without an end on the CPU: found where that is certain; else a note, and smaller sizes are run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tuner.core.model import Problem
from tuner.core.processes import ChildDied
from tuner.inspect.check import host_worker
from tuner.inspect.check.host_children import HostChildren, Run
from tuner.inspect.check.host_worker import HostRequest, HostResult
from tuner.inspect.emulator.building import COMPILER
from tuner.inspect.emulator.host import HostArray, HostKernel, KernelFault, Schedule
from tuner.kernel.load import load_kernel
from tuner.kernel.roofline import ARCHITECTURES

CODE = {
    "a step of 0": "for (int i = t; i < n; i += n / 1000) y[i] = 1;",
    "a flag without a writer": "while (y[0] == 0) {}",
    "a lock that stays locked": "while (atomicCAS(y, 0, 1) != 0) {} y[1] += 1;",
    "a question at a barrier": "if (t) __syncthreads(); else while (atomicAdd(y, 0) == 0) y[1] = 3;",
    "a flag": "if (t == 0) { while (y[5] != 3) {} y[0] = 1; } else if (t == 33) { y[5] = 3; }",
    "two that take turns": "if (t < 2) for (int r = t; r < 19; r += 2) { while (y[b] != r) {} y[b] = r + 1; }",
    "a lock": "while (atomicCAS(y, 0, 1) != 0) {} y[1] += 1; atomicExch(y, 0);",
    "a number of trials": "for (int i = 0; i < 2000; ++i) if (atomicCAS(y, 0, 1) == 5) break;",
    "a long loop": "if (t == 0) for (int i = 0; i < 90000; ++i) y[b] = y[b] + 1;",
}
ENDLESS = dict(list(CODE.items())[:4])


@pytest.mark.skipif(COMPILER is None, reason="needs g++")
def test_what_never_ends_is_told_from_what_waits(tmp_path: Path) -> None:
    cases = "".join(f"case {number}: {code} break;\n" for number, code in enumerate(CODE.values()))
    source = (
        'extern "C" __global__ void k(int* to, int n, int which) {\n'
        "    volatile int* y = to; const int t = threadIdx.x, b = blockIdx.x;\n"
        f"    switch (which) {{\n{cases}}}\n}}\n"
    )
    kernel = HostKernel(source.replace("(y,", "(to,"), "k", tmp_path)
    for number, what in enumerate(CODE):
        array = HostArray(100, "int32", 256, "y")
        array.fill(np.zeros(100))
        launch = (3, 40, 0, Schedule(0, 2, shuffled=True), array, np.int32(100), np.int32(number))
        if what in ENDLESS:
            with pytest.raises(KernelFault, match=rf"(an endless loop|a standstill): .*, {4 + number}$"):
                kernel(*launch)
        else:
            kernel(*launch)


def test_behind_a_size_that_takes_too_long_smaller_ones_are_run(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = load_kernel("vector_add")
    asked: list[list[int]] = []

    class Slow:
        """Has an answer for up to 100 elements."""

        def send(self, request: HostRequest) -> None:
            asked.append([problem.sizes["n"] for problem in request.problems])
            self._left = list(asked[-1])

        def receive(self, _: float) -> HostResult:
            if self._left.pop(0) > 100:
                raise ChildDied("killed by SIGXCPU")
            return HostResult()

        def kill(self) -> None: ...

        def is_alive(self) -> bool:
            return True

    monkeypatch.setattr(HostChildren, "take", lambda _: Slow())
    children = HostChildren(1)
    problems = tuple(kernel.problem({"n": n}) for n in (7, 1000, 900, 400, 90, 80, 70))
    request = HostRequest(kernel.file, ARCHITECTURES[90], problems, Path(), wanted=3)
    outcome = children.ask(Run(("variants", "plain"), "plain block=64", request))
    assert asked == [[7, 1000, 900, 400, 90, 80, 70], [70, 80, 90, 400]]
    assert [problem.sizes["n"] for problem in outcome.right] == [7, 70, 80] and not outcome.faults
    assert "plain block=64 was given up after " in outcome.note
    assert outcome.note.endswith("at n=1000: it is slow, or does not end (3 smaller sizes right)")
    asked.clear()
    children.ask(Run(("variants", "plain"), "plain block=32", request))
    assert asked == [[7, 400, 90, 80, 70], [70, 80, 90]]


def test_too_little_memory_is_no_fault_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    class Poor:
        def send(self, _: HostRequest) -> None:
            raise ChildDied("killed by SIGABRT: what():  std::bad_alloc")

        def kill(self) -> None: ...

    monkeypatch.setattr(HostChildren, "take", lambda _: Poor())
    kernel = load_kernel("vector_add")
    request = HostRequest(kernel.file, ARCHITECTURES[90], (kernel.problem({"n": 7}),), Path())
    outcome = HostChildren(1).ask(Run(("variants", "plain"), "plain block=64", request))
    assert not outcome.faults
    assert outcome.note == "plain block=64 was not run on the CPU: there is too little memory"


def test_what_would_take_too_long_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand elements take 10 s."""
    kernel, now, begun, told = load_kernel("vector_add"), [0.0], list[int](), list[HostResult]()
    monkeypatch.setattr(host_worker, "limit_cpu", lambda: None)
    monkeypatch.setattr(host_worker, "time", SimpleNamespace(process_time=lambda: now[0]))

    def result(problem: Problem, _: int) -> HostResult:
        begun.append(problem.sizes["n"])
        now[0] += problem.sizes["n"] / 100
        return HostResult()

    problems = tuple(kernel.problem({"n": n}) for n in (1000, 3000, 1500))
    request = HostRequest(kernel.file, ARCHITECTURES[90], problems, Path(), wanted=2)
    pipe: Any = SimpleNamespace(send=told.append)
    host_worker._answer(pipe, request, SimpleNamespace(result=result))  # type: ignore[arg-type]
    assert begun == [1000, 1500] and told[1].undecided == "it would take more than 20 s on the CPU"
