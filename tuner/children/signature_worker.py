"""What parameters a kernel takes: asked of the compiler itself, by a table behind the source that holds their types."""

from __future__ import annotations

import re
import struct
import sys

from tuner.children.memory import memory_limit
from tuner.children.nvrtc import compile_source
from tuner.children.signatures import SIGNATURES, KernelSource, Parameter, Signatures
from tuner.core.errors import CompileError
from tuner.core.processes import ParentPipe, limit_memory

# Four numbers for each parameter: its kind and size, and those of what it points to. The table is no constant, or the
# compiler would leave it out. Names are ones that no macro of a user has.
PROBE = """
template <class kt_T> struct kt_kind { static constexpr unsigned short kt_of = 0, kt_bytes = sizeof(kt_T); };
template <> struct kt_kind<void> { static constexpr unsigned short kt_of = 0, kt_bytes = 0; };
template <class kt_T> struct kt_kind<const kt_T> : kt_kind<kt_T> {};
template <class kt_T> struct kt_kind<volatile kt_T> : kt_kind<kt_T> {};
template <class kt_T> struct kt_kind<const volatile kt_T> : kt_kind<kt_T> {};
template <class kt_T> struct kt_kind<kt_T*> { static constexpr unsigned short kt_of = 3, kt_bytes = sizeof(kt_T*); };
#define KT_KIND(kt_type, kt_number) \\
    template <> struct kt_kind<kt_type> { \\
        static constexpr unsigned short kt_of = kt_number, kt_bytes = sizeof(kt_type); \\
    };
KT_KIND(float, 2) KT_KIND(double, 2)
KT_KIND(bool, 1) KT_KIND(char, 1) KT_KIND(signed char, 1) KT_KIND(unsigned char, 1)
KT_KIND(short, 1) KT_KIND(unsigned short, 1) KT_KIND(int, 1) KT_KIND(unsigned int, 1)
KT_KIND(long, 1) KT_KIND(unsigned long, 1) KT_KIND(long long, 1) KT_KIND(unsigned long long, 1)
template <class kt_T> struct kt_target { using kt_type = void; };
template <class kt_T> struct kt_target<kt_T*> { using kt_type = kt_T; };
template <class kt_T> struct kt_one {
    unsigned short kt_kind_ = kt_kind<kt_T>::kt_of, kt_bytes = kt_kind<kt_T>::kt_bytes;
    unsigned short kt_target_ = kt_kind<typename kt_target<kt_T>::kt_type>::kt_of;
    unsigned short kt_target_bytes = kt_kind<typename kt_target<kt_T>::kt_type>::kt_bytes;
};
template <class... kt_T> struct kt_all;
template <> struct kt_all<> {};
template <class kt_T, class... kt_U> struct kt_all<kt_T, kt_U...> { kt_one<kt_T> kt_first; kt_all<kt_U...> kt_others; };
template <class kt_T> struct kt_table;
template <class... kt_T> struct kt_table<void (*)(kt_T...)> { unsigned short kt_begin = 7; kt_all<kt_T...> kt_all_; };
extern "C" { __device__ kt_table<decltype(&@ENTRY@)> kt_signature = {}; }
"""
_TABLE = re.compile(r"\.b8 kt_signature\[(\d+)\] = \{([\d, ]+)\}")
_KINDS = ("other", "integer", "float", "pointer")


def signature(source: KernelSource) -> tuple[Parameter, ...] | None:
    """Return the parameters of a kernel; None if it does not compile, or its name stands for several."""
    text = source.text + PROBE.replace("@ENTRY@", source.entry)
    try:
        ptx = compile_source(
            text, source.entry, source.arch, source.options, source.include, listing=True
        ).ptx
    except CompileError:
        return None
    table = _TABLE.search(ptx)
    if table is None:
        return None
    data = bytes(map(int, table[2].split(",")))
    data += b"\0" * (int(table[1]) - len(data))  # zeros at the end are left out
    numbers = struct.unpack(f"<{len(data) // 2}H", data)[1:]
    return tuple(
        Parameter(_KINDS[kind], size, _KINDS[target] if kind == 3 else "", target_size)
        for kind, size, target, target_size in zip(*[iter(numbers)] * 4, strict=False)
    )


def main() -> None:
    """Answer one request. Argument: the number of such children at a time."""
    pipe = ParentPipe(SIGNATURES)
    limit = memory_limit(int(sys.argv[1]))
    limit_memory(limit)
    request = pipe.receive()
    if request is not None:
        pipe.send(Signatures(tuple(signature(source) for source in request.sources)))


if __name__ == "__main__":
    main()
