"""What a compilation has beside the kernel's own headers: CUDA's folders, and what NVRTC lacks of the host's library.

nvcc compiles on top of the host's C++ library, so that kernels use ``uint``, ``FLT_MAX`` or ``std::max``, and include
what only the code around them needs. NVRTC has none of it. Here a source is given the names that it uses, before its
first line; the headers of the host themselves are empty. A source that uses none of this is compiled as it is.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import re
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tuner.core.errors import KernelError
from tuner.core.model import digest
from tuner.kernel.headers import included_names, own_headers, read_source
from tuner.kernel.source.preprocessor import preprocessed

NAMES, FIRST = "names_of_the_host.h", "headers_of_cuda.h"
"""What NVRTC calls the names that a source is given, and the headers of CUDA's that come before its macros."""
_HOSTS = re.compile(
    r"""
    # of C++
    algorithm|any|array|atomic|barrier|bit|bitset|cassert|c?complex|cctype|cerrno|cfenv|cfloat|charconv|cinttypes
    |climits|clocale|cmath|compare|concepts|csetjmp|csignal|cstdarg|cstdbool|cstddef|cstdint|cstdio
    |cstdlib|cstring|ctime|cuchar|cwchar|deque|exception|execution|format|forward_list|functional
    |initializer_list|ios|iosfwd|istream|iterator|latch|limits|list|locale|map|memory
    |new|numbers|numeric|optional|ostream|queue|ranges|ratio|scoped_allocator
    |semaphore|set|source_location|span|sstream|stack|stdexcept|stop_token|streambuf|string|string_view
    |system_error|tuple|type_traits|typeindex|typeinfo|unordered_map|unordered_set|utility|valarray
    |variant|vector|version
    # of C and of the system
    |(?:assert|complex|ctype|dirent|dlfcn|errno|fcntl|fenv|float|getopt|inttypes|libgen|limits|locale|malloc|math|memory
    |omp|pthread|sched|semaphore|setjmp|signal|stdalign|stdarg|stdatomic|stdbool|stddef|stdint|stdio|stdlib|string
    |strings|tgmath|time|unistd|wchar|x86intrin|immintrin|values|mpi|windows|glob|netdb|poll|regex|termios)\.h
    |(?:sys|arpa|net|netinet|linux)/\w+\.h|bits/stdc\+\+\.h
    """,
    re.VERBOSE,
)
"""Headers of which device code needs nothing, or the names that it is given."""
_HOSTS_OF_CUDA = re.compile(
    r"""
    # of CUDA, for the host, and of its samples
    cuda(?:_runtime|_runtime_api|_profiler_api|_occupancy)?\.h|cudaProfiler\.h|nvrtc\.h|nvml\.h
    |device_(?:launch_parameters|(?:atomic_)?functions|double_functions)\.h|math_functions\.h|sm_\d\d_\w+\.h
    |(?:vector_types|vector_functions|builtin_types|driver_types|host_defines|channel_descriptor)\.h
    |cu(?:blas|blas_v2|blasLt|blasXt|fft|fftXt|rand|solver\w*|sparse|dnn)\.h|nccl\.h|nvToolsExt\w*\.h|nvtx3/\w+\.h(?:pp)?
    |(?:\w+/)*(?:helper_(?:cuda|functions|string|timer|image|cuda_drvapi|gl|cusolver)|exception)\.h
    # of libraries around kernels: of torch, and of programs that show, test or read
    |(?:torch|ATen|c10|pybind11|opencv2|boost|gtest|gmock|benchmark|nlohmann|fmt|spdlog|GL|GLFW|SDL2?|gflags|glog)/.*
    |Python\.h|cuda_gl_interop\.h|hip/hip_runtime\.h
    # of CUB: what launches kernels
    |cub/device/.*|cub/util_allocator\.cuh
    # of C++, without which its other headers do: <random> has a name block_size, which may be a parameter's macro
    |chrono|condition_variable|filesystem|fstream|future|iomanip|iostream|memory_resource|mutex|random|regex|shared_mutex
    |syncstream|thread
    """,
    re.VERBOSE,
)
"""The same, and empty for a compiler of the host, too, which lacks those of CUDA and of its samples."""
_WITH_HALVES = re.compile(r"(?:torch|ATen|c10)/.*|cu(?:blas\w*|fftXt|solver\w*|sparse|dnn)\.h")
"""Headers that have those of CUDA's types of 16 bits."""
_CUB = "cub/cub.cuh"
_HEAVY = re.compile(r"cub/|cuda/|thrust/|cooperative_groups")
"""Headers that take a second and more. They come before the macros of a kernel's parameters: one has a variable
``threads``."""
_CONFIGURES = re.compile(r"_?(?:CCCL|CUB|THRUST|LIBCUDACXX|CG|CUDA)_")
"""Macros that a source may define for these headers."""
_ALONE = re.compile(
    r"cuda_(?:fp16|bf16|fp8|fp6|fp4|runtime|runtime_api)\.h|(?:mma|cuComplex|math_constants|device_launch_parameters)\.h"
    r"|(?:vector|device)_\w+\.h"
)
"""CUDA's headers that include none of CCCL's."""
_COMPLETE = (
    "cuda_fp16.h",
    "cooperative_groups.h",
    "nv/target",
    "cuda/std/type_traits",
    "cub/block/block_reduce.cuh",
)
"""One header of each package: of nvidia-cuda-runtime, and of -cccl, without which half of the others do not compile."""
_OF_LIBCUXX = {
    "array": "array",
    **dict.fromkeys(
        ("pair", "make_pair", "index_sequence", "make_index_sequence", "integer_sequence"), "utility"
    ),
    **dict.fromkeys(("tuple", "make_tuple", "get", "tie", "tuple_size", "tuple_element"), "tuple"),
    **dict.fromkeys(("complex", "real", "imag", "conj", "norm", "arg", "polar"), "complex"),
    **dict.fromkeys(("optional", "nullopt"), "optional"),
    **dict.fromkeys(("bit_cast", "popcount", "countl_zero", "countr_zero", "has_single_bit"), "bit"),
    **dict.fromkeys(("integral", "floating_point", "same_as", "convertible_to"), "concepts"),
    **dict.fromkeys(
        ("modulus", "negate", "bit_and", "bit_or", "bit_xor", "logical_and", "logical_or"), "functional"
    ),
    **dict.fromkeys(
        ("conjunction", "disjunction", "negation", "invoke_result_t", "is_trivial_v"), "type_traits"
    ),
}
"""Names of ``std`` that libcu++ has, and the header: these take a second to compile."""
_OLD_OF_CUB = {"Sum": "std::plus", "Max": "maximum", "Min": "minimum"}
"""Operations that CUB had up to CUDA 12, and libcu++'s."""
_WORD = re.compile(r"[A-Za-z_]\w*")
_TOKEN = re.compile(r"\w+|::|\S")
_DEFINES = re.compile(r"(?:-D|--?define-macro)[= ]?(\w+)(?:=(.*))?", re.DOTALL)
_NOT_FOR_NVRTC = re.compile(
    r"^[ \t]*#[ \t]*(?:ifndef|if[ \t]+!\s*defined)\W+__CUDACC_RTC__\b.*?^[ \t]*#[ \t]*(?:endif|else|elif)\b",
    re.MULTILINE | re.DOTALL,
)
_OF_STD = re.compile(r"(?<!cuda :: )(?<!\w)std :: (\w+)")


