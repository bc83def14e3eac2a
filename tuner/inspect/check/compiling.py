"""Compile a sample of configurations, and compare what their launches pass with what the kernels take."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tuner.children.compilation import Compilation, RenderRequest
from tuner.children.compile_pool import DEADLINE_S, CompilePool, default_jobs, patiently
from tuner.children.cubin import Variable, filled_variable, function_name, variables
from tuner.core import paths
from tuner.core.errors import TunerError
from tuner.core.model import Resources, Status
from tuner.inspect.check.findings import Report
from tuner.inspect.check.parameters import check_parameters
from tuner.inspect.check.signatures import PlannedCall, check_signatures
from tuner.inspect.check.subjects import Checks, Subject, alternatives
from tuner.inspect.check.toml_lines import Key
from tuner.kernel.headers import read_source
from tuner.kernel.plan import invalid_reason, reference_configuration, reference_launch
from tuner.kernel.source.declarations import Item, read_declarations
from tuner.kernel.source.device_part import declared_by, device_part
from tuner.kernel.source.tree import code
from tuner.kernel.source.types import DTYPE_OF, CType
from tuner.kernel.spec import KernelSpec
from tuner.kernel.variant_spec import LaunchSpec
from tuner.report.tables import counted
from tuner.runtime.dtypes import DTYPES, ITEMSIZE
from tuner.runtime.launches import Launch

_COMPILER_ERROR = re.compile(r"(?P<file>[^\s:][^:]*):(?P<line>\d+): (?:catastrophic )?error: (?P<text>.*)")
_TEMPLATE_ERROR = re.compile(r"(?P<file>[^\s:][^:]*):(?P<line>\d+): (?P<text>.*)")
DEVICE_ONLY = "#ifndef __CUDACC_RTC__ and #endif"
_REMEDIES = (
    (
        r'(?:identifier ")?(texture|surface)"? is (?:undefined|not a template)',
        ": CUDA has no {} references any more; let the kernel read by a pointer, const T*",
    ),
    (r'identifier "(?:__)?half2?" is undefined', "; include cuda_fp16.h"),
    (r'identifier "__nv_bfloat\w+" is undefined', "; include cuda_bf16.h"),
    (r'identifier "__nv_fp8\w+" is undefined', "; include cuda_fp8.h"),
    (
        r'identifier "\w+" is undefined',
        "; if it is a value to tune, add it to parameters; if it is the problem's, to options, or pass it; "
        "if another file declares it, include that",
    ),
    (
        ".*device-side kernel launch",
        f": NVRTC compiles no kernel that launches kernels; code of the CPU goes between {DEVICE_ONLY}",
    ),
    ("__cluster_dims__ is not supported", '; give the variant requires = "cc >= 90", which has clusters'),
    (".*Unresolved extern", ": a kernel is compiled by itself; include the file that defines it"),
    (".*annotation on lambda", "; leave it out: a lambda of a kernel is the device's"),
    (
        r'cannot open source file "(?:cub/|cublas|cuda|cufft|curand|cooperative_groups|crt/|mma\.h|nv/|thrust/)',
        "; it comes with a CUDA toolkit: set CUDA_HOME (tune doctor says which headers are found)",
    ),
    ("unrecognized token", "; the compiler takes names of the letters a to z, digits and _"),
    (
        "cannot open source file",
        f"; name its folder in [compile] include; a header that only code of the CPU needs goes between {DEVICE_ONLY}",
    ),
)
"""Messages of the compiler, and what to do."""


@dataclass(frozen=True)
class _Task:
    """A configuration, or the CUDA reference, for a GPU."""

    launches: tuple[LaunchSpec, ...]
    request: RenderRequest
    subject: Subject | None = None

    @property
    def variant(self) -> str:
        """The configuration's; empty for the CUDA reference."""
        return self.request.configuration.variant

    def key(self, kernel: KernelSpec, launch: LaunchSpec) -> Key:
        """Return the key of one of its launches."""
        if self.request.reference:
            return "reference", "cuda"
        number = next(n for n, one in enumerate(kernel.variants[self.variant].launches) if one is launch)
        return "variants", self.variant, "launches", number

    def __str__(self) -> str:
        what = "the CUDA reference" if self.request.reference else str(self.request.configuration)
        dtypes = ", ".join(dict.fromkeys(self.request.problem.dtypes.values()))
        return f"{what}, {dtypes}, on sm_{self.request.gpu.cc}"


