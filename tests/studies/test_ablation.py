"""Ablations: which changes of a configuration there are, and what is said of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.ablated import BEST, ablated_device, ablated_kernel
from tests.faults.bench_device import BenchDevice
from tests.faults.kernels import configuration, scale_kernel
from tests.faults.ladder_device import Recorder
from tests.faults.stub_device import good, time_of
from tuner.core.conditions import Conditions
from tuner.core.model import Configuration, Measurement, Problem, Status
from tuner.core.stats import Verdict
from tuner.kernel.spec import KernelSpec
from tuner.studies.ablation import Ablation, AblationRequest, ablate, changes, worth


@pytest.fixture
def kernel(tmp_path: Path) -> KernelSpec:
    return ablated_kernel(tmp_path)


@pytest.fixture
def device() -> BenchDevice:
    return ablated_device()


def run(
    kernel: KernelSpec,
    device: BenchDevice,
    *only: str,
    steps: Recorder | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Ablation:
    request = AblationRequest(
        kernel, kernel.problem({"n": 1024}), Conditions(), "as asked", BEST, 12, 0, only
    )
    return ablate(device, request, steps or Recorder(), stop)


def outcomes(found: Ablation) -> dict[str, str]:
    return {one.name: str(one.verdict) if one.verdict else one.error for one in found.alternatives}


# -- which changes there are


def test_every_other_value_of_every_parameter(kernel: KernelSpec, device: BenchDevice) -> None:
    found = changes(kernel, kernel.problem(), device.gpu, BEST)
    assert [change.name for change in found] == [
        *("block_size=32", "block_size=64", "block_size=128", "items=1", "items=3", "items=4"),
    ]
    objections = {change.name: change.objection for change in found if change.objection}
    assert objections == {"block_size=32": "blocks of 32 are too small"}
    for change in found:
        differing = {
            name for name, value in change.configuration.values.items() if value != BEST.values[name]
        }
        assert differing == {change.parameter} and change.besides is None


SWITCH = "[variants.plain.parameters.fast]\nvalues = [false, true]\n"
LIMIT = "[variants.plain.constraints]\n"


@pytest.mark.parametrize(
    ("extra", "start", "only", "expected"),
    [
        (  # with the smallest change of another parameter
            LIMIT + '"a block of 32 has one item" = "block_size > 32 or items == 1"\n',
            {},
            "block_size",
            {"block_size=32 items=1": "", "block_size=64": "", "block_size=128": ""},
        ),
        (  # where one more change does not suffice, the reason is the answer
            SWITCH + LIMIT + '"one item, fast" = "block_size > 32 or (items == 1 and fast)"\n',
            {"fast": False},
            "block_size",
            {"block_size=32": "one item, fast", "block_size=64": "", "block_size=128": ""},
        ),
        (  # of several the nearest value
            LIMIT + '"at most 512 elements a block" = "block_size * items <= 512"\n',
            {},
            "items",
            {"items=1": "", "items=3 block_size=128": "", "items=4 block_size=128": ""},
        ),
        (SWITCH, {"fast": True}, "fast", {"fast=False": ""}),  # although 1 == True
    ],
)
def test_what_is_not_valid_alone_comes_with_a_change_of_another(
    tmp_path: Path,
    device: BenchDevice,
    extra: str,
    start: dict[str, object],
    only: str,
    expected: dict[str, str],
) -> None:
    kernel = scale_kernel(tmp_path, extra="\n" + extra)
    configuration = Configuration.of("plain", {**BEST.values, **start})  # type: ignore[dict-item]
    found = changes(kernel, kernel.problem(), device.gpu, configuration, [only])
    assert {change.name: change.objection for change in found} == expected


# -- what is said of each


def test_verdicts(kernel: KernelSpec, device: BenchDevice) -> None:
    steps = Recorder()
    found = run(kernel, device, steps=steps)
    assert outcomes(found) == {
        "block_size=32": "not valid: blocks of 32 are too small",
        "block_size=64": "faster",
        "block_size=128": "faster",
        "items=1": "same",
        "items=3": "faster",
        "items=4": "slower",
    }
    assert found.complete and not found.error
    assert found.itself is not None
    assert found.itself.time_ns == pytest.approx(1e5, rel=0.002)
    assert [one.name for one in found.faster] == ["items=4"]
    least = {name: worth(alternatives) for name, alternatives in found.choices.items()}
    assert least["block_size"] is not None and least["block_size"].value == 128
    assert least["items"] is not None and least["items"].value == 4
    ratio = next(one.ratio for one in found.alternatives if one.value == 64)
    assert ratio is not None and ratio.median == pytest.approx(1.5, rel=0.002)
    assert ratio.low <= ratio.median <= ratio.high
    assert steps.steps == len(steps.begun) == 2


def test_two_changes_may_lead_to_one_configuration(tmp_path: Path, device: BenchDevice) -> None:
    limit = """
