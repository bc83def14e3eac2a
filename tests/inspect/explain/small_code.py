"""Small kernels whose code is read: compiled by NVRTC, or written as PTX by hand."""

from __future__ import annotations

from tuner.children.nvrtc import compile_source
from tuner.inspect.explain.code_facts import CodeFacts, Part, ptx_facts


def compiled(source: str, arch: str = "sm_80", name: str = "k") -> CodeFacts:
    """Compile ``extern "C"`` source and read its PTX."""
    found = compile_source(source, name, arch, listing=True)
    return ptx_facts(found.ptx, found.entry)


def kernel(arguments: str, body: str, arch: str = "sm_80") -> CodeFacts:
    return compiled(f'extern "C" __global__ void k({arguments}) {{ {body} }}', arch)


def counts(part: Part) -> dict[tuple[str, int], int]:
    return {(str(a.kind), a.width): a.count for a in part.accesses}


HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


def by_hand(body: str, declared: str = ".reg .b32 %r<20>; .reg .b64 %rd<9>; .reg .pred %p<9>;") -> CodeFacts:
    return ptx_facts(f"{HEAD}.visible .entry k(.param .u64 k_param_0)\n{{\n{declared}\n{body}\nret;\n}}", "k")
