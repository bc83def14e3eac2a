"""A tuned kernel as a function: arrays in, arrays out, launched on the caller's stream."""

from __future__ import annotations

import importlib
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core.errors import CallError, DeviceError
from .arrays import ArrayLayout, one_or_all
from .dispatch import Match, Policy
from .driver import DriverFailure, capture_id, failing_as
from .entries import Manifest
from .gpu_plans import GpuPlans
from .interpret import check_sizes, scalar_values
from .libraries import DLPACK_LIBRARY, Library, library_of, stream_handle
from .matching import PreparedCall, available, computations_with, match

if TYPE_CHECKING:
    from .torch_ops import TorchFunction

MOST_CALLS = 4096
"""Kinds of calls (shapes, dtypes, strides) that are kept ready; beyond it, the oldest goes."""


@dataclass(frozen=True)
class PlanChoice:
    """Which configuration runs a problem on a GPU, and why."""

    variant: str
    parameters: Mapping[str, int | float | bool | str]
    match: Match
    """How well it fits: exact, portfolio, nearest, other GPU or default."""
    tuned_at: Mapping[str, int] | None
    """The sizes at which it won; None for a default, and for a portfolio."""
    expected_slowdown: float | None
    """Against the best for this problem; None if nothing is known of it."""
    workspace_bytes: int
    """Memory that it needs on the GPU besides the arrays."""
    reason: str


