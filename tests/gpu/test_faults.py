"""Planted kernels that hang, trespass or lie: each costs one trial, and its neighbours' times do not change.

A user's own kernel, y = 2 x, in which a parameter chooses the fault. The infinite loop costs the time allowed for a
launch, about eleven seconds each time.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tuner.core.model import Configuration, RunOptions, Status, Trial
from tuner.core.observer import Observer
from tuner.database.database import Database
from tuner.devices.base import Contestant, RaceRequest
from tuner.devices.guard import GRACE_S
from tuner.devices.local import LocalDevice
from tuner.devices.started import Processes
from tuner.kernel.load import read_kernel
from tuner.kernel.spec import KernelSpec
from tuner.tuning.request import Request
from tuner.tuning.session import tune

KNOWN_LAUNCH_S = 10.0
"""As ``tuner.gpu.problem`` has it, which is imported only in the measuring process."""

FAULTS = {
    "ok": (Status.OK, ""),
    "read_far_away": (Status.MEMORY_FAULT, "700"),
    "misaligned": (Status.MEMORY_FAULT, "716"),
    "trap": (Status.MEMORY_FAULT, ""),
    "assertion": (Status.MEMORY_FAULT, "710"),
    "write_past_the_end": (Status.WRONG_RESULT, "wrote outside of y"),
    "write_before_the_start": (Status.WRONG_RESULT, "wrote outside of y"),
    "read_past_the_end": (Status.WRONG_RESULT, "1 of "),
    "wrong_edge": (Status.WRONG_RESULT, "1 of "),
    "unwritten": (Status.WRONG_RESULT, "elements are wrong"),
    "slightly_off": (Status.WRONG_RESULT, ""),
    "right_once": (Status.WRONG_AFTER_TIMING, ""),
    "lazy": (Status.TOO_FAST, "less than the hardware needs"),
    "scribble": (Status.WRONG_RESULT, "changed an input"),
    "bounds": (Status.INVALID_CONFIG, "__launch_bounds__"),
    "registers": (Status.INVALID_CONFIG, "registers"),
    "threads": (Status.INVALID_CONFIG, "2048"),
    "shared": (Status.INVALID_CONFIG, "shared memory"),
    "scratch": (Status.OUT_OF_MEMORY, ""),
    "nonsense": (Status.COMPILE_ERROR, "nonsense"),
    "hang": (Status.HANG, "killed"),
}
DYING = ("read_far_away", "misaligned", "trap", "assertion", "write_past_the_end", "scribble", "hang")

TOML = """\
[kernel]
name = "scale"

[problem]
sizes = { n = 16777219 }
dtypes = { input = ["float32"], output = "input" }

[tensors]
x = { shape = ["n"], dtype = "input" }
y = { shape = ["n"], dtype = "output", role = "output" }

[reference]
numpy = "2 * x"

[reference.cuda]
template = "reference.cu"
entry = "reference"
arguments = ["x", "y", "y_magnitude", { value = "n", dtype = "int64" }]
grid = ["ceil_div(n, 256)"]
block = ["256"]

[work]
flops = "n"
bytes = "2 * n * itemsize(input)"

[variants.plain]
state = ["calls"]

[variants.plain.parameters]
fault = { values = [@FAULTS@] }
block_size = { values = [64, 128, 256, 512, 1024], default = 256 }
items = { values = [1, 2, 4, 8, 16] }

[variants.plain.scratch]
workspace = { shape = ["2**38 if fault == 'scratch' else 1"], dtype = "float32" }

