"""What sources have of the host's library, which NVRTC lacks, and where CUDA's headers are found."""

import os
from pathlib import Path

import pytest

from tuner.children import headers
from tuner.children.headers import cuda_version, header_folders, headers_of, missing
from tuner.children.nvrtc import SourceRejected, compile_options, compile_source

KERNEL = 'extern "C" __global__ void k(float* x, int n) {\n%s\n}\n'
NAMES = """
    uint a = UINT8_C(1);
    ushort b = UINT8_MAX; uint32_t c = UINT_MAX; std::int64_t d = LLONG_MIN; uintptr_t e = (uintptr_t)x;
    constexpr float inf = INFINITY;
    x[0] = -inf + FLT_MAX + float(M_PI) + a + b + c + d + e + RAND_MAX + SIZE_MAX + (isnan(NAN) ? DBL_MAX : HUGE_VAL);
    x[1] = offsetof(float4, y);
    static_assert(sizeof(uint64_t) == 8 && INT_MIN < INT_MAX && INT64_MIN < 0 && UINT64_MAX == ULLONG_MAX);
"""
STANDARD = """
    static_assert(std::numeric_limits<int>::min() == INT_MIN && std::numeric_limits<unsigned char>::max() == 255);
    static_assert(std::numeric_limits<float>::lowest() == -FLT_MAX && std::numeric_limits<double>::min() == DBL_MIN);
    static_assert(std::numeric_limits<double>::epsilon() == DBL_EPSILON);
    static_assert(std::numeric_limits<long long>::digits == 63);
    static_assert(std::is_same_v<std::make_unsigned_t<std::decay_t<const int&>>, unsigned int>);
    static_assert(std::is_pointer<float*>::value && !std::is_pointer_v<float> && std::is_signed_v<float>);
    static_assert(std::is_same<std::common_type_t<int, float>, std::conditional_t<true, float, int>>::value);
    static_assert(std::max(2, 3) == 3 && std::min(2u, 3u) == 2 && std::clamp(5, 1, 3) == 3);
    std::size_t i = n;
    std::swap(x[i], x[1]);
    x[2] = std::sqrt(std::abs(x[3])) + std::pow(x[4], 2.0f) + std::fma(x[0], x[1], x[2]);
    x[3] = std::plus<float>()(x[0], x[1]);
"""
INCLUDES = (
    "algorithm", "assert.h", "cassert", "cfloat", "climits", "cmath", "cstddef", "cstdint", "cstdio", "cstdlib",
    "cstring", "float.h", "functional", "iostream", "limits", "limits.h", "map", "math.h", "memory", "stddef.h",
    "stdint.h", "stdio.h", "stdlib.h", "string", "string.h", "sys/time.h", "type_traits", "utility", "vector",
    "chrono", "cublas_v2.h", "curand.h", "helper_cuda.h", "helper_functions.h", "cuda_runtime.h",
    "nvtx3/nvToolsExt.h", "thrust/device_vector.h", "cub/device/device_reduce.cuh",
)  # fmt: skip


def test_names_of_the_host_are_known_without_a_header_and_with_all() -> None:
    includes = "".join(f"#include <{name}>\n" for name in INCLUDES)
    for source in (KERNEL % NAMES, includes + "using std::max;\n" + KERNEL % (NAMES + STANDARD)):
        assert "warning #47" not in compile_source(source, "k", "sm_90").log


def test_complex_numbers_of_thrust_need_no_streams() -> None:
    code = (
        "#include <thrust/complex.h>\n" + KERNEL % "x[n] = thrust::abs(thrust::complex<float>(x[0], x[1]));"
    )
    assert headers_of(code, []).texts["thrust/detail/complex/stream.h"] == ""


@pytest.mark.parametrize(
    ("used", "left_out"),
    [
        ("x[0] = n;", True),
        ("CUdeviceptr at;", False),
        ("\n#if CUDA_VERSION > 12000\n x[0] = n;\n#endif\n", False),
    ],
)
def test_the_driver_s_header_is_empty_where_none_of_its_names_is_used(used: str, left_out: bool) -> None:
    assert (headers_of("#include <cuda.h>\n" + KERNEL % used, []).texts.get("cuda.h") == "") == left_out


def test_options_may_define_and_use_such_names() -> None:
    source = KERNEL % "T a = LIMIT; x[0] = a + FLT_MAX;"
    options = ("-DT=uint32_t", "-DLIMIT=UINT8_MAX", "-DFLT_MAX=1.0f", "--define-macro=OTHER")
    assert "warning #47" not in compile_source(source, "k", "sm_90", options).log


@pytest.mark.parametrize(
    "own",
    [
        "typedef unsigned long uint64_t;\nusing uint = unsigned int;",
        "const float INFINITY = 1e30f;\n#define uint64_t unsigned long\n#define uint unsigned",
        "namespace std { template <typename T> T max(T a, T b) { return a; } }\n"
        "typedef char uint64_t; typedef char uint;",
    ],
)
def test_what_a_source_declares_itself_stays_its_own(own: str) -> None:
    body = "uint64_t a = 1; uint b = 2; uint16_t c = 3; x[0] = a + b + c + FLT_MAX;"
    assert compile_source(own + "\n" + KERNEL % body, "k", "sm_90").cubin


