"""What a ladder run searches: once, from the best below, and again where something has changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.ladder_device import BEST, LadderDevice, Recorder, kernel_with_ladder
from tests.faults.stub_device import time_of
from tests.studies.sweeps import sweep, up
from tuner.core.conditions import Conditions, Mode
from tuner.core.errors import Interrupted
from tuner.core.model import Configuration, RunOptions
from tuner.core.observer import Observer
from tuner.database.database import Database
from tuner.database.records import Filters
from tuner.kernel.spec import KernelSpec
from tuner.studies.ladder import choose_steps
from tuner.tuning.opening import AHEAD, LONG_NS, lookahead_of
from tuner.tuning.request import Request
from tuner.tuning.session import tune

pytestmark = pytest.mark.usefixtures("forked_children")


@pytest.fixture
def kernel(tmp_path: Path) -> KernelSpec:
    return kernel_with_ladder(tmp_path / "kernel")


@pytest.fixture
def device() -> LadderDevice:
    return LadderDevice()


# -- what is searched


def test_every_step_at_its_best_beside_the_others(
    kernel: KernelSpec, device: LadderDevice, database: Database
) -> None:
    recorder = Recorder()
    (level,) = up(sweep(kernel), device, database, recorder=recorder)
    singles, halves = level.comparisons
    assert [timing.name for timing in singles.timings] == ["one warp", "more", "torch", "cupy"]
    assert [timing.name for timing in halves.timings] == ["half", "torch", "cupy"]
    for name, best in BEST.items():
        found = level.find(name)
        assert found is not None and found[1].configuration == best
    assert level.absent["tomorrow"].reason == "requires cc >= 990"
    assert not level.absent["tomorrow"].failed
    begun = ["one warp", "more", "tomorrow", "timing 4 in turn", "half", "timing 3 in turn"]
    assert recorder.begun == [f"n=1024: {what}" for what in begun]
    assert recorder.steps == 6


def test_trials_are_ordinary_runs(kernel: KernelSpec, device: LadderDevice, database: Database) -> None:
    up(sweep(kernel), device, database)
    problem = kernel.problem({"n": 1024})
    stored = database.query(Filters(problem_key=problem.key)).rows
    narrowed = {tuple(row.run.options.fixed.get("block_size", ())) for row in stored}
    assert {(32,), (128, 256)} <= narrowed
    assert all(database.run_state(row.run.id)["state"] == "finished" for row in stored)
    reused = database.best_known(stored[0].run)
    assert reused is not None
    assert reused[0] == min(BEST.values(), key=time_of)


def test_second_time_nothing_is_searched(
    kernel: KernelSpec, device: LadderDevice, database: Database
) -> None:
    first = up(sweep(kernel, 1024, 2048), device, database)
    prepared = [(problem.sizes["n"], problem.dtype) for problem in device.prepared]
    assert prepared == [(n, dtype) for n in (1024, 2048) for dtype in ("float32", "float16")]
    device.submitted.clear()
    again = up(sweep(kernel, 1024, 2048), device, database)
    assert device.submitted == []
    assert len(device.fields) == 8  # but all are timed again
    for level, before in zip(again, first, strict=True):
        for name in ("one warp", "more", "half"):
            now, then = level.find(name), before.find(name)
            assert now is not None and now[0].tuned[name].reused
            assert then is not None and not then[0].tuned[name].reused
            assert now[1].configuration == then[1].configuration
    up(sweep(kernel, from_scratch=True), device, database)
    assert device.submitted


def test_other_request_is_another_search(
    kernel: KernelSpec, device: LadderDevice, database: Database
) -> None:
    """But for one with fewer trials."""
    what = sweep(kernel, steps=choose_steps(kernel, ["more"]), trials=3, time_s=1e6)
    up(what, device, database)
    for other, searched in (
        (what, False),
        (replace(what, search=replace(what.search, trials=2)), False),
        (replace(what, search=replace(what.search, trials=6)), True),
        (replace(what, search=replace(what.search, mode=Mode.WARM)), True),
        (replace(what, base=kernel.problem(options={"order": "down"})), True),
    ):
        device.submitted.clear()
        up(other, device, database)
        assert bool(device.submitted) is searched


def test_run_that_was_cut_off_does_not_count(
    kernel: KernelSpec, device: LadderDevice, database: Database
) -> None:
    what = sweep(kernel, steps=choose_steps(kernel, ["more"]))
    with pytest.raises(Interrupted):
        up(what, device, database, stop=lambda: len(device.submitted) > 3)
    (run,) = {row.run.id: row.run for row in database.query(Filters()).rows}.values()
    assert database.run_state(run.id)["state"] == "interrupted"
    assert (
        database.latest_unfinished(run.problem, run.device) is None
    )  # tune run --resume does not go on with a step
    device.submitted.clear()
    up(what, device, database)
    assert device.submitted


def test_changed_kernel_is_searched_again(
    kernel: KernelSpec, device: LadderDevice, database: Database
) -> None:
    up(sweep(kernel), device, database)
    device.submitted.clear()
    source = kernel.folder / "scale.cu.j2"
    source.write_text(source.read_text() + "\n#define CHANGED\n")
    up(sweep(kernel), device, database)
    assert device.submitted


def test_best_below_is_tried_first(kernel: KernelSpec, device: LadderDevice, database: Database) -> None:
    """What is nearest to the best of the step or the size before is tried right after the default."""
    up(sweep(kernel, 1024, 2048, steps=choose_steps(kernel, ["one warp", "more"])), device, database)
    early: dict[tuple[int, object], list[Configuration]] = {}
    for stored in database.query().rows:
        if stored.trial.number <= 2:
            step = stored.run.problem.sizes["n"], stored.run.options.fixed["block_size"]
            early.setdefault(step, []).append(stored.trial.configuration)
    near = Configuration.of("plain", {**BEST["one warp"].values, "block_size": 128})
    assert near in early[1024, (128, 256)]
    assert {near, BEST["more"]} <= set(early[2048, (128, 256)])


def test_best_below_that_is_not_valid_is_no_failure(
    tmp_path: Path, device: LadderDevice, database: Database
) -> None:
    story = """