Results = Sequence[tuple[_Task, Compilation]]


def check_compiling(
    kernel: KernelSpec, chosen: Sequence[Subject], checks: Checks, report: Report
) -> set[str]:
    """Report what does not compile, what cannot be launched, arguments that do not fit, parameters that do nothing.

    Returns:
        Variants of which nothing can be launched, or whose arguments do not fit: running them shows no more.
    """
    tasks = [*_reference_tasks(kernel, checks), *(task for one in chosen for task in _tasks(kernel, one))]
    if not tasks:
        return set()
    with closing(CompilePool(min(checks.jobs or default_jobs(), len(tasks)), paths.cubins())) as pool:
        waits = [pool.submit(task.request) for task in tasks]
        report.observer.phase("compilations", len(waits))
        results: list[tuple[_Task, Compilation]] = []
        try:
            for number, (task, wait) in enumerate(zip(tasks, waits, strict=True)):
                tell = partial(report.observer.step, str(task), number)
                tell()
                results.append((task, patiently(wait, tell)))
        finally:  # what was found is said, whatever ends this
            _check_failures(kernel, results, report)
            _check_limits(kernel, results, report)
            unfilled = _check_constants(kernel, results, report)
            for file in dict.fromkeys(one.template for subject in chosen for one in subject.variant.launches):
                if file.suffix != ".j2" and device_part(text := read_source(file)) != text:
                    report.note(f"{file.name}: code of the host is left out, as between {DEVICE_ONLY}")
            gpus = ", ".join(dict.fromkeys(f"sm_{task.request.gpu.cc}" for task in tasks))
            report.done.append(f"{counted(len(results), 'compilation')} for {gpus}")
        calls = [call for task, compilation in results for call in _calls(kernel, task, compilation)]
        unfit = check_signatures(kernel, calls, pool, report)
        running = {task.variant for task, compilation in results if compilation.status is Status.OK}
        for one in chosen:
            if one.variant.name in running and not one.wrong:
                check_parameters(kernel, one, pool, report)
    for subject in (one for one in chosen if not one.wrong):
        _check_constraints(kernel, subject, results, report)
    return ({task.variant for task in tasks} - running) | unfit | unfilled


def _check_failures(kernel: KernelSpec, results: Results, report: Report) -> None:
    """Report what does not compile."""
    failures: dict[tuple[Path, int, str], list[_Task]] = defaultdict(list)
    compiling = {task.variant for task, compilation in results if compilation.status is Status.OK}
    slow: list[_Task] = []
    for task, compilation in results:
        late = compilation.status is Status.COMPILE_TIMEOUT
        if late and task.variant in compiling:  # as some of a space may be: no fault of the file
            slow.append(task)
        elif late or compilation.status in (Status.COMPILE_ERROR, Status.COMPILE_OOM):
            failures[_location(kernel, task, compilation, report)].append(task)
    if slow:
        report.note(f"not compiled after {DEADLINE_S:g} s, as in a run: {_first_of(slow)}")
    for (file, line, problem), failed in failures.items():
        report.at(file, line, f"{problem} ({_first_of(failed)})")


def _first_of(tasks: Sequence[_Task]) -> str:
    return f"{tasks[0]} and {len(tasks) - 1} more" if len(tasks) > 1 else str(tasks[0])


