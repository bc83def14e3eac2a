"""The transform kernel's file: which arrays an expression needs, what it costs, and the ladders of all three maps."""

from __future__ import annotations

import dataclasses

import pytest

from tests.templates.machine_code import gpu
from tuner.core.errors import UsageError
from tuner.core.model import Configuration, Value
from tuner.kernel.load import load_kernel
from tuner.kernel.plan import make_plan, reference_launch, tensors_of
from tuner.kernel.render import render
from tuner.kernel.space import SearchSpace
from tuner.runtime.launch_limits import NULL_POINTER

TRANSFORM = load_kernel("transform")
INPUTS = [
    ("x + 0.5 * (20 - x)", "x"),
    ("x * z - 1", "xz"),
    ("where(x > y, z, sqrt(abs(x)))", "xyz"),
]


@pytest.mark.parametrize(("op", "used"), INPUTS)
def test_only_what_is_used_is_read(op: str, used: str) -> None:
    problem, device = TRANSFORM.problem({"n": 1000}, options={"op": op}), gpu()
    assert [buffer.name for buffer in tensors_of(TRANSFORM, problem, device)] == [*used, "out"]
    names = TRANSFORM.environment(problem, device)
    assert TRANSFORM.work.bytes.evaluate(names) == (len(used) + 1) * 2 * 1000
    for variant in TRANSFORM.usable_variants(problem, device)[0]:
        configuration = SearchSpace.from_kernel(TRANSFORM, problem, device, [variant.name]).default
        (launch,) = make_plan(TRANSFORM, problem, device, configuration).launches
        given = [("buffer", name, 0) if name in used else NULL_POINTER for name in "xyz"]
        assert list(launch.arguments[:3]) == given
        ((source, _),) = render(TRANSFORM, problem, device, configuration)
        parameters = ", ".join(f"float {name}" for name in used)
        assert f"operator()({parameters}) const" in source
        assert f"return Arrays{{{', '.join(used)}, out}};" in source
    reference = reference_launch(TRANSFORM, problem, device)
    assert reference is not None
    assert list(reference.arguments[:3]) == given


def test_one_thread_is_for_small_arrays() -> None:
    assert "one_thread" not in TRANSFORM.usable_variants(TRANSFORM.problem({"n": 1 << 20}), gpu())[1]
    refused = TRANSFORM.usable_variants(TRANSFORM.problem({"n": (1 << 20) + 1}), gpu())[1]
    assert refused["one_thread"] == "needs n of at most 2^20"


def test_the_default_is_a_sensible_kernel_in_every_dtype() -> None:
    """It stands beside every winner, and is what a search starts from."""
    for dtype, width in (("float16", 8), ("bfloat16", 8), ("float32", 4)):
        space = SearchSpace.from_kernel(TRANSFORM, TRANSFORM.problem(dtypes={"": dtype}), gpu())
        assert space.default.variant == "vectorized"
        assert space.default.values["vector_width"] == width


def test_an_expression_without_arrays_is_refused() -> None:
    for op in ("3", "x + w", "system(x)"):
        with pytest.raises(UsageError):
            TRANSFORM.problem(options={"op": op})


def test_baselines_are_for_the_default_expression_alone() -> None:
    assert set(TRANSFORM.baselines) == {"torch", "cupy"}
    for op, _ in INPUTS:
        names = TRANSFORM.environment(TRANSFORM.problem(options={"op": op}), gpu())
        for (call,) in TRANSFORM.baselines.values():
            assert call.when is not None
            assert bool(call.when.evaluate(names)) == (op == INPUTS[0][0])


def narrowed(name: str, cc: int, n: int) -> dict[str, set[Configuration]]:
    """Return the configurations of each step that the GPU can run."""
    kernel, found = load_kernel(name), {}
    for step in kernel.steps:
        options: dict[str, Value] = dict(step.options)
        problem = kernel.problem({"n": n}, step.dtypes, options)
        if step.variant in kernel.usable_variants(problem, gpu(cc))[1]:
            continue
        space = SearchSpace.from_kernel(kernel, problem, gpu(cc), [step.variant])
        found[step.name] = {
            configuration
            for configuration in space.configurations()
            if all(configuration.values[p] in values for p, values in step.parameters.items())
        }
    return found


@pytest.mark.parametrize("cc", (75, 120))
@pytest.mark.parametrize("name", ("vector_add", "transform"))
def test_every_step_has_configurations(name: str, cc: int) -> None:
    """Only what needs cp.async or bulk copies is left out. tests/studies/test_ladder_steps.py has those of Hopper."""
    found = narrowed(name, cc, 1 << 20)
    assert found and all(found.values())
    steps = len(load_kernel(name).steps)
    assert len(found) == steps - (2 if cc == 75 else 0)


def test_steps_of_the_vector_add_differ_in_what_their_names_say() -> None:
    found = narrowed("vector_add", 90, 1 << 20)
    by_half2 = found["half x 8 by half2"]
    packed = found["half x 8 packed"]
    assert {c.values["arrangement"] for c in by_half2} == {"blocked"}
    assert {c.values["items_per_thread"] * c.values["vector_width"] for c in by_half2 | packed} == {8}  # type: ignore[operator]


def test_persistent_grids_are_multiples_of_the_sms() -> None:
    device = dataclasses.replace(gpu(), sm_count=7)
    problem = TRANSFORM.problem({"n": 1 << 22})
    for name in ("grid_stride", "staged", "bulk"):
        space = SearchSpace.from_kernel(TRANSFORM, problem, device, [name])
        for configuration in list(space.configurations())[::97]:
            per_sm = int(configuration.values["blocks_per_sm"])
            (launch,) = make_plan(TRANSFORM, problem, device, configuration).launches
            assert per_sm == 0 or launch.grid[0] == 7 * per_sm
