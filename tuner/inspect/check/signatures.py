"""What launches pass, compared with what the kernels take: count, kind and size of each argument.

What a kernel takes is asked of the compiler itself, by a table behind the source that holds the parameters' types.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tuner.children.compilation import Compilation, RenderRequest, SourceRequest
from tuner.children.compile_pool import CompilePool
from tuner.core.model import Status, Value
from tuner.inspect.check.findings import Report
from tuner.inspect.check.toml_lines import Key
from tuner.kernel.headers import with_own_headers
from tuner.kernel.options import options_of
from tuner.kernel.plan import tensors_of
from tuner.kernel.reference import written_dtype
from tuner.kernel.render import render_launch
from tuner.kernel.source.device_part import needed_part
from tuner.kernel.spec import KernelSpec
from tuner.kernel.variant_spec import LaunchSpec
from tuner.runtime.dtypes import DTYPES, ITEMSIZE
from tuner.runtime.launch_limits import NULL_POINTER
from tuner.runtime.launches import OUTPUTS, Launch
from tuner.runtime.structs import size_of

TENSOR_MAP_BYTES = 128
FLOATS = ("float64", "float32")
WHOLE = frozenset(name for name, dtype in DTYPES.items() if dtype.whole)
OF_STRUCTS = (
    "pass a struct by value as { fields = [...] }: its members in order, each a name or a { value, dtype }"
)
NO_TEXTURES = (
    "texture and surface objects cannot be passed: let the kernel take a pointer, const T* __restrict__, which is read "
    "through the same cache"
)
_TEXTURE = re.compile(r"\bcuda(?:Texture|Surface)Object_t\b")
_SEVERAL = "which instance of overloaded function"
"""What the compiler says of a name of several kernels."""
_WITH_TEXTURE = re.compile(rf"\bstruct\b[^;{{}}]*{{[^}}]*{_TEXTURE.pattern}")
# Four numbers for each parameter: its kind and size, and those of what it points to. The table is no constant, or the
# compiler would leave it out. Names are ones that no macro of a user has.
_TABLE = """
template <class kt_T> struct kt_kind { static constexpr unsigned short kt_of = 0, kt_bytes = sizeof(kt_T); };
template <> struct kt_kind<void> { static constexpr unsigned short kt_of = 0, kt_bytes = 0; };
template <class kt_T> struct kt_kind<const kt_T> : kt_kind<kt_T> {};
template <class kt_T> struct kt_kind<volatile kt_T> : kt_kind<kt_T> {};
template <class kt_T> struct kt_kind<const volatile kt_T> : kt_kind<kt_T> {};
template <class kt_T> struct kt_kind<kt_T*> { static constexpr unsigned short kt_of = 3, kt_bytes = sizeof(kt_T*); };
template <class kt_T> struct kt_kind<kt_T&> { static constexpr unsigned short kt_of = 4, kt_bytes = sizeof(kt_T*); };
#define KT_KIND(kt_type, kt_number) \\
    template <> struct kt_kind<kt_type> { \\
        static constexpr unsigned short kt_of = kt_number, kt_bytes = sizeof(kt_type); \\
    };
KT_KIND(float, 2) KT_KIND(double, 2)
KT_KIND(bool, 1) KT_KIND(char, 1) KT_KIND(signed char, 1) KT_KIND(unsigned char, 1)
KT_KIND(short, 1) KT_KIND(unsigned short, 1) KT_KIND(int, 1) KT_KIND(unsigned int, 1)
KT_KIND(long, 1) KT_KIND(unsigned long, 1) KT_KIND(long long, 1) KT_KIND(unsigned long long, 1)
template <class kt_T> struct kt_target { using kt_type = void; };
template <class kt_T> struct kt_target<kt_T*> { using kt_type = kt_T; };
template <class kt_T> struct kt_one {
    unsigned short kt_kind_ = kt_kind<kt_T>::kt_of, kt_bytes = kt_kind<kt_T>::kt_bytes;
    unsigned short kt_target_ = kt_kind<typename kt_target<kt_T>::kt_type>::kt_of;
    unsigned short kt_target_bytes = kt_kind<typename kt_target<kt_T>::kt_type>::kt_bytes;
};
template <class... kt_T> struct kt_all;
template <> struct kt_all<> {};
template <class kt_T, class... kt_U> struct kt_all<kt_T, kt_U...> { kt_one<kt_T> kt_first; kt_all<kt_U...> kt_others; };
template <class kt_T> struct kt_table;
template <class... kt_T> struct kt_table<void (*)(kt_T...)> {
    unsigned long long kt_begin = @BEGIN@, kt_count = sizeof...(kt_T);
    kt_all<kt_T...> kt_all_;
};
extern "C" { __device__ kt_table<decltype(&@ENTRY@)> kt_signature = {}; }
"""
_KINDS = ("other", "integer", "float", "pointer", "reference")
_BEGIN = 0x5D1E_96B0_C3A7_F842
"""What the table begins with, as nothing else in a cubin does."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel, as the compiler has it."""

    kind: str
    """``pointer``, ``reference``, ``integer``, ``float``, or ``other``: a class, such as a tensor map or a half."""
    size_bytes: int
    target_kind: str = ""
    """Of a pointer: what it points to, likewise; ``other`` for ``void``."""
    target_bytes: int = 0

    def __str__(self) -> str:
        if self.kind == "pointer":
            if self.target_kind == "pointer":
                return "a pointer to pointers"
            target = f" to {_said(self.target_kind, self.target_bytes)}" if self.target_bytes else ""
            return f"a pointer{target}"
        if self.kind == "reference":
            return "a reference"
        return _said(self.kind, self.size_bytes)