[variants.plain.constraints]
"512 elements a block" = "block_size * items == 512"
"""
    device.times_ns[configuration("ok", 128, 4)] = 2e5
    found = outcomes(run(scale_kernel(tmp_path, extra=limit), device))
    assert found["block_size=128 items=4"] == found["items=4 block_size=128"] == "faster"
    assert device.submitted == [BEST, configuration("ok", 128, 4)]


def test_ratios_are_of_the_same_round(kernel: KernelSpec, device: BenchDevice) -> None:
    device.drift = 1.8  # each round's own factor, up to this
    found = run(kernel, device)
    assert outcomes(found)["block_size=128"] == "faster"
    assert outcomes(found)["items=1"] == "same"


def test_each_comparison_has_the_configuration_itself(
    kernel: KernelSpec, device: BenchDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.studies.ablation.TOGETHER", 2)
    steps = Recorder()
    found = run(kernel, device, steps=steps)
    assert [len(field) for field in device.fields] == [3, 3, 2]
    assert all(field[0] == BEST for field in device.fields)
    known = [device.times_ns[name] for field in device.fields for name in field[1:]]
    assert known == sorted(known)  # of about the same length together
    assert found.itself is not None and len(found.itself.samples_ns) == 3 * 12 * 8
    assert steps.steps == len(steps.begun) == 4


def test_effort_follows_the_configuration_itself(kernel: KernelSpec, device: BenchDevice) -> None:
    """The device is told what counts as slow: from before, then as it was timed just now."""
    known: list[float | None] = []

    def answer(asked: Configuration) -> Measurement:
        known.append(device.incumbent())
        return good(device.times_ns[asked])

    device.answer = answer
    problem = kernel.problem({"n": 1024})
    request = AblationRequest(kernel, problem, Conditions(), "", BEST, 6, 0, known_ns=0.9e5)
    ablate(device, request, Recorder(), lambda: False)
    assert known == pytest.approx([0.9e5, *[1e5] * 5], rel=1e-3)


def test_what_fails_has_its_reason(kernel: KernelSpec, device: BenchDevice) -> None:
    wrong, broken = configuration("ok", 64, 2), configuration("ok", 256, 3)
    statuses = {
        wrong: Measurement(Status.WRONG_RESULT, error="y[7] is 3, not 2"),
        broken: Measurement(Status.COMPILE_ERROR, error="scale.cu(1): error: no such thing\nand more"),
    }
    device.answer = lambda c: statuses.get(c) or good(device.times_ns[c])
    device.absent = {configuration("ok", 256, 1): "it is wrong when it is timed"}
    found = run(kernel, device)
    said = outcomes(found)
    assert said["block_size=64"] == "wrong_result: y[7] is 3, not 2"
    assert said["items=3"] == "compile_error: scale.cu(1): error: no such thing"
    assert said["items=1"] == "it is wrong when it is timed"
    assert said["block_size=128"] == "faster"
    assert all(wrong not in field and broken not in field for field in device.fields)


def test_without_a_time_of_its_own_there_is_no_comparison(kernel: KernelSpec, device: BenchDevice) -> None:
    device.answer = lambda c: Measurement(Status.HANG, error="no end") if c == BEST else good(time_of(c))
    found = run(kernel, device)
    assert (found.error, found.itself, device.fields) == ("hang: no end", None, [])
    device.answer, device.absent = lambda c: good(time_of(c)), {BEST: "it lost"}
    found = run(kernel, device)
    assert (found.error, found.itself) == ("it lost", None)


def test_stopped_between_two_comparisons(
    kernel: KernelSpec, device: BenchDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.studies.ablation.TOGETHER", 1)
    found = run(kernel, device, stop=lambda: len(device.fields) >= 2)
    assert not found.complete
    assert sorted(outcomes(found).values()).count("not timed") == 3
    assert found.itself is not None


def test_a_verdict_is_of_the_configuration_itself(kernel: KernelSpec, device: BenchDevice) -> None:
    """Slower means: the alternative is faster. The words are those of `tune bench`."""
    found = run(kernel, device, "items")
    faster = next(one for one in found.alternatives if one.value == 4)
    assert faster.verdict is Verdict.SLOWER
    assert faster.ratio is not None and faster.ratio.median < 1


def test_problem_is_the_one_that_was_asked_for(kernel: KernelSpec, device: BenchDevice) -> None:
    problem: Problem = replace(kernel.problem({"n": 77}))
    ablate(device, AblationRequest(kernel, problem, Conditions(), "", BEST, 6, 0), Recorder(), lambda: False)
    assert device.timed[-1][0] == problem
