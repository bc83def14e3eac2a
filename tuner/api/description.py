"""A call of ``tuner.tune`` as a kernel file: arrays give shapes, dtypes and values, the C signature gives the names."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.api.arrays import is_complex, members, number, on_host, pointed_to
from tuner.api.call import (
    Call,
    Texts,
    file_names,
    filled,
    reference_of,
    require,
    require_useful,
    sequence,
    values_of,
)
from tuner.api.tracing import traced
from tuner.core.errors import TunerError, UsageError
from tuner.core.model import Value, digest
from tuner.expressions.arithmetic import parse
from tuner.kernel.draft import Draft, LaunchDraft, ParameterDraft, TensorDraft, free_role
from tuner.kernel.headers import own_headers, read_source
from tuner.kernel.source.declarations import KernelSignature, Source
from tuner.kernel.source.device_part import read_whole
from tuner.kernel.source.tree import entry_name

# A name, unless it is called or an attribute.
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*\b(?!\s*\()")
_INPUTS = '''"""Values of the call; at other sizes they are cut, or repeated."""

from pathlib import Path

import numpy as np


def _given(file, digest, *shape):
    return np.resize(np.load(Path(__file__).with_name(file)), shape)
'''
_INPUT = """

def {name}({sizes}):
    return _given("{name}.npy", "{digest}", {shape})
"""


@dataclass(frozen=True)
class Described:
    """A kernel's file, what lies beside it, and what a call of the result needs to know."""

    draft: Draft
    files: Mapping[str, bytes | NDArray[Any]]
    """Sources, headers and values by their names in the folder."""
    reference: Callable[..., Any] | None
    """That of the caller, if it is a function."""
    arguments: Mapping[str, str]
    """What the file calls the kernel's parameters, by their names in C, in the order there."""
    available: Mapping[str, str]
    """What a reference may take: names in the file by those that its parameters may have."""
    alone: str
    """Why it holds for no other sizes; empty if it does."""


def described(call: Call) -> Described:
    """Return the kernel's file that a call stands for.

    Raises:
        UsageError: an argument does not fit; the text says which, and what to pass instead.
        KernelError: the source has no such kernel.
    """
    source = read_whole(call.source, call.file)
    signature = source.kernel(entry_name(call.entry))
    return Reader(call, source, signature, call.entry_of(signature)).described()