@dataclass(frozen=True)
class Headers:
    """What a compilation has beside the kernel's own headers."""

    folders: tuple[Path, ...] = ()
    """CUDA's, in the order in which they are searched."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """Headers in memory, by name. A source begins with :data:`FIRST` and :data:`NAMES`, if they are there."""

    @property
    def digest(self) -> str:
        """Of the texts in memory; empty where there are none."""
        return digest(sorted(self.texts.items())) if self.texts else ""

    @property
    def first(self) -> Headers:
        """What CUDA's headers that come first need, without the names that follow them."""
        return Headers(self.folders, {name: text for name, text in self.texts.items() if name != NAMES})

    @property
    def options(self) -> tuple[str, ...]:
        """NVRTC's options for them."""
        before = (f"--pre-include={name}" for name in (FIRST, NAMES) if name in self.texts)
        return (*before, *(f"--include-path={folder}" for folder in self.folders))


@functools.cache
def header_folders() -> tuple[Path, ...]:
    """Find CUDA's own headers (``cuda_fp16.h``, ``mma.h``), with those of CCCL (CUB, libcu++) last.

    A complete toolkit that CUDA_HOME or CUDA_PATH names goes first, if it is of NVRTC's major version; then Python's
    packages, any such toolkit, and the one in the usual place. What is not complete is taken if nothing is.
    """
    site = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    spec = importlib.util.find_spec("nvidia")
    major = importlib.metadata.version("cuda-bindings").partition(".")[0]  # as NVRTC's
    packages = [site, *map(Path, (spec.submodule_search_locations or ()) if spec is not None else ())]
    candidates = [
        *(folder for folder in toolkits()[:-1] if cuda_version(folder).startswith(f"{major}.")),
        *(package / name / "include" for package in packages for name in (f"cu{major}", "cuda_runtime")),
        *toolkits(),
    ]
    found = [folder for folder in candidates if (folder / "cuda_fp16.h").is_file()]
    folders = [tuple(filter(Path.is_dir, (folder, folder / "cccl"))) for folder in found]
    return next((each for each in folders if not missing(each)), folders[0] if folders else ())


