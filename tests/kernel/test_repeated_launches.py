"""Launches in loops: what they come to, what ping-pong buffers are passed, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.commands import said_by
from tuner.children.compilation import Compilation, RenderRequest
from tuner.children.compile_worker import Compiler
from tuner.core.errors import KernelError
from tuner.core.model import Configuration, Status
from tuner.kernel.launchable import unlaunchable
from tuner.kernel.load import read_kernel
from tuner.kernel.plan import make_plan
from tuner.kernel.render import render
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec
from tuner.runtime.launch_limits import UnlaunchableError
from tuner.runtime.launches import Launch

GPU = ARCHITECTURES[90]
# Each pass replaces inner points by the mean of their neighbours. The last one must write to v.
TEXT = """
[kernel]
name = "relax"
[problem]
sizes = { n = 100, passes = 4 }
dtypes = { input = "float32" }
[tensors]
u = { shape = ["n"], dtype = "input" }
v = { shape = ["n"], dtype = "input", role = "output" }
[reference]
python = "reference.py:relaxed"
reduction = "2 * passes"
[work]
bytes = "8 * n"
[definitions]
left = "passes - turn"
[variants.v]
scratch.w = { shape = ["n"], dtype = "input" }
parameters.block = { values = [32, 64], default = 32 }
[[variants.v.launches]]
template = "relax.cu"
entry = "relax"
repeat = { name = "turn", count = "passes" }
arguments = [
    { one_of = ["u", "w", "v"], index = "1 + (left + 1) % 2 if turn > 0 else 0" },
    { one_of = ["w", "v"], index = "left % 2" },
    "n",
]
grid = ["ceil_div(n, block)"]
block = ["block"]
"""
CODE = """extern "C" __global__ void relax(const float* from, float* to, int n) {
    int i = blockIdx.x * block + threadIdx.x;
    if (i < n) to[i] = i > 0 && i < n - 1 ? 0.5f * (from[i - 1] + from[i + 1]) : from[i];
}
"""
REFERENCE = """
def relaxed(u, passes):
    u = u.copy()
    for _ in range(passes):
        u[1:-1] = 0.5 * (u[:-2] + u[2:])
    return u
"""
REPEAT = 'repeat = { name = "turn", count = "passes" }'
SECOND = """
[[variants.v.launches]]
template = "relax.cu"
entry = "relax"
REPEAT
arguments = ["u", "v", { value = "OTHER", dtype = "int32" }]
grid = [1]
block = ["block"]
"""


def written(folder: Path, *changes: tuple[str, str], more: str = "") -> Path:
    text = TEXT
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    (folder / "relax.cu").write_text(CODE)
    (folder / "reference.py").write_text(REFERENCE)
    (folder / "relax.toml").write_text(text + more)
    return folder / "relax.toml"


def second(repeat: str, value: str = "1") -> str:
    return SECOND.replace("REPEAT", repeat).replace("OTHER", value)


def launches(kernel: KernelSpec, **sizes: int) -> tuple[Launch, ...]:
    configuration = Configuration.of("v", {"block": 32})
    return make_plan(kernel, kernel.problem(sizes), GPU, configuration).launches


def passed(launch: Launch) -> list[Any]:
    return [name if kind == "buffer" else value for kind, name, value in launch.arguments]


@pytest.mark.parametrize(
    ("passes", "pairs"), [(1, ["uv"]), (2, ["uw", "wv"]), (5, ["uv", "vw", "wv", "vw", "wv"])]
)
def test_buffers_take_turns(tmp_path: Path, passes: int, pairs: list[str]) -> None:
    kernel = read_kernel(written(tmp_path))
    found = launches(kernel, passes=passes)
    assert ["".join(passed(launch)[:2]) for launch in found] == pairs
    assert [launch.code for launch in found] == [0] * passes
    assert len(render(kernel, kernel.problem(), GPU, Configuration.of("v", {"block": 32}))) == 1


def test_neighbours_share_a_loop_and_an_inner_one_is_their_own(tmp_path: Path) -> None:
    inner = 'repeat = [{ name = "turn", count = "passes" }, { name = "half", count = "turn + 1" }]'
    more = second(inner, "10 * turn + half") + second(REPEAT, "100 + turn") + second("", "7")
    found = launches(read_kernel(written(tmp_path, more=more)), passes=2)
    assert [launch.code for launch in found] == [0, 1, 2, 0, 1, 1, 2, 3]
    assert [passed(launch)[2] for launch in found] == [100, 0, 100, 100, 10, 11, 101, 7]


def test_there_may_be_so_many_and_no_more(tmp_path: Path) -> None:
    kernel = read_kernel(written(tmp_path))
    assert len(launches(kernel, passes=4096)) == 4096
    with pytest.raises(UnlaunchableError, match="repeat more than 4096 times") as caught:
        launches(kernel, passes=2**62)
    assert caught.value.remedy
    empty = '[{ name = "turn", count = "passes" }, { name = "none", count = "0" }]'
    nothing = read_kernel(written(tmp_path, (REPEAT, f"repeat = {empty}")))
    with pytest.raises(UnlaunchableError, match="repeat more than 4096 times"):
        launches(nothing, passes=2**62)
    with pytest.raises(KernelError, match="there is no launch for"):
        launches(nothing, passes=3)
    halves = read_kernel(written(tmp_path, ('count = "passes"', 'count = "passes / 2"')))
    with pytest.raises(KernelError, match=r"= 1.5") as caught:
        launches(halves, passes=3)
    assert "ceil_div(..., 1) rounds up" in caught.value.remedy


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ((REPEAT, 'repeat = { name = "n", count = "3" }'), "'n' names two things"),
        ((REPEAT, 'repeat = { name = "turn", count = "turns" }'), "unknown name 'turns'"),
        ((REPEAT, 'repeat = [{ name = "turn", count = "2" }, { name = "turn", count = "2" }]'), "names two things"),
        ((REPEAT, 'repeat = "passes"'), "is not a table or an array"),
        ((REPEAT, f'{REPEAT}\ncarveout = "turn"'), "unknown name 'turn'"),
        (('["w", "v"]', '["w", "q"]'), "one_of 'q' is not a tensor or scratch"),
        (('["w", "v"]', "[]"), "one_of is empty"),
    ],
)  # fmt: skip
def test_what_a_file_may_not_say(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    with pytest.raises(KernelError, match=said):
        read_kernel(written(tmp_path, change))


@pytest.mark.parametrize(
    "more",
    [
        second("") + second(REPEAT),
        second('repeat = { name = "turn", count = "2" }'),
        second('repeat = [{ name = "other", count = "2" }, { name = "turn", count = "passes" }]'),
    ],
)
def test_a_loop_of_one_name_is_one_loop(tmp_path: Path, more: str) -> None:
    with pytest.raises(KernelError, match="repeat turn is two loops"):
        read_kernel(written(tmp_path, more=more))


def test_what_is_asked_of_all_configurations_at_once(tmp_path: Path) -> None:
    """What no turn decides is counted; what one does, a configuration's plan says."""
    large = ('block = ["block"]', 'block = ["block * passes"]')
    for change, refused in ((large, 2), (('block = ["block"]', 'block = ["block * turn"]'), 0)):
        kernel = read_kernel(written(tmp_path, change))
        problem = kernel.problem({"passes": 64})
        matrix = SearchSpace.from_kernel(kernel, problem, GPU).variants[0].matrix
        assert sum(unlaunchable(kernel, kernel.variants["v"], problem, GPU, matrix).values()) == refused


