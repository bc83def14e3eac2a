"""CUDA C++ as the CPU's compiler takes it: without PTX, for the oldest GPU; lines stay where they are."""

from __future__ import annotations

import re
from collections.abc import Sequence

BESIDE = 'asm(".pushsection .tbss,\\"awT\\",%nobits\\n.zero 16384\\n.popsection");\n'
"""Room beside a library's shared variables, which is before them; in an object behind it."""
_PTX = re.compile(r"\basm\b")
_COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_ARCHITECTURE = re.compile(
    r"^[ \t]*#[ \t]*if\b[^\n]*__CUDA_ARCH__\)? *>[^\n]*\n(.*?)(?:^[ \t]*#[ \t]*else\b[^\n]*\n(.*?))?"
    r"^[ \t]*#[ \t]*endif\b[^\n]*\n",
    re.MULTILINE | re.DOTALL,
)
_STATEMENT = re.compile(r'\basm\b(?:"(?:\\.|[^"\\])*"|[^";])*;')
_SHARED = re.compile(r"\b__shared__\s+((?:alignas\s*\((?:[^()]|\([^()]*\))*\)\s*)+)")
"""With what g++ has in another order: the emulator's word for it is a storage class."""
_DYNAMIC = re.compile(
    r"\bextern\b[^;\"]*\b__shared__\b[^;\"]*?\b(\w+)\s*\[\s*\]\s*;|\b__shared__\s+extern\b[^;\"]*?\b(\w+)\s*\[\s*\]\s*;"
)
_C_VARIABLE = re.compile(r'extern\s+"C"\s+(?=__(?:constant|device)__)')
"""Before a variable C++ takes it for a declaration."""
_EXTERN_VARIABLE = re.compile(
    r"\bextern\s+(?=__(?:constant|device)__\b[^;(){}=]*?\b(\w+)\s*(?:\[[^;\]]+\]\s*)*;)"
)
"""The word before a variable with its size that only a declaration names: NVRTC takes that for its definition."""
_NAME = re.compile(r"(\w+)\)?(?:\[\w*\])*(?: = \w+)?(?:,|$)")
_FUNCTION = re.compile(
    r"^(?P<head>(?:template[ ]*<(?P<own>[^\n]*)>\n)?__device__ [^{;]*?(?P<name>\w+)(?P<given><[\w, ]+>)?"
    r"\((?P<parameters>[^{;]*)\) )\{(?:(?P<short> [^\n]*) \}|\n(?P<long>.*?)^\})$",
    re.MULTILINE | re.DOTALL,
)
_DEFINED = re.compile(r"(?:-D *|--define-macro=)([^=]+)(?:=(.*))?", re.DOTALL)
_UNDEFINED = re.compile(r"(?:-U *|--undefine-macro=)(\w+)")


def code_of(source: str, *, lines_stay: bool = False) -> str:
    """Return a source without its comments, and, unless its lines stay where they are, without empty lines."""
    without = _COMMENT.sub(lambda match: match[1] or "\n" * (lines_stay and match[0].count("\n")), source)
    if lines_stay:
        return without
    return "\n".join(line.rstrip() for line in without.splitlines() if line.strip()) + "\n"


def arch_of(source: str, cc: int) -> int:
    """Return ``__CUDA_ARCH__`` for a source: of code with PTX the oldest GPU's, which has less of it."""
    return 750 if _PTX.search(code_of(source)) else 10 * cc


def for_host(source: str) -> str:
    """Return a source whose functions that hold PTX call their stand-ins in ``cuda.hpp``; lines stay where they are.

    Where PTX depends on the architecture, the oldest GPU's code is taken.
    """
    source = _ARCHITECTURE.sub(_of_the_oldest, code_of(source, lines_stay=True))
    source = source.replace("__attribute__((shared))", "__shared__")  # what nvcc makes of it
    source = _SHARED.sub(r"\1__shared__ ", _C_VARIABLE.sub("", source))
    source = _EXTERN_VARIABLE.sub(lambda found: _unless_defined(found, source), source)
    return _FUNCTION.sub(_without_ptx, source)


def _unless_defined(variable: re.Match[str], source: str) -> str:
    """Return what stands before a declaration of a variable: nothing where it defines it, as nothing else does."""
    others = re.findall(
        rf"(\bextern\s+)?__(?:constant|device)__\b[^;(){{}}=]*?\b{variable[1]}\s*[\[;={{]", source
    )
    again = re.search(rf"\bextern\s[^;]*\b{variable[1]}\b[^;]*;", source[: variable.start()])
    return variable[0] if again or "" in others else ""


def _of_the_oldest(code: re.Match[str]) -> str:
    rest = _STATEMENT.sub("", code[1])
    nested = re.search(r"^[ \t]*#[ \t]*(?:if|elif)", code[1] + (code[2] or ""), re.MULTILINE)
    if nested or not _PTX.search(code[1]):
        return code[0]
    if code[2] is None and rest.strip() and not re.search(r"\b(?:template|__device__)\b", rest):
        return '#error "code for newer GPUs alone, with PTX"' + "\n" * code[0].count("\n")
    kept = code[2] or ""
    before = code[0][: code.start(2) - code.start()].count("\n") if kept else 0
    return "\n" * before + kept + "\n" * (code[0].count("\n") - before - kept.count("\n"))


def _without_ptx(function: re.Match[str]) -> str:
    body = function["short"] or function["long"]
    if not _PTX.search(body):
        return function[0]
    names = _NAME.findall(function["parameters"])
    given = function["given"] or ""
    if function["own"]:
        given = f"<{', '.join(parameter.split()[-1] for parameter in function['own'].split(','))}>"
    lines = "\n" * function[0][len(function["head"]) :].count("\n")
    return f"{function['head']}{{ return ptx::{function['name']}{given}({', '.join(names)}); {lines}}}"


def macros(options: Sequence[str]) -> str:
    """Return the macros that NVRTC's options define, as lines to stand behind the machine's own header.

    Before it, or as options of g++, a macro with the name of one of its types or variables would break it.
    """
    lines = ""
    for one in options:
        if given := _DEFINED.fullmatch(one):
            lines += f"#define {given[1]} {'1' if given[2] is None else given[2]}\n"
        elif given := _UNDEFINED.fullmatch(one):
            lines += f"#undef {given[1]}\n"
    return lines


def shared_places(dynamic: Sequence[str]) -> str:
    """Return code that tells where shared memory is; names of dynamic shared memory mean the same room."""
    room = "alignas(128) thread_local unsigned char emulator_dynamic[emulator::DYNAMIC_ROOM];\n"
    names = "".join(
        f'asm(".globl {name}\\n.type {name}, @tls_object\\n.set {name}, emulator_dynamic");\n'
        for name in dynamic
    )
    return (
        (f'extern "C" {{ EMULATOR_SEEN {room}}}\n{names}' if dynamic else "")
        + 'extern "C" EMULATOR_SEEN void tell_places(unsigned char** places) {\n'
        "    places[0] = &emulator::something;\n"
        + ("    places[1] = emulator_dynamic;\n" if dynamic else "")
        + "}\n"
    )


def dynamic_names(source: str) -> list[str]:
    """Return names of dynamic shared memory that a source has in plain words; macros and namespaces may hide others."""
    return [name for pair in _DYNAMIC.findall(source) for name in pair if name]
