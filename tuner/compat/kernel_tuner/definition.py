"""A kernel as a script describes it to Kernel Tuner, in the words of ``tuner.tune``."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any

from tuner.api.call import file_names
from tuner.api.tracing import traced
from tuner.core.errors import UsageError, suggestion, typed
from tuner.core.model import Value
from tuner.expressions.arithmetic import parse
from tuner.kernel.functions import first_line
from tuner.kernel.headers import with_own_headers
from tuner.kernel.options import is_allowed
from tuner.kernel.source.declarations import KernelSignature, Source, read_declarations
from tuner.kernel.source.tree import entry_name
from tuner.kernel.source.use import CodeUse

CUDA = ("CUDA", "CUPY", "NVCUDA", "PYCUDA")
BLOCK = {"block_size_x": "256", "block_size_y": "1", "block_size_z": "1"}
"""Names of the block's sizes, and what they are where no parameter says so."""
MOST_BYTES, MOST_SOURCES = 4 << 20, 100_000
"""Of the sources that a function generates, together."""
NOT_SERVED = {
    "texmem_args": "CUDA 12 has no texture references: read the array by a pointer, or through a texture object",
    "observers": "tune explain says what limits a winner, tune profile what it does",
    "simulation_mode": "replay a cache file with: tune --device replay:FILE.json",
    "objectives": "give one objective",
}
"""Arguments, and what to do instead."""
_INCLUDE = re.compile(r'^[^\S\n]*#[^\S\n]*include[^\S\n]*"([^"\n]+)"[^\n]*$', re.MULTILINE)
Choices = Mapping[str, Sequence[Value]]
_FOLDER = re.compile(r"(?:-I|-isystem|--include-path)=?")


@dataclass(frozen=True)
class Definition:
    """A kernel with its arguments.

    Attributes:
        name: of the function.
        source: its text.
        arguments: as given.
        choices: the values of each parameter that something uses.
        left_out: the other parameters, with their first values.
        host: whether it is host code.
        how: what else describes it to ``tuner.tune``.
        notes: what the user should know.
    """

    name: str
    source: str
    arguments: Sequence[Any]
    choices: Choices
    left_out: Mapping[str, Value]
    host: bool
    how: Mapping[str, Any]
    notes: Sequence[str]

    def parameters(self) -> list[str]:
        """Return what the kernel's file calls the C function's parameters.

        Raises:
            KernelError: the source has no such function.
            UsageError: there are more or fewer arguments.
        """
        function = self._signature()[1]
        known = file_names(function, self.how["constants"])
        names = [known[one.name] for one in function.parameters]
        if len(names) != len(self.arguments):
            takes = f"{self.name} takes {len(names)} arguments, and {len(self.arguments)} are given"
            raise UsageError(takes, f"pass {', '.join(names)}")
        return names

    def written(self) -> list[str]:
        """Return the arrays that the code may write: those of which it does not only read elements."""
        source, function = self._signature()
        uses = CodeUse(source, function, ()).pointers
        free = [one.name for one in function.parameters if one.type.pointers and not one.type.const]
        read = [
            name for name in free if (use := uses[name]).read and not (use.written or use.added or use.passed)
        ]
        return [name for name in free if name not in read]

    def _signature(self) -> tuple[Source, KernelSignature]:
        source = read_declarations(self.source)
        return source, source.kernel(entry_name(self.name))