def test_they_are_compiled_once_and_the_largest_counts(tmp_path: Path) -> None:
    def compiled(*changes: tuple[str, str]) -> Compilation:
        kernel = read_kernel(written(tmp_path, *changes))
        configuration = Configuration.of("v", {"block": 32})
        return Compiler(None).answer(RenderRequest(kernel.file, kernel.problem(), GPU, configuration))

    growing = compiled(('grid = ["', 'shared_bytes = "16000 * (turn + 1)"\ngrid = ["'))
    (resources,) = growing.resources
    assert growing.status is Status.OK and len(growing.cubins) == 1
    assert (resources.dynamic_shared_bytes, resources.active_blocks) == (64000, 3)
    (tmp_path / "bounded.cu").write_text(CODE.replace("void relax", "void __launch_bounds__(96) relax"))
    refused = compiled(
        ('block = ["block"]', 'block = ["block * (turn + 1)"]'),
        ('template = "relax.cu"', 'template = "bounded.cu"'),
    )
    assert (refused.status, refused.refused) == (Status.INVALID_CONFIG, 0)
    assert refused.error.startswith("a block of 128 threads")


def test_they_run_on_the_cpu_and_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(written(tmp_path))
    few = ("--configurations", "1", "--cc", "90", "-j", "1")
    said = said_by(capsys, "check", file, *few)
    assert said.code == 0 and "1 run on the CPU at " in said.err, said.err
    wrong = str(written(tmp_path, ('index = "left % 2"', 'index = "turn % 2"')))
    said = said_by(capsys, "check", wrong, *few)
    assert said.code == 1 and "v[" in said.out, said.out
    shown = said_by(capsys, "render", str(written(tmp_path)), "--size", "passes=9").out
    assert "//   repeats 9 times:\n//   relax(u, v, int32 100)\n//   grid 4 x 1 x 1" in shown, shown
    assert shown.count("//   relax(") == 4 and "//   ...\n//   relax(w, v," in shown, shown


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ((REPEAT, 'repeat = { name = "turn", count = "passes / 3" }'), "passes / 3 = 1.3"),
        ((REPEAT, 'repeat = { name = "turn", count = "passes - 9" }'), "passes - 9 = -5"),
        (('index = "left % 2"', 'index = "left"'), "left = 4, and one_of has 2|4, and one_of has 2"),
        (('index = "left % 2"', 'index = "turn - 1"'), "turn - 1 = -1"),
    ],
)
def test_values_that_are_none(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    kernel = read_kernel(written(tmp_path, change))
    with pytest.raises(KernelError, match=said):
        launches(kernel)
