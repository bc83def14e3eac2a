"""Kernels whose launches are programmatic wait at once, and those whose launches are not do not."""

from __future__ import annotations

import re

import pytest

from tests.templates.sources import ptx
from tuner.core.model import Configuration
from tuner.kernel.load import load_kernel
from tuner.kernel.plan import make_plan
from tuner.kernel.render import render
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.space import SearchSpace

EARLY: list[tuple[str, dict[str, str]]] = [
    ("softmax", {"mask": "causal"}), ("norm", {"op": "layer_norm"}), ("cross_entropy", {"gradient": "logits"}),
    ("gated", {}), ("rope", {"place": "in"}), ("transpose", {}), ("quantize", {"by": "block", "norm": "rms_norm"}),
    ("permute", {"axes": "acb"}), ("reduce_axis", {"over": "rows"}), ("reduce_axis", {"over": "columns"}),
]  # fmt: skip
TOUCHES = re.compile(
    r"\b(?:ld|st|atom|red)\.(?:\w+\.)*global|\bcp\.async|\bmbarrier|barrier\.cluster|\bprefetch"
)


@pytest.mark.parametrize(("name", "options"), EARLY, ids=lambda value: str(value))
def test_nothing_is_touched_before_the_launch_before_has_ended(name: str, options: dict[str, str]) -> None:
    kernel, gpu = load_kernel(name), ARCHITECTURES[90]
    of = kernel.problem(options=options)
    space = SearchSpace.from_kernel(kernel, of, gpu)
    assert space.variants
    for variant in space.variants:
        configuration: Configuration = variant.configuration(len(variant) // 2)
        plan = make_plan(kernel, of, gpu, configuration)
        for launch, (source, entry) in zip(
            plan.launches, render(kernel, of, gpu, configuration), strict=True
        ):
            text = ptx(source, entry, 90)
            assert launch.programmatic == ("griddepcontrol.wait" in text), configuration
            if launch.programmatic:
                before, *behind = text.split("griddepcontrol.wait;")
                assert len(behind) == 1 and before.count("griddepcontrol.launch_dependents") == 1, (
                    configuration
                )
                body = before[before.rindex(".entry") :]
                assert not TOUCHES.search(body) and "bra" not in body, configuration
                # What the launch before writes is no constant of this one.
                assert "ld.global.nc" not in text, configuration
