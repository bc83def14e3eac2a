"""Cooperative groups: what a thread asks its group for, as CUDA's own variables say it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tuner.kernel.source.tree import text_of, tree_of, walk

if TYPE_CHECKING:
    from tree_sitter import Node

_MADE = re.compile(
    r"\b(\w+)\s*[=({]\s*(?:\w+\s*::\s*)*(this_grid|this_thread_block|tiled_partition)\b\s*(?:<\s*(\w+)\s*>)?"
)
_CALL = re.compile(
    r"(?:\b(\w+)|(?:\b\w+\s*::\s*)*\b(this_grid|this_thread_block)\s*\(\s*\))\s*\.\s*(\w+)\s*\(\s*\)"
)
_ASKED = {
    "this_thread_block": {
        "thread_rank": "threadIdx.x",
        "size": "blockDim.x",
        "num_threads": "blockDim.x",
        "thread_index": "threadIdx",
        "group_index": "blockIdx",
        "group_dim": "blockDim",
        "dim_threads": "blockDim",
    },
    "this_grid": {
        "thread_rank": "(blockIdx.x * blockDim.x + threadIdx.x)",
        "size": "(gridDim.x * blockDim.x)",
        "num_threads": "(gridDim.x * blockDim.x)",
        "block_rank": "blockIdx.x",
        "block_index": "blockIdx",
        "num_blocks": "gridDim.x",
        "group_dim": "gridDim",
        "dim_blocks": "gridDim",
    },
    "tiled_partition": {
        "thread_rank": "(threadIdx.x % {0})",
        "size": "{0}",
        "num_threads": "{0}",
        "meta_group_rank": "(threadIdx.x / {0})",
        "meta_group_size": "(blockDim.x / {0})",
    },
}


def is_cooperative(code: str) -> bool:
    """Return whether code synchronises its grid, all blocks of which then have to be on the GPU at once."""
    grids = re.findall(r"\bgrid_group (\w+)|\b(\w+) = [\w:]*this_grid\(", code)
    named = "|".join([r"this_grid\(\)", *(name for pair in grids for name in pair if name)])
    return bool(re.search(rf"\b(?:{named})\.sync\(|\bsync\((?:{named})\)", code))


def without_groups(body: Node | None) -> Node | None:
    """Return code of one-dimensional blocks in which groups' ranks and sizes are those of threads and blocks.

    A group that a variable stands for, and one that is asked where it is made. Code of blocks with more dimensions is
    returned as it is: ranks count through all of them.
    """
    text = text_of(body) if body is not None else ""
    if not re.search(r"\bthis_(?:grid|thread_block)\b|\btiled_partition\b", text):
        return body
    if re.search(r"\bthread(?:Idx|_index\(\))\s*\.\s*[yz]", text):
        return body
    groups = {name: (made, lanes) for name, made, lanes in _MADE.findall(text)}

    def asked(call: re.Match[str]) -> str:
        kind, lanes = groups.get(call[1], ("", "")) if call[1] else (call[2], "")
        answer = _ASKED.get(kind, {}).get(call[3])
        return call[0] if answer is None or ("{" in answer and not lanes) else answer.format(lanes)

    text = _CALL.sub(asked, text)
    return next(walk(tree_of(f"void kernel() {text}"), "compound_statement"), body)