class Operation:
    """A tuned kernel that can be called with arrays of any library that speaks DLPack.

    It is launched on the current stream of the library of the first array, and does not wait for the GPU; with JAX it
    does, whose streams have no names and whose arrays must not change once they are seen. Arrays of another library
    are read by DLPack, which orders that library's work before the launch; what it launches afterwards must wait for
    the stream itself.

    Under stream capture only problems are launched that :meth:`warm` or an earlier call has prepared. Keep the
    operation as long as the graphs that it was captured in: they use its memory and its code.

    Threads may call it at the same time.

    Attributes:
        kept: what is left to do for kinds of calls that were prepared.

    Args:
        manifest: which configurations there are.
        cubin: gives a cubin by its name; called once for each name, carveout and GPU.
        policy: which configurations may run a problem (:class:`tuner.runtime.dispatch.Policy`).
        dtypes: which computations are meant, where arrays alone do not tell, by role: ``{"accumulate": "float32"}``.
        options: likewise: ``{"op": "sum"}``.

    Raises:
        CallError: there is no such policy or computation.
    """

    def __init__(
        self,
        manifest: Manifest,
        cubin: Callable[[str], bytes],
        *,
        policy: str = Policy.NEAREST_VALID,
        dtypes: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if policy not in list(Policy):
            raise CallError(f"there is no policy {policy!r}", f"choose from: {', '.join(Policy)}")
        self._manifest, self._cubin, self._policy = manifest, cubin, policy
        self._meant = {**(dtypes or {}), **(options or {})}
        self._computations = computations_with(manifest, self._meant)
        self._lock = threading.Lock()
        self._gpus: dict[int, GpuPlans] = {}
        self.kept: dict[tuple[Any, ...], Any] = {}
        self._torch: dict[object, TorchFunction] = {}
        # Not at the interpreter's exit: then the driver frees everything, and may be gone already.
        self._finalizer = weakref.finalize(self, _free, self._gpus)
        self._finalizer.atexit = False

    @property
    def name(self) -> str:
        """The kernel's name."""
        return self._manifest.kernel

    def __repr__(self) -> str:
        winners = len(self._manifest.winners)
        return f"<tuned {self.name}: {self._manifest.summary}; winners: {winners}, policy: {self._policy!s}>"

    def __call__(
        self,
        *arrays: Any,
        out: Any = None,
        stream: Any = None,
        sizes: Mapping[str, int] | None = None,
        **scalars: float,
    ) -> Any:
        """Launch the kernel; return its output, or a tuple of several.

        Args:
            arrays: on one GPU, in the kernel's order, those that it changes in place among them. A matrix that a
                computation takes transposed is column-major: ``op(x, w.T)``. None for one that a problem lacks.
            out: where the outputs go, one or a tuple; by default they are allocated by the library of the first array.
                Products can also write into slices of larger matrices: ``out=big[:, 128:640]``.
            stream: where it is launched: a handle, or a stream of torch, CuPy or cuda.core; by default the current one.
            sizes: those that no shape tells.
            scalars: numbers instead of the kernel's own, by name.

        Raises:
            CallError: the arrays, sizes or scalars are not what the kernel takes; nothing was launched.
            BundleError: the bundle is damaged, or does not fit this driver or GPU; nothing was launched.
            DeviceError: the driver refuses.
        """
        outs = () if out is None else tuple(out) if isinstance(out, (tuple, list)) else (out,)
        passed = (*arrays, *outs)
        first = next((array for array in passed if array is not None), None)
        if first is None:
            raise CallError(f"{self.name} is called without arrays", "pass its inputs, or out=")
        library = library_of(first)
        handle = None if stream is None else stream_handle(stream)
        if sizes:
            check_sizes(self._manifest, sizes, every=False)
        addresses: list[int] = []
        read: list[Any] = []
        for array in passed:
            if array is None:
                read.append(None)
                continue
            if library_of(array) is library:
                address, what = library.read(array, handle)
            else:  # by DLPack: its library orders its work before ours
                on = handle
                if on is None:
                    like = next(what for what in read if what is not None)
                    on = library.stream(library.layout(first, like).device)
                address, what = DLPACK_LIBRARY.read(array, on)
            addresses.append(address)
            read.append(what)
        key = (len(arrays), out is None, *read, *(sorted(sizes.items()) if sizes else ()))
        call = self.kept.get(key)
        if call is None:
            layouts = [
                None
                if array is None
                else (library if library_of(array) is library else DLPACK_LIBRARY).layout(array, what)
                for array, what in zip(passed, read, strict=True)
            ]
            outs_given = None if out is None else layouts[len(arrays) :]
            call = self.prepare_call(library, layouts[: len(arrays)], outs_given, handle, sizes or {})
            self.keep(key, call)
        if scalars:
            scalars = self.scalars(call, scalars)
        if out is None:
            outs = tuple(call.allocated(library, first, handle))
            addresses += [library.read(array, handle)[0] for array in outs]
        call.check(addresses)
        if handle is None:
            handle = library.stream(call.gpu.context.index)
        self.launch(call, addresses, scalars, handle)
        if library.waits:
            with failing_as(f"{self.name} failed"):
                call.gpu.context.wait(handle)
        return one_or_all([*(arrays[number] for number in call.changed), *outs])

    def scalars(self, call: PreparedCall, given: Mapping[str, float]) -> dict[str, float]:
        """Return numbers for a call as their dtypes hold them; errors as of :func:`scalar_values`."""
        return scalar_values(self._manifest.computations[call.computation], given)

    def launch(
        self, call: PreparedCall, addresses: Sequence[int], scalars: Mapping[str, float], stream: int
    ) -> None:
        """Launch a prepared call.

        Raises:
            DeviceError: the driver refuses.
        """
        try:
            call.run(addresses, scalars, stream)
        except DriverFailure as failure:
            raise DeviceError(f"{self.name} cannot be launched: {failure}") from None

    def keep(self, key: tuple[Any, ...], ready: Any) -> None:
        """Keep what was prepared for a kind of call."""
        with self._lock:
            while len(self.kept) >= MOST_CALLS:
                del self.kept[next(iter(self.kept))]
            self.kept[key] = ready

    def prepare_call(
        self,
        library: Library,
        layouts: Sequence[ArrayLayout | None],
        written: Sequence[ArrayLayout | None] | None,
        handle: int | None,
        sizes: Mapping[str, int],
    ) -> PreparedCall:
        """Return what is left to do for arrays of some layouts.

        Args:
            library: of the arrays.
            layouts: of the inputs.
            written: of the outputs; None if they are allocated.
            handle: the stream; None for the library's current one.
            sizes: those that no shape tells.

        Raises:
            CallError: they are not what the kernel takes, or the stream is captured and this was not prepared.
            BundleError: the bundle is damaged, or does not fit this driver or GPU.
            DeviceError: the driver refuses.
        """
        if written is not None and None in written:
            raise CallError("an output is None", "give an array for each output, or no out=")
        gpu = self._gpu(self._device([*layouts, *(written or [])]))
        meant = match(self._manifest, self._computations, layouts, written, sizes, gpu.context.limits)
        for tensor, layout in zip(
            (*meant.inputs, *meant.outputs), (*layouts, *(written or [])), strict=False
        ):
            if tensor is not None and layout is not None and layout.read_only and tensor.role != "input":
                raise CallError(f"{tensor.name} is written, and its array is read-only", "pass another array")
        shapes = [tensor.shape for tensor in meant.outputs]
        tensors = [tensor for tensor in (*meant.inputs, *meant.outputs) if tensor is not None]
        apart = any(tensor.name in meant.strides and tensor.shape in shapes for tensor in tensors)
        plan = gpu.ready(meant.computation, meant.sizes, apart=apart)
        if plan is None:
            self._refuse_capture(gpu, library.stream(gpu.context.index) if handle is None else handle)
            plan = gpu.prepare(meant.computation, meant.sizes, self._policy, apart=apart)
        return PreparedCall(meant, gpu, plan, written is None)

    def _device(self, layouts: Iterable[ArrayLayout | None]) -> int:
        """Return the number of the GPU that all arrays are on."""
        there = [layout for layout in layouts if layout is not None]
        for layout in there:
            if layout.device < 0:
                raise CallError(
                    f"an array for {self.name} is in the memory of {layout.memory}", "move it to the GPU"
                )
        if len(memories := dict.fromkeys(layout.memory for layout in there)) > 1:
            raise CallError(f"the arrays are on {' and '.join(memories)}", "move them to one GPU")
        return there[0].device

    def _refuse_capture(self, gpu: GpuPlans, stream: int) -> None:
        with failing_as(f"{self.name} cannot be launched"), gpu.context.current():
            captured = capture_id(stream) is not None
        if captured:
            raise CallError(
                f"{self.name} was not prepared for this problem, and the stream is being captured",
                "call it once before, or its warm()",
            )

    def _gpu(self, index: int) -> GpuPlans:
        with self._lock:
            if not self._finalizer.alive:
                raise CallError(f"{self.name} is closed", "load it again")
            if index not in self._gpus:
                self._gpus[index] = GpuPlans(self._manifest, self._cubin, index)
            return self._gpus[index]

    def _problem(
        self, sizes: Mapping[str, int], dtypes: Mapping[str, str] | None, options: Mapping[str, Any] | None
    ) -> int:
        """Return the number of the one computation that is meant."""
        check_sizes(self._manifest, sizes)
        numbers = computations_with(self._manifest, {**self._meant, **(dtypes or {}), **(options or {})})
        if len(numbers) > 1:
            raise CallError(f"{self.name} may mean {len(numbers)} computations", available(self._manifest))
        return numbers[0]

    def plan(
        self,
        *,
        dtypes: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
        device: int = 0,
        apart: bool = False,
        **sizes: int,
    ) -> PlanChoice:
        """Return which configuration runs a problem on a GPU, and why; nothing is loaded.

        Args:
            dtypes: by role, beside those of the operation.
            options: by name, likewise.
            device: number of the GPU.
            apart: whether rows of outputs lie apart, as those of a slice of a larger matrix do.
            sizes: all of them, by name.

        Raises:
            CallError: the problem is not one of this kernel, or no configuration can run it.
            BundleError: nothing was compiled for this GPU, or its driver is too old.
        """
        computation = self._problem(sizes, dtypes, options)
        answer = self._gpu(device).choose(computation, sizes, self._policy, apart=apart)
        entry = self._manifest.configurations[answer.concrete.configuration]
        return PlanChoice(
            entry.variant,
            entry.parameters,
            answer.match,
            answer.tuned_at,
            answer.expected_slowdown,
            answer.concrete.workspace.size_bytes,
            answer.reason,
        )

    def warm(self, problems: Iterable[Mapping[str, Any]], stream: Any = None) -> None:
        """Prepare problems, so that their first call is a launch, under stream capture, too.

        Args:
            problems: the arguments of :meth:`plan` for each: ``[{"m": 4096, "n": 4096, "k": 4096, "device": 1}]``.
            stream: where they will be called: their workspace there is allocated now; by default that of the default
                stream, which is the current one of torch and CuPy unless a program chooses another.

        Raises:
            CallError: a problem is not one of this kernel, or no configuration can run it.
            BundleError: the bundle is damaged, or does not fit this driver or GPU.
            DeviceError: the driver refuses.
        """
        handle = 0 if stream is None else stream_handle(stream)
        for problem in problems:
            sizes = dict(problem)
            dtypes, options = sizes.pop("dtypes", None), sizes.pop("options", None)
            gpu, apart = self._gpu(sizes.pop("device", 0)), sizes.pop("apart", False)
            computation = self._problem(sizes, dtypes, options)
            ordered = {name: sizes[name] for name in self._manifest.sizes}
            gpu.reserve(gpu.prepare(computation, ordered, self._policy, apart=apart), handle)

    def torch(self, backward: Callable[..., Any] | None = None) -> TorchFunction:
        """Return it as an operator of torch: differentiable, compilable, captured in CUDA graphs. Imports torch.

        Asking again gives the same, which is kept as long as the process.

        Args:
            backward: the gradient of a kernel that is not one of the tuner's own: ``backward(grad, inputs, output,
                **scalars)`` returns one for each input (None where it has none), or that of the only input. ``grad``
                and ``output`` are tensors, or tuples where the kernel returns several.

        Raises:
            CallError: it may mean computations that take different tensors, or ``backward`` is no function; or
                there is no torch.
        """
        if backward not in self._torch:
            try:
                ops = importlib.import_module(".torch_ops", __package__)
            except ImportError as error:
                raise CallError(f"torch cannot be imported: {error}", "install torch 2.11 or later") from None
            choices = f"{self._policy!s} {self._meant}"
            made = ops.torch_function(self, self._manifest, self._computations, choices, backward)
            with self._lock:
                self._torch.setdefault(backward, made)
        return self._torch[backward]

    def close(self) -> None:
        """Free what it keeps on the GPUs, also for graphs that it was captured in; it cannot be called any more."""
        self.kept.clear()
        self._finalizer()


def _free(gpus: dict[int, GpuPlans]) -> None:
    for gpu in gpus.values():
        gpu.free()
    gpus.clear()
