"""One configuration of one problem, named in each of the ways that the command line has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.commands import assert_refused, said_by
from tests.faults.bench_device import remember
from tests.faults.kernels import configuration, scale_kernel
from tuner.cli.configuration import choose, describe_gpu, parse_configuration
from tuner.cli.options import ConfigurationArguments
from tuner.core.conditions import Conditions, Mode
from tuner.core.errors import NoGpuError, UsageError
from tuner.database.database import Database
from tuner.devices.choose import gpu_number
from tuner.devices.started import has_gpu
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.spec import KernelSpec

GPU = ARCHITECTURES[90]
BEST = configuration("ok", 256, 2)


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> KernelSpec:
    monkeypatch.chdir(tmp_path)
    return scale_kernel(tmp_path / "kernel")


def know(kernel: KernelSpec, n: int = 1024, **changes: object) -> None:
    with Database.open("results/tuning.db") as database:
        remember(database, kernel, kernel.problem({"n": n}), BEST, 5e4, **changes)  # type: ignore[arg-type]


def test_the_default_where_nothing_was_tuned(kernel: KernelSpec) -> None:
    chosen = choose(ConfigurationArguments(str(kernel.file)), GPU)
    assert chosen.configuration == configuration("ok", 32, 1)
    assert chosen.source == "default" and chosen.time_ns is None
    assert "this problem was not tuned" in chosen.notes[0] and not Path("results").exists()


def test_the_winner_of_this_very_problem(kernel: KernelSpec) -> None:
    know(kernel, conditions=Conditions(Mode.WARM))
    chosen = choose(ConfigurationArguments(str(kernel.file)), GPU)
    assert (chosen.configuration, chosen.source, chosen.trial_id) == (BEST, "winner, trial 1", 1)
    assert chosen.time_ns == 5e4 and chosen.conditions == Conditions(Mode.WARM) and not chosen.notes
    assert choose(ConfigurationArguments(str(kernel.file), sizes=("n=2048",)), GPU).source == "default"


def test_a_replays_winner_counts_where_nothing_was_measured_and_a_note_says_so(kernel: KernelSpec) -> None:
    know(kernel, device="replay:H200")
    for gpu in (GPU, None):
        chosen = choose(ConfigurationArguments(str(kernel.file)), gpu)
        assert (chosen.configuration, chosen.source, chosen.time_ns) == (BEST, "winner, trial 1", 5e4)
        assert len(chosen.notes) == 1 and "replayed times" in chosen.notes[0]
    know(kernel)
    chosen = choose(ConfigurationArguments(str(kernel.file)), GPU)
    assert chosen.source == "winner, trial 2" and not chosen.notes


def test_the_winner_of_another_gpu_is_none(kernel: KernelSpec) -> None:
    know(kernel, gpu=replace(GPU, name="NVIDIA A100"))
    assert choose(ConfigurationArguments(str(kernel.file)), GPU).source == "default"
    anywhere = choose(ConfigurationArguments(str(kernel.file)), None)
    assert anywhere.gpu.name == "NVIDIA A100" and anywhere.configuration == BEST


def test_without_any_gpu_a_typical_one_is_named(kernel: KernelSpec) -> None:
    chosen = choose(ConfigurationArguments(str(kernel.file)), None)
    assert chosen.gpu == GPU and "NVIDIA H200" in chosen.notes[0]


def test_default_can_be_asked_for(kernel: KernelSpec) -> None:
    know(kernel)
    chosen = choose(ConfigurationArguments(str(kernel.file), config="default"), GPU)
    assert chosen.source == "default" and chosen.configuration == configuration("ok", 32, 1)


@pytest.mark.parametrize(
    "text",
    ["plain block_size=256 items=2", "plain,fault=ok,block_size=256,items=2", "items=2 block_size=256"],
)
def test_a_configuration_as_tables_print_it(kernel: KernelSpec, text: str) -> None:
    chosen = choose(ConfigurationArguments(str(kernel.file), config=text), GPU)
    assert chosen.configuration == BEST and chosen.source == "as given"
    assert parse_configuration(kernel, str(BEST)) == BEST


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("plane block_size=256", "did you mean plain"),
        ("plain blocksize=256", "block_size"),
        ("plain block_size=257", "256"),
        ("plain block_size", "'block_size' has no value"),
        ("plain plain", "2 variants"),
        ("block_size=128 items=2 block_size=256", "gives block_size twice"),
    ],
)
def test_what_the_kernel_does_not_have_is_refused(kernel: KernelSpec, text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        choose(ConfigurationArguments(str(kernel.file), config=text), GPU)


def test_a_configuration_that_is_not_valid_is_refused_with_the_reason(tmp_path: Path) -> None:
    extra = '[variants.plain.constraints]\n"only short blocks" = "block_size <= 64"\n'
    kernel = scale_kernel(tmp_path / "kernel", extra=extra)
    with pytest.raises(UsageError, match="only short blocks") as error:
        choose(ConfigurationArguments(str(kernel.file), config="block_size=128"), GPU)
    assert "plain block_size=128 is not valid" in error.value.problem  # not the other parameters
    assert f"tune show {kernel.file} --full" in error.value.remedy


def test_a_trial_brings_its_kernel_and_problem(kernel: KernelSpec) -> None:
    know(kernel, n=4096)
    chosen = choose(ConfigurationArguments("", trial=1), GPU)
    assert chosen.kernel.file == kernel.file and chosen.problem.sizes["n"] == 4096
    assert chosen.configuration == BEST and chosen.time_ns == 5e4 and chosen.source == "trial 1"


def test_a_trial_at_another_size_has_no_time(kernel: KernelSpec) -> None:
    know(kernel)
    chosen = choose(ConfigurationArguments("", sizes=("n=77",), trial=1), GPU)
    assert chosen.problem.sizes["n"] == 77 and chosen.time_ns is None
    assert "the trial was of scale n=1024" in chosen.notes[0]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (ConfigurationArguments(""), "no kernel is named"),
        (ConfigurationArguments("", config="plain", trial=1), "exclude"),
        (ConfigurationArguments("gemm", trial=1), "not of gemm"),
    ],
)
def test_contradictions_are_one_line(kernel: KernelSpec, given: ConfigurationArguments, words: str) -> None:
    know(kernel)
    with pytest.raises(UsageError, match=words):
        choose(given, GPU)


def test_a_winner_that_cannot_be_run_any_more_is_said(kernel: KernelSpec, tmp_path: Path) -> None:
    know(kernel)
    changed = scale_kernel(tmp_path / "kernel", blocks=(32, 64))
    chosen = choose(ConfigurationArguments(str(changed.file)), GPU)
    assert chosen.source == "default" and "cannot be run any more" in chosen.notes[0]


def test_a_changed_kernel_is_said(kernel: KernelSpec, tmp_path: Path) -> None:
    know(kernel)
    changed = scale_kernel(tmp_path / "kernel", items=(1, 2))
    assert choose(ConfigurationArguments(str(changed.file)), GPU).notes == (
        "the kernel has changed since it was tuned",
    )


@pytest.mark.skipif(has_gpu(), reason="there is a GPU")
def test_without_a_gpu_the_remedy_is_a_gpu() -> None:
    with pytest.raises(NoGpuError, match="run it on a machine with one"):
        describe_gpu()
    with pytest.raises(UsageError, match="use cuda or cuda:N"):
        describe_gpu("replay:vector_add-H200")


def test_devices_have_numbers() -> None:
    assert [gpu_number(text) for text in ("cuda", "cuda:0", "cuda:3")] == [0, 0, 3]


@pytest.mark.parametrize(
    "arguments", [("profile", "gemm"), ("sanitize", "gemm"), ("portfolio", "--kernel", "gemm")]
)
def test_that_there_is_no_gpu_is_said_before_what_else_is_missing(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tuner.cli.configuration.has_gpu", lambda: False)
    assert_refused(
        said_by(capsys, *arguments), 1, "this machine has no NVIDIA GPU; run it on a machine with one"
    )
