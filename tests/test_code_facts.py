"""What is read from code: small kernels by NVRTC, PTX by hand where a compiler would not write it, a SASS listing."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tuner.compile.nvrtc import compile_source
from tuner.explain.code_facts import Access, CodeFacts, Part, ptx_facts, sass_facts
from tuner.explain.hot_path import walk
from tuner.explain.instructions import Code, Instruction, Kind, build, loops
from tuner.explain.ptx import parse_ptx
from tuner.hardware.roofline import ARCHITECTURES
from tuner.kernel.load import load_kernel
from tuner.kernel.render import render_launch
from tuner.model import Configuration

pytestmark = pytest.mark.usefixtures("forked_children")


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


# -- accesses


def test_widths_of_loads_and_stores() -> None:
    found = kernel(
        "const float4* a, const float2* b, const short* c, float4* out",
        "int i = threadIdx.x; float4 x = a[i]; float2 y = b[i]; x.x += y.x * y.y + c[i]; out[i] = x;",
    )
    assert counts(found.whole) == {
        ("global load", 16): 1,
        ("global load", 8): 1,
        ("global load", 2): 1,
        ("global store", 16): 1,
    }
    assert found.whole.global_bytes == 16 + 8 + 2 + 16
    assert found.whole.widest(Kind.GLOBAL_LOAD) == 16
    assert found.instructions_per_byte == found.walk.instructions / 42
    assert found.language == "PTX"


def test_what_is_unrolled_is_unrolled() -> None:
    loop = "float s = 0; {0} for (int i = 0; i < 8; ++i) s += a[i * 256 + threadIdx.x]; *out = s;"
    unrolled = kernel("const float* a, float* out", loop.format("\n#pragma unroll\n"))
    rolled = kernel("const float* a, float* out", loop.format("\n#pragma unroll 1\n"))
    assert (unrolled.whole.count(Kind.GLOBAL_LOAD), unrolled.loops) == (8, ())
    assert rolled.whole.count(Kind.GLOBAL_LOAD) == 1
    assert [loop.depth for loop in rolled.loops] == [1]


def test_shared_local_and_atomic_are_told_apart() -> None:
    found = kernel(
        "const int* a, int* out, int n",
        """__shared__ int tile[256]; int own[32];
        for (int i = 0; i < 32; ++i) own[i] = a[i];
        tile[threadIdx.x] = own[n]; __syncthreads();
        atomicAdd(out, tile[threadIdx.x ^ 1]);""",
    )
    kinds = {str(a.kind) for a in found.whole.accesses}
    assert {"shared load", "shared store", "local load", "local store", "atomic"} <= kinds


def test_arithmetic_and_tensor_cores() -> None:
    body = """unsigned a0 = in[threadIdx.x], b0 = in[threadIdx.x + 32]; float c[4] = {1, 2, 3, 4};
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a0), "r"(a0), "r"(b0));
    out[threadIdx.x] = c[0] * c[1] + c[2];"""
    found = kernel("const unsigned* in, float* out", body)
    assert found.whole.matrix == (("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", 1),)
    assert found.whole.float == 1
    # All the operands of the product are known where its result is.
    assert found.in_flight.loads == 2


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a", "sm_120"])
def test_every_target_has_ptx(arch: str) -> None:
    found = kernel("const float4* a, float4* b", "b[threadIdx.x] = a[threadIdx.x];", arch)
    assert counts(found.whole) == {("global load", 16): 1, ("global store", 16): 1}


def test_the_right_kernel_of_several() -> None:
    source = (
        'extern "C" __global__ void k(float* a) { a[0] = 1; }'
        'extern "C" __global__ void k2(float4* a) { a[0] = a[1]; }'
    )
    found = compile_source(source, "k2", "sm_80", listing=True)
    assert counts(ptx_facts(found.ptx, "k").whole) == {("global store", 4): 1}
    assert counts(ptx_facts(found.ptx, "k2").whole) == {("global load", 16): 1, ("global store", 16): 1}
    with pytest.raises(ValueError, match="no kernel k3"):
        ptx_facts(found.ptx, "k3")


def test_a_template_is_found_by_its_mangled_name() -> None:
    source = "template <int N> __global__ void copy(float* a) { a[N] = a[0]; }"
    found = compile_source(source, "copy<3>", "sm_80", listing=True)
    assert ptx_facts(found.ptx, found.entry).whole.count(Kind.GLOBAL_STORE) == 1


def test_compiling_gives_no_listing_unless_asked() -> None:
    source = 'extern "C" __global__ void k(float* a) { __syncthreads(); a[0] = 1; }'
    plain, listed = compile_source(source, "k", "sm_80"), compile_source(source, "k", "sm_80", listing=True)
    assert (plain.ptx, plain.barriers) == ("", 0)
    assert (listed.cubin, listed.barriers) == (plain.cubin, 1)


# -- bytes under way


def test_independent_loads_are_under_way_together() -> None:
    found = kernel(
        "const float4* a, float4* out",
        """float4 s = {}; _Pragma("unroll")
        for (int i = 0; i < 4; ++i) { float4 x = a[i * 256 + threadIdx.x]; s.x += x.x; s.y += x.y; }
        out[threadIdx.x] = s;""",
    )
    assert (found.in_flight.loads, found.in_flight.load_bytes, found.in_flight.bytes) == (4, 64, 64)


def test_a_chase_of_pointers_has_one_load_under_way() -> None:
    found = kernel("const int* a, int* out", "out[0] = a[a[a[a[threadIdx.x]]]];")
    assert found.whole.count(Kind.GLOBAL_LOAD) == 4
    assert (found.in_flight.loads, found.in_flight.load_bytes) == (1, 4)


def test_a_store_of_what_was_loaded_is_in_the_way_of_the_next_load() -> None:
    in_place = kernel("float* a", "for (int i = 0; i < 4; ++i) a[i * 64] = a[i * 64 + threadIdx.x] + 1;")
    assert in_place.in_flight.loads == 1
    apart = kernel(
        "const float* __restrict__ a, float* __restrict__ b",
        "float x[4]; for (int i = 0; i < 4; ++i) x[i] = a[i * 64]; for (int i = 0; i < 4; ++i) b[i * 64] = x[i];",
    )
    assert apart.in_flight.loads == 4


def test_a_branch_on_what_was_loaded_waits_for_it() -> None:
    found = by_hand(
        """ld.global.u32 %r1, [%rd1]; setp.eq.s32 %p1, %r1, 0; @%p1 bra END;
        ld.global.u32 %r2, [%rd1+4]; ld.global.u32 %r3, [%rd1+8]; st.shared.u32 [%rd2], %r2;
        END: """
    )
    assert found.in_flight.loads == 2


def test_a_barrier_waits_for_what_went_to_shared_memory() -> None:
    loads = "ld.global.v4.u32 {{%r{0}, %r{1}, %r{2}, %r{3}}}, [%rd1+{4}];"
    first, second = loads.format(1, 2, 3, 4, 0), loads.format(5, 6, 7, 8, 64)
    stored = "st.shared.v4.u32 [%rd2], {%r1, %r2, %r3, %r4};"
    assert by_hand(f"{first} bar.sync 0; {second}").in_flight.loads == 2
    assert by_hand(f"{first} {stored} bar.sync 0; {second}").in_flight.loads == 1
    assert by_hand(f"{first} {stored} {second}").in_flight.loads == 2


def test_what_is_overwritten_is_not_waited_for() -> None:
    found = by_hand(
        "ld.global.u32 %r1, [%rd1]; mov.u32 %r1, 7; st.global.u32 [%rd2], %r1; ld.global.u32 %r2, [%rd1+4];"
    )
    assert found.in_flight.loads == 2


def test_a_call_may_do_anything() -> None:
    found = by_hand("ld.global.u32 %r1, [%rd1]; call.uni (%r2), helper, (%r3); ld.global.u32 %r4, [%rd1+4];")
    assert found.in_flight.loads == 1


def test_the_path_for_whole_tiles_is_taken() -> None:
    found = kernel(
        "const float4* a, float4* out, int n",
        """int i = blockIdx.x * 1024 + threadIdx.x; float4 x[4];
        if (blockIdx.x * 1024 + 1024 <= n) {
            for (int j = 0; j < 4; ++j) x[j] = a[i + 256 * j];
            for (int j = 0; j < 4; ++j) out[i + 256 * j] = x[j];
        } else {
            for (int j = 0; j < 4; ++j) if (i + 256 * j < n) x[j] = a[i + 256 * j];
            for (int j = 0; j < 4; ++j) if (i + 256 * j < n) out[i + 256 * j] = x[j];
        }""",
    )
    assert counts(found.walk) == {("global load", 16): 4, ("global store", 16): 4}
    assert counts(found.whole) == {("global load", 16): 8, ("global store", 16): 8}
    assert found.walk.instructions < found.whole.instructions
    assert found.in_flight.load_bytes == 64


def test_what_may_be_skipped_is_not_skipped() -> None:
    found = kernel(
        "const float4* a, float4* out, int n",
        """int i = threadIdx.x; if (i >= n) return; float4 x[2];
        if (i < n / 2) x[0] = a[i];
        if (i < n / 3) x[1] = a[i + 256];
        if (i < n / 2) out[i] = x[0];
        if (i < n / 3) out[i + 256] = x[1];""",
    )
    assert counts(found.walk) == {("global load", 16): 2, ("global store", 16): 2}
    assert found.in_flight.load_bytes == 32


def test_a_loop_counts_before_what_is_around_it() -> None:
    found = kernel(
        "const float4* a, float* out, int n",
        """float s = 0; int i = threadIdx.x;
        _Pragma("unroll 1") for (; i + 768 < n; i += 1024) {
            float4 x[4]; for (int j = 0; j < 4; ++j) x[j] = a[i + 256 * j];
            for (int j = 0; j < 4; ++j) s += x[j].x + x[j].y + x[j].z + x[j].w;
        }
        _Pragma("unroll 1") for (; i < n; i += 256) s += a[i].x;
        out[threadIdx.x] = s;""",
    )
    assert (found.in_flight.loads, found.in_flight.load_bytes) == (4, 64)
    assert [loop.depth for loop in found.loops] == [1, 1]


def test_little_loops_do_not_hide_what_is_done_without() -> None:
    found = kernel(
        "const float4* a, const float* b, float4* out, int n",
        """int i = threadIdx.x; float4 x[4];
        for (int j = 0; j < 4; ++j) x[j] = a[i + 256 * j];
        float s = 0; _Pragma("unroll 1") for (int j = 0; j < n; ++j) s += b[j];
        for (int j = 0; j < 4; ++j) { x[j].x += s; out[i + 256 * j] = x[j]; }""",
    )
    assert found.in_flight.load_bytes >= 64


# -- asynchronous copies


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


def test_groups_of_asynchronous_copies() -> None:
    found = kernel("const float4* a, float* out, int n", ASYNC)
    flight = found.in_flight
    # Two groups are left by the wait in the loop, and one comes behind it.
    assert (flight.copies, flight.copy_bytes, flight.groups, flight.bytes) == (1, 16, 3, 48)
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
    found = kernel("const float* a, float* out", BULK, "sm_90a")
    assert found.in_flight.bulk
    assert counts(found.whole)[("bulk copy", 0)] == 1
    assert counts(found.whole)[("bulk store", 0)] == 1
    assert found.instructions_per_byte is None  # how much they move is not in the code
    assert found.loops == ()  # loops that only wait are none worth showing


def test_the_same_label_in_two_scopes_is_two_labels() -> None:
    code = parse_ptx(compile_source(f'extern "C" __global__ void k(const float* a, float* out) {{ {BULK} }}', "k",
                                    "sm_90a", listing=True).ptx, "k")  # fmt: skip
    waiting = loops(code)
    assert [loop.depth for loop in waiting] == [1, 1]
    assert waiting[0].blocks.isdisjoint(waiting[1].blocks)


def test_persistent_kernels_ask_for_the_grid() -> None:
    body = "for (int i = blockIdx.x; i < n; i += {0}) a[i * 256 + threadIdx.x] = 1;"
    assert kernel("float* a, int n", body.format("gridDim.x")).strides_over_grid
    assert not kernel("float* a, int n", body.format("7")).strides_over_grid


# -- PTX by hand


def test_scopes_hide_registers() -> None:
    found = by_hand(
        """ld.global.u32 %r1, [%rd1];
        { .reg .b32 x; mov.u32 x, %r1; }
        { .reg .b32 x; mov.u32 x, 3; st.global.u32 [%rd2], x; }
        ld.global.u32 %r2, [%rd1+4];"""
    )
    assert found.in_flight.loads == 2


def test_text_that_resembles_code_is_not_read() -> None:
    found = by_hand(
        """// ld.global.u32 %r1, [%rd1];
        /* st.global.u32 [%rd1], %r1; } */
        .pragma "nounroll; ld.global.u32 %r1, [%rd1]; }";
        .pragma "a//b";
        .loc 1 2 3
        ;
        ld.weak.global.L1::no_allocate.L2::128B.v2.b64 {%rd3, %rd4}, [%rd1];"""
    )
    assert found.whole.accesses == (Access(Kind.GLOBAL_LOAD, 16, 1),)


@pytest.mark.parametrize(
    ("statement", "kind", "width"),
    [
        ("ld.global.nc.L1::no_allocate.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1]", Kind.GLOBAL_LOAD, 16),
        ("ld.volatile.global.u8 %r1, [%rd1]", Kind.GLOBAL_LOAD, 1),
        ("ld.v2.f64 {%rd1, %rd2}, [%rd3]", Kind.GLOBAL_LOAD, 16),  # a generic address
        ("ld.shared::cluster.b128 %r1, [%r2]", Kind.SHARED_LOAD, 16),
        ("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r1], %r2, [%r3]", Kind.SHARED_STORE, 4),
        ("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r1, %r2, %r3, %r4}, [%r5]", Kind.SHARED_LOAD, 16),
        ("wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r1, %r2}, [%rd1], %r3", Kind.GLOBAL_LOAD, 16),
        ("wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%r1], {%r2, %r3}, %r4", Kind.SHARED_STORE, 32),
        ("red.global.add.f32 [%rd1], %r1", Kind.ATOMIC, 4),
        ("atom.shared.cas.b64 %rd1, [%rd2], %rd3, %rd4", Kind.SHARED_STORE, 8),
        ("cp.async.ca.shared.global.L2::128B [%r1], [%rd1], 4, %r2", Kind.ASYNC_COPY, 4),
        ("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4]",
         Kind.BULK_COPY, 0),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd1], [%r1], %r2", Kind.BULK_STORE, 0),
        ("st.local.v2.u32 [%rd1], {%r1, %r2}", Kind.LOCAL_STORE, 8),
    ],
)  # fmt: skip
def test_kinds(statement: str, kind: Kind, width: int) -> None:
    assert by_hand(f"{statement};").whole.accesses == (Access(kind, width, 1),)


@pytest.mark.parametrize(
    "statement",
    [
        "ld.param.v4.u32 {%r1, %r2, %r3, %r4}, [k_param_0]",
        "st.param.b32 [param0], %r1",
        "prefetch.global.L2 [%rd1]",
        "cp.async.bulk.prefetch.L2.global [%rd1], %r1",
        "cp.async.mbarrier.arrive.noinc.shared.b64 [%r1]",
        "tensormap.replace.tile.global_address.global.b1024.b64 [%rd1], %rd2",
        "discard.global.L2 [%rd1], 128",
    ],
)
def test_what_moves_nothing(statement: str) -> None:
    assert by_hand(f"{statement};").whole.accesses == ()


def test_warpgroup_products() -> None:
    found = by_hand(
        "wgmma.fence.sync.aligned; "
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%r1, %r2, %r3, %r4}, %rd1, %rd2, 1, 1, 1, 0, 0; "
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
    )
    assert found.whole.matrix == (("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16", 1),)


def test_tables_of_branches() -> None:
    code = parse_ptx(
        f"""{HEAD}.visible .entry k() {{ .reg .b32 %r<4>; .reg .b64 %rd<4>;
        brx.idx %r1, ways;
        A: ld.global.u32 %r2, [%rd1]; bra.uni END;
        B: ld.global.u32 %r3, [%rd1]; bra.uni END;
        ways: .branchtargets A, B;
        C: ld.global.u32 %r3, [%rd2];
        END: ret; }}""",
        "k",
    )
    assert sum(i.kind is Kind.GLOBAL_LOAD for i in code.instructions()) == 2  # nothing leads to C


# -- blocks and loops


def code_of(*edges: tuple[int, ...]) -> Code:
    """Make a kernel of blocks that lead to others, the first of which follows."""
    items: list[str | Instruction] = []
    for number, targets in enumerate(edges):
        items += [str(number), Instruction(f"i{number}")]
        items.append(Instruction("jump", targets=tuple(map(str, targets)), ends=True))
    return build(items, ordered=True)


def test_nested_loops() -> None:
    # 0 -> 1 -> 2 -> 2, 2 -> 3 -> 1, 3 -> 4
    found = loops(code_of((1,), (2,), (2, 3), (1, 4), ()))
    assert [(loop.header, sorted(loop.blocks), loop.depth) for loop in found] == [
        (1, [1, 2, 3], 1),
        (2, [2], 2),
    ]


def test_two_ways_back_are_one_loop() -> None:
    found = loops(code_of((1,), (2, 3), (1, 4), (1, 4), ()))
    assert [(loop.header, sorted(loop.blocks)) for loop in found] == [(1, [1, 2, 3])]


def test_loops_without_an_end_and_without_a_header() -> None:
    forever = code_of((1,), (1,))
    assert [loop.header for loop in loops(forever)] == [1]
    assert walk(forever, loops(forever)).blocks == (0, 1)
    irreducible = code_of((1, 2), (2, 3), (1, 3), ())
    assert loops(irreducible) == ()
    assert walk(irreducible, ()).blocks[-1] == 3


def test_what_nothing_leads_to_is_left_out() -> None:
    assert len(code_of((2,), (2,), ()).blocks) == 2


def test_any_graph_can_be_walked() -> None:
    rng = random.Random(0)
    for _ in range(300):
        count = rng.randint(1, 12)
        edges = [tuple(rng.sample(range(count), rng.randint(0, min(2, count)))) for _ in range(count)]
        code = code_of(*edges)
        found = loops(code)
        way = walk(code, found).blocks
        assert way[0] == 0
        assert len(set(way)) == len(way)
        for here, there in pairwise(way):
            gone_round = [loop for loop in found if here in loop.blocks and there not in loop.blocks]
            assert there in code.blocks[here].successors or any(
                loop.header in code.blocks[here].successors
                and any(there in code.blocks[number].successors for number in loop.blocks)
                for loop in gone_round
            )
        for loop in found:
            assert loop.header in loop.blocks


PERSISTENT = """__shared__ int tile; float s = 0;
for (;;) {
    if (threadIdx.x == 0) tile = atomicAdd(next, 1);
    __syncthreads();
    if (tile * 256 >= n) return;
    int i = tile * 256 + threadIdx.x;
    for (int k = 0; k < n; k += 4) s += a[i + k] * a[i + k + n];
    out[i] = s + a[i + 5 * n];
    __syncthreads();
}"""


def test_a_loop_that_is_left_in_its_middle_is_gone_through() -> None:
    found = kernel("const float* a, float* out, int n, int* next", PERSISTENT)
    assert found.walk.count(Kind.GLOBAL_LOAD) == found.whole.count(Kind.GLOBAL_LOAD) >= 3
    assert found.walk.count(Kind.GLOBAL_STORE) == 1
    assert [loop.depth for loop in found.loops][:2] == [1, 2]


def test_a_way_that_ends_in_a_trap_is_not_the_main_path() -> None:
    found = by_hand(
        """ld.global.b32 %r1, [%rd1]; ld.global.b32 %r3, [%rd1+4]; setp.eq.b32 %p1, %r1, %r3; @%p1 bra BAD;
        st.global.b32 [%rd2], %r1; st.global.b32 [%rd2+4], %r1; st.global.b32 [%rd2+8], %r1; ret;
        BAD: trap;"""
    )
    assert found.walk.count(Kind.GLOBAL_STORE) == 3


STENCIL = "int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y; float s = 0;" + "".join(
    f" if (x + {dx} < w && y + {dy} < h) s += a[(y + {dy}) * w + x + {dx}];"
    for dx in range(4)
    for dy in range(4)
)


def test_loads_under_conditions_may_be_brought_together() -> None:
    """PTX has each of 16 loads in a block of its own; the machine code has several of them under way."""
    found = kernel("const float* a, float* out, int w, int h", f"{STENCIL} out[y * w + x] = s;")
    assert found.walk.count(Kind.GLOBAL_LOAD) == 16
    assert found.in_flight.load_bytes < found.in_flight.most_load_bytes == 16 * 4
    straight = kernel("const float4* a, float4* out", "out[threadIdx.x] = a[threadIdx.x];")
    seen = straight.in_flight
    assert seen.least_load_bytes == seen.load_bytes == seen.most_load_bytes == 16


# -- SASS

SIDES = """
.text.k:
        /*0000*/                   ISETP.GE.AND P0, PT, R0, c[0x0][0x160], PT ;
        /*0010*/               @P0 LDG.E R4, desc[UR4][R2.64] ;
        /*0020*/              @!P0 LDG.E R5, desc[UR4][R2.64+0x1000] ;
        /*0030*/              @!P0 LDG.E R6, desc[UR4][R2.64+0x2000] ;
        /*0040*/                   ISETP.GE.AND P0, PT, R1, c[0x0][0x160], PT ;
        /*0050*/               @P0 LDG.E R7, desc[UR4][R2.64+0x3000] ;
        /*0060*/              @!P1 LDG.E R8, desc[UR4][R2.64+0x4000] ;
        /*0070*/                   STG.E desc[UR4][R2.64], R8 ;
        /*0080*/                   EXIT ;