[[ladder]]
name = "a"
variant = "plain"
parameters = { block_size = 256 }

[[ladder]]
name = "b"
variant = "plain"
parameters = { block_size = 32 }

[variants.plain.constraints]
"no large items" = "items <= 1 if block_size < 256 else items >= 2"

"""
    kernel = kernel_with_ladder(tmp_path / "constrained", story)
    (level,) = up(sweep(kernel), device, database)
    assert level.absent == {}


def test_best_of_an_earlier_run_is_found_again(
    kernel: KernelSpec, device: LadderDevice, database: Database
) -> None:
    """Another search of the whole space has tried it, so that the step's own search would not."""
    request = Request(kernel, kernel.problem(), RunOptions(trials=24, sampler="brute-force"))
    tune(request, device, database, Observer(), finish=False)
    (level,) = up(sweep(kernel, steps=choose_steps(kernel, ["more"])), device, database)
    found = level.find("more")
    assert found is not None and found[1].configuration == BEST["more"]
    assert not found[0].tuned["more"].reused


# -- what the device is told


def test_few_are_begun_ahead_where_the_time_is_short_for_them(device: LadderDevice) -> None:
    device.lookahead = 40
    assert lookahead_of(device, 0.0) == lookahead_of(device, 0.99 * LONG_NS) == 40
    assert lookahead_of(device, LONG_NS) == lookahead_of(device, 0.0, LONG_NS) == AHEAD
    device.lookahead = 1
    assert lookahead_of(device, LONG_NS) == 1


def test_refusal_is_remembered(kernel: KernelSpec, device: LadderDevice) -> None:
    device.full = 10
    for _ in range(2):
        with pytest.raises(Exception, match="does not fit"):
            device.prepare(kernel, kernel.problem(), 0, Conditions())
    assert len(device.prepared) == 1
    small = kernel.problem({"n": 4})
    device.prepare(kernel, small, 0, Conditions())
    device.prepare(kernel, small, 1, Conditions())
    device.prepare(kernel, small, 1, Conditions(Mode.WARM))
    assert len(device.prepared) == 4


def test_answers_that_a_run_did_not_wait_for_do_not_reach_the_next(
    kernel: KernelSpec, device: LadderDevice
) -> None:
    def prepare() -> None:
        device.prepare(kernel, kernel.problem(), 0, Conditions())

    prepare()
    device.submit(0, BEST["more"])
    assert [outcome.number for outcome in device.collect(0.0)] == [0]
    device.busy.refined_s = 1.0
    prepare()
    assert len(device.prepared) == 1
    assert device.busy.refined_s == 0.0, "the busy time begins anew"
    device.submit(0, BEST["more"])
    for _ in range(2):
        prepare()
        assert len(device.prepared) == 2
    assert device.collect(0.0) == []
