"""What a file of another tool says is read as it is meant; what it leaves open or cannot mean is left out, and said."""

from __future__ import annotations

import bz2
import gzip
import itertools
import json
import lzma
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tuner.core.errors import RecordingError
from tuner.core.model import Status
from tuner.formats.foreign import read_results

TIMES = (18.5, 14.25, 17.0)


def t4_result(block: object, time: object, unit: str | None = None, **more: Any) -> dict[str, Any]:
    measured = {"name": "time", "value": time} | ({} if unit is None else {"unit": unit})
    return {"configuration": {"block": block}, "invalidity": "correct", "measurements": [measured], **more}


def t4(results: list[dict[str, Any]], **metadata: str) -> dict[str, Any]:
    return {"metadata": metadata, "results": results, "schema_version": "1.0.0"}


def cache(times: tuple[Any, ...] = TIMES, **more: Any) -> dict[str, Any]:
    blocks = [2**i for i in range(len(times))]
    rows = {str(block): {"block": block, "time": time} for block, time in zip(blocks, times, strict=True)}
    head = {"tune_params_keys": ["block"], "tune_params": {"block": blocks}, "objective": "time"}
    return {**head, **more, "cache": rows}


def read(path: Path, data: Any) -> tuple[dict[Any, float | None], str]:
    """Return the times by the first value of each configuration, and the notes."""
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    found = read_results(path)
    return {key[0]: row.ranked_ns for key, row in found.rows.items()}, "; ".join(found.notes)


@pytest.mark.parametrize("kind", ["cache", "t4"])
def test_a_file_that_is_cut_anywhere_has_only_what_it_closes(tmp_path: Path, kind: str) -> None:
    data = (
        cache() if kind == "cache" else {"results": [t4_result(2**i, time) for i, time in enumerate(TIMES)]}
    )
    text = json.dumps(data, indent=1)
    start = (
        text.index("{" if kind == "cache" else "[", text.index(kind if kind == "cache" else "results")) + 1
    )
    whole = {2**i: time * 1e6 for i, time in enumerate(TIMES)}
    seen = set()
    for end in range(start, len(text)):
        try:
            found, note = read(tmp_path / "a.json", text[:end])
        except RecordingError as error:
            assert "a.json has no end; results that are whole: 0" in str(error)
            assert ("unfinished" in str(error)) == bool(text[start:end].strip())
            continue
        assert found.items() <= whole.items(), end
        assert f"a.json has no end; results that are whole: {len(found)}" in note
        begun = text[:end].rpartition("\n  }")[2].strip(" \n,]}")
        assert ("unfinished" in note) == bool(begun), text[:end]
        seen.add(len(found))
    assert seen == {1, 2, 3}
    assert read(tmp_path / "a.json", text) == (whole, "")