def _check_limits(kernel: KernelSpec, results: Results, report: Report) -> None:
    """Report configurations that no driver launches, by what was compiled: one finding for each limit of a launch."""
    refused: dict[tuple[Key, str], list[tuple[_Task, str]]] = defaultdict(list)
    for task, compilation in results:
        if compilation.status is Status.INVALID_CONFIG and compilation.sources:
            number = compilation.refused if compilation.refused is not None else len(compilation.sources) - 1
            key = task.key(kernel, task.launches[number])
            refused[key, re.sub(r"\d+", "", compilation.error)].append((task, compilation.error))
    for (key, _), some in refused.items():
        problem = f"{some[0][1]} ({_first_of([task for task, _ in some])})"
        report.add(key, problem, "ask for less, or exclude such configurations by a constraint")


def _check_constants(kernel: KernelSpec, results: Results, report: Report) -> set[str]:
    """Report ``__constant__`` variables that a kernel reads and nothing fills; note those that are filled in part.

    Returns:
        Names of the variants with some that nothing fills: running them shows no more.
    """
    unfilled = set()
    for task, compilation in results:
        if compilation.status is not Status.OK:
            continue
        done = zip(task.launches, compilation.cubins, compilation.sources, compilation.entries, strict=False)
        for number, (launch, cubin, source, entry) in enumerate(done):
            key = task.key(kernel, launch)
            sizes = {name: 0 for name, _ in launch.constants}
            if compilation.plan is not None:
                sizes |= {name: size for name, _, size in compilation.plan.by_code[number][0].constants}
            try:
                filled = {
                    filled_variable(cubin, name, 0).symbol: (name, size) for name, size in sizes.items()
                }
            except TunerError as error:  # of the CUDA reference's
                report.error(error, key)
                continue
            found = variables(cubin)
            types = _types(source) if found else {}
            for one in found:
                name, size_bytes = filled.get(one.symbol, ("", one.size_bytes))
                kind = types.get(one.name, CType("", ""))
                if name and (wrong := _other_type(kind, kernel, task, dict(launch.constants)[name])):
                    report.add(key, f"constants.{name}: {wrong}", "give it such a tensor")
                if 0 < size_bytes < one.size_bytes:
                    report.note(f"{size_bytes} of {one.size_bytes} bytes of {name} are filled")
                if one.symbol not in filled and one.zero and _reads(source, entry, one):
                    unfilled.add(task.variant)
                    where = "__constant__" if one.constant else "__device__"
                    problem = f"nothing fills the {where} {one.name}, which {function_name(entry)} reads"
                    quoted = f'"{one.name}"' if ":" in one.name else one.name
                    remedy = f'add constants.{quoted} = "TENSOR" to the launch'
                    if kind.pointers:
                        remedy = "nothing can fill a pointer: pass the array as an argument"
                    report.add(key, problem, remedy)
    return unfilled


def _types(source: str) -> dict[str, CType]:
    """Return the types of a source's variables, as far as it can be read."""
    try:
        return {symbol.name: symbol.type for symbol in read_declarations(source).symbols}
    except TunerError:
        return {}


def _other_type(kind: CType, kernel: KernelSpec, task: _Task, tensor: str) -> str:
    """Return why a tensor's numbers are none of a variable's; empty if they are, or its type is not known."""
    wanted, dtype = DTYPE_OF.get(kind.base, ""), kernel.tensors[tensor].dtype
    dtype = task.request.problem.dtypes.get(dtype, dtype)
    whole = wanted and DTYPES[wanted].whole and DTYPES[dtype].whole and ITEMSIZE[wanted] == ITEMSIZE[dtype]
    if not wanted or wanted == dtype or whole or DTYPES[dtype].kind == "complex":
        return ""
    return f"the variable is of {wanted}, and {tensor} of {dtype}"