def define(
    name: str,
    source: Any,
    problem_size: Any,
    arguments: Sequence[Any],
    params: Mapping[str, Any],
    divisors: Sequence[Any],
    restrictions: Any,
    options: Mapping[str, Any],
) -> Definition:
    """Return a kernel with its arguments; the parameters are those of ``tune_kernel``.

    Raises:
        UsageError: one of them is not served, or wrong.
        ExpressionError: a text is no expression.
    """
    for argument, remedy in NOT_SERVED.items():
        if options.get(argument):
            raise UsageError(f"{argument} is not served", remedy)
    if not (sources := listed(source)):
        raise UsageError("kernel_source is an empty list", "give a source, or its path")
    _texts("kernel_source", sources[callable(sources[0]) :])
    lang = options.get("lang") or _language(sources)
    if lang.upper() not in (*CUDA, "C"):
        what = f"lang={lang!r}" if options.get("lang") else f"kernel_source is {lang}, which"
        raise UsageError(f"{what} is not served", f"kernels are {', '.join(CUDA)}, host code is C")
    choices = {one: _values(one, values) for one, values in params.items()}
    names = _block_names(options.get("block_size_names"), choices)
    block = [one if one in choices else size for one, size in zip(names, BLOCK.values(), strict=True)]
    grid = [
        _quotient(size, divisor, axis, choices)
        for size, divisor, axis in zip(_sizes(problem_size, choices), divisors, names, strict=True)
    ]
    where = [text_of("restrictions", one, choices) for one in listed(restrictions or [])]
    macros = dict(zip(names, block, strict=True)) | {"kernel_tuner": "1"}
    macros |= {f"grid_size_{axis}": _in_c(text) for axis, text in zip("xyz", grid, strict=True)}
    if (defines := options.get("defines")) is not None:
        macros = {
            one: v if isinstance(v, str) else text_of("defines", v, choices) for one, v in defines.items()
        }
    given = compiler_options(options)
    folders = [Path(one[of.end() :]) for one in given if (of := _FOLDER.match(one))]
    text = with_own_headers(_source(sources, choices, where, macros), folders, f"{name}.cu")
    kept = [one for one in given if is_allowed(one)]
    dropped = [one for one in given if one not in kept and not _FOLDER.match(one) and lang.upper() != "C"]
    used = set(re.findall(r"[A-Za-z_]\w*", " ".join([text, name, *grid, *block, *where])))
    left_out = {one: values[0] for one, values in choices.items() if one not in used}
    notes = [f"{' '.join(dropped)} is left out: NVRTC compiles, for the GPU that is there"] if dropped else []
    notes += [f"{one} is not varied: neither the source nor the grid uses it" for one in left_out]
    notes += [
        f"block_size_names: {one} is no parameter; the block has {size}"
        for one, size in zip(listed(options.get("block_size_names") or []), BLOCK.values(), strict=False)
        if one not in params
    ]
    shared = _named("smem_args", options, "size").get("size")
    how: dict[str, Any] = {
        "grid": grid, "block": block, "where": where, "sizes": (), "entry": name,
        "name": re.sub(r"\W+", "_", name).strip("_"),
        "shared_memory": None if shared is None else text_of("smem_args", shared, choices),
        "constants": options.get("cmem_args") or {}, "compile_options": kept,
    }  # fmt: skip
    choices = {one: values for one, values in choices.items() if one in used}
    return Definition(name, text, arguments, choices, left_out, lang.upper() == "C", how, notes)


def listed(value: Any) -> list[Any]:
    """Return one or several as several; what NumPy has as plain numbers."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return list(value) if isinstance(value, list | tuple) else [value]


def compiler_options(options: Mapping[str, Any]) -> list[str]:
    """Return the compiler's options of a call, each with its value in one text."""
    several = options.get("compiler_options") or []
    given = list[str]()
    for option in _texts(
        "compiler_options", several.split() if isinstance(several, str) else listed(several)
    ):
        if given and (option[:1] != "-" or re.fullmatch(r"-X\w+|--\w+-options", given[-1])):
            given[-1] += option if len(given[-1]) == 2 else f"={option}"
        else:
            given.append(option)
    return given


def configurations(choices: Choices, where: Sequence[str]) -> Iterator[dict[str, Value]]:
    """Yield each combination of values for which all conditions hold."""
    tests = [parse(text) for text in where]
    each = (dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values()))
    yield from (one for one in each if all(test.holds(one) for test in tests))


def is_of(what: Definition, one: Mapping[str, Any]) -> bool:
    """Return whether a result is of a configuration that a script asks for."""
    inside = all(one[name] in values for name, values in what.choices.items())
    return inside and all(
        parse(text).holds({name: one[name] for name in what.choices}) for text in what.how["where"]
    )


def text_of(what: str, value: Any, choices: Choices) -> str:
    """Return a number, a text or a function of a configuration as an expression.

    Kernel Tuner rounds down what a text divides, so that ``"block_size_x/32"`` is an integer.
    """
    if isinstance(value, tuple | list) and len(value) == 2:  # a function, and the names of what it takes
        function, names = value
        return text_of(what, lambda p: function(*(p[one] for one in names)), choices)
    if callable(value):
        return traced(what, value, {}, choices)[0]
    if not isinstance(value, str | Real):
        given = "None" if value is None else typed(value)
        raise UsageError(f"{what} is {given}", "give numbers, texts or functions of the parameters")
    if not isinstance(value, str):
        return str(value)
    tree = parse(value, what).syntax
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Div):
        tree = ast.BinOp(tree.left, ast.FloorDiv(), tree.right)
    return ast.unparse(tree)


def _named(what: str, options: Mapping[str, Any], *known: str) -> Mapping[str, Any]:
    given: Mapping[str, Any] = options.get(what) or {}
    for name in given.keys() - known:
        raise UsageError(f"{what} has no {name!r}", suggestion(str(name), known))
    return given


