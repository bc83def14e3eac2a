"""CUDA C++ as the CPU's compiler takes it: without PTX, for the oldest GPU."""

from __future__ import annotations

import re

_COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_ARCHITECTURE = re.compile(
    r"^#if __CUDA_ARCH__ [^\n]*\n(.*?)(?:^#else\n(.*?))?^#endif\n", re.MULTILINE | re.DOTALL
)
_DYNAMIC = re.compile(r"^( *)extern __shared__ (?:__align__\(\d+\) )?([\w ]+) (\w+)\[\];", re.MULTILINE)
_NAME = re.compile(r"(\w+)\)?(?:\[\w*\])*(?: = \w+)?(?:,|$)")
_FUNCTION = re.compile(
    r"^(?P<head>(?:template[ ]*<(?P<own>[^\n]*)>\n)?__device__ [^{;]*?(?P<name>\w+)(?P<given><[\w, ]+>)?"
    r"\((?P<parameters>[^{;]*)\) )\{(?:(?P<short> [^\n]*) \}|\n(?P<long>.*?)^\})$",
    re.MULTILINE | re.DOTALL,
)


def code_of(source: str) -> str:
    """Return a source without its comments, and without the lines that have nothing else."""
    without = _COMMENT.sub(lambda match: match[1] or "", source)
    return "\n".join(line.rstrip() for line in without.splitlines() if line.strip()) + "\n"


def for_host(source: str) -> str:
    """Return a source whose functions that hold PTX call their stand-ins in ``cuda.hpp``.

    Where the code depends on the architecture, the oldest GPU's is taken.
    """
    source = _ARCHITECTURE.sub(lambda match: match[2] or "", code_of(source))
    source = _DYNAMIC.sub(_dynamic, source)
    return _FUNCTION.sub(_without_ptx, source)


def _dynamic(declaration: re.Match[str]) -> str:
    """Let each block have its own, also where the name is one for all functions."""
    indented, kind, name = declaration.groups()
    memory = f"reinterpret_cast<{kind}*>(emulator::dynamic_shared())"
    return f"{indented}{kind}* const {name} = {memory};" if indented else f"#define {name} {memory}"


def _without_ptx(function: re.Match[str]) -> str:
    if not re.search(r"\basm\b", function["short"] or function["long"]):
        return function[0]
    names = _NAME.findall(function["parameters"])
    given = function["given"] or ""
    if function["own"]:
        given = f"<{', '.join(parameter.split()[-1] for parameter in function['own'].split(','))}>"
    return f"{function['head']}{{ return ptx::{function['name']}{given}({', '.join(names)}); }}"
