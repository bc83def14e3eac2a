"""The plans of one operation on one GPU: which is chosen, what is loaded for it, and its memory.

There is one workspace for each stream, and one for each capture of a graph. The launches of a stream run one after the
other, so that all plans share its workspace; so do those of a stream within one capture. A captured graph may be
launched at any time, so that its workspace is nothing else's, and is kept. Nothing says that a stream was destroyed: of
many streams, the one that was used least recently loses its workspace.
"""

from __future__ import annotations

import ctypes
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from cuda.bindings import driver as cu

from ..core.errors import BundleError, DeviceError
from .cluster_order import ClusterOrders, Observed, probe
from .dispatch import Dispatched, dispatch
from .driver import (
    DriverFailure,
    PrimaryContext,
    capture_id,
    check,
    failing_as,
    failure,
    library,
    primary_context,
)
from .dtypes import ITEMSIZE
from .entries import Manifest
from .filled import Filled, FillingOrder
from .interpret import ConcretePlan, Workspace
from .kernel import Kernel, in_order
from .structs import leaves

MOST_PLANS = 4096
"""Plans that are kept ready; beyond it, the one that was prepared first goes."""

_observed: dict[int, Observed] = {}
"""Where clusters run on each GPU, for all operations of the process."""


class GpuPlans:
    """What an operation has on one GPU.

    Args:
        manifest: which configurations there are.
        cubin: gives a cubin by its name.
        index: the GPU's number.

    Attributes:
        context: of the GPU.
        lock: to be held around launches.
        workspaces: memory of the plans.

    Raises:
        NoGpuError: there is no GPU or no driver.
        BundleError: the driver is too old.
    """

    def __init__(self, manifest: Manifest, cubin: Callable[[str], bytes], index: int) -> None:
        self._manifest, self._cubin = manifest, cubin
        self.context = primary_context(index)
        version = int(check(cu.cuDriverGetVersion()))
        if version < manifest.minimum_driver:
            raise BundleError(
                f"the driver supports CUDA {_version(version)}, and {manifest.kernel} needs "
                f"{_version(manifest.minimum_driver)}",
                "install a newer driver",
            )
        self.lock = threading.Lock()
        self.workspaces = Workspaces(self.context)
        self._preparing = threading.RLock()
        self._modules: dict[tuple[str, int | None], Any] = {}
        self._plans: dict[tuple[Any, ...], PreparedPlan] = {}
        self._orders: ClusterOrders | None = None
        self._stream: Any = None
        self._order = FillingOrder()

    def choose(
        self, computation: int, sizes: Mapping[str, int], policy: str, *, apart: bool = False
    ) -> Dispatched:
        """Return which configuration runs a problem here.

        Raises:
            BundleError: none was compiled for this GPU.
            CallError: none can run it.
        """
        limits, name = self.context.limits, self.context.name
        return dispatch(self._manifest, computation, sizes, limits, name, policy, apart=apart)

    def ready(self, computation: int, sizes: Mapping[str, int], *, apart: bool) -> PreparedPlan | None:
        """Return the plan of a problem if it is prepared."""
        return self._plans.get((computation, *sizes.values(), apart))

    def prepare(
        self, computation: int, sizes: Mapping[str, int], policy: str, *, apart: bool = False
    ) -> PreparedPlan:
        """Return the plan of a problem: load its kernels and find out where clusters run, unless that is done.

        Args:
            computation, sizes, policy: of :func:`dispatch`.
            apart: whether rows of outputs lie apart.

        Raises:
            BundleError: a cubin is damaged, or none was compiled for this GPU.
            CallError: no configuration can run it.
            DeviceError: the driver refuses it.
        """
        with self._preparing:
            plan = self.ready(computation, sizes, apart=apart)
            if plan is None:
                concrete = self.choose(computation, sizes, policy, apart=apart).concrete
                configuration = self._manifest.configurations[concrete.configuration]
                with failing_as(f"{configuration} cannot be prepared"), self.context.preparing():
                    plan = PreparedPlan(concrete, self._loaded(concrete), self.workspaces)
                while len(self._plans) >= MOST_PLANS:
                    del self._plans[next(iter(self._plans))]
                self._plans[computation, *sizes.values(), apart] = plan
            return plan

    def reserve(self, plan: PreparedPlan, stream: int) -> None:
        """Allocate what a plan needs in a stream.

        Where that fails in the default stream, which cannot even be asked while another one is captured, the first
        call does it.

        Raises:
            DeviceError: there is not enough memory, or no such stream.
        """
        try:
            with self.lock, self.context.current():
                plan.reserve(stream)
        except DriverFailure as failure:
            if not stream:
                return
            raise DeviceError(f"no memory for {self._manifest.kernel} can be reserved: {failure}") from None

    def _loaded(self, concrete: ConcretePlan) -> list[tuple[Kernel, Filled]]:
        """Return the kernel of each launch, and what it fills before it."""
        loaded = []
        for entry, launch in zip(concrete.entries, concrete.plan.launches, strict=True):
            module = self._module(entry.cubin, launch.carveout)
            order = self._cluster_orders().of if launch.needs_cluster_order else in_order
            kernel = Kernel(module, entry.entry, launch, cluster_order=order)
            loaded.append((kernel, Filled(module, launch, self._order)))
        return loaded

    def _module(self, name: str, carveout: int | None = None) -> Any:
        """Return a loaded cubin. A carveout belongs to a loaded function: launches that differ in it have one each."""
        key = (name, carveout)
        if key not in self._modules:
            self._modules[key] = check(cu.cuModuleLoadData(self._cubin(name)))
        return self._modules[key]

    def _cluster_orders(self) -> ClusterOrders:
        if self._orders is None:
            helper = self._manifest.probe[self.context.limits["cc"]]
            self._stream = check(cu.cuStreamCreate(cu.CUstream_flags.CU_STREAM_NON_BLOCKING.value))
            sms = probe(self._module(helper.cubin), int(self._stream), helper.entry)
            self._orders = ClusterOrders(sms, _observed.setdefault(self.context.index, Observed()))
        return self._orders

    def free(self) -> None:
        """Unload the modules and free the workspaces; nothing may be launched any more. Harmless after a fault."""
        with suppress(DriverFailure), self.context.preparing():
            self.workspaces.free()
            self._order.free()
            if self._stream is not None:
                cu.cuStreamDestroy(self._stream)
            for module in self._modules.values():
                cu.cuModuleUnload(module)
        self._stream, self._orders, self._modules, self._plans = None, None, {}, {}


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


