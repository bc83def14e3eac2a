"""Mode, calls and copies follow from the roofline alone, and every call of a rotation finds its data cold."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kernel_files import GOOD, write
from tuner.children.compile_pool import CompilePool
from tuner.core.conditions import Conditions, Mode, Regime
from tuner.core.model import Gpu
from tuner.devices.requests import Requests
from tuner.kernel.batching import (
    BATCH_NS,
    COLD_FACTOR,
    LAUNCH_NS,
    LONGEST_FACTOR,
    MAX_CALLS,
    MAX_SUSTAINED_CALLS,
    MIN_CALLS,
    SHORT_NS,
    SUSTAINED_BATCH_NS,
    Batch,
    batch_of,
    choose_conditions,
    footprint,
)
from tuner.kernel.load import load_kernel, read_kernel
from tuner.kernel.roofline import ARCHITECTURES, Roof, roof_of
from tuner.runtime.launches import Buffer

H200 = ARCHITECTURES[90]
RESTED, SUSTAINED = Regime.RESTED, Regime.SUSTAINED
SIZES = (1, 31, 2**10, 2**16, 2**20, 2**22 + 3, 2**24, 2**26, 2**31)


def memory_roof(least_ns: float) -> Roof:
    """A copy that takes so long at the speed of light."""
    return Roof(1.0, least_ns * 1e3, 1e14, 1e12)


def floats(count: int) -> tuple[Buffer, ...]:
    return (Buffer("x", (count,), "float32", "input"), Buffer("y", (count,), "float32", "output"))


def copy_roof(count: int, gpu: Gpu = H200) -> Roof:
    return Roof(0.0, 8.0 * count, 1e14, gpu.memory_bytes_per_s)


# -- mode


def test_short_problems_rotate_and_long_ones_are_cold() -> None:
    short, why = choose_conditions(memory_roof(SHORT_NS * 0.999), None, RESTED)
    assert short == Conditions(Mode.ROTATING, RESTED)
    assert "too short" in why and "20 us" in why
    long, why = choose_conditions(memory_roof(SHORT_NS), None, RESTED)
    assert long == Conditions(Mode.COLD, RESTED)
    assert "20 us" in why and "too short" not in why


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize(("regime", "least_ns"), [(RESTED, 10.0), (SUSTAINED, 1e9)])
def test_requested_mode_is_used(mode: Mode, regime: Regime, least_ns: float) -> None:
    assert choose_conditions(memory_roof(least_ns), mode, regime) == (Conditions(mode, regime), "as asked")


# -- calls and copies


def least_between_uses(batch: Batch, size_bytes: int) -> int | None:
    """Go through a batch as a sample does; give the fewest bytes between two uses of a copy, None if there are none."""
    seen: dict[int, int] = {}
    gone = 0
    minimum = None
    for call in range(batch.calls):
        copy = call % batch.copies
        if copy in seen:
            between = gone - seen[copy]
            minimum = between if minimum is None else min(minimum, between)
        gone += size_bytes
        seen[copy] = gone
    return minimum


@pytest.mark.parametrize("cc", [75, 90])
@pytest.mark.parametrize("count", SIZES)
def test_rotating_calls_find_their_data_cold_in_bounded_memory(cc: int, count: int) -> None:
    gpu = ARCHITECTURES[cc]
    tensors = floats(count)
    size = footprint(tensors)
    assert size == 8 * count
    batch = batch_of(copy_roof(count, gpu), tensors, gpu, Conditions(Mode.ROTATING))
    assert MIN_CALLS <= batch.calls <= MAX_CALLS
    assert 1 <= batch.copies <= batch.calls
    minimum = least_between_uses(batch, size)
    if minimum is None:
        assert batch.copies == batch.calls
    elif batch.copies > 1:
        assert minimum >= COLD_FACTOR * gpu.l2_bytes
    else:
        assert size >= COLD_FACTOR * gpu.l2_bytes  # by its end, nothing of its own beginning is left
    # No more than it takes: what must go by, and at most two more.
    assert batch.copies * size < max(size + 1, COLD_FACTOR * gpu.l2_bytes + 2 * size)
    assert batch.copies == 1 or size < COLD_FACTOR * gpu.l2_bytes


def test_no_copy_more_than_it_takes() -> None:
    gpu = replace(H200, l2_bytes=4000)  # 10,000 bytes must go by
    roof = Roof(0.0, 1.0, 1.0, 1e12)
    copies = {
        count: batch_of(roof, floats(count), gpu, Conditions(Mode.ROTATING)).copies
        for count in (125, 124, 126, 1250, 1249)
    }
    assert copies == {125: 11, 124: 12, 126: 11, 1250: 1, 1249: 3}


def test_sustained_batches_are_long_and_bounded() -> None:
    """The power limit's control loop must go round many times within one."""
    sustained = Conditions(Mode.ROTATING, SUSTAINED)
    long = batch_of(memory_roof(1e6), floats(2**28), H200, sustained)
    assert long.calls * 1e6 >= SUSTAINED_BATCH_NS - 1e6 and long.copies == 1
    short = batch_of(memory_roof(100.0), floats(1024), H200, sustained)
    assert short.calls == short.copies == MAX_SUSTAINED_CALLS  # few would stay in the L2


