"""What is read from the code of small kernels: accesses, bytes under way, asynchronous copies."""

from __future__ import annotations

import functools

import pytest

from tests.inspect.explain.small_code import compiled, counts
from tuner.children.nvrtc import compile_source
from tuner.inspect.explain.code import CodeFacts, asks_for_grid
from tuner.inspect.explain.sass import Kind

pytestmark = pytest.mark.usefixtures("forked_children")

SUM = "float s = 0; {0} for (int i = 0; i < 8; ++i) s += a[i * 256 + threadIdx.x]; *out = s;"
ASYNC = """
__shared__ float4 ring[4 * 128];
unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(ring + threadIdx.x));
#pragma unroll
for (int s = 0; s < 3; ++s) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to + 2048 * s), "l"(a + 128 * s));
    asm volatile("cp.async.commit_group;");
}
float sum = 0;
#pragma unroll 1
for (int i = 3; i < n; ++i) {
    asm volatile("cp.async.wait_group 2;" ::: "memory");
    __syncthreads();
    sum += ring[(i & 3) * 128 + threadIdx.x].x;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to + 2048 * (i & 3)), "l"(a + 128 * i));
    asm volatile("cp.async.commit_group;");
}
asm volatile("cp.async.wait_group 0;" ::: "memory");
out[threadIdx.x] = sum;
"""
KERNELS = {
    "widths": (
        "const float4* a, const float2* b, const short* c, float4* out",
        "int i = threadIdx.x; float4 x = a[i]; float2 y = b[i]; x.x += y.x * y.y + c[i]; out[i] = x;",
    ),
    "unrolled": ("const float* a, float* out", SUM.format("\n#pragma unroll\n")),
    "rolled": ("const float* a, float* out", SUM.format("\n#pragma unroll 1\n")),
    "kinds": (
        "const int* a, int* out, int n",
        """__shared__ int tile[256]; int own[32];
        for (int i = 0; i < 32; ++i) own[i * n & 31] = a[i];
        tile[threadIdx.x] = own[n & 31]; __syncthreads();
        atomicAdd(out, tile[threadIdx.x ^ 1]);""",
    ),
    "product": (
        "const unsigned* in, float* out",
        """unsigned a0 = in[threadIdx.x], b0 = in[threadIdx.x + 32]; float c[4] = {1, 2, 3, 4};
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a0), "r"(a0), "r"(b0));
    out[threadIdx.x] = c[0] * c[1] + c[2];""",
    ),
    "independent": (
        "const float4* a, float4* out",
        """float4 s = {}; _Pragma("unroll")
        for (int i = 0; i < 4; ++i) {
            float4 x = a[i * 256 + threadIdx.x]; s.x += x.x; s.y += x.y; s.z += x.z; s.w += x.w;
        }
        out[threadIdx.x] = s;""",
    ),
    "chase": ("const int* a, int* out", "out[0] = a[a[a[a[threadIdx.x]]]];"),
    "in_place": ("float* a", "for (int i = 0; i < 4; ++i) a[i * 64] = a[i * 64 + threadIdx.x] + 1;"),
    "apart": (
        "const float* __restrict__ a, float* __restrict__ b",
        "float x[4]; for (int i = 0; i < 4; ++i) x[i] = a[i * 64]; for (int i = 0; i < 4; ++i) b[i * 64] = x[i];",
    ),
    "whole_tiles": (
        "const float4* a, float4* out, int n",
        """int i = blockIdx.x * 1024 + threadIdx.x; float4 x[4];
        if (blockIdx.x * 1024 + 1024 <= n) {
            for (int j = 0; j < 4; ++j) x[j] = a[i + 256 * j];
            for (int j = 0; j < 4; ++j) out[i + 256 * j] = x[j];
        } else {
            for (int j = 0; j < 4; ++j) if (i + 256 * j < n) x[j] = a[i + 256 * j];
            for (int j = 0; j < 4; ++j) if (i + 256 * j < n) out[i + 256 * j] = x[j];
        }""",
    ),
    "may_be_skipped": (
        "const float4* a, float4* out, int n",
        """int i = threadIdx.x; if (i >= n) return; float4 x[2];
        if (i < n / 2) x[0] = a[i];
        if (i < n / 3) x[1] = a[i + 256];
        if (i < n / 2) out[i] = x[0];
        if (i < n / 3) out[i + 256] = x[1];""",
    ),
    "loop_first": (
        "const float4* a, float* out, int n",
        """float s = 0; int i = threadIdx.x;
        _Pragma("unroll 1") for (; i + 768 < n; i += 1024) {
            float4 x[4]; for (int j = 0; j < 4; ++j) x[j] = a[i + 256 * j];
            for (int j = 0; j < 4; ++j) s += x[j].x + x[j].y + x[j].z + x[j].w;
        }
        _Pragma("unroll 1") for (; i < n; i += 256) s += a[i].x;
        out[threadIdx.x] = s;""",
    ),
    "little_loop": (
        "const float4* a, const float* b, float4* out, int n",
        """int i = threadIdx.x; float4 x[4];
        for (int j = 0; j < 4; ++j) x[j] = a[i + 256 * j];
        float s = 0; _Pragma("unroll 1") for (int j = 0; j < n; ++j) s += b[j];
        for (int j = 0; j < 4; ++j) { x[j].x += s; out[i + 256 * j] = x[j]; }""",
    ),
    "groups": ("const float4* a, float* out, int n", ASYNC),
    "persistent": (
        "const float* a, float* out, int n, int* next",
        """__shared__ int tile; float s = 0;
        for (;;) {
            if (threadIdx.x == 0) tile = atomicAdd(next, 1);
            __syncthreads();
            if (tile * 256 >= n) return;
            int i = tile * 256 + threadIdx.x;
            _Pragma("unroll 1") for (int k = 0; k < n; k += 4) s += a[i + k] * a[i + k + n];
            out[i] = s + a[i + 5 * n];
            __syncthreads();
        }""",
    ),
}
TEMPLATE = "template <int N> __global__ void copy(float* a) { a[N] = a[0]; }"