def _said(kind: str, size_bytes: int) -> str:
    article = "an" if size_bytes == 1 else "a"
    bits = {kind: f"{article} {8 * size_bytes}-bit {kind}" for kind in ("integer", "float")}
    return bits.get(kind, f"an object of {size_bytes} bytes")


@dataclass(frozen=True)
class PlannedCall:
    """A launch as it is planned, and the source of its kernel."""

    key: Key
    spec: LaunchSpec
    launch: Launch
    source: str
    request: RenderRequest

    @property
    def passed(self) -> tuple[tuple[str, str], ...]:
        """Kind and dtype or name of each argument: calls with the same need no second look."""
        return tuple(
            (kind, str(value) if kind == "struct" else name) for kind, name, value in self.launch.arguments
        )


def check_signatures(
    kernel: KernelSpec, calls: Sequence[PlannedCall], pool: CompilePool, report: Report
) -> set[str]:
    """Report arguments that do not fit their parameters, and return the variants whose they are.

    Args:
        kernel: whose launches they are.
        calls: of all configurations; one of each kind is looked at.
        pool: compiles their kernels once more, with the table.
        report: gets the findings.
    """
    chosen = list({(call.key, call.passed): call for call in calls}.values())
    waits = [pool.submit(_request(kernel, call)) for call in chosen]
    unfit: set[str] = set()
    for call, wait in zip(chosen, waits, strict=True):
        compilation = whole = wait.result()
        if compilation.status is Status.COMPILE_ERROR:  # as a whole; the table was not of what is needed
            compilation = pool.submit(_request(kernel, call, whole=False)).result()
        if compilation.status in (Status.COMPILE_TIMEOUT, Status.COMPILE_OOM):
            report.note(f"parameters were not compared with arguments: {compilation.error}")
        elif compilation.status is not Status.OK:
            several = _SEVERAL in whole.log + compilation.log
            why = "its entry stands for several kernels" if several else compilation.error
            report.note(f"{call.spec.template.name}: parameters were not compared: {why}")
        else:
            before = len(report.findings)
            _compare(kernel, call, _parameters(compilation), report)
            if len(report.findings) > before:
                unfit.add(call.request.configuration.variant)
    return unfit


def _request(kernel: KernelSpec, call: PlannedCall, *, whole: bool = True) -> SourceRequest:
    """Return the source of a call's kernel, or what it needs of that and its headers, and behind it the table."""
    request = call.request
    _, entry = render_launch(kernel, call.spec, request.problem, request.gpu, request.configuration)
    table = _TABLE.replace("@BEGIN@", f"{_BEGIN:#x}ull").replace("@ENTRY@", entry)
    include = (call.spec.template.parent, *kernel.include)
    of = None if request.reference else request.configuration
    options = options_of(kernel, request.problem, request.gpu, of)
    text = call.source
    if not whole:
        text = needed_part(with_own_headers(text, include, call.spec.template.name), entry)
    return SourceRequest(text + table, entry, request.gpu, include, options)


def _parameters(compilation: Compilation) -> list[Parameter]:
    """Read the table in a cubin."""
    (cubin,) = compilation.cubins
    start = cubin.index(_BEGIN.to_bytes(8, "little")) + 8
    (count,) = struct.unpack_from("<Q", cubin, start)
    return [
        Parameter(_KINDS[kind], size, _KINDS[target] if kind == 3 else "", target_size)
        for kind, size, target, target_size in struct.iter_unpack("<4H", cubin[start + 8 :][: 8 * count])
    ]


def _compare(kernel: KernelSpec, call: PlannedCall, parameters: Sequence[Parameter], report: Report) -> None:
    arguments = call.launch.arguments
    entry = call.spec.entry
    key = (*call.key, "arguments")
    if len(arguments) != len(parameters):
        problem = f"{entry} takes {len(parameters)} parameters, and the launch passes {len(arguments)}"
        structs = any(one.kind == "other" for one in parameters)
        report.add(key, problem, OF_STRUCTS if structs else "make arguments and parameters match")
        return
    dtypes = dict(_dtypes(kernel, call))
    for number, (argument, parameter) in enumerate(zip(arguments, parameters, strict=True), 1):
        passed = _misfit(argument, parameter, dtypes)
        if argument[0] == "struct" and _WITH_TEXTURE.search(call.source):
            report.add(
                key, f"argument {number} of {entry} has a texture or surface among its members", NO_TEXTURES
            )
        elif passed:
            problem = f"argument {number} of {entry} is {passed}, but the parameter is {parameter}"
            report.add(key, problem, _remedy(argument, parameter, call.source))
        elif argument[0] == "buffer" and _is_cast(parameter, dtypes[argument[1]]):  # on purpose, perhaps
            what = f"the tensor {argument[1]} of {dtypes[argument[1]]}, taken as {parameter}"
            report.note(f"argument {number} of {entry} is {what}")


