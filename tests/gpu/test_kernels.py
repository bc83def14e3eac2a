"""Every built-in kernel and variant is right at sizes that no tile divides."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator

import pytest

from tuner.core.errors import SpaceError
from tuner.core.model import Configuration, Problem, Status, Value
from tuner.devices.local import LocalDevice
from tuner.kernel.load import builtin_kernels, load_kernel
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec

ROW_KERNELS = ("softmax", "norm", "gated", "cross_entropy")
ROWS = [
    *[
        (1, 1),
        (3, 7),
        (5, 33),
        (1000, 64),
        (17, 257),
        (33, 1000),
        (9, 4096),
        (7, 4099),
        (130, 8192),
        (3, 40_000),
    ],
    *[(2, 65_536), (5, 131_075), (2, 262_144), (1, 262_147), (3001, 1025), (1500, 8184)],
]
"""Rows and columns."""
SIZES = {
    "quantize": [
        {"rows": rows, "groups": groups}
        for rows, groups in (
            *itertools.product((1, 3, 129, 300), (1, 5, 32)),
            *((2, 2048), (257, 7), (640, 3), (1000, 2), (128, 64), (33, 320)),
        )
    ],
    **{name: [{"rows": rows, "columns": columns} for rows, columns in ROWS] for name in ROW_KERNELS},
    "vector_add": [{"n": n} for n in (1, 3, 255, 4099, 1 << 20, (1 << 20) + 17)],
    "saxpy": [{"n": n} for n in (1, 3, 255, 4099, (1 << 20) + 17)],
    "transform": [{"n": n} for n in (1, 3, 255, 4099, 65537, 1 << 20, (1 << 20) + 17, (1 << 22) + 5)],
    "reduce": [{"n": n} for n in (1, 3, 255, 4099, 65536, (1 << 20) + 17, (1 << 23) + 5)],
    "transpose": [
        {"batch": batch, "rows": rows, "columns": columns}
        for batch, rows, columns in [
            *[
                (1, 1, 1),
                (3, 5, 7),
                (2, 64, 1000),
                (1, 16, 272),
                (3, 257, 129),
                (1, 2056, 1030),
                (70000, 3, 4),
            ],
            *[(5, 1, 4096), (1, 100001, 3), (2, 1028, 1544), (1, 2056, 1032), (3, 136, 256), (2, 1000, 512)],
        ]
    ],
    "permute": [
        {"a": a, "b": b, "c": c}
        for a, b, c in [
            *[
                (1, 1, 1),
                (3, 5, 7),
                (64, 96, 130),
                (16, 272, 8),
                (257, 3, 129),
                (100, 1030, 33),
                (40, 24, 4096),
            ],
            *[(1000, 1, 3), (2, 3001, 16)],
        ]
    ],
    "reduce_axis": [
        {"rows": rows, "columns": columns}
        for rows, columns in [
            *[(1, 1), (3, 5), (257, 129), (1000, 4096), (100003, 3), (3, 100003), (64, 16385), (4097, 1032)],
            *[(2, 1000000), (1000000, 8), (33, 65536), (513, 2048)],
        ]
    ],
    "rope": [
        {"tokens": tokens, "q_heads": q_heads, "k_heads": k_heads, "pairs": pairs}
        for tokens, q_heads, k_heads, pairs in [
            *[
                (1, 1, 1, 1),
                (3, 5, 2, 7),
                (17, 32, 8, 64),
                (129, 3, 3, 40),
                (1000, 1, 7, 33),
                (64, 128, 1, 32),
            ],
            *[(4097, 8, 8, 4)],
        ]
    ],
    "gemm": [
        {"m": m, "n": n, "k": k}
        for m, n, k in [
            (1, 1, 1),
            (3, 5, 7),
            (17, 31, 65),
            (127, 129, 131),
            (128, 128, 128),
            (257, 264, 72),
            (1, 512, 300),
            (640, 8, 1025),
            (5, 136, 1032),
            (72, 200, 2056),
        ]
    ],
    "mean_matvec": [
        {"groups": groups, "vectors": vectors, "length": length}
        for groups, vectors, length in [
            (1, 1, 1),
            (1, 1, 1024),
            (3, 5, 7),
            (2, 3, 4),
            (17, 40, 33),
            (65, 31, 64),
            (64, 64, 100),
            (33, 129, 257),
            (130, 17, 260),
            (1, 4097, 36),
            (1000, 3, 12),
            (7, 1000, 1024),
            (129, 65, 1000),
            (300, 40, 1028),
            (257, 130, 513),
            (96, 96, 2052),
        ]
    ],
}
SIZES["linear"] = SIZES["gemm"]
SIZES["grouped"] = [
    {"groups": groups, "m": m, "n": n, "k": k}
    for groups, m, n, k in [
        (1, 1, 1, 1),
        (3, 64, 64, 64),
        (8, 1000, 520, 256),
        (128, 512, 136, 128),
        (300, 1000, 64, 64),
        (40, 30, 200, 104),
        (2, 4097, 72, 320),
        (5, 333, 33, 65),
    ]
]
SIZES["bmm"] = [
    {"batch": batch, "m": m, "n": n, "k": k}
    for batch, m, n, k in [
        (1, 1, 1, 1),
        (3, 64, 64, 64),
        (5, 128, 200, 104),
        (7, 17, 33, 65),
        (2, 256, 136, 256),
        (9, 24, 520, 192),
        (65, 64, 72, 64),
        (4, 1, 128, 512),
        (6, 192, 8, 40),
        (200, 16, 16, 16),
        (3, 512, 384, 128),
        (2, 129, 65, 72),
    ]
]
SIZES["baddbmm"] = SIZES["bmm"]
SIZES["scaled_mm"] = [
    dict(zip("mnk", sizes, strict=True))
    for sizes in [
        *[(1, 1, 1), (3, 5, 7), (16, 8, 16), (35, 37, 150), (130, 72, 144), (64, 264, 400)],
        *[(257, 136, 1040), (200, 520, 272), (8, 8, 128), (513, 264, 16), (16, 1032, 2064), (300, 384, 640)],
        *[
            (1000, 1000, 1008),
            (128, 256, 4096),
            (70, 200, 528),
            (520, 72, 96),
            (24, 2048, 1024),
            (333, 640, 784),
        ],
    ]
]
EXPRESSIONS = {
    "transform": ("2 * y", "x * z - abs(x)", "where(x > y, x * z, tanh(y))"),
    "baddbmm": ("gelu(x * scale + row_bias)", "silu(alpha * x) * row_scale - beta * residual", "x + bias"),
    "quantize": ("silu(gate) * up",),
    "linear": ("gelu(x * scale + row_bias)", "silu(alpha * x) * row_scale - beta * residual", "relu(x)"),
}
"""Of one and several inputs, beside the default and the sum of all."""
FEW_OPTIONS = 2
"""Choices of a kernel's options that are all tried at every size."""


