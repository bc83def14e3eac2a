"""An exam of the referee: one attack a file in ``judged/``, and honest candidates of every kind; some at once.

Prints a line for each candidate: its name, what was expected, the verdict, seconds. Where EXAM_JSON names a file, that
gets all of it: ``EXAM_JSON=results/evidence/exam.json pytest -m gpu -s -n 0 tests/gpu/test_exam.py``. An exam that was
cut off goes on there: verdicts that are as expected are not asked for again.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.test_command_line import tune

HERE = Path(__file__).parent / "judged"
ATTACKS = {
    "half.cu": "wrong_result",
    "nothing.cu": "wrong_result",
    "zeros.cu": "wrong_result",
    "outside.cu": "wrong_result",
    "far_outside.cu": "memory_fault",
    "unbounded.cu": "wrong_at_other_size memory_fault wrong_result",
    "writes_input.cu": "wrong_result",
    "trap.cu": "memory_fault",
    "half_precision.cu": "wrong_result",
    "bfloat_result.cu": "wrong_result",
    "of_this_range.cu": "wrong_with_other_inputs wrong_result",
    "of_whole_blocks.cu": "wrong_at_other_size",
    "of_this_size.cu": "wrong_at_other_size",
    "flushes_tiny.cu": "wrong_result",
    "keeps_result.cu": "repeats wrong_result",
    "by_address.cu": "repeats wrong_result",
    "by_content.cu": "repeats wrong_result",
    "batch_and_skip.cu": "repeats wrong_result",
    "only_where_poisoned.cu": "repeats",
    "heap.cu": "repeats",
    "race.cu": "wrong_result wrong_at_other_size",
    "reads_inputs_neighbour.cu": "wrong_result wrong_at_other_size memory_fault",
    "no_launch.cu": "unreadable",
    "does_not_compile.cu": "compile_error",
    "too_many_threads.cu": "invalid_config",
    "reads_beside.py": "launch_error",
    "lists_home.py": "launch_error",
    "writes_beside.py": "launch_error",
    "calls_home.py": "launch_error",
    "sends_a_packet.py": "launch_error",
    "fork_bomb.py": "launch_error",
    "kills_the_referee.py": "launch_error",
    "limits_the_referee.py": "launch_error",
    "reads_the_referee.py": "launch_error",
    "fills_the_disk.py": "launch_error",
    "takes_all_memory.py": "launch_error",
    "exits_with_0.py": "worker_died",
    "leaves.py": "launch_error",
    "prints_a_verdict.py": "wrong_result",
    "another_clock.py": "tampers",
    "another_event.py": "tampers",
    "another_comparison.py": "tampers",
    "another_synchronise.py": "tampers",
    "another_answer.py": "tampers",
    "another_check.py": "tampers",
    "launches_nothing_when_asked.py": "tampers",
    "cuts_the_exchange.py": "launch_error wrong_result",
    "another_seal.py": "tampers",
    "another_worker.py": "tampers launch_error",
    "another_baseline.py": "tampers",
    "slower_baselines.py": "tampers",
    "another_limit.py": "tampers",
    "searches_objects.py": "tampers",
    "looks_up_the_stack.py": "tampers",
    "compiles_as_a_library.py": "tampers",
    "works_in_a_thread.py": "tampers",
    "side_stream.py": "wrong_result launch_error wrong_after_timing",
    "lazy.py": "launch_error",
    "on_the_host.py": "launch_error",
    "nothing_queued.py": "launch_error",
    "only_warm_ups.py": "wrong_result",
    "cached_by_address.py": "wrong_with_other_inputs wrong_result wrong_after_timing unstable repeats",
    "half_inside.py": "wrong_result",
    "changes_its_input.py": "wrong_result",
    "another_shape.py": "launch_error",
    "raises.py": "launch_error",
    "synchronises.py": "launch_error",
    "beyond_shared.cu": "wrong_result memory_fault",
    "sets_l2_aside.py": "launch_error",
    "returns_its_input.py": "wrong_result",
    "uninitialised.py": "wrong_result",
    "cupy_stash.py": "repeats too_fast wrong_result wrong_after_timing clock_mismatch tampers",
    "cupy_host_function.py": "launch_error",
    "queues_a_host_function.py": "launch_error",
}
"""The reasons that an attack may be refused for."""
HONEST = (
    "block_64.cu",
    "block_128.cu",
    "block_256.cu",
    "block_512.cu",
    "block_1024.cu",
    "strided.cu",
    "fused.cu",
    "two_launches.cu",
    "through_shared.cu",
    "cached_loads.cu",
    "slow.cu",
    "variant_64.toml",
    "variant_128.toml",
    "variant_256.toml",
    "variant_512.toml",
    "torch_copy.py",
    "torch_returns.py",
    "torch_addcmul.py",
    "torch_in_steps.py",
    "torch_own_buffer.py",
    "torch_joined_stream.py",
    "torch_compiled.py",
    "triton_256.py",
    "triton_1024.py",
    "triton_2048.py",
    "triton_autotuned.py",
    "cupy_raw.py",
    "cupy_elementwise.py",
    "cupy_fused.py",
    "cupy_ufuncs.py",
)
AT_ONCE = 6
SAID = "judged", "message", "speed", "not_isolated", "gpu", "versions", "phases"
"""Of a verdict, what is kept."""
NEEDS = {"triton": "triton", "cupy": "cupy"}


def installed(name: str) -> bool:
    """Return whether a candidate's library is there; torch is what other Python candidates need."""
    if not name.endswith(".py"):
        return True
    library = NEEDS.get(name.partition("_")[0], "torch")
    return importlib.util.find_spec(library) is not None


