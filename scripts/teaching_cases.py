"""Problems with their baselines: of the teaching texts, of models at shapes that a seed draws, and products."""

from __future__ import annotations

import importlib.util
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, product, zip_longest
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
CCCL = HERE / "rivals" / "cccl.py"
MODELS = HERE / "rivals" / "models.py"
HELION = HERE / "compare_triton" / "helion_rows.py"


@dataclass(frozen=True)
class Case:
    """Problems of a kernel that are compared with the same baselines."""

    kernel: str
    dtype: str
    problems: tuple[str, ...]
    baselines: tuple[str, ...]
    options: tuple[str, ...] = ()
    trials: int = 400
    patience: float = 1.0
    """Times the usual length of the search."""
    modes: tuple[str, ...] = ("auto",)
    """In which it is compared: as it was tuned, and others."""
    passes: bool = True
    """Whether also with passes that only read or copy its bytes, where there are such."""


def powers(*exponents: int) -> tuple[str, ...]:
    """Return array lengths."""
    return tuple(f"n=2**{exponent}" for exponent in exponents)


CASES = [
    *(
        Case(
            kernel,
            dtype,
            powers(10, 16, 20, 24, 28),
            ("torch", "default", f"{CCCL}:thrust_{kernel}"),
        )
        for kernel in ("vector_add", "saxpy")
        for dtype in ("float32", "float16")
    ),
    Case(
        "transform",
        "float16",
        powers(24, 28),
        ("default", f"{CCCL}:thrust_transform", f"{CCCL}:cub_transform"),
        patience=4.0,
    ),
    Case(
        "reduce",
        "float32",
        powers(16, 18, 20, 22, 24, 26, 28, 30),
        ("torch", "default", f"{CCCL}:cub_sum"),
        patience=2.0,
    ),
    *(
        Case(
            "mean_matvec",
            "float32",
            ("groups=1024,vectors=1024,length=1024",),
            ("torch", "default"),
            (f"product={product}",),
            patience=6.0,
        )
        for product in ("tf32", "float32")
    ),
]


Drawn = tuple[str, str, tuple[str, ...]]
"""Sizes, the name of torch's function in :data:`MODELS`, and options."""


