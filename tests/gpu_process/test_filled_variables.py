"""Variables of a candidate's code, some filled by its launches, with host memory in place of a GPU's."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Sequence
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
from tuner.gpu.problem import ProblemSession
from tuner.kernel.render import render_helpers
from tuner.runtime.launches import Launch, Plan

GPP = shutil.which("g++")
SOURCE = """
__constant__ float weights[3];
__constant__ float other[2];
__device__ float table[3];
extern "C" __global__ void kernel(float* y) {
    y[threadIdx.x] = weights[threadIdx.x] + other[threadIdx.x] + table[threadIdx.x]++;
}
"""


HOST = """
#define __global__
#define __launch_bounds__(threads)
struct Number { unsigned int x; };
static Number blockIdx, threadIdx;
static void atomicMin(unsigned int* to, unsigned int value) { if (value < *to) *to = value; }
"""
LAUNCH = """
extern "C" void launch(int copies, unsigned int grid, unsigned int block, const Span* spans, void* other) {
    for (blockIdx.x = 0; blockIdx.x < grid; ++blockIdx.x)
        for (threadIdx.x = 0; threadIdx.x < block; ++threadIdx.x)
            if (copies) copy_images(spans, static_cast<int>(reinterpret_cast<long long>(other)));
            else compare_images(spans, static_cast<unsigned int*>(other));
}
"""


@pytest.fixture(scope="module")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return what runs the helpers' kernels for images, thread after thread."""
    if GPP is None:
        pytest.skip("needs g++")
    helpers = render_helpers()
    own = helpers[helpers.index("struct Span") : helpers.index("// ---- the comparison")]
    source = tmp_path_factory.mktemp("images") / "images.cpp"
    source.write_text(HOST + own + LAUNCH)
    library = source.with_suffix(".so")
    subprocess.run([GPP, "-O1", "-w", "-shared", "-fPIC", "-o", library, source], check=True)
    return ctypes.CDLL(str(library)).launch


class Card:
    """Its driver: allocations and variables are NumPy arrays."""

    cluster_orders = SimpleNamespace(of=None)

    def __init__(self, launch: Any, source: str = SOURCE) -> None:
        self.launch = launch
        self.cubin = compile_source(source, "kernel", "sm_90").cubin
        self.variables = {one.symbol: np.zeros(one.size_bytes, np.uint8) for one in variables(self.cubin)}
        self.w: npt.NDArray[np.float32] = np.array([1, 2, 3], np.float32)
        self.kept: dict[str, npt.NDArray[np.uint8]] = {}

    def kernel(
        self, entry: str, grid: int, block: int, arguments: Sequence[tuple[str, int]]
    ) -> Callable[[], None]:
        (_, spans), (_, other) = arguments
        copies = {"copy_images": 1, "compare_images": 0}[entry]
        return lambda: self.launch(copies, grid, block, ctypes.c_void_p(spans), ctypes.c_void_p(other))

    def run(self, *launch: Any) -> None:
        self.kernel(*launch)()

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
            cuModuleGetGlobal=lambda _, name: (
                0,
                (held := self.variables[name.decode()]).ctypes.data,
                held.nbytes,
            ),
            cuStreamSynchronize=lambda _: (0,),
            cuMemcpyDtoD=copied,
            cuMemcpyDtoH=read,
            cuMemcpyHtoD=copied,
            cuCtxSynchronize=lambda: (0,),
        )
        for one in (module, images):
            monkeypatch.setattr(one, "cu", driver)
        monkeypatch.setattr(module, "Kernel", lambda *_: "kernel")
        memory: Any = SimpleNamespace(unused=lambda name: name, allocate=self.allocate)
        addresses = {"w": self.w.ctypes.data}
        data: Any = SimpleNamespace(memory=memory, helpers=self, copies=1, addresses=lambda _=0: addresses)
        launch = Launch((1, 1, 1), (3, 1, 1), 0, (), constants=constants)
        return load(data, Candidate(Plan((launch,), (), state=tuple(state)), (self.cubin,), ("kernel",)))


def test_variables_hold_inputs_as_they_are_at_each_look_and_are_put_back_to_them(
    monkeypatch: pytest.MonkeyPatch, launch: Any
) -> None:
    card = Card(launch)
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


@pytest.mark.parametrize("count", [3, 5001])
def test_of_several_variables_the_one_that_a_run_has_changed_is_named(
    monkeypatch: pytest.MonkeyPatch, launch: Any, count: int
) -> None:
    names = ("first", "second", "third", "kept", "fifth")
    source = f"""
__device__ int {", ".join(f"{name}[{count}]" for name in names)};
extern "C" __global__ void kernel(int* y) {{ *y = {"+".join(f"{name}[*y]++" for name in names)}; }}
"""
    card = Card(launch, source)
    for number, variable in enumerate(card.variables.values()):
        variable[:] = number
    before = {name: variable.copy() for name, variable in card.variables.items()}
    loaded = card.load(monkeypatch, state=["kept"])
    assert {one.what for one in loaded.regions} == {*names}
    (reset,) = loaded.resets
    assert reset.size_bytes == 4 * count * len(names)
    card.variables["kept"][:] = 7
    assert not loaded.keeps()
    for name in sorted({*names} - {"kept"}):
        for place in (0, 4 * count - 1):
            card.variables[name][place] += 1
            assert f"it changes {name}," in loaded.keeps()
            card.variables[name][place] -= 1
    assert not loaded.keeps()
    card.variables["first"][:] = 7
    graph: Any = SimpleNamespace(kernel=lambda launched: launched())
    reset.add_reset(graph)
    for name, variable in card.variables.items():
        assert np.array_equal(variable, before[name]), name


@pytest.mark.parametrize("passed", [True, False])
def test_a_wrong_result_alone_names_the_variable_that_nothing_fills(
    monkeypatch: pytest.MonkeyPatch, launch: Any, passed: bool
) -> None:
    loaded = Card(launch).load(monkeypatch, ("weights", "w", 12))
    verification = Verification(passed, message="" if passed else "y[0] is 1, expected 2")
    session: Any = SimpleNamespace(
        limits=SimpleNamespace(floor_ns=0.0),
        set_deadline=lambda _: None,
        data=SimpleNamespace(strays=lambda _: False),
        empty_graph=lambda _: None,
        check=lambda: verification,
        _with_scratch_check=lambda _, checked: checked,
    )
    monkeypatch.setattr("tuner.gpu.problem.run_once", lambda *_: 1.0)
    _, said = ProblemSession.first_run(session, loaded, 0.0)
    assert ("__constant__ other is zero: no launch fills it" in said.message) is not passed
