"""What ``tuner.tune`` was called with to describe a kernel; and what it says of values and the reference."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from tuner.api.arrays import is_array, on_host, pointed_to
from tuner.api.caller import portable
from tuner.core.errors import TunerError, UsageError, suggestion, typed
from tuner.core.model import Value
from tuner.kernel.functions import arguments_for
from tuner.kernel.headers import named_file, with_own_headers
from tuner.kernel.source.declarations import KernelSignature, Source
from tuner.kernel.source.device_part import declared_by
from tuner.kernel.source.expressions import number_of, numbers_of
from tuner.kernel.source.preprocessor import preprocessed
from tuner.kernel.source.tree import entry_name
from tuner.kernel.source.types import DTYPE_OF, CType
from tuner.kernel.toml.table import IDENTIFIER, name_for
from tuner.runtime.dtypes import BITS

P = ParamSpec("P")
Answer = TypeVar("Answer")
_STATEMENT = re.compile(
    r"\{%[-+]?\s*(?:block|call|extends|filter|for|from|if|import|include|macro|raw|set|with)\b"
)
"""Begins a statement of Jinja."""
_PRINTED = re.compile(r"\{\{([^{};]*)\}\}")
"""What Jinja prints. CUDA has such braces around a list, in which commas are, and rarely around one value."""
_OF_TEMPLATES = frozenset(("cc", "sm_count", "problem", "c_type", "itemsize", "ceil_div", "round_up"))
"""Names that a template sees beside parameters and sizes."""
Texts = str | int | Callable[..., Any] | Sequence[str | int]
"""Numbers of a launch: text, a number, several of these, or a function of sizes and parameters."""

WRITTEN = frozenset(("np", "Path", "_given", "ask"))
"""Names in the Python files that are written beside a kernel's file."""
OF_OPERATIONS = frozenset(("out", "stream", "sizes", "self"))
"""Names with a meaning beside those of numbers, where a winner is called."""


