"""Initial configurations from NVIDIA's matmul heuristics: the nearest to what they propose for a product.

The package (``nvidia-matmul-heuristics`` on PyPI) is optional. It names tiles, stages and clusters for the kernels of
CUTLASS; ``[heuristics.matmul]`` in a kernel's file names the parameters here that they correspond to.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import math
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import structs

from tuner.core.errors import ExpressionError, TunerError, UsageError
from tuner.core.messages import UnsendableError
from tuner.core.model import Configuration, Gpu, Problem, Value
from tuner.core.processes import ChildDied, ask_once
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec, MatmulSpec, ProposalSpec, evaluated
from tuner.search.matmul_worker import PROPOSING, Proposal, ProposalRequest

PACKAGE = "nvidia-matmul-heuristics"
MODULE = "nvMatmulHeuristics"
DEADLINE_S = 10.0
"""An answer takes a few milliseconds, and the process that gives it some tenths of a second."""
REQUESTED_PROPOSALS = 16
"""More than are tried: several differ only in what this tuner's kernels do not have, such as the warps' tiles."""
MAX_PROPOSALS = 4
"""Different configurations that are tried."""
MAX_SIZE = 2**31 - 1

LETTERS = {"float16": "H", "bfloat16": "T", "float32": "S", "float64": "D"}
"""The library's letters for dtypes."""

GPUS: Mapping[str, tuple[int, int]] = {
    "A100_SXM_80GB": (80, 108),
    "A100_PCIE_80GB": (80, 108),
    "A30_PCIE": (80, 56),
    "A10_PCIE": (86, 72),
    "A40_PCIE": (86, 84),
    "RTX_3090": (86, 82),
    "RTX_A6000": (86, 84),
    "L20": (89, 92),
    "L40": (89, 142),
    "L40S": (89, 142),
    "L4": (89, 58),
    "RTX_4090": (89, 128),
    "RTX_6000_ADA": (89, 142),
    "H100_SXM": (90, 132),
    "H100_PCIE": (90, 114),
    "H100_NVL": (90, 132),
    "H200_SXM": (90, 132),
    "H20_SXM": (90, 78),
    "B200": (100, 148),
    "GB200_NVL": (100, 152),
    "GB300_NVL": (103, 152),
    "RTX_5080": (120, 84),
    "RTX_5090": (120, 170),
    "RTX_PRO_6000": (120, 188),
}
"""The GPUs that the library knows, by its names, with compute capability times ten and number of SMs (approximate: only
to choose among them)."""


def installed() -> bool:
    """Return whether the package is installed; it is not imported."""
    return importlib.util.find_spec(MODULE) is not None


def require() -> None:
    """Require the package.

    Raises:
        UsageError: it is not installed.
    """
    if not installed():
        raise UsageError(f"{PACKAGE} is not installed", "in the checkout: pip install '.[heuristics]'")


def source() -> str:
    """Return the package's name and version."""
    try:
        return f"{PACKAGE} {importlib.metadata.version(PACKAGE)}"
    except importlib.metadata.PackageNotFoundError:
        return PACKAGE


def propose(kernel: KernelSpec, problem: Problem, gpu: Gpu, space: SearchSpace) -> list[Configuration]:
    """Return the configurations nearest to the first few proposals, the most promising first.

    Args:
        kernel: with ``[heuristics.matmul]``; one without it, or a problem for which it does not hold, has no proposals.
        problem: what is computed.
        gpu: the library is asked about the most similar one that it has.
        space: holds the configurations.

    Raises:
        UsageError: the package is not installed.
        TunerError: it gave no answer.
    """
    spec, names = kernel.matmul, kernel.environment(problem, gpu)
    if spec is None or (spec.when is not None and not spec.when.evaluate(names)):
        return []
    request = _request(spec, names, gpu)
    if request is None:
        return []
    require()
    proposed: dict[Configuration, None] = {}
    for proposal in _ask(request):
        configuration = nearest_configuration(spec.into, {**names, **structs.asdict(proposal)}, space)
        if configuration is not None:
            proposed[configuration] = None
        if len(proposed) == MAX_PROPOSALS:
            break
    return list(proposed)


def nearest_configuration(
    into: Sequence[ProposalSpec], names: Mapping[str, Any], space: SearchSpace
) -> Configuration | None:
    """Return the configuration nearest to a proposal, of the first variant that takes it; None if none does.

    Args:
        into: the ways into variants.
        names: for expressions: the problem, the device's limits, the proposal.
        space: holds the variants.
    """
    variants = {variant.name: variant for variant in space.variants}
    for way in into:
        if way.variant not in variants:
            continue
        try:
            if way.when is not None and not way.when.evaluate(names):
                continue
            wanted: dict[str, Value] = {n: evaluated(given, names) for n, given in way.parameters.items()}
        except ExpressionError:
            continue  # such as a logarithm that the proposal has no number for
        variant = variants[way.variant]
        return variant.configuration(variant.nearest_to(wanted))
    return None


def similar_gpu(gpu: Gpu) -> str | None:
    """Return the library's name of the most similar GPU of the same compute capability; None if there is none."""
    words = set(gpu.name.upper().replace("-", " ").split())
    alike = {name: sms for name, (cc, sms) in GPUS.items() if cc == gpu.cc}
    return min(
        alike,
        key=lambda name: (
            -len(words & set(name.split("_"))),
            abs(math.log2(max(gpu.sm_count, 1) / alike[name])),
        ),
        default=None,
    )


def _request(spec: MatmulSpec, names: Mapping[str, Any], gpu: Gpu) -> ProposalRequest | None:
    """Return the problem in the library's terms; None if it has none for it."""
    sizes = {name: int(size.evaluate(names)) for name, size in spec.sizes.items()}
    dtypes = [
        str(names.get(spec.dtypes[role], spec.dtypes[role])) for role in ("input", "accumulate", "output")
    ]
    library_gpu = similar_gpu(gpu)
    if library_gpu is None or any(dtype not in LETTERS for dtype in dtypes):
        return None
    if not all(1 <= size <= MAX_SIZE for size in sizes.values()):
        return None
    layout = "".join("T" if spec.transposed[name].evaluate(names) else "N" for name in ("a", "b"))
    return ProposalRequest(
        **sizes,
        layout=f"{layout}_ROW_MAJOR",
        precision="".join(LETTERS[dtype] for dtype in dtypes),
        # CUTLASS 3: kernels with TMA and clusters; CUTLASS 2: kernels without.
        target="CUTLASS3" if gpu.cc // 10 in (9, 10) else "CUTLASS",
        gpu=library_gpu,
        count=REQUESTED_PROPOSALS,
    )


def _ask(request: ProposalRequest) -> tuple[Proposal, ...]:
    remedy = "leave it out with --initial kernel"
    try:
        reply = ask_once("tuner.search.matmul_worker", PROPOSING, request, DEADLINE_S)
    except ChildDied as death:
        raise TunerError(f"{source()} died ({death.reason})", remedy) from None
    except UnsendableError as error:
        raise TunerError(f"{source()} cannot be asked: {error}", remedy) from None
    if reply is None:
        raise TunerError(f"{source()} gave no answer in {DEADLINE_S:g} s", remedy)
    if reply.error:
        raise TunerError(f"{source()} failed: {reply.error}", remedy)
    return reply.proposals
