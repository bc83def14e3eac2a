"""The interpreters of manifests, Python's and C++'s, make the plans that the tuner makes, and refuse the same.

For every kernel, variant and compute capability: configurations are written as a manifest says them, read back, and
interpreted at other sizes, and on other GPUs of that compute capability, than they were written for.
"""

from __future__ import annotations

import json
import struct
import subprocess
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cpp_interface import sanitized
from tests.runtime.drawn_plans import KERNELS, draw, manifest_of
from tests.runtime.manifests import LIMITS, PLAIN, REPEATED, manifest_with
from tuner.core.model import Gpu, Problem
from tuner.kernel.plan import invalid_reason, make_plan, scalars_of, tensors_of
from tuner.runtime import structs
from tuner.runtime.entries import Manifest
from tuner.runtime.interpret import ConcretePlan, InvalidForProblemError, interpret
from tuner.runtime.launch_limits import DEVICE_LIMITS
from tuner.runtime.launches import Launch
from tuner.runtime.manifest import read_manifest
from tuner.winners.records import BundledConfiguration

pytestmark = pytest.mark.usefixtures("forked_children")

PETABYTE = 2**50


def limits_of(gpu: Gpu) -> dict[str, int]:
    return {name: getattr(gpu, name) for name in DEVICE_LIMITS}


def interpreted(
    manifest: Manifest, number: int, problem: Problem, gpu: Gpu, *, apart: bool = False
) -> ConcretePlan | None:
    try:
        return interpret(manifest, number, problem.sizes, limits_of(gpu), apart=apart)
    except InvalidForProblemError as error:
        assert len(str(error).splitlines()) == 1
        return None


def compare(bundled: BundledConfiguration, problem: Problem, gpu: Gpu, concrete: ConcretePlan | None) -> None:
    """Require what the interpreter says to be what the tuner says."""
    kernel, configuration = bundled.kernel, bundled.configuration
    reason = invalid_reason(kernel, problem, gpu, configuration)
    case = f"{problem} | {configuration} | {gpu}"
    if concrete is None:  # integers of a manifest have 64 bits
        largest = max(tensor.size_bytes for tensor in tensors_of(kernel, problem, gpu))
        assert reason or largest > PETABYTE, case
        return
    assert not reason, f"{case}: {reason}"
    assert concrete.plan == make_plan(kernel, problem, gpu, configuration), case
    of_caller = {"init": "normal", "between": None, "file": None, "function": ""}
    tensors = tensors_of(kernel, problem, gpu)
    assert concrete.tensors == tuple(replace(tensor, **of_caller) for tensor in tensors), case
    for name, positions in concrete.scalar_positions.items():
        for launch, position in positions:
            leaf = list(structs.leaves(concrete.plan.launches[launch].arguments))[position]
            assert leaf[2:] == ("scalar", *scalars_of(kernel, problem, gpu)[name]), case
    assert len(concrete.entries) == len(concrete.plan.launches)
    assert concrete.workspace.offsets.keys() == {buffer.name for buffer in concrete.plan.scratch}


LAYOUTS = {
    "float64": "<d", "float32": "<f", "float16": "<e", "int64": "<q", "int32": "<i", "uint32": "<I", "int8": "<b",
    "uint8": "<B", "int16": "<h", "uint16": "<H", "uint64": "<Q", "bool": "<?",
}  # fmt: skip


def stored(value: float, dtype: str) -> str:
    """Return an argument's bytes; a bfloat16 is a float32 of which the first half is zero."""
    packed = struct.pack("<f", value)[2:] if dtype == "bfloat16" else struct.pack(LAYOUTS[dtype], value)
    return packed.ljust(16, b"\0").hex()


def shown(numbers: Sequence[int]) -> str:
    return "".join(f" {int(number)}" for number in numbers)


def text_of(concrete: ConcretePlan, scratch: Sequence[str]) -> str:
    """Return a plan as tests/cpp/plans.cpp prints it.

    Args:
        concrete: the plan.
        scratch: names of the configuration's scratch memory.
    """
    offsets, parts = concrete.workspace.offsets, []
    parts += [f" tensor {tensor.name}{shown(tensor.shape)}" for tensor in concrete.tensors]
    for item in concrete.plan.scratch:
        numbers = (offsets[item.name], item.size_bytes, item.zeroed, item.zeroed_once, *item.shape)
        parts.append(f" memory{shown(numbers)}")
    parts.append(f" workspace {concrete.workspace.zeroed_once_bytes} {concrete.workspace.size_bytes}")
    for entry, launch in zip(concrete.entries, concrete.plan.launches, strict=True):
        parts.append(f" launch {entry.entry}{launch_text(launch, scratch)}")
    return "".join(parts)


def launch_text(launch: Launch, scratch: Sequence[str]) -> str:
    def buffer(name: str) -> str:
        return f"scratch {scratch.index(name)}" if name in scratch else name

    carveout = -1 if launch.carveout is None else launch.carveout
    settings = (launch.shared_bytes, carveout, launch.cooperative or launch.resident, launch.programmatic)
    parts = [
        f" grid{shown(launch.grid)} block{shown(launch.block)} cluster{shown(launch.cluster or (1, 1, 1))}",
        f" shared{shown(settings)}",
    ]
    parts += [f" fills {symbol} from {name} {size_bytes}" for symbol, name, size_bytes in launch.constants]
    for kind, name, value in launch.arguments:
        if kind == "map":
            given = json.loads(str(value))
            keys = ("rows", "columns", "box_rows", "box_columns", "swizzle", "promotion")
            parts.append(f" map {buffer(name)} {given['dtype']}{shown([given[key] for key in keys])}")
        elif kind in ("buffer", "stride"):
            parts.append(f" {kind} {buffer(name)}")
        elif kind == "cluster_order":
            parts.append(f" table {value}")
        elif kind == "struct":
            there = structs.stored((kind, name, value), defaultdict(int))
            addresses = [leaf for leaf in structs.leaves([(kind, name, value)]) if leaf.kind == "buffer"]
            parts += [
                f" fields {there.hex()}",
                *(f" at {one.offset}  {buffer(one.name)}" for one in addresses),
            ]
        else:
            parts.append(f" value {stored(float(value) if 'float' in name else int(value), name)}")
    return "".join(parts)


