"""What a kernel's code says without being run: accesses and their widths, loops, tensor cores, bytes under way.

All counts are static: an instruction counts once, however often it runs. What the compiler unrolls is unrolled here,
too.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tuner.children.compilation import RenderRequest
from tuner.children.compile_pool import CompilePool
from tuner.core.errors import CompileError
from tuner.core.model import Configuration, Gpu, Problem, Resources, Status
from tuner.core.signals import OutOfTimeError, time_limit
from tuner.inspect.explain.hot_path import InFlight, one_side, walk
from tuner.inspect.explain.sass import GLOBAL, MEMORY, Instruction, Kind, loops, parse_sass
from tuner.inspect.tools.nvidia import NVDISASM, ToolMissingError, find
from tuner.kernel.render import context, render_entry
from tuner.kernel.spec import KernelSpec

DEADLINE_S = 120.0
"""For all launches of a configuration: twice what a search gives each."""
DISASSEMBLY_S = 30.0
WIDEST = 16
"""Bytes of the widest load that every GPU has: 16 for each of 32 threads are four lines of 128 bytes."""


Access = tuple[Kind, int, int]
"""Memory instructions of one kind: the bytes of one thread, 0 where the code does not say; and how many there are."""


@dataclass(frozen=True)
class Part:
    """What is in some stretch of code."""

    instructions: int
    accesses: tuple[Access, ...]
    matrix: tuple[tuple[str, int], ...]
    """Tensor core instructions with their number."""
    float: int
    """Floating-point instructions outside of tensor cores."""

    @property
    def global_bytes(self) -> int:
        """Bytes that one thread moves to and from global memory, each instruction taken once."""
        return self.moved(*GLOBAL)

    def moved(self, *kinds: Kind) -> int:
        """Return the bytes that one thread moves by accesses of some kinds."""
        return sum(width * count for kind, width, count in self.accesses if kind in kinds)

    def widest(self, *kinds: Kind) -> int:
        """Return the bytes of the widest access of some kinds; 0 where there is none."""
        return max((width for kind, width, _ in self.accesses if kind in kinds), default=0)

    def count(self, *kinds: Kind) -> int:
        """Count the instructions of some memory kinds."""
        return sum(count for kind, _, count in self.accesses if kind in kinds)


@dataclass(frozen=True)
class CodeFacts:
    """What is known of one kernel."""

    whole: Part
    walk: Part
    """The way that does the work, as :mod:`tuner.inspect.explain.hot_path` takes it: whole tiles, each loop once."""
    loops: tuple[tuple[int, Part], ...]
    """How deep each loop lies, 1 for one that is in no other, and what is in it and in the loops inside of it: those on
    that way which do something; all which do, where bulk copies are among them."""
    in_flight: InFlight

    @property
    def instructions_per_byte(self) -> float | None:
        """Instructions on the way for each byte of global memory; None where threads move none, or not all."""
        moved = self.walk.global_bytes
        return self.walk.instructions / moved if moved and not self.in_flight.bulk else None


def sass_facts(text: str, entry: str) -> CodeFacts:
    """Read a listing by ``nvdisasm -c``.

    Raises:
        ValueError: there is no such kernel in the listing.
    """
    code = parse_sass(text, entry)
    every, taken = loops(code), one_side(code)
    way, in_flight = walk(taken, every)
    # Where the copy engine works, warps have roles of their own, and no single way goes through all of them.
    kept = frozenset(range(len(code.blocks))) if in_flight.bulk else frozenset(way)
    parts = [
        (loop.depth, _part(taken.instructions(loop.blocks & kept))) for loop in every if loop.header in kept
    ]
    return CodeFacts(
        _part(code.instructions()),
        _part(taken.instructions(way)),
        tuple((depth, part) for depth, part in parts if part.accesses or part.matrix or part.float),
        in_flight,
    )


def _part(instructions: Iterable[Instruction]) -> Part:
    total, floats = 0, 0
    accesses: Counter[tuple[Kind, int]] = Counter()
    matrix: Counter[str] = Counter()
    for instruction in instructions:
        total += 1
        floats += instruction.kind is Kind.FLOAT
        if instruction.kind in MEMORY:
            accesses[instruction.kind, instruction.width] += 1
        elif instruction.kind is Kind.MATRIX:
            matrix[instruction.opcode] += 1
    ordered = sorted(accesses.items(), key=lambda item: (MEMORY.index(item[0][0]), -item[0][1]))
    return Part(
        total,
        tuple((kind, width, count) for (kind, width), count in ordered),
        tuple(matrix.most_common()),
        floats,
    )


@dataclass(frozen=True)
class LaunchCode:
    """What was compiled for one launch."""

    name: str
    """Of the kernel, as its file has it."""
    entry: str
    """Its name in the cubin, which is mangled where C++ overloads it."""
    resources: Resources
    barriers: int
    strides_over_grid: bool
    """Whether it asks how many blocks there are, as loops over tiles do."""
    facts: CodeFacts | None
    note: str = ""
    """Why the code was not read."""


def read_code(
    kernel: KernelSpec, problem: Problem, gpu: Gpu, configuration: Configuration
) -> tuple[LaunchCode, ...]:
    """Compile a configuration in a process of its own, which reads the kernel's file again; return its code.

    Raises:
        CompileError: it does not render or compile, or takes too long.
    """
    request = RenderRequest(kernel.file, problem, gpu, configuration, listing=True)
    with closing(CompilePool(1, deadline_s=DEADLINE_S)) as pool:
        compiled = pool.compile(request)
    if compiled.status is not Status.OK:
        raise CompileError(f"{configuration} does not compile: {compiled.error}")
    try:
        nvdisasm = find(NVDISASM)
    except ToolMissingError:
        nvdisasm = None
    names = context(problem, gpu, configuration.values)
    codes = zip(
        kernel.launches(problem, gpu, configuration),
        compiled.entries,
        compiled.resources,
        compiled.barriers,
        compiled.ptx,
        compiled.cubins,
        strict=True,
    )
    return tuple(
        LaunchCode(
            render_entry(kernel, launch, names),
            entry,
            resources,
            barriers,
            asks_for_grid(ptx, entry),
            *facts_of(cubin, entry, nvdisasm),
        )
        for launch, entry, resources, barriers, ptx, cubin in codes
    )


def asks_for_grid(ptx: str, entry: str) -> bool:
    """Return whether a kernel of a PTX module reads the size of its grid: the SASS names only a place in memory."""
    own = re.split(rf"\.entry\s+{re.escape(entry)}\(", ptx)[-1].partition(".entry")[0]
    return "%nctaid" in own


def facts_of(cubin: bytes, entry: str, nvdisasm: Path | None) -> tuple[CodeFacts | None, str]:
    """Return what the machine code says, or why it was not read."""
    if nvdisasm is None:
        return None, f"no nvdisasm, so the code was not read: {NVDISASM.source}"
    # A file in memory: whatever kills this process, none is left.
    with os.fdopen(os.memfd_create("cubin"), "wb") as file:
        file.write(cubin)
        file.flush()
        try:
            done = subprocess.run(
                [nvdisasm, "-c", f"/proc/self/fd/{file.fileno()}"],
                pass_fds=[file.fileno()],
                capture_output=True,
                timeout=DISASSEMBLY_S,
                stdin=subprocess.DEVNULL,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return None, f"{nvdisasm} failed: {error}"
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip().splitlines()
        return None, f"{nvdisasm} failed: {words[-1] if words else f'exit status {done.returncode}'}"
    try:
        with time_limit(DEADLINE_S):
            return sass_facts(done.stdout.decode(errors="replace"), entry), ""
    except OutOfTimeError:
        return None, f"{len(done.stdout) >> 20} MiB of SASS were not read in {DEADLINE_S:g} s"
    except ValueError as error:
        return None, str(error)
