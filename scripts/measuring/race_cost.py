"""What a race costs: eight finalists of about a millisecond, as heavy as kernels get, and too close to tell apart soon.

    scripts/run python scripts/measuring/race_cost.py --out results/evidence/race-cost.json

The eight are one float16 product of 5888^3, about a millisecond each, with three or four stages, in four orders of the blocks.
"""

from __future__ import annotations

from lab import gemm, keep, parser

from tuner import paths
from tuner.devices.local import LocalDevice
from tuner.kernel_file import load_kernel
from tuner.model import Configuration
from tuner.race import run_finish
from tuner.trials import trial_of

SIZE = 5888
GOOD = {
    "block_m": 128,
    "block_n": 128,
    "block_k": 32,
    "warps_m": 2,
    "warps_n": 2,
    "stages": 3,
    "min_blocks": 1,
}


def main() -> None:
    given = parser(__doc__).parse_args()
    kernel, problem = load_kernel("gemm"), gemm(SIZE, "float16")[1]
    device = LocalDevice(0, cache=paths.cache() / "cubins")
    device.prepare(kernel, problem, 1)
    trials = []
    configurations = [
        Configuration.of(
            "wmma", {**kernel.variants["wmma"].defaults, **GOOD, "stages": stages, "group_m": group}
        )
        for group in (1, 4, 8, 16)
        for stages in (3, 4)
    ]
    for number, configuration in enumerate(configurations):
        device.submit(number, configuration)
        while not (outcomes := device.collect(1.0)):
            pass
        trials.append(trial_of(outcomes[0]))
    finish, _ = run_finish(device, problem, trials, None, 0, print)
    device.close()
    assert finish is not None
    found = {
        "finalists": len(finish.medians_ns),
        "us": [time_ns / 1e3 for _, time_ns in finish.medians_ns],
        "rounds": finish.rounds,
        "seconds": finish.race_s,
        "verdict": str(finish.race_verdict),
        "tied": finish.tied,
    }
    print(
        f"{found['finalists']} finalists of {min(found['us']):.0f} to {max(found['us']):.0f} us: "
        f"{finish.rounds} rounds in {finish.race_s:.2f} s, {finish.tied} of them tied"
    )
    keep(given.out, {"gpu": device.gpu.name, "driver": device.gpu.driver, **found})


if __name__ == "__main__":
    main()