"""


def test_of_two_sides_under_one_predicate_one_counts() -> None:
    found = sass_facts(SIDES, "k")
    assert (found.walk.count(Kind.GLOBAL_LOAD), found.whole.count(Kind.GLOBAL_LOAD)) == (4, 5)
    assert found.in_flight.loads == 4 and found.in_flight.most_load_bytes == found.in_flight.load_bytes


END_OF_AN_ARRAY = """
.text.k:
        /*0050*/                   ISETP.NE.AND P0, PT, R9, R2, PT ;
        /*0060*/              @!P0 BRA `(.L_x_0) ;
        /*00c0*/                   LDG.E R2, desc[UR4][R2.64] ;
        /*00e0*/                   LDG.E R5, desc[UR4][R4.64] ;
        /*0100*/                   HFMA2.MMA R9, R2, 1, 1, R5 ;
        /*0110*/                   STG.E desc[UR4][R6.64], R9 ;
        /*0120*/                   EXIT ;
.L_x_0:
        /*0170*/                   ISETP.GE.U32.AND P1, PT, R0.reuse, R5, PT ;
        /*0180*/                   ISETP.GE.U32.AND P0, PT, R0, R3, PT ;
        /*0190*/               @P1 BRA `(.L_x_2) ;
        /*0200*/                   LDG.E.U16 R10, desc[UR4][R4.64] ;
        /*0220*/                   LDG.E.U16 R11, desc[UR4][R6.64] ;