def _options(kernel: KernelSpec) -> list[dict[str, Value]]:
    """Return every choice of a kernel's options; of an element expression the default, and one with all tensors."""
    choices = [
        (*values, " + ".join(kernel.elements[name]), *EXPRESSIONS.get(kernel.name, ()))
        if name in kernel.elements
        else values
        for name, values in kernel.options.items()
    ]
    return [dict(zip(kernel.options, values, strict=True)) for values in itertools.product(*choices)]


def _problems(kernel: KernelSpec, dtype: str) -> list[Problem]:
    """Return all sizes with all options where those are few, else with one after the other."""
    options, sizes = _options(kernel), SIZES[kernel.name]
    pairs = list(itertools.product(sizes, options))
    if len(options) > FEW_OPTIONS:
        start = list(kernel.dtypes[next(iter(kernel.dtypes))]).index(dtype)
        pairs = list(zip(sizes, itertools.islice(itertools.cycle(options), start, None), strict=False))
    return [kernel.problem(size, {"": dtype}, chosen) for size, chosen in pairs]


def _cases() -> list[tuple[str, str, str]]:
    kernels = [load_kernel(name) for name in builtin_kernels()]
    return [
        (kernel.name, variant, dtype)
        for kernel in kernels
        for variant in kernel.variants
        for dtype in kernel.dtypes[next(iter(kernel.dtypes))]
    ]


