"""A recorded GPU: it answers as recorded, and a file that is damaged is refused in one line."""

from __future__ import annotations

import gzip
import math
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.kernels import (
    SOURCE,
    altered,
    configuration,
    scale_kernel,
    write_kernel,
    write_synthetic_recording,
)
from tuner.core.errors import DeviceError, RecordingError, SpaceError, TunerError, UsageError
from tuner.core.model import Status
from tuner.devices.base import Contestant, RaceRequest
from tuner.devices.choose import open_device
from tuner.devices.replay import ReplayDevice
from tuner.formats.foreign_json import JsonResults
from tuner.formats.recording import read_recording
from tuner.kernel.load import read_kernel
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec


@pytest.fixture
def kernel(tmp_path: Path) -> KernelSpec:
    return scale_kernel(tmp_path / "own")


@pytest.fixture
def path(tmp_path: Path, kernel: KernelSpec) -> Path:
    problems = [kernel.problem(), kernel.problem({"n": 64}, {"": "float16"})]
    return write_synthetic_recording(tmp_path / "scale-x.json.gz", kernel, problems)


@pytest.fixture
def device(path: Path, kernel: KernelSpec) -> ReplayDevice:
    device = ReplayDevice(path)
    device.prepare(kernel, kernel.problem(), 0)
    return device


def test_answers_are_the_recorded_ones(device: ReplayDevice, kernel: KernelSpec) -> None:
    space = device.restrict(SearchSpace.from_kernel(kernel, kernel.problem(), device.gpu))
    rows = device.recording.problems[0].rows
    assert set(space.configurations()) == set(rows)
    for number, asked in enumerate(space.configurations()):
        device.submit(number, asked)
    outcomes = device.collect(1.0)
    assert device.collect(1.0) == []
    assert [outcome.number for outcome in outcomes] == list(range(16))
    for outcome in outcomes:
        row = rows[outcome.configuration]
        assert (outcome.status, outcome.samples_ns) == (row.status, row.samples_ns)
        assert outcome.tags == ("replayed",)
        assert outcome.sources


def test_what_was_never_recorded_is_refused(device: ReplayDevice) -> None:
    """A stored trial may name a configuration that the kernel does not have."""
    unknown = configuration(block_size=33)
    with pytest.raises(RecordingError, match="does not hold"):
        device.submit(0, unknown)
    with pytest.raises(RecordingError, match="does not hold"):
        device.race(RaceRequest([Contestant(unknown, 1e3)], rounds=1, samples=1, seed=0))


def test_race_draws_from_the_recorded_samples(device: ReplayDevice) -> None:
    contestants = [Contestant(configuration(), 1.0), Contestant(configuration(items=2), 1.0)]
    rows = device.recording.problems[0].rows
    first, second = (device.race(RaceRequest(contestants, 4, 8, 3)) for _ in range(2))
    assert first == second
    for contestant, timed in zip(contestants, first.timed.values(), strict=True):
        assert [len(group) for group in timed.groups_ns] == [1] * 4
        assert set(timed.samples_ns) <= set(rows[contestant.configuration].samples_ns)


def test_order_of_the_parameters_may_change(path: Path, kernel: KernelSpec) -> None:
    lines = kernel.file.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("fault = "))
    lines[at], lines[at + 2] = lines[at + 2], lines[at]
    kernel.file.write_text("\n".join(lines))
    swapped = read_kernel(kernel.file)
    device = ReplayDevice(path)
    device.prepare(swapped, swapped.problem(), 0)
    space = device.restrict(SearchSpace.from_kernel(swapped, swapped.problem(), device.gpu))
    assert list(space.default.values) == ["items", "block_size", "fault"]
    device.submit(0, space.default)
    assert device.collect(0)[0].status is Status.OK


def test_more_values_are_left_out(path: Path, kernel: KernelSpec) -> None:
    write_kernel(kernel.file.parent, blocks=(16, 32, 64, 512))
    wider = read_kernel(kernel.file)
    device = ReplayDevice(path)
    device.prepare(wider, wider.problem(), 0)
    space = device.restrict(SearchSpace.from_kernel(wider, wider.problem(), device.gpu))
    assert {c.values["block_size"] for c in space.configurations()} == {32, 64}
    with pytest.raises(SpaceError, match="recording"):
        device.restrict(
            SearchSpace.from_kernel(wider, wider.problem(), device.gpu, (), {"block_size": (16,)})
        )


@pytest.mark.parametrize(
    ("source", "status"),
    [
        (SOURCE.replace("2.0f", "{{ 2 if items == 1 else 3 }}.0f"), Status.INVALID_CONFIG),
        ("{{ unknown }}", Status.COMPILE_ERROR),
        ("// " + "a comment\n" + SOURCE, Status.OK),
    ],
)
def test_changed_kernel(path: Path, kernel: KernelSpec, source: str, status: Status) -> None:
    (kernel.file.parent / "scale.cu.j2").write_text(source)
    device = ReplayDevice(path)
    device.prepare(kernel, kernel.problem(), 0)
    device.submit(0, configuration(items=2))
    (outcome,) = device.collect(0)
    assert outcome.status is status
    assert bool(outcome.error) == (status is not Status.OK)