.L_x_2:
        /*0250*/               @P0 BRA `(.L_x_4) ;
        /*02b0*/                   LDG.E R4, desc[UR4][R4.64] ;
        /*02d0*/                   LDG.E R7, desc[UR4][R6.64] ;
        /*02f0*/                   HADD2 R13, R4, R7 ;
        /*0300*/                   STG.E desc[UR4][R8.64], R13 ;
.L_x_4:
        /*0320*/               @P1 EXIT ;
        /*0350*/                   HADD2.F32 R10, -RZ, R10.H0_H0 ;
        /*0360*/                   HADD2.F32 R11, -RZ, R11.H0_H0 ;
        /*0370*/                   FADD R10, R10, R11 ;
        /*03b0*/                   STG.E.U16 desc[UR4][R2.64], R10 ;
        /*03c0*/                   EXIT ;
"""


def test_what_may_be_skipped_is_not_the_path_for_whole_tiles() -> None:
    """The compiled end of an array of halves has more instructions that do something than its middle."""
    found = sass_facts(END_OF_AN_ARRAY, "k")
    assert counts(found.walk) == {("global load", 4): 2, ("global store", 4): 1}
    assert found.in_flight.load_bytes == 8


LISTING = """
	.section	.text.other,"ax",@progbits
.text.other:
        /*0000*/                   LDG.E.64 R2, desc[UR4][R2.64] ;
        /*0010*/                   EXIT ;

//--------------------- .text.k          --------------------------
	.section	.text.k,"ax",@progbits
        .global         k
k:
.text.k:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   ISETP.GE.AND P0, PT, R0, c[0x0][0x160], PT ;
        /*0020*/               @P0 EXIT ;
.L_x_1:
        /*0030*/                   LDG.E.128.CONSTANT R4, desc[UR4][R2.64] ;
        /*0040*/                   LDG.E.128.CONSTANT R8, desc[UR4][R2.64+0x1000] ;
        /*0050*/              @!P1 LDG.E R12, desc[UR4][R2.64+0x2000] ;
        /*0060*/                   FADD R13, R13, R9 ;
        /*0070*/                   LDG.E.U16 R14, desc[UR4][R2.64+0x3000] ;
        /*0080*/                   LDS.64 R16, [R20] ;
        /*0090*/                   LDSM.16.MT88.4 R24, [R21+0x40] ;
        /*00a0*/                   HMMA.16816.F32 R28, R24, R16, R28 ;
        /*00b0*/                   LDGSTS.E.BYPASS.LTC128B.128 [R22], [R2.64] ;
        /*00c0*/                   LDGDEPBAR ;
        /*00d0*/                   DEPBAR.LE SB0, 0x1 ;
        /*00e0*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*00f0*/                   STL [R1+0x8], R14 ;
        /*0100*/                   BRA.U UP0, `(.L_x_1) ;
        /*0110*/              @!P2 CALL.REL.NOINC `(.L_x_2) ;
        /*0120*/                   STG.E.64 desc[UR4][R2.64], R16 ;
        /*0130*/                   EXIT ;
.L_x_2:
        /*0140*/                   STG.E.U8 desc[UR4][R2.64], R16 ;
        /*0150*/                   EXIT ;
.L_x_3:
        /*0160*/                   BRA `(.L_x_3);
        /*0170*/                   NOP;


