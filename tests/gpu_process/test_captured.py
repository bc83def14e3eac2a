"""What a captured call may not have in its graph, nor do beside it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from cuda.bindings import driver as real

from tuner.core.errors import TunerError
from tuner.gpu import captured as module
from tuner.gpu.captured import Call, capture

KIND = real.CUgraphNodeType
NODES = {
    "kernel": KIND.CU_GRAPH_NODE_TYPE_KERNEL,
    "host": KIND.CU_GRAPH_NODE_TYPE_HOST,
    "alloc": KIND.CU_GRAPH_NODE_TYPE_MEM_ALLOC,
}


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Play the driver with graphs that are lists of nodes: a kind, or another graph."""
    ok = real.CUresult.CUDA_SUCCESS

    def kind(node: Any) -> Any:
        return ok, KIND.CU_GRAPH_NODE_TYPE_GRAPH if isinstance(node, list) else NODES[node]

    driver = SimpleNamespace(
        CUgraphNodeType=KIND,
        cuGraphGetNodes=lambda graph, count: (ok, graph[:count], len(graph)),
        cuGraphNodeGetType=kind,
        cuGraphChildGraphNodeGetGraph=lambda node: (ok, node),
    )
    monkeypatch.setattr(module, "cu", driver)


@pytest.mark.usefixtures("graphs")
@pytest.mark.parametrize(
    ("graph", "part"),
    [
        ([], "queues nothing"),
        (["kernel", "alloc"], "cudaMallocAsync"),
        (["kernel", "host"], "calls a function of the host while it runs"),
        ([["kernel", ["kernel", "host"]]], "calls a function of the host while it runs"),
    ],
)
def test_nodes_that_are_refused(graph: Any, part: str) -> None:
    with pytest.raises(TunerError, match=part):
        module._require_work(graph)


@pytest.mark.usefixtures("graphs")
def test_kernels_are_what_is_wanted() -> None:
    module._require_work(["kernel", ["kernel", ["kernel"]]])


def test_a_call_that_sets_a_part_of_the_l2_aside() -> None:
    context: Any = SimpleNamespace(stream=0, synchronize=lambda: None, set_aside=1 << 20)
    with pytest.raises(TunerError, match=r"mine\.py: it sets a part of the L2 aside; what lies there"):
        capture(context, [Call("mine.py", "none", lambda: None)])