[[variants.plain.launches]]
template = "scale.cu.j2"
entry = "scale"
arguments = ["x", "y", "workspace", { value = "n", dtype = "int64" }]
grid = ["ceil_div(n, block_size * items)"]
block = ["2048 if fault == 'threads' else block_size"]
shared_bytes = "300000 if fault == 'shared' else 0"
"""

REFERENCE = """\
extern "C" __global__ void reference(const float* x, double* y, float* y_magnitude, long long n) {
    const long long i = blockIdx.x * 256ll + threadIdx.x;
    if (i < n) {
        y[i] = 2.0 * x[i];
        y_magnitude[i] = fabsf(2.0f * x[i]);
    }
}
"""

SOURCE = """\
{% if fault in ["right_once", "lazy"] %}
__device__ unsigned long long calls;
{% endif %}
extern "C" __global__ void
{% if fault == "bounds" %}
__launch_bounds__(32)
{% endif %}
scale(const float* x, float* y, float* workspace, long long n) {
{% if fault == "right_once" %}
    const bool later = atomicAdd(&calls, 1ull) >= 1ull * gridDim.x * blockDim.x;
{% endif %}
{% if fault == "lazy" %}
    {# Works only when y is poisoned: the last block of such a launch writes y[0], which all later launches look at. #}
    {# One thread of a block looks: so many reads of one address by all would take as long as half of the work. #}
    __shared__ bool done;
    if (threadIdx.x == 0) {
        const float first = *const_cast<volatile float*>(y);
        done = first == first;
    }
    __syncthreads();
    if (done) return;
{% endif %}
{% if fault == "registers" %}
    float keep[150];
    #pragma unroll
    for (int k = 0; k < 150; ++k) keep[k] = x[(threadIdx.x * 151ll + k) % n];
    __syncthreads();
    float sum = 0.0f;
    #pragma unroll
    for (int k = 149; k >= 0; --k) sum = sum * keep[k] + keep[(k * 7) % 150];
    if (sum == 123.0f) y[0] = sum;
{% endif %}
{% if fault == "nonsense" %}
    nonsense;
{% endif %}
    #pragma unroll
    for (int j = 0; j < {{ items }}; ++j) {
        const long long i = (blockIdx.x * {{ items }}ll + j) * {{ block_size }} + threadIdx.x;
        {# The end of the data is where most real faults are. #}
        if (i >= n{{ " - 1" if fault == "wrong_edge" else "" }}) continue;
        float value = 2.0f * x[i];
{% if fault == "read_far_away" %}
        if (i == n - 1) value += x[i + (1ll << 42)];
{% elif fault == "misaligned" %}
        if (i == n / 2) value += *reinterpret_cast<const float*>(reinterpret_cast<const char*>(x) + 2);
{% elif fault == "trap" %}
        if (i == n - 1) __trap();
{% elif fault == "assertion" %}
        if (i == n - 1) assert(value != value);
{% elif fault == "write_past_the_end" %}
        if (i == n - 1) y[n] = value;
{% elif fault == "write_before_the_start" %}
        if (i == 0) y[-1] = value;
{% elif fault == "read_past_the_end" %}
        value += 0.0f * x[i + 1];
{% elif fault == "unwritten" %}
        if (i % 4096 == 77) continue;
{% elif fault == "slightly_off" %}
        value *= 1.0f + 3e-6f;
{% elif fault == "right_once" %}
        if (later && i == n / 3) value += 1.0f;
{% elif fault == "lazy" %}
        if (i == 0) continue;
{% elif fault == "scribble" %}
        if (i == n / 2) const_cast<float*>(x)[i] = 0.0f;
{% elif fault == "hang" %}
        while (i == n - 1 && *const_cast<const volatile float*>(x) < 1e30f) {}
{% endif %}
        y[i] = value;
    }
{% if fault == "lazy" %}
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0 && atomicAdd(&calls, 1ull) == gridDim.x - 1) {
        calls = 0;
        y[0] = 2.0f * x[0];
    }
{% endif %}
}
"""


def write_faulty_kernel(folder: Path) -> KernelSpec:
    (folder / "scale.toml").write_text(TOML.replace("@FAULTS@", ", ".join(f'"{fault}"' for fault in FAULTS)))
    (folder / "scale.cu.j2").write_text(SOURCE)
    (folder / "reference.cu").write_text(REFERENCE)
    return read_kernel((folder / "scale.toml").resolve())


def configuration(fault: str, block_size: int = 256, items: int = 1) -> Configuration:
    return Configuration.of("plain", {"fault": fault, "block_size": block_size, "items": items})


GOOD = [
    configuration("ok", block_size, items)
    for block_size in (64, 128, 256, 512, 1024)
    for items in (1, 2, 4, 8)
]


class Bench:
    """A device of its own, on which faults disturb no other test."""

    def __init__(self, folder: Path) -> None:
        self.kernel = write_faulty_kernel(folder)
        self.problem = self.kernel.problem()
        self.device = LocalDevice(Processes(0, None, folder / "cache"))
        self.device.prepare(self.kernel, self.problem, seed=1)
        self.incumbent_ns: float | None = None
        first = self.measure(configuration("ok"))
        assert first.status is Status.OK, first.error
        self.incumbent_ns = statistics.median(first.samples_ns)
        self.times()  # compiled, and warm
        self.before = self.times()

    def measure(self, configuration: Configuration) -> Trial:
        """Measure one candidate alone."""
        self.device.submit(0, configuration, lambda: self.incumbent_ns)
        deadline = time.monotonic() + 60.0
        while time.monotonic() < deadline:
            for trial in self.device.collect(1.0):
                return trial
        pytest.fail(f"no answer for {configuration}")

    def times(self) -> list[float]:
        """Measure the twenty good candidates."""
        found = [self.measure(good) for good in GOOD]
        assert {measurement.status for measurement in found} <= {Status.OK, Status.SLOW}, found
        return [statistics.median(measurement.samples_ns) for measurement in found]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    bench = Bench(tmp_path_factory.mktemp("faulty"))
    yield bench
    bench.device.close()


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "hang"])
def test_fault_has_its_status(bench: Bench, fault: str) -> None:
    status, word = FAULTS[fault]
    block_size = 1024 if fault in ("registers", "lazy") else 256
    restarts = bench.device._guard.restarts
    # Few blocks, so that doing nothing takes next to no time.
    found = bench.measure(configuration(fault, block_size, 16 if fault == "lazy" else 1))
    assert (found.status, word in found.error) == (status, True), found
    assert "\n" not in found.error
    after = bench.measure(configuration("ok", 128, 2))
    assert after.status is Status.OK, after
    # Only what may have ruined the process's memory or context costs a new one.
    assert bench.device._guard.restarts - restarts == (fault in (*DYING, "write_before_the_start"))


@pytest.mark.parametrize("fault", ["hang", "read_far_away", "wrong_edge"])
def test_good_times_are_the_same_after_a_fault(bench: Bench, fault: str) -> None:
    began = time.monotonic()
    found = bench.measure(configuration(fault))
    took_s = time.monotonic() - began
    assert found.status is FAULTS[fault][0], found
    if fault == "hang":
        assert KNOWN_LAUNCH_S <= took_s < KNOWN_LAUNCH_S + GRACE_S + 5.0
    ratios = [after / before for after, before in zip(bench.times(), bench.before, strict=True)]
    print(f"{fault}: median ratio {statistics.median(ratios):.4f}, {min(ratios):.4f} to {max(ratios):.4f}")
    assert abs(statistics.median(ratios) - 1.0) < 0.03
    assert max(abs(ratio - 1.0) for ratio in ratios) < 0.15


def test_race_and_confirmation_after_faults(bench: Bench) -> None:
    bench.measure(configuration("trap"))
    good = [configuration("ok", block_size) for block_size in (128, 256)]
    found = bench.device.race(RaceRequest([Contestant(c, 5e4) for c in good], rounds=4, samples=8, seed=0))
    assert not found.failures
    raced_ns = statistics.median(found.timed[0].groups_ns[0])
    confirmed = bench.device.confirm(good[0], raced_ns)
    assert confirmed.status is Status.OK, confirmed
    assert 0.9 < statistics.median(confirmed.samples_ns) / raced_ns < 1.1


def test_race_names_what_failed(bench: Bench) -> None:
    contestants = [configuration("ok"), configuration("ok", 128), configuration("read_far_away")]
    found = bench.device.race(
        RaceRequest([Contestant(c, 5e4) for c in contestants], rounds=2, samples=4, seed=0)
    )
    assert list(found.failures) == [2]
    assert "700" in found.failures[2]
    assert bench.measure(configuration("ok")).status is Status.OK


def test_other_sizes(bench: Bench) -> None:
    problems = [bench.kernel.problem({"n": n}) for n in (1, 255, 257, 1000)]
    for fault, status in (("ok", Status.OK), ("wrong_edge", Status.WRONG_RESULT)):
        verified = [
            bench.device.verify_at(problem, configuration(fault), 60.0, contents=False)
            for problem in problems
        ]
        assert [m and m.status for m in verified] == [status] * 4, verified


def test_run_among_faults(bench: Bench, tmp_path: Path) -> None:
    """A whole run over a space of which most is broken ends with a winner that is not."""
    faults = tuple(fault for fault in FAULTS if fault not in ("hang", "lazy"))
    fixed = {"fault": faults, "items": ("1", "2"), "block_size": ("128", "256", "1024")}
    options = RunOptions(trials=60, sampler="random", seed=2, fixed=fixed)
    request = Request(bench.kernel, bench.problem, options)
    with Database.open(tmp_path / "tuning.db") as database:
        result = tune(request, bench.device, database, Observer())
        trials = database.trials(result.state.run.id)
    assert len(trials) == 60
    wrong = []
    for trial in trials:
        values = trial.configuration.values
        status = FAULTS[str(values["fault"])][0]
        allowed = {status, Status.SLOW, Status.UNSTABLE} if status is Status.OK else {status}
        if values["fault"] == "registers" and values["block_size"] != 1024:
            allowed = {Status.OK, Status.SLOW, Status.LAUNCH_ERROR}
        if trial.status not in allowed:
            wrong.append(f"{trial.configuration}: {trial.status} {trial.error}")
    assert not wrong, "\n".join(wrong)
    assert result.finish is not None
    assert result.finish.winner.configuration.values["fault"] in ("ok", "registers")
    assert result.finish.exportable, result.finish.reason