OF_BUILT = ("name", "where", "reference", "outputs", "sizes", "shapes", "default", "tolerance", "reduction")
"""Arguments beside ``args`` and ``params`` for a kernel that a function builds."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """What ``tuner.tune`` was called with to describe a kernel; its docstring says what each is."""

    source: str
    file: Path | None = None
    """Where the source was read from."""
    args: Sequence[Any] | Mapping[str, Any] | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    grid: Texts | None = None
    block: Texts | None = None
    where: Any = ()
    reference: Any = "default"
    outputs: Sequence[str] | Mapping[str, str] | None = None
    sizes: Mapping[str, int] | Sequence[str] | None = None
    shapes: Mapping[str, Any] = field(default_factory=dict)
    entry: str = ""
    name: str = ""
    default: Mapping[str, Value] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
    shared_memory: Texts | None = None
    repeat: Mapping[str, str | int] = field(default_factory=dict)
    tolerance: float | str | None = None
    reduction: int | str | None = None
    compile_options: Sequence[str] = ()

    @cached_property
    def is_template(self) -> bool:
        """Whether the source is a Jinja template, and not CUDA in which two braces open a list.

        A template's file is called so (``.j2``), or its text has statements of Jinja, or prints a parameter.
        """
        if self.file is not None and self.file.suffix == ".j2":
            return True
        texts = [text for text in _PRINTED.findall(self.source) if "," not in re.sub(r"\([^()]*\)", "", text)]
        printed = {word for text in texts for word in re.findall(r"\w+", text)}
        return bool(
            _STATEMENT.search(self.source)
            or printed & {*_OF_TEMPLATES, *self.params, *map(str, self.sizes or ())}
        )

    def name_of(self, kernel: KernelSignature) -> str:
        """Return under which name results are kept.

        Raises:
            UsageError: a kernel's file cannot have it.
        """
        name = self.name or kernel.short_name
        if not IDENTIFIER.match(name):
            remedy = "pass a name of letters, digits and _, 64 at most"
            raise UsageError(f"{name[:80]!r} cannot be a name", remedy)
        return name

    def entry_of(self, kernel: KernelSignature) -> str:
        """Return the entry as the kernel's file has it; what ``params`` has of a template's names is passed to it.

        Raises:
            UsageError: it has some of them, and nothing says the others.
        """
        entry, names = self.entry or kernel.name, [name for _, name, _ in kernel.template]
        left = [name for name in names if name not in self.params]
        if names and "<" not in entry and not left:
            entry += f"<{', '.join(names)}>"
        elif "<" not in entry and len(left) < len(names):
            types = [name for kind, name, _ in kernel.template if kind in ("typename", "class")]
            given = ", ".join(("float" if name in types else "4") if name in left else name for name in names)
            remedy = f"add it, or name an instance, such as entry='{entry}<{given}>'"
            raise UsageError(f"params has no {left[0]}, which the template of {entry} takes", remedy)
        for name in self.params.keys() & set(names):
            entry = re.sub(rf"(?<=[<,\s]){name}(?=\s*[,>])", "{{ " + name + " }}", entry)
        return entry


def in_python(function: Callable[P, Answer]) -> Callable[P, Answer]:
    """Return a function whose errors name arguments where those of the engine name options of the command line."""
    return in_words(words_of_python, TunerError)(function)


def in_words(
    words: Callable[[str], str], of: type[TunerError]
) -> Callable[[Callable[P, Answer]], Callable[P, Answer]]:
    """Return a decorator for a function whose errors of a type are said in other words."""

    def worded(function: Callable[P, Answer]) -> Callable[P, Answer]:
        @wraps(function)
        def said(*args: P.args, **named: P.kwargs) -> Answer:
            try:
                return function(*args, **named)
            except of as error:
                error.problem, error.remedy = map(words, (error.problem, error.remedy))
                error.args = ("; ".join(filter(None, (error.problem, error.remedy))),)
                raise

        return said

    return worded


def words_of_python(text: str) -> str:
    """Return a text with ``sizes={'n': 64}`` for ``--size n=64``, and so on."""

    def argument(match: re.Match[str]) -> str:
        name, given = match[1].replace("-", "_"), match[2] or ""
        if name == "device" and given:
            return f"device={given.strip()!r}"
        pairs = [part.partition("=") for part in given.strip().split(",") if "=" in part]
        if name not in ("size", "dtype", "option") or not pairs:
            return name + given
        shown = ", ".join(f"{key!r}: {value if name == 'size' else repr(value)}" for key, _, value in pairs)
        return f"{name}s={{{shown}}}"

    text = text.replace("add --force, or ", "").replace(" with -o", "").replace("with --db", "with db=")
    return re.sub(r"(?<!\S)--([a-z][a-z-]*)( [\w=,.*:-]*\w)?", argument, text)


def sequence(value: Any) -> Sequence[Any]:
    """Return what may be one or several as several."""
    return [value] if isinstance(value, str) or not isinstance(value, Sequence) else value


def require(given: Iterable[str], known: Collection[str], problem: str) -> None:
    """Refuse a name that is unknown.

    Raises:
        UsageError: it says the problem, in which ``{!r}`` is the name, and what is near.
    """
    for name in given:
        if name not in known:
            raise UsageError(problem.format(name), suggestion(str(name), known))


def require_useful(call: Call, entry: str, others: Iterable[str | int]) -> None:
    """Refuse a parameter that nothing uses, or that the source sets itself: it would only cost trials.

    Args:
        call: has the parameters.
        entry: of the kernel.
        others: expressions beside those of grid, block and shared memory.

    Raises:
        UsageError: a parameter has no name, is not used, its value would not reach the code, or its numbers are text.
    """
    for name, values in call.params.items():
        numbers = [value for value in values_of(name, values) if isinstance(value, str)]
        if numbers and all(re.fullmatch(r"\s*[+-]?\d+\.?\d*\s*", text) for text in numbers):
            remedy = f"pass numbers, as {{{name!r}: [{', '.join(map(str.strip, numbers[:4]))}]}}"
            raise UsageError(f"params has {name} = {numbers[:4]}, which is text", remedy)
    _require_settable(call, entry)
    used = set(re.findall(r"\w+", f"{call.source} {entry}"))  # also in branches not taken
    if call.is_template or "#include" in call.source:
        return
    texts = [call.grid, call.block, call.shared_memory, *others]
    for name in call.params:
        if not IDENTIFIER.match(name):
            raise UsageError(f"params has {name!r}, which is no name", "name a macro of the source")
        if any(callable(text) for text in texts) or name in used:
            continue
        if not any(re.search(rf"\b{name}\b", str(text)) for text in texts):
            known = sorted(word for word in used if word.isidentifier() and word.isupper())
            raise UsageError(
                f"params has {name}, which neither the source nor grid and block use", suggestion(name, known)
            )


def _require_settable(call: Call, entry: str) -> None:
    """Refuse a parameter whose value would not reach the code: the source sets it itself.

    Raises:
        UsageError: it has a macro of that name without ``#ifndef``, a constant or a type.
    """
    text = call.source
    if call.is_template:  # its parameters are no macros
        return
    if call.file is not None:
        text = with_own_headers(text, [call.file.resolve().parent], call.file.name)
    by_option = re.findall(
        r"(?:^|\s)(?:-D|--define-macro[= ])\s*(\w+)", " ".join(sequence(call.compile_options))
    )
    plain = preprocessed(text, {*call.params, *by_option})
    for name in [one for one in call.params if one not in declared_by(text, entry)]:
        if (macro := plain.macros.get(name)) is not None:
            problem = f"params has {name}, and the source sets it by #define {name} {macro.value}"
            raise UsageError(problem, f"write #ifndef {name} before that line, and #endif behind it")
        constant = rf"(?:\b(?:const|constexpr|using)\b[^;{{}}()]*|\benum\b[^;()]*)\b{name}\s*=(?!=)[^;,}}]*"
        constant += rf"|\btypedef\b[^;]*\b{name}\s*(?=;)"
        if (found := re.search(constant, plain.text)) is not None:
            problem = f"params has {name}, and the source sets it by {' '.join(found[0].split()):.60}"
            raise UsageError(problem, "leave that out: params define it as a macro")


def filled(
    call: Call, source: Source, entry: str, given: Mapping[str, Any]
) -> list[tuple[NDArray[Any], str]]:
    """Return what fills the source's ``__constant__`` memory: arrays as it has their elements, and their dtypes.

    Args:
        call: has the source.
        source: what it declares.
        entry: of the kernel.
        given: arrays and numbers by symbol.

    Raises:
        UsageError: there is no such symbol, one has another type or size, or nothing fills one that the kernel uses.
    """
    declared = {one.name: one for one in source.symbols if one.constant}
    if not call.is_template and '#include "' not in call.source:  # which may declare more
        require(given, declared, "constants names {!r}: the source has no such __constant__")
    known, (_, reached) = numbers_of(source, call.params), source.reached(entry_name(entry))
    for name, one in declared.items():
        if not one.initialised and name not in given and name.rpartition("::")[2] in reached:
            raise UsageError(
                f"nothing fills the __constant__ memory {name}", f"pass constants={{{name!r}: ...}}"
            )
    fitting = []
    for name, value in given.items():
        kind = declared[name].type if name in declared else CType("", "")
        number = isinstance(value, int | float) and kind.dtype not in (None, *BITS)
        array, dtype = on_host(name, np.full(1, value, kind.dtype) if number else np.atleast_1d(value))
        fitting.append(pointed_to(name, array, dtype, replace(kind, pointers=1)))
        extents = (
            [number_of(extent, known) for extent in declared[name].extents]
            if kind.base in DTYPE_OF
            else [None]
        )
        count = math.prod(extent or 0 for extent in extents) * kind.lanes
        array, dtype = fitting[-1]
        numbers = array.size * (2 if array.dtype.kind == "c" and kind.dtype != dtype else 1)
        if None not in extents and numbers != count:
            problem = f"{name} has {numbers} numbers, and the __constant__ memory has {count}"
            raise UsageError(problem, "pass as many, zeros for those that the kernel does not read")
    return fitting


def library_of(args: Any) -> str:
    """Return whose arrays a reference gets: the library of the call's own, ``torch``, ``cupy`` or ``numpy``."""
    arrays = args.values() if isinstance(args, Mapping) else args or ()
    names = {type(array).__module__.partition(".")[0] for array in arrays}
    return next((name for name in ("torch", "cupy") if name in names), "numpy")