def _dtypes(kernel: KernelSpec, call: PlannedCall) -> Iterator[tuple[str, str]]:
    """Return the dtypes of tensors and scratch, and those that only a reference gets."""
    problem, gpu = call.request.problem, call.request.gpu
    for tensor in tensors_of(kernel, problem, gpu):
        exact = call.request.reference and kernel.reference.checked_against != "kernel"
        yield tensor.name, written_dtype(tensor) if exact and tensor.role in OUTPUTS else tensor.dtype
        yield f"{tensor.name}_magnitude", "float32"
        yield f"{tensor.name}_initial", tensor.dtype
    if not call.request.reference:
        for scratch in kernel.variants[call.request.configuration.variant].scratch:
            yield scratch.name, problem.dtypes.get(scratch.dtype, scratch.dtype)


def _misfit(argument: tuple[str, str, Value], parameter: Parameter, dtypes: dict[str, str]) -> str:
    """Return what is passed, if it does not fit; else an empty text."""
    kind, name, _ = argument
    if kind == "buffer":
        return "" if _points_to(parameter, dtypes[name]) else f"the tensor {name} of {dtypes[name]}"
    if argument == NULL_POINTER and parameter.kind == "pointer":
        return ""
    if kind == "map":
        fits = parameter.kind == "other" and parameter.size_bytes == TENSOR_MAP_BYTES
        return "" if fits else f"a tensor map of {name}, of {TENSOR_MAP_BYTES} bytes"
    if kind == "cluster_order":
        return "" if parameter.kind == "other" else "a table of places"
    size_bytes = size_of(argument)
    if kind == "struct":
        fits = parameter.kind not in ("pointer", "reference") and parameter.size_bytes == size_bytes
        return "" if fits else f"a struct of {size_bytes} bytes"
    # The bytes of a number do for any class of as many, such as uchar4.
    kinds = {"float": FLOATS, "integer": WHOLE}
    wanted = next((kind for kind, dtypes in kinds.items() if name in dtypes), "other")
    fits = parameter.kind in (wanted, "other") and parameter.size_bytes == size_bytes
    return "" if fits else f"a number of {name}"


def _is_cast(parameter: Parameter, dtype: str) -> bool:
    """Return whether a pointer is to integers of another size than a tensor's, or to some in place of floats."""
    other = ITEMSIZE[dtype] != parameter.target_bytes if dtype in WHOLE else dtype in FLOATS
    return parameter.target_kind == "integer" and other


def _remedy(argument: tuple[str, str, Value], parameter: Parameter, source: str) -> str:
    """Return what to do about an argument that does not fit."""
    if parameter.kind == "reference":
        return "its address would be one of the CPU's: let the kernel take a value or a pointer"
    if argument[0] == "struct":
        return "correct its members and their dtypes; alignment = 16 is that of a float4 or of alignas(16)"
    if parameter.target_kind == "pointer":
        return "let the kernel take one array, and compute where each part begins"
    if parameter.kind == "other":
        return OF_STRUCTS
    if argument[0] == "buffer" and parameter.kind == "integer" and _TEXTURE.search(source):
        return NO_TEXTURES
    if parameter.kind == "integer" and parameter.size_bytes == 1 and argument[0] == "scalar":
        return 'a bool is passed as { value = "...", dtype = "bool" }, or as a scalar of that dtype'
    numbers = {
        "float": {2: "float16", 4: "float32", 8: "float64"},
        "integer": {2: "int16", 4: "int32", 8: "int64"},
    }
    if argument[0] == "scalar" and (dtype := numbers.get(parameter.kind, {}).get(parameter.size_bytes)):
        return f'give it as {{ value = "...", dtype = "{dtype}" }}, or correct the order or the parameter'
    return "correct the order, the dtype or the parameter"


def _points_to(parameter: Parameter, dtype: str) -> bool:
    """Return whether a parameter may be meant for a tensor: a pointer, but to no pointers.

    One to floats is for such ones or their pairs, one to a class of two bytes for what has as many.
    """
    if parameter.kind != "pointer" or parameter.target_kind == "pointer":
        return False
    if parameter.target_kind == "float":
        return dtype in {4: ("float32", "complex64"), 8: ("float64", "complex128")}[parameter.target_bytes]
    if parameter.target_kind == "other" and parameter.target_bytes == 2:
        return ITEMSIZE[dtype] == 2
    return True
