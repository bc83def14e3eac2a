"""What the default configuration makes of a problem's inputs, where a kernel's file says that this is right."""

from __future__ import annotations

from contextlib import closing

from tuner.children.measuring import Candidate
from tuner.core.errors import KernelError
from tuner.gpu.buffers import ProblemData
from tuner.gpu.candidate import load
from tuner.gpu.driver import Graph
from tuner.kernel.reference import Expected, as_results


def expected_of_default(data: ProblemData, candidate: Candidate, terms: int) -> dict[str, Expected]:
    """Return what other configurations must compute, in the shape that the kernel means.

    Args:
        data: the tensors, whose outputs are overwritten.
        candidate: the default configuration.
        terms: of a sum.

    Raises:
        KernelError: it leaves outputs as they were, or writes where it must not.
        DriverFailure: it cannot be launched, or ruined the context.
    """
    data.poison()
    data.seal()
    context = data.helpers.context
    with closing(load(data, candidate)) as loaded, closing(Graph(context)) as graph:
        data.add_restore(graph)
        loaded.add_to(graph, 0)
        graph.launch()
        context.synchronize()
    if damage := data.damage():
        raise KernelError(f"the default configuration {damage}", "it is the reference: correct it")
    return {
        tensor.name: as_results(tensor.name, tensor.dtype, data.download(tensor), terms)
        for tensor in data.outputs
    }
