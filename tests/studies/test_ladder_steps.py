"""The steps of a kernel's ladder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.ladder_device import STEPS, kernel_with_ladder
from tuner.core.errors import SpaceError, UsageError
from tuner.core.model import Problem
from tuner.kernel.load import builtin_kernels, load_kernel
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec
from tuner.studies.ladder import choose_steps, problem_of

pytestmark = pytest.mark.usefixtures("forked_children")


@pytest.fixture
def kernel(tmp_path: Path) -> KernelSpec:
    return kernel_with_ladder(tmp_path / "kernel")


def test_step_comes_before_the_user(kernel: KernelSpec) -> None:
    base = kernel.problem({"n": 7}, {"": "float16"}, {"order": "down"})
    steps = {step.name: step for step in kernel.steps}
    assert tuple(steps) == STEPS
    found = problem_of(kernel, base, {"n": 64}, steps["more"])
    assert found == Problem("scale", {"n": 64}, {"input": "float16", "output": "float16"}, {"order": "down"})
    other = replace(steps["more"], dtypes={"input": "float32"}, options={"order": "up"})
    found = problem_of(kernel, base, {"n": 64}, other)
    assert found == Problem("scale", {"n": 64}, {"input": "float32", "output": "float32"}, {"order": "up"})


def test_steps_by_name(kernel: KernelSpec) -> None:
    assert [step.name for step in choose_steps(kernel, ["more", "one warp"])] == ["one warp", "more"]
    assert choose_steps(kernel, []) == kernel.steps
    with pytest.raises(UsageError, match="did you mean 'more'"):
        choose_steps(kernel, ["moer"])


def test_every_step_of_the_built_in_kernels_has_a_space() -> None:
    """Looked for where all but the step's parameters have their defaults, and else everywhere."""
    for name in builtin_kernels():
        kernel = load_kernel(name)
        small = {size: min(default, 4096) for size, default in kernel.sizes.items()}
        for step in kernel.steps:
            problem = problem_of(kernel, kernel.problem(small), {}, step)
            variant = kernel.variants[step.variant]
            narrow = {one: (value,) for one, value in variant.defaults.items()} | dict(step.parameters)
            try:
                space = SearchSpace.from_kernel(kernel, problem, ARCHITECTURES[90], (step.variant,), narrow)
            except SpaceError:
                space = SearchSpace.from_kernel(
                    kernel, problem, ARCHITECTURES[90], (step.variant,), step.parameters
                )
            assert len(space), (name, step.name)
            assert not step.doc.endswith("."), (name, step.name)