@functools.cache
def facts(name: str = "") -> CodeFacts:
    """Return what is read of a kernel, or of the template's; all are compiled together, and read from one listing."""
    source = [
        f'extern "C" __global__ void {one}({arguments}) {{ {body} }}'
        for one, (arguments, body) in KERNELS.items()
    ]
    return compiled("\n".join([TEMPLATE, *source]), "copy<3>", of=name)


# -- accesses


def test_widths_of_loads_and_stores() -> None:
    found = facts("widths")
    assert counts(found.whole) == {
        ("global load", 16): 1,
        ("global load", 8): 1,
        ("global load", 2): 1,
        ("global store", 16): 1,
    }
    assert found.whole.global_bytes == 16 + 8 + 2 + 16
    assert found.whole.widest(Kind.GLOBAL_LOAD) == 16
    assert found.instructions_per_byte == found.walk.instructions / 42


def test_what_is_unrolled_is_unrolled() -> None:
    unrolled, rolled = facts("unrolled"), facts("rolled")
    assert (unrolled.whole.count(Kind.GLOBAL_LOAD), unrolled.loops) == (8, ())
    assert rolled.whole.count(Kind.GLOBAL_LOAD) == 1
    assert [depth for depth, _ in rolled.loops] == [1]


def test_shared_local_and_atomic_are_told_apart() -> None:
    kinds = {str(kind) for kind, _, _ in facts("kinds").whole.accesses}
    assert {"shared load", "shared store", "local load", "local store", "atomic"} <= kinds


def test_arithmetic_and_tensor_cores() -> None:
    found = facts("product")
    assert found.whole.matrix == (("HMMA.1688.F32", 1),)
    assert found.whole.float == 1
    # All the operands of the product are known where its result is.
    assert found.in_flight.loads == 2


def test_a_template_is_found_by_its_mangled_name() -> None:
    assert facts().whole.count(Kind.GLOBAL_STORE) == 1


def test_compiling_gives_no_listing_unless_asked() -> None:
    source = 'extern "C" __global__ void k(float* a) { __syncthreads(); a[0] = 1; }'
    plain, listed = compile_source(source, "k", "sm_80"), compile_source(source, "k", "sm_80", listing=True)
    assert (plain.ptx, plain.barriers) == ("", 0)
    assert (listed.cubin, listed.barriers) == (plain.cubin, 1)


# -- bytes under way