def extent(rng: random.Random, least: int, most: int, multiple: int = 8) -> int:
    """Return a size, of which each order of magnitude is as likely; one of four is no multiple."""
    size = round(math.exp(rng.uniform(math.log(least), math.log(most))))
    return size if rng.random() < 0.25 else max(size // multiple, 1) * multiple


def drawn_transpose(rng: random.Random, _number: int) -> Drawn:
    rows, columns = extent(rng, 256, 16384), extent(rng, 128, 16384)
    batch = max(1, min(rng.choice((1, 1, 8, 64)), 2**28 // (rows * columns)))
    return f"batch={batch},rows={rows},columns={columns}", "transpose", ()


def drawn_permute(rng: random.Random, number: int) -> Drawn:
    axes = ("bac", "cba", "acb", "cab", "bca")[number % 5]
    a, b, c = extent(rng, 256, 8192), extent(rng, 16, 128), extent(rng, 32, 1024)
    return f"a={a},b={b},c={c}", f"permute_{axes}", (f"axes={axes}",)


def drawn_rope(rng: random.Random, number: int) -> Drawn:
    style = ("half", "interleaved")[number % 2]
    q_heads, k_heads = rng.choice(((32, 8), (32, 32), (64, 8), (16, 16)))
    sizes = f"tokens={extent(rng, 256, 32768)},q_heads={q_heads},k_heads={k_heads},pairs={rng.choice((32, 48, 64))}"
    return sizes, f"rope_{style}", (f"style={style}",)


def drawn_reduce_axis(rng: random.Random, number: int) -> Drawn:
    op, over = ("sum", "max", "mean")[number % 3], ("columns", "rows")[number % 2]
    rows, columns = extent(rng, 64, 2**17), extent(rng, 64, 2**17)
    while rows * columns > 2**29:
        rows = max(rows // 4, 1)
    return f"rows={rows},columns={columns}", f"reduce_axis_{op}_{over}", (f"op={op},over={over}",)


OF_2048 = (48, 96, 127, 768, 1023, 1024, 1536, 2047, 2048, 3072, 4096, 5120, 6144, 8192, 16384, 32768)
HELION_SHAPES = {
    "softmax": [*((4096, 128 * i) for i in range(2, 100)), (4096, 16384), (2048, 32768)],
    "rms_norm": [
        *((2048, columns) for columns in OF_2048),
        *((4096, columns) for columns in (3584, 4096, 5120, 7168, 8192, 12288)),
        *[(8192, 4096), (8192, 8192), (16384, 4096), (16384, 8192)],
        *[(145956, 384), (380668, 512), (589824, 256), (1179648, 256)],
    ],
    "layer_norm": [
        *((4096, 512 * i) for i in range(2, 32)),
        *[(2048, 3584), (8192, 4096), (8192, 5120), (8192, 7168), (2048, 8192), (4096, 16384)],
        *[(1024, 36864), (1152, 36864)],
    ],
    "cross_entropy": [
        *[(2048, 32000), (4096, 32000), (8192, 32000), (8192, 128000), (16384, 128000), (1024, 256000)],
        *((rows, columns) for columns in (128256, 129280, 151936, 152064) for rows in (2048, 4096, 8192)),
    ],
    "silu_mul": [(2**i, columns) for i in range(14) for columns in (2048, 4096, 5632, 8192, 11008, 14336)],
}
"""Rows and columns at which Helion publishes results; of silu_mul our own."""


def drawn_rows(*choices: tuple[str, ...]) -> Callable[[random.Random, int], Drawn]:
    """Return what draws of Helion's shapes: of functions with their options in turn."""

    def drawn(rng: random.Random, number: int) -> Drawn:
        function, *options = choices[number % len(choices)]
        rows, columns = rng.choice(HELION_SHAPES[function])
        return f"rows={rows},columns={columns}", function, tuple(options)

    return drawn


def drawn_quantize(rng: random.Random, number: int) -> Drawn:
    function, *options = (
        ("quantise_rows",),
        ("quantise_groups", "by=group"),
        ("silu_mul_quantised", "by=group", "before=silu(gate) * up"),
        ("rms_norm_quantised", "by=group", "norm=rms_norm"),
    )[number % 4]
    rows, groups = 2 ** rng.randrange(14), rng.choice((16, 32, 40, 56, 64, 86, 112))
    return f"rows={rows},groups={groups}", function, tuple(options)


DRAWN: dict[str, Callable[[random.Random, int], Drawn]] = {
    "transpose": drawn_transpose,
    "permute": drawn_permute,
    "rope": drawn_rope,
    "reduce_axis": drawn_reduce_axis,
    "softmax": drawn_rows(("softmax",)),
    "norm": drawn_rows(("rms_norm",), ("layer_norm", "op=layer_norm", "after=n * weight + bias")),
    "gated": drawn_rows(("silu_mul",)),
    "cross_entropy": drawn_rows(("cross_entropy", "gradient=none")),
    "quantize": drawn_quantize,
}


def drawn_cases(seed: int, count: int) -> list[Case]:
    """Return a case for each shape that a seed draws of each kernel of models, in two dtypes in turn."""
    cases = []
    for kernel, draw in DRAWN.items():
        rng = random.Random(f"{seed} {kernel}")
        for number in range(count):
            sizes, function, options = draw(rng, number)
            against = tuple(f"{MODELS}:{function}_{how}" for how in ("eager", "compiled"))
            if function in HELION_SHAPES and importlib.util.find_spec("helion"):
                against += (f"{HELION}:{function}",)
            dtype = ("bfloat16", "float32")[number // 2 % 2]
            how: dict[str, Any] = {"trials": 100, "patience": 2.0, "modes": ("auto", "warm")}
            cases.append(Case(kernel, dtype, (sizes,), ("default", *against), options, **how))
    return cases


# -- products

SQUARES = [(size, size, size) for size in (8192, 4096, 2048)]
FEW_ROWS = [(m, 8192, 8192) for m in (16, 64, 256)]
OF_LINEAR = [SQUARES[0], FEW_ROWS[0], *SQUARES[1:]]
OF_8_BITS = [SQUARES[0], FEW_ROWS[0], SQUARES[1], FEW_ROWS[1], (4096, 7168, 16384), FEW_ROWS[2]]
OPS = {
    "x + bias": ("torch",),
    "gelu(x + bias)": ("linear_gelu_eager", "linear_gelu_compiled"),
    "gelu_tanh(x + bias)": ("linear_gelu_tanh_eager", "linear_gelu_tanh_compiled", "addmm_activation"),
}
"""What torch has of each expression: the kernel's own baseline, or functions in :data:`MODELS`."""
SCALES = [
    ("tensor", "promoted"),
    ("tensor", "fast"),
    ("rows", "promoted"),
    ("rows", "fast"),
    ("blocks", "promoted"),
]
BATCHES = [
    ("nn", (64, 512, 512, 512)),
    ("nn", (256, 128, 128, 64)),
    ("nt", (32, 2048, 2048, 128)),
    ("nn", (32, 2048, 128, 2048)),
    ("nn", (64, 1024, 1024, 1024)),
]
GROUPS = [(8, 8192, 4096, 4096), (8, 128, 4096, 4096), (128, 65536, 1536, 2048)]
"""Groups, rows of all of them, n and k. ``search_spaces/grouped.py`` draws where groups end."""


def product_case(
    kernel: str, sizes: tuple[int, ...], options: tuple[str, ...], against: tuple[str, ...] = ("torch",)
) -> Case:
    """Return a product: its sizes end with m, n and k."""
    names = ({"bmm": "batch", "grouped": "groups"}.get(kernel, ""), "m", "n", "k")[-len(sizes) :]
    return Case(
        kernel,
        "float8_e4m3fn" if kernel == "scaled_mm" else "bfloat16",
        (",".join(f"{name}={size}" for name, size in zip(names, sizes, strict=True)),),
        tuple(name if name == "torch" else f"{MODELS}:{name}" for name in against),
        options,
        patience=2.2,
        modes=("auto", "warm"),
        passes=kernel == "scaled_mm" and sizes[0] <= 64,
    )


def product_cases() -> list[Case]:
    """Return products of all kernels in turn, so that a run that is cut short has some of each."""
    each = [
        [
            product_case("linear", sizes, ("layout=nt", f"op={op}"), against)
            for sizes, (op, against) in product(OF_LINEAR, OPS.items())
        ],
        [
            product_case("scaled_mm", sizes, (f"scales={scales}", f"accumulation={how}"))
            for sizes, (scales, how) in product(OF_8_BITS, SCALES)
        ],
        [product_case("bmm", sizes, (f"layout={layout}",)) for layout, sizes in BATCHES],
        [product_case("grouped", sizes, ("layout=nt",), ("grouped_eager",)) for sizes in GROUPS],
    ]
    return [case for case in chain.from_iterable(zip_longest(*each)) if case]
