"""What ``record.py`` records: complete sub-lattices of the built-in kernels, at a few problems each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tuner.core.model import Problem
from tuner.kernel.spec import KernelSpec


@dataclass(frozen=True)
class Lattice:
    """The values recorded of one variant."""

    variant: str
    fixed: dict[str, tuple[int | str | bool, ...]]


@dataclass(frozen=True)
class Plan:
    """What is recorded of some problems."""

    problems: list[dict[str, object]]
    lattices: list[Lattice]


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
NAIVE = Lattice("naive", {"block_x": (32, 64, 128), "block_y": (1, 4, 8), "unroll": (1, 4, 8)})
SPLIT_K = Lattice(
    "split_k",
    {
        "split_k": (2, 4, 8),
        "block_m": (64, 128),
        "block_n": (64, 128),
        "block_k": (8, 16),
        "thread_m": (8,),
        "vector_width": (4,),
    },
)
GEMM_FLOAT32 = [
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
    NAIVE,
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
            "separate_banks": (True,),
            "min_blocks": (1, 2),
            "group_m": (1, 8),
        },
    ),
    SPLIT_K,
]
GEMM = [
    NAIVE,
    Lattice(
        "tiled",
        {
            "tile_m": (16, 32, 64),
            "tile_n": (32, 64),
            "tile_k": (32, 64),
            "rows_per_thread": (1, 4, 8),
            "unroll": (1, 8),
        },
    ),
    Lattice(
        "register_tiled",
        {
            "block_m": (64, 128),
            "block_n": (128, 256),
            "block_k": (8,),
            "thread_m": (8, 16),
            "thread_n": (8,),
            "lanes_m": (4,),
            "vector_width": (4,),
            "separate_banks": (True,),
            "min_blocks": (1,),
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
    SPLIT_K,
    Lattice(
        "mma_sync_split_k",
        {
            "split_k": (2, 4, 8),
            "block_m": (64, 128),
            "block_n": (64, 128, 256),
            "warps_m": (1, 2),
            "warps_n": (2, 4),
            "stages": (4,),
        },
    ),
]
"""Of 16-bit types, for which the variants without tensor cores are slow: they have fewer values."""
PLANS = {
    "vector_add": [
        Plan(
            [
                {"n": n, "dtype": d}
                for n, d in [(2**26, "float32"), (2**20, "float32"), (2**26, "float16"), (2**28, "float32")]
            ],
            ELEMENTWISE,
        )
    ],
    "saxpy": [Plan([{"n": 2**26, "dtype": d} for d in ("float32", "float16")], ELEMENTWISE)],
    "transform": [Plan([{"n": n, "dtype": "float16"} for n in (2**24, 2**28)], TRANSFORM)],
    "reduce": [Plan([{"n": n, "dtype": "float32"} for n in (2**20, 2**28)], REDUCE)],
    "mean_matvec": [
        Plan(
            [
                {"groups": 1024, "vectors": 1024, "length": 1024, "dtype": "float32", "product": product}
                for product in ("float32", "tf32")
            ],
            MEAN_MATVEC,
        )
    ],
    "gemm": [
        Plan(
            [
                {"m": n, "n": n, "k": n, "dtype": dtype, "layout": layout}
                for n, dtype, layout in (
                    *((4096, "float16", "nn"), (4096, "float16", "nt"), (2048, "float16", "nn")),
                    *((1024, "bfloat16", "nn"), (1024, "bfloat16", "nt")),
                )
            ],
            GEMM,
        ),
        Plan([{"m": 4096, "n": 4096, "k": 4096, "dtype": "float32", "layout": "nn"}], GEMM_FLOAT32),
    ],
}
"""By kernel; a problem of the first is what a replay takes where none is named."""


def problem_of(kernel: KernelSpec, values: Mapping[str, object]) -> Problem:
    """Return a problem of a plan."""
    return kernel.problem(
        {k: int(str(v)) for k, v in values.items() if k in kernel.sizes},
        {"": str(values["dtype"])},
        {k: str(v) for k, v in values.items() if k in kernel.options},
    )


def chosen_values(lattice: Lattice) -> dict[str, tuple[str, ...]]:
    """Return the values of a lattice as options of a run take them."""
    return {name: tuple(map(str, values)) for name, values in lattice.fixed.items()}
