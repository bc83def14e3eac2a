"""A listing of machine code, and which instructions of it count."""

from __future__ import annotations

import pytest

from tests.inspect.explain.small_code import counts
from tuner.inspect.explain.code import sass_facts
from tuner.inspect.explain.sass import Kind

pytestmark = pytest.mark.usefixtures("forked_children")


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
    assert found.in_flight.loads == 4


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
    assert [depth for depth, _ in found.loops] == [1]
    # R9 comes with the second load, so that FADD waits for it and the first; the third stays under way.
    assert (found.in_flight.loads, found.in_flight.load_bytes) == (3, 36)
    assert (found.in_flight.copies, found.in_flight.groups) == (1, 2)
    with pytest.raises(ValueError, match="no kernel k2"):
        sass_facts(LISTING, "k2")