def test_a_kernel_s_own_header_goes_before_the_host_s(tmp_path: Path) -> None:
    (tmp_path / "of").mkdir()
    (tmp_path / "of" / "limits.h").write_text("#define TWO 2\n")
    (tmp_path / "of" / "helper_timer.h").write_text('#include "limits.h"\n')
    (tmp_path / "helper_cuda.h").write_text(
        '#include "of/helper_timer.h"\n'
        "#include <cstdint>\n__device__ uint32_t twice(uint32_t x) { return TWO * x; }\n"
    )
    source = '#include "helper_cuda.h"\n' + KERNEL % "x[0] = twice(n);"
    assert compile_source(source, "k", "sm_90", include=(tmp_path,)).cubin
    with pytest.raises(SourceRejected, match="twice"):
        compile_source(source, "k", "sm_90")


@pytest.mark.parametrize(
    "source",
    [
        KERNEL % "x[0] = std::move(x[1]); // INFINITY, uint, std::max",
        "#include <cuda_fp16.h>\n" + KERNEL % "x[0] = __half2float(__half());",
        "#ifndef __CUDACC_RTC__\n#include <vector>\n#include <cub/cub.cuh>\n#else\ntypedef int word;\n#endif\n"
        + KERNEL % "word one = 1; x[0] = one;",
        "#ifdef __NVCC__\n#include <cuda_runtime.h>\ntypedef uint32_t word;\n#endif\n" + KERNEL % "x[0] = 1;",
    ],
)
def test_a_source_that_uses_none_of_it_is_compiled_as_before(source: str) -> None:
    given = headers_of(source, ())
    assert not given.texts and not given.digest
    folder = header_folders()[0]
    assert compile_options("sm_90", ("-w",), (Path("/own"),), given)[-3:] == (
        "-w", "--include-path=/own", f"--include-path={folder}",
    )  # fmt: skip


@pytest.mark.usefixtures("any_code")
def test_cuda_s_headers_compile_beside_macros_that_are_names_in_them() -> None:
    body = """
    using Sum = cub::BlockReduce<float, threads>;
    __shared__ typename Sum::TempStorage memory;
    auto warp = cooperative_groups::tiled_partition<32>(cooperative_groups::this_thread_block());
    const float sum = Sum(memory).Reduce(x[threadIdx.x], cub::Max());
    static_assert(std::same_as<int, decltype(n)>);
    if (warp.thread_rank() == 0) x[0] = sum + std::pair<int, float>(1, FLT_MAX).second;
    """
    includes = "#include <cub/cub.cuh>\n#include <utility>\n#include <cooperative_groups.h>\n"
    source = "#define threads 128\n#define rank 3\n#define ITEMS_PER_THREAD 2\n" + includes + KERNEL % body
    assert compile_source(source, "k", "sm_90").resources.static_shared_bytes > 0


def _toolkit(folder: Path, version: int, lacks: str) -> Path:
    for name in ("cuda_fp16.h", "cuda.h", "cooperative_groups.h", "nv/target", "cuda/std/type_traits",
                 "cub/block/block_reduce.cuh"):  # fmt: skip
        if name != lacks:
            path = folder / "include" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"#define CUDA_VERSION {version}\n")
    return folder


def test_a_complete_toolkit_of_the_compiler_s_version_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = header_folders()
    for name, version, lacks, used in (
        ("new", 13020, "", True),
        ("old", 12040, "", False),
        ("part", 13020, "nv/target", False),
    ):
        toolkit = _toolkit(tmp_path / name, version, lacks)
        monkeypatch.setenv("CUDA_HOME", str(toolkit))
        assert header_folders.__wrapped__() == ((toolkit / "include",) if used else packages)
    (tmp_path / "old" / "include" / "curand_kernel.h").write_text("__device__ int drawn() { return 4; }\n")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "old"))
    source = "#include <curand_kernel.h>\n" + KERNEL % "x[0] = drawn();"
    assert compile_source(source, "k", "sm_90").cubin
    (pipe := tmp_path / "old" / "include" / "cuda.h").unlink()
    os.mkfifo(pipe)
    assert cuda_version(pipe.parent) == "" and header_folders.__wrapped__() == packages
    monkeypatch.setattr(headers.sysconfig, "get_paths", lambda: {"purelib": str(tmp_path)})
    monkeypatch.setattr(headers.importlib.util, "find_spec", lambda _: None)
    found = header_folders.__wrapped__()
    assert missing(found) == ([] if Path("/usr/local/cuda/include/nv/target").is_file() else ["nv/target"])


def test_a_template_s_arguments_may_be_such_names() -> None:
    source = "template <typename T> __global__ void k(T* x) { x[0] = std::numeric_limits<T>::max(); }"
    assert "IhEvPT_" in compile_source(source, "k<uint8_t>", "sm_90").entry
