"""A draft of a kernel's file from its CUDA source: what the text does not show is guessed, and marked.

Sizes that a source leaves open are large enough to tell, and small enough for a GPU.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tuner.core.errors import KernelError
from tuner.kernel.draft import GAP, Draft, Given, LaunchDraft, ParameterDraft, TensorDraft, plain
from tuner.kernel.source.declarations import KernelSignature, Source
from tuner.kernel.source.device_part import in_all_branches
from tuner.kernel.source.expressions import Sum, sum_of
from tuner.kernel.source.extents import limits, of_one_block, row_lengths, unbounded
from tuner.kernel.source.launch_guess import LaunchGuess
from tuner.kernel.source.names import SourceNames
from tuner.kernel.source.parameters import (
    SMALL,
    is_block,
    is_choice,
    is_size,
    parameter_draft,
    reduce_defaults,
)
from tuner.kernel.source.shapes import shape_of
from tuner.kernel.source.tensors import WORDS, Tensors, bounds_loops, with_allocations
from tuner.kernel.source.threads import static_shared, threads_kept
from tuner.kernel.source.tree import names_in, walk
from tuner.kernel.source.undefined import undefined_names
from tuner.kernel.source.use import AXES, LEAST_SIZE, CodeUse
from tuner.kernel.toml.table import is_name

DEFAULT_SIZES: dict[int, int | str] = {1: "2**24", 2: 4096, 3: 256}
"""The default of sizes, by how many of them the largest tensor has; of more, 64."""
EXPONENT = 10
"""The default of a size that is an exponent: an array has 2 to the power of it."""
SHARED_SIZE = 1024
"""The default of a size of which a block keeps all in shared memory."""
MOST_BLOCKS = 2**15
"""The default of a size of which each is a block along y or z: a grid has 65535."""
PAIRS_SIZE = 2**14
"""The default where each thread goes through all elements."""
SPARSE_ROWS = "2**20"
"""The rows of a sparse matrix."""
UNSEEN = 64
"""The default of a size that no tensor has: a threshold, or a number of passes."""
PRODUCT_SIZE = 1024
"""The default for tensors of two sizes where there are others or loops, as in a matrix product."""
LEAST_BITS, MANY_BITS = 10, 4
"""Of a size beside extents that are numbers: at least so many, and so many of theirs at least make several smaller."""


def draft_of(source: Source, kernel: KernelSignature, file: str) -> Draft:
    """Return the draft of a kernel's file.

    Args:
        source: what the kernel's source declares, with its own headers.
        kernel: one of its kernels.
        file: the source's name, in the folder of the file to be written.

    Raises:
        KernelError: it has no body, or a parameter of a type that no launch can pass.
    """
    if kernel.body is None:
        raise KernelError(f"{kernel.name} is only declared here", "give the file that has its body")
    names = SourceNames(source, kernel, file, undefined_names(source.text, kernel.name))
    _tell_apart(names)
    use = _use_of(names)
    read = Tensors(names, use)
    tensors = read.all()
    read.constraints |= limits(names, use)
    guess = LaunchGuess(names, use, tensors)
    constant = _constant_memory(names)
    filled = {
        name: (names.named(name.rpartition("::")[2]), one)
        for name, one in constant.items()
        if one is not None
    }
    launch = replace(guess.draft(), constants={name: tensor for name, (tensor, _) in filled.items()})
    tensors = with_allocations(names, guess, tensors)
    _settle_sizes(names, tensors, use, [launch.grid, launch.block, guess.constraints])
    _limit_sizes(names, tensors, launch)
    parameters, of_block = _parameters(names, use, guess, plain(launch.block))
    constraints = read.constraints | guess.constraints | of_block
    _fit_blocks(names, parameters, constraints)
    written = [one for one in tensors.values() if one.role != "input"] or [*tensors.values()]
    used = re.findall(r"\w+", str([tensors, launch, constraints, names.scalars]))
    sizes = {name: one for name, one in names.sizes.items() if name in used}
    of_macros = {name: one for name, one in names.options.items() if isinstance(one.value[0], int)}
    return Draft(
        name=names.named(kernel.short_name),
        sizes=sizes | {name: replace(one, value=one.value[0]) for name, one in of_macros.items()},
        tensors=tensors | dict(filled.values()),
        launches=[launch],
        parameters=parameters,
        constraints=constraints,
        requires="cc >= 90" if guess.clusters else "",
        dtypes={
            role: Given(of, "the type that you use", gap=True) if role in names.unsure else of
            for role, of in (names.dtypes or {names.role(*tensors): [written[0].dtype]}).items()
        },
        options={name: one for name, one in names.options.items() if name not in of_macros},
        scalars=names.scalars,
        head=_notes(names, [name for name in constant if name not in filled]),
        reference=Given(
            "default", 'outputs are compared with those of the default; better: { numpy = "..." }'
        ),
    )


def _tell_apart(names: SourceNames) -> None:
    """Tell sizes, other numbers and parameters apart by what the code does with them; names alone were not enough."""
    use = CodeUse(names.source, names.kernel, names.of_problem)
    of_grid = names.of_grid
    for one in names.numbers:
        is_step = one.name in names.looped and not use.is_extent(one.name)
        says_size = is_size(names.short.get(one.name, one.name)) or one.name in {*use.ends.values(), *of_grid}
        if names.named(one.name) in names.sizes and (is_step or not (says_size or use.depends_on(one.name))):
            names.make_scalar(names.named(one.name))
            use.sizes -= {one.name}
    for name in list(names.options):
        if (choice := _chosen(use, name)) is not False and is_name(name):
            names.make_parameter(name, certain=choice is True)
    for name in names.found.keys() - set(names.renamed.values()):
        choice = is_choice(name) or _chosen(use, name)
        of_problem = SMALL.fullmatch(name) and not is_choice(name)
        if of_problem or choice is False or (choice is None and (names.found[name] is None or is_size(name))):
            names.doubtful.add(name)
    indices = [index for of in use.pointers.values() for index in of.indices]
    apart = {part for index in indices for one in index if len(one) > 1 for part in one}
    for name in [one for one in names.found if names.renamed.get(one, one) == one]:
        if any(f" // {name})" in part and part[1:].split()[0] in names.sizes for part in apart):
            names.make_size(name)  # rows of so many groups: how the data lies
    for index in indices:
        for name in _in_rows(names, use, index) & names.found.keys():
            names.make_size(name)
    for name in sorted(names.doubtful):
        if (names.found[name] or 0) >= LEAST_SIZE and re.search(rf"[<>]=? ?\(?{name}\b", use.code):
            names.make_size(name)


def _in_rows(names: SourceNames, use: CodeUse, index: Sum) -> set[str]:
    """Return the parameters that say how long rows are, or how many: K of ``x[i * K + k]`` and of ``x[k * n + i]``.

    There i alone stays below a size.
    """
    found = set[str]()
    for product in index:
        tuned = {part: {name for name in re.findall(r"\w+", part) if name in names.found} for part in product}
        of = [use.bound(part) or (part if use.is_size(part) else "") for part in product if not tuned[part]]
        here = set().union(*tuned.values())
        by_block = any("Idx_" in part for part in product) or here & {*re.findall(r"\w+", " ".join(of))}
        found |= here if any(of) and not by_block else set()
        sizes = {part for part in product if use.is_size(part)}
        counted = [part for part in product if part not in sizes]
        if sizes and len(counted) == 1 and sum(sizes <= {*other} for other in index) == 1:
            found |= {*re.findall(rf"\b{re.escape(counted[0])} < (\w+)", use.code)} & names.doubtful
    return found


def _use_of(names: SourceNames) -> CodeUse:
    """Return what the code does, with what its strides and the indices that it does not compare stand for."""
    use = CodeUse(names.source, names.kernel, names.of_problem)
    if lengths := row_lengths(names, use):
        use = CodeUse(names.source, names.kernel, names.of_problem, {}, lengths)
    guess = LaunchGuess(names, use, {})
    extents = guess.elements() | of_one_block(names, use) or unbounded(names, use, guess.blocks_of_call())
    return CodeUse(names.source, names.kernel, names.of_problem, extents, lengths) if extents else use


def _parameters(
    names: SourceNames, use: CodeUse, guess: LaunchGuess, block: Sequence[str]
) -> tuple[dict[str, ParameterDraft], dict[str, str]]:
    """Return the parameters, and what a block limits, with defaults that are within it.

    Args:
        names: what the source's names become.
        use: what the code does.
        guess: the launch.
        block: its threads.
    """
    counts = [one for one in block if one != "1"]
    axes = guess.blocks if len(counts) > 1 else dict.fromkeys(guess.blocks, "")
    axes = {name: "xy" if block.count(name) > 1 else axis for name, axis in axes.items()}
    tiles = re.findall(r"\btiled_partition ?< ?(\w+)", use.code)  # of cooperative groups: lanes
    kinds = dict.fromkeys(tiles, "lanes_per_tile") | dict.fromkeys(names.switches, "use_it")
    chosen: dict[str, Collection[int]] = dict(names.source.asked)
    of_names = {name: one for name, one in names.enumerations.items() if one.values}
    for name, of in of_names.items():
        chosen[name] = [number for one in of.values.values() if (number := names.number(one)) is not None]
    parameters = {
        name: parameter_draft(kinds.get(name, name), value, axes.get(name), chosen.get(name, ()))
        for name, value in names.found.items()
    }
    for name in of_names.keys() & parameters:
        parameters[name] = replace(parameters[name], doc=", ".join(of_names[name].values))
    for name in names.doubtful - set(axes):
        note = "a choice of the kernel, or a number of the problem?"
        parameters[name] = replace(parameters[name], note=note, gap=True)
    open_ends = r"\W" if len(counts) > 1 else r"\bif\b"
    threads = " * ".join(f"({one})" if re.search(open_ends, one) else one for one in counts)
    bounds = names.kernel.launch_bounds
    most, constraints = names.number(bounds[0]) if bounds else None, dict[str, str]()
    if most is not None and re.search(r"[A-Za-z]", threads):
        constraints["__launch_bounds__ of the kernel"] = f"{threads} <= {most}"
    elif len(re.findall(r"[A-Za-z_]\w*", threads)) > 1:
        constraints["a block has at most 1024 threads"] = f"{threads} <= 1024"
    if shared := static_shared(
        names, use, {name: max(map(int, one.values)) for name, one in parameters.items()}
    ):
        constraints["static shared memory has at most 48 KiB"] = f"{shared} <= {48 * 1024}"
    for along, room in threads_kept(use).items():
        one = [*block, "", ""][AXES.index(along)]
        if one in parameters and room < max(values := [*map(int, parameters[one].values)]):
            constraints[f"arrays of the code have room for {room} threads along {along}"] = f"{one} <= {room}"
            most_fitting = max((value for value in values if value <= room), default=room)
            usual = min(int(parameters[one].default or most_fitting), most_fitting)
            parameters[one] = replace(parameters[one], values=sorted({*values, most_fitting}), default=usual)
    own = [name for name in block if name in parameters]
    known = set(re.findall(r"[A-Za-z_]\w*", threads)) <= parameters.keys()
    limited = {shared: 48 * 1024} if shared else {}
    limited |= {threads: most or 1024} if threads and known and not own else {}
    reduce_defaults(parameters, own, most or 1024, limited)
    return parameters, constraints


def _constant_memory(names: SourceNames) -> dict[str, TensorDraft | None]:
    """Return the constant memory that the code uses and does not fill, with the tensor that fills it.

    None where its size is not known, or nothing can be that.
    """
    reached = in_all_branches(names.source, names.kernel.name)
    found: dict[str, TensorDraft | None] = {}
    for symbol in names.source.symbols:
        short = symbol.name.rpartition("::")[2]
        if not symbol.constant or symbol.initialised or short not in reached:
            continue
        extents = [names.number(extent) for extent in symbol.extents]
        kind = replace(symbol.type, pointers=1)
        words, passed = names.of_words(kind), names.as_passed(kind)
        found[symbol.name] = None
        if (dtype := names.dtype(passed)) is not None and None not in extents and is_name(short):
            shape = [*map(str, extents), *([str(passed.lanes)] if passed.lanes > 1 else [])]
            note = f"fills the __constant__ memory{f': {WORDS} {kind.base}' if words else ''}"
            found[symbol.name] = TensorDraft(shape or ["1"], dtype, note=note, gap=words)
    return found


def _notes(names: SourceNames, empty: Sequence[str]) -> list[str]:
    """Return what a person may want to change in the source, such as constant memory that stays empty."""
    source, used = names.source, names_in(names.kernel.body)
    values = {
        name: one.value for name, one in source.macros.items() if not one.guarded and one.parameters is None
    }
    fixed = {
        name: value
        for name, value in sorted({**values, **source.constants}.items())
        if re.fullmatch(r"0*[2-9]|0*[1-9]\d+", value)
        and name in used
        and (is_block(name) or re.search(r"(?i)tile|unroll|coarse|stages|per_?thread", name))
    }
    lines = []
    if fixed:
        name, value = next(iter(fixed.items()))
        lines.append(
            f"Fixed in the source, and so not tuned: {', '.join(fixed)}. To tune {name}: #ifndef {name}, "
            f"#define {name} {value}, #endif on three lines, and tune init --force."
        )
    if names.assumed:
        lines.append(f"{GAP}: 0.5 stands for what the source does not say: {', '.join(names.assumed)}.")
    if empty:
        lines.append(f"{GAP}: nothing fills the __constant__ memory {', '.join(empty)}: it holds zeros.")
    return lines


def _chosen(use: CodeUse, name: str) -> bool | None:
    """Return whether a macro is a choice of the code, as what unrolls or steps a loop is.

    None if that is likely: it bounds a loop, or is an extent of an array of the code.
    """
    bounds = " ".join(part for one in use.bounds.values() for product in one for part in product)
    if re.search(rf"\+= {name}\b", use.code) or re.search(rf"// \(?{name}\b", bounds):
        return True
    begins = (sum_of(use.begins[one], use.first) or {} for one in use.bounds if one in use.begins)
    if any({name, f"blockIdx_{axis}"} == {*of} for terms in begins for of in terms for axis in AXES):
        return True
    shapes = " ".join(one for pointer in use.pointers for one in shape_of(use, pointer) if one)
    if re.search(rf"\b{name}\b", shapes):
        return False
    if name in use.asked:
        return True
    in_array = any(name in names_in(one) for one in walk(use.body, "array_declarator"))
    return None if in_array or bounds_loops(use, name) else False


def _settle_sizes(
    names: SourceNames, tensors: Mapping[str, TensorDraft], use: CodeUse, launched: Sequence[Any]
) -> None:
    """Set the sizes that the source leaves open, so that the largest tensor has about 64 MiB.

    Those that neither tensors nor what is ``launched`` has are marked.
    """
    large = [
        name for name, one in names.sizes.items() if not (SMALL.fullmatch(name) or isinstance(one, Given))
    ]
    shown = re.findall(
        r"\w+", str([[(one.shape, one.init) for one in tensors.values()], names.scalars, *launched])
    )
    for name in large:
        if name not in shown and names.sizes[name] is None:
            names.sizes[name] = Given(UNSEEN, "no array has it: the value that you use?", gap=True)
    words = [
        [
            word
            for extent in one.shape
            for word in re.findall(r"\w+", max(extent.partition("//")[0].split("+"), key=len))
        ]
        for one in tensors.values()
    ]
    counted = {*large, *names.options}
    most = max((sum(name in counted for name in of) for of in words), default=1)
    product = most == 2 and (len(large) > 2 or (use.quadratic and len(large) == 1))
    usual = _beside(
        PRODUCT_SIZE if product else DEFAULT_SIZES.get(max(most, 1), 64),
        most,
        [one.shape for one in tensors.values()],
    )
    if most == 1 and any(isinstance(one.init, Mapping) and "range" in one.init for one in tensors.values()):
        usual = SPARSE_ROWS
    if most == 1 and use.quadratic:
        usual = PAIRS_SIZE
    for name, value in names.sizes.items():
        names.sizes[name] = value or (usual if name in large else 2)


def _beside(usual: int | str, most: int, shapes: Sequence[Sequence[str]]) -> int | str:
    """Return the default of sizes that is smaller by what extents that are numbers multiply.

    Args:
        usual: the default without these.
        most: sizes that the largest tensor has.
        shapes: of all tensors.
    """
    sized = [shape for shape in shapes if not all(map(str.isdecimal, shape))]
    numbers = [math.prod(int(one) for one in shape if one.isdecimal()) for shape in sized]
    bits = (max(numbers, default=1) - 1).bit_length()
    if isinstance(usual, str):  # a power of two
        return f"2**{max(int(usual.rpartition('*')[2]) - bits, LEAST_BITS)}"
    return max(usual >> bits // most, UNSEEN) if bits >= MANY_BITS else usual


def _fit_blocks(
    names: SourceNames, parameters: Mapping[str, ParameterDraft], constraints: Mapping[str, str]
) -> None:
    """Make the defaults of sizes multiples of those blocks of which constraints demand a whole number."""
    for text in constraints.values():
        whole = re.fullmatch(r"(\w+) % (\w+) == 0", text)
        if not whole or whole[1] not in names.sizes or whole[2] not in parameters:
            continue
        size, block = plain(names.sizes[whole[1]]), plain(parameters[whole[2]].default)
        if isinstance(size, str) and block & (block - 1):
            bits = int(size.rpartition("*")[2]) - (block - 1).bit_length()
            names.sizes[whole[1]] = f"{block} * 2**{max(bits, 0)}"
        elif isinstance(size, int) and size % block and size in (*DEFAULT_SIZES.values(), PRODUCT_SIZE):
            names.sizes[whole[1]] = max(size // block, 1) * block


def _limit_sizes(names: SourceNames, tensors: Mapping[str, TensorDraft], launch: LaunchDraft) -> None:
    """Set smaller defaults for sizes that are blocks along an axis, are kept in shared memory, or are exponents."""
    for axis, text in enumerate(plain(launch.grid)):
        large = {name for name in re.findall(r"\w+", text) if isinstance(names.sizes.get(name), str)}
        if axis or len(large) > 1:
            usual = DEFAULT_SIZES.get(len(large), 64) if len(large) > 1 else MOST_BLOCKS
            names.sizes |= dict.fromkeys(large, usual)
    by_default = {name for name, one in names.sizes.items() if one in (*DEFAULT_SIZES.values(), PRODUCT_SIZE)}
    shared = launch.shared_bytes if isinstance(launch.shared_bytes, str) else ""
    kept = names.sizes.keys() & re.findall(r"\w+", shared)
    names.sizes |= dict.fromkeys(by_default & kept, SHARED_SIZE if len(kept) == 1 else UNSEEN)
    exponents = by_default.intersection(re.findall(r"2 \*\* \(?(\w+)", f"{tensors} {launch}"))
    names.sizes |= dict.fromkeys(exponents, EXPONENT)