MAP_ALIGNMENT = 16
"""Bytes of which the address of a matrix with a tensor map or a stride, and the distance of its rows, must be
multiples."""

MOST_APART = 2**31 - 1
"""Elements from row to row, at most: kernels count them with 31 bits."""


class PreparedPlan:
    """A plan that can be launched, one launch at a time: hold a lock around :meth:`run`.

    Args:
        concrete: what is launched.
        loaded: the kernel of each of its launches, and what that fills before it.
        workspaces: of the GPU.

    Attributes:
        alignments: bytes of which each tensor's address must be a multiple, by name.
        apart: tensors whose rows may lie apart: those of tensor maps alone, and those passed with their stride.
    """

    def __init__(
        self, concrete: ConcretePlan, loaded: Sequence[tuple[Kernel, Filled]], workspaces: Workspaces
    ) -> None:
        launches = concrete.plan.launches
        self._kernels, self._workspaces = loaded, workspaces
        self._workspace = concrete.workspace if concrete.plan.scratch else None
        self._zeroed = [(item.name, item.size_bytes) for item in concrete.plan.scratch if item.zeroed]
        self._memset = library().cuMemsetD8Async
        self._scalars = [
            (name, loaded[launch][0], position, list(leaves(launches[launch].arguments))[position].value)
            for name, positions in concrete.scalar_positions.items()
            for launch, position in positions
        ]
        common = max(launch.alignment for launch in launches)
        mapped = {name for launch in launches for kind, name, _ in launch.arguments if kind == "map"}
        kinds = {(leaf.name, leaf.kind) for launch in launches for leaf in leaves(launch.arguments)}
        strided = {name for name, kind in kinds if kind == "stride"}
        plain = {name for name, kind in kinds if kind == "buffer"}
        filling = {name for launch in launches for _, name, _ in launch.constants}
        self.apart = mapped - plain - filling | strided
        of_map = dict.fromkeys(mapped | strided, MAP_ALIGNMENT)
        self.alignments = {
            tensor.name: max(common, ITEMSIZE[tensor.dtype], of_map.get(tensor.name, 1))
            for tensor in concrete.tensors
        }

    def reserve(self, stream: int) -> None:
        """Allocate its workspace for a stream, unless that is done; the context is current.

        Raises:
            DriverFailure: there is no memory for it, or no such stream.
        """
        if self._workspace is not None:
            self._workspaces.addresses(self._workspace, stream)

    def run(
        self, addresses: dict[str, int], scalars: Mapping[str, float], stream: int, strides: Mapping[str, int]
    ) -> None:
        """Launch it in a stream; the context is current.

        Args:
            addresses: of the tensors by name; those of the scratch memory are added.
            scalars: instead of the plan's own values, by name.
            stream: a handle.
            strides: elements from row to row of tensors whose rows lie apart, by name.

        Raises:
            DriverFailure: the driver refuses, or there is no memory for the workspace.
        """
        if self._workspace is not None:
            addresses.update(self._workspaces.addresses(self._workspace, stream))
            for name, size_bytes in self._zeroed:
                memory, size = ctypes.c_ulonglong(addresses[name]), ctypes.c_size_t(size_bytes)
                error = self._memset(memory, 0, size, ctypes.c_void_p(stream))
                if error:
                    raise failure(error)
        for name, kernel, position, own in self._scalars:
            kernel.set_scalar(position, scalars.get(name, own))
        for kernel, filled in self._kernels:
            filled.fill(addresses, stream)
            kernel.bind(addresses, strides)
            kernel.launch(stream)
            filled.launched(stream)


