"""From expressions to launches: what fits is settled, what cannot be launched is refused in one line."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from tests.faults.kernels import configuration, write_kernel
from tuner.core.errors import ExpressionError, KernelError, TunerError
from tuner.core.model import Configuration
from tuner.kernel.launchable import unlaunchable
from tuner.kernel.load import builtin_kernels, load_kernel, read_kernel
from tuner.kernel.plan import (
    invalid_reason,
    make_plan,
    pruning_reason,
    reference_launch,
    scalars_of,
    tensors_of,
)
from tuner.kernel.reference import numpy_of
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec
from tuner.runtime.launch_limits import NULL_POINTER, UnlaunchableError
from tuner.runtime.launches import Plan

GPU = ARCHITECTURES[90]


def changed(tmp_path: Path, *changes: tuple[str, str]) -> KernelSpec:
    path = write_kernel(tmp_path)
    text = path.read_text()
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    path.write_text(text)
    return read_kernel(path)


def plan_of(kernel: KernelSpec, n: int = 1000, **values: int) -> Plan:
    return make_plan(kernel, kernel.problem({"n": n}), GPU, configuration(**values))


GRID = '"ceil_div(n, block_size * items)"'
SCRATCH = (
    "[variants.plain.scratch]\npart = { shape = ['items', 7], dtype = 'float16', zeroed = true }\n"
    "ticket = { shape = ['1'], dtype = 'uint32', zeroed = 'once' }\n"
)
BLOCK = 'block = ["block_size"]'


def test_a_plan_can_be_sent_to_another_process(tmp_path: Path) -> None:
    kernel = changed(
        tmp_path,
        (BLOCK, 'block = ["block_size"]\ncluster = ["2"]\ncooperative = true\nresident = "n > 1"\n'
                'carveout = "50"\nalignment = "16"\nprogrammatic = true'),
        (GRID, '"2 * ceil_div(n, 64)"'),
        ("[variants.plain.parameters]", SCRATCH + "[variants.plain.parameters]"),
    )  # fmt: skip
    plan = plan_of(kernel, items=4)
    assert plan.launches[0].cluster == (2, 1, 1)
    assert plan.launches[0].cooperative
    assert plan.launches[0].carveout == 50
    assert plan.launches[0].alignment == 16
    assert plan.launches[0].resident
    assert plan.launches[0].programmatic
    assert (plan.scratch[1].zeroed, plan.scratch[1].zeroed_once) == (False, True)
    assert (plan.scratch[0].shape, plan.scratch[0].size_bytes, plan.scratch[0].zeroed) == ((4, 7), 56, True)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(plan), type=Plan) == plan


def test_a_cuda_reference_is_launched_with_the_first_variants_defaults(tmp_path: Path) -> None:
    table = """