def judged(folder: Path, name: str, expected: str) -> dict[str, Any]:
    """Judge one candidate; return what was expected and what was said."""
    began = time.monotonic()
    try:
        done = tune(folder, "judge", "task.toml", name, "--json", "--against", "default", "-q", status=None)
        verdict = json.loads(done.stdout)
    except Exception as error:  # noqa: BLE001 - one line for each, whatever comes
        verdict = {"reason": type(error).__name__, "message": str(error)[-300:]}
    said = {key: verdict[key] for key in SAID if key in verdict}
    modes = [mode for problem in verdict.get("problems", []) for mode in problem["modes"]]
    said["beside_default"] = {mode["mode"]: mode["versus"][0]["speedup"] for mode in modes}
    reason = verdict["reason"] or verdict["judged"]
    found = {"name": name, "expected": expected.split(), "seconds": round(time.monotonic() - began, 1)}
    found |= {**said, "reason": reason, "as_expected": reason in expected.split()}
    words = "" if found["as_expected"] else "NOT "
    message = f"{name}: {expected}: {reason} {found['seconds']} s {verdict['message'][:160]}"
    print(f"{words}{message}", flush=True)
    return found


def kept() -> dict[str, Any]:
    """Return what the file that EXAM_JSON names has."""
    path = Path(os.environ.get("EXAM_JSON", os.devnull))
    return dict(json.loads(path.read_text())) if path.is_file() else {}


def keep(kind: str, found: list[dict[str, Any]], seconds: float) -> None:
    """Write the verdicts so far beside those of the other kind, where EXAM_JSON names a file."""
    if file := os.environ.get("EXAM_JSON"):
        verdicts = {"seconds": round(seconds, 1), "at_once": AT_ONCE, "candidates": found}
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_text(json.dumps(kept() | {kind: verdicts}, indent=1) + "\n")


@pytest.mark.timeout(0)  # minutes, and each verdict is kept
@pytest.mark.parametrize("kind", ["attacks", "honest"])
def test_exam(kind: str, tmp_path: Path) -> None:
    asked = ATTACKS if kind == "attacks" else dict.fromkeys(HONEST, "right")
    shutil.copytree(HERE, tmp_path / "judged")
    tune(tmp_path / "judged", "judge", "task.toml", "block_256.cu", "-q", status=None)  # calibrates
    earlier = kept().get(kind, {"seconds": 0.0, "candidates": []})
    found = [one for one in earlier["candidates"] if one["as_expected"]]
    known = {one["name"] for one in found}
    began = time.monotonic() - earlier["seconds"]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        names = [name for name in asked if name not in known and installed(name)]
        for name in asked.keys() - known - set(names):
            print(f"LEFT OUT {name}: its library is not installed", flush=True)
        judging = [pool.submit(judged, tmp_path / "judged", name, asked[name]) for name in names]
        for done in as_completed(judging):
            found.append(done.result())
            keep(kind, found, time.monotonic() - began)
    print(f"{kind}: {len(found)} in {time.monotonic() - began:.0f} s", flush=True)
    assert [(one["name"], one["reason"]) for one in found if not one["as_expected"]] == []


def test_every_file_is_asked() -> None:
    files = {path.name for path in HERE.iterdir()} - {"task.toml", "plain.cu"}
    assert files == {*ATTACKS, *HONEST}
    assert len(ATTACKS) >= 40 and len(HONEST) >= 30
