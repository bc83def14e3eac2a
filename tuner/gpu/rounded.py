"""What the default configuration, or the user's own kernel, makes of a problem's inputs, where that is right."""

from __future__ import annotations

from contextlib import closing

from tuner.children.measuring import ReferenceData
from tuner.core.errors import KernelError
from tuner.gpu.baselines import open_call
from tuner.gpu.buffers import ProblemData
from tuner.gpu.candidate import Timed, load
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
    data.seal()
    context, kernel = data.helpers.context, reference.kernel
    opened: Timed = load(data, kernel) if kernel.call is None else open_call(context, data, kernel.call)
    with closing(opened) as timed:
        data.poison()
        with context.launched() as graph:
            data.add_restore(graph)
            timed.add_to(graph, 0)
        timed.deliver(0)
    if damage := data.damage():
        raise KernelError(f"{reference.rounded} {damage}", "it is the reference: correct it")
    return {
        tensor.name: as_results(tensor.name, tensor.dtype, data.download(tensor), reference)
        for tensor in data.outputs
    }
