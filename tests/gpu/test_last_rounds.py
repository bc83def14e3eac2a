"""gemm on Hopper: neither a last round that is divided along k, nor tiles that the L2 is told of, change a result."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from scripts import same_bits
from scripts.lab import Lab
from tuner.core.errors import SpaceError
from tuner.core.model import Configuration, Gpu, Problem, Status, Value
from tuner.devices.local import LocalDevice
from tuner.inspect.tools.cases import Case, compile_cases
from tuner.kernel.load import load_kernel
from tuner.kernel.space import SearchSpace

GEMM = load_kernel("gemm")
DIVIDED = [  # one off tiles of 128 each way, or beside all of them
    (1151, 2056, 1032), (1160, 2040, 1096), (2104, 1800, 1088),
    (1153, 2049, 1031), (1151, 2047, 1100), (2100, 1807, 1088),
]  # fmt: skip
SHORT = [(136, 520, 1544), (383, 1032, 2056), (640, 769, 1025), (255, 1000, 1031)]
LAYOUTS = ("nn", "nt", "tn", "tt")
WHOLE = [(1000, 1048, 520), (1001, 1047, 521), (999, 1046, 520), (136, 2504, 1029)]
"""Whole rounds, rows of 16 bytes or not; C in vectors, pairs and single elements."""
KINDS = ("schedule", "epilogue", "swap_ab", "cluster_m", "cluster_n")
DRAWN = 3000
"""Rows among which there is one of each kind."""
PREFETCHING = 12


def problems(sizes: list[tuple[int, int, int]]) -> list[tuple[int, int, int, str, str]]:
    """Return each size with all layouts, and the dtypes in turn."""
    return [
        (*size, layout, ("bfloat16", "float16")[(number + turn) % 2])
        for number, size in enumerate(sizes)
        for turn, layout in enumerate(LAYOUTS)
    ]


def problem(m: int, n: int, k: int, layout: str, dtype: str) -> Problem:
    return GEMM.problem({"m": m, "n": n, "k": k}, {"": dtype}, {"layout": layout})


def drawn(of: Problem, gpu: Gpu, **fixed: Value) -> Iterator[Configuration]:
    """Draw configurations with some values given."""
    if gpu.cc != 90:
        pytest.skip("needs Hopper")
    usable = {variant.name for variant in GEMM.usable_variants(of, gpu)[0]}
    [name] = {"wgmma", "wgmma_padded"} & usable
    wanted = {key: [value] for key, value in fixed.items()}
    try:
        [space] = SearchSpace.from_kernel(GEMM, of, gpu, [name], wanted).variants
    except SpaceError as error:
        pytest.skip(f"{gpu.sm_count} SMs: {error}")
    for row in random.Random(str(of)).sample(range(len(space)), min(DRAWN, len(space))):
        yield space.configuration(row)


def each_kind(of: Problem, gpu: Gpu, stream_k: bool) -> list[Configuration]:
    """Return one configuration of each way to write C, with A and B in either role, and for each cluster."""
    found: dict[tuple[object, ...], Configuration] = {}
    for one in drawn(of, gpu, stream_k=stream_k):
        found.setdefault(tuple(one.values[name] for name in KINDS), one)
    return list(found.values())


def wrong(device: LocalDevice, of: Problem, chosen: list[Configuration]) -> list[str]:
    """Run them, with guarded and poisoned memory, and give what is said of those that are not right."""
    device.prepare(GEMM, of, seed=7)
    for number, configuration in enumerate(chosen):
        device.submit(number, configuration, lambda: 1.0)  # hopelessly slow: one timed run each is enough
    bad: list[str] = []
    answered = refused = 0
    while answered < len(chosen):
        for trial in device.collect(1.0):
            answered += 1
            refused += trial.status is Status.INVALID_CONFIG  # ruled out by the compiler's report
            if not trial.status.ranked and trial.status is not Status.INVALID_CONFIG:
                bad.append(f"{trial.configuration}: {trial.status} {trial.error}")
    assert refused < len(chosen)
    return bad


@pytest.mark.parametrize(("m", "n", "k", "layout", "dtype"), problems(DIVIDED))
def test_a_divided_last_round_is_right(
    device: LocalDevice, m: int, n: int, k: int, layout: str, dtype: str
) -> None:
    of = problem(m, n, k, layout, dtype)
    chosen = each_kind(of, device.gpu, stream_k=True)
    bad = wrong(device, of, chosen)
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize(("m", "n", "k", "layout", "dtype"), problems(WHOLE))
def test_each_kind_is_right_in_every_layout(
    device: LocalDevice, m: int, n: int, k: int, layout: str, dtype: str
) -> None:
    of = problem(m, n, k, layout, dtype)
    bad = wrong(device, of, each_kind(of, device.gpu, stream_k=False))
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize(("m", "n", "k", "layout", "dtype"), problems(SHORT))
def test_what_the_l2_is_told_of_changes_nothing(
    device: LocalDevice, m: int, n: int, k: int, layout: str, dtype: str
) -> None:
    of = problem(m, n, k, layout, dtype)
    chosen = [one for one, _ in zip(drawn(of, device.gpu, prefetch=True), range(PREFETCHING), strict=False)]
    bad = wrong(device, of, chosen)
    assert not bad, "\n".join(bad)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_parts_are_added_up_in_one_order(layout: str) -> None:
    """Sums of the same numbers in another order have other last bits. Each launch finds what the one before left."""
    of = [problem(1151, 2056, 1032, layout, "float16"), problem(1153, 2049, 1031, layout, "bfloat16")]
    with Lab(jobs=None) as lab:
        cases = [
            Case(one, configuration)
            for one in of
            for configuration in each_kind(one, lab.gpu, stream_k=True)[::3]
        ]
        units, left_out = compile_cases(GEMM, lab.gpu, lab.pool, cases, of[0])
        assert len(left_out) < len(units)
        for unit in units:
            assert not same_bits.differing(lab, unit, 6, 0), str(cases[unit.number].configuration)