MOST_STREAMS = 64
"""Streams with a workspace on one GPU: torch's pool has 32 of each priority."""
GROWTH = 1.5
"""An allocation that is too small is followed by one larger by this factor at least, so that there are few."""


class _Part:
    """Memory that grows."""

    def __init__(self) -> None:
        self.address, self.size_bytes = 0, 0


class Workspaces:
    """The workspaces on one GPU. Not thread-safe: hold the lock of the launches that use them."""

    def __init__(self, context: PrimaryContext) -> None:
        self._context = context
        self._streams: OrderedDict[int, tuple[_Part, _Part]] = OrderedDict()
        """By number, the least recently used first."""
        self._captures: dict[tuple[int, int], tuple[_Part, _Part]] = {}
        self._outgrown: list[int] = []
        self._stream_id = library().cuStreamGetId

    def addresses(self, workspace: Workspace, stream: int) -> dict[str, int]:
        """Return the address of each of a plan's buffers, for launches in a stream; the context is current.

        What is zero once, and left so by all plans, lies apart from the rest.

        Raises:
            DriverFailure: there is not enough memory, or no such stream.
        """
        capture = capture_id(stream)
        if capture is None:
            zero, rest = self._of_stream(self._number(stream))
        else:
            zero, rest = self._captures.setdefault((capture, stream), (_Part(), _Part()))
        border = workspace.zeroed_once_bytes
        if border > zero.size_bytes:
            self._enlarge(zero, border, stream, capture)
        if workspace.size_bytes - border > rest.size_bytes:
            self._enlarge(rest, workspace.size_bytes - border, stream, capture)
        return {
            name: zero.address + offset if offset < border else rest.address + offset - border
            for name, offset in workspace.offsets.items()
        }

    def _number(self, stream: int) -> int:
        """Return what tells a stream from all others; a handle may come again while its last launches still run.

        The driver refuses to say it of a stream that is captured, and ends the capture.
        """
        number = ctypes.c_ulonglong()
        error = self._stream_id(ctypes.c_void_p(stream), ctypes.byref(number))
        if error:
            raise failure(error)
        return number.value

    def _of_stream(self, number: int) -> tuple[_Part, _Part]:
        parts = self._streams.get(number)
        if parts is None:
            while len(self._streams) >= MOST_STREAMS:
                _, oldest = self._streams.popitem(last=False)
                with self._context.preparing():
                    for part in oldest:
                        if part.address:
                            check(cu.cuMemFree(part.address))  # which waits for what still runs
            parts = self._streams[number] = (_Part(), _Part())
        else:
            self._streams.move_to_end(number)
        return parts

    def _enlarge(self, part: _Part, size_bytes: int, stream: int, capture: int | None) -> None:
        size_bytes = max(size_bytes, int(GROWTH * part.size_bytes))
        with self._context.preparing():
            if part.address and capture is None:
                check(cu.cuStreamSynchronize(stream))
                check(cu.cuMemFree(part.address))
            elif part.address:
                self._outgrown.append(part.address)
            part.address, part.size_bytes = 0, 0
            address = int(check(cu.cuMemAlloc(size_bytes)))
            set_to_zero(address, size_bytes)
            part.address, part.size_bytes = address, size_bytes

    def free(self) -> None:
        """Free all memory. Harmless after a fault."""
        for parts in (*self._streams.values(), *self._captures.values()):
            self._outgrown += [part.address for part in parts if part.address]
        for address in self._outgrown:
            cu.cuMemFree(address)
        self._streams.clear()
        self._captures, self._outgrown = {}, []


def set_to_zero(address: int, size_bytes: int) -> None:
    """Set memory to zero, and wait until it is; other streams, captured or not, are left alone."""
    stream = check(cu.cuStreamCreate(cu.CUstream_flags.CU_STREAM_NON_BLOCKING.value))
    try:
        check(cu.cuMemsetD8Async(address, 0, size_bytes, stream))
        check(cu.cuStreamSynchronize(stream))
    finally:
        cu.cuStreamDestroy(stream)
