"""The tensors of one problem on the GPU: filled from a seed, with pristine copies; and the flush buffer."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from cuda.bindings import driver as cu

from tuner.children.cubin_cache import CubinCache
from tuner.children.nvrtc import compile_source
from tuner.core.model import Gpu
from tuner.gpu.beside import OtherWork
from tuner.gpu.driver import Context, Graph, fill_bytes
from tuner.gpu.memory import GUARD_BYTES, Memory
from tuner.kernel.contents import INITS, NAN, decoded, encoded, in_memory, is_given, is_integer
from tuner.kernel.given import Given
from tuner.kernel.reference import expected_dtype
from tuner.kernel.render import render_helpers
from tuner.runtime.cluster_order import ClusterOrders, probe
from tuner.runtime.driver import check
from tuner.runtime.dtypes import DTYPES, ITEMSIZE
from tuner.runtime.expressions import round_up
from tuner.runtime.kernel import Kernel
from tuner.runtime.launches import OUTPUTS, RESTORED, Buffer, Launch

FILLS = (*INITS, "inf", "-inf")
"""What the helpers call by number; a range comes after them."""
FLUSH_FACTOR = 3
"""Times the L2 that a sweep reads: replacement is not exactly least-recently-used, so once is not enough."""


class Helpers:
    """Kernels of the tuner's own: those of ``templates/common/helpers.cu.j2``, or of another source.

    Those that fill and compare tensors are compiled by dtype, when these are known: for all dtypes that takes seconds.

    Args:
        context: of the GPU.
        gpu: its limits.
        cache: of cubins.
        source: CUDA C++.
        entry: one of its kernels.
    """

    def __init__(
        self,
        context: Context,
        gpu: Gpu,
        cache: CubinCache | None,
        source: str | None = None,
        entry: str = "read_sweep",
    ) -> None:
        self.context, self.gpu, self._cache = context, gpu, cache
        self._of_dtype: dict[str, Any] = {}
        self.cubin = self._compiled(render_helpers() if source is None else source, entry)
        self.module = check(cu.cuModuleLoadData(self.cubin))

    def _compiled(self, source: str, entry: str) -> bytes:
        key = CubinCache.key(source, "helpers", (self.gpu.arch,), "1", "")
        compiled = self._cache.get(key) if self._cache else None
        if compiled is None:
            compiled = compile_source(source, entry, self.gpu.arch)
            if self._cache:
                self._cache.put(key, compiled)
        return compiled.cubin

    def add(self, dtypes: Iterable[str]) -> None:
        """Load what fills and compares tensors of some dtypes, compiled together."""
        if missing := sorted({*dtypes} - self._of_dtype.keys()):
            cubin = self._compiled(render_helpers(missing), f"fill_{missing[0]}")
            self._of_dtype |= dict.fromkeys(missing, check(cu.cuModuleLoadData(cubin)))

    def again(self) -> Helpers:
        """Load the same kernels a second time, to other addresses."""
        other = copy.copy(self)
        other.module = check(cu.cuModuleLoadData(self.cubin))
        return other

    def others(self, source: str, entry: str) -> Helpers:
        """Load the kernels of another source."""
        return Helpers(self.context, self.gpu, self._cache, source, entry)

    def close(self) -> None:
        """Unload them; harmless after a fault."""
        cu.cuModuleUnload(self.module)

    def kernel(
        self,
        entry: str,
        grid: int,
        block: int,
        arguments: Iterable[tuple[str, Any]],
        shared_bytes: int = 0,
    ) -> Kernel:
        """Bind one of them; arguments are pairs of dtype and value, with ``pointer`` for an address."""
        triples: list[tuple[str, str, Any]] = []
        addresses: dict[str, int] = {}
        for i, (dtype, value) in enumerate(arguments):
            if dtype == "pointer":
                addresses[str(i)] = value
                triples.append(("buffer", str(i), 0))
            else:
                triples.append(("scalar", dtype, value))
        launch = Launch((grid, 1, 1), (block, 1, 1), shared_bytes, tuple(triples))
        module, dtype = self.module, entry.partition("_")[2]
        if dtype in DTYPES:
            self.add((dtype,))
            module = self._of_dtype[dtype]
        return Kernel(module, entry, launch, addresses)

    def fill_shared(self, *, words: bool, byte: int = NAN) -> Kernel:
        """Bind what takes all the shared memory of all SMs, and overwrites its ``words`` by a byte or leaves them."""
        size_bytes = self.gpu.shared_bytes_optin
        arguments = [("int32", size_bytes // 4 if words else 0), ("uint32", byte * 0x01010101)]
        return self.kernel("fill_shared", self.gpu.sm_count, 1024, arguments, size_bytes)

    @cached_property
    def cluster_orders(self) -> ClusterOrders:
        """Numbers for the clusters of launches on this GPU; what is observed is kept."""
        has_clusters = self.gpu.cc >= 90
        return ClusterOrders(probe(self.module, int(self.context.stream)) if has_clusters else None)

    @cached_property
    def other_work(self) -> OtherWork:
        """What may run beside a kernel."""
        return OtherWork(self)

    def run(self, entry: str, grid: int, block: int, arguments: Iterable[tuple[str, Any]]) -> None:
        """Launch one of them and wait."""
        with self.context.launched() as graph:
            graph.kernel(self.kernel(entry, grid, block, arguments))


class ProblemData:
    """The tensors of one problem on the GPU.

    Outputs start as NaN bytes. One that is restored has a pristine copy, ``<name>_initial``, from which it is restored.
    There can be further copies of all tensors, with the same content, for calls that must find their data cold. Numbers
    that the kernel's file gives (:class:`tuner.kernel.given.Given`) stand in place of drawn ones.
    """

    def __init__(
        self,
        helpers: Helpers,
        tensors: tuple[Buffer, ...],
        seed: int,
        copies: int = 1,
        *,
        guarded: bool = True,
        given: Given | None = None,
    ) -> None:
        self.helpers = helpers
        self.tensors = tensors
        self.copies, self.given = copies, given
        self._replicas: dict[str, tuple[int, int]] = {}
        """By tensor: where its copies begin, and bytes from one to the next."""
        # Not in the order of the calls: no call may reckon where the next one's tensors lie.
        self._places = random.SystemRandom().sample(range(copies - 1), copies - 1)
        self._untouched: dict[int, int] = {}
        """By poison: the checksum of copies of outputs that hold nothing else."""
        self.memory = Memory(guarded=guarded)
        self._sealed = 0
        self._sm_count = helpers.gpu.sm_count
        try:
            self._result = self.memory.allocate("checksum", 8)
            self._fill(seed)
            self._fill_given()
            self._replicate()
            self.flush_bytes = flush_bytes = max(FLUSH_FACTOR * helpers.gpu.l2_bytes, 1 << 24)
            flush = self.memory.allocate("flush", flush_bytes)
            fill_bytes(flush, 0, flush_bytes)
            count = flush_bytes // 16
            arguments = [("pointer", flush), ("int64", count), ("pointer", self._result)]
            self.flush = helpers.kernel("read_sweep", 4 * self._sm_count, 512, arguments)
        except BaseException:
            self.memory.close()
            raise

    def _fill(self, seed: int) -> None:
        for number, tensor in enumerate(self.tensors):
            address = self.memory.allocate_guarded(tensor.name, tensor.size_bytes)
            if tensor.role == "output":
                continue
            if tensor.role in RESTORED:
                address = self.memory.allocate_guarded(f"{tensor.name}_initial", tensor.size_bytes)
            if self.given is not None and is_given(tensor):
                continue
            grid = min(math.ceil(tensor.count / 256), 16 * self._sm_count)
            # Tensors of one problem must differ: a shifted seed gives an unrelated stream.
            stream_seed = (seed * 1_000_003 + number) * 0x1000 % 2**62
            self.helpers.run(
                f"fill_{tensor.dtype}",
                grid,
                256,
                [
                    ("pointer", address),
                    ("int64", tensor.count),
                    ("int32", len(FILLS) if tensor.between else FILLS.index(tensor.init)),
                    ("int64", stream_seed),
                    *_limits(tensor),
                ],
            )

    def _fill_given(self) -> None:
        if self.given is None:
            return
        values = self.given.values(self.held(self.given.drawn_asked))
        for tensor in self.tensors:
            if tensor.name in values:
                host = encoded(values[tensor.name], tensor.dtype)
                check(cu.cuMemcpyHtoD(self.first(tensor), host.ctypes.data, host.nbytes))

    def first(self, tensor: Buffer) -> int:
        """Return where lies what an input or inout begins with."""
        return self.memory.addresses[f"{tensor.name}_initial" if tensor.role in RESTORED else tensor.name]

    def held(self, names: Collection[str]) -> dict[str, npt.NDArray[Any]]:
        """Return what inputs and inouts begin with, by name and as it lies in memory."""
        return {
            tensor.name: self._read(tensor, self.first(tensor), tensor.count).reshape(tensor.shape)
            for tensor in self.tensors
            if tensor.name in names
        }

    def _replicate(self) -> None:
        if self.copies == 1:
            return
        for tensor in self.tensors:
            stride = round_up(tensor.size_bytes, 256) + GUARD_BYTES
            whole = stride * (self.copies - 1)
            base = self.memory.allocate(f"{tensor.name} copies", whole)
            self._replicas[tensor.name] = (base, stride)
            fill_bytes(base, NAN, whole)  # reading past the end of a copy gives NaN
            if tensor.role == "input":
                for number in range(1, self.copies):
                    source = self.memory.addresses[tensor.name]
                    check(cu.cuMemcpyDtoD(self.address(tensor.name, number), source, tensor.size_bytes))
        check(cu.cuCtxSynchronize())

    def refill(self, contents: Mapping[str, npt.NDArray[Any]]) -> None:
        """Give inputs and inouts another content by name, as it lies in memory, in all copies."""
        for tensor in self.tensors:
            if tensor.name in contents:
                self.put(tensor, encoded(contents[tensor.name], tensor.dtype))

    def put(self, tensor: Buffer, host: npt.NDArray[Any]) -> None:
        """Overwrite an input or inout, in all copies, with a content as it lies in memory, repeated if shorter."""
        copies = range(1, self.copies if tensor.role == "input" else 1)
        for address in (self.first(tensor), *(self.address(tensor.name, number) for number in copies)):
            check(cu.cuMemcpyHtoD(address, host.ctypes.data, done := host.nbytes))
            while done < tensor.size_bytes:
                more = min(done, tensor.size_bytes - done)
                check(cu.cuMemcpyDtoD(address + done, address, more))
                done += more
        check(cu.cuCtxSynchronize())

    def address(self, name: str, copy: int = 0) -> int:
        """Return where a tensor's copy lies."""
        if copy == 0:
            return self.memory.addresses[name]
        base, stride = self._replicas[name]
        return base + self._places[copy - 1] * stride

    def addresses(self, copy: int = 0) -> dict[str, int]:
        """Return the addresses of everything, the tensors' those of one copy."""
        moved = {name: self.address(name, copy) for name in self._replicas} if copy else {}
        return {**self.memory.addresses, **moved}

    def seal(self) -> None:
        """Remember what inputs and expected outputs are; from here on no kernel may change them."""
        self._sealed = self._checksum(self._constant())

    def _constant(self) -> list[tuple[str, int]]:
        inputs = [tensor for tensor in self.tensors if tensor.role == "input"]
        constant = [(tensor.name, tensor.size_bytes) for tensor in inputs]
        constant += [
            (f"{tensor.name} copies", self._replicas[tensor.name][1] * (self.copies - 1))
            for tensor in inputs
            if tensor.name in self._replicas
        ]
        for tensor in self.outputs:
            constant += [
                (f"{tensor.name} expected", ITEMSIZE[expected_dtype(tensor)] * tensor.count),
                (f"{tensor.name} magnitude", 4 * tensor.count),
            ]
        constant += [(f"{tensor.name}_initial", tensor.size_bytes) for tensor in self.tensors]
        constant.append(("flush", self.flush_bytes))
        return [(name, size) for name, size in constant if name in self.memory.addresses]

    def _other_outputs(self) -> list[tuple[str, int]]:
        """Return the copies of outputs but the first, and their bytes."""
        outputs = [one.name for one in self.tensors if one.role == "output" and one.name in self._replicas]
        return [(f"{name} copies", self._replicas[name][1] * (self.copies - 1)) for name in outputs]

    def strays(self, byte: int) -> bool:
        """Return whether a run on the first copy, behind a poison of this byte, wrote to another."""
        return byte in self._untouched and self._checksum(self._other_outputs()) != self._untouched[byte]

    def _checksum(self, pieces: Iterable[tuple[str, int]]) -> int:
        fill_bytes(self._result, 0, 8)
        kernels = []
        with self.helpers.context.launched() as graph:
            for name, size_bytes in pieces:
                # The last word may reach into the zone behind, which is constant, too; where there is none, the up
                # to three bytes of it are left out.
                words = math.ceil(size_bytes / 4) if self.memory.guarded else size_bytes // 4
                arguments = [
                    ("pointer", self.memory.addresses[name]),
                    ("int64", words),
                    ("pointer", self._result),
                ]
                grid = min(math.ceil(words / 256) or 1, 16 * self._sm_count)
                kernels.append(self.helpers.kernel("checksum", grid, 256, arguments))
                graph.kernel(kernels[-1])
        raw = bytearray(8)
        check(cu.cuMemcpyDtoH(raw, self._result, 8))
        return int.from_bytes(raw, "little")

    def damage(self) -> str:
        """Say what a kernel wrote that it had no business to write; empty if nothing."""
        neighbour = self.memory.trespass()
        if neighbour:
            return f"wrote outside of {neighbour}"
        return "changed an input" if self._checksum(self._constant()) != self._sealed else ""

    @property
    def inputs(self) -> list[Buffer]:
        """The tensors that begin with numbers."""
        return [tensor for tensor in self.tensors if tensor.role != "output"]

    @property
    def outputs(self) -> list[Buffer]:
        """The tensors that a kernel writes."""
        return [tensor for tensor in self.tensors if tensor.role in OUTPUTS]

    def add_restore(self, graph: Graph, copy: int | None = None) -> None:
        """Append what gives tensors that are restored their first value back, in one copy or in all."""
        for tensor in self.tensors:
            if tensor.role in RESTORED:
                initial = self.memory.addresses[f"{tensor.name}_initial"]
                for number in range(self.copies) if copy is None else (copy,):
                    graph.copy(self.address(tensor.name, number), initial, tensor.size_bytes)

    def poison(self, byte: int = NAN) -> None:
        """Fill the outputs, and the zones around all tensors, with one of :data:`tuner.kernel.contents.POISONS`."""
        stream = self.helpers.context.stream
        self.memory.poison(byte)
        for tensor in self.outputs:
            check(cu.cuMemsetD8Async(self.memory.addresses[tensor.name], byte, tensor.size_bytes, stream))
            if tensor.name in self._replicas:
                base, stride = self._replicas[tensor.name]
                check(cu.cuMemsetD8Async(base, byte, stride * (self.copies - 1), stream))
        if byte not in self._untouched and (others := self._other_outputs()):
            self._untouched[byte] = self._checksum(others)

    def download(self, tensor: Buffer, name: str | None = None) -> npt.NDArray[Any]:
        """Copy a tensor to the host, in the dtype that has all of its numbers and the shape that the kernel means."""
        array = self._read(tensor, self.memory.addresses[name or tensor.name], tensor.count).reshape(
            tensor.shape
        )
        return array.T if tensor.transposed else array

    def element(self, tensor: Buffer, index: int, copy: int = 0) -> complex:
        """Read one element of an output."""
        address = self.address(tensor.name, copy) + index * ITEMSIZE[tensor.dtype]
        element: complex = self._read(tensor, address, 1)[0].item()
        return element

    @staticmethod
    def _read(tensor: Buffer, address: int, count: int) -> npt.NDArray[Any]:
        """Copy elements of a tensor's dtype to the host, in the dtype that has all of its numbers."""
        host = np.empty(count, in_memory(tensor.dtype))
        check(cu.cuMemcpyDtoH(host.ctypes.data, address, host.nbytes))
        return decoded(host, tensor.dtype)

    def close(self) -> None:
        """Free everything."""
        self.memory.close()


def _limits(tensor: Buffer) -> list[tuple[str, Any]]:
    """Return the arguments that say between which numbers a tensor is filled: as integers, and as floats."""
    low, high = tensor.between or (0, 0)
    integers = (int(low) % 2**64, int(high) % 2**64) if is_integer(tensor) else (0, 0)
    return [*(("uint64", number) for number in integers), ("float64", float(low)), ("float64", float(high))]
