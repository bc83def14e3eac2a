"""Launches and scratch memory that only some problems have, and tensor maps of the first matrix that there is."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from tuner.children.compile_worker import Compiler
from tuner.core.errors import KernelError
from tuner.core.model import Configuration
from tuner.kernel.load import read_kernel
from tuner.kernel.plan import make_plan
from tuner.kernel.render import render
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.spec import KernelSpec
from tuner.runtime.launch_limits import NULL_POINTER
from tuner.runtime.launches import Plan
from tuner.winners.compiling import checked_resources
from tuner.winners.records import BundledConfiguration, CompiledLaunch, configuration_of

GPU = ARCHITECTURES[90]
TEXT = """
[kernel]
name = "move"
[problem]
sizes = { rows = 64, columns = 64 }
dtypes = { input = "float32" }
[tensors]
a = { shape = ["rows", "columns"], dtype = "input" }
c = { shape = ["rows", "columns"], dtype = "input", role = "output" }
[reference]
numpy = "a"
[work]
bytes = "8 * rows * columns"

[variants.plain]
scratch.copy = { shape = ["rows", "round_up(columns, 4)"], dtype = "input", when = "columns % (4 * width) != 0" }
scratch.other = { shape = ["rows"], dtype = "input" }

[variants.plain.parameters]
width = { values = [1, 2], default = 1 }

[[variants.plain.launches]]
template = "copy.cu"
entry = "copy"
arguments = ["a", "copy"]
grid = ["rows"]
block = ["32"]
when = "columns % (4 * width) != 0"

[[variants.plain.launches]]
template = "move.cu"
entry = "move"
arguments = [{ tensor_map = ["copy", "a"], box = ["1", "4"] }, "copy", "c"]
grid = ["rows"]
block = ["64"]
"""
CONFIGURATION = Configuration.of("plain", {"width": 1})


def kernel(folder: Path, *changes: tuple[str, str]) -> KernelSpec:
    text = TEXT
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    (folder / "copy.cu").write_text(
        'extern "C" __global__ void copy(const float* a, float* c) { c[0] = a[0]; }\n'
    )
    (folder / "move.cu").write_text(
        "struct alignas(64) Map { long long opaque[16]; };\n"
        'extern "C" __global__ void move(const __grid_constant__ Map map, const float* copy, float* c) {\n'
        "    c[0] = map.opaque[0];\n}\n"
    )
    path = folder / "move.toml"
    path.write_text(text)
    return read_kernel(path)


def maps(plan: Plan) -> list[tuple[str, int]]:
    return [
        (name, json.loads(str(value))["columns"])
        for kind, name, value in plan.launches[-1].arguments
        if kind == "map"
    ]


def test_what_a_problem_needs_is_there(tmp_path: Path) -> None:
    copying = kernel(tmp_path)
    odd = copying.problem({"columns": 65})
    plan = make_plan(copying, odd, GPU, CONFIGURATION)
    assert [buffer.name for buffer in plan.scratch] == ["copy", "other"]
    assert [launch.block[0] for launch in plan.launches] == [32, 64]
    assert maps(plan) == [("copy", 68)]
    assert ("buffer", "copy", 0) in plan.launches[-1].arguments
    assert [entry for _, entry in render(copying, odd, GPU, CONFIGURATION)] == ["copy", "move"]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(plan), type=Plan) == plan


def test_what_a_problem_does_not_need_is_left_out(tmp_path: Path) -> None:
    copying = kernel(tmp_path)
    even = copying.problem({"columns": 64})
    plan = make_plan(copying, even, GPU, CONFIGURATION)
    assert [buffer.name for buffer in plan.scratch] == ["other"]
    assert [launch.block[0] for launch in plan.launches] == [64]
    assert maps(plan) == [("a", 64)]
    assert plan.launches[0].arguments[1] == NULL_POINTER
    assert [entry for _, entry in render(copying, even, GPU, CONFIGURATION)] == ["move"]


def test_a_bundle_checks_what_the_compiler_says_of_those_that_its_problem_has(tmp_path: Path) -> None:
    copying = kernel(
        tmp_path, ("[variants.plain]\n", "[variants.plain]\nconstraints.fits = 'registers < 200'\n")
    )
    for columns in (64, 65):
        bundled = BundledConfiguration(copying, copying.problem({"columns": columns}), GPU, CONFIGURATION)
        compilation = Compiler(None).answer(bundled.request())
        assert len(compilation.cubins) == 2
        resources = checked_resources(bundled, compilation)
        assert resources is not None and resources.active_blocks


def test_one_launch_must_remain(tmp_path: Path) -> None:
    copying = kernel(tmp_path, ('block = ["64"]\n', 'block = ["64"]\nwhen = "rows > 1000"\n'))
    assert len(make_plan(copying, copying.problem({"columns": 65}), GPU, CONFIGURATION).launches) == 1
    with pytest.raises(KernelError, match=r"there is no launch for .*columns=64") as caught:
        make_plan(copying, copying.problem({"columns": 64}), GPU, CONFIGURATION)
    assert "when" in caught.value.remedy


def test_an_argument_that_only_some_options_have(tmp_path: Path) -> None:
    edits = (
        ('"float32" }\n', '"float32" }\noptions = { way = ["short", "long"] }\n'),
        ('"copy", "c"]', '"copy", "c", { name = \'columns\', when = "way == \'long\'" }]'),
    )
    copying = kernel(tmp_path, *edits)
    for way, count in (("short", 3), ("long", 4)):
        problem = copying.problem({"columns": 64}, {}, {"way": way})
        assert len(make_plan(copying, problem, GPU, CONFIGURATION).launches[0].arguments) == count
        bundled = BundledConfiguration(copying, problem, GPU, CONFIGURATION)
        compiled = dict.fromkeys(bundled.launches, CompiledLaunch("", "", "move"))
        entry = configuration_of(bundled, 0, compiled, None).launches[-1]
        assert len(entry.arguments) == count and all(item.when is None for item in entry.arguments)
    with pytest.raises(KernelError, match="uses unknown name 'rows'"):
        kernel(tmp_path, edits[0], (edits[1][0], edits[1][1].replace("way == 'long'", "rows > 3")))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('["copy", "a"]', '["copy", "b"]', "tensor_map 'b' is not a tensor or scratch"),
        ('["copy", "a"]', "[]", "tensor_map is empty"),
        ('["copy", "a"]', '["copy", "columns"]', "choose from: a, c, copy, other"),
        ('["1", "4"]', '["64"]', "box has 1 sides"),
        ('["1", "4"]', '["64", "64"], swizle = 128', "did you mean swizzle?"),
        ('["1", "4"]', '["64", "stages"]', "unknown name 'stages'"),
        ('when = "columns % (4 * width) != 0"\n', 'when = "columns % depth != 0"\n', "unknown name 'depth'"),
        ('when = "columns % (4 * width) != 0" }', "whn = 'columns > 4' }", "did you mean when?"),
    ],
)
def test_mistakes_are_said(tmp_path: Path, old: str, new: str, words: str) -> None:
    with pytest.raises(KernelError) as caught:
        kernel(tmp_path, (old, new))
    assert words in f"{caught.value}"
