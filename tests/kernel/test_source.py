"""What is read of a kernel's source: signatures in the spellings that people use, launches, macros, constant memory."""

from __future__ import annotations

import pytest

from tuner.core.errors import KernelError
from tuner.kernel.source.declarations import read_declarations
from tuner.kernel.source.preprocessor import preprocessed
from tuner.kernel.source.tree import code


def parameters(text: str, name: str = "") -> dict[str, tuple[str, int, bool, str | None]]:
    """Return the parameters of a kernel: element type, pointers, whether const, dtype."""
    return {
        one.name: (one.type.base, one.type.pointers, one.type.const, one.type.dtype)
        for one in read_declarations(text).kernel(name).parameters
    }


@pytest.mark.parametrize(
    ("written", "name", "read"),
    [
        ("const float* x", "x", ("float", 1, True, "float32")),
        ("const volatile double x[]", "x", ("double", 1, True, "float64")),
        ("const long long int x = 3", "x", ("long long", 0, False, "int64")),
        ("const __half* x", "x", ("__half", 1, True, "float16")),
        ("__nv_bfloat16 *x", "x", ("__nv_bfloat16", 1, False, "bfloat16")),
        ("real* x", "x", ("double", 1, False, "float64")),
        ("const number* x", "x", ("float", 1, True, "float32")),
        ("TYPE x", "x", ("int", 0, False, "int32")),
        ("float** x", "x", ("float", 2, False, None)),
        ("const struct Point* x", "x", ("Point", 1, True, None)),
        ("cuFloatComplex* x", "x", ("cuFloatComplex", 1, False, "complex64")),
        ("const cuda::std::complex<double>* x", "x", ("complex<double>", 1, True, "complex128")),
        ("const cf* x", "x", ("thrust::complex<float>", 1, True, "complex64")),
        ("float*", "argument1", ("float", 1, False, "float32")),
    ],
)
def test_spellings_of_parameters(written: str, name: str, read: tuple[str, int, bool, str | None]) -> None:
    head = """#define TYPE int
        #define RESTRICT __restrict__
        typedef thrust::complex<float> cf; typedef double real; using number = float; struct Point { float x; int y; };
    """
    assert parameters(f"{head}__global__ void k({written}) {{}}") == {name: read}


def test_kernels_are_found_whatever_stands_around_them() -> None:
    source = read_declarations(
        r"""
        #include <cstdio>
        // __global__ void in_a_comment(int x) { {
        /* __global__ void in_another() { */
        const char* text = "__global__ void in_a_text() {", letter = '{';
        const char* raw = R"x(__global__ void in_a_raw_text() " } )x";
        #if 0
        __global__ void not_compiled(int x) { { {
        #else
        extern "C" __global__ void __launch_bounds__(BLOCK * 2, 2) bounded(void) { /* } */ }
        #endif
        namespace solver { namespace {
        __global__ void inner(int n) { if (n > 1) { n = 2; } }
        } }
        namespace a::b { static __global__ void deep(float*); }
        extern "C" {
        __global__ void plain_c(int n)
        {
        }
        }
        #define KERNEL extern "C" __global__ void
        KERNEL by_macro(float* x) {}
        template <typename T, int N = 4, class U = Pair<int, 3>>
        __global__ void generic(T* x) {}
        template __global__ void generic<float, 4>(float* x);
        template __global__ void a::generic<float, 4>(float* x);
        struct Class { __device__ void member() {} };
        __device__ float helper(float x) { return x; }
        int main() { return 0; }
        """
    )
    found = {kernel.name: kernel for kernel in source.kernels}
    assert list(found) == ["bounded", "solver::inner", "a::b::deep", "plain_c", "by_macro", "generic"]
    assert {name for name, kernel in found.items() if kernel.extern_c} == {"bounded", "plain_c", "by_macro"}
    assert found["bounded"].launch_bounds == ("BLOCK * 2", "2")
    assert found["bounded"].parameters == ()
    assert found["generic"].template == (
        ("typename", "T", ""),
        ("int", "N", "4"),
        ("class", "U", "Pair < int, 3 >"),
    )
    assert source.kernel("inner") is found["solver::inner"]
    plain = [(one.names, one.node.start_point[0] + 1) for one in source.items if one.plain_function]
    assert plain == [({"main"}, 29)]