class Reader:
    """Reads a call of a kernel of some source."""

    def __init__(self, call: Call, source: Source, signature: KernelSignature, entry: str) -> None:
        self.source, self.signature, self.entry = source, signature, entry
        self.name = call.name_of(signature)
        self.names = file_names(signature, call.constants)
        self.types = {self.names[one.name]: one.type for one in signature.parameters}
        of_names = ("args", "outputs", "sizes", "shapes", "constants", "reference")
        self.symbols = {self.names[symbol]: symbol for symbol in call.constants}
        self.call = call = replace(call, **{what: self._in_file(getattr(call, what)) for what in of_names})
        self.arrays: dict[str, tuple[NDArray[Any], str]] = {}
        self.numbers: dict[str, tuple[str, Value]] = {}
        self.members: dict[str, dict[str, tuple[str, Value]]] = {}  # of structs by value
        self.expressions: dict[str, str] = {}  # passed instead of a number
        self.parameters = {name: values_of(name, values) for name, values in call.params.items()}
        self.files: dict[str, bytes | NDArray[Any]] = {}
        self.given: dict[str, str] = {}
        """Functions of ``inputs.py`` by tensor."""
        self.fixed: list[str] = []
        """Why nothing can be said of other sizes."""

    def described(self) -> Described:
        """Return all of it."""
        self._take_arguments()
        self.sizes = self._sizes()
        shapes = {name: self._shape(name) for name in self._tensor_names()}
        computed = self._computed()
        roles = self._roles()
        tensors = {name: self._tensor(name, shapes[name], roles[name]) for name in shapes}
        if self.given:
            self.files["inputs.py"] = "".join([_INPUTS, *self.given.values()]).encode()
        constraints = self._constraints()
        written = [name for name, role in roles.items() if role != "input"]
        outputs = {name: self._evaluated(name, shapes[name]) for name in written}
        scalars = {name: pair for name, pair in self.numbers.items() if name not in self.sizes}
        given = [*self.sizes, *scalars, *(name for name, role in roles.items() if role != "output")]
        available = {name: name for name in given}
        available |= {name: of for name, of in self.names.items() if of in given}
        reference, function = reference_of(self.call, outputs, self.files, available)
        words = self.source.names.union(self.source.asked)
        role = free_role({*self.sizes, *self.parameters, *self.names.values()}, words)
        draft = Draft(
            name=self.name,
            sizes=self.sizes,
            tensors=tensors,
            dtypes={role: [tensors[written[0]].dtype]},
            **computed,
            parameters=self._parameter_drafts(),
            constraints=constraints,
            scalars=scalars,
            reference=reference,
        )
        arguments = {one.name: self.names[one.name] for one in self.signature.parameters}
        arguments = {name: of for name, of in arguments.items() if of not in self.expressions}
        return Described(draft, self.files, function, arguments, available, "".join(self.fixed[:1]))

    def _computed(self) -> dict[str, Any]:
        """Return how it is launched, as fields of a draft."""
        require_useful(self.call, self.entry, [*self.call.repeat.values(), *self.expressions.values()])
        loops = [{"name": name, "count": self._literal(str(of))} for name, of in self.call.repeat.items()]
        launch = LaunchDraft(
            self._source_file(),
            self.entry,
            [self._argument(name) for name in self.types],
            self._texts("grid", self.call.grid),
            self._texts("block", self.call.block),
            "".join(self._texts("shared_memory", self.call.shared_memory)),
            {self.symbols[name]: name for name in self.call.constants},
            {"repeat": loops} if loops else {},
        )
        options = list(sequence(self.call.compile_options))
        return {"launches": [launch], "compile": {"options": options} if options else {}}

    def _in_file(self, given: Any) -> Any:
        """Return text, several, or a mapping by names, with the names of the file."""
        match given:
            case str() if ".py:" not in given:
                return _NAME.sub(lambda match: self.names.get(match[0], match[0]), given)
            case Mapping():
                return {self.names.get(name, name): self._in_file(one) for name, one in given.items()}
            case list() | tuple():
                return [self._in_file(one) for one in given]
        return given

    # -- arguments, sizes and shapes

    def _take_arguments(self) -> None:
        args, names = self.call.args or {}, list(self.types)
        takes = ", ".join(
            f"{'const ' * one.type.const}{one.type.text} {one.name}" for one in self.signature.parameters
        )
        if not isinstance(args, Mapping):
            if len(args) != len(names):
                raise UsageError(
                    f"{self.name} takes {len(names)} arguments, args has {len(args)}", f"pass [{takes}]"
                )
            args = dict(zip(names, args, strict=True))
        require(args, names, f"{self.name} has no argument {{!r}}")
        for name, of in self.types.items():
            if name not in args:
                where = "shapes" if of.pointers else "sizes"
                if name not in (getattr(self.call, where) or ()):
                    remedy = f"pass [{takes}], or {where}={{{name!r}: ...}}"
                    raise UsageError(f"{'args' if args else where} has no {name}", remedy)
            elif not of.pointers and (of.dtype is None or (is_complex(args[name]) and "complex" in of.dtype)):
                self.members[name] = members(name, args[name], of, self.source.structs.get(of.text) or ())
                self.numbers |= self.members[name]
            elif not of.pointers and isinstance(args[name], str):
                self.expressions[name] = args[name]
            elif not of.pointers:
                self.numbers[name] = number(name, args[name], of)
            else:
                self.arrays[name] = pointed_to(name, *on_host(name, args[name]), of)
        given = {of: self.call.constants[name] for name, of in self.symbols.items()}
        self.arrays |= zip(self.symbols, filled(self.call, self.source, self.entry, given), strict=True)
        require(
            self.call.shapes, self._tensor_names(), f"shapes names {{!r}}, which is no array of {self.name}"
        )

    def _tensor_names(self) -> list[str]:
        return [*(name for name, of in self.types.items() if of.pointers), *self.call.constants]

    def _sizes(self) -> dict[str, int]:
        """Return the sizes by name: integers that the call names, or that are an extent of an array."""
        given, values = self.call.sizes, {name: value for name, (_, value) in self.numbers.items()}
        if isinstance(given, Mapping):
            sizes = {name: int(size) for name, size in given.items()}
            for name, size in sizes.items():
                if values.get(name, size) != size:
                    raise UsageError(f"sizes has {name}={size}, and args {values[name]}", "say the same")
            return sizes
        whole = {name: value for name, value in values.items() if isinstance(value, int) and value > 0}
        if given is not None:
            require(given, whole, "sizes names {!r}, which is no positive integer of args")
            return {name: whole[name] for name in given}
        texts = " ".join(str(part) for shape in self.call.shapes.values() for part in sequence(shape))
        named = re.findall(r"[A-Za-z_]\w*", texts)
        extents = {extent for array, _ in self.arrays.values() for extent in array.shape}
        return {name: value for name, value in whole.items() if name in named or value in extents}

    def _shape(self, name: str) -> list[str]:
        """Return a tensor's shape as expressions; the array takes it on."""
        array, dtype = self.arrays.get(name, (None, ""))
        if name not in self.call.shapes:
            assert array is not None
            if name in self.call.constants:  # its extents are those of the source
                return [str(extent) for extent in array.shape]
            lanes = 1 if array.dtype.kind == "c" else self.types[name].lanes
            inner = [str(lanes)] if lanes > 1 and array.shape[-1] == lanes else []
            return [
                *(self._extent(name, extent) for extent in array.shape[: array.ndim - len(inner)]),
                *inner,
            ]
        shape = [self._literal(str(part)) for part in sequence(self.call.shapes[name])]
        extents = self._evaluated(f"shapes[{name!r}]", shape)
        if array is not None:
            if math.prod(extents) != array.size or (array.ndim == len(extents) and array.shape != extents):
                raise UsageError(
                    f"shapes has {extents} for {name}, and its shape is {array.shape}", "correct it"
                )
            self.arrays[name] = array.reshape(extents), dtype
        return shape

    def _extent(self, tensor: str, extent: int) -> str:
        fitting = [name for name, size in self.sizes.items() if size == extent]
        if len(fitting) > 1 and self.call.sizes is None:
            of = {size: size_of for size_of, size in reversed(self.sizes.items())}
            example = [str(of.get(one, one)) for one in self.arrays[tensor][0].shape]
            raise UsageError(
                f"{' and '.join(fitting)} are all {extent}, and so is an extent of {tensor}",
                f"say which it is: shapes={{{tensor!r}: {example}}}, or sizes=() for this problem alone",
            )
        if len(fitting) == 1:
            return fitting[0]
        if extent > 1:
            self.fixed.append(f"no size says the {extent} of {tensor}")
        return str(extent)

    def _evaluated(self, what: str, shape: Sequence[str]) -> tuple[int, ...]:
        try:
            return tuple(int(parse(text).evaluate(self.sizes)) for text in shape)
        except TunerError as error:
            raise UsageError(f"{what}: {error.problem}", error.remedy) from None

    # -- tensors, launch, constraints

    def _roles(self) -> dict[str, str]:
        """Return the role of each tensor: what outputs says, else inout for each pointer that is not const."""
        names, outputs = self._tensor_names(), self.call.outputs
        if outputs is None:
            roles = {name: "inout" for name, of in self.types.items() if of.pointers and not of.const}
        elif isinstance(outputs, Mapping):
            roles = dict(outputs)
        else:
            roles = {str(name): "output" for name in sequence(outputs)}
        require(roles, names, f"outputs names {{!r}}, which is no array of {self.name}")
        if const := [name for name in roles if name in self.types and self.types[name].const]:
            raise UsageError(
                f"outputs names {const[0]}, which {self.name} takes as const", "name what it writes"
            )
        if all(role == "input" for role in roles.values()):
            what = f"{self.name} takes only const pointers: it writes nothing", "drop the const of its output"
            if outputs is not None:
                what = f"outputs names nothing that {self.name} writes", f"pass outputs=[{names[-1]!r}]"
            raise UsageError(*what)
        return {name: roles.get(name, "input") for name in names}

    def _tensor(self, name: str, shape: Sequence[str], role: str) -> TensorDraft:
        if name not in self.arrays:
            dtype = self.types[name].dtype
            if dtype is None:
                raise UsageError(
                    f"{name} is {self.types[name].text}, whose dtype is not known", f"pass {name} in args"
                )
            return TensorDraft(shape, dtype, role, "zeros" if role == "inout" else None)
        array, dtype = self.arrays[name]
        init = None if role == "output" else self._init(name, array, shape, role)
        return TensorDraft(shape, dtype, role, init)

    def _init(self, name: str, array: NDArray[Any], shape: Sequence[str], role: str) -> Any:
        """Return what gives a tensor the values of an array: a number for equal ones, else a file.

        At other sizes floats are those of the call, cut or repeated.
        """
        if array.dtype.kind in "fc" and np.isnan(array).any():
            remedy = f", or outputs=[{name!r}] if {self.name} writes all of it" if role == "inout" else ""
            raise UsageError(f"{name} has NaN", f"pass numbers{remedy}")
        first = array.flat[0].item()
        if (array == array.flat[0]).all() and not (first and isinstance(first, complex)):
            return int(first) if isinstance(first, bool) and first else first if first else "zeros"
        self.files[f"{name}.npy"] = array
        sizes = [size for size in self.sizes if any(re.search(rf"\b{size}\b", text) for text in shape)]
        plain = all(re.fullmatch(r"[\w\s+*/-]+", text) for text in shape)
        if self.fixed or not sizes or not plain or array.dtype.kind not in "fc":
            return f"{name}.npy"  # whole numbers may be places in other arrays, which have them at this size alone
        self.given[name] = _INPUT.format(
            name=name, sizes=", ".join(sizes), shape=", ".join(shape), digest=digest(array.tobytes())
        )
        return f"inputs.py:{name}"

    def _argument(self, name: str) -> Any:
        if (text := self.expressions.get(name)) is not None:
            return {"value": self._literal(text), "dtype": self.types[name].dtype or "int32"}
        if name in self.members:
            return {"fields": [self._argument(one) for one in self.members[name]]}
        dtype = self.numbers[name][0] if name in self.numbers else self.types[name].dtype
        return {"value": name, "dtype": dtype} if name in self.sizes and dtype != "int32" else name

    def _texts(self, what: str, given: Texts | None) -> list[str]:
        """Return numbers of a launch as expressions."""
        if given is None:
            if what == "shared_memory":
                return []
            raise UsageError(f"{what} is missing", "for example grid='ceil_div(n, BLOCK)', block='BLOCK'")
        if not callable(given) and any(map(callable, sequence(given))):
            raise UsageError(f"{what} has a function in a list", "give one function that returns all numbers")
        texts = self._traced(what, given) if callable(given) else [str(part) for part in sequence(given)]
        most = 1 if what == "shared_memory" else 3
        if not 1 <= len(texts) <= most:
            raise UsageError(f"{what} has {len(texts)} numbers", f"give one{' to three' * (most == 3)}")
        return [self._literal(text) for text in texts]

    def _traced(self, what: str, function: Callable[..., Any]) -> list[str]:
        """Return a function as expressions; numbers that are no sizes stay as they are."""
        numbers = {name: [value] for name, (_, value) in self.numbers.items() if name not in self.sizes}
        settled: set[str] = set()
        texts = traced(what, function, self.sizes, {**numbers, **self.parameters}, settled, self.names)
        if settled:
            self.fixed.append(f"the function for {what} depends on what {min(settled)} is")
        return [self._literal(text) for text in texts]

    def _literal(self, text: str) -> str:
        """Return an expression in which numbers that are no sizes stand as they are."""
        return _NAME.sub(lambda match: self._number_of(match[0]), text)

    def _number_of(self, name: str) -> str:
        of = self.names.get(name, name)
        if of in self.sizes:
            return of
        return str(self.numbers[of][1]) if of in self.numbers else name  # arrays are no part of a launch

    def _constraints(self) -> dict[str, str]:
        where, conditions = self.call.where, {}
        given = where if isinstance(where, Mapping) else dict(enumerate(sequence(where)))
        for name, condition in given.items():
            traced = self._traced("where", condition) if callable(condition) else None
            (text,) = traced or [self._literal(str(condition))]
            conditions[name if isinstance(name, str) else " ".join(text.split())] = text
        if not self.sizes:
            self.fixed.append("it has no sizes")
        elif self.fixed:
            alone = " and ".join(f"{name} == {size}" for name, size in self.sizes.items())
            conditions[f"this problem alone: {self.fixed[0]}"] = alone
        return conditions

    def _parameter_drafts(self) -> dict[str, ParameterDraft]:
        """Return the parameters; without a given default, the first values that meet the constraints."""
        require(self.call.default, self.parameters, "default names {!r}, which is no parameter")
        for name, value in self.call.default.items():
            if value not in self.parameters[name]:
                raise UsageError(
                    f"default has {name}={value!r}, which is none of its values",
                    f"choose from {self.parameters[name]}",
                )
        default = self.call.default
        return {name: ParameterDraft(values, default.get(name)) for name, values in self.parameters.items()}

    def _source_file(self) -> str:
        name = f"{self.name}.cu{'.j2' if self.call.is_template else ''}"
        self.files[name] = self.call.source.encode()
        if self.call.file is not None:
            folder = self.call.file.resolve().parent
            for header in own_headers([self.call.source], [folder]):
                if header.is_relative_to(folder):
                    self.files[str(header.relative_to(folder))] = read_source(header).encode()
        return name