[reference.cuda]
template = "scale.cu.j2"
entry = "scale"
arguments = ["x", "y", "y_magnitude", "n", "items"]
grid = ["ceil_div(n, block_size * items)"]
block = ["block_size"]
"""
    kernel = changed(tmp_path, ("[variants.plain.parameters]", f"{table}\n[variants.plain.parameters]"))
    defaults = kernel.variants["plain"].defaults
    launch = reference_launch(kernel, kernel.problem({"n": 5000}), GPU)
    assert launch is not None and launch.block[0] == defaults["block_size"]
    assert launch.grid[0] == -(-5000 // (int(defaults["block_size"]) * int(defaults["items"])))
    assert launch.arguments[-1] == ("scalar", "int32", defaults["items"])
    (tmp_path / "wrong").mkdir()
    with pytest.raises(KernelError, match=r"reference: cuda: grid.* unknown name 'item'"):
        changed(
            tmp_path / "wrong",
            (
                "[variants.plain.parameters]",
                f"{table.replace('* items', '* item')}\n[variants.plain.parameters]",
            ),
        )


@pytest.mark.parametrize("name", builtin_kernels())
def test_built_in_defaults_can_be_launched(name: str) -> None:
    kernel = load_kernel(name)
    planned: set[str] = set()
    refused: list[str] = []
    for cc in (75, 80, 90):
        gpu = ARCHITECTURES[cc]
        for size in (7, 4096):
            problem = kernel.problem(dict.fromkeys(kernel.sizes, size))
            assert reference_launch(kernel, problem, gpu) is not None
            for variant in kernel.usable_variants(problem, gpu)[0]:
                default = Configuration.of(variant.name, variant.defaults)
                of = kernel, problem, gpu, default
                if invalid_reason(*of) or pruning_reason(*of):  # a search begins with another
                    default = SearchSpace.from_kernel(kernel, problem, gpu, [variant.name]).default
                try:
                    make_plan(kernel, problem, gpu, default)
                    planned.add(variant.name)
                except KernelError as error:
                    refused.append(f"{variant.name} on {cc} at {size}: {error}")
    assert not refused
    assert planned


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ((BLOCK, 'block = ["32", "64"]'), "2048 threads"),
        ((BLOCK, 'block = ["block_size"]\nshared_bytes = "2**20"'), "1048576 bytes of shared memory"),
        ((GRID, '"1", "65536"'), "65536"),
        (('value = "n", dtype = "int64"', 'value = "n * 10**9", dtype = "int32"'), "does not fit int32"),
        (('value = "n", dtype = "int64"', 'value = "0 - n", dtype = "uint32"'), "does not fit uint32"),
        (('value = "n", dtype = "int64"', 'value = "n * 2**60 ", dtype = "int64"'), "does not fit int64"),
    ],
)
def test_what_the_device_does_not_allow(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    with pytest.raises(UnlaunchableError, match=said) as caught:
        plan_of(changed(tmp_path, change))
    assert "\n" not in str(caught.value)


def test_a_launch_is_programmatic_where_a_gpu_can(tmp_path: Path) -> None:
    kernel = changed(tmp_path, (BLOCK, 'block = ["32"]\nprogrammatic = true'))
    plans = [make_plan(kernel, kernel.problem(), ARCHITECTURES[cc], configuration()) for cc in (80, 90)]
    assert [plan.launches[0].programmatic for plan in plans] == [False, True]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ((GRID, '"n // 5000"'), "whole number from 1 up"),
        ((GRID, '"n / 3"'), r"whole number from 1 up: ceil_div\(n, d\) rounds up"),
        ((GRID, '"0 * 1e999"'), "no value"),
        ((GRID, '"n // (items - 1)"'), "no value"),
        ((BLOCK, 'block = ["block_size"]\nshared_bytes = "0 - 4"'), "whole number from 0 up"),
        (('value = "n", dtype = "int64"', 'value = "n / 3", dtype = "int64"'), "not a whole number"),
        (('value = "n", dtype = "int64"', 'value = "1e999", dtype = "int64"'), "not a whole number"),
        (('{ value = "n", dtype = "int64" }', '"fault"'), "argument fault is the text 'ok'"),
    ],
)
def test_what_makes_no_sense_is_the_kernels_fault(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    with pytest.raises((KernelError, ExpressionError), match=said) as caught:
        plan_of(changed(tmp_path, change))
    assert "\n" not in str(caught.value)


def test_parameters_as_arguments(tmp_path: Path) -> None:
    kernel = changed(
        tmp_path,
        ('{ value = "n", dtype = "int64" }', '"n", "items", "scale", { value = "n / 3", dtype = "float32" }'),
        ("[reference]", '[scalars]\nscale = { dtype = "input", value = "n / 2" }\n[reference]'),
    )
    arguments = plan_of(kernel, 10, items=3).launches[0].arguments[2:]
    assert arguments == (
        ("scalar", "int32", 10), ("scalar", "int32", 3), ("scalar", "float32", 5.0), ("scalar", "float32", 10 / 3)
    )  # fmt: skip
    with pytest.raises(UnlaunchableError, match='dtype = "int64"'):
        plan_of(kernel, 2**31)


Z = 'z = { shape = ["2 * n"], dtype = "input", role = "inout", when = "uses(op, \'z\')" }'
ABSENT = (
    ('options = { order = ["up", "down"] }', 'options = { op = { expression = "x", of = ["x", "z"] } }'),
    ("[tensors]", "[tensors]\n" + Z),
    ('numpy = "2 * x"', 'numpy = { y = "op", z = "op" }'),
    ('arguments = ["x", "y",', 'arguments = ["x", "z", "y",'),
)  # fmt: skip


def test_an_absent_tensor_is_a_null_pointer(tmp_path: Path) -> None:
    kernel = changed(tmp_path, *ABSENT)
    without, with_z = kernel.problem({"n": 10}), kernel.problem({"n": 10}, options={"op": "x * z"})
    assert [tensor.name for tensor in tensors_of(kernel, without, GPU)] == ["x", "y"]
    assert [tensor.name for tensor in tensors_of(kernel, with_z, GPU)] == ["z", "x", "y"]
    arguments = make_plan(kernel, without, GPU, configuration()).launches[0].arguments
    assert arguments[:3] == (("buffer", "x", 0), NULL_POINTER, ("buffer", "y", 0))
    assert NULL_POINTER == ("scalar", "int64", 0)
    assert make_plan(kernel, with_z, GPU, configuration()).launches[0].arguments[1] == ("buffer", "z", 0)
    assert numpy_of(kernel, without).keys() == {"y"}
    assert numpy_of(kernel, with_z).keys() == {"y", "z"}


def test_alignment_is_settled(tmp_path: Path) -> None:
    kernel = changed(tmp_path, (BLOCK, 'block = ["block_size"]\nalignment = "items * itemsize(input)"'))
    assert [plan_of(kernel, items=items).launches[0].alignment for items in (1, 2, 4)] == [4, 8, 16]
    assert plan_of(changed(tmp_path)).launches[0].alignment == 1
    with pytest.raises(KernelError, match=r"alignment: items \* itemsize\(input\) = 12.* power of two"):
        plan_of(kernel, items=3)
    large = changed(tmp_path, (BLOCK, 'block = ["block_size"]\nalignment = "512"'))
    with pytest.raises(KernelError, match="up to 256"):
        plan_of(large)


def test_scalars_are_as_their_dtype_holds_them(tmp_path: Path) -> None:
    """The reference must not know them better than the kernel does."""
    for dtype, value in (("float64", 0.1), ("float32", 0.10000000149011612), ("float16", 0.0999755859375),
                         ("bfloat16", 0.10009765625), ("int32", 7)):  # fmt: skip
        written = "7" if dtype == "int32" else "0.1"
        scalars = f'[scalars]\na = {{ dtype = "{dtype}", value = "{written}" }}\n[reference]'
        kernel = changed(tmp_path, ("[reference]", scalars))
        assert scalars_of(kernel, kernel.problem(), GPU) == {"a": (dtype, value)}


@pytest.mark.parametrize("cc", [75, 89])
def test_a_programmatic_launch_counts_as_launchable_everywhere(tmp_path: Path, cc: int) -> None:
    kernel = changed(tmp_path, (BLOCK, 'block = ["32"]\nprogrammatic = true'))
    (variant,) = kernel.variants.values()
    rows = np.zeros((1, len(variant.parameters)), np.int64)
    assert not unlaunchable(kernel, variant, kernel.problem(), ARCHITECTURES[cc], rows)


def test_some_output_must_be_there(tmp_path: Path) -> None:
    kernel = changed(tmp_path, ('role = "output" }', 'role = "output", when = "order == \'up\'" }'))
    assert len(tensors_of(kernel, kernel.problem(), GPU)) == 2
    with pytest.raises(KernelError, match="has no output"):
        tensors_of(kernel, kernel.problem(options={"order": "down"}), GPU)


def test_whole_scalars_are_whole(tmp_path: Path) -> None:
    scalars = '[scalars]\nhalf = { dtype = "int32", value = "n / 2" }\n[reference]'
    kernel = changed(tmp_path, ("[reference]", scalars))
    assert scalars_of(kernel, kernel.problem({"n": 10}), GPU) == {"half": ("int32", 5)}
    assert type(scalars_of(kernel, kernel.problem({"n": 10}), GPU)["half"][1]) is int
    with pytest.raises(KernelError, match="half"):
        scalars_of(kernel, kernel.problem({"n": 11}), GPU)
    with pytest.raises(TunerError, match="half"):
        scalars_of(kernel, kernel.problem({"n": 2**40}), GPU)
