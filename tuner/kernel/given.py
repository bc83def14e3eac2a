"""Values that a kernel's file gives to tensors: of an ``.npy`` file, or of a Python function.

A function runs with the user's rights, as one that is a reference: never call this in the head.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import numpy as np

from tuner.core.errors import KernelError
from tuner.core.model import Value
from tuner.kernel.contents import (
    Array,
    as_meant,
    decoded,
    drawn,
    encoded,
    from_bfloat16,
    is_given,
    is_integer,
    rounded,
    stored_array,
)
from tuner.kernel.functions import PythonFunction
from tuner.kernel.python_reference import ArrayFunction, limited, read_only
from tuner.kernel.reference import in_full
from tuner.runtime.dtypes import BITS
from tuner.runtime.launches import Buffer


class GivenError(KernelError):
    """An ``.npy`` file does not fit its tensor."""


LIMIT_S = 60.0
"""For both calls of a function."""
SLOW = "have it take less, or save its array in an .npy file"
BFLOAT16_BITS = np.dtype("V2")
"""As NumPy reads what ml_dtypes has written."""


def require_fitting(tensors: tuple[Buffer, ...], where: str = "") -> tuple[Buffer, ...]:
    """Return a problem's tensors, each of whose ``.npy`` files has its shape and numbers of its dtype.

    Args:
        tensors: of the problem.
        where: the kernel's file, for errors.

    Raises:
        GivenError: one cannot be read, or does not fit.
    """
    for tensor in tensors:
        if tensor.file is not None and not tensor.function:
            try:
                _require_fitting(tensor, tensor.file)
            except KernelError as error:
                place = f"{where}: tensors" if where else "tensors"
                raise GivenError(f"{place}: {tensor.name}: init: {error.problem}", error.remedy) from None
    return tensors


def _require_fitting(tensor: Buffer, file: Path) -> None:
    try:
        stat = file.stat()
        shape, dtype = _header(file, stat.st_mtime_ns, stat.st_size)
    except (OSError, ValueError) as error:
        raise KernelError(f"{file.name} is no array: {error}", "save one with numpy.save") from None
    if shape != tensor.meant_shape:
        raise KernelError(f"{file.name} has shape {shape}", f"this problem needs {tensor.meant_shape}")
    # Numbers of dtypes that NumPy lacks come as float32, those of bfloat16 also as their bits.
    own = np.dtype("float32" if tensor.dtype in BITS else tensor.dtype)
    if dtype == BFLOAT16_BITS:
        fits = tensor.dtype in ("bfloat16", "float32", "float64")
    else:
        fits = dtype.kind in "biufc" and np.can_cast(dtype, own, "safe")
    if not fits:
        raise KernelError(
            f"{file.name} has {dtype}, and this problem {tensor.dtype}", f"save array.astype({str(own)!r})"
        )


@functools.lru_cache(maxsize=64)
def _header(file: Path, changed_ns: int, size: int) -> tuple[tuple[int, ...], np.dtype[np.generic]]:  # noqa: ARG001
    """Return shape and dtype of a file's array; when it was changed and its length are parts of the key."""
    array = stored_array(file)
    return array.shape, array.dtype


