"""The child that asks NVIDIA's matmul heuristics: a closed library, whose faults must cost a search nothing."""

from __future__ import annotations

import os
from typing import Any

from tuner.core.messages import Channel, Record
from tuner.core.processes import ParentPipe, limit_memory

MEMORY_LIMIT_BYTES = 4 << 30
_FIELDS = (
    *("cta_tile_m", "cta_tile_n", "cta_tile_k", "warp_tile_m", "warp_tile_n", "warp_tile_k"),
    *("stages", "cluster_m", "cluster_n", "split_k", "swizzle_factor", "cta_order"),
)
"""The library's names of a :class:`Proposal`'s fields, in their order."""
_kept: list[Any] = []
"""The library's objects, never destroyed: version 0.1.0.27 can crash while doing so."""


class ProposalRequest(Record, frozen=True):
    """A matrix product, and how many proposals are wanted for it."""

    m: int
    n: int
    k: int
    layout: str
    precision: str
    target: str
    gpu: str
    count: int


class Proposal(Record, frozen=True):
    """How CUTLASS would be set up; a kernel's file knows these names (``[heuristics.matmul]``)."""

    cta_m: int
    cta_n: int
    cta_k: int
    warp_m: int
    warp_n: int
    warp_k: int
    load_stages: int
    cluster_size_m: int
    cluster_size_n: int
    parts_of_k: int
    grid_swizzle: int
    column_order: int


class Proposals(Record, frozen=True):
    """What the library takes to be fastest comes first."""

    proposals: tuple[Proposal, ...] = ()
    error: str = ""
    """What it raised."""


PROPOSING: Channel[ProposalRequest, Proposals] = Channel(ProposalRequest, Proposals)


def proposals(request: ProposalRequest) -> Proposals:
    """Return the library's proposals for a product, the fastest by its own model first."""
    import nvMatmulHeuristics as library  # noqa: N813

    layout = library.NvMatmulHeuristicsMatmulLayout[request.layout]
    heuristics = library.NvMatmulHeuristicsInterfaceEx(
        backend=library.NvMatmulHeuristicsTarget[request.target],
        flags=library.NvMatmulHeuristicsFlags.PERF_MODEL_BASED_AUTO_TUNING,
        # Named, because the library would otherwise open a CUDA context to look for one.
        gpu=library.NvMatmulHeuristicsNvidiaGpu[request.gpu],
    )
    _kept.append(heuristics)
    problem = heuristics.makeNvMatmulHeuristicsProblem(request.m, request.n, request.k, layout)
    answers = heuristics.get(problem, request.count, request.precision)
    answers.sort(key=lambda answer: answer["runtime"])
    return Proposals(tuple(_proposal(answer["kernel"]) for answer in answers))


def _proposal(kernel: Any) -> Proposal:
    return Proposal(*(int(getattr(kernel, name)) for name in _FIELDS))


def main() -> None:
    """Answer one request."""
    pipe = ParentPipe(PROPOSING)
    limit_memory(MEMORY_LIMIT_BYTES)
    if (request := pipe.receive()) is None:
        return
    try:
        reply = proposals(request)
    except Exception as error:  # noqa: BLE001 - the search goes on without proposals
        reply = Proposals(error=" ".join(f"{type(error).__name__}: {error}".split()))
    pipe.send(reply)
    os._exit(0)


if __name__ == "__main__":
    main()
