"""Planted faults on a GPU: does each cost one candidate, how long does the next wait, and do times stay the same?

python scripts/gpu_faults.py > results/evidence/gpu-faults.txt      # about 8 minutes on one GPU
python scripts/gpu_faults.py --only hangs --scale 0.1
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from scripts import harness
from tests.faults import planted, short_deadline
from tuner import __version__
from tuner.core.model import Configuration, Status, Trial
from tuner.devices.local import LocalDevice
from tuner.kernel.spec import KernelSpec

FAULTS, HANGS, ALLOCATIONS = 200, 50, 100
RESPAWN_P95_S = 3.0
DEAD_S = 2.0
"""After the deadline of a hung launch."""
SAME = 0.02
"""How far the median time of the correct kernel may move."""
RIGHT = (Status.OK, Status.SLOW)
ANSWER_S = 120.0


@dataclass
class Bench:
    """A device with a prepared problem, and the lines of a campaign."""

    device: LocalDevice
    kernel: KernelSpec
    configuration: Callable[[str, int], Configuration]
    launch_s: float
    say: Callable[[str], None] = print
    incumbent_ns: float | None = None
    fresh: int = 0
    """The next copy of the correct kernel: one that was measured is not measured again."""

    def begin(self) -> None:
        self.device.prepare(self.kernel, self.kernel.problem(), seed=1)
        first = self.right()
        if first.status is not Status.OK:
            raise SystemExit(f"the correct kernel is {first.status}: {first.error}")
        self.incumbent_ns = statistics.median(first.samples_ns)

    def compile(self, configurations: Sequence[Configuration]) -> None:
        """Compile in all processes before the GPU is needed."""
        began = time.monotonic()
        for configuration in configurations:
            self.device.compile(configuration)
        while any(self.device.compiled(c) is None for c in configurations):
            self.device.collect(0.1)
        self.say(f"  {len(configurations)} kernels compiled in {time.monotonic() - began:.1f} s")

    def measure(self, configuration: Configuration, *, ranked: bool = True) -> Trial:
        """Measure one candidate alone; unless it is ranked, as if nothing were known."""
        incumbent_ns = self.incumbent_ns if ranked else None
        self.device.submit(0, configuration, lambda: incumbent_ns)
        deadline = time.monotonic() + ANSWER_S
        while time.monotonic() < deadline:
            for trial in self.device.collect(1.0):
                return trial
        raise SystemExit(f"no answer for {configuration}")

    def right(self) -> Trial:
        """Measure the next copy of the correct kernel."""
        self.fresh += 1
        return self.measure(self.configuration("ok", self.fresh - 1))

    @property
    def restarts(self) -> int:
        return self.device._guard.restarts

    def worker_pid(self) -> int:
        child = self.device._guard._child
        return child.pid if child is not None else 0

    def verdict(self, name: str, passed: bool, text: str) -> bool:
        self.say(f"  {'PASS' if passed else 'FAIL'}  {name}: {text}")
        return passed


def spread(values: Sequence[float], unit: str = "s", digits: int = 2) -> str:
    """Return the median, the 95th percentile and the largest of some values."""
    return ", ".join(f"{name} {value:.{digits}f} {unit}" for name, value in harness.quantiles(values).items())


def correct_ones(bench: Bench, count: int) -> list[Configuration]:
    return [bench.configuration("ok", bench.fresh + i) for i in range(count)]


def fatal(bench: Bench, count: int, faults: Sequence[str]) -> bool:
    """Ruin the context again and again; after each, a correct candidate."""
    chosen = [(faults[i % len(faults)], i // len(faults)) for i in range(count)]
    bench.compile([*(bench.configuration(*one) for one in chosen), *correct_ones(bench, count)])
    waits, wrong, right = [], [], 0
    codes: dict[str, Counter[str]] = {fault: Counter() for fault in faults}
    restarts = bench.restarts
    for fault, copy in chosen:
        found = bench.measure(bench.configuration(fault, copy))
        codes[fault][f"{found.status} {found.error[:60]}"] += 1
        began = time.monotonic()
        after = bench.right()
        waits.append(time.monotonic() - began)
        right += after.status in RIGHT
        if found.status not in planted.RUINED:
            wrong.append(f"{fault} {copy}: {found.status} {found.error[:100]}")
    for fault, seen in codes.items():
        bench.say(f"  {fault}: {'; '.join(f'{number} x {text}' for text, number in seen.most_common())}")
    for line in wrong[:10]:
        bench.say(f"  wrong status: {line}")
    again = bench.restarts - restarts
    passed = [
        bench.verdict("classified", not wrong, f"{count - len(wrong)} of {count}"),
        bench.verdict("next candidate correct", right == count, f"{right} of {count}"),
        bench.verdict("new processes", again == count, f"{again} of {count}"),
        bench.verdict(
            "fault to the next candidate's result",
            harness.quantiles(waits)["p95"] <= RESPAWN_P95_S,
            f"{spread(waits)} (allowed: p95 {RESPAWN_P95_S:g} s)",
        ),
    ]
    return all(passed)


def hangs(bench: Bench, count: int) -> bool:
    """Hang again and again: when is the process dead, and what does the correct kernel take before and afterwards?"""
    bench.compile([*(bench.configuration("hang", i) for i in range(count)), *correct_ones(bench, 2 * count)])
    answered, dead, waits, before, after = [], [], [], [], []
    statuses: Counter[str] = Counter()
    wrong = 0
    for copy in range(count):
        first = bench.right()
        pid = bench.worker_pid()
        began = time.monotonic()
        found = bench.measure(bench.configuration("hang", copy))
        answered.append(time.monotonic() - began - bench.launch_s)
        while Path(f"/proc/{pid}").exists() and time.monotonic() - began < 60:
            time.sleep(0.002)
        dead.append(time.monotonic() - began - bench.launch_s)
        began = time.monotonic()
        second = bench.right()
        waits.append(time.monotonic() - began)
        statuses[f"{found.status} {found.error[:60]}"] += 1
        wrong += second.status not in RIGHT or first.status not in RIGHT
        if first.samples_ns and second.samples_ns:
            before.append(statistics.median(first.samples_ns))
            after.append(statistics.median(second.samples_ns))
    for text, number in statuses.items():
        bench.say(f"  {number} x {text}")
    ratios = [b / a for a, b in zip(before, after, strict=True)]
    middle = statistics.median(after) / statistics.median(before) if after else 0.0
    hung = sum(number for text, number in statuses.items() if text.startswith(str(Status.HANG)))
    passed = [
        bench.verdict("classified", hung == count, f"{hung} of {count} {Status.HANG}"),
        bench.verdict(
            "dead after the deadline", max(dead) <= DEAD_S,
            f"{spread(dead)} (allowed: {DEAD_S:g} s; the deadline of a launch: {bench.launch_s:g} s)",
        ),
        bench.verdict("correct before and afterwards", not wrong, f"{count - wrong} of {count}"),
        bench.verdict(
            "time of the correct kernel, after / before", abs(middle - 1.0) <= SAME,
            f"{middle:.4f} (medians of {len(after)} each; single pairs {min(ratios):.4f} to {max(ratios):.4f})"
            if ratios else "none",
        ),
    ]  # fmt: skip
    bench.say(f"  answered after the deadline: {spread(answered)}; next candidate's result: {spread(waits)}")
    return all(passed)


def allocations(bench: Bench, count: int, fault: str = "scratch") -> bool:
    """Ask for a tebibyte of scratch again and again: no process ends of it."""
    every = 10
    bench.compile(
        [*(bench.configuration(fault, i) for i in range(count)), *correct_ones(bench, -(-count // every))]
    )
    restarts, refused, right, asked = bench.restarts, 0, 0, 0
    times = []
    for copy in range(count):
        began = time.monotonic()
        found = bench.measure(bench.configuration(fault, copy))
        times.append(time.monotonic() - began)
        refused += found.status is Status.OUT_OF_MEMORY
        if copy % every == every - 1 or copy == count - 1:
            asked += 1
            right += bench.right().status in RIGHT
    again = bench.restarts - restarts
    passed = [
        bench.verdict("classified", refused == count, f"{refused} of {count} {Status.OUT_OF_MEMORY}"),
        bench.verdict("without a new process", not again, f"{again} new"),
        bench.verdict("correct candidates between", right == asked, f"{right} of {asked}"),
    ]
    bench.say(f"  each: {spread([1e3 * t for t in times], 'ms', 1)}")
    return all(passed)


def late(bench: Bench, faults: Sequence[str]) -> bool:
    """Measure what is right when it is checked first, and wrong afterwards."""
    bench.compile([*(bench.configuration(fault, 0) for fault in faults), *correct_ones(bench, len(faults))])
    caught, right = 0, 0
    for fault in faults:
        found = bench.measure(bench.configuration(fault, 0), ranked=False)
        caught += found.status in planted.WRONG
        right += bench.right().status in RIGHT
        bench.say(f"  {fault}: {found.status} {found.error[:100]}")
    passed = [
        bench.verdict("caught", caught == len(faults), f"{caught} of {len(faults)}"),
        bench.verdict("next candidate correct", right == len(faults), f"{right} of {len(faults)}"),
    ]
    return all(passed)


SECTIONS: dict[str, tuple[str, Callable[[Bench, float], bool]]] = {
    "faults": ("kernels that ruin the context", lambda b, scale: fatal(b, _count(FAULTS, scale), [*planted.FATAL])),
    "memory": ("candidates that ask for too much memory", lambda b, s: allocations(b, _count(ALLOCATIONS, s))),
    "late": ("right when checked, wrong when timed", lambda b, _: late(b, [*planted.LATE])),
    "hangs": ("kernels that never end", lambda b, scale: hangs(b, _count(HANGS, scale))),
}  # fmt: skip


def _count(full: int, scale: float) -> int:
    return max(1, round(full * scale))


def campaign(bench: Bench, only: Sequence[str], scale: float) -> bool:
    """Run sections on a prepared bench; returns whether all passed."""
    passed = True
    for name in only:
        title, run = SECTIONS[name]
        bench.say(f"{name}: {title}")
        began = time.monotonic()
        try:
            good = run(bench, scale)
        except Exception as error:  # noqa: BLE001 - the other sections' results are worth having
            good = bench.verdict(name, False, f"stopped by {error!r}")
        bench.say(f"  {time.monotonic() - began:.0f} s")
        passed &= good
    bench.say("PASSED" if passed else "FAILED")
    return passed


def main() -> int:
    options = harness.parser(__doc__.splitlines()[0])
    add = options.add_argument
    add("--device", type=int, default=0, help="number of the GPU")
    add("--only", action="append", choices=[*SECTIONS], help="this section; repeat for several")
    add("--scale", type=float, default=1.0, help="of the number of faults")
    add("--jobs", type=int, help="compiling processes")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kernel = planted.write_planted_kernel(Path(folder), FAULTS + 2 * HANGS + ALLOCATIONS)
        device = LocalDevice(
            given.device, given.jobs, Path(folder) / "cache" / "cubins", worker="tests.faults.short_deadline"
        )
        bench = Bench(device, kernel, planted.planted, short_deadline.LAUNCH_S, partial(print, flush=True))

        try:
            bench.say(f"python {' '.join(sys.argv)}")
            bench.say(
                f"{device.gpu.name}, driver {device.gpu.driver}, kernel-tune {__version__}, {harness.today()}"
            )
            bench.begin()
            return 0 if campaign(bench, given.only or [*SECTIONS], given.scale) else 1
        finally:
            device.close()


if __name__ == "__main__":
    sys.exit(main())
