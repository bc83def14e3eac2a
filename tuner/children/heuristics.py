"""What the head and the child that loads NVIDIA's matmul heuristics say to each other, in the library's words."""

from __future__ import annotations

from tuner.children.record import Message, Record
from tuner.core.processes import Channel


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


class Proposals(Message, frozen=True):
    """What the library takes to be fastest comes first."""

    proposals: tuple[Proposal, ...]


class ProposalsFailed(Message, frozen=True):
    """The library raised an error."""

    error: str


PROPOSING: Channel[ProposalRequest, Proposals | ProposalsFailed] = Channel(
    ProposalRequest, Proposals | ProposalsFailed
)