def test_a_kernel_that_has_changed_altogether_is_refused(path: Path, kernel: KernelSpec) -> None:
    (kernel.file.parent / "scale.cu.j2").write_text(SOURCE.replace("2.0f", "3.0f"))
    with pytest.raises(
        DeviceError, match="scale has changed since replay:scale-x was recorded; run it on a GPU"
    ):
        ReplayDevice(path).prepare(kernel, kernel.problem(), 0)


def test_what_is_not_recorded(path: Path, kernel: KernelSpec, tmp_path: Path) -> None:
    device = ReplayDevice(path)
    with pytest.raises(
        RecordingError, match=r"scale n=5 .*does not hold it; take the nearest of \d+: --size n="
    ):
        device.prepare(kernel, kernel.problem({"n": 5}), 0)
    other = write_kernel(tmp_path / "other")
    other.write_text(other.read_text().replace('name = "scale"', 'name = "shift"'))
    with pytest.raises(RecordingError, match="a recording of scale, not of shift"):
        device.prepare(read_kernel(other), kernel.problem(), 0)


@pytest.mark.parametrize("text", ["replay:missing", "replay:", "gpu", "", "cuda:x", "auto:1"])
def test_unknown_device(text: str) -> None:
    with pytest.raises(UsageError if not text.startswith("cuda") else TunerError) as caught:
        open_device(text, "missing", 1, None)
    assert "\n" not in str(caught.value)