def _spaces(
    device: LocalDevice, kernel: KernelSpec, variant: str, problems: Iterable[Problem], reasons: list[str]
) -> Iterator[tuple[Problem, SearchSpace]]:
    """Yield the problems that a variant admits, with its space; add why it does not admit the others."""
    for problem in problems:
        if variant in (refused := kernel.usable_variants(problem, device.gpu)[1]):
            reasons.append(refused[variant])
            continue
        try:
            yield problem, SearchSpace.from_kernel(kernel, problem, device.gpu, [variant])
        except SpaceError as error:  # its constraints admit nothing at this size
            reasons.append(str(error))


@pytest.mark.parametrize(("name", "variant", "dtype"), _cases())
def test_right_at_edge_case_sizes(device: LocalDevice, name: str, variant: str, dtype: str) -> None:
    """The default and another configuration at each size: some 8,000 runs of all kernels."""
    kernel = load_kernel(name)
    draw = random.Random(f"{name} {variant} {dtype}")
    wrong, tried, reasons = [], 0, []
    for problem, space in _spaces(device, kernel, variant, _problems(kernel, dtype), reasons):
        chosen = [space.default, space.variants[0].configuration(draw.randrange(len(space)))]
        wrong += [f"{problem} {c}: {m}" for c, m in _measure_all(device, problem, chosen).items()]
        tried += len(chosen)
    if not tried:
        pytest.skip(reasons[-1])
    assert not wrong, "\n".join(wrong)


def _measure_all(
    device: LocalDevice, problem: Problem, chosen: list[Configuration]
) -> dict[Configuration, str]:
    kernel = load_kernel(problem.kernel)
    device.prepare(kernel, problem, seed=7)
    for number, configuration in enumerate(chosen):
        device.submit(number, configuration, lambda: 1.0)  # hopelessly slow: one timed run each is enough
    bad: dict[Configuration, str] = {}
    answered = 0
    while answered < len(chosen):
        for outcome in device.collect(1.0):
            answered += 1
            status = outcome.status
            if status is Status.INVALID_CONFIG:  # ruled out by the compiler's report
                continue
            if not status.ranked:
                bad[outcome.configuration] = f"{outcome.status} {outcome.error}"
    return bad


LAYOUT_SIZES = [
    *[(1, 1, 1), (3, 5, 7), (7, 131, 129), (5, 264, 1032), (8, 2056, 2049), (130, 70, 38), (33, 66, 999)],
    *[(264, 136, 520), (257, 259, 1023), (1000, 520, 72), (512, 640, 1088), (257, 517, 16), (530, 264, 25)],
]
"""Odd ones, less than a tile, more than one; rows of whole vectors, of pairs and of neither in each layout."""
ONE_TILE = ("wgmma_split_k", "wgmma_skinny_m")
"""They have a test of their own."""


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("variant", [name for name in load_kernel("gemm").variants if name not in ONE_TILE])
def test_a_product_is_right_in_every_layout(device: LocalDevice, variant: str, layout: str) -> None:
    gemm, wrong, tried, reason = load_kernel("gemm"), [], 0, ""
    for turn, sizes in enumerate(LAYOUT_SIZES):
        problems = [
            gemm.problem(dict(zip("mnk", sizes, strict=True)), {"": dtype}, {"layout": layout})
            for dtype in gemm.dtypes["input"]
        ]
        refused = {str(problem): gemm.usable_variants(problem, device.gpu)[1] for problem in problems}
        usable = [problem for problem in problems if variant not in refused[str(problem)]]
        if not usable:
            reason = refused[str(problems[0])][variant]
            continue
        problem = usable[turn % len(usable)]
        space = SearchSpace.from_kernel(gemm, problem, device.gpu, [variant])
        rows = random.Random(str(problem)).sample(range(len(space)), min(4, len(space)))
        chosen = [space.default, *(space.variants[0].configuration(row) for row in rows)]
        wrong += [f"{problem} {c}: {m}" for c, m in _measure_all(device, problem, chosen).items()]
        tried += 1
    if not tried:
        pytest.skip(reason)
    assert not wrong, "\n".join(wrong)