def test_a_kernel_is_named_where_there_are_several() -> None:
    two = read_declarations(
        "__global__ void a(); __global__ void b(int); namespace n { __global__ void b(int); }"
    )
    with pytest.raises(KernelError, match="the source has 3 kernels; name one by entry: a, b, n::b"):
        two.kernel()
    with pytest.raises(KernelError, match="no kernel 'c'; choose from: a, b, n::b"):
        two.kernel("c")
    with pytest.raises(KernelError, match=r"b is overloaded \(2 kernels"):
        read_declarations("__global__ void b(int) {} __global__ void b(float) {}").kernel("b")
    with pytest.raises(KernelError, match="no __global__ function"):
        read_declarations("int main() {}").kernel()
    assert (
        len(read_declarations("__global__ void a(int n); __global__ void a(int m) { m = 1; }").kernels) == 1
    )


def test_macros_constant_memory_and_launches() -> None:
    source = read_declarations(
        r"""
        #ifndef BLOCK
        #define BLOCK 128  // threads
        #endif
        #define RADIUS 2
        #define AT(i, j) ((i) * \
            n + (j))
        __constant__ float filter[2 * RADIUS + 1][3];
        __device__ int counter;
        __constant__ int table[2] = {1, 2};
        #pragma unroll UNROLL
        #if TILE > 4
        #endif
        __global__ void step(float* x, int n) {}
        void run(float* x) {
            int n = 1 << 20;
            dim3 block(BLOCK, 4), grid((n + BLOCK - 1) / BLOCK);
            step<<<grid, block, 2 * sizeof(float) * BLOCK, stream>>>(x, n);
            other<float, 4><<<64, 32>>>(x);
        }
        """
    )
    macros = {name: (macro.value, macro.guarded, macro.parameters) for name, macro in source.macros.items()}
    assert macros["BLOCK"] == ("128", True, None)
    assert macros["RADIUS"] == ("2", False, None)
    assert macros["AT"][2] == ("i", "j")
    assert {"UNROLL", "TILE"} <= source.asked.keys()
    symbols = [(one.name, one.extents, one.constant, one.initialised) for one in source.symbols]
    assert symbols == [
        ("filter", ("2 * RADIUS + 1", "3"), True, False),
        ("counter", (), False, False),
        ("table", ("2",), True, True),
    ]
    first, second = source.launches
    assert [code(one) for one in (*first.shape[2:], *first.arguments)] == [
        "2 * sizeof(float) * BLOCK",
        "stream",
        "x",
        "n",
    ]
    assert code(first.variables["grid"]) == "((n + BLOCK - 1) / BLOCK)"
    assert code(first.variables["block"]) == "(BLOCK, 4)"
    assert (first.kernel, second.kernel, second.template) == ("step", "other", ("float", "4"))


@pytest.mark.parametrize(
    ("text", "guarded", "again"),
    [
        ("#define B 1", False, True),
        ("#if !defined B\n#define B 1\n#endif", True, False),
        ("#if !(defined(B) || defined(C))\n#define B 1\n#endif", True, False),
        ("#ifndef B\n#if __CUDA_ARCH__ > 700\n#define B 1\n#endif\n#endif", True, False),
        ("#ifndef K_CUH\n#define K_CUH 1\n#define B 1\n#endif\nint x = B;", False, True),
        ("#ifndef A\n#define B 1\n#define A 2\n#endif\nint x = A + B;", True, True),
        ("#ifndef B\n#define B 1\n#endif\n#if B > 8\n#undef B\n#define B 8\n#endif", True, False),
    ],
)
def test_whose_definition_counts(text: str, guarded: bool, again: bool) -> None:
    assert preprocessed(text).macros["B"].guarded == guarded
    assert ("B" in preprocessed(text, {"B"}).macros) == again


def test_vectors_are_several_numbers_of_a_dtype() -> None:
    (of_four, by_value) = read_declarations("__global__ void k(float4* x, int2 y);").kernel().parameters
    assert (of_four.type.dtype, of_four.type.lanes) == ("float32", 4)
    assert by_value.type.dtype is None  # a launch passes numbers


def test_a_macro_of_inline_alone_is_no_type() -> None:
    text = "#define FAST inline __attribute__((always_inline))\n__device__ FAST long f(long x);\n"
    assert preprocessed(text).text.split() == ["__device__", "long", "f(long", "x);"]
