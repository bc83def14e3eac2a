"""Variables of a candidate's code, some filled by its launches, with host memory in place of a GPU's."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tuner.children.cubin import variables
from tuner.children.measuring import Candidate
from tuner.children.nvrtc import compile_source
from tuner.core.model import Verification
from tuner.gpu import candidate as module
from tuner.gpu import images
from tuner.gpu.candidate import Loaded, load
from tuner.gpu.images import SPAN
from tuner.gpu.problem import ProblemSession
from tuner.runtime.launches import Launch, Plan

SOURCE = """
__constant__ float weights[3];
__constant__ float other[2];
__device__ float table[3];
extern "C" __global__ void kernel(float* y) {
    y[threadIdx.x] = weights[threadIdx.x] + other[threadIdx.x] + table[threadIdx.x]++;
}
"""


class Card:
    """Its driver: allocations and variables are NumPy arrays."""

    def __init__(self, source: str = SOURCE) -> None:
        self.cubin = compile_source(source, "kernel", "sm_90").cubin
        names = [one.symbol for one in variables(self.cubin)]
        self.room = np.zeros((len(names), 16), np.uint8)
        self.variables = {name: place[:12] for name, place in zip(names, self.room, strict=True)}
        self.w: npt.NDArray[np.float32] = np.array([1, 2, 3], np.float32)
        self.kept: dict[str, npt.NDArray[np.uint8]] = {}

    def run(self, entry: str, grid: int, _: int, arguments: Sequence[tuple[str, int]]) -> None:
        """Do what the helpers' kernels of this name do."""
        (_, spans), (_, first) = arguments
        for number in range(grid):
            variable, image, size = np.frombuffer(
                ctypes.string_at(spans + number * SPAN.itemsize, SPAN.itemsize), SPAN
            )[0]
            if entry == "copy_images":
                ctypes.memmove(int(image), int(variable), int(size))
            elif ctypes.string_at(int(variable), int(size)) != ctypes.string_at(int(image), int(size)):
                lowest = ctypes.c_uint32.from_address(first)
                lowest.value = min(lowest.value, number)

    def allocate(self, name: str, size_bytes: int) -> int:
        self.kept[name] = np.zeros(size_bytes, np.uint8)
        return self.kept[name].ctypes.data

    def variable(self, name: str) -> npt.NDArray[np.float32]:
        return self.variables[name].view(np.float32)

    def load(
        self, monkeypatch: pytest.MonkeyPatch, *constants: tuple[str, str, int], state: Sequence[str] = ()
    ) -> Loaded:
        def copied(to: int, source: Any, size: int) -> tuple[int]:
            ctypes.memmove(to, source, size)
            return (0,)

        def read(to: Any, source: int, size: int) -> tuple[int]:
            to[:] = ctypes.string_at(source, size)
            return (0,)

        driver = SimpleNamespace(
            cuModuleLoadData=lambda cubin: (0, "module"),
            cuModuleGetGlobal=lambda _, name: (0, self.variables[name.decode()].ctypes.data, 12),
            cuMemcpyDtoD=copied,
            cuMemcpyDtoH=read,
            cuMemcpyHtoD=copied,
            cuCtxSynchronize=lambda: (0,),
        )
        for one in (module, images):
            monkeypatch.setattr(one, "cu", driver)
        monkeypatch.setattr(module, "cluster_orders", lambda helpers: SimpleNamespace(of=None))
        monkeypatch.setattr(module, "Kernel", lambda *_: "kernel")
        memory: Any = SimpleNamespace(unused=lambda name: name, allocate=self.allocate)
        addresses = {"w": self.w.ctypes.data}
        data: Any = SimpleNamespace(memory=memory, helpers=self, copies=1, addresses=lambda _=0: addresses)
        launch = Launch((1, 1, 1), (3, 1, 1), 0, (), constants=constants)
        return load(data, Candidate(Plan((launch,), (), state=tuple(state)), (self.cubin,), ("kernel",)))


def test_variables_hold_inputs_as_they_are_at_each_look_and_are_put_back_to_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    card = Card()
    loaded = card.load(monkeypatch, ("weights", "w", 12), ("table", "w", 12))
    for name in ("weights", "table"):
        assert card.variable(name).tolist() == [1, 2, 3]
    assert loaded.unfilled == ["other"] and not loaded.keeps()
    card.w[:] = 7  # other contents
    loaded.fill()
    for name in ("weights", "table"):
        assert card.variable(name).tolist() == [7, 7, 7]
    assert not loaded.keeps()
    (region,) = loaded.regions
    assert (ctypes.c_float * 3).from_address(region.image)[:] == [7, 7, 7]
    card.variable("table")[0] += 1
    assert "it changes table" in loaded.keeps()


def test_of_several_variables_the_one_that_a_run_has_changed_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = ("first", "second", "third", "kept", "fifth")
    source = f"""
__device__ int {", ".join(f"{name}[3]" for name in names)};
extern "C" __global__ void kernel(int* y) {{ *y = {"+".join(f"{name}[*y]++" for name in names)}; }}
"""
    monkeypatch.setattr(images, "PIECE_BYTES", 8)  # two pieces each
    card = Card(source)
    loaded = card.load(monkeypatch, state=["kept"])
    assert {one.what for one in loaded.regions} == {*names}
    (reset,) = loaded.resets
    assert reset.size_bytes == 12 * len(names)
    card.variables["kept"][:] = 1
    assert not loaded.keeps()
    for name in sorted({*names} - {"kept"}):
        for place in (0, 11):
            card.variables[name][place] = 1
            assert f"it changes {name}," in loaded.keeps()
            card.variables[name][place] = 0
    assert not loaded.keeps()


@pytest.mark.parametrize("passed", [True, False])
def test_a_wrong_result_alone_names_the_variable_that_nothing_fills(
    monkeypatch: pytest.MonkeyPatch, passed: bool
) -> None:
    loaded = Card().load(monkeypatch, ("weights", "w", 12))
    verification = Verification(passed, message="" if passed else "y[0] is 1, expected 2")
    session: Any = SimpleNamespace(
        limits=SimpleNamespace(floor_ns=0.0),
        set_deadline=lambda _: None,
        data=None,
        empty_graph=lambda _: None,
        check=lambda: verification,
        _with_scratch_check=lambda _, checked: checked,
    )
    monkeypatch.setattr("tuner.gpu.problem.run_once", lambda *_: 1.0)
    _, said = ProblemSession.first_run(session, loaded, 0.0)
    assert ("__constant__ other is zero: no launch fills it" in said.message) is not passed