@pytest.mark.parametrize(
    ("name", "loads", "load_bytes"),
    [
        ("independent", 4, 64),
        ("chase", 1, 4),
        ("in_place", 1, 4),  # a store of what was loaded is in the way of the next load
        ("apart", 4, 16),
        ("whole_tiles", 4, 64),
        ("may_be_skipped", 2, 32),
        ("loop_first", 4, 64),
    ],
)
def test_loads_under_way_together(name: str, loads: int, load_bytes: int) -> None:
    in_flight = facts(name).in_flight
    assert (in_flight.loads, in_flight.load_bytes) == (loads, load_bytes)


def test_a_chase_of_pointers_loads_each() -> None:
    assert facts("chase").whole.count(Kind.GLOBAL_LOAD) == 4


def test_the_path_for_whole_tiles_is_taken() -> None:
    found = facts("whole_tiles")
    assert counts(found.walk) == {("global load", 16): 4, ("global store", 16): 4}
    assert counts(found.whole) == {("global load", 16): 8, ("global store", 16): 8}
    assert found.walk.instructions < found.whole.instructions


def test_what_may_be_skipped_is_not_skipped() -> None:
    assert counts(facts("may_be_skipped").walk) == {("global load", 16): 2, ("global store", 16): 2}


def test_loops_are_gone_through_and_little_ones_hide_nothing() -> None:
    assert [depth for depth, _ in facts("loop_first").loops] == [1, 1]
    assert facts("little_loop").in_flight.load_bytes >= 64
    found = facts("persistent")  # is left in its middle
    assert found.walk.count(Kind.GLOBAL_LOAD) == found.whole.count(Kind.GLOBAL_LOAD) >= 3
    assert found.walk.count(Kind.GLOBAL_STORE) == 1
    assert [depth for depth, _ in found.loops][:2] == [1, 2]


# -- asynchronous copies


def test_groups_of_asynchronous_copies() -> None:
    found = facts("groups")
    flight = found.in_flight
    # Two groups are left by the wait in the loop, and one comes behind it.
    assert (flight.copies, flight.copy_bytes, flight.groups) == (1, 16, 3)
    assert counts(found.whole)[("asynchronous copy", 16)] == 4
    assert not flight.bulk


BULK = """
__shared__ alignas(128) float tile[1024];
__shared__ unsigned long long barrier;
unsigned b = static_cast<unsigned>(__cvta_generic_to_shared(&barrier));
unsigned t = static_cast<unsigned>(__cvta_generic_to_shared(tile));
if (threadIdx.x == 0) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(b));
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(b), "r"(4096));
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :: "r"(t), "l"(a), "r"(4096), "r"(b) : "memory");
}
__syncthreads();
asm volatile("{ .reg .pred done; WAIT: mbarrier.try_wait.parity.shared.b64 done, [%0], 0; @done bra DONE; bra WAIT; "
             "DONE: }" :: "r"(b) : "memory");
out[threadIdx.x] = tile[threadIdx.x];
asm volatile("{ .reg .pred done; WAIT: mbarrier.try_wait.parity.shared.b64 done, [%0], 0; @done bra DONE; bra WAIT; "
             "DONE: }" :: "r"(b) : "memory");
asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 4096;" :: "l"(out), "r"(t) : "memory");
asm volatile("cp.async.bulk.commit_group;"); asm volatile("cp.async.bulk.wait_group 0;");
"""


def test_bulk_copies() -> None:
    found = compiled(f'extern "C" __global__ void k(const float* a, float* out) {{ {BULK} }}', "k", "sm_90a")
    assert found.in_flight.bulk
    assert counts(found.whole)[("bulk copy", 0)] == 1
    assert counts(found.whole)[("bulk store", 0)] == 1
    assert found.instructions_per_byte is None  # how much they move is not in the code


def test_persistent_kernels_ask_for_the_grid() -> None:
    loop = "for (int i = blockIdx.x; i < n; i += {}) a[i * 256 + threadIdx.x] = 1;"
    source = "".join(
        f'extern "C" __global__ void {name}(float* a, int n) {{ {loop.format(step)} }}\n'
        for name, step in (("fixed", 7), ("k", "gridDim.x"), ("k2", 7))
    )
    ptx = compile_source(source, "k", "sm_80", listing=True).ptx
    assert [asks_for_grid(ptx, name) for name in ("fixed", "k", "k2")] == [False, True, False]
