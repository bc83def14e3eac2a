"""What the default configuration, or the user's own kernel, makes of a problem's inputs, where that is right."""

from __future__ import annotations

from contextlib import closing

from tuner.children.measuring import ReferenceData
from tuner.core.errors import KernelError
from tuner.gpu.buffers import ProblemData
from tuner.gpu.candidate import load
from tuner.gpu.driver import Graph
from tuner.kernel.reference import Expected, as_results


def expected_of_kernel(data: ProblemData, reference: ReferenceData) -> dict[str, Expected]:
    """Return what other configurations must compute, in the shape that the kernel means.

    Args:
        data: the tensors, whose outputs are overwritten.
        reference: with a kernel that writes the outputs' own dtypes.

    Raises:
        KernelError: it leaves outputs as they were, or writes where it must not.
        DriverFailure: it cannot be launched, or ruined the context.
    """
    assert reference.kernel is not None
    data.poison()
    data.seal()
    context = data.helpers.context
    with closing(load(data, reference.kernel)) as loaded, closing(Graph(context)) as graph:
        data.add_restore(graph)
        loaded.add_to(graph, 0)
        graph.launch()
        context.synchronize()
    if damage := data.damage():
        raise KernelError(f"{reference.rounded} {damage}", "it is the reference: correct it")
    return {
        tensor.name: as_results(tensor.name, tensor.dtype, data.download(tensor), reference)
        for tensor in data.outputs
    }