def plain(data: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = data["problems"][0]["variants"]["plain"]
    return found


CHANGES: list[Callable[[dict[str, Any]], object]] = [
    lambda d: d.update(format="something else"),
    lambda d: d.update(version=3),
    lambda d: d.update(problems={}),
    lambda d: d.update(problems=[[]]),
    lambda d: d["problems"][0].update(variants={"plain": 5}),
    lambda d: d["problems"][0]["problem"].pop("sizes"),
    lambda d: plain(d)["values"][0].pop(),
    lambda d: plain(d)["values"].__setitem__(0, [[], {}, 1]),
    lambda d: plain(d)["samples_ns"].__setitem__(0, ["soon"]),
]


def gpu(**fields: object) -> Callable[[dict[str, Any]], object]:
    return lambda d: d["gpu"].update(fields)


def samples(*times: object) -> Callable[[dict[str, Any]], object]:
    return lambda d: plain(d)["samples_ns"].__setitem__(0, list(times))


def cell(column: str, value: object) -> Callable[[dict[str, Any]], object]:
    return lambda d: plain(d)[column].__setitem__(1, value)


FINDINGS: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda d: d.pop("gpu"), 'Object missing required field `gpu`'),
    (lambda d: d["gpu"].pop("sm_count"), 'Object missing required field `sm_count` - at `$.gpu`'),
    (gpu(colour="green"), 'Object contains unknown field `colour` - at `$.gpu`'),
    (lambda d: d.update(colour="green"), 'Object contains unknown field `colour`'),
    (lambda d: plain(d).update(sample=[]),
     'Object contains unknown field `sample` - at `$.problems[0].variants[...]`'),
    (gpu(name=""), 'Expected `str` of length >= 1 - at `$.gpu.name`'),
    (gpu(name="a\nb"), "gpu.name is 'a\\nb', not a line of text"),
    (gpu(name="\ud800"), 'JSON is malformed: unexpected end of hex escape'),
    (gpu(sm_count=True), 'Expected `int`, got `bool` - at `$.gpu.sm_count`'),
    (gpu(sm_count=10**30), 'Expected `int` <= 4611686018427387904 - at `$.gpu.sm_count`'),
    (gpu(memory_bytes_per_s=math.inf), 'JSON is malformed: invalid character'),
    (lambda d: d.update(computation={}), 'computation is empty'),
    (lambda d: d.update(mode="hot"), "Invalid enum value 'hot' - at `$.mode`"),
    (lambda d: d.update(problems=[]), 'Expected `array` of length >= 1 - at `$.problems`'),
    (lambda d: d["problems"][0]["problem"]["sizes"].update(n="1k"),
     'Expected `int`, got `str` - at `$.problems[0].problem.sizes[...]`'),
    (lambda d: d["problems"][0]["problem"]["options"].update(order=[]),
     'Expected `bool | int | float | str`, got `array` - at `$.problems[0].problem.options[...]`'),
    (lambda d: d["problems"][0].update(resources=["colour"]),
     "problems[0].resources has 'colour', which this version does not know"),
    (lambda d: plain(d)["status"].pop(), 'problems[0].variants.plain.status has 15 entries, and values 16'),
    (lambda d: plain(d).update(parameters=["a", "a"]), 'problems[0].variants.plain.parameters has a name twice'),
    (lambda d: cell("values", plain(d)["values"][0])(d),
     'problems[0].variants.plain.values has a configuration twice'),
    (cell("values", ["ok", 32]), 'problems[0].variants.plain.values[1] has 2 values, not 3'),
    (cell("resources", [1, 2, 3, 4, 5, -6]),
     'Expected `int` >= 0 - at `$.problems[0].variants[...].resources[1][5]`'),
    (samples(), 'problems[0].variants.plain.samples_ns[0] is empty, and its status ok'),
    (samples(7, 5e-324), 'Expected `float` >= 1.0 - at `$.problems[0].variants[...].samples_ns[0][1]`'),
    (samples(10**400), 'Number out of range - at `$.problems[0].variants[...].samples_ns[0][0]`'),
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_altered_recording_is_refused(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    altered(path, change)
    with pytest.raises(RecordingError) as caught:
        read_recording(path)
    assert "scale-x" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.remedy


@pytest.mark.parametrize(("change", "finding"), FINDINGS, ids=[finding for _, finding in FINDINGS])
def test_what_is_wrong_in_a_recording_is_named(
    path: Path, change: Callable[[dict[str, Any]], object], finding: str
) -> None:
    altered(path, change)
    with pytest.raises(RecordingError) as caught:
        read_recording(path)
    malformed = "malformed" in finding
    assert f"{path}: {'not a recording' if malformed else 'damaged'}: {finding}" in str(caught.value)
    assert malformed or str(caught.value).endswith("; fetch it again, or record it anew")
    assert len(str(caught.value).splitlines()) == 1


def test_failures_need_no_samples_and_times_need_not_be_whole(path: Path) -> None:
    altered(path, lambda d: (samples(1.5, 12)(d), cell("samples_ns", [])(d), cell("status", "hang")(d)))
    first, second, *_ = read_recording(path).problems[0].rows.values()
    assert first.samples_ns == (1.5, 12.0)
    assert (second.status, second.samples_ns) == (Status.HANG, ())


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty; fetch it again, or record it anew"),
        (gzip.compress(b"{}" * 99)[:-9], "cut off; fetch it again, or record it anew"),
        (
            gzip.compress(b"{}")[:-8] + b"12345678",
            "cannot be decompressed; fetch it again, or record it anew",
        ),
        (b"plain text", "not compressed with gzip; leave out the kernel if it is a T4"),
        (gzip.compress(b"plain text"), "not a recording: JSON is malformed"),
        (gzip.compress(b"[" * 200_000), "not a recording of this tool; leave out the kernel"),
    ],
    ids=["empty", "cut off", "other bytes", "not gzip", "not JSON", "nested"],  # gzip's bytes have the time
)
def test_a_file_that_cannot_be_unpacked_says_why(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "a.json.gz"
    path.write_bytes(content)
    with pytest.raises(RecordingError) as caught:
        read_recording(path)
    assert str(path) in str(caught.value)
    assert words in str(caught.value)


def test_cut_and_flipped_recordings_are_refused(path: Path) -> None:
    good, whole = path.read_bytes(), read_recording(path)
    draw = random.Random(0)
    refused = 0
    for cut in (0, 1, 10, len(good) // 2, len(good) - 1):
        path.write_bytes(good[:cut])
        with pytest.raises(RecordingError):
            read_recording(path)
    for _ in range(50):
        bad = bytearray(good)
        bad[draw.randrange(len(bad))] ^= 1 << draw.randrange(8)
        path.write_bytes(bad)
        try:
            found = read_recording(path)
        except RecordingError:
            refused += 1
        else:  # a bit without a meaning: the header's time, or what fills the last byte up
            assert found == whole
    assert refused > 45


@pytest.mark.parametrize("read", [read_recording, JsonResults])
def test_bomb_is_counted_before_it_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[[Path], object]
) -> None:
    for name in ("recording.MAX_BYTES", "foreign_json.MAX_BYTES"):
        monkeypatch.setattr(f"tuner.formats.{name}", 16 << 20)
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(b" " * (17 << 20), 1))
    tracemalloc.start()
    with pytest.raises(RecordingError, match="larger than 16 MiB"):
        read(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20


def test_unread_answers_do_not_outlive_the_problem(device: ReplayDevice, kernel: KernelSpec) -> None:
    device.submit(0, configuration())
    device.prepare(kernel, kernel.problem({"n": 64}, {"": "float16"}), 0)
    assert device.collect(0) == []


def test_what_is_not_known_of_a_gpu_may_be_left_out(path: Path) -> None:
    altered(path, gpu(uuid="", driver="", clock_hz=0, memory_bytes_per_s=0.0, reserved_shared_bytes=0))
    assert read_recording(path).gpu.clock_hz == 0.0
    altered(path, lambda d: d["gpu"].pop("clock_hz"))
    assert read_recording(path).gpu.clock_hz == 0.0
