"""Advice from made-up numbers: each line's verdict and its reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tuner.core.model import Configuration, Gpu, Problem, Resources
from tuner.inspect.explain.advice import Advice, AdviceVerdict, advise, one_more, size_text
from tuner.inspect.explain.code import CodeFacts, LaunchCode, Part
from tuner.inspect.explain.explanation import Explanation, LaunchExplanation, UnderWay
from tuner.inspect.explain.hot_path import InFlight
from tuner.inspect.explain.sass import Kind
from tuner.kernel.load import load_kernel
from tuner.kernel.occupancy import Limit, Waves, occupancy
from tuner.kernel.roofline import ARCHITECTURES, Roof
from tuner.runtime.launches import Launch

H200, T4 = ARCHITECTURES[90], ARCHITECTURES[75]
OK, TRY, PROBLEM = AdviceVerdict.OK, AdviceVerdict.TRY, AdviceVerdict.PROBLEM


def facts(loads: int = 16, stores: int = 16, matrix: int = 0) -> CodeFacts:
    accesses = ((Kind.GLOBAL_LOAD, loads, 2), (Kind.GLOBAL_STORE, stores, 1))
    part = Part(20, accesses, (("mma", matrix),) if matrix else (), 4)
    return CodeFacts(part, part, (), InFlight(2, 2 * loads))


def launch(
    gpu: Gpu = H200,
    threads: int = 256,
    registers: int = 32,
    blocks: int = 100_000,
    shared: int = 0,
    under_way: float = 64 * 1024,
    code: CodeFacts | None = None,
    **resources: int,
) -> LaunchExplanation:
    found = Resources(registers, dynamic_shared_bytes=shared, **resources)
    fit = occupancy(gpu, threads, registers, shared)
    code = code or facts()
    return LaunchExplanation(
        LaunchCode("k", "k", found, 0, False, code),
        Launch((blocks, 1, 1), (threads, 1, 1), shared, ()),
        found,
        fit,
        Waves(blocks, fit.active_blocks, gpu.sm_count),
        UnderWay(under_way, False, 2048.0, 32),
    )


def explanation(
    *launches: LaunchExplanation,
    gpu: Gpu = H200,
    flops: float = 1e8,
    moved: float = 1e9,
    pipe: str = "vector",
) -> Explanation:
    roof = Roof(flops, moved, 6.7e13 if pipe == "vector" else 1.07e15, gpu.memory_bytes_per_s)
    problem = Problem("k", {"n": 1}, {"input": "float32"})
    return Explanation(
        load_kernel("vector_add"),
        problem,
        gpu,
        Configuration.of("v", {}),
        roof=roof,
        pipe=pipe,
        launches=launches or (launch(gpu),),
    )


def about(found: Explanation, name: str) -> Advice:
    lines = [line for line in advise(found) if line.name == name]
    assert len(lines) == 1, [line.name for line in advise(found)]
    return lines[0]


def said(found: Explanation, name: str) -> tuple[AdviceVerdict, str]:
    line = about(found, name)
    return line.verdict, line.text


def test_all_is_well() -> None:
    lines = advise(explanation())
    assert {line.verdict for line in lines} == {OK}
    assert {line.name for line in lines if line.rule_of_thumb} == {
        *(f"block size: {name}" for name in ("warp_multiple", "occupancy", "divides_sm", "registers")),
        "resident warps",
        "bytes in flight, CUB's",
    }


# -- rules of thumb for the block size


def test_lanes_without_threads() -> None:
    found = explanation(launch(threads=100))
    assert said(found, "block size: warp_multiple") == (
        TRY,
        "100 threads leave 28 lanes of the last warp idle",
    )
    assert about(found, "block size: warp_multiple").rule_of_thumb


def test_blocks_too_small_for_the_slots() -> None:
    verdict, text = said(explanation(launch(threads=32)), "block size: occupancy")
    assert verdict is TRY
    assert text == "64 blocks of 32 threads fill an SM; its 32 slots are enough from 64 threads on"


def test_blocks_that_fill_an_sm() -> None:
    verdict, text = said(explanation(launch(threads=256)), "block size: occupancy")
    assert verdict is OK
    assert text.startswith("8 blocks of 256 threads fill an SM; ")


def test_tiles_for_tensor_cores_need_few_warps() -> None:
    one = launch(threads=384, registers=168, blocks=132, code=facts(matrix=8))
    bound = explanation(one, flops=1e14, pipe="matrix")
    for name in ("block size: divides_sm", "block size: registers", "resident warps"):
        assert about(bound, name).verdict is AdviceVerdict.UNKNOWN
        assert about(explanation(one, flops=1e14), name).verdict is TRY


def test_blocks_that_leave_a_rest() -> None:
    verdict, text = said(explanation(launch(threads=768)), "block size: divides_sm")
    assert (verdict, text) == (TRY, "2 blocks of 768 leave 512 of the 2048 threads of an SM empty")


def test_registers_for_all_threads() -> None:
    assert said(explanation(launch(registers=33)), "block size: registers")[0] is TRY
    turing = explanation(launch(T4, registers=64), gpu=T4)
    assert said(turing, "block size: registers")[0] is OK  # 65536 for 1024 threads


# -- the SM


def test_few_warps_say_what_one_more_block_takes() -> None:
    found = explanation(launch(registers=168), flops=1e13)
    assert said(found, "resident warps") == (
        TRY,
        "8 of 64 warps are resident (12 %); one more block needs 40 registers per thread fewer",
    )


def test_few_warps_suffice_where_bytes_do() -> None:
    found = explanation(launch(registers=168, under_way=64 * 1024))
    verdict, text = said(found, "resident warps")
    assert verdict is OK and "few, but enough bytes are in flight" in text


def test_no_block_fits() -> None:
    found = explanation(launch(threads=1024, registers=100))
    assert said(found, "resident warps") == (PROBLEM, "not one block fits on an SM: too many registers")
    assert "waves" not in {line.name for line in advise(found)}


def test_one_more_block() -> None:
    limits = (Limit("registers", 2, 1), Limit("shared memory", 2, 4 * 1024 + 512), Limit("threads", 2, 64))
    assert one_more(limits) == (
        "1 register per thread fewer and 4.5 KiB less shared memory per block and 64 threads per block fewer"
    )
    assert one_more((Limit("blocks", 32, None),)) == "more slots for blocks than an SM has"
    assert one_more((Limit("barriers", 2, 3),)) == "3 barriers fewer"
    assert (size_text(48), size_text(65536)) == ("48 B", "64 KiB")
    assert (size_text(0), size_text(2 / 132)) == ("0 B", "0.015 B")  # one thread on an H200


def test_spills_and_stack() -> None:
    verdict, text = said(explanation(launch(spill_bytes=112, stack_bytes=56)), "spills")
    assert verdict is PROBLEM and text.startswith("112 bytes")
    assert said(explanation(launch(stack_bytes=64)), "stack")[0] is TRY
    assert said(explanation(), "spills") == (OK, "none")


@pytest.mark.parametrize(
    ("blocks", "verdict", "words"),
    [
        (40, PROBLEM, "40 blocks: 92 of 132 SMs get none"),
        (1, PROBLEM, "1 block: 131 of 132"),
        (264, OK, "one, of 264 blocks: SMs with fewer of them wait 0 %"),
        (140, TRY, "SMs with fewer of them wait 47 % of the time; a multiple of 132"),
        (1200, TRY, "1.14 waves of 1056 blocks: 43 % of the slots stay empty"),
        (2112, OK, "2.00 waves of 1056 blocks: 0 % of the slots"),
    ],
)
def test_waves(blocks: int, verdict: AdviceVerdict, words: str) -> None:
    found, text = said(explanation(launch(blocks=blocks)), "waves")
    assert (found, words in text) == (verdict, True), text


# -- memory


def test_narrow_loads() -> None:
    found = explanation(launch(code=facts(loads=4)))
    assert said(found, "width of loads") == (TRY, "4 bytes; 16 move the same data with 1/4 of the loads")
    assert said(found, "width of stores")[0] is OK


def test_a_store_or_two_do_not_matter() -> None:
    accesses = ((Kind.GLOBAL_LOAD, 16, 8), (Kind.GLOBAL_STORE, 4, 1))
    part = Part(20, accesses, (), 4)
    code = CodeFacts(part, part, (), InFlight(8, 128))
    assert "width of stores" not in {line.name for line in advise(explanation(launch(code=code)))}


def test_bulk_copies_have_no_width() -> None:
    part = Part(20, ((Kind.BULK_COPY, 0, 2), (Kind.GLOBAL_STORE, 4, 1)), (), 4)
    code = CodeFacts(part, part, (), InFlight(bulk=True))
    assert said(explanation(launch(code=code)), "width of loads") == (OK, "the copy engine moves whole tiles")


def test_bytes_in_flight() -> None:
    # 4.814 TB/s x 600 to 800 ns / 132: 21 to 28 KiB.
    sufficient = explanation(launch(under_way=32 * 1024))
    assert said(sufficient, "bytes in flight") == (OK, "32 KiB per SM; Little's law asks for 21 to 28 KiB")
    verdict, text = said(sufficient, "bytes in flight, CUB's")
    assert verdict is TRY and "48 KiB" in text and about(sufficient, "bytes in flight, CUB's").rule_of_thumb
    assert said(explanation(launch(under_way=16 * 1024)), "bytes in flight")[0] is TRY
    verdict, text = said(explanation(launch(under_way=4 * 1024)), "bytes in flight")
    assert verdict is PROBLEM and "wider loads" in text


def test_a_grid_too_small_is_not_the_loads_fault() -> None:
    verdict, text = said(explanation(launch(blocks=4, under_way=100)), "bytes in flight")
    assert verdict is PROBLEM and "the grid is too small" in text and "wider" not in text


def test_arithmetic_has_no_advice_about_bytes() -> None:
    names = {line.name for line in advise(explanation(flops=1e13))}
    assert not any("width" in name or "flight" in name for name in names)


def test_code_that_could_not_be_read() -> None:
    read = launch()
    unread = replace(read, code=replace(read.code, facts=None), under_way=None)
    names = {line.name for line in advise(explanation(unread))}
    assert "resident warps" in names and not any("flight" in name for name in names)


# -- the whole


def test_launch_latency() -> None:
    verdict, text = said(explanation(flops=1.0, moved=1e3), "launch latency")
    assert verdict is PROBLEM
    assert text.startswith("the launch costs about 1.5 us, the work at the speed of light 0.00021 us")
    two = explanation(launch(), launch(), moved=1e7)
    assert said(two, "launch latency")[1].startswith("the 2 launches cost about 3.0 us")
    assert "launch latency" not in {line.name for line in advise(explanation(moved=1e8))}


def test_tensor_cores() -> None:
    without = explanation(flops=1e14, pipe="matrix")
    assert said(without, "tensor cores")[0] is TRY
    used = explanation(launch(code=facts(matrix=32)), flops=1e14, pipe="matrix")
    assert said(used, "tensor cores") == (OK, "32 instructions for them in the code, counted once")
    assert "tensor cores" not in {line.name for line in advise(explanation())}


def test_several_launches_are_numbered() -> None:
    lines = advise(explanation(launch(), launch(threads=100)))
    assert {line.launch for line in lines} == {1, 2}
    assert [line.verdict for line in lines if line.name == "block size: warp_multiple"] == [OK, TRY]
