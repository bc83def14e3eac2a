"""A ladder run: what is searched, what is reused, what is compared, and what the results say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.kernels import configuration
from tests.faults.ladder_device import BEST, LAUNCH_NS, STEPS, LadderDevice, Recorder, kernel_with_ladder
from tests.faults.stub_device import good, time_of
from tuner.bench.targets import Against
from tuner.conditions import ABOUT_A_LAUNCH, TIED_AT_LAUNCH, Conditions, Mode
from tuner.database.database import Database
from tuner.database.records import Filters
from tuner.devices.base import Device
from tuner.errors import Interrupted, UsageError
from tuner.kernel.baselines import baselines_of
from tuner.kernel.spec import KernelSpec
from tuner.ladder.ladder import STOPPED, InterleavedComparison, Level, Sweep, choose_steps, problem_of
from tuner.ladder.run import COMPARISON_NS, levels_of
from tuner.model import Configuration, Measurement, Problem, Status
from tuner.space.space import SearchSpace
from tuner.stats import Verdict
from tuner.tuning.lookahead import AHEAD, LONG_NS, lookahead_of
from tuner.tuning.request import Request
from tuner.tuning.session import tune

pytestmark = pytest.mark.usefixtures("forked_children")


@pytest.fixture
def kernel(tmp_path: Path) -> KernelSpec:
    return kernel_with_ladder(tmp_path / "kernel")


@pytest.fixture
def device() -> LadderDevice:
    return LadderDevice()


def sweep(kernel: KernelSpec, *sizes: int, **changes: object) -> Sweep:
    against = Against(default=False, baselines=tuple(baselines_of(kernel)), named=False)
    levels = tuple({"n": n} for n in sizes or (1024,))
    return replace(Sweep(kernel, kernel.problem(), levels, kernel.steps, against), **changes)  # type: ignore[arg-type]


def up(
    what: Sweep,
    device: Device,
    database: Database,
    stop: Callable[[], bool] = lambda: False,
    recorder: Recorder | None = None,
) -> list[Level]:
    return list(levels_of(what, device, database, recorder or Recorder(), stop))


# -- what is searched


def test_every_step_at_its_best_beside_the_others(
    kernel: KernelSpec, device: LadderDevice, database: Database
) -> None:
    recorder = Recorder()
    (level,) = up(sweep(kernel), device, database, recorder=recorder)
    singles, halves = level.comparisons
    assert [timing.name for timing in singles.timings] == ["one warp", "more", "torch", "cupy", "numpy"]
    assert [timing.name for timing in halves.timings] == ["half", "torch", "cupy", "numpy"]
    for name, best in BEST.items():
        found = level.find(name)
        assert found is not None and found[1].tuned is not None
        assert found[1].tuned.configuration == best
    assert level.absent["tomorrow"].reason == "requires cc >= 990"
    assert not level.absent["tomorrow"].failed
    assert recorder.begun == ["one warp", "more", "tomorrow", "comparison of 5", "half", "comparison of 4"]
    assert recorder.ended == recorder.steps == 6


def test_problem_is_prepared_once_for_all_of_its_steps(
    kernel: KernelSpec, device: LadderDevice, database: Database
) -> None:
    up(sweep(kernel, 1024, 2048), device, database)
    assert [(problem.sizes["n"], problem.dtype) for problem in device.prepared] == [
        (1024, "float32"),
        (1024, "float16"),
        (2048, "float32"),
        (2048, "float16"),
    ]


def test_trials_are_ordinary_runs(kernel: KernelSpec, device: LadderDevice, database: Database) -> None:
    up(sweep(kernel), device, database)
    problem = kernel.problem({"n": 1024})
    stored = database.query(Filters(problem_key=problem.key)).rows
    narrowed = {tuple(row.run.options.fixed.get("block_size", ())) for row in stored}
    assert {(32,), (128, 256)} <= narrowed
    assert all(database.run_state(row.run.id)["state"] == "finished" for row in stored)
    reused = database.best_known(problem, device.gpu.name)
    assert reused is not None
    assert reused[0] == min(BEST.values(), key=time_of)


def test_second_time_nothing_is_searched(
    kernel: KernelSpec, device: LadderDevice, database: Database
) -> None:
    first = up(sweep(kernel, 1024, 2048), device, database)
    device.submitted.clear()
    again = up(sweep(kernel, 1024, 2048), device, database)
    assert device.submitted == []
    assert len(device.fields) == 8  # but all are timed again
    for level, before in zip(again, first, strict=True):
        for name in ("one warp", "more", "half"):
            now, then = level.find(name), before.find(name)
            assert now is not None and now[1].tuned is not None and now[1].tuned.reused
            assert then is not None and then[1].tuned is not None and not then[1].tuned.reused
            assert now[1].text == then[1].text
    up(sweep(kernel, from_scratch=True), device, database)
    assert device.submitted


@pytest.mark.parametrize(
    "changes",
    [
        {"trials": 6},
        {"mode": Mode.WARM},
        {"base": {"order": "down"}},
    ],
)
def test_other_request_is_another_search(
    kernel: KernelSpec, device: LadderDevice, database: Database, changes: dict[str, object]
) -> None:
    what = sweep(kernel, steps=choose_steps(kernel, ["more"]), trials=3, time_s=1e6)
    up(what, device, database)
    device.submitted.clear()
    up(what, device, database)
    assert device.submitted == []
    if "base" in changes:
        changes = {"base": kernel.problem(options={"order": "down"})}
    up(replace(what, **changes), device, database)  # type: ignore[arg-type]
    assert device.submitted


def test_fewer_trials_than_before_are_no_reason_to_search(
    kernel: KernelSpec, device: LadderDevice, database: Database
) -> None:
    what = sweep(kernel, steps=choose_steps(kernel, ["more"]), trials=5, time_s=1e6)
    up(what, device, database)
    device.submitted.clear()
    up(replace(what, trials=4), device, database)
    assert device.submitted == []


def test_run_that_was_cut_off_does_not_count(
    kernel: KernelSpec, device: LadderDevice, database: Database
) -> None:
    what = sweep(kernel, steps=choose_steps(kernel, ["more"]))
    with pytest.raises(Interrupted):
        up(what, device, database, stop=lambda: len(device.submitted) > 3)
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
    """The best of the step or the size before is worth a trial, as far as the step allows its values."""
    up(sweep(kernel, 1024, 2048, steps=choose_steps(kernel, ["one warp", "more"])), device, database)
    items = BEST["one warp"].values["items"]
    runs = [
        stored.run.options.fixed
        for stored in database.query().rows
        if stored.run.problem.sizes["n"] == 1024 and stored.run.trials == 1
    ]
    assert runs == [{"block_size": (128, 256), "fault": ("ok",), "items": (items,)}]
    upper = [
        stored.trial.configuration
        for stored in database.query().rows
        if stored.run.problem.sizes["n"] == 2048 and stored.run.trials == 1
    ]
    assert BEST["more"] in upper and BEST["one warp"] in upper


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
    request = Request(kernel, kernel.problem(), 24, "brute-force")
    tune(request, device, database, Recorder(), finish=False)
    (level,) = up(sweep(kernel, steps=choose_steps(kernel, ["more"])), device, database)
    found = level.find("more")
    assert found is not None and found[1].tuned is not None
    assert found[1].tuned.configuration == BEST["more"]
    assert not found[1].tuned.reused


# -- what can go wrong


def test_step_of_which_nothing_is_right(kernel: KernelSpec, device: LadderDevice, database: Database) -> None:
    def answer(found: Configuration) -> Measurement:
        if found.values["block_size"] == 32:
            return Measurement(Status.WRONG_RESULT, (1.0,), "y[5] is 1, expected 2\nand more")
        return good(time_of(found))

    device.answer = answer
    (level,) = up(sweep(kernel), device, database)
    absence = level.absent["one warp"]
    assert absence.failed
    assert absence.reason == "none of 4 configurations could be verified; wrong_result: y[5] is 1, expected 2"
    assert level.first(kernel.steps) == "more"
    assert level.find("more") is not None and level.find("half") is not None


def test_size_that_does_not_fit(kernel: KernelSpec, device: LadderDevice, database: Database) -> None:
    device.full = 1024
    fits, too_large = up(sweep(kernel, 1024, 2048), device, database)
    assert fits.comparisons
    assert too_large.comparisons == ()
    assert {name for name, absence in too_large.absent.items() if absence.failed} == {
        "one warp",
        "more",
        "half",
    }
    assert "does not fit" in too_large.absent["more"].reason
    assert sum(problem.sizes["n"] == 2048 for problem in device.prepared) == 2  # asked once a problem


def test_winner_that_fails_in_the_comparison(
    kernel: KernelSpec, device: LadderDevice, database: Database
) -> None:
    device.absent = {BEST["more"]: "an illegal address"}
    (level,) = up(sweep(kernel), device, database)
    assert "an illegal address" in level.absent["more"].reason
    found = level.find("one warp")
    assert found is not None
    assert [timing.name for timing in found[0].timings] == ["one warp", "torch", "cupy", "numpy"]


def test_library_that_is_not_installed_is_asked_once(
    kernel: KernelSpec, device: LadderDevice, database: Database
) -> None:
    device.absent = {"torch": "torch is not installed", "cupy": "it does not capture"}
    levels = up(sweep(kernel, 1024, 2048), device, database)
    for level in levels:
        for comparison in level.comparisons:
            assert [timing.name for timing in comparison.baselines] == ["numpy"]
            assert [failure.name for failure in comparison.failures] == ["cupy"]
    assert sum("torch" in field for field in device.fields) == 1
    what = sweep(kernel)
    what = replace(what, against=replace(what.against, named=True))
    (level,) = up(what, device, database)
    assert {failure.name for failure in level.comparisons[0].failures} == {"torch", "cupy"}


def test_numpy_is_left_out_where_it_takes_too_long(
    kernel: KernelSpec, device: LadderDevice, database: Database
) -> None:
    device.times_ns["numpy"] = 6e9
    small, large = up(sweep(kernel, 1024, 2048, steps=choose_steps(kernel, ["more"])), device, database)
    assert [timing.name for timing in small.comparisons[0].baselines] == ["torch", "cupy", "numpy"]
    assert [timing.name for timing in large.comparisons[0].baselines] == ["torch", "cupy"]
    assert large.comparisons[0].failures[0].error == "it would take some 12 s"


def test_stop_keeps_what_was_timed(kernel: KernelSpec, device: LadderDevice, database: Database) -> None:
    running = levels_of(
        sweep(kernel, 1024, 2048), device, database, Recorder(), lambda: len(device.fields) >= 3
    )
    whole, part = next(running), next(running)
    with pytest.raises(Interrupted):
        next(running)
    assert STOPPED not in whole.absent.values()
    assert [comparison.problem.dtype for comparison in part.comparisons] == ["float32"]
    assert part.absent["half"] == STOPPED
    assert part.absent["tomorrow"] != STOPPED


def test_long_kernels_get_fewer_rounds(kernel: KernelSpec, device: LadderDevice, database: Database) -> None:
    slow = COMPARISON_NS / 10
    device.answer = lambda found: good(slow)
    (level,) = up(sweep(kernel, steps=choose_steps(kernel, ["more"])), device, database)
    found = level.find("more")
    assert found is not None
    assert len(found[1].medians_ns) == 10


# -- what the device is told


def test_few_are_begun_ahead_where_the_time_is_short_for_them(device: LadderDevice) -> None:
    device.lookahead = 40
    assert lookahead_of(device, 0.0) == lookahead_of(device, None, LONG_NS) == 40
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


# -- what it means


def comparison_of(
    kernel: KernelSpec, device: LadderDevice, database: Database, times_ns: dict[str, float]
) -> InterleavedComparison:
    """Return the comparison of the float32 steps with these times."""
    for name, time_ns in times_ns.items():
        device.times_ns[BEST.get(name, name)] = time_ns
    (level,) = up(sweep(kernel), device, database)
    found = level.find("one warp")
    assert found is not None
    return found[0]


def test_comparison_with_the_best_baseline(
    kernel: KernelSpec, device: LadderDevice, database: Database
) -> None:
    times = {"one warp": 2e5, "more": 1e5, "torch": 1.5e5, "cupy": 1.2e5, "numpy": 1e4}
    comparison = comparison_of(kernel, device, database, times)
    one, more, *_ = comparison.timings
    assert comparison.fastest is more
    assert (
        comparison.best_baseline is not None and comparison.best_baseline.name == "cupy"
    )  # NumPy was not timed on the GPU
    found = comparison.against(more, comparison.best_baseline)
    assert found.verdict is Verdict.FASTER
    assert found.ratio.median == pytest.approx(1.2, rel=0.01)
    assert comparison.against(one, comparison.best_baseline).verdict is Verdict.SLOWER
    assert comparison.tied == []


def test_baseline_that_is_wrong_is_not_compared_with(
    kernel: KernelSpec, device: LadderDevice, database: Database
) -> None:
    device.wrong = {"cupy"}
    comparison = comparison_of(kernel, device, database, {"cupy": 1e4})
    assert comparison.best_baseline is not None and comparison.best_baseline.name == "torch"


def test_only_the_host_is_left_to_compare_with(
    kernel: KernelSpec, device: LadderDevice, database: Database
) -> None:
    device.absent = {"torch": "torch is not installed", "cupy": "cupy is not installed"}
    comparison = comparison_of(kernel, device, database, {})
    assert comparison.best_baseline is not None and comparison.best_baseline.on_host
    found = comparison.against(comparison.timings[0], comparison.best_baseline)
    assert found.verdict is Verdict.FASTER
    assert found.ratio.low < found.ratio.median < found.ratio.high


def test_speed_up_over_the_first_step(kernel: KernelSpec, device: LadderDevice, database: Database) -> None:
    device.times_ns[BEST["one warp"]], device.times_ns[BEST["more"]] = 3e5, 1e5
    (level,) = up(sweep(kernel), device, database)
    first = level.first(kernel.steps)
    assert first == "one warp"

    def speed_up(name: str) -> tuple[float, bool]:
        found = level.find(name)
        assert found is not None
        over = level.speed_up(*found, first)
        assert over is not None
        return over.ratio.median, over.paired

    assert speed_up("one warp") == (pytest.approx(1.0), True)
    assert speed_up("more") == (pytest.approx(3.0, rel=0.01), True)
    half = level.find("half")
    assert half is not None
    assert speed_up("half") == (pytest.approx(3e5 / half[1].time_ns, rel=0.01), False)


@pytest.mark.parametrize(
    ("one", "more", "tied", "decides"),
    [
        (2.9, 0.99 * ABOUT_A_LAUNCH, False, True),
        (2.9, 1.01 * ABOUT_A_LAUNCH, False, False),
        (1.0002 * 1.9, 1.9, True, True),
        (1.0002 * 1.01 * TIED_AT_LAUNCH, 1.01 * TIED_AT_LAUNCH, True, False),
    ],
)
def test_where_launch_latency_decides(
    kernel: KernelSpec,
    device: LadderDevice,
    database: Database,
    one: float,
    more: float,
    tied: bool,
    decides: bool,
) -> None:
    comparison = comparison_of(
        kernel, device, database, {"one warp": one * LAUNCH_NS, "more": more * LAUNCH_NS}
    )
    assert bool(comparison.tied) is tied
    assert comparison.launch_decides is decides
    assert comparison.fastest is not None
    assert comparison.by_launch(comparison.fastest) is decides
    host = next(timing for timing in comparison.timings if timing.on_host)
    assert not comparison.by_launch(host)


def test_unknown_launch_latency(kernel: KernelSpec, device: LadderDevice, database: Database) -> None:
    device.calibration = None
    comparison = comparison_of(kernel, device, database, {"more": 1.0})
    assert not comparison.launch_decides


def test_comparisons_are_stored(kernel: KernelSpec, device: LadderDevice, database: Database) -> None:
    up(sweep(kernel), device, database)
    rows = database.benchmarks().rows
    assert len(rows) == 9
    assert len({row.bench for row in rows}) == 1
    singles = {row.contestant: row for row in rows if row.problem.dtype == "float32"}
    assert set(singles) == {"rung:one warp", "rung:more", "torch", "cupy", "numpy"}
    fastest = min(("rung:one warp", "rung:more"), key=lambda name: singles[name].time_ns)
    other = "rung:one warp" if fastest == "rung:more" else "rung:more"
    assert singles[fastest].ratio is None
    assert singles[fastest].configuration == min(BEST.values(), key=time_of)
    ratio = singles[other].ratio
    assert ratio is not None and ratio > 1
    assert singles[other].verdict == "faster"
    assert singles["torch"].ratio == pytest.approx(2.5e5 / singles[fastest].time_ns, rel=0.01)
    assert all("ladder" in row.tags for row in rows)
    assert not database.check().problems


# -- problems and steps


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
    from tuner.hardware.roofline import ARCHITECTURES
    from tuner.kernel.load import builtin_kernels, load_kernel

    for name in builtin_kernels():
        kernel = load_kernel(name)
        small = {size: min(default, 4096) for size, default in kernel.sizes.items()}
        for step in kernel.steps:
            problem = problem_of(kernel, kernel.problem(small), {}, step)
            space = SearchSpace.from_kernel(
                kernel, problem, ARCHITECTURES[90], (step.variant,), step.parameters
            )
            assert len(space), (name, step.name)
            assert not step.doc.endswith("."), (name, step.name)


def test_configurations_of_the_tests_are_what_they_think(kernel: KernelSpec, device: LadderDevice) -> None:
    space = SearchSpace.from_kernel(kernel, kernel.problem(), device.gpu, ("plain",))
    assert space.contains(configuration("ok", 32, 4))
    assert all(space.contains(best) for best in BEST.values())