def toolkits() -> list[Path]:
    """Return where the headers of CUDA toolkits may be: those that variables name, and the usual one last."""
    named = (os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH"))
    return [Path(folder) / "include" for folder in (*named, "/usr/local/cuda") if folder]


@functools.cache
def missing(folders: tuple[Path, ...]) -> list[str]:
    """Return one header of each part of CUDA's that folders lack."""
    return [name for name in _COMPLETE if not _is_in(name, folders)]


def cuda_version(folder: Path) -> str:
    """Return the version of CUDA's headers in a folder, such as ``13.0``; empty where there are none."""
    try:
        match = re.search(r"define CUDA_VERSION (\d+)", read_source(folder / "cuda.h"))
    except (OSError, KernelError):
        return ""
    return f"{int(match[1]) // 1000}.{int(match[1]) % 1000 // 10}" if match else ""


def headers_of(source: str, include: Sequence[Path], entry: str = "", options: Sequence[str] = ()) -> Headers:
    """Return what a source needs beside its own headers.

    Args:
        source: CUDA C++.
        include: folders of its own headers.
        entry: the kernel, with the arguments of a template.
        options: of the compiler, which may define macros.

    Raises:
        KernelError: a header is too large.
    """
    cuda = header_folders()
    texts, names = included(source, include)
    defined = filter(None, map(_DEFINES.match, options))
    texts.append("".join((*(f"#define {one[1]} {one[2] or ''}\n" for one in defined), entry)))
    if all(map(_ALONE.fullmatch, names)) and not any(
        _words().intersection(_WORD.findall(text)) for text in texts
    ):
        return Headers(cuda[:1])
    parts = [preprocessed(text) for text in texts]
    macros = {name: macro.value for part in parts for name, macro in part.macros.items()}
    code = " ".join(_TOKEN.findall(" ; ".join((*(part.text for part in parts), *macros.values()))))
    asked = " ".join(line for text in texts for line in text.split("\n") if "CUDA_VERSION" in line)
    given = {name: "" for name in names if _is_the_hosts(name, code + asked, cuda)}
    if _CUB in names and (text := _device_part_of_cub(cuda)):
        given[_CUB] = text
    if with_halves := [name for name in given if _WITH_HALVES.fullmatch(name)]:
        given[with_halves[0]] = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"
    if any(name.startswith("thrust/") and name not in given for name in names):
        given["thrust/detail/complex/stream.h"] = ""  # needs <ostream>
    if "cuda.h" in names:
        given |= {"stdlib.h": "", "stdint.h": _lines(name for name in _declarations() if "int" in name)}
    large = [name for name in names if name not in given or given[name]]
    of_libcuxx = sorted(_OF_LIBCUXX.keys() & set(_OF_STD.findall(code))) if not missing(cuda) else []
    large += [f"cuda/std/{_OF_LIBCUXX[name]}" for name in of_libcuxx]
    heavy = [
        name for name in dict.fromkeys(large) if _HEAVY.match(name) and (name in given or _is_in(name, cuda))
    ]
    if heavy and not any(map(_CONFIGURES.match, macros)):
        given[FIRST] = "".join(f"#include <{name}>\n" for name in heavy)
    if text := _names_given(code, macros, of_libcuxx):
        given[NAMES] = text
    if all(map(_ALONE.fullmatch, large)):
        return Headers(cuda[:1], given)
    lacking = [name for name in large if name not in given and not _is_in(name, cuda)]
    beyond = [folder for folder in toolkits() if any(_is_in(name, [folder]) for name in lacking)]
    return Headers((*cuda, *beyond), given)


def hosts_of_cuda(source: str, include: Sequence[Path]) -> list[str]:
    """Return the headers that a source includes and a compiler of the host gets empty: its kernels need none."""
    texts, names = included(source, include)
    unused = "thrust/" if not any("thrust::" in text for text in texts) else "cub/device/"
    return [name for name in names if _HOSTS_OF_CUDA.fullmatch(name) or name.startswith(unused)]


def not_found(source: str, include: Sequence[Path]) -> list[str]:
    """Return the headers that a source includes, directly or not, and that are nowhere: its kernels may need them."""
    cuda = (*header_folders(), *toolkits())
    _, names = included(source, include)
    return [
        name
        for name in names
        if not (_HOSTS.fullmatch(name) or _HOSTS_OF_CUDA.fullmatch(name) or _is_in(name, cuda))
    ]


def included(source: str, include: Sequence[Path]) -> tuple[list[str], list[str]]:
    """Return the texts of a source and its own headers, and the names of other headers that these include for NVRTC."""
    own = own_headers([source], include) if "#" in source else []
    texts = [source, *map(read_source, own)]
    names = included_names(_NOT_FOR_NVRTC.sub("", text) for text in texts)
    return texts, [name for name in names if not any(f"/{path}".endswith(f"/{name}") for path in own)]


def _is_the_hosts(name: str, code: str, cuda: Sequence[Path]) -> bool:
    """Return whether a header is for the host alone: no device code that NVRTC could compile needs it."""
    if name.startswith("thrust/"):
        return "thrust ::" not in code
    if name == "cuda.h":  # whose arguments have names such as N, which may be macros of a problem's sizes
        return re.search(r"\b(?:CU[a-z]|cu[A-Z]|CUDA_VERSION\b)", code) is None
    if _HOSTS_OF_CUDA.fullmatch(name):
        return name.startswith("cub/") or not _is_in(name, cuda)
    return _HOSTS.fullmatch(name) is not None


def _device_part_of_cub(cuda: Sequence[Path]) -> str:
    """Return ``cub/cub.cuh`` as far as NVRTC takes it: it refuses what launches kernels."""
    path = next((folder / _CUB for folder in cuda if (folder / _CUB).is_file()), None)
    lines = path.read_text(errors="replace").splitlines() if path is not None else []
    return "".join(f"{line}\n" for line in lines if re.match(r"#include <cub/(?:block|warp|thread)/", line))


def _names_given(code: str, macros: Mapping[str, str], of_libcuxx: Sequence[str]) -> str:
    """Return declarations of the host's names that a source uses and does not declare; empty if there are none.

    Args:
        code: its words and marks, with a space between each two.
        macros: that it defines.
        of_libcuxx: names of ``std`` that it uses and libcu++ has.
    """
    standard, words = _standard()
    of_std = set(_OF_STD.findall(code))
    used = _declarations().keys() & set(_WORD.findall(code)) - macros.keys()
    given = _lines(name for name in _declarations() if name in used and not _declares(code, name))
    if not re.search(r"\bnamespace std {", code):
        given += standard if of_std & words or "using namespace std ;" in code else ""
        given += "".join(f"#include <cuda/std/{_OF_LIBCUXX[name]}>\n" for name in of_libcuxx)
        types = [name for name in sorted(of_std & used) if _declarations()[name].startswith("typedef")]
        own = [*(f"::{name}" for name in types), *(f"::cuda::std::{name}" for name in of_libcuxx)]
        given += "".join(f"namespace std {{ using {name}; }}\n" for name in own)
    if old := sorted(set(re.findall(r"\bcub :: (Sum|Max|Min)\b", code))):
        own = [f"using {name} = ::cuda::{_OLD_OF_CUB[name]}<>;" for name in old]
        text = f"#if CCCL_MAJOR_VERSION >= 3\nnamespace cub {{ {' '.join(own)} }}\n#endif\n"
        given += f"#include <cuda/functional>\n{text}"
    return given


def _lines(names: Iterable[str]) -> str:
    """Return the declarations of names."""
    return "".join(f"{_declarations()[name]}\n" for name in names)


def _declares(code: str, name: str) -> bool:
    return bool(
        re.search(
            rf"\btypedef\b[^;{{}}]*\b{name}(?: \[[^;]*)? ;|\b(?:using|struct|class|enum|union) {name}\b"
            rf"|\b(?:float|double|auto|char|short|int|long|unsigned) {name} [=;[{{]",
            code,
        )
    )


def _is_in(name: str, folders: Iterable[Path]) -> bool:
    return any(os.path.isfile(folder / name) for folder in folders)  # noqa: PTH113 - of any length


@functools.cache
def _declarations() -> dict[str, str]:
    """Return the lines that declare names of the C library, by name."""
    lines = Path(__file__).with_name("names.h").read_text().splitlines()
    return {_name(line): line for line in lines if not line.startswith("//")}


def _name(line: str) -> str:
    return line.rstrip(";").split()[-1] if line.startswith("typedef") else _WORD.findall(line)[1]


@functools.cache
def _standard() -> tuple[str, frozenset[str]]:
    """Return our part of C++'s library, and the words in it; NVRTC itself has ``std::move`` and ``std::forward``."""
    text = Path(__file__).with_name("standard.hpp").read_text()
    return text, frozenset(_WORD.findall(text)) - {"move", "forward"}


@functools.cache
def _words() -> frozenset[str]:
    """Return words without one of which a source is given nothing."""
    return frozenset(_declarations()) | {"std"}