def test_a_compressed_file_that_is_cut_has_only_what_it_closes(tmp_path: Path) -> None:
    rng = random.Random(0)
    times = tuple(rng.uniform(1.0, 99.0) for _ in range(50))
    packed = gzip.compress(json.dumps(cache(times)).encode())
    counts = []
    for end in (len(packed) // 2, len(packed) * 3 // 4, len(packed) - 4):
        (tmp_path / "a.json.gz").write_bytes(packed[:end])
        found = read_results(tmp_path / "a.json.gz")
        assert [row.time_ns for row in found.rows.values()] == [
            1e6 * time for time in times[: len(found.rows)]
        ]
        assert f"a.json.gz has no end; results that are whole: {len(found.rows)}" in found.notes[0]
        counts.append(len(found.rows))
    assert 0 < counts[0] < counts[1] < counts[2] == 50


def test_a_cut_is_found_between_the_pieces_of_a_large_file(tmp_path: Path) -> None:
    rows = {str(number): {"block": number % 2999, "time": number + 1} for number in range(12_000)}
    data = {**cache(), "tune_params": {"block": []}, "cache": rows}
    text = json.dumps(data)
    found, note = read(tmp_path / "a.json", text)
    assert (
        len(found) == 2999
        and note == "a.json: configurations that come again, of which the last result counts: 9001"
    )
    for size in (1 << 16, (1 << 17) + 1):
        cut = text.encode()[:size]
        (tmp_path / "a.json.gz").write_bytes(
            gzip.compress(cut[: size // 2]) + gzip.compress(cut[size // 2 :])
        )
        results = read_results(tmp_path / "a.json.gz")
        assert "the last one, which is unfinished" in results.notes[0]
        whole = cut.count(b"}") - 1  # one closes tune_params
        assert f"results that are whole: {whole}," in results.notes[0]
        assert results.rows[((whole - 1) % 2999,)].ranked_ns == whole * 1e6


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"results": [{"configuration": {"a": 1}} {', "a comma is missing"),
        ('{"results": [{"configuration": {"a": 1}}]} {"more": 1}', "something follows its end"),
        ('{"cache": {5: 1}, "tune_params_keys": ["a"]}', "not JSON"),
        ('{"results": [{"a": }, {"b": 1}, {"c": 1}, {"d": 1}]}', "not JSON"),
        ('{"results": [' + "1" * 5000 + ", 1]}", "too many digits"),
        ('{"results": [' + "[" * 50_000, "nested too deep"),
    ],
)
def test_what_is_no_json_is_not_taken_for_a_cut(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(RecordingError, match=words):
        read(tmp_path / "a.json", text)


def test_other_encodings_say_so(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(cache()), encoding="utf-16")
    with pytest.raises(RecordingError, match="save it as UTF-8"):
        read_results(tmp_path / "a.json")
    (tmp_path / "a.json").write_text(json.dumps(cache()), encoding="utf-8-sig")
    assert len(read_results(tmp_path / "a.json").rows) == 3


KNOWN = {
    1e9: ("s", "secs", "Seconds"),
    1e6: ("MS", "msec", "miliseconds", " "),
    1e3: ("us", "µs", "μs", "Microseconds"),
    1.0: ("NS", "nanosecond"),
}


@pytest.mark.parametrize(("factor", "unit"), [(ns, unit) for ns, units in KNOWN.items() for unit in units])
def test_a_time_is_in_its_own_unit_or_in_that_of_the_file(tmp_path: Path, factor: float, unit: str) -> None:
    path = tmp_path / "a.json"
    times = {"runtimes": [2.0, 4.0], "compilation": 3.0}
    path.write_text(json.dumps(t4([t4_result(1, 3.0, unit, times=times)])))
    for data in (
        t4([t4_result(1, 3.0, unit, times=times)]),
        t4([t4_result(1, 3.0, "", times=times)], timeunit=unit),
        t4([t4_result(1, 3.0, times=times)], timeunit=unit),
        dict(reversed(t4([t4_result(1, 3.0, times=times)], timeunit=unit).items())),
    ):
        path.write_text(json.dumps(data))
        (row,) = read_results(path).rows.values()
        assert row.time_ns == pytest.approx(3 * factor)
        assert row.samples_ns == pytest.approx((2 * factor, 4 * factor))
        assert row.compile_s == pytest.approx(3 * factor / 1e9)
    for data in (cache((3.0,), timeunit=unit), dict(sorted(cache((3.0,), timeunit=unit).items()))):
        assert read(path, data)[0] == {1: pytest.approx(3 * factor)}


@pytest.mark.parametrize("name", ["time_unit", "TimeUnit", "unit"])
def test_a_result_of_a_cache_may_have_a_unit_of_its_own(tmp_path: Path, name: str) -> None:
    data = cache((3.0, 4.0), timeunit="ns")
    data["cache"]["1"][name] = "us"
    assert read(tmp_path / "a.json", data)[0] == {1: 3e3, 2: 4.0}
    tuned = {**data, "tune_params_keys": ["block", name], "tune_params": {"block": [1], name: ["us"]}}
    assert read(tmp_path / "a.json", tuned)[0] == {1: 3.0}


@pytest.mark.parametrize("unit", ["min", "cycles", "ms/iteration", 5])
def test_an_unknown_unit_is_refused(tmp_path: Path, unit: Any) -> None:
    for data in (
        t4([t4_result(1, 3.0, unit)]),
        t4([t4_result(1, 3.0)], timeunit=unit),
        cache(time_unit=unit),
    ):
        with pytest.raises(RecordingError) as caught:
            read(tmp_path / "a.json", data)
        assert f"{str(unit)!r} is no unit of time that is known; write s, ms, us or ns" in str(caught.value)


IMPOSSIBLE = (0, 0.0, -1.5, 1e-9, float("nan"), float("inf"), float("-inf"), 1e13, 10**400, True, None)


@pytest.mark.parametrize("kind", ["cache", "t4"])
def test_an_impossible_time_is_a_failure_and_said(tmp_path: Path, kind: str) -> None:
    """It is never the best, in whatever unit."""
    times = (*IMPOSSIBLE, 20.0)
    data = cache(times) if kind == "cache" else t4([t4_result(i, time) for i, time in enumerate(times)])
    found, note = read(tmp_path / "a.json", data)
    assert [time for time in found.values() if time is not None] == [20e6]
    errors = [row.error for row in read_results(tmp_path / "a.json").rows.values()]
    assert set(errors) == {"no time", ""}
    assert (
        f"a.json: results that count as failures, without a possible time: {len(IMPOSSIBLE)} (0, 0.0, -1.5)"
        in note
    )


def test_an_impossible_rate_is_a_failure_and_said(tmp_path: Path) -> None:
    rates = (0, -3.0, float("nan"), float("inf"), 1e300, None, 2.0, 3e15)
    data = cache((1.0,) * len(rates), objective="FLOP/s")
    for row, rate in zip(data["cache"].values(), rates, strict=True):
        row["FLOP/s"] = rate
    found, note = read(tmp_path / "a.json", data)
    assert {block: time for block, time in found.items() if time is not None} == {64: 0.5e9, 128: 1e9 / 3e15}
    assert "without a possible FLOP/s: 6 (0, -3.0, nan)" in note


def test_a_failure_in_a_cache_may_have_its_kind_in_place_of_a_time(tmp_path: Path) -> None:
    data = cache()
    data["cache"]["2"] = {"block": 2, "__error__": "CompilationFailedConfig"}
    (tmp_path / "a.json").write_text(json.dumps(data))
    found = read_results(tmp_path / "a.json")
    assert (found.rows[(2,)].status, found.notes) == (Status.COMPILE_ERROR, [])


def test_a_result_that_was_found_wrong_is_a_failure(tmp_path: Path) -> None:
    results = [t4_result(1, 1.0, correctness=0), t4_result(2, 2.0, correctness=1)]
    results.append({**t4_result(3, 0.5), "invalidity": "timeout"})
    (tmp_path / "a.json").write_text(json.dumps(t4(results)))
    rows = read_results(tmp_path / "a.json").rows
    assert [(row.status, row.ranked_ns, row.error) for row in rows.values()] == [
        (Status.WRONG_RESULT, None, "correctness"),
        (Status.OK, 2e6, ""),
        (Status.HANG, None, "timeout"),
    ]


def test_results_with_other_parameters_are_left_out_and_named(tmp_path: Path) -> None:
    results = [t4_result(i, 1.0 + i) for i in range(4)]
    for result in results[1:]:
        result["configuration"]["pad"] = 1
    results[3]["configuration"] |= {"depth": 2, "block": 9}
    results += [t4_result(7, 0.1), t4_result(1, 5.0)]
    results[-1]["configuration"]["pad"] = 1
    found, note = read(tmp_path / "a.json", t4(results))
    assert found == {1: 5e6, 2: 3e6}
    assert "left out 3 of 6 results: 2 without pad, 1 with depth" in note and "others" not in note
    assert "the last result counts: 1" in note
    lacking = cache()
    del lacking["cache"]["1"]["block"]
    found, note = read(tmp_path / "a.json", lacking)
    assert found == {2: 14.25e6, 4: 17e6} and "left out 1 of 3 results: 1 without block" in note


@pytest.mark.parametrize(
    ("limit", "value", "data", "words"),
    [
        ("foreign_json.VALUE_CHARS", 1 << 20, {"results": [[{}] * 1_000_000]}, "more than 1 MiB"),
        ("foreign_json.VALUE_CHARS", 1 << 20, {"metadata": [{}] * 1_000_000}, "more than 1 MiB"),
    ],
)  # fmt: skip
def test_a_file_that_would_fill_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int, data: Any, words: str
) -> None:
    monkeypatch.setattr(f"tuner.formats.{limit}", value)
    with pytest.raises(RecordingError, match=words):
        read(tmp_path / "a.json", data)


def test_a_gzip_file_of_many_members_is_refused(tmp_path: Path) -> None:
    part = gzip.compress(b" ")
    (tmp_path / "a.json.gz").write_bytes(
        part * 100 + gzip.compress(json.dumps(cache()).encode()) + bytes(512)
    )
    assert len(read_results(tmp_path / "a.json.gz").rows) == 3
    (tmp_path / "a.json.gz").write_bytes(b"".join(itertools.repeat(part, 10_001)))
    with pytest.raises(RecordingError, match="more than 10000 compressed parts"):
        read_results(tmp_path / "a.json.gz")
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(json.dumps(cache()).encode()) + b"something")
    with pytest.raises(RecordingError, match="cannot be decompressed"):
        read_results(tmp_path / "a.json.gz")


@pytest.mark.parametrize("pack", [bz2.compress, lzma.compress])
def test_what_another_program_has_packed_is_to_be_unpacked(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    (tmp_path / "a.json").write_bytes(pack(json.dumps(cache()).encode()))
    with pytest.raises(RecordingError, match="unpack it first"):
        read_results(tmp_path / "a.json")


def test_the_unit_of_a_measurement_outranks_that_of_the_file(tmp_path: Path) -> None:
    results = [
        t4_result(1, 3.0, "us", times={"runtimes": [3e3]}),
        t4_result(2, 4e3, times={"runtimes": [4e3]}),
    ]
    (tmp_path / "a.json").write_text(json.dumps(t4(results, timeunit="ns")))
    rows = read_results(tmp_path / "a.json").rows
    assert [(row.time_ns, row.samples_ns) for row in rows.values()] == [(3e3, (3e3,)), (4e3, (4e3,))]


@pytest.mark.parametrize("kind", ["cache", "t4"])
def test_a_time_that_is_text_is_a_number_or_said(tmp_path: Path, kind: str) -> None:
    times = ("15.26", " 2e1", "1,5", "NaN", "-3", "1.5 ms", "CompilationFailed")
    data = cache(times) if kind == "cache" else t4([t4_result(i, time) for i, time in enumerate(times)])
    found, note = read(tmp_path / "a.json", data)
    assert [time for time in found.values() if time is not None] == [15.26e6, 20e6]
    assert "without a possible time: 4 (1,5, NaN, -3)" in note


def test_results_with_different_objectives_are_refused(tmp_path: Path) -> None:
    results = [t4_result(1, 1.0, objectives=["time"]), t4_result(2, 2.0, objectives=["GFLOP/s"])]
    with pytest.raises(RecordingError, match="several objectives"):
        read(tmp_path / "a.json", t4(results))


def test_a_file_that_is_compressed_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "twice.json.gz"
    path.write_bytes(gzip.compress(gzip.compress(b"{}")))
    with pytest.raises(RecordingError, match="compressed twice; decompress it once"):
        read_results(path)