EDGE_SIZES = [
    (40, 136, 456), (104, 1048, 4104), (200, 264, 1000), (1000, 520, 72), (72, 200, 2055), (8, 8, 8), (248, 96, 6001),
]  # fmt: skip
"""Rows of 16 bytes in some layouts or all, and tiles that end within C and within k."""


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("variant", ["wgmma_split_k", "wgmma_skinny_m"])
def test_one_tile_a_cluster_is_right_in_every_layout(
    device: LocalDevice, variant: str, layout: str, dtype: str
) -> None:
    gemm = load_kernel("gemm")
    wrong, tried = [], 0
    for sizes in EDGE_SIZES:
        problem = gemm.problem(dict(zip("mnk", sizes, strict=True)), {"": dtype}, {"layout": layout})
        if reason := gemm.usable_variants(problem, device.gpu)[1].get(variant):
            continue
        [space] = SearchSpace.from_kernel(gemm, problem, device.gpu, [variant]).variants
        rows = random.Random(f"{problem} {variant}").sample(range(len(space)), min(12, len(space)))
        tried += len(rows)
        found = _measure_all(device, problem, [space.configuration(row) for row in rows])
        wrong += [f"{problem} {c}: {m}" for c, m in found.items()]
    if not tried:
        pytest.skip(reason)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("sizes", [(300, 1000, 520), (1000, 1000, 1000), (250, 2504, 264)], ids=str)
@pytest.mark.parametrize(
    ("variant", "narrowed"),
    [
        ("wgmma", {"cluster_m": [1], "cluster_n": [4]}),
        ("wgmma", {"cluster_m": [4], "cluster_n": [1]}),
        ("wgmma", {"cluster_m": [2], "cluster_n": [2]}),
        ("wgmma", {"consumers": [3], "block_n": [208, 224, 256], "swap_ab": [False]}),
        ("wgmma", {"consumers": [3], "block_m": [208, 224, 256], "swap_ab": [True]}),
        ("wgmma_skinny_m", {"cluster_m": [4], "cluster_n": [1, 2]}),
        ("wgmma_skinny_m", {"cluster_m": [2], "cluster_n": [1, 2], "cluster_k": [2, 4]}),
    ],
    ids=str,
)
def test_large_clusters_and_wide_tiles_of_three_warpgroups_are_right(
    device: LocalDevice,
    variant: str,
    narrowed: dict[str, list[Value]],
    sizes: tuple[int, int, int],
    layout: str,
) -> None:
    """Also where some blocks of a cluster compute tiles beyond C."""
    gemm = load_kernel("gemm")
    m, n, k = sizes
    m += -m % 8 if layout[0] == "t" else 0  # rows of A are along m
    problem = gemm.problem({"m": m, "n": n, "k": k}, {"": "bfloat16"}, {"layout": layout})
    if device.gpu.cc != 90:
        pytest.skip("needs Hopper")
    [space] = SearchSpace.from_kernel(gemm, problem, device.gpu, [variant], narrowed).variants
    rows = random.Random(str(sizes)).sample(range(len(space)), min(6, len(space)))
    wrong = _measure_all(device, problem, [space.configuration(row) for row in rows])
    assert not wrong, "\n".join(f"{problem} {c}: {m}" for c, m in wrong.items())


@pytest.mark.parametrize(
    ("name", "variant"),
    [(name, variant) for name in ("linear", "baddbmm") for variant in load_kernel(name).variants],
)
def test_right_with_an_output_of_float32(device: LocalDevice, name: str, variant: str) -> None:
    kernel, draw = load_kernel(name), random.Random(f"{name} {variant}")
    problems = [
        kernel.problem(
            sizes,
            {"input": ("bfloat16", "float16")[number % 2], "output": "float32"},
            {
                "layout": ("nt", "nn", "tn", "tt")[number % 4],
                "op": ("x", *EXPRESSIONS[name])[number % 4],
            },
        )
        for number, sizes in enumerate(SIZES[name][:12])
    ]
    wrong, tried, reasons = [], 0, []
    for problem, whole in _spaces(device, kernel, variant, problems, reasons):
        [space] = whole.variants
        rows = draw.sample(range(len(space)), min(3, len(space)))
        found = _measure_all(device, problem, [space.configuration(row) for row in rows])
        wrong += [f"{problem} {c}: {m}" for c, m in found.items()]
        tried += len(rows)
    if not tried:
        pytest.skip(reasons[-1])
    assert not wrong, "\n".join(wrong)
