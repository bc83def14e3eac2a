"""Small kernels whose code is read: compiled by NVRTC, or written as SASS by hand."""

from __future__ import annotations

from tuner.children.nvrtc import compile_source
from tuner.inspect.explain.code import CodeFacts, Part, facts_of, sass_facts
from tuner.inspect.tools.nvidia import NVDISASM, find


def compiled(source: str, entry: str, arch: str = "sm_80", of: str = "") -> CodeFacts:
    """Compile a source and read the code of the entry, or of another of its kernels."""
    cubin = compile_source(source, entry, arch)
    facts, note = facts_of(cubin.cubin, of or cubin.entry, find(NVDISASM))
    assert facts is not None, note
    return facts


def counts(part: Part) -> dict[tuple[str, int], int]:
    return {(str(kind), width): count for kind, width, count in part.accesses}


def by_hand(*lines: str) -> CodeFacts:
    """Read instructions, and labels, which end in a colon."""
    text = "\n".join(line if line.endswith(":") else f"        /*0000*/  {line} ;" for line in lines)
    return sass_facts(f".text.k:\n{text}\n        /*0000*/  EXIT ;\n", "k")
