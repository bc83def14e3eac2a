"""Where the time of a product with few tiles and a deep k goes: marks in the kernel, and Nsight Compute's counters.

    scripts/run python scripts/measuring/deep_k.py --config 'wgmma_split_k block_m=128 block_n=128 split_k=8 stages=6 \\
        gpc_locality=True' --out results/evidence/deep-k.json

The counters are of the configuration, of the same without ``gpc_locality``, and of the kernels of ``torch.mm``, each
kernel alone with empty caches.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.lab import keep, parser
from tuner.inspect.tools.locate import NCU, find
from tuner.inspect.tools.nsight import read_report

ROOT = Path(__file__).resolve().parents[2]
SIZES = {"m": 512, "n": 512, "k": 65536}
SIZE = ",".join(f"{name}={size}" for name, size in SIZES.items())
COUNTERS = {
    "time, us": ("gpu__time_duration.sum", 1e6, 1),
    "tensor cores busy, %": ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", 1.0, 1),
    "L2 busy, %": ("lts__throughput.avg.pct_of_peak_sustained_elapsed", 1.0, 1),
    "sectors SMs read of the L2": ("lts__t_sectors_srcunit_tex_op_read.sum", 1.0, 0),
    "read from memory, MB": ("dram__bytes_read.sum", 1e-6, 1),
}
TORCH = f"""
import torch
a = torch.randn({SIZES["m"]}, {SIZES["k"]}, device="cuda", dtype=torch.bfloat16)
b = torch.randn({SIZES["k"]}, {SIZES["n"]}, device="cuda", dtype=torch.bfloat16)
for _ in range(3):
    torch.mm(a, b)
torch.cuda.synchronize()
torch.cuda.cudart().cudaProfilerStart()
torch.mm(a, b)
torch.cuda.synchronize()
torch.cuda.cudart().cudaProfilerStop()
"""


def counters(report: Path) -> list[dict[str, Any]]:
    """Return what was counted of each launch in a report."""
    found = []
    for launch in read_report(find(NCU, None), report):
        values = {
            name: round(launch.metrics[metric] * scale, digits)
            for name, (metric, scale, digits) in COUNTERS.items()
            if metric in launch.metrics
        }
        found.append({"kernel": launch.kernel, "grid": launch.grid, "block": launch.block, **values})
    return found


def run(command: Sequence[str | Path]) -> None:
    """Run a command, whose output is shown.

    Raises:
        SystemExit: it fails.
    """
    if status := subprocess.run([str(word) for word in command], cwd=ROOT, check=False).returncode:
        raise SystemExit(f"error: status {status}: {' '.join(map(str, command[:6]))} ...")


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("--config", required=True, help="As tables print it, with gpc_locality=True.")
    given = arguments.parse_args()
    product = ["--size", SIZE, "--dtype", "bfloat16"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        marks = folder / "marks.json"
        here = Path(__file__).with_name("timeline.py")
        run([sys.executable, here, *product, "--config", given.config, "--out", marks])
        timeline = json.loads(marks.read_text())
        kernels = {}
        for whose, config in (
            ("ours", given.config),
            ("without gpc_locality", given.config.replace("gpc_locality=True", "gpc_locality=False")),
        ):
            report = folder / f"{whose.split()[0]}.ncu-rep"
            tune = [sys.executable, "-m", "tuner", "profile", "gemm", *product, "--config", config]
            run([*tune, "--mode", "cold", "--output", report])
            kernels[whose] = counters(report)
        report = folder / "torch.ncu-rep"
        ncu = [str(find(NCU, None)), "--profile-from-start", "off", "--clock-control", "none"]
        metrics = ",".join(metric for metric, _, _ in COUNTERS.values())
        chosen = ["--cache-control", "all", "--set", "full", "--metrics", metrics]
        run([*ncu, *chosen, "-o", report, sys.executable, "-c", TORCH])
        kernels["torch.mm"] = counters(report)
    print(json.dumps(kernels, indent=1))
    keep(given.out, None, **timeline, kernels=kernels)


if __name__ == "__main__":
    main()