def values_of(name: str, given: Any) -> list[Value]:
    """Return a parameter's values.

    Raises:
        UsageError: there are none, they are of several types, or something else than numbers and text.
    """
    if hasattr(given, "tolist"):  # an array of any library, also one without axes
        given = given.tolist()
    values = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]
    values = [value.item() if isinstance(value, np.generic) else value for value in values]
    if not values:
        raise UsageError(f"params has no values of {name}", f"for example {{{name!r}: [64, 128, 256]}}")
    kinds = {
        bool if isinstance(value, bool) else float if isinstance(value, int | float) else type(value)
        for value in values
    }
    if len(kinds) > 1 or not kinds <= {bool, float, str}:
        shown = ", ".join(map(repr, itertools.islice(values, 4)))
        remedy = "give values of one type: numbers, text, or True and False"
        raise UsageError(f"params has {name} = [{shown}]", remedy)
    if any(isinstance(value, float) for value in values):  # beside whole ones, as in [0.5, 1, 2]
        values = [float(value) for value in values]
    return list(dict.fromkeys(values))


def reference_of(
    call: Call, outputs: Mapping[str, Sequence[int]], files: dict[str, Any], available: Mapping[str, str]
) -> tuple[Any, Callable[..., Any] | None]:
    """Return what the kernel's file says of the reference, and the function if it is one of the caller's.

    Args:
        call: has the reference.
        outputs: extents by name.
        files: gets what lies beside the kernel's file.
        available: what a function may take: names in the file by those that its parameters may have.

    Raises:
        UsageError: it is none.
    """
    given, each = call.reference, f"reference={{{', '.join(f'{name!r}: ...' for name in outputs)}}}"
    bounds = {"tolerance": call.tolerance, "reduction": call.reduction}
    more = {
        name: one if isinstance(one, int | float) else str(one)
        for name, one in bounds.items()
        if one is not None
    }
    if given is None:
        return None, None
    if isinstance(given, str) and given == "default":
        return {"default": True, **more} if more else given, None
    if callable(given):
        _, named = arguments_for(given, available, "the reference")
        text, name = portable(given) if library_of(call.args) == "numpy" else ("", "")
        if text and all(name == of for name, of in named.items()):
            files["reference.py"] = text.encode()
            return {"python": f"reference.py:{name}", **more}, None
        return {"python": "caller.py:reference", **more}, given
    if isinstance(given, str | Path):
        file, _, function = str(given).rpartition(":")
        if not file.endswith(".py"):
            if len(outputs) > 1:
                raise UsageError(
                    f"reference is one expression, and the outputs are {', '.join(outputs)}", f"pass {each}"
                )
            return {"numpy": str(given), **more}, None
        if (path := named_file(file)) is None:
            raise UsageError(
                f"reference = {str(given)!r}: there is no file {file}", "give its path, or a function"
            )
        files[path.name] = path.read_bytes()
        return {"python": f"{path.name}:{function}", **more}, None
    if not isinstance(given, Mapping):
        several = given if isinstance(given, list | tuple) else [given]
        if len(several) > len(outputs):
            remedy = f"pass an array for each of {', '.join(outputs)}"
            raise UsageError(f"reference has {len(several)} values", remedy)
        given = dict(zip(outputs, several, strict=False))
    if missing := [name for name in outputs if name not in given]:
        raise UsageError(f"reference has no {' and no '.join(missing)}", f"pass {each}, a function, or None")
    if all(isinstance(one, str) for one in given.values()):
        return {"numpy": dict(given), **more}, None
    golden = {}
    for name, array in given.items():
        if name not in outputs or not is_array(array):
            remedy = f"pass an array for each of {', '.join(outputs)}; or a function, text, 'default' or None"
            raise UsageError(f"reference has {typed(array)} for {name}", remedy)
        golden[name] = f"{name}.expected.npy"
        values = on_host(name, array, gaps=True)[0]
        if values.dtype.kind == "c" and (*values.shape, 2) == tuple(outputs[name]):  # of a float*
            values = values.view(values.real.dtype).reshape(*values.shape, 2)
        files[golden[name]] = values
        if values.shape != tuple(outputs[name]):
            raise UsageError(f"reference has {name} of shape {values.shape}", f"pass {tuple(outputs[name])}")
    return {"golden": golden, **more}, None


def file_names(signature: KernelSignature, symbols: Iterable[str] = ()) -> dict[str, str]:
    """Return what a file calls a kernel's parameters and ``__constant__`` symbols, where those of C are taken."""
    names: dict[str, str] = {}
    in_c = {**dict.fromkeys(symbols, 1), **{one.name: one.type.pointers for one in signature.parameters}}
    for name, pointer in in_c.items():
        others = {*in_c, *names.values()} - {name}
        names[name] = name_for(name, others | (WRITTEN if pointer else WRITTEN | OF_OPERATIONS))
    return names
