"""TOML -> :class:`KernelSpec`, refusing what it does not know with the file, the key and a remedy."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner import paths
from tuner.calls import LibraryCall
from tuner.errors import ExpressionError, KernelError, UsageError
from tuner.expressions import FUNCTION_NAMES, ITEMSIZE, Expression, parse
from tuner.kernel import (
    DEVICE_LIMITS,
    RESOURCE_NAMES,
    ArgumentSpec,
    KernelSpec,
    LaunchSpec,
    ParameterSpec,
    ReferenceSpec,
    ScalarSpec,
    ScratchSpec,
    TensorSpec,
    VariantSpec,
    WorkSpec,
    suggestion,
)
from tuner.model import Value, digest
from tuner.reference import ArrayExpression
from tuner.toml_table import Table

ROLES = ("input", "output", "inout")
INITS = ("normal", "uniform", "zeros", "ones", "index")
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")
COMPILE_OPTIONS = (
    "std",
    "use_fast_math",
    "ftz",
    "prec-sqrt",
    "prec-div",
    "fmad",
    "maxrregcount",
    "extra-device-vectorization",
    "restrict",
    "generate-line-info",
    "lineinfo",
    "device-debug",
    "G",
    "dopt",
    "disable-warnings",
    "w",
    "diag-suppress",
    "diag-error",
    "diag-warn",
    "modify-stack-limit",
    "Ofast-compile",
    "split-compile",
    "define-macro",
    "undefine-macro",
)
"""NVRTC's options that only change the code: others write files, or change the target."""
MAX_FILE_BYTES = 1 << 20
BASELINES_HEADER = re.compile(r"""\s*\[\s*(?:baselines|"baselines"|'baselines')\s*\]""")
OTHER_CONTESTANTS = ("best", "default", "none", "numpy")
"""Words that `tune bench` has another meaning for."""
RESERVED = (*DEVICE_LIMITS, *RESOURCE_NAMES, "problem")
"""Names that expressions or templates already know; nothing else may have them."""


def builtin_kernels() -> list[str]:
    """Give the names of the kernels that come with the package."""
    return sorted(path.stem for path in paths.search_spaces().glob("*.toml"))


def load_kernel(name_or_file: str) -> KernelSpec:
    """Find a built-in kernel by name or read the user's own TOML file, and check all of it.

    Raises:
        UsageError: there is no such kernel or file.
        KernelError: the file says something that cannot be.
    """
    if name_or_file.endswith(".toml") or "/" in name_or_file:
        path = Path(name_or_file).expanduser()
        if not path.is_file():
            raise UsageError(f"no kernel file {name_or_file}", "give the path of a kernel's .toml file")
    else:
        path = paths.search_spaces() / f"{name_or_file}.toml"
        if name_or_file not in builtin_kernels():
            remedy = suggestion(name_or_file, builtin_kernels()) + ", or give the path of a .toml file"
            raise UsageError(f"no kernel named {name_or_file!r}", remedy)
    return read_kernel(path.resolve())


def read_kernel(path: Path) -> KernelSpec:
    """Read one kernel file."""
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
        if len(raw) > MAX_FILE_BYTES:
            raise KernelError(f"{path}: too large", f"a kernel file has at most {MAX_FILE_BYTES} bytes")
        text = raw.decode()
        data = tomllib.loads(text)
    except OSError as error:
        raise KernelError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise KernelError(f"{path}: not valid TOML: {error}") from None
    return _Reader(path).kernel(Table(data, path.name), digest(_without_baselines(text, data)))