def _values(name: str, values: Any) -> list[Value]:
    """Return a parameter's values, or its only one."""
    if not isinstance(name, str):
        raise UsageError(f"a parameter's name is {typed(name)}", "give text")
    several = values if isinstance(values, Iterable) and not isinstance(values, str) else [values]
    if not (several := list(several)):
        raise UsageError(f"parameter {name} has no values", "give at least one")
    several = [value.item() if getattr(value, "ndim", 1) == 0 else value for value in several]
    for value in several:
        if not isinstance(value, str | Real | None):
            raise UsageError(
                f"parameter {name} has {typed(value)} as a value", "give numbers, texts or truths"
            )
    return list(dict.fromkeys(several))


def _block_names(given: Any, choices: Choices) -> list[str]:
    given = _at_most_three("block_size_names", _texts("block_size_names", listed(given or [])))
    lower = {} if given else {name.lower(): name for name in choices}  # also in capitals
    return [lower.get(name, name) for name in [*given, *list(BLOCK)[len(given) :]]]


def _sizes(problem_size: Any, choices: Choices) -> list[str]:
    if callable(problem_size):
        return [*traced("problem_size", problem_size, {}, choices), "1", "1"][:3]
    if not (sizes := _at_most_three("problem_size", listed(problem_size))):
        raise UsageError("problem_size is empty", "give one number to three, texts, or a function")
    return [*(text_of("problem_size", size, choices) for size in sizes), "1", "1"][:3]


def _at_most_three(what: str, given: list[Any]) -> list[Any]:
    if len(given) > len(BLOCK):
        raise UsageError(f"{what} has {len(given)} parts", "give three at most")
    return given


def _texts(what: str, given: list[Any]) -> list[Any]:
    for one in given:
        if not isinstance(one, str | Path):
            raise UsageError(f"{what} has {typed(one)} in it", "give texts")
    return given


def _quotient(size: str, divisor: Any, axis: str, choices: Choices) -> str:
    """Return a size of the grid; without divisors the block divides."""
    given = listed(divisor) if divisor is not None else [axis] if axis in choices else []
    parts = [text_of("grid_div", part, choices) for part in given]
    whole = [part if part.isidentifier() or len(parts) == 1 else f"({part})" for part in parts]
    return size if size == "1" or not parts else f"ceil_div({size}, {' * '.join(whole)})"


def _source(sources: Sequence[Any], choices: Choices, where: Sequence[str], macros: Mapping[str, str]) -> str:
    """Return the source with what it includes of the other files, and the macros that it uses."""
    first, *others = sources
    included = {str(path): _read(path) for path in others}
    text = _generated(first, choices, where) if callable(first) else _read(first)
    text = _INCLUDE.sub(lambda found: included.get(found[1], found[0]), text)
    used = [one for one in macros if one != macros[one] and re.search(rf"\b{one}\b", text)]
    return "\n".join(
        [*(f"#define {one} {macros[one]}" for one in used), *(["#line 1"] if used else []), text]
    )


def _language(sources: Sequence[Any]) -> str:
    """Return what a source is written in, as Kernel Tuner finds it."""
    text = "" if callable(sources[0]) else "".join(map(_read, sources))
    return "CUDA" if not text or "__global__" in text else "OpenCL" if "__kernel" in text else "C"


def _read(source: Any) -> str:
    text = str(source)
    if "\n" in text or any(mark in text for mark in "(){};\\") or not Path(text).suffix:
        return text
    try:
        return Path(text).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read {text}: {error.strerror}", "give a source, or its path") from None


def _generated(generate: Callable[[Any], Any], choices: Choices, where: Sequence[str]) -> str:
    """Return one source that has those of all configurations; the preprocessor chooses."""
    texts: dict[str, list[str]] = {}
    varied = [name for name, values in choices.items() if len(values) > 1]
    for number, one in enumerate(configurations(choices, where)):
        test = " && ".join(f"{name} == {one[name]}" for name in varied)
        try:
            text = str(generate(one))
        except Exception as error:
            raise UsageError(
                f"the function for kernel_source fails: {first_line(error)}", "correct it"
            ) from error
        texts.setdefault(text, []).append(f"({test or 1})")
        if number > MOST_SOURCES or sum(map(len, texts)) > MOST_BYTES:
            raise UsageError(f"the function generates more than {MOST_BYTES >> 20} MiB", "give fewer values")
    if len(texts) < 2:
        return next(iter(texts), "")
    if not all(isinstance(value, int) for name in varied for value in choices[name]):
        raise UsageError("a generated source may depend on integers alone", "number the choices")
    parts = [part for text, tests in texts.items() for part in (f"#elif {' || '.join(tests)}", text)]
    return "\n".join(["#if 0", *parts, "#endif", ""])


def _in_c(text: str) -> str:
    """Return the size of a grid as C has it."""
    divided = re.fullmatch(r"ceil_div\((.*?), (.*)\)", text)
    return (f"((({divided[1]}) + ({divided[2]}) - 1) / ({divided[2]}))" if divided else f"({text})").replace(
        "//", "/"
    )
