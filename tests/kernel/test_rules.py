"""Rules of thumb as constraints: what they exclude, and what a run with them leaves behind."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tests.faults.kernels import scale_kernel, write_synthetic_recording
from tuner.cli.commands.inspection import show
from tuner.cli.commands.run import run
from tuner.core.errors import SpaceError, UsageError
from tuner.core.model import Gpu, RunOptions, Status
from tuner.core.observer import Observer
from tuner.database.database import Database
from tuner.devices.local import LocalDevice
from tuner.expressions.arithmetic import parse
from tuner.kernel.enumeration import enumerate_valid
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.load import load_kernel
from tuner.kernel.occupancy import occupancy
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.rules import RULES, excluded, parse_rules, threads_of, with_rules
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec
from tuner.runtime.launch_limits import DEVICE_LIMITS
from tuner.tuning import session
from tuner.tuning.request import Request

GPU = ARCHITECTURES[90]
BLOCKS = (16, 32, 48, 64, 96, 100, 128, 256, 384, 512, 768, 1024)


def limits(gpu: Gpu, **more: int) -> dict[str, int]:
    return {**{name: getattr(gpu, name) for name in DEVICE_LIMITS}, **more}


def holds(name: str, gpu: Gpu, threads: int, registers: int = 0) -> bool:
    return bool(RULES[name].of(str(threads)).evaluate(limits(gpu, registers=registers)))


def left(kernel: KernelSpec, *names: str, gpu: Gpu = GPU) -> set[int]:
    space = SearchSpace.from_kernel(with_rules(kernel, names), kernel.problem(), gpu)
    return {int(c.values["block_size"]) for c in space.configurations()}


@pytest.fixture
def kernel(tmp_path: Path) -> KernelSpec:
    return scale_kernel(tmp_path / "kernel", blocks=BLOCKS, items=(1,))


# -- all rules, by hand


def test_rules_of_the_texts_together(kernel: KernelSpec) -> None:
    """What is left for an SM of 2048 threads and 32 blocks, one rule after the other."""
    assert left(kernel, "warp_multiple") == {32, 64, 96, 128, 256, 384, 512, 768, 1024}
    assert left(kernel, "warp_multiple", "occupancy") == {64, 96, 128, 256, 384, 512, 768, 1024}
    assert left(kernel, "warp_multiple", "occupancy", "divides_sm") == {64, 128, 256, 512, 1024}
    # 1536 threads and 16 blocks on consumer cards of Ampere: at least 96.
    ampere = left(kernel, "warp_multiple", "occupancy", "divides_sm", gpu=ARCHITECTURES[86])
    assert ampere == {96, 128, 256, 384, 512, 768}
    assert left(kernel, "warp_multiple", "occupancy", "divides_sm", gpu=ARCHITECTURES[75]) == {
        *(64, 128, 256, 512, 1024)
    }


@pytest.mark.parametrize("cc", ARCHITECTURES)
def test_registers_agree_with_occupancy(cc: int) -> None:
    """The rule holds exactly where registers leave as many blocks as threads and slots do."""
    gpu = ARCHITECTURES[cc]
    for threads in range(16, 1025, 16):
        for registers in (16, 31, 32, 33, 40, 64, 65, 128, 255):
            blocks = {limit.name: limit.blocks for limit in occupancy(gpu, threads, registers, 0).limits}
            # What cannot be launched at all because of its registers is refused anyhow.
            if blocks["registers"]:
                fits = blocks["registers"] >= min(blocks["threads"], blocks["blocks"])
                assert holds("registers", gpu, threads, registers) == fits, (threads, registers)
    assert holds("registers", GPU, 256, 32) and not holds("registers", GPU, 256, 33)


def test_a_launch_that_a_problem_lacks_excludes_nothing(kernel: KernelSpec) -> None:
    plain = kernel.variants["plain"]
    only_above = replace(plain, launches=(replace(plain.launches[0], when=parse("n > 1024")),))
    changed = replace(kernel, variants={"plain": only_above})
    for n, expected in ((1024, set(BLOCKS)), (1025, {block for block in BLOCKS if block % 32 == 0})):
        problem = changed.problem(sizes={"n": n})
        space = SearchSpace.from_kernel(with_rules(changed, ["warp_multiple"]), problem, GPU)
        assert {c.values["block_size"] for c in space.configurations()} == expected
        constants = changed.environment(problem, GPU)
        allowed = {name: range(len(p.values)) for name, p in only_above.parameters.items()}
        matrix = enumerate_valid(only_above, allowed, constants, np.random.default_rng(0)).matrix
        assert excluded(only_above, matrix, constants, ["warp_multiple"]).left == len(expected)


def test_blocks_of_several_dimensions_and_launches(tmp_path: Path) -> None:
    gemm = load_kernel("gemm")
    naive = gemm.variants["naive"].launches[0]
    assert threads_of(naive) == "(block_x) * (block_y)"
    ruled = with_rules(gemm, ["occupancy"])
    reasons = [reason for reason, _ in ruled.variants["split_k"].pruning_rules if "rule of thumb" in reason]
    assert reasons == [f"rule of thumb occupancy, launch {n}: {RULES['occupancy'].doc}" for n in (1, 2)]
    assert (
        ruled.variants["naive"].pruning_rules[-1][0] == f"rule of thumb occupancy: {RULES['occupancy'].doc}"
    )
    small = {"block_x": 8, "block_y": 4}
    assert not ruled.variants["naive"].pruning_rules[-1][1].evaluate({**limits(GPU), **small})


def test_names_of_rules() -> None:
    assert parse_rules([]) == ()
    assert parse_rules(["divides_sm,warp_multiple", "divides_sm"]) == ("warp_multiple", "divides_sm")
    assert parse_rules(["all"]) == tuple(RULES) == parse_rules(["registers, all"])
    for text in ("warps", "", "registers,"):
        with pytest.raises(UsageError, match="no rule of thumb"):
            parse_rules([text])


def test_nothing_left_is_said_with_the_rule(tmp_path: Path) -> None:
    kernel = scale_kernel(tmp_path / "kernel", blocks=(33, 100), items=(1,))
    with pytest.raises(SpaceError, match="rule of thumb warp_multiple: a block is a whole number of warps"):
        left(kernel, "warp_multiple")


# -- counting


def test_what_each_rule_excludes_by_itself_and_together(kernel: KernelSpec) -> None:
    variant = kernel.variants["plain"]
    allowed = {name: list(range(len(p.values))) for name, p in variant.parameters.items()}
    constants = kernel.environment(kernel.problem(), GPU)
    matrix = enumerate_valid(variant, allowed, constants, np.random.default_rng(0)).matrix
    counts = excluded(variant, matrix, constants, tuple(RULES))
    # No whole warps: 16, 48, 100. Below 64 threads: 16, 32, 48. 2048 is no multiple: 48, 96, 100, 384, 768.
    assert counts.by == {"warp_multiple": 3, "occupancy": 3, "divides_sm": 5, "registers": None}
    assert counts.left == len({64, 128, 256, 512, 1024})
    assert excluded(variant, matrix, constants, ()).left == len(matrix)


def test_show_counts(kernel: KernelSpec) -> None:
    shown = CliRunner().invoke(show, [str(kernel.file), "--rules", "all"], catch_exceptions=False)
    assert "12 valid of 12; the rules of thumb leave 5" in shown.output
    assert "rule of thumb divides_sm: excludes 5" in shown.output
    assert "rule of thumb registers: known after compiling" in shown.output
    plain = CliRunner().invoke(show, [str(kernel.file)], catch_exceptions=False)
    assert "thumb" not in plain.output


def test_a_blank_space_is_an_error_in_show(tmp_path: Path) -> None:
    kernel = scale_kernel(tmp_path / "kernel", blocks=(33, 100), items=(1,))
    shown = CliRunner().invoke(show, [str(kernel.file), "--rules", "warp_multiple"])
    assert shown.exit_code == 1


# -- runs

HUNGRY = """\
extern "C" __global__ void scale__{{ fault }}(const float* x, float* y, long long n) {
    const long long i = blockIdx.x * {{ block_size }}ll + threadIdx.x;
    {% if items > 1 %}
    float kept[{{ items * 16 }}];
    #pragma unroll
    for (int j = 0; j < {{ items * 16 }}; ++j) asm volatile("ld.global.f32 %0, [%1];" : "=f"(kept[j]) : "l"(x + j * n));
    #pragma unroll
    for (int j = 0; j < {{ items * 16 }}; ++j) asm volatile("st.global.f32 [%0], %1;" :: "l"(y + j * n), "f"(kept[j]));
    {% endif %}
    if (i < n) y[i] = 2.0f * x[i];
}
"""


def test_a_rule_checked_after_compiling_binds_only_its_own_runs(tmp_path: Path) -> None:
    kernel = scale_kernel(tmp_path / "kernel", blocks=(128, 256), items=(1, 4), source=HUNGRY)
    ruled = with_rules(kernel, ["registers"])
    assert KernelIdentity(ruled).text != KernelIdentity(kernel).text
    device = LocalDevice(0, jobs=2, cache=tmp_path / "cache", worker="tests.faults.fake_worker")
    try:
        with Database.open(tmp_path / "tuning.db") as database:
            request = Request(ruled, kernel.problem(), RunOptions(trials=10, sampler="brute-force"))
            first = session.tune(request, device, database, Observer())
            ends = {(t.configuration.values["items"], t.status) for t in first.state.trials}
            assert ends == {(1, Status.OK), (4, Status.INVALID_CONFIG)}
            refused = next(t for t in first.state.trials if t.status is Status.INVALID_CONFIG)
            assert refused.error == f"rule of thumb registers: {RULES['registers'].doc}"
            assert refused.resources is not None and refused.resources.registers > 32
            # Without the rule they are tried, whatever became of them under it.
            second = session.tune(replace(request, kernel=kernel), device, database, Observer())
            assert {t.status for t in second.state.trials} == {Status.OK}
            assert len(second.state.trials) == 4
    finally:
        device.close()


def test_rules_that_only_narrow_leave_the_kernel_what_it_is(kernel: KernelSpec) -> None:
    """What earlier runs found counts for later ones, as with --fix."""
    narrowed = with_rules(kernel, ["warp_multiple", "occupancy", "divides_sm"])
    assert KernelIdentity(narrowed).text == KernelIdentity(kernel).text
    assert with_rules(kernel, ()) is kernel


def test_run_takes_rules(kernel: KernelSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recording = write_synthetic_recording(tmp_path / "scale.json.gz", kernel, [kernel.problem()])
    arguments = ["-k", str(kernel.file), "--device", f"replay:{recording}", "--sampler", "brute-force", "-q"]
    done = CliRunner().invoke(run, [*arguments, "--rules", "all"], catch_exceptions=False)
    assert "a recording compiles nothing: the rule of thumb registers is not applied" in done.stderr
    with Database.open(tmp_path / "results" / "tuning.db") as database:
        trials = database.query().rows
        assert {stored.trial.configuration.values["block_size"] for stored in trials} == {
            *(64, 128, 256, 512, 1024)
        }
    with pytest.raises(UsageError, match="no rule of thumb 'registr'; did you mean registers"):
        CliRunner().invoke(run, [*arguments, "--rules", "registr"], catch_exceptions=False)
