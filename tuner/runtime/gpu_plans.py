"""The plans of one operation on one GPU: which is chosen, what is loaded for it, and what it keeps in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from cuda.bindings import driver as cu

from ..core.errors import BundleError, DeviceError
from .cluster_order import ClusterOrders, Observed, Probe
from .dispatch import Dispatched, dispatch
from .driver import DriverFailure, check, primary_context
from .entries import Manifest
from .kernel import Kernel, in_order
from .plans import ConcretePlan
from .prepared import PreparedPlan, Workspaces

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

    def choose(self, computation: int, sizes: Mapping[str, int], policy: str) -> Dispatched:
        """Return which configuration runs a problem here.

        Raises:
            BundleError: none was compiled for this GPU.
            CallError: none can run it.
        """
        return dispatch(self._manifest, computation, sizes, self.context.limits, self.context.name, policy)

    def ready(self, computation: int, sizes: Mapping[str, int]) -> PreparedPlan | None:
        """Return the plan of a problem if it is prepared."""
        return self._plans.get((computation, *sizes.values()))

    def prepare(self, computation: int, sizes: Mapping[str, int], policy: str) -> PreparedPlan:
        """Return the plan of a problem: load its kernels and find out where clusters run, unless that is done.

        Raises:
            BundleError: a cubin is damaged, or none was compiled for this GPU.
            CallError: no configuration can run it.
            DeviceError: the driver refuses it.
        """
        with self._preparing:
            plan = self.ready(computation, sizes)
            if plan is None:
                concrete = self.choose(computation, sizes, policy).concrete
                try:
                    with self.context.preparing():
                        plan = PreparedPlan(concrete, self._kernels(concrete))
                except DriverFailure as failure:
                    raise DeviceError(
                        f"{self._manifest.configurations[concrete.configuration]} cannot be prepared: {failure}"
                    ) from None
                while len(self._plans) >= MOST_PLANS:
                    del self._plans[next(iter(self._plans))]
                self._plans[computation, *sizes.values()] = plan
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
                plan.reserve(stream, self.workspaces)
        except DriverFailure as failure:
            if not stream:
                return
            raise DeviceError(f"no memory for {self._manifest.kernel} can be reserved: {failure}") from None

    def _kernels(self, concrete: ConcretePlan) -> list[Kernel]:
        return [
            Kernel(
                self._module(entry.cubin, launch.carveout),
                entry.entry,
                launch,
                cluster_order=self._cluster_orders().of if launch.needs_cluster_order else in_order,
            )
            for entry, launch in zip(concrete.entries, concrete.plan.launches, strict=True)
        ]

    def _module(self, name: str, carveout: int | None = None) -> Any:
        """Return a loaded cubin. A carveout belongs to a loaded function: launches that differ in it have one each."""
        key = (name, carveout)
        if key not in self._modules:
            self._modules[key] = check(cu.cuModuleLoadData(self._cubin(name)))
        return self._modules[key]

    def _cluster_orders(self) -> ClusterOrders:
        if self._orders is None:
            probe = self._manifest.probe[self.context.limits["cc"]]
            self._stream = check(cu.cuStreamCreate(cu.CUstream_flags.CU_STREAM_NON_BLOCKING.value))
            sms = Probe(self._module(probe.cubin), int(self._stream), probe.entry).sms
            self._orders = ClusterOrders(sms, _observed.setdefault(self.context.index, Observed()))
        return self._orders

    def free(self) -> None:
        """Unload the modules and free the workspaces; nothing may be launched any more. Harmless after a fault."""
        with suppress(DriverFailure), self.context.preparing():
            self.workspaces.free()
            if self._stream is not None:
                cu.cuStreamDestroy(self._stream)
            for module in self._modules.values():
                cu.cuModuleUnload(module)
        self._stream, self._orders, self._modules, self._plans = None, None, {}, {}


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"
