"""A draft of a kernel's file from its CUDA source: what the text shows is taken, what it does not is guessed and marked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tuner.core.errors import KernelError
from tuner.kernel.c_expressions import Sum, expression_text, text_of
from tuner.kernel.c_types import CType
from tuner.kernel.code_use import AXES, CodeUse, Use
from tuner.kernel.draft import ROLES, Draft, Given, LaunchDraft, ParameterDraft, TensorDraft
from tuner.kernel.parameter_values import is_block, is_size, parameter_draft
from tuner.kernel.signature import KernelSignature, Parameter, Source, Symbol
from tuner.kernel.toml.table import is_name
from tuner.kernel.undefined import undefined_names

DEFAULT_SIZES = {1: "2**24", 2: 4096, 3: 1024}
"""The default of each of so many sizes; of more, 64."""
_NO_SIZE = re.compile(r"(?i)(ld[a-z]?|\w*stride\w*|\w*pitch\w*|\w*offset\w*|seed|start|begin|\w*iter\w*|\w*steps?|\w*flags?|mode)")
_SMALL = re.compile(r"(?i)\w*(radius|halo|order|taps|filter|window)\w*")
_PASSED = {"bool": "uint8", "unsigned long": "int64", "unsigned long long": "int64", "uint64_t": "int64", "size_t": "int64"}
"""What arrays of C types without a dtype are passed as: the same bytes."""


def draft_of(source: Source, kernel: KernelSignature, file: str, headers: Iterable[str] = ()) -> Draft:
    """Return the draft of a kernel's file.

    Args:
        source: what the kernel's source declares.
        kernel: one of its kernels.
        file: the source's name, in the folder of the file to be written.
        headers: texts of the source's own headers.

    Raises:
        KernelError: a parameter has a type that no launch can pass.
    """
    return _Drafter(source, kernel, file, undefined_names(source, headers)).draft()


class _Drafter:
    def __init__(
        self, source: Source, kernel: KernelSignature, file: str, undefined: Mapping[str, bool]
    ) -> None:
        self.source, self.kernel, self.file = source, kernel, file
        self.words = {token.text for token in source.tokens} | set(undefined)
        self.called = next((one for one in source.launches if one.kernel == kernel.short_name), None)
        self.renamed: dict[str, str] = {}
        """Names of the source that have another one in the file."""
        self.sizes: dict[str, Any] = {}
        self.options: dict[str, Any] = {}
        self.dtypes: dict[str, Any] = {}
        self.scalars: dict[str, Any] = {}
        self.found: dict[str, int | None] = {}
        """Parameters with their defaults in the source."""
        self.blocks: dict[str, str] = {}
        """Those that are threads of a block, with their axis."""
        self.tensors: dict[str, TensorDraft] = {}
        self._take_template()
        self._take_macros(undefined)
        self._take_numbers()
        self.use = CodeUse(source, kernel, {*self.sizes, *self.options, *self._plain_sizes()})

    def draft(self) -> Draft:
        """Return the draft."""
        self._refuse()
        self._take_tensors()
        launch = self._launch()
        several = len(self.blocks) > 1
        parameters = {
            name: parameter_draft(
                name, default, (self.blocks[name] if several else "") if name in self.blocks else None
            )
            for name, default in self.found.items()
        }
        constraints: dict[str, str | Given] = {}
        block = launch.block.value if isinstance(launch.block, Given) else launch.block
        threads = " * ".join(f"({one})" if re.search(r"[^\w]", one) else one for one in block if one != "1")
        if len(re.findall(r"[A-Za-z_]\w*", threads)) > 1:
            constraints["a block has at most 1024 threads"] = f"{threads} <= 1024"
        return Draft(
            name=self._named(self.kernel.short_name),
            sizes=self.sizes,
            tensors=self.tensors,
            launches=[launch],
            parameters=parameters,
            constraints=constraints,
            dtypes=self.dtypes or {self._role(): [next(iter(self.tensors.values())).dtype]},
            options=self.options,
            scalars=self.scalars,
            reference=Given(
                "default", "outputs are compared with the default configuration's; better: what they must be"
            ),
        )

    # -- names

    def _named(self, name: str) -> str:
        """Return what a name of the source is called in the file, where keywords and functions mean something else."""
        if name not in self.renamed and not is_name(name):
            self.renamed[name] = f"{name.strip('_')}_"
        return self.renamed.get(name, name)

    def _text(self, text: str) -> str:
        """Return an expression with the names that the file has."""
        return re.sub(r"[A-Za-z_]\w*", lambda match: self.renamed.get(match[0], match[0]), text)

    def _free(self, *names: str) -> str:
        """Return the first name that nothing has."""
        taken = {*self.words, *self.renamed.values(), *self.found, *self.sizes, *self.options}
        return next(name for name in (*names, *(f"{names[0]}_{n}" for n in range(2, 1000))) if name not in taken)

    def _role(self) -> str:
        taken = {*self.tensors, *self.sizes, *self.scalars, *self.options, *self.found, *self.renamed.values()}
        fitting = (role for role in ROLES if role not in taken and f"{role}_type" not in self.words)
        return next(fitting, "dtype_")

    # -- what the code is compiled with

    def _take_template(self) -> None:
        """Make parameters of a template's numbers, and dtype roles of its types."""
        given = self.called.template if self.called else ()
        self.entry_arguments: list[str] = []
        for number, (kind, name) in enumerate(self.kernel.template):
            value = given[number] if number < len(given) else ""
            if kind in ("typename", "class") and name:
                role = self._role() if not self.dtypes else self._free(name.lower(), "other")
                dtype = CType("", value, 1).dtype or "float32"
                self.dtypes[role] = [dtype]
                self.renamed[name] = role
                self.entry_arguments.append(f"{role}_type")
            elif name and "..." not in kind and "typename" not in kind and "template" not in kind:
                parameter = self._free(name.lower(), f"{name.lower()}_value")
                self.renamed[name] = parameter
                self.found[parameter] = int(value) if value.isdecimal() else None
                self.entry_arguments.append(f"{{{{ {parameter} }}}}")
            else:
                raise KernelError(
                    f"{self.file}:{self.kernel.line}: template parameter {kind} {name} of {self.kernel.name} cannot be"
                    " chosen by itself",
                    "write a kernel that calls it with the types that you use",
                )

    def _take_macros(self, undefined: Mapping[str, bool]) -> None:
        """Tell apart what nothing defines, or what may be defined before: parameters, sizes, types."""
        types = {one.type.base for one in self.kernel.parameters}
        for name, is_type in undefined.items():
            if name.endswith("_type"):
                self.dtypes[name.removesuffix("_type")] = ["float32"]
            elif is_type or name in types:
                self.options[name] = Given(["float"], "the type that the source calls so", gap=True)
            else:
                self._take_macro(name, None)
        for name, macro in self.source.macros.items():
            if macro.guarded and macro.parameters is None and re.fullmatch(r"\(?\d+[uU]?\)?", macro.value):
                self._take_macro(name, int(macro.value.strip("()uU")))

    def _take_macro(self, name: str, value: int | None) -> None:
        if not is_name(name):
            raise KernelError(
                f"{self.file}: {name!r} is defined nowhere, and cannot be a parameter's name", "define or rename it"
            )
        if is_size(name):
            self.options[name] = Given([1024 if value is None else value], "a size that is a macro", gap=value is None)
        else:
            self.found[name] = value

    # -- what a launch passes

    def _plain_sizes(self) -> set[str]:
        return {name for name, renamed in self.renamed.items() if renamed in self.sizes}

    def _take_numbers(self) -> None:
        """Tell sizes from other numbers among the parameters that are passed by value."""
        numbers = [one for one in self.kernel.parameters if not one.type.pointers and one.type.dtype]
        whole = [one for one in numbers if "int" in (one.type.dtype or "")]
        sizes = [one for one in whole if not _NO_SIZE.fullmatch(one.name)]
        large = [one for one in sizes if not _SMALL.fullmatch(one.name)]
        for one in sizes:
            value = self._called_with(one)
            usual = DEFAULT_SIZES.get(len(large), 64) if one in large else 2
            self.sizes[self._named(one.name)] = value or usual
        for one in numbers:
            if one in sizes:
                continue
            if one in whole:
                guess = next((self._named(size.name) for size in reversed(large)), "1")
                guess = guess if re.match(r"(?i)ld|\w*stride|\w*pitch", one.name) else "1"
                self.scalars[self._named(one.name)] = Given((one.type.dtype, guess), "the value that you use", gap=True)
            else:
                self.scalars[self._named(one.name)] = (one.type.dtype, 0.5)
        for one in self.kernel.parameters:
            if not one.type.pointers and one.type.role in self.dtypes:
                self.scalars[self._named(one.name)] = (one.type.role, 0.5)
            elif not one.type.pointers and self.renamed.get(one.type.base) in self.dtypes:
                self.scalars[self._named(one.name)] = (self.renamed[one.type.base], 0.5)

    def _called_with(self, parameter: Parameter) -> int | None:
        """Return the number with which the source calls the kernel, if it says one."""
        place = self.kernel.parameters.index(parameter)
        if self.called is None or place >= len(self.called.arguments):
            return None
        text: str | None = self.called.arguments[place]
        for _ in range(4):
            text = expression_text(text or "")
            if text and re.fullmatch(r"[\d\s*+()-]+", text):
                value = eval(text, {"__builtins__": {}})  # noqa: S307 - digits and signs
                return int(value) if 1 <= value < 2**40 else None
            if text not in self.called.variables:
                return None
            text = self.called.variables[text]
        return None

    def _dtype(self, kind: CType) -> str | None:
        if kind.pointers > 1:
            return None
        role = self.renamed.get(kind.base, kind.role)
        if role in self.dtypes:
            return role
        if kind.base in self.options:
            return "float32"
        return kind.dtype or _PASSED.get(kind.base)

    def _refuse(self) -> None:
        """Raise an error for parameters that cannot be passed."""
        for one in self.kernel.parameters:
            if self._dtype(one.type) is None and self._named(one.name) not in self.scalars:
                what = "an array of pointers" if one.type.pointers > 1 else "numbers of one type, or an array of them"
                what = "no pointer to pointers can be passed" if one.type.pointers > 1 else f"only {what} can be passed"
                raise KernelError(
                    f"{self.file}:{self.kernel.line}: parameter {one.name} of {self.kernel.name} is {one.type.text}: {what}",
                    "let the kernel take arrays of numbers",
                )

    # -- tensors

    def _take_tensors(self) -> None:
        shapes = {name: self.use.shape(name) for name in self.use.pointers}
        used = {name for shape in shapes.values() for one in shape if one for name in re.findall(r"\w+", one)}
        sizes = [name for name in self.use.sizes if name not in used and not _SMALL.fullmatch(name)]
        left = [name for name in (*self._in_order(sizes),) if not self._is_bound(name)]
        for one in self.kernel.parameters:
            if one.type.pointers:
                self.tensors[self._named(one.name)] = self._tensor(one, shapes[one.name], left)
        if all(tensor.role == "input" for tensor in self.tensors.values()) and self.tensors:
            last = list(self.tensors)[-1]
            self.tensors[last] = replace(
                self.tensors[last], role="inout", note="which array does the kernel write?", gap=True
            )

    def _in_order(self, names: Iterable[str]) -> list[str]:
        order = [one.name for one in self.kernel.parameters]
        return sorted(names, key=lambda name: order.index(name) if name in order else -1)

    def _is_bound(self, name: str) -> bool:
        return any(name == self.use.bound(variable) for variable in self.use.bounds)

    def _tensor(self, one: Parameter, shape: list[str | None], left: list[str]) -> TensorDraft:
        use = self.use.pointers[one.name]
        note, gap = "", False
        if not shape or None in shape:
            shape, note = self._guessed(use, shape, left)
            gap = bool(note)
        extents = [self._text(_bare(str(extent))) for extent in shape]
        lanes = one.type.lanes
        if lanes > 1:
            whole = re.fullmatch(rf"(\w+) // {lanes}", extents[-1])
            extents = [*extents[:-1], whole[1]] if whole else [*extents, str(lanes)]
        role, init, more = self._role_of(one, use)
        note = "; ".join(filter(None, (note, more)))
        return TensorDraft(extents, self._dtype(one.type) or "float32", role, init, note, gap)

    def _guessed(self, use: Use, shape: list[str | None], left: list[str]) -> tuple[list[str | None], str]:
        """Return a shape of which the code does not show all, and what to say about it."""
        sizes: list[str | None] = [*self._in_order(name for name in self.use.sizes if not _SMALL.fullmatch(name))]
        if not shape and use.added and all(set(index) <= {()} for index in use.indices):
            return ["1"], ""
        if not shape:
            return (sizes or ["1"], "" if len(sizes) == 1 else "the shape")
        if left:
            return [left[0] if one is None else one for one in shape], ""
        if len(shape) > 1:
            if "rows" not in self.sizes:
                self.sizes[self._free("rows", "blocks")] = 4096
            rows = "rows" if "rows" in self.sizes else "blocks"
            return [rows if one is None else one for one in shape], ""
        return (sizes[:1] or ["1"], "" if len(sizes) == 1 else "the shape")

    def _role_of(self, one: Parameter, use: Use) -> tuple[str, Any, str]:
        """Return role, init and a note of an array."""
        init: Any = {"uniform": [0, 1]} if one.type.base == "bool" else None
        if use.limits:
            target = self.use.shape(use.limits)
            extents = [self._text(_bare(one)) for one in target if one]
            init = {"uniform": [0, f"{extents[0]} - 1"]} if extents else {"uniform": [0, 0]}
        if one.type.const or not (use.written or use.added or use.passed):
            return "input", init, ""
        if use.passed:
            return "inout", init, "a function gets it: is it input, output or inout?"
        if use.added and not use.indices or (use.added and self._atomic(one.name)):
            return "inout", "zeros", "added to"
        if use.read:
            return "inout", init, ""
        if self.use.partly:
            return "inout", "zeros", "not every element is written: the others stay zero"
        return "output", None, ""

    def _atomic(self, name: str) -> bool:
        texts = [token.text for token in self.kernel.body]
        return any(text.startswith("atomic") and name in texts[at : at + 4] for at, text in enumerate(texts))

    # -- the launch

    def _launch(self) -> LaunchDraft:
        blocks, grids, gaps = [], [], []
        for axis in AXES:
            block, grid, gap = self._axis(axis)
            blocks.append(block)
            grids.append(grid)
            gaps.append(gap)
        only = [axis for axis, block in zip(AXES, blocks, strict=True) if block != "1"] == ["x"]
        bounds = expression_text(self.kernel.launch_bounds[0]) if self.kernel.launch_bounds else None
        names = set(re.findall(r"[A-Za-z_]\w*", bounds or ""))
        if only and bounds and names <= {*self.found, *self.renamed} and len(names) == 1 and blocks[0] in self.found:
            blocks[0] = self._text(bounds)
        self.blocks |= {name: axis for axis, text in zip(AXES, blocks, strict=True) if (name := text) in self.found}
        grid: Any = _without_ones(grids)
        if any(gaps):
            grid = Given(grid, "blocks", gap=True)
        template = f"<{', '.join(self.entry_arguments)}>" if self.entry_arguments else ""
        return LaunchDraft(
            self.file,
            (self.kernel.short_name if self.kernel.extern_c else self.kernel.name) + template,
            [self._argument(one) for one in self.kernel.parameters],
            grid,
            _without_ones(blocks),
            self._shared(),
        )

    def _argument(self, one: Parameter) -> Any:
        name = self._named(one.name)
        if name in self.sizes and one.type.dtype == "int64":
            return {"value": name, "dtype": "int64"}
        return name

    def _axis(self, axis: str) -> tuple[str, str, bool]:
        """Return block and grid along an axis, and whether the grid is a guess."""
        threads = self.use.uses(f"threadIdx.{axis}") or self.use.uses(f"blockDim.{axis}")
        span = self.use.span(axis)
        if span is None:
            block = self._block(axis, {}) if threads else "1"
            return block, "1", False
        factor, bound = span
        block = self._block(axis, factor) if threads else "1"
        given = {f"blockDim_{axis}": block}
        covered = text_of({tuple(given.get(name, name) for name in product): n for product, n in factor.items()})
        covered = self._text(covered)
        if bound is None:
            bound = self._unbound(axis)
        if bound is None:
            return block, self._called_shape(0, axis) or "1", True
        bound = self._text(_bare(bound))
        return block, bound if covered == "1" else f"ceil_div({bound}, {covered})", False

    def _unbound(self, axis: str) -> str | None:
        """Return the extent along an axis where the code does not compare with it: of a tensor's outermost dimension."""
        if self._called_shape(0, axis):
            return None
        outer = [tensor.shape[0] for tensor in self.tensors.values() if len(tensor.shape) > 1]
        free = [one for one in outer if not self._is_bound(one)]
        if free and axis == "x":
            return free[0]
        return self._in_order(self.use.sizes)[0] if len(self.use.sizes) == 1 else None

    def _block(self, axis: str, factor: Sum) -> str:
        names = [name for product in factor for name in product]
        number = next(iter(factor.values()), 1)
        threads = self.use.divided(axis)
        in_file = [self.renamed.get(name, name) for name in names]
        choices = [name for name in in_file if name in self.found]
        if f"blockDim_{axis}" not in names and choices:
            order = [token.text for token in self.kernel.body]
            choices.sort(key=lambda name: (not is_block(name), order.index(name) if name in order else -1))
            return f"{threads} * {choices[0]}" if threads > 1 else choices[0]
        if not names and number > 1:
            return str(number * threads)
        if f"blockDim_{axis}" not in names:
            used = {name for text in self.blocks for name in (text,)}
            free = [name for name in self.found if is_block(name) and name not in used and _on(axis, name)]
            if free:
                return free[0]
        called = self._called_shape(1, axis)
        if called is not None and not called.isdecimal():
            return called
        fitting = ("block_size", "threads") if self._axes() == 1 else (f"block_{axis}", f"threads_{axis}")
        name = self._free(*fitting)
        self.found[name] = int(called) if called else None
        self.blocks[name] = axis
        return name

    def _axes(self) -> int:
        return sum(self.use.uses(f"threadIdx.{axis}") for axis in AXES)

    def _called_shape(self, place: int, axis: str) -> str | None:
        """Return grid (0) or block (1) along an axis as the source launches the kernel; None if that is not clear."""
        if self.called is None or place >= len(self.called.shape):
            return None
        text = self.called.variables.get(self.called.shape[place], self.called.shape[place])
        match = re.fullmatch(r"dim3\s*[({](.*)[)}]", text)
        parts = [part.strip() for part in re.split(r",(?![^(]*\))", match[1])] if match else [text]
        number = AXES.index(axis)
        return self._from_call(parts[number]) if number < len(parts) else "1"

    def _from_call(self, text: str) -> str | None:
        """Return an expression of the calling function with the names of the kernel; None if it has others."""
        assert self.called is not None
        passed = {
            argument: self._named(one.name)
            for argument, one in zip(self.called.arguments, self.kernel.parameters, strict=False)
        }
        for _ in range(4):
            text = re.sub(
                r"[A-Za-z_]\w*",
                lambda match: passed.get(match[0])
                or (f"({self.called.variables[match[0]]})" if self.called and match[0] in self.called.variables else match[0]),
                text,
            )
        macros = {name: macro.value for name, macro in self.source.macros.items() if name not in self.found}
        text = re.sub(r"[A-Za-z_]\w*", lambda match: macros.get(match[0], match[0]), text)
        read = expression_text(text)
        names = set(re.findall(r"[A-Za-z_]\w*", read or "")) - {"ceil_div", "min", "max", "if", "else", "and", "or"}
        return read if read and names <= {*self.sizes, *self.found, *self.options} else None

    def _shared(self) -> str | Given:
        texts = [token.text for token in self.kernel.body]
        dynamic = any(texts[at : at + 2] == ["extern", "__shared__"] for at in range(len(texts)))
        if not dynamic:
            return ""
        shape = self.called.shape if self.called else ()
        written = self._from_call(shape[2]) if len(shape) > 2 else None
        return written or Given("4 * 1024", "bytes of dynamic shared memory", gap=True)


def _on(axis: str, name: str) -> bool:
    """Return whether a parameter may be of an axis: not if its name ends with another one's."""
    return not re.search(rf"_?[{''.join(one for one in AXES if one != axis)}]\Z", name.lower())


def _bare(text: str) -> str:
    """Return an expression without parentheses around the whole."""
    return text[1:-1] if re.fullmatch(r"\([^()]*\)", text) else text


def _without_ones(texts: Sequence[str]) -> list[str]:
    """Return dimensions without the last ones that are 1."""
    left = list(texts)
    while len(left) > 1 and left[-1] == "1":
        left.pop()
    return left
