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
from tuner.core.errors import TunerError
from tuner.core.model import Configuration, Status, Trial
from tuner.devices.local import LocalDevice
from tuner.devices.started import Processes
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
            raise TunerError(f"the correct kernel is {first.status}: {first.error}")
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
        raise TunerError(f"no answer for {configuration}")

    def right(self) -> Trial:
        """Measure the next copy of the correct kernel."""
        self.fresh += 1
        return self.measure(self.configuration("ok", self.fresh - 1))

    @property
    def restarts(self) -> int:
        return self.device._guard.restarts

    def gone_s(self, since: float, pid: int) -> float:
        """Return after how many seconds the measuring process was dead."""
        while Path(f"/proc/{pid}").exists() and time.monotonic() - since < ANSWER_S / 2:
            time.sleep(0.002)
        return time.monotonic() - since

    def verdict(self, name: str, passed: bool, text: str) -> bool:
        self.say(f"  {'PASS' if passed else 'FAIL'}  {name}: {text}")
        return passed

    def counted(self, name: str, count: int, of: int, what: object = "") -> bool:
        return self.verdict(name, count == of, f"{count} of {of} {what}".rstrip())


@dataclass(frozen=True)
class Injected:
    """A fault, and what is correct beside it."""

    found: Trial
    took_s: float
    gone_s: float
    """Until the process that measured it is dead."""
    before: Trial | None
    after: Trial | None
    after_s: float

    @property
    def right(self) -> bool:
        """Whether what was measured before and afterwards is correct."""
        return all(one.status in RIGHT for one in (self.before, self.after) if one)


def spread(values: Sequence[float], unit: str = "s", digits: int = 2) -> str:
    """Return the median, the 95th percentile and the largest of some values."""
    return ", ".join(f"{name} {value:.{digits}f} {unit}" for name, value in harness.quantiles(values).items())


def inject(
    bench: Bench,
    faults: Sequence[str],
    count: int,
    *,
    ranked: bool = True,
    hang: bool = False,
    every: int = 1,
) -> list[Injected]:
    """Measure faults in turn, and a correct candidate after each, or after some; with ``hang`` also before."""
    chosen = [(faults[i % len(faults)], i // len(faults)) for i in range(count)]
    correct = (1 + hang) * -(-count // every)
    ones = [bench.configuration("ok", bench.fresh + i) for i in range(correct)]
    bench.compile([*(bench.configuration(*one) for one in chosen), *ones])
    said: dict[str, Counter[str]] = {fault: Counter() for fault in faults}
    rows = []
    for number, (fault, copy) in enumerate(chosen, 1):
        before = bench.right() if hang else None
        child, began = bench.device._guard._child, time.monotonic()
        found = bench.measure(bench.configuration(fault, copy), ranked=ranked)
        took_s = time.monotonic() - began
        gone_s = bench.gone_s(began, child.pid) if hang and child is not None else 0.0
        began = time.monotonic()
        after = bench.right() if number % every == 0 or number == count else None
        rows.append(Injected(found, took_s, gone_s, before, after, time.monotonic() - began))
        said[fault][f"{found.status} {found.error[:100]}"] += 1
        if number % 20 == 0:
            harness.say(f"{number} of {count}")
    for fault, seen in said.items():
        bench.say(f"  {fault}: {'; '.join(f'{number} x {text}' for text, number in seen.most_common())}")
    return rows


def fatal(bench: Bench, count: int, faults: Sequence[str]) -> bool:
    """Ruin the context again and again; after each, a correct candidate."""
    restarts = bench.restarts
    rows = inject(bench, faults, count)
    waits = [row.after_s for row in rows]
    passed = [
        bench.counted("classified", sum(row.found.status in planted.RUINED for row in rows), count),
        bench.counted("next candidate correct", sum(row.right for row in rows), count),
        bench.counted("new processes", bench.restarts - restarts, count),
        bench.verdict(
            "fault to the next candidate's result",
            harness.quantiles(waits)["p95"] <= RESPAWN_P95_S,
            f"{spread(waits)} (allowed: p95 {RESPAWN_P95_S:g} s)",
        ),
    ]
    return all(passed)


def hangs(bench: Bench, count: int) -> bool:
    """Hang again and again: when is the process dead, and what does the correct kernel take before and afterwards?"""
    rows = inject(bench, ["hang"], count, hang=True)
    dead = [row.gone_s - bench.launch_s for row in rows]
    both = [(row.before, row.after) for row in rows if row.before and row.after]
    times = [
        [statistics.median(one.samples_ns) for one in pair]
        for pair in both
        if all(p.samples_ns for p in pair)
    ]
    before, after = zip(*times, strict=True) if times else ((1.0,), (0.0,))
    ratios = [b / a for a, b in zip(before, after, strict=True)]
    middle = statistics.median(after) / statistics.median(before)
    pairs = f"medians of {len(times)} each; single pairs {min(ratios):.4f} to {max(ratios):.4f}"
    passed = [
        bench.counted("classified", sum(row.found.status is Status.HANG for row in rows), count, Status.HANG),
        bench.verdict(
            "dead after the deadline", max(dead) <= DEAD_S,
            f"{spread(dead)} (allowed: {DEAD_S:g} s; the deadline of a launch: {bench.launch_s:g} s)",
        ),
        bench.counted("correct before and afterwards", sum(row.right for row in rows), count),
        bench.verdict(
            "time of the correct kernel, after / before", abs(middle - 1.0) <= SAME, f"{middle:.4f} ({pairs})"
        ),
    ]  # fmt: skip
    answered, following = [row.took_s - bench.launch_s for row in rows], [row.after_s for row in rows]
    bench.say(
        f"  answered after the deadline: {spread(answered)}; next candidate's result: {spread(following)}"
    )
    return all(passed)


def allocations(bench: Bench, count: int, fault: str = "scratch") -> bool:
    """Ask for a tebibyte of scratch again and again: no process ends of it."""
    restarts = bench.restarts
    rows = inject(bench, [fault], count, every=10)
    refused, again = sum(row.found.status is Status.OUT_OF_MEMORY for row in rows), bench.restarts - restarts
    checked = [row for row in rows if row.after]
    passed = [
        bench.counted("classified", refused, count, Status.OUT_OF_MEMORY),
        bench.verdict("without a new process", not again, f"{again} new"),
        bench.counted("correct candidates between", sum(row.right for row in checked), len(checked)),
    ]
    bench.say(f"  each: {spread([1e3 * row.took_s for row in rows], 'ms', 1)}")
    return all(passed)


def late(bench: Bench, faults: Sequence[str]) -> bool:
    """Measure what is right when it is checked first, and wrong afterwards."""
    rows = inject(bench, faults, len(faults), ranked=False)
    passed = [
        bench.counted("caught", sum(row.found.status in planted.WRONG for row in rows), len(rows)),
        bench.counted("next candidate correct", sum(row.right for row in rows), len(rows)),
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
            Processes(
                given.device, given.jobs, Path(folder) / "cache" / "cubins", "tests.faults.short_deadline"
            )
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
    harness.run(main, gpu=True)