def _reads(source: str, entry: str, variable: Variable) -> bool:
    """Return whether code that a kernel may run names a variable that neither it nor an initializer gives a value."""
    try:
        said = read_declarations(source)
    except TunerError:
        return variable.constant
    items, reached = said.reached(function_name(entry))
    declared = [symbol for symbol in said.symbols if symbol.name == variable.name]
    name = variable.name.rpartition("::")[2]
    if name not in reached or any(symbol.initialised for symbol in declared):
        return False
    # What is not declared is a constant of a class, with the value that it has there.
    return variable.constant or (bool(declared) and not _writes(items, name))


def _writes(items: Iterable[Item], name: str) -> bool:
    """Return whether code may write to a variable: by an assignment, or where its address is taken or handed on."""
    text = " ".join(code(one.node) for one in items)
    space = r"(?:\( ?)*(?:(?:\w+ ?)?:: ?)*"  # and brackets, before the name
    element = r"(?: ?<[\w:, ]*>)?(?: ?\[[^;]*?\]| ?\. ?\w+)*"
    assigned = rf"\b{name}\b{element} ?(?:(?:[-+*/%&|^]|<<|>>)?=(?!=)|\+\+|--)"
    return bool(re.search(rf"{assigned}|(?:&|\+\+|--) ?{space}{name}\b|[(,=] ?{space}{name} ?[,);+]", text))


def _reference_tasks(kernel: KernelSpec, checks: Checks) -> list[_Task]:
    if kernel.reference.cuda is None or checks.configurations == 0:
        return []
    given = reference_configuration(kernel)
    return [
        _Task(
            (kernel.reference.cuda,), RenderRequest(kernel.file, kernel.problem(), gpu, given, reference=True)
        )
        for gpu in checks.gpus
    ]


def _tasks(kernel: KernelSpec, subject: Subject) -> list[_Task]:
    """Return the sample for each GPU, and its first configuration that is valid in each other dtype and option."""
    wanted = [
        (subject.problem, gpu, configuration)
        for gpu in subject.gpus
        for configuration in subject.configurations[: 1 if subject.wrong else None]
    ]
    gpu = subject.gpus[-1]
    for problem in alternatives(kernel, subject.problem):
        valid = (one for one in subject.configurations if not invalid_reason(kernel, problem, gpu, one))
        wanted += [(problem, gpu, configuration) for configuration in itertools.islice(valid, 1)]
    tasks = []
    for problem, gpu, configuration in wanted:
        try:
            launches = kernel.launches(problem, gpu, configuration)
        except TunerError:
            continue  # its plan says so
        request = RenderRequest(kernel.file, problem, gpu, configuration)
        tasks.append(_Task(launches, request, subject))
    return tasks


def _location(
    kernel: KernelSpec, task: _Task, compilation: Compilation, report: Report
) -> tuple[Path, int, str]:
    """Return file, line and text of the first error: in a template where the compiler says so, else of the launch."""
    number = max(0, min(len(compilation.sources), len(task.launches)) - 1)
    launch = task.launches[number]
    key = task.key(kernel, launch)
    pattern = _COMPILER_ERROR if compilation.log else _TEMPLATE_ERROR
    for line in (compilation.log or compilation.error).splitlines():
        if match := pattern.match(line):
            file = _file(kernel, launch, match["file"])
            if file is not None:
                text = _with_remedy(match["text"], str(file))
                if text == match["text"]:
                    text += _macro(task, file, int(match["line"]), text)
                return file, int(match["line"]), text
            text = (
                f"line {match['line']} of the rendered {launch.template.name}: {_with_remedy(match['text'])}"
            )
            return report.file, report.lines.line(key), text
    return report.file, report.lines.line(key), _with_remedy(compilation.error.removeprefix("error: "))


def _with_remedy(text: str, file: str = "") -> str:
    """Return a compiler's message of a file, with what to do about it."""
    if "/thrust/" in file:
        return f"{text}; of Thrust NVRTC compiles pair.h, tuple.h, functional.h and complex.h: a kernel can use these"
    found = ((match, remedy) for said, remedy in _REMEDIES if (match := re.match(said, text)))
    return next((text + remedy.format(*match.groups()) for match, remedy in found), text)


