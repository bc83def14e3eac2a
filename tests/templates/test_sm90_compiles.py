"""What NVRTC makes of the persistent product on Hopper: no spills, and no instructions that wait for each other."""

from __future__ import annotations

import pytest

from tests.templates.sm90 import GEMM, HOPPER, LAYOUTS, chosen, drawn, problem
from tests.templates.sources import ptx
from tests.templates.test_wgmma import SERIALISED
from tuner.children.nvrtc import compile_source
from tuner.core.model import Configuration, Problem, Value
from tuner.kernel.plan import make_plan
from tuner.kernel.render import render

DIVIDED = {
    "wgmma": [(4096, 11008, 4096), (3000, 3000, 3000)],
    "wgmma_padded": [(4095, 4097, 4093), (5000, 3001, 4095)],
}
DTYPES = {"nn": "bfloat16", "nt": "float16", "tn": "float16", "tt": "bfloat16"}


@pytest.mark.parametrize(("name", "layout"), [("wgmma", "nn"), ("wgmma", "tt"), ("wgmma_padded", "nt")])
def test_no_spills_and_no_serialised_instructions(name: str, layout: str) -> None:
    """Of random ones fewer than one in fifty spills, which a constraint rules out; of these none does."""
    odd, dtype = int(name == "wgmma_padded"), DTYPES[layout]
    usual, short = (
        problem(4096, 4096 + odd, 4096 - odd, layout, dtype),
        problem(1024, 1000 + odd, 1544 + odd, layout, dtype),
    )
    divided = problem(*DIVIDED[name][LAYOUTS.index(layout) % 2], layout, dtype)
    cases = []
    if layout == "nn":
        cases += [(usual, chosen(name, {}))]
    if layout in ("nt", "tt"):
        cases += [(divided, one) for one in drawn(name, divided, 1, stream_k=True)]
    else:
        cases += [(short, one) for one in drawn(name, short, 1, prefetch=True)]
    spilled = [one for of, one in cases if spills(of, one)]
    assert not spilled


def spills(of: Problem, configuration: Configuration) -> bool:
    *_, (source, entry) = render(GEMM, of, HOPPER, configuration)
    result = compile_source(source, entry, HOPPER.arch)
    assert not any(code in result.log for code in SERIALISED), (configuration, result.log)
    launch = make_plan(GEMM, of, HOPPER, configuration).launches[-1]
    assert launch.shared_bytes + result.resources.static_shared_bytes <= HOPPER.shared_bytes_optin
    return bool(result.resources.spill_bytes or result.resources.stack_bytes)


TURNS: dict[str, Value] = {
    "schedule": "pingpong",
    "epilogue": "serial",
    "block_n": 128,
    "block_k": 64,
    "stages": 5,
}
IS_SHORT = "scheduler.is_short(k)"


@pytest.mark.parametrize(
    ("name", "values", "ever", "always"),
    [("wgmma", {}, True, False), ("wgmma", {**TURNS, "cluster_m": 2, "cluster_n": 2}, False, False)],
)
def test_the_next_launch_begins_early_where_that_pays(
    name: str, values: dict[str, Value], ever: bool, always: bool
) -> None:
    """Long cooperative launches end in an order that would not suit the next, nor do SMs for clusters of four."""
    *_, (source, entry) = render(GEMM, problem(512, 1024, 1024), HOPPER, chosen(name, values))
    if_long = source.replace(IS_SHORT, "false")
    counts = {
        text: ptx(text, entry, HOPPER.cc).count("griddepcontrol.launch_dependents;")
        for text in {source, if_long}
    }
    assert (counts[source], counts[if_long]) == (int(ever), int(always))
