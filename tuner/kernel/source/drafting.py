"""A draft of a kernel's file from its CUDA source: what the text does not show is guessed, and marked."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace

from tuner.core.errors import KernelError
from tuner.kernel.draft import GAP, Draft, Given, ParameterDraft, TensorDraft, plain
from tuner.kernel.source.allocated import with_allocations
from tuner.kernel.source.declarations import KernelSignature, Source
from tuner.kernel.source.device_part import in_all_branches
from tuner.kernel.source.expressions import sum_of
from tuner.kernel.source.extents import limits, of_one_block, row_lengths, threads_kept, unbounded
from tuner.kernel.source.launch_guess import LaunchGuess
from tuner.kernel.source.names import SourceNames
from tuner.kernel.source.parameters import is_block, is_choice, is_size, parameter_draft, reduce_defaults
from tuner.kernel.source.sizes import fit_blocks, limit_sizes, settle_sizes
from tuner.kernel.source.tensors import WORDS, Tensors, bounds_loops
from tuner.kernel.source.tree import names_in, walk
from tuner.kernel.source.undefined import undefined_names
from tuner.kernel.source.use import AXES, LEAST_SIZE, CodeUse
from tuner.kernel.toml.table import is_name


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
    settle_sizes(names, tensors, use, [launch.grid, launch.block, guess.constraints])
    limit_sizes(names, tensors, launch)
    parameters, of_block = _parameters(names, use, guess, plain(launch.block))
    constraints = read.constraints | guess.constraints | of_block
    fit_blocks(names, parameters, constraints)
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
        if choice is False or (choice is None and (names.found[name] is None or is_size(name))):
            names.doubtful.add(name)
    for name in sorted(names.doubtful):
        if (names.found[name] or 0) >= LEAST_SIZE and re.search(rf"[<>]=? ?\(?{name}\b", use.code):
            names.make_size(name)


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
    if shared := guess.static_shared({name: max(map(int, one.values)) for name, one in parameters.items()}):
        constraints["static shared memory has at most 48 KiB"] = f"{shared} <= {48 * 1024}"
    for along, room in threads_kept(use).items():
        one = [*block, "", ""][AXES.index(along)]
        if one in parameters and room < max(values := [*map(int, parameters[one].values)]):
            constraints[f"arrays of the code have room for {room} threads along {along}"] = f"{one} <= {room}"
            most_fitting = max((value for value in values if value <= room), default=room)
            usual = min(int(parameters[one].default or most_fitting), most_fitting)
            parameters[one] = replace(parameters[one], values=sorted({*values, most_fitting}), default=usual)
    reduce_defaults(parameters, [name for name in block if name in parameters], most or 1024, shared)
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
    shapes = " ".join(one for pointer in use.pointers for one in use.shape(pointer) if one)
    if re.search(rf"\b{name}\b", shapes):
        return False
    if name in use.asked:
        return True
    in_array = any(name in names_in(one) for one in walk(use.body, "array_declarator"))
    return None if in_array or bounds_loops(use, name) else False