class Given:
    """What a problem's tensors hold whose kernel's file says each number; it loads the functions.

    A function gets what its parameters name: sizes and scalars, ``seed`` and ``rng`` (a generator of NumPy's with that
    seed), and other inputs, as a reference gets them. It must return the same for the same.

    Args:
        tensors: of the problem.
        numbers: its sizes and scalars.
        seed: of the inputs.
        limit_s: seconds for both calls of a function.

    Raises:
        KernelError: a function cannot be loaded, inputs ask for each other, or a file does not fit.
    """

    def __init__(
        self, tensors: Iterable[Buffer], numbers: Mapping[str, Value], seed: int, limit_s: float = LIMIT_S
    ) -> None:
        self._tensors = {tensor.name: tensor for tensor in require_fitting(tuple(tensors))}
        self._numbers, self._seed, self._limit_s = numbers, seed % 2**63, limit_s
        self._calls: dict[str, ArrayFunction] = {}
        for name, tensor in self._tensors.items():
            if tensor.file is not None and tensor.function:
                function = PythonFunction(tensor.file, tensor.function)
                with limited(function, limit_s, SLOW):
                    self._calls[name] = ArrayFunction(function, {name: tensor}, {}, "function")
        self._same: set[str] = set()
        """Tensors whose function is known to return the same for the same."""
        inputs = {name for name, tensor in self._tensors.items() if tensor.role != "output"}
        self.names = [name for name, tensor in self._tensors.items() if is_given(tensor)]
        """Of these tensors, each behind those that its function asks for."""
        self._asked = {name: sorted(call.parameters & inputs) for name, call in self._calls.items()}
        try:
            order = [
                *TopologicalSorter({name: self._asked.get(name, ()) for name in self.names}).static_order()
            ]
        except CycleError as error:
            circle = ", ".join(dict.fromkeys(error.args[1]))
            raise KernelError(
                f"the functions of {circle} ask for each other's arrays", "have one that asks for none"
            ) from None
        self.names.sort(key=order.index)
        self.drawn_asked = [name for name in order if name not in self.names]
        """Tensors that a function asks for and that are drawn."""
        self.fixed: set[str] = set()
        """Those of :attr:`names` that do not follow from drawn ones."""
        for name in self.names:
            if self.fixed.issuperset(self._asked.get(name, ())):
                self.fixed.add(name)

    def values(self, known: Mapping[str, Array]) -> dict[str, Array]:
        """Return what those of :attr:`names` hold that are not known, as it lies in memory.

        Args:
            known: what tensors hold, as it lies in memory; of drawn ones :attr:`drawn_asked` at least.

        Raises:
            KernelError: a function fails or returns something else.
            TunerError: a function takes too long.
        """
        given: dict[str, Array] = {}
        for name in self.names:
            if name in known:
                continue
            tensor = self._tensors[name]
            if tensor.init == "range":
                given[name] = drawn(tensor, np.random.default_rng(0))
                continue
            array = (
                self._called(tensor, {**known, **given}) if name in self._calls else stored_array(tensor.file)  # type: ignore[arg-type]  # its other init
            )
            if array.dtype == BFLOAT16_BITS:
                array = from_bfloat16(array.view(np.uint16))
            given[name] = as_meant(array, tensor)
        return given

    def again(self, drawn: Mapping[str, Array], fixed: Mapping[str, Array]) -> dict[str, Array]:
        """Return what all of :attr:`names` hold where drawn tensors hold other numbers, as their dtypes have it.

        Args:
            drawn: the other numbers, by name and as they lie in memory.
            fixed: what :attr:`fixed` hold.
        """
        values = self.values({**drawn, **fixed})
        return {
            **fixed,
            **{name: rounded(array, self._tensors[name].dtype) for name, array in values.items()},
        }

    def _called(self, tensor: Buffer, known: Mapping[str, Array]) -> Array:
        """Return what a function says that a tensor holds, in the shape that the kernel means."""
        call, number = self._calls[tensor.name], list(self._tensors).index(tensor.name)
        others = {}
        for name in self._asked[tensor.name]:
            other = self._tensors[name]
            others[name] = read_only(as_meant(rounded(known[name], other.dtype), other), other.dtype)
        with limited(call.function, self._limit_s, SLOW):

            def result() -> Array:
                drawing = {"seed": self._seed, "rng": np.random.default_rng([self._seed, number])}
                array, magnitude = call({**drawing, **self._numbers, **others})[tensor.name]
                if magnitude is not None:
                    call.refuse(f"returns two arrays for {tensor.name}", "return one")
                return array

            array = result()
            if tensor.name not in self._same:
                call.require_same(tensor.name, array, result())
                self._same.add(tensor.name)
        _require_numbers(call, tensor, array)
        return array


def _require_numbers(call: ArrayFunction, tensor: Buffer, array: Array) -> None:
    """Refuse what a function returned where its tensor's dtype has no such number."""
    with np.errstate(all="ignore"):
        own = encoded(array, tensor.dtype)
    beyond = np.isinf(decoded(own, tensor.dtype)) & np.isfinite(array)
    wrong = own != array if is_integer(tensor) else beyond
    if wrong.any():
        index = tuple(int(i) for i in np.argwhere(wrong)[0])
        call.refuse(
            f"returns {in_full(array[index])} in {tensor.name}{list(index)}, which is no number of {tensor.dtype}",
            "return numbers of its dtype",
        )
