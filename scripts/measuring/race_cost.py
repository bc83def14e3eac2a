"""What a race costs: eight finalists of about a millisecond, as heavy as kernels get.

    scripts/run python scripts/measuring/race_cost.py --out results/evidence/race-cost.json

The kernel is a float16 product of 5888^3. First eight configurations of it race, as at the end of a run. Then one of
them under eight names, which is the longest that a race can take: none is eliminated.
"""

from __future__ import annotations

from typing import Any

from scripts.harness import run
from scripts.lab import gemm, keep, parser
from tuner.core import paths
from tuner.core.model import Configuration, Trial
from tuner.devices.local import LocalDevice
from tuner.devices.started import Processes
from tuner.kernel.load import load_kernel
from tuner.tuning.decision import alike
from tuner.tuning.race import compete

SIZE = 5888
GOOD = {
    "block_m": 128,
    "block_n": 128,
    "block_k": 32,
    "warps_m": 2,
    "warps_n": 2,
    "min_blocks": 1,
}


def main() -> None:
    given = parser(__doc__).parse_args()
    kernel, problem = load_kernel("gemm"), gemm(SIZE, "float16")[1]
    device = LocalDevice(Processes(0, None, paths.cache() / "cubins"))
    device.prepare(kernel, problem, 1)
    trials = []
    configurations = [
        Configuration.of(
            "mma_sync", {**kernel.variants["mma_sync"].defaults, **GOOD, "stages": stages, "group_m": group}
        )
        for group in (1, 4, 8, 16)
        for stages in (3, 4)
    ]
    for number, configuration in enumerate(configurations):
        device.submit(number, configuration)
        while not (answers := device.collect(1.0)):
            pass
        trials.append(answers[0])
    trials.sort(key=lambda trial: trial.time_ns or 0.0)
    rows = [
        _run(device, "eight configurations", trials),
        _run(device, "one under eight names", [trials[0]] * 8),
    ]
    keep(given.out, device.gpu, rows=rows)
    device.close()


def _run(device: LocalDevice, name: str, trials: list[Trial]) -> dict[str, Any]:
    standing, failed = compete(device, trials, 0, lambda *_: None, prefer=alike)
    assert not failed
    times = [standing.time_ns(i) / 1e3 for i in range(len(trials))]
    row = {"case": name, "us": times, "rounds": standing.rounds, "seconds": standing.seconds}
    row |= {"verdict": str(standing.verdict), "left": len(standing.left)}
    print(
        f"{name}: {min(times):.0f} to {max(times):.0f} us, {standing.rounds} rounds in {standing.seconds:.2f} s; "
        f"{standing.verdict}, {len(standing.left)} left"
    )
    return row


if __name__ == "__main__":
    run(main)
