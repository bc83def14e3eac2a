"""What ``record.py`` records: complete sub-lattices of the built-in kernels, at a few problems each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tuner.cli.options import ProblemTexts
from tuner.cli.problems import make_problems
from tuner.core.model import Problem
from tuner.kernel.spec import KernelSpec


@dataclass(frozen=True)
class Lattice:
    """The values recorded of one variant."""

    variant: str
    values: dict[str, tuple[str, ...]]
    """Of parameters, as options of a run take them; those of a parameter that is not named are all recorded."""


@dataclass(frozen=True)
class Plan:
    """What is recorded of some problems, which are written as `tune run --problem` takes them."""

    problems: tuple[str, ...]
    lattices: tuple[Lattice, ...]


def lattices(text: str) -> tuple[Lattice, ...]:
    """Read a variant a paragraph, and its parameters' values: ``vectorized block_size=128,256 stages=2``."""
    found = []
    for paragraph in text.strip().split("\n\n"):
        variant, *words = paragraph.split()
        pairs = (word.partition("=") for word in words)
        found.append(Lattice(variant, {name: tuple(values.split(",")) for name, _, values in pairs}))
    return tuple(found)


GRID_STRIDE_AND_BULK = """
grid_stride block_size=256,512 vector_width=1,4,8 items_per_thread=1,2 blocks_per_sm=4,8 min_blocks=0 load_hint=none
    store_hint=none,cs

bulk block_size=128,256 tile_bytes=2048,4096,8192 stages=1,2,4 blocks_per_sm=0,2,4,8 l2_evict_first=False
    store_hint=none
"""
VECTORIZED = """
vectorized block_size=128,256,512 vector_width=1,4,8 items_per_thread=1,2,4 min_blocks=0
    load_hint=none,l2_evict_first store_hint=none,cs"""
ELEMENTWISE = lattices(f"{VECTORIZED} arrangement=striped\n{GRID_STRIDE_AND_BULK}")
TRANSFORM = lattices(f"""{VECTORIZED}
{GRID_STRIDE_AND_BULK}
one_element

several_items min_blocks=0

staged vector_width=4,8 stages=2,4 blocks_per_sm=1,2,4 store_hint=none
""")
REDUCE = lattices("""
ticket block_size=256,512,1024 vector_width=1,4 items_per_thread=4,8 batches_per_block=1,4,16 min_blocks=0
    load_hint=none,no_allocate

mailbox block_size=256,512,1024 vector_width=4 items_per_thread=2,4,8 blocks_per_sm=1,2,4 prefetch=False
    load_hint=none,no_allocate

bulk stages=2,4,6,8 blocks_per_sm=1,2 load_hint=none

cluster vector_width=4 load_hint=none cluster_size=8,16

two_pass vector_width=4 load_hint=none blocks_per_sm=2,4,8
""")
MEAN_MATVEC = lattices("""
mean_then_product slice=512,1024 vector_width=4 unroll=8,16 parts=1,2,4 load_hint=no_allocate block_m=64 block_n=64
    block_k=32 warps_m=2 warps_n=2 warps_k=2

fused blocks_per_sm=1,2 slice=512,1024 vector_width=4 unroll=8,16 parts=1,4,8 load_hint=no_allocate block_m=32
    block_n=32 block_k=64 warps_m=1 warps_n=1 warps_k=8
""")
NAIVE = "naive block_x=32,64,128 block_y=1,4,8 unroll=1,4,8"
SPLIT_K = "split_k split_k=2,4,8 block_m=64,128 block_n=64,128 block_k=8,16 thread_m=8 vector_width=4"
GEMM_FLOAT32 = lattices(f"""
tiled tile_m=16,32,64 tile_n=32,64 tile_k=32,64 rows_per_thread=1,4,8 unroll=1,4,8

{NAIVE}

register_tiled block_m=64,128 block_n=128,256 block_k=8,16 thread_m=8,16 thread_n=8,16 lanes_m=4 vector_width=4
    separate_banks=True min_blocks=1,2 group_m=1,8

{SPLIT_K}
""")
GEMM = lattices(f"""
{NAIVE}

tiled tile_m=16,32,64 tile_n=32,64 tile_k=32,64 rows_per_thread=1,4,8 unroll=1,8

register_tiled block_m=64,128 block_n=128,256 block_k=8 thread_m=8,16 thread_n=8 lanes_m=4 vector_width=4
    separate_banks=True min_blocks=1 group_m=1,8

mma_sync block_m=64,128,256 block_n=64,128,256 warps_n=2,4 stages=2,3,4 group_m=8 min_blocks=1

wgmma block_m=64,128,256 block_n=128,192,256 swap_ab=False stages=2,3,4,5 consumers=1,2 mma_inflight=0 cluster_n=1
    raster=along_m raster_group=4 gpc_locality=False sm_margin=0,4 l2_evict_last=none l2_promotion=256
    prefetch=False,True stream_k=False

wgmma_split_k block_m=64,128 block_n=64,128 block_k=64 cluster_k=1,2,4 split_k=1 cluster_m=1,2 cluster_n=1 stages=4,8
    k_order=contiguous

{SPLIT_K}

mma_sync_split_k split_k=2,4,8 block_m=64,128 block_n=64,128,256 warps_m=1,2 warps_n=2,4 stages=4
""")
"""Of 16-bit types, for which the variants without tensor cores are slow: they have fewer values."""

CUBE = "groups=1024,vectors=1024,length=1024,dtype=float32,product="
PRODUCTS = ("4096 float16 nn", "4096 float16 nt", "2048 float16 nn", "1024 bfloat16 nn", "1024 bfloat16 nt")
EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"
PLANS = {
    str(EXAMPLES / "matmul" / "matmul.toml"): (Plan(("n=2048",), lattices("main")),),
    str(EXAMPLES / "rms_norm" / "rms_norm.toml"): (
        Plan(("rows=8192,columns=1024", "rows=65536,columns=512"), lattices("warp\n\nvectors")),
    ),
    str(EXAMPLES / "softmax" / "softmax.toml"): (
        Plan(("dtype=float16", "dtype=bfloat16"), lattices("strided\n\nin_registers")),
    ),
    "vector_add": (
        Plan(
            (
                "n=2**26,dtype=float32",
                "n=2**20,dtype=float32",
                "n=2**26,dtype=float16",
                "n=2**28,dtype=float32",
            ),
            ELEMENTWISE,
        ),
    ),
    "saxpy": (Plan(("n=2**26,dtype=float32", "n=2**26,dtype=float16"), ELEMENTWISE),),
    "transform": (Plan(("n=2**24,dtype=float16", "n=2**28,dtype=float16"), TRANSFORM),),
    "reduce": (Plan(("n=2**20,dtype=float32", "n=2**28,dtype=float32"), REDUCE),),
    "mean_matvec": (Plan((f"{CUBE}float32", f"{CUBE}tf32"), MEAN_MATVEC),),
    "gemm": (
        Plan(
            tuple("m={0},n={0},k={0},dtype={1},layout={2}".format(*words.split()) for words in PRODUCTS),
            GEMM,
        ),
        Plan(("m=4096,n=4096,k=4096,dtype=float32,layout=nn",), GEMM_FLOAT32),
    ),
}
"""By kernel's name or file; a problem of the first is what a replay takes where none is named."""


def problem_of(kernel: KernelSpec, text: str) -> Problem:
    """Return a problem of a plan."""
    return make_problems(kernel, ProblemTexts(problem_texts=(text,)))[0]