//--------------------- SYMBOLS --------------------------
"""


def test_a_listing_of_machine_code() -> None:
    found = sass_facts(LISTING, "k")
    assert found.language == "SASS"
    assert counts(found.whole) == {
        ("global load", 16): 2,
        ("global load", 4): 1,
        ("global load", 2): 1,
        ("global store", 8): 1,
        ("global store", 1): 1,
        ("asynchronous copy", 16): 1,
        ("shared load", 16): 1,
        ("shared load", 8): 1,
        ("local store", 4): 1,
    }
    assert found.whole.matrix == (("HMMA.16816.F32", 1),)
    assert found.whole.float == 1
    assert [loop.depth for loop in found.loops] == [1]
    # R9 comes with the second load, so that FADD waits for it and the first; the third stays under way.
    assert (found.in_flight.loads, found.in_flight.load_bytes) == (3, 36)
    assert (found.in_flight.copies, found.in_flight.groups) == (1, 2)
    with pytest.raises(ValueError, match="no kernel k2"):
        sass_facts(LISTING, "k2")


# -- the built-in kernels


def rendered(name: str, cc: int) -> Iterator[tuple[str, str, str]]:
    spec, gpu = load_kernel(name), ARCHITECTURES[cc]
    problem = spec.problem()
    for variant in spec.usable_variants(problem, gpu)[0]:
        for launch in variant.launches:
            configuration = Configuration.of(variant.name, variant.defaults)
            source, entry = render_launch(spec, launch, problem, gpu, configuration)
            yield variant.name, source, entry


@pytest.mark.parametrize(("name", "cc"), [("gemm", 80), ("gemm", 75), ("saxpy", 90)])
def test_built_in_kernels_are_understood(name: str, cc: int) -> None:
    launches = list(rendered(name, cc))
    if cc == 75:  # has instructions of its own for matrices alone
        launches = [(variant, source, entry) for variant, source, entry in launches if "mma_sync" in entry]
    assert launches
    for variant, source, entry in launches:
        compiled_source = compile_source(source, entry, ARCHITECTURES[cc].arch, listing=True)
        found = ptx_facts(compiled_source.ptx, compiled_source.entry)
        assert found.walk.count(Kind.GLOBAL_STORE, Kind.BULK_STORE) > 0, variant
        assert found.in_flight.bytes > 0 or found.in_flight.bulk, variant
        assert bool(found.whole.matrix) == ("mma_sync" in entry), variant
        assert found.walk.instructions <= found.whole.instructions
