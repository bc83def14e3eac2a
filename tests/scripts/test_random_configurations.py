"""scripts/random_configurations.py: what it draws, and what it says about the answers; on a device in this process."""

from __future__ import annotations

import json
import math
import random

import pytest

from scripts import random_configurations as script
from tests.faults.stub_device import StubDevice, good
from tuner.core.errors import DeviceError
from tuner.core.model import Configuration, Measurement, Status
from tuner.kernel.load import builtin_kernels, load_kernel
from tuner.kernel.roofline import ARCHITECTURES

KERNELS = [load_kernel(name) for name in builtin_kernels()]


def drawn(count: int, seed: int = 0, cc: int = 90) -> list[tuple[str, str, Configuration]]:
    return [
        (kernel.name, str(problem), configuration)
        for kernel, problem, chosen in script.draw_groups(KERNELS, ARCHITECTURES[cc], count, seed)
        for configuration in chosen
    ]


def test_a_seed_gives_the_same_configurations() -> None:
    first = drawn(150)
    assert len(first) == 150
    assert first == drawn(150)
    assert first != drawn(150, seed=1)


@pytest.mark.parametrize("cc", (75, 90))
def test_all_variants_and_dtypes_are_drawn(cc: int) -> None:
    gpu = ARCHITECTURES[cc]
    seen, dtypes, options = set(), set(), set()
    for kernel, problem, chosen in script.draw_groups(KERNELS, gpu, 1000, 0):
        seen |= {(kernel.name, configuration.variant) for configuration in chosen}
        dtypes.add((kernel.name, problem.dtype))
        options |= {(kernel.name, name, value) for name, value in problem.options.items()}
        names = kernel.environment(problem, gpu)
        for configuration in chosen:
            variant = kernel.variants[configuration.variant]
            assert all(c.evaluate({**names, **configuration.values}) for _, c in variant.constraints_before)
    for kernel in KERNELS:
        usable = {
            variant.name
            for dtype in next(iter(kernel.dtypes.values()))
            for size in (8, 101, 104)
            for variant in kernel.usable_variants(
                kernel.problem(dict.fromkeys(kernel.sizes, size), {"": dtype}), gpu
            )[0]
        }
        if cc == 90:
            usable = set(kernel.variants)
        assert usable <= {variant for name, variant in seen if name == kernel.name}
        assert {(kernel.name, dtype) for dtype in next(iter(kernel.dtypes.values()))} <= dtypes
        for name, values in kernel.options.items():
            if name not in kernel.elements:
                assert {(kernel.name, name, value) for value in values} <= options


def test_sizes_are_edge_cases() -> None:
    rng = random.Random(0)
    for factor in (1, 8):
        sizes = [script.edge_case_size(rng, 16, 65536, factor) for _ in range(2000)]
        assert min(sizes) == factor
        assert max(sizes) > 50_000
        assert all(math.gcd(size // factor, script.SMALL_PRIMES) == 1 for size in sizes if size > 16)
        assert all(size % factor == 0 for size in sizes)


ARGUMENTS = script.parse(["--count", "60", "--kernels", "reduce,vector_add"])
TWO = [load_kernel("reduce"), load_kernel("vector_add")]


def test_right_results_pass(capsys: pytest.CaptureFixture[str]) -> None:
    device = StubDevice(shuffle=1)
    assert script.check(device, TWO, ARGUMENTS) == 0
    assert device.closed
    assert device.incumbent() == 1.0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == ["kernel", "variant", "tried", "ok", "refused", "untimed", "failed"]
    assert next(line for line in out if line.startswith("all")).split() == ["all", "60", "60", "0", "0", "0"]
    assert out[-1] == "PASSED"


def test_failures_are_told_with_their_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    bad = {
        "ticket": Measurement(Status.WRONG_RESULT, error="out[0] is 1, expected 2"),
        "mailbox": Measurement(Status.INVALID_CONFIG, error="nothing spills"),
        "bulk": Measurement(Status.TOO_FAST, error="faster than memory"),
        "cluster": Measurement(Status.LAUNCH_ERROR, error="not one block fits on an SM: too many registers"),
        "two_pass": Measurement(Status.LAUNCH_ERROR, error="CUDA_ERROR_INVALID_VALUE"),
        "one_block": Measurement(Status.HANG, error="no answer"),
    }
    device = StubDevice(answer=lambda configuration: bad.get(configuration.variant, good(1000.0)))
    given = script.parse(["--count", "60", "--json"])
    assert script.check(device, TWO[:1], given) == 1
    found = json.loads(capsys.readouterr().out)
    assert not found["passed"]
    assert {failure["variant"] for failure in found["failures"]} == {"ticket", "two_pass", "one_block"}
    assert found["failures"][0].keys() >= {"problem", "parameters", "status", "error"}
    by_variant = {row["variant"]: row for row in found["variants"]}
    assert by_variant["mailbox"]["refused"] == by_variant["mailbox"]["tried"] > 0
    assert by_variant["cluster"]["refused"] == by_variant["cluster"]["tried"]
    assert by_variant["bulk"]["untimed"] == by_variant["bulk"]["tried"]
    assert found["refused"]["nothing spills"] == by_variant["mailbox"]["tried"]
    assert script.check(StubDevice(answer=device.answer), TWO[:1], ARGUMENTS) == 1
    text = capsys.readouterr().out
    assert "wrong_result: out[0] is 1, expected 2" in text
    assert "block_size=" in text


def test_a_problem_that_cannot_be_prepared_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    class Unprepared(StubDevice):
        def _prepare(self, *_: object, **__: object) -> None:
            raise DeviceError("the references differ")

    assert script.check(Unprepared(), TWO, ARGUMENTS) == 1
    assert "cannot be prepared: the references differ" in capsys.readouterr().out


def test_the_budget_ends_it(capsys: pytest.CaptureFixture[str]) -> None:
    given = script.parse(["--count", "100000", "--seconds", "0.05"])
    assert script.check(StubDevice(), TWO, given) == 0
    assert "stopped by --seconds" in capsys.readouterr().out


def test_without_a_gpu_it_says_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "has_gpu", lambda: False)
    assert script.main([]) == 2
    assert capsys.readouterr().err == "error: this machine has no NVIDIA GPU; run it on one that has\n"
    assert script.main(["--kernels", "reduse"]) == 2
    assert "did you mean reduce" in capsys.readouterr().err