def test_a_kernel_that_needs_fewer_bytes_than_its_tensors_have_is_not_too_fast(tmp_path: Path) -> None:
    """A gather reads a part of its table: only what is written must be moved, unless the file says more."""
    work = GOOD[GOOD.index("[work]") : GOOD.index("[variants.plain]")]
    large = GOOD.replace("n = 1024", 'n = "2**28"').replace(
        'shape = ["n"], dtype = "input"', 'shape = ["8 * n"], dtype = "input"'
    )
    gpu = replace(ARCHITECTURES[90], memory_bytes_per_s=1e12, l2_bytes=0)
    floors = []
    for text in (large.replace(work, ""), large.replace('bytes = "2 *', 'bytes = "9 *')):
        kernel = read_kernel(write(tmp_path, text.replace('numpy = "alpha * x"', 'numpy = "alpha * x[:n]"')))
        with closing(CompilePool(1)) as pool:
            setup = Requests(kernel, gpu, pool).setup(
                kernel.problem(), 0, Conditions(Mode.COLD, Regime.RESTED)
            )
        floors.append(setup.limits.floor_ns)
    assert floors[1] == pytest.approx(9 * floors[0], rel=1e-6)


def test_unknown_ceilings_make_everything_short() -> None:
    roof = roof_of(
        load_kernel("vector_add"), load_kernel("vector_add").problem({"n": 2**28}), Gpu("", 90, 1, 1, 1, 1, 1)
    )
    assert roof.speed_of_light_ns == 0.0
    assert choose_conditions(roof, None, RESTED)[0].mode is Mode.ROTATING


@pytest.mark.parametrize("least_ns", [10.0, 1e9])
def test_sustained_load_rotates_whatever_its_length(least_ns: float) -> None:
    conditions, why = choose_conditions(memory_roof(least_ns), None, SUSTAINED)
    assert conditions == Conditions(Mode.ROTATING, SUSTAINED)
    assert "back to back" in why


@pytest.mark.parametrize("mode", [Mode.ROTATING, Mode.WARM])
@pytest.mark.parametrize("least_ns", [0.0, 100.0, 1e3, 5e3, 2e4, 3e4, 1e5, 1e9])
def test_events_cost_little_of_a_batch(mode: Mode, least_ns: float) -> None:
    calls = batch_of(memory_roof(least_ns), floats(1024), H200, Conditions(mode)).calls
    length_ns = calls * (least_ns + LAUNCH_NS)
    assert length_ns >= BATCH_NS or calls == MAX_CALLS
    assert length_ns - least_ns - LAUNCH_NS < BATCH_NS or calls == MIN_CALLS  # and no longer


@pytest.mark.parametrize("count", SIZES)
def test_other_modes_need_one_copy(count: int) -> None:
    tensors = floats(count)
    assert batch_of(copy_roof(count), tensors, H200, Conditions(Mode.COLD)) == Batch(1, 1)
    warm = batch_of(copy_roof(count), tensors, H200, Conditions(Mode.WARM))
    assert warm.copies == 1
    assert warm.calls == batch_of(copy_roof(count), tensors, H200, Conditions(Mode.ROTATING)).calls


def test_slow_candidates_get_fewer_calls() -> None:
    batch = Batch(160, 1)
    assert batch.calls_for(0.0) == 160
    assert batch.calls_for(LONGEST_FACTOR * BATCH_NS / 160) == 160
    assert batch.calls_for(LONGEST_FACTOR * BATCH_NS / 10) == 10
    assert batch.calls_for(1e12) == 1
