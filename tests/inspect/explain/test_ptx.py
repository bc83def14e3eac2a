"""PTX that a compiler would hardly write is read all the same."""

from __future__ import annotations

import pytest

from tests.inspect.explain.small_code import HEAD, by_hand
from tuner.inspect.explain.code_facts import Access
from tuner.inspect.explain.instructions import Kind
from tuner.inspect.explain.ptx import parse_ptx


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