def _without_baselines(text: str, data: Mapping[str, Any]) -> str:
    """Give a file's text without ``[baselines]``: adding one must not separate earlier results from later ones.

    A comment directly above the table or below its last call goes with it, one directly above the next table stays.
    Blank lines are not told from those that came with the table: between two tables the larger of the two gaps is kept,
    and at the ends of a file none.
    """
    lines = text.splitlines(keepends=True)
    start = next((i for i, line in enumerate(lines) if BASELINES_HEADER.match(line)), None)
    if start is None:
        return _trimmed(text)
    following = next(
        (i for i in range(start + 1, len(lines)) if lines[i].lstrip().startswith("[")), len(lines)
    )
    last = max(i for i in range(start, following) if i == start or _is_said(lines[i]))
    end = next((i for i in range(last + 1, following) if not lines[i].lstrip().startswith("#")), following)
    if end == following < len(lines):
        end = last + 1
    while start and lines[start - 1].lstrip().startswith("#"):
        start -= 1
    before, gap_before = _without_gap(lines[:start][::-1])
    after, gap_after = _without_gap(lines[end:])
    rest = _trimmed("".join([*before[::-1], *max(gap_before, gap_after, key=len), *after]))
    try:
        same = tomllib.loads(rest) == {key: value for key, value in data.items() if key != "baselines"}
    except tomllib.TOMLDecodeError:
        same = False
    return rest if same else _trimmed(text)


