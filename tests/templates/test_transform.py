"""The transform kernel's file: which arrays an expression needs, what it costs, and the ladders of all three maps."""

from __future__ import annotations

import pytest

from tests.templates.machine_code import gpu
from tuner.core.errors import UsageError
from tuner.kernel.load import load_kernel
from tuner.kernel.plan import make_plan, reference_launch, tensors_of
from tuner.kernel.render import render
from tuner.kernel.space import SearchSpace
from tuner.runtime.launch_limits import NULL_POINTER

TRANSFORM = load_kernel("transform")
INPUTS = [("x + 0.5 * (20 - x)", "x"), ("x * z - 1", "xz"), ("where(x > y, z, sqrt(abs(x)))", "xyz")]


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


def test_one_thread_is_for_small_arrays() -> None:
    assert "one_thread" not in TRANSFORM.usable_variants(TRANSFORM.problem({"n": 1 << 20}), gpu())[1]
    refused = TRANSFORM.usable_variants(TRANSFORM.problem({"n": (1 << 20) + 1}), gpu())[1]
    assert refused["one_thread"] == "needs n of at most 2^20"
