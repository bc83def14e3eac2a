"""What launches pass, compared with what the kernels take: count, kind and size of each argument."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tuner.children.compilation import RenderRequest
from tuner.children.signatures import SIGNATURES, KernelSource, Parameter, SignatureRequest, Signatures
from tuner.core.model import Configuration, Value
from tuner.core.processes import Child, ChildDied, UnsendableError
from tuner.inspect.check.findings import Report
from tuner.kernel.plan import tensors_of
from tuner.kernel.render import render_launch
from tuner.kernel.spec import KernelSpec
from tuner.kernel.variant_spec import LaunchSpec
from tuner.runtime.dtypes import ITEMSIZE
from tuner.runtime.launch_limits import NULL_POINTER
from tuner.runtime.launches import Launch

DEADLINE_S = 120.0
"""For the share of one child."""
SHARE = 8
"""Kernels that are worth a child: it starts in a quarter of a second, and looks at one in 0.04 s."""
TENSOR_MAP_BYTES = 128
FLOATS = ("float64", "float32")


@dataclass(frozen=True)
class PlannedCall:
    """A launch as it is planned, and the source of its kernel."""

    key: tuple[str | int, ...]
    spec: LaunchSpec
    launch: Launch
    source: str
    request: RenderRequest

    @property
    def passed(self) -> tuple[tuple[str, str], ...]:
        """Kind and dtype or name of each argument: calls with the same need no second look."""
        return tuple((kind, name) for kind, name, _ in self.launch.arguments)


def check_signatures(kernel: KernelSpec, calls: Sequence[PlannedCall], jobs: int, report: Report) -> set[str]:
    """Report arguments that do not fit their parameters, and return the variants whose they are.

    Args:
        kernel: whose launches they are.
        calls: of all configurations; one of each kind is looked at.
        jobs: number of processes, at most.
        report: gets the findings.
    """
    chosen = list({(call.key, call.passed): call for call in calls}.values())
    jobs = min(jobs, -(-len(chosen) // SHARE))
    shares = [share for number in range(jobs) if (share := chosen[number::jobs])]
    with ThreadPoolExecutor(max(1, len(shares))) as threads:
        answers = threads.map(lambda share: _ask(kernel, share, len(shares)), shares)
    unfit: set[str] = set()
    for share, answer in zip(shares, answers, strict=True):
        if isinstance(answer, str):
            report.note(f"parameters were not compared with arguments: {answer}")
            continue
        for call, parameters in zip(share, answer.parameters, strict=True):
            if parameters is None:
                name = call.spec.template.name
                report.note(f"{name}: parameters were not compared: its entry stands for several kernels")
            else:
                before = len(report.findings)
                _compare(kernel, call, parameters, report)
                if len(report.findings) > before:
                    unfit.add(call.request.configuration.variant)
    return unfit


def _ask(kernel: KernelSpec, calls: Sequence[PlannedCall], children: int) -> Signatures | str:
    """Return the parameters of the calls' kernels, or why there is no answer."""
    sources = []
    for call in calls:
        request = call.request
        configuration = Configuration("", ()) if request.reference else request.configuration
        _, entry = render_launch(kernel, call.spec, request.problem, request.gpu, configuration)
        folders = (call.spec.template.parent, *kernel.include)
        sources.append(KernelSource(call.source, entry, request.gpu.arch, kernel.compile_options, folders))
    child = Child("tuner.children.signature_worker", SIGNATURES, [str(children)])
    try:
        child.send(SignatureRequest(tuple(sources)))
        answer = child.receive(DEADLINE_S)
    except (ChildDied, UnsendableError) as error:
        return str(error)
    finally:
        child.kill()
    return f"no answer after {DEADLINE_S:g} s" if answer is None else answer


def _compare(kernel: KernelSpec, call: PlannedCall, parameters: Sequence[Parameter], report: Report) -> None:
    arguments = call.launch.arguments
    entry = call.spec.entry
    key = (*call.key, "arguments")
    if len(arguments) != len(parameters):
        problem = f"{entry} takes {len(parameters)} parameters, and the launch passes {len(arguments)}"
        report.add(key, problem, "make arguments and parameters match")
        return
    dtypes = dict(_dtypes(kernel, call))
    for number, (argument, parameter) in enumerate(zip(arguments, parameters, strict=True), 1):
        passed = _misfit(argument, parameter, dtypes)
        if passed:
            problem = f"argument {number} of {entry} is {passed}, but the parameter is {parameter}"
            report.add(key, problem, "correct the order, the dtype or the parameter")


def _dtypes(kernel: KernelSpec, call: PlannedCall) -> Iterator[tuple[str, str]]:
    """Return the dtypes of tensors and scratch, and those that only a reference gets."""
    problem, gpu = call.request.problem, call.request.gpu
    for tensor in tensors_of(kernel, problem, gpu):
        is_reference_output = call.request.reference and tensor.role != "input"
        yield tensor.name, "float64" if is_reference_output else tensor.dtype
        yield f"{tensor.name}_magnitude", "float32"
        yield f"{tensor.name}_initial", tensor.dtype
    if not call.request.reference:
        for scratch in kernel.variants[call.request.configuration.variant].scratch:
            yield scratch.name, problem.dtypes.get(scratch.dtype, scratch.dtype)


def _misfit(argument: tuple[str, str, Value], parameter: Parameter, dtypes: dict[str, str]) -> str:
    """Return what is passed, if it does not fit; else an empty text."""
    kind, name, _ = argument
    if kind == "buffer":
        dtype = dtypes[name]
        fits = parameter.kind == "pointer" and _points_to(parameter, dtype)
        return "" if fits else f"the tensor {name} of {dtype}"
    if argument == NULL_POINTER and parameter.kind == "pointer":
        return ""
    if kind == "map":
        fits = parameter.kind == "other" and parameter.size_bytes == TENSOR_MAP_BYTES
        return "" if fits else f"a tensor map of {name}, of {TENSOR_MAP_BYTES} bytes"
    if kind == "cluster_order":
        return "" if parameter.kind == "other" else "a table of places"
    wanted = "float" if name in FLOATS else "integer" if "int" in name else "other"
    fits = parameter.kind == wanted and parameter.size_bytes == ITEMSIZE[name]
    return "" if fits else f"a number of {name}"


def _points_to(parameter: Parameter, dtype: str) -> bool:
    """Return whether a pointer may be meant for a tensor: one to a float, or to a class of two bytes, is for that."""
    if parameter.target_kind == "float":
        return dtype == {4: "float32", 8: "float64"}[parameter.target_bytes]
    if parameter.target_kind == "other" and parameter.target_bytes == 2:
        return ITEMSIZE[dtype] == 2
    return True