def _is_said(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _without_gap(lines: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Split the blank lines off that come first."""
    count = next((i for i, line in enumerate(lines) if line.strip()), len(lines))
    return lines[count:], lines[:count]


def _trimmed(text: str) -> str:
    """Give a text without blank lines at its ends, and with an end of its last line."""
    lines, _ = _without_gap(text.splitlines(keepends=True))
    lines, _ = _without_gap(lines[::-1])
    trimmed = "".join(lines[::-1])
    return trimmed if trimmed.endswith("\n") else trimmed + "\n"


def content_digest(kernel: KernelSpec) -> str:
    """Hash the TOML file and all that its templates may include: results of equal digests can be put together."""
    templates = {launch.template for variant in kernel.variants.values() for launch in variant.launches}
    folders = {template.parent for template in templates} | {paths.templates() / "common"}
    files = sorted({*templates, *(p for folder in folders for p in folder.glob("*.j2"))})
    return digest([kernel.digest, *(digest(path.read_bytes()) for path in files)])


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name that is too long, or has a zero in it
        return False


class _Reader:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.sizes: set[str] = set()

    def kernel(self, top: Table, text_digest: str) -> KernelSpec:
        head = top.table("kernel")
        name = self._identifier(head, head.get("name", str))
        summary = head.get("summary", str, "")
        head.done()

        problem = top.table("problem")
        sizes = problem.get("sizes", dict)
        self.sizes = set(sizes)
        for size, value in sizes.items():
            self._identifier(problem, size)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                problem.fail(f"sizes.{size} = {value!r}", "a size's default is a whole number from 1 up")
        dtypes = self._dtypes(problem)
        options = {
            self._identifier(problem, option): self._values(problem.table("options"), option)
            for option in problem.get("options", dict, {})
        }
        presets = problem.get("presets", dict, {})
        problem.done()
        self._unique(problem, sizes, dtypes, options, RESERVED)
        self._check_presets(problem, presets, sizes, dtypes, options)
        known = {*sizes, *dtypes, *options, *DEVICE_LIMITS}

        tensors = {
            name: self._tensor(name, table, known, dtypes)
            for name, table in top.table("tensors").children().items()
        }
        if not any(tensor.role != "input" for tensor in tensors.values()):
            top.fail("no tensor has role output or inout", 'give one role = "output"')
        scalars = {
            name: self._scalar(name, table, known, dtypes)
            for name, table in top.table("scalars").children().items()
        }
        self._unique(top, sizes, dtypes, options, tensors, scalars, RESERVED)
        arguments = {*sizes, *tensors, *scalars}

        reference = self._reference(top.table("reference"), known, dtypes, arguments, tensors)
        work = top.table("work")
        work_spec = WorkSpec(
            self._expression(work, "flops", known, "0"),
            self._expression(work, "bytes", known),
            self._choice(work, "pipe", ("vector", "matrix"), "vector"),
        )
        work.done()
        baselines = self._baselines(top.table("baselines"), tensors, arguments)
        compiling = top.table("compile")
        compile_options = tuple(
            self._compile_option(compiling, option) for option in compiling.get("options", list, [])
        )
        include = tuple(self._folder(compiling, item) for item in compiling.get("include", list, []))
        compiling.done()
        variants = {
            self._identifier(top, name): self._variant(name, table, known, dtypes, arguments)
            for name, table in top.table("variants").children().items()
        }
        if not variants:
            top.fail("there are no variants", "add a [variants.NAME] with parameters and launches")
        top.done()
        return KernelSpec(
            name, summary, self.path, text_digest, sizes, dtypes, options, presets, tensors, scalars, reference,
            work_spec, variants, compile_options, include, baselines,
        )  # fmt: skip

    def _dtypes(self, problem: Table) -> dict[str, tuple[str, ...] | str]:
        roles: dict[str, tuple[str, ...] | str] = {}
        for role, choices in problem.get("dtypes", dict).items():
            self._identifier(problem, role)
            if isinstance(choices, str):
                if choices not in ITEMSIZE and choices not in roles:
                    problem.fail(f"dtypes.{role} = {choices!r}", suggestion(choices, [*ITEMSIZE, *roles]))
                roles[role] = choices
            else:
                if not isinstance(choices, list) or not choices:
                    problem.fail(
                        f"dtypes.{role} = {choices!r}", "give a dtype or a list of them, default first"
                    )
                for choice in choices:
                    if not isinstance(choice, str) or choice not in ITEMSIZE:
                        problem.fail(f"dtypes.{role} has {choice!r}", suggestion(str(choice), ITEMSIZE))
                roles[role] = tuple(choices)
        if not roles:
            problem.fail("dtypes is empty", 'for example dtypes = { input = ["float32"] }')
        return roles

    def _check_presets(
        self,
        problem: Table,
        presets: Mapping[str, Any],
        sizes: Mapping[str, Any],
        dtypes: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> None:
        for preset, values in presets.items():
            if not isinstance(values, dict):
                problem.fail(f"presets.{preset} is not a table", "for example presets.small = { n = 1024 }")
            for name, value in values.items():
                what = f"presets.{preset}.{name} = {value!r}"
                if name in sizes:
                    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                        problem.fail(what, "a size is a whole number from 1 up")
                elif name in options or name in dtypes:
                    choices = options[name] if name in options else dtypes[name]
                    choices = [choices] if isinstance(choices, str) else list(choices)
                    if value not in choices:
                        problem.fail(what, suggestion(str(value), [str(choice) for choice in choices]))
                else:
                    problem.fail(
                        f"presets.{preset} sets {name!r}", suggestion(name, [*sizes, *options, *dtypes])
                    )

    def _tensor(self, name: str, table: Table, known: set[str], dtypes: Mapping[str, Any]) -> TensorSpec:
        tensor = TensorSpec(
            self._identifier(table, name),
            self._expressions(table, "shape", known),
            self._dtype(table, dtypes),
            self._choice(table, "role", ROLES, "input"),
            self._choice(table, "init", INITS, "normal"),
            self._expression(table, "transposed", known) if "transposed" in table.data else None,
        )
        table.done()
        return tensor

    def _scalar(self, name: str, table: Table, known: set[str], dtypes: Mapping[str, Any]) -> ScalarSpec:
        scalar = ScalarSpec(
            self._identifier(table, name), self._dtype(table, dtypes), self._expression(table, "value", known)
        )
        table.done()
        return scalar

    def _reference(
        self,
        table: Table,
        known: set[str],
        dtypes: Mapping[str, Any],
        arguments: set[str],
        tensors: Mapping[str, Any],
    ) -> ReferenceSpec:
        cuda = None
        if "cuda" in table.data:
            launch = table.table("cuda")
            cuda = self._launch(launch, known, arguments, allow_magnitude=True)
            given = {argument.name for argument in cuda.arguments}
            for tensor in tensors.values():
                for needed in (tensor.name, f"{tensor.name}_magnitude"):
                    if tensor.role != "input" and needed not in given:
                        launch.fail(
                            f"argument {needed!r} is missing",
                            "the reference writes every output and its magnitude",
                        )
        golden = {}
        for tensor, file in table.get("golden", dict, {}).items():
            if tensor not in tensors:
                table.fail(f"golden.{tensor} is not a tensor", suggestion(tensor, tensors))
            golden[tensor] = self.path.parent / str(file)
        accumulate = table.get("accumulate", str, "accumulate" if "accumulate" in dtypes else "float32")
        if accumulate not in ITEMSIZE and accumulate not in dtypes:
            table.fail(f"accumulate = {accumulate!r}", suggestion(accumulate, [*dtypes, *ITEMSIZE]))
        tolerance = float(table.get("tolerance", (int, float), 1.0))
        if not 0.0 < tolerance < math.inf:
            table.fail(f"tolerance = {tolerance}", "it is a factor above 0 on the allowed error")
        reference = ReferenceSpec(
            self._numpy(table, tensors, arguments),
            cuda,
            golden,
            self._expression(table, "reduction", known) if "reduction" in table.data else None,
            accumulate,
            tolerance,
        )
        table.done()
        return reference

    def _numpy(
        self, table: Table, tensors: Mapping[str, TensorSpec], arguments: set[str]
    ) -> dict[str, ArrayExpression]:
        outputs = [tensor.name for tensor in tensors.values() if tensor.role != "input"]
        texts = table.get("numpy", (str, dict), {})
        if isinstance(texts, str):
            if len(outputs) > 1:
                table.fail(
                    "numpy is one expression", f"write numpy = {{ {outputs[0]} = ..., {outputs[1]} = ... }}"
                )
            texts = {outputs[0]: texts}
        expressions = {}
        for output, text in texts.items():
            if output not in outputs:
                table.fail(f"numpy.{output} is not an output", suggestion(output, outputs))
            try:
                expressions[output] = ArrayExpression(str(text))
            except ExpressionError as error:
                table.fail(f"numpy: {error}")
            except RecursionError:
                table.fail("numpy is nested too deeply", "simplify it")
            unknown = expressions[output].names - arguments
            if unknown:
                table.fail(
                    f"numpy = {text!r} uses unknown name {min(unknown)!r}",
                    suggestion(min(unknown), sorted(arguments)),
                )
        return expressions

    def _baselines(
        self, table: Table, tensors: Mapping[str, TensorSpec], arguments: set[str]
    ) -> dict[str, str]:
        outputs = [tensor.name for tensor in tensors.values() if tensor.role != "input"]
        calls = {}
        for name in list(table.data):
            if self._identifier(table, name) in OTHER_CONTESTANTS:
                table.fail(f"{name!r} cannot name a baseline", "name it after its library, such as torch")
            try:
                call = LibraryCall(table.get(name, str))
            except ExpressionError as error:
                table.fail(f"{name}: {error.problem}", error.remedy)
            for unknown in sorted(call.names - arguments):
                table.fail(
                    f"{name} = {call.text!r} uses unknown name {unknown!r}",
                    suggestion(unknown, sorted(arguments)),
                )
            for target in call.outputs:
                if target not in outputs:
                    table.fail(f"{name}: out={target} is not an output", suggestion(target, outputs))
            calls[name] = call.text
        table.done()
        return calls

    def _variant(
        self, name: str, table: Table, known: set[str], dtypes: Mapping[str, Any], arguments: set[str]
    ) -> VariantSpec:
        summary = table.get("summary", str, "")
        requires = self._expression(table, "requires", known) if "requires" in table.data else None
        parameters = {
            self._identifier(table, parameter): self._parameter(parameter, spec)
            for parameter, spec in table.table("parameters").children().items()
        }
        self._unique(table, parameters, known | arguments | set(RESERVED))
        inner = known | set(parameters)
        scratch = {
            n: self._scratch(n, t, inner, dtypes) for n, t in table.table("scratch").children().items()
        }
        self._unique(table, parameters, scratch, known | arguments | set(RESERVED))
        reasons = table.table("constraints")
        constraints = tuple(
            (reason, self._expression(reasons, reason, inner | set(RESOURCE_NAMES)))
            for reason in list(reasons.data)
        )
        launches = tuple(
            self._launch(launch, inner, arguments | set(scratch) | set(parameters))
            for launch in table.tables("launches")
        )
        if not launches:
            table.fail("there are no launches", f"add [[variants.{name}.launches]]")
        table.done()
        return VariantSpec(
            name, summary, requires, parameters, constraints, tuple(scratch.values()), launches
        )

    def _parameter(self, name: str, table: Table) -> ParameterSpec:
        values = self._values(table, "values")
        default = table.get("default", (int, float, str, bool), values[0])
        if default not in values or type(default) is not type(values[values.index(default)]):
            table.fail(f"default = {default!r} is not among its values", f"choose from {list(values)}")
        doc = table.get("doc", str, "")
        table.done()
        return ParameterSpec(name, values, default, doc)

    def _scratch(self, name: str, table: Table, known: set[str], dtypes: Mapping[str, Any]) -> ScratchSpec:
        scratch = ScratchSpec(
            self._identifier(table, name),
            self._expressions(table, "shape", known),
            self._dtype(table, dtypes),
            table.get("zeroed", bool, False),
        )
        table.done()
        return scratch

    def _launch(
        self, table: Table, known: set[str], arguments: set[str], *, allow_magnitude: bool = False
    ) -> LaunchSpec:
        if allow_magnitude:
            arguments = arguments | {
                f"{name}{suffix}" for name in arguments for suffix in ("_magnitude", "_initial")
            }
        launch = LaunchSpec(
            self._template(table),
            self._entry(table, known),
            tuple(self._argument(table, item, known, arguments) for item in table.get("arguments", list)),
            self._expressions(table, "grid", known),
            self._expressions(table, "block", known),
            self._expression(table, "shared_bytes", known, "0"),
            self._expressions(table, "cluster", known) if "cluster" in table.data else (),
            table.get("cooperative", bool, False),
            self._expression(table, "carveout", known) if "carveout" in table.data else None,
        )
        table.done()
        return launch

    def _entry(self, table: Table, known: set[str]) -> str:
        """Read an entry's name, which may be a Jinja template of what the source's template sees."""
        entry: str = table.get("entry", str)
        if "{" not in entry:
            return entry
        from tuner.render import undeclared_names  # Jinja is only loaded where it is used

        names = (known - set(DEVICE_LIMITS) - self.sizes) | {"cc", "problem"}
        try:
            unknown = undeclared_names(entry, self.path.parent)
        except KernelError as error:
            table.fail(f"entry = {entry!r}: {error}", "write NAME, or NAME_{{ parameter }}")
        for name in sorted(unknown - names):
            table.fail(f"entry = {entry!r} uses unknown name {name!r}", suggestion(name, sorted(names)))
        return entry

    def _argument(self, table: Table, item: Any, known: set[str], arguments: set[str]) -> ArgumentSpec:
        if isinstance(item, str):
            if item not in arguments:
                table.fail(
                    f"argument {item!r} is not a tensor, scratch, scalar, size or parameter",
                    suggestion(item, sorted(arguments)),
                )
            return ArgumentSpec(name=item)
        if not isinstance(item, dict):
            table.fail(f"argument {item!r}", 'give a name, or { value = "expression", dtype = "int64" }')
        inner = Table(item, f"{table.where}: arguments")
        argument = ArgumentSpec(
            value=self._expression(inner, "value", known),
            dtype=self._choice(inner, "dtype", tuple(ITEMSIZE), "int32"),
        )
        inner.done()
        return argument

    def _template(self, table: Table) -> Path:
        name = table.get("template", str)
        candidates: list[Path] = [folder / name for folder in (self.path.parent, paths.templates())]
        found = next((path for path in candidates if _exists(path) and path.is_file()), None)
        if found is None:
            table.fail(
                f"template {name!r} does not exist", f"put it beside {self.path.name}, or correct the name"
            )
        return found.resolve()

    def _compile_option(self, table: Table, option: Any) -> str:
        name = re.match(r"-{1,2}[A-Za-z][A-Za-z_-]*", str(option))
        if name is None or (
            name.group().lstrip("-") not in COMPILE_OPTIONS and not str(option).startswith(("-D", "-U"))
        ):
            table.fail(
                f"options has {option!r}", f"allowed are -DNAME=VALUE, -UNAME, {', '.join(COMPILE_OPTIONS)}"
            )
        return str(option)

    def _folder(self, table: Table, item: Any) -> Path:
        folder = self.path.parent / str(item)
        if not (_exists(folder) and folder.is_dir()):
            table.fail(f"include folder {item!r} does not exist", f"paths start at {self.path.parent}")
        return folder.resolve()

    def _values(self, table: Table, key: str) -> tuple[Value, ...]:
        values = table.get(key, list)
        kinds = {type(value) for value in values}
        if not values or len(kinds) != 1 or kinds.pop() not in (int, float, bool, str):
            table.fail(
                f"{key} = {values!r}",
                "give at least one value, all of one type: integers, numbers, booleans or text",
            )
        if not all(math.isfinite(value) for value in values if isinstance(value, float)):
            table.fail(f"{key} = {values!r}", "give finite numbers")
        if len(set(values)) != len(values):
            table.fail(f"{key} = {values!r} names a value twice", "leave one of them out")
        return tuple(values)

    def _dtype(self, table: Table, dtypes: Mapping[str, Any]) -> str:
        dtype: str = table.get("dtype", str)
        if dtype not in dtypes and dtype not in ITEMSIZE:
            table.fail(f"dtype = {dtype!r}", suggestion(dtype, [*dtypes, *ITEMSIZE]))
        return dtype

    def _choice(self, table: Table, key: str, choices: tuple[str, ...], default: str) -> str:
        value: str = table.get(key, str, default)
        if value not in choices:
            table.fail(f"{key} = {value!r}", suggestion(value, choices))
        return value

    def _expressions(self, table: Table, key: str, known: set[str]) -> tuple[Expression, ...]:
        items = table.get(key, (list, str, int))
        items = items if isinstance(items, list) else [items]
        if not items:
            table.fail(f"{key} is empty", "give at least one expression")
        return tuple(self._checked(table, key, str(item), known) for item in items)

    def _expression(self, table: Table, key: str, known: set[str], default: Any = ...) -> Expression:
        return self._checked(table, key, str(table.get(key, (str, int, float), default)), known)

    def _checked(self, table: Table, key: str, text: str, known: set[str]) -> Expression:
        try:
            expression = parse(text)
        except ExpressionError as error:
            table.fail(f"{key}: {error}")
        except RecursionError:
            table.fail(f"{key} = {text[:40]!r}... is nested too deeply", "split or simplify it")
        unknown = expression.names - known
        if unknown:
            name = min(unknown)
            table.fail(f"{key} = {text!r} uses unknown name {name!r}", suggestion(name, sorted(known)))
        return expression

    def _identifier(self, table: Table, name: str) -> str:
        if not IDENTIFIER.match(name) or name in FUNCTION_NAMES:
            table.fail(
                f"{name!r} cannot be a name", "use letters, digits and _, at most 64, and no function's name"
            )
        return name

    def _unique(self, table: Table, *groups: Iterable[str]) -> None:
        seen: set[str] = set()
        for group in groups:
            for name in group:
                if name in seen:
                    table.fail(f"{name!r} names two things", "rename one of them")
                seen.add(name)