def _macro(task: _Task, file: Path, line: int, said: str) -> str:
    """Return what to do where a line that is no CUDA has types of torch, or what is a macro there."""
    lines = read_source(file).splitlines()[line - 1 : line] if file.suffix != ".j2" else []
    code = re.sub(r"//.*|/\*.*?\*/", "", lines[0]) if lines and "is undefined" not in said else ""
    if re.search(r"\b(?:torch|at|c10)\s*::", code):
        return (
            "; a kernel cannot use what torch has for programs: let it take pointers, sizes and CUDA's types"
        )
    given = (*task.request.configuration.values, *task.request.problem.options)
    of_entry = [
        declared_by(read_source(file), one.entry) & {*re.findall(r"\w+", one.entry)} for one in task.launches
    ]
    names = [name for name in given if re.search(rf"\b{name}\b", code) and name not in set().union(*of_entry)]
    types = "|".join(f"{role}_type" for role in task.request.problem.dtypes)
    names += re.findall(rf"\busing\s+({types})\b", code) + re.findall(rf"\btypedef\b.*\b({types})\s*;", code)
    declared = [
        n for n in names if re.search(rf"(?:\.|->)\s*{n}\b|\b(?!return\b)\w+\s+[*&]*{n}\s*[,)=;[{{]", code)
    ]
    if not names:
        return ""
    if re.search(r"\btemplate\b", code) and any(
        "<" not in one.entry and declared_by(read_source(file), one.entry) & {*names} for one in task.launches
    ):
        of_template = ", ".join(f"{{{{ {name} }}}}" for name in names)
        return f"; write the arguments of the kernel's template in entry, as NAME<{of_template}>"
    are = f"{' and '.join(declared or names)} {'is a macro' if len(declared or names) == 1 else 'are macros'} here"
    return f"; {are}, a value that is tuned or chosen: rename it, or name the file .cu.j2, which has no such macros"


def _file(kernel: KernelSpec, launch: LaunchSpec, name: str) -> Path | None:
    """Return the file that a compiler or template engine means."""
    folders = (launch.template.parent, kernel.folder, paths.templates(), *kernel.include)
    for candidate in (launch.template, *(folder / name for folder in folders)):
        if candidate.is_file() and (candidate.name == Path(name).name):
            return candidate
    return None


def _check_constraints(kernel: KernelSpec, subject: Subject, results: Results, report: Report) -> None:
    """Report constraints on the compiler's report that exclude all configurations of a variant."""
    mine = [(task, compilation) for task, compilation in results if task.subject is subject]
    key = ("variants", subject.variant.name)
    named = [
        {
            **kernel.environment(task.request.problem, task.request.gpu),
            **task.request.configuration.values,
            **vars(Resources.of(compilation.resources)),
        }
        for task, compilation in mine
        if compilation.status is Status.OK
    ]
    for reason, condition in subject.variant.constraints_after:
        if named and not any(condition.holds(names) for names in named):
            problem = f"none of {len(named)} compiled configurations meets {condition.text}"
            report.add((*key, "constraints", reason), problem, "correct the constraint, or add values")


def _calls(kernel: KernelSpec, task: _Task, compilation: Compilation) -> list[PlannedCall]:
    """Return the launches of what was compiled, with their sources."""
    if compilation.status is not Status.OK:
        return []
    if task.request.reference:
        try:
            reference = reference_launch(kernel, task.request.problem, task.request.gpu)
        except TunerError:
            return []
        planned: tuple[Launch, ...] = (reference,) if reference is not None else ()
    else:
        planned = compilation.plan.launches if compilation.plan else ()
    return [
        PlannedCall(task.key(kernel, spec), spec, launch, compilation.sources[launch.code], task.request)
        for launch in planned
        for spec in [task.launches[launch.code]]
    ]
