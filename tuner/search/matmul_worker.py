"""The child that asks NVIDIA's matmul heuristics: a closed library, whose faults must cost a search nothing."""

from __future__ import annotations

import os
from typing import Any

from tuner.children.heuristics import PROPOSING, Proposal, ProposalRequest, Proposals, ProposalsFailed
from tuner.core.processes import ParentPipe, limit_memory

MEMORY_LIMIT_BYTES = 4 << 30
_FIELDS = (
    *("cta_tile_m", "cta_tile_n", "cta_tile_k", "warp_tile_m", "warp_tile_n", "warp_tile_k"),
    *("stages", "cluster_m", "cluster_n", "split_k", "swizzle_factor", "cta_order"),
)
"""The library's names of a :class:`Proposal`'s fields, in their order."""
_kept: list[Any] = []
"""The library's objects, never destroyed: version 0.1.0.27 can crash while doing so."""


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
        reply: Proposals | ProposalsFailed = proposals(request)
    except Exception as error:  # noqa: BLE001 - the search goes on without proposals
        reply = ProposalsFailed(" ".join(f"{type(error).__name__}: {error}".split()))
    pipe.send(reply)
    os._exit(0)


if __name__ == "__main__":
    main()