def answers(manifest: Path, asked: Sequence[str]) -> list[str]:
    """Return what C++ says of configurations: a plan's text, or why there is none."""
    command = [*map(str, sanitized("plans")), str(manifest)]
    done = subprocess.run(command, input="\n".join(asked), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-2000:]
    return [line.strip() for line in done.stdout.splitlines()]


@pytest.mark.parametrize("name", KERNELS)
def test_plans_are_those_of_the_tuner_in_python_and_cpp(name: str, tmp_path: Path) -> None:
    drawn, data = draw(name), manifest_of(name)
    (tmp_path / "manifest.json").write_bytes(data)
    manifest = read_manifest(data)
    counts: Counter[tuple[str, bool]] = Counter()
    asked, expected = [], []
    for number, one in enumerate(drawn):
        configuration = manifest.configurations[number]
        scratch = [item.name for item in configuration.scratch]
        for problem, gpu in one.problems:
            concrete = interpreted(manifest, number, problem, gpu)
            compare(one.bundled, problem, gpu, concrete)
            counts[one.bundled.configuration.variant, concrete is not None] += 1
            for apart in (False, True) if configuration.slices else (False,):
                numbers = [apart, *(problem.sizes[size] for size in manifest.sizes), *limits_of(gpu).values()]
                asked.append(f"{number}{shown(numbers)}")
                plan = interpreted(manifest, number, problem, gpu, apart=True) if apart else concrete
                expected.append(text_of(plan, scratch) if plan else "invalid")
        for size in one.baked:
            other = replace(problem, sizes={**problem.sizes, size: problem.sizes[size] + 1})
            assert interpreted(manifest, number, other, gpu) is None
    variants = drawn[0].bundled.kernel.variants.keys()
    assert {variant for variant, valid in counts if valid} == variants
    assert {variant for variant, valid in counts if not valid} == variants
    assert counts.total() >= 60
    for line, answer, plan in zip(asked, answers(tmp_path / "manifest.json", asked), expected, strict=True):
        assert answer.partition(":")[0] == plan.strip(), f"{line}: {answer}"


LEVELS = {"name": "level", "count": ["log2", "m"]}
LOOPS: list[tuple[dict[str, Any], int]] = [
    ({"repeat": [LEVELS]}, 8),
    ({"repeat": [LEVELS]}, 9),
    ({"repeat": [{**LEVELS, "count": "m"}], "when": ["==", "level", 4095]}, 4095),
    ({"repeat": [{**LEVELS, "count": ["-", "m", 9]}], "when": True}, 8),
    ({"repeat": [{**LEVELS, "count": "m"}, {"name": "step", "count": 0}]}, 4095),
    ({"repeat": [{**LEVELS, "count": "m"}, {"name": "step", "count": 0}]}, 4096),
    ({"repeat": [{**LEVELS, "count": ["if", ["<", "m", 5], 2, ["//", 1, 0]]}]}, 4),
    ({"repeat": [{**LEVELS, "count": ["if", ["<", "m", 5], 2, ["//", 1, 0]]}]}, 5),
    ({"repeat": [LEVELS], "arguments": [{"one_of": ["a", "copy"], "index": "level"}]}, 4),
    ({"repeat": [LEVELS], "arguments": [{"one_of": ["a", "copy"], "index": "level"}]}, 8),
    ({"repeat": [LEVELS], "arguments": [{"one_of": ["a", "copy"], "index": ["-", "level", 1]}]}, 4),
]
"""Changes of a launch that repeats, and a number of rows."""


def test_loops_are_gone_through_as_in_python(tmp_path: Path) -> None:
    plain = {**REPEATED, "when": True, "arguments": [{"value": "level", "dtype": "int32"}]}
    joined = {**plain, "repeat": [LEVELS], "arguments": [{"tensor": "c"}]}
    valid = 0
    for number, (change, m) in enumerate([({}, 8), ({}, 4096), *LOOPS]):
        launches = [
            {**(plain if change else REPEATED), **change},
            *([] if change else [joined]),
            PLAIN["launches"][0],
        ]
        data = manifest_with(("configurations.1.launches", launches))
        (tmp_path / f"{number}.json").write_bytes(data)
        manifest = read_manifest(data)
        asked = f"1 0 {m} 256 4128{shown(list(LIMITS.values()))}"
        try:
            scratch = [item.name for item in manifest.configurations[1].scratch]
            expected = text_of(interpret(manifest, 1, {"m": m, "n": 256, "k": 4128}, LIMITS), scratch)
            valid += 1
        except InvalidForProblemError:
            expected = "invalid"
        (answer,) = answers(tmp_path / f"{number}.json", [asked])
        assert answer.partition(":")[0] == expected.strip(), (change, m)
    assert valid == 7
