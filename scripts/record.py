"""Records complete sub-lattices of the built-in kernels on the GPU of this machine, for replay.

    scripts/run python scripts/record.py --out results/recorded

Every configuration over the values chosen below is rendered, compiled, verified and timed like any trial, through
``brute-force`` runs in a database of its own, which is then written as one recording for each kernel.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from tuner import __version__, paths
from tuner.conditions import Mode
from tuner.database.database import Database
from tuner.devices.base import Device
from tuner.devices.choose import open_device
from tuner.formats.recording import (
    RecordedProblem,
    Recording,
    row_of,
    short_implementation,
    write_recording,
)
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.load import load_kernel
from tuner.kernel.spec import KernelSpec
from tuner.model import Problem, RunOptions, Status
from tuner.report.progress import make_observer
from tuner.tuning.request import Request
from tuner.tuning.session import tune

MAX_SAMPLES = 16
"""Samples kept of a row: the replayed race draws from them."""


@dataclass(frozen=True)
class Lattice:
    """The values recorded of one variant."""

    variant: str
    fixed: dict[str, tuple[int | str | bool, ...]]


@dataclass(frozen=True)
class Plan:
    """What is recorded of one kernel."""

    problems: list[dict[str, object]]
    lattices: list[Lattice] = field(default_factory=list)


VECTORIZED = Lattice(
    "vectorized",
    {
        "block_size": (128, 256, 512),
        "vector_width": (1, 4, 8),
        "items_per_thread": (1, 2, 4),
        "min_blocks": (0,),
        "load_hint": ("none", "l2_evict_first"),
        "store_hint": ("none", "cs"),
    },
)
GRID_STRIDE = Lattice(
    "grid_stride",
    {
        "block_size": (256, 512),
        "vector_width": (1, 4, 8),
        "items_per_thread": (1, 2),
        "blocks_per_sm": (4, 8),
        "min_blocks": (0,),
        "load_hint": ("none",),
        "store_hint": ("none", "cs"),
    },
)
BULK = Lattice(
    "bulk",
    {
        "block_size": (128, 256),
        "tile_bytes": (2048, 4096, 8192),
        "stages": (1, 2, 4),
        "blocks_per_sm": (0, 2, 4, 8),
        "l2_evict_first": (False,),
        "store_hint": ("none",),
    },
)
ELEMENTWISE = [
    replace(VECTORIZED, fixed={**VECTORIZED.fixed, "arrangement": ("striped",)}),
    GRID_STRIDE,
    BULK,
]
TRANSFORM = [
    VECTORIZED,
    GRID_STRIDE,
    BULK,
    Lattice("one_element", {}),
    Lattice("several_items", {"min_blocks": (0,)}),
    Lattice(
        "staged",
        {"vector_width": (4, 8), "stages": (2, 4), "blocks_per_sm": (1, 2, 4), "store_hint": ("none",)},
    ),
]
REDUCE = [
    Lattice(
        "ticket",
        {
            "block_size": (256, 512, 1024),
            "vector_width": (1, 4),
            "items_per_thread": (4, 8),
            "batches_per_block": (1, 4, 16),
            "min_blocks": (0,),
            "load_hint": ("none", "no_allocate"),
        },
    ),
    Lattice(
        "mailbox",
        {
            "block_size": (256, 512, 1024),
            "vector_width": (4,),
            "items_per_thread": (2, 4, 8),
            "blocks_per_sm": (1, 2, 4),
            "prefetch": (False,),
            "load_hint": ("none", "no_allocate"),
        },
    ),
    Lattice("bulk", {"stages": (2, 4, 6, 8), "blocks_per_sm": (1, 2), "load_hint": ("none",)}),
    Lattice("cluster", {"vector_width": (4,), "load_hint": ("none",), "cluster_size": (8, 16)}),
    Lattice("two_pass", {"vector_width": (4,), "load_hint": ("none",), "blocks_per_sm": (2, 4, 8)}),
]
MEAN_MATVEC = [
    Lattice(
        "mean_then_product",
        {
            "slice": (512, 1024),
            "vector_width": (4,),
            "unroll": (8, 16),
            "parts": (1, 2, 4),
            "load_hint": ("no_allocate",),
            "block_m": (64,),
            "block_n": (64,),
            "block_k": (32,),
            "warps_m": (2,),
            "warps_n": (2,),
            "warps_k": (2,),
        },
    ),
    Lattice(
        "fused",
        {
            "blocks_per_sm": (1, 2),
            "slice": (512, 1024),
            "vector_width": (4,),
            "unroll": (8, 16),
            "parts": (1, 4, 8),
            "load_hint": ("no_allocate",),
            "block_m": (32,),
            "block_n": (32,),
            "block_k": (64,),
            "warps_m": (1,),
            "warps_n": (1,),
            "warps_k": (8,),
        },
    ),
]
GEMM = [
    Lattice(
        "tiled",
        {
            "tile_m": (16, 32, 64),
            "tile_n": (32, 64),
            "tile_k": (32, 64),
            "rows_per_thread": (1, 4, 8),
            "unroll": (1, 4, 8),
        },
    ),
    Lattice("naive", {"block_x": (32, 64, 128), "block_y": (1, 4, 8), "unroll": (1, 4, 8)}),
    Lattice(
        "register_tiled",
        {
            "block_m": (64, 128),
            "block_n": (128, 256),
            "block_k": (8, 16),
            "thread_m": (8, 16),
            "thread_n": (8, 16),
            "lanes_m": (4,),
            "vector_width": (4,),
            "opposed": (True,),
            "min_blocks": (1, 2),
            "group_m": (1, 8),
        },
    ),
    Lattice(
        "mma_sync",
        {
            "block_m": (64, 128, 256),
            "block_n": (64, 128, 256),
            "warps_n": (2, 4),
            "stages": (2, 3, 4),
            "group_m": (8,),
            "min_blocks": (1,),
        },
    ),
    Lattice(
        "wgmma",
        {
            "block_m": (64, 128, 256),
            "block_n": (128, 192, 256),
            "swap_ab": (False,),
            "stages": (2, 3, 4, 5),
            "consumers": (1, 2),
            "mma_inflight": (0,),
            "cluster_n": (1,),
            "raster": ("along_m",),
            "raster_group": (4,),
            "gpc_locality": (False,),
            "sm_margin": (0, 4),
            "l2_evict_last": ("none",),
            "l2_promotion": (256,),
            "prefetch": (False, True),
            "stream_k": (False,),
        },
    ),
    Lattice(
        "wgmma_split_k",
        {
            "block_m": (64, 128),
            "block_n": (64, 128),
            "block_k": (64,),
            "cluster_k": (1, 2, 4),
            "split_k": (1,),
            "cluster_m": (1, 2),
            "cluster_n": (1,),
            "stages": (4, 8),
            "k_order": ("contiguous",),
        },
    ),
    Lattice(
        "split_k",
        {
            "split_k": (2, 4, 8),
            "block_m": (64, 128),
            "block_n": (64, 128),
            "block_k": (8, 16),
            "thread_m": (8,),
            "vector_width": (4,),
        },
    ),
    Lattice(
        "mma_sync_split_k",
        {
            "split_k": (2, 4, 8),
            "block_m": (64, 128),
            "block_n": (64, 128, 256),
            "warps_m": (1, 2),
            "warps_n": (2, 4),
            "stages": (3, 4),
        },
    ),
]
PLANS = {
    "vector_add": Plan(
        [
            {"n": n, "dtype": d}
            for n, d in [(2**26, "float32"), (2**20, "float32"), (2**26, "float16"), (2**28, "float32")]
        ],
        ELEMENTWISE,
    ),
    "saxpy": Plan([{"n": n, "dtype": d} for n, d in [(2**26, "float32"), (2**26, "float16")]], ELEMENTWISE),
    "transform": Plan([{"n": n, "dtype": "float16"} for n in (2**24, 2**28)], TRANSFORM),
    "reduce": Plan([{"n": n, "dtype": "float32"} for n in (2**20, 2**28)], REDUCE),
    "mean_matvec": Plan(
        [
            {"groups": 1024, "vectors": 1024, "length": 1024, "dtype": "float32", "product": product}
            for product in ("float32", "tf32")
        ],
        MEAN_MATVEC,
    ),
    "gemm": Plan(
        [
            {"m": 4096, "n": 4096, "k": 4096, "dtype": "float16"},
            {"m": 2048, "n": 2048, "k": 2048, "dtype": "float16"},
            {"m": 4096, "n": 4096, "k": 4096, "dtype": "float32"},
            {"m": 1024, "n": 1024, "k": 1024, "dtype": "bfloat16"},
        ],
        GEMM,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kernels", nargs="*", default=list(PLANS))
    parser.add_argument("--out", type=Path, default=Path("results/recorded"))
    parser.add_argument("--db", type=Path, default=Path("results/recording.db"))
    arguments = parser.parse_args()
    for name in arguments.kernels:
        _record(name, PLANS[name], arguments.db, arguments.out)


def _record(name: str, plan: Plan, db: Path, out: Path) -> None:
    kernel = load_kernel(name)
    device = open_device("cuda", name, None, paths.cache() / "cubins")
    recorded = []
    try:
        with Database.open(db) as database:
            for sizes in plan.problems:
                problem = kernel.problem(
                    {k: int(str(v)) for k, v in sizes.items() if k in kernel.sizes},
                    {"": str(sizes["dtype"])},
                    {k: str(v) for k, v in sizes.items() if k in kernel.options},
                )
                rows = {}
                for lattice in plan.lattices:
                    if kernel.usable_variants(problem, device.gpu)[1].get(lattice.variant):
                        continue
                    began = time.monotonic()
                    fixed = {k: tuple(str(v) for v in values) for k, values in lattice.fixed.items()}
                    request = Request(
                        kernel,
                        problem,
                        10**6,
                        "brute-force",
                        options=RunOptions((lattice.variant,), fixed, from_scratch=True),
                        mode=Mode.COLD,  # one recording is timed in one way
                    )
                    result = tune(request, device, database, make_observer(True), finish=False)
                    for trial in database.trials(result.state.run.id):
                        kept = (
                            trial.samples_ns[:MAX_SAMPLES] if trial.status is not Status.WRONG_RESULT else ()
                        )
                        source = short_implementation(trial.implementation)
                        rows[trial.configuration] = row_of(trial, source, kept)
                    seconds = time.monotonic() - began
                    print(
                        f"{problem} {lattice.variant}: {len(result.state.trials)} rows in {seconds:.1f} s",
                        flush=True,
                    )
                recorded.append(RecordedProblem(Problem.from_json(problem.to_json()), rows))
                # What is whole is kept, come what may; a recording takes the place of another when all of it is there.
                _write(kernel, device, recorded, out, whole=len(recorded) == len(plan.problems))
    finally:
        device.close()


def _write(
    kernel: KernelSpec, device: Device, recorded: Sequence[RecordedProblem], out: Path, whole: bool
) -> None:
    name = kernel.name
    gpu_name = device.gpu.name.removeprefix("NVIDIA ").replace(" ", "_")
    recording = Recording(
        f"{name}-{gpu_name}",
        name,
        device.gpu,
        datetime.now(UTC).date().isoformat(),
        {"kernel-tune": __version__, **device.versions},
        tuple(recorded),
        computation=KernelIdentity(kernel).parts,
    )
    path = out / f"{recording.name}{'' if whole else '.partial'}.json.gz"
    write_recording(path, recording)
    if whole:
        path.with_name(f"{recording.name}.partial.json.gz").unlink(missing_ok=True)
        if (out / recording.name).is_dir():
            print(
                f"remove {out / recording.name}: it keeps the kernel of the recording before", file=sys.stderr
            )
    print(
        f"{path}: {sum(len(p.rows) for p in recorded)} rows, {path.stat().st_size / 2**20:.2f} MiB",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
