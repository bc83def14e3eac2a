"""``tune judge`` as a program meets it: verdicts, reasons and exit statuses of one candidate after the other."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands import assert_refused
from tests.studies.judging.judged import CUDA, Judge, cuda, in_toml, task, verdict_of
from tuner.children.nvrtc import compile_source
from tuner.core.errors import NoGpuError
from tuner.core.model import Status
from tuner.devices import examined
from tuner.kernel.candidates import candidate_kernel
from tuner.kernel.load import load_kernel
from tuner.studies.judging.verdict import OTHER_REASONS

PYTHON = "def mine__{}(x, y):\n    y.copy_(2 * x)\n"


def test_a_right_candidate_has_times_beside_the_baselines(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SCALE", "0.05")  # so short that warm times may differ
    named = '[baselines]\ntorch = "torch.mul(x, 2, out=y)"\ncupy = "cupy.multiply(x, 2, out=y)"'
    said = judge(task(tmp_path / "task", named), cuda(tmp_path), "--json", "--seed", "7")
    verdict = verdict_of(said)
    assert (verdict["format"], verdict["judged"], verdict["reason"]) == (1, "right", "")
    (at,) = verdict["problems"]
    first, warm = at["modes"]
    assert (first["mode"], warm["mode"]) == ("rotating", "warm")
    compared = {one["baseline"]: one for one in first["versus"]}
    assert set(compared) == {"torch", "default"}  # CuPy is not installed there
    assert compared["torch"]["verdict"] == "faster" and compared["torch"]["speedup_low"] > 2
    assert len(at["sizes"]) == 12 and {size["status"] for size in at["sizes"]} == {"ok"}
    assert verdict["task"]["digest"] and verdict["candidate"]["digest"] and verdict["seed"] == 7
    steps = {name for name, begin, end in verdict["phases"] if 0.0 <= begin <= end}
    assert steps >= {
        "start",
        "problem",
        "candidate",
        "race",
        "race, warm",
        "fresh process",
        "edge-case sizes",
    }
    assert said.code == {"slower": 4}.get(verdict["speed"], 0)


def test_people_read_what_was_checked_and_the_times(judge: Judge, tmp_path: Path) -> None:
    cuda(tmp_path)
    said = judge(task(tmp_path / "task"), "ok.cu", "--against", "default", "--seed", "3", "-v")
    first, *lines = said.out.splitlines()
    assert first in ("ok.cu: right, slower", "ok.cu: right, faster")
    assert [line.split()[0] for line in lines] == ["verified", "rotating", "task", "seconds"]
    assert "at 12 other sizes" in said.out and " over default: " in said.out and "--seed 3" in said.out


@pytest.mark.parametrize(
    ("fault", "judged", "reason"),
    [
        ("wrong", "wrong", "wrong_result"),
        ("edge", "wrong", "wrong_at_other_size"),
        ("untrusted", "refused", "too_fast"),
        ("hang", "refused", "hang"),
        ("die", "refused", "worker_died"),
        ("sticky700", "refused", "memory_fault"),
        ("unverified", "failed", "unverified"),
        ("lonely", "refused", "worker_died"),
        ("company", "refused", "worker_died"),
    ],
)
def test_reasons(judge: Judge, tmp_path: Path, fault: str, judged: str, reason: str) -> None:
    """The last two die in the fresh process alone, and beside others alone."""
    against = "default" if fault == "company" else "none"
    said = judge(task(tmp_path / "task"), cuda(tmp_path, fault), "--json", "--against", against)
    verdict = verdict_of(said)
    assert (verdict["judged"], verdict["reason"]) == (judged, reason), verdict
    assert said.code == (1 if judged == "failed" else 3)
    assert verdict["message"]


@pytest.mark.parametrize(
    ("arguments", "jailed", "libraries"),
    [
        (["task.toml", "mine.cu"], False, []),
        (["task.toml", "mine.py:softmax"], True, ["torch"]),
        (["task.toml", "mine.py", "--against", "default"], True, []),
        (["model.py", "mine.py", "--against", "none"], True, ["torch"]),
    ],
)
def test_what_takes_long_begins_with_the_command(
    judge: Judge, arguments: list[str], jailed: bool, libraries: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[dict[str, object]] = []
    monkeypatch.setattr("tuner.devices.started.begin", lambda *_, **how: begun.append(how))
    assert judge(*arguments).code == 2  # there are no such files
    assert begun == [{"jailed": jailed, "libraries": libraries}]


@pytest.mark.parametrize(
    ("name", "was", "becomes", "said"),
    [
        ("ok.cu", "", "", "no NVIDIA GPU to judge ok.cu: it compiles for sm_90a, and its launches fit"),
        ("a.cu", "2.0f", "two", 'a.cu is wrong: a.cu:4: error: identifier "two" is undefined'),
        ("b.cu", "float* x", "double* x", "b.cu is wrong: argument 1 of mine__ok is the tensor x of float32"),
        ("c.cu", "(x, y,", "(x, z,", "c.cu is wrong: c.cu: 'mine__ok<<<ceil_div(n, 64), 64>>>(x, z, int64(n))'"),
        ("d.cu", "64>>>", "2048>>>", "d.cu is wrong: block of 2048"),
        ("e.py", "candidate", "candidates", "e.py:candidate is wrong: e.py has no function 'candidate'"),
        ("f.py", "", "", "no NVIDIA GPU to judge f.py:candidate: it can be read"),
    ],
)  # fmt: skip
def test_without_a_gpu_it_is_said_what_can_be_seen_of_a_candidate(
    judge: Judge,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    was: str,
    becomes: str,
    said: str,
) -> None:
    def missing(*_: object) -> None:
        raise NoGpuError("this machine has no NVIDIA GPU", "")

    monkeypatch.setattr("tuner.cli.configuration.open_device", missing)
    source = PYTHON.replace("mine__{}", "candidate") if name.endswith(".py") else cuda(tmp_path).read_text()
    (tmp_path / name).write_text(source.replace(was, becomes) if was else source)
    asked = f"{name}:candidate" if name.endswith(".py") else name
    assert_refused(judge(task(tmp_path / "task"), asked), 1, said, "this machine has no NVIDIA GPU to judge")


# -- kinds of candidates


def as_cubin(folder: Path, arch: str = "sm_90a") -> Path:
    source = CUDA.format(fault="ok", block=64)
    file = folder / "mine.cubin"
    file.write_bytes(compile_source(source, "mine__ok", arch, (), ()).cubin)
    (folder / "mine.cubin.launch").write_text("mine__ok<<<ceil_div(n, 64), 64>>>(x, y, int64(n))\n")
    return file


def in_python(folder: Path, fault: str = "ok") -> Path:
    file = folder / "mine.py"
    file.write_text(PYTHON.format(fault))
    return file


@pytest.mark.parametrize("write", [in_toml, as_cubin, in_python])
def test_each_kind_is_judged(judge: Judge, tmp_path: Path, write: Callable[[Path], Path]) -> None:
    file = write(tmp_path)
    said = judge(task(tmp_path / "task"), file, "--json", "--against", "default")
    verdict = verdict_of(said)
    assert (verdict["judged"], verdict["candidate"]["kind"]) == ("right", file.suffix[1:]), verdict
    (versus,) = verdict["problems"][0]["modes"][0]["versus"]
    assert versus["baseline"] == "default" and versus["time_ns"] > 0
    assert verdict["candidate"]["configuration"] == ({"block_size": 128} if write is in_toml else {})


def test_a_locked_in_process_does_not_know_by_which_seeds_inputs_are_drawn(
    judge: Judge, tmp_path: Path
) -> None:
    judge(task(tmp_path / "task"), in_python(tmp_path), "--against", "none", "--seed", "7", "-q")
    lines = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    first = lines[0][0]
    seeds = {
        outside: {int(one[2]) for one in lines if one[1] == "setup" and (one[0] == first) is outside}
        for outside in (True, False)
    }
    assert seeds[True] == {7, 8, 9} and seeds[False] and not seeds[False] & seeds[True]


@pytest.mark.parametrize(
    ("fault", "reason", "word"),
    [
        ("locked", "launch_error", "docs/judging.md"),
        ("liar", "tampers", "outputs are right, and they are not: y[0] is 2"),
        ("secretive", "tampers", "does not show its outputs"),
        ("onecontent", "tampers", "all contents"),
        ("idle", "tampers", "does not launch"),
        ("slowpoke", "clock_mismatch", "us pass outside of its process"),
        ("brake", "tampers", "default takes"),
        ("curious", "hang", "keeps the referee waiting"),
        ("slow", "hang", "keeps the referee waiting"),
        ("unhurried", "tampers", "paced by a longer time"),
        ("numberless", "worker_died", "numbers that cannot be"),
        ("dateless", "worker_died", "numbers that cannot be"),
        ("timeless", "worker_died", "numbers that cannot be"),
        ("raceless", "unstable", "numbers that cannot be"),
        ("another", "unstable", "numbers that cannot be"),
        ("long", "worker_died", "a message of"),
    ],
)
def test_what_a_locked_in_process_says_is_held_against_what_is_seen_outside_of_it(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, reason: str, word: str
) -> None:
    in_python(tmp_path, fault)
    monkeypatch.setattr(examined, "MOST_QUESTIONS", 20)
    monkeypatch.setattr(examined, "MOST_S", 1.0 if fault == "slow" else 60.0)
    candidate = f"{tmp_path}/mine.py:mine__{fault}"
    verdict = verdict_of(judge(task(tmp_path / "task"), candidate, "--json", "--against", "default"))
    assert (verdict["reason"], verdict["speed"]) == (reason, None) and word in verdict["message"], verdict


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("def help(): ...\ndef candidate(x, y): ...", "candidate"),
        ("def only(x, y): ...", "only"),
        ("def slow(x, y): ...\ncandidate = slow\ndef fast(): ...", "candidate"),
        ("class ModelNew: ...\ndef help(): ...", "ModelNew"),
    ],
)
def test_the_function_of_a_file(tmp_path: Path, source: str, name: str) -> None:
    (tmp_path / "mine.py").write_text(source)
    kernel = candidate_kernel(load_kernel(str(task(tmp_path / "task"))), str(tmp_path / "mine.py"))
    (variant,) = kernel.variants.values()
    assert variant.call is not None and variant.call.name == name


def test_several_launches_are_made_in_their_order(tmp_path: Path) -> None:
    kernel = load_kernel(str(task(tmp_path / "task")))
    file = cuda(tmp_path)
    file.write_text(CUDA.format(fault="first", block=32) + CUDA.format(fault="second", block=64))
    (variant,) = candidate_kernel(kernel, str(file)).variants.values()
    assert [launch.entry for launch in variant.launches] == ["mine__first", "mine__second"]


def test_a_candidate_cannot_change_its_task(tmp_path: Path) -> None:
    kernel = load_kernel(str(task(tmp_path / "task")))
    file = in_toml(tmp_path)
    file.write_text(
        file.read_text()
        + '[work]\nflops = "1"\n[reference]\nnumpy = "x"\ntolerance = 1e9\n[judge]\nany_size = false\n'
    )
    mine = candidate_kernel(kernel, str(file))
    for part in ("reference", "work", "tensors", "sizes", "judge", "presets"):
        assert getattr(mine, part) == getattr(kernel, part)


# -- what cannot be judged


@pytest.mark.parametrize(
    ("name", "content", "reason", "word"),
    [
        ("mine.cu", "__global__ void f() {}", "unreadable", "no line `// tune:"),
        ("mine.cu", "// tune: f<<<k, 1>>>(x)\n__global__ void f() {}", "unreadable", "unknown name 'k'"),
        ("mine.py", "x = = 1", "unreadable", "no Python"),
        ("mine.py", "def a(x): ...\ndef b(x): ...", "unreadable", "no function 'candidate'"),
        ("mine.toml", "[variants.a]", "unreadable", "no launches"),
        ("mine.toml", "nonsense", "unreadable", "not valid TOML"),
        ("mine.cu", "// tune: f<<<1, 1>>>(x)\n__global__ void g() {}", "compile_error", "'f'"),
        ("mine.cu", "// tune: f<<<1, 2048>>>(x)\n__global__ void f(float* x) {}", "invalid_config", "2048"),
        ("mine.cubin", "no cubin, but as long as a header of 64 bytes" * 2, "compile_error", "no cubin"),
    ],
)
def test_what_cannot_be_read_or_compiled_has_a_verdict(
    judge: Judge, tmp_path: Path, name: str, content: str, reason: str, word: str
) -> None:
    (tmp_path / name).write_text(content)
    (tmp_path / "mine.cubin.launch").write_text("f<<<1, 1>>>(x)")
    said = judge(task(tmp_path / "task"), name, "--json")
    verdict = verdict_of(said)
    assert (said.code, verdict["judged"], verdict["reason"]) == (3, "refused", reason)
    assert word in verdict["message"], verdict


def test_a_wrong_command_line_is_told_in_one_line(judge: Judge, tmp_path: Path) -> None:
    file, candidate = task(tmp_path / "task"), cuda(tmp_path)
    for name in ("none.cu", "none.toml", "task", "os:system"):
        assert_refused(judge(file, name), 2, "no ", name, "give ")
    assert_refused(judge(file), 2, "one candidate or --rounds FOLDER")
    assert_refused(judge(file, candidate, "--deadline", "3m"), 2, "--rounds and --deadline go together")
    assert_refused(judge(file, "--rounds", "nowhere", "--deadline", "3m"), 2, "no folder nowhere")
    assert_refused(judge("nokernel", candidate), 2, "no kernel named")
    assert_refused(judge(file, candidate, "--against", "cublas"), 2, "no baseline")
    said = judge(file, "--rounds", tmp_path, "--deadline", "soon")
    assert said.code == 2 and "soon" in said.err


def test_programs_are_told_the_format(judge: Judge) -> None:
    said = judge("--explain-format")
    assert said.code == 0
    page, _, schema = said.out.partition("\n{\n")
    assert json.loads("{" + schema)["$defs"]["Verdict"]["properties"]["format"]
    for word in (*Status, *OTHER_REASONS):
        assert f"`{word}`" in page or word in ("ok", "slow", "crashed", "inaccurate"), word


def test_a_task_limits_what_a_call_may_take(judge: Judge, tmp_path: Path) -> None:
    file = task(tmp_path / "task", "[judge]\nlimit_s = 1e-5\nbaselines = ['none']\npresets = ['small']\n")
    verdict = verdict_of(judge(file, cuda(tmp_path), "--json"))
    assert (verdict["judged"], verdict["reason"]) == ("refused", "too_slow")
    assert verdict["problems"][0]["problem"]["sizes"] == {"n": 64}


def test_equal_tasks_have_equal_digests(judge: Judge, tmp_path: Path) -> None:
    def digest(file: Path, *more: str) -> str:
        found = verdict_of(judge(file, "bad.py", "--json", *more))
        return str(found["task"]["digest"])

    (tmp_path / "bad.py").write_text("=")
    first, other = task(tmp_path / "a"), task(tmp_path / "b")
    assert digest(first) == digest(other)
    digests = {digest(first), digest(first, "--against", "none"), digest(first, "--size", "n=8")}
    other.write_text(other.read_text().replace("2 * x", "x * 2 + 0"))
    assert len({*digests, digest(other)}) == 4


def test_a_measuring_process_that_cannot_be_had_is_no_verdict_on_the_candidate(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SETUP", "refuse")
    said = judge(task(tmp_path / "task"), cuda(tmp_path), "--json")
    verdict = verdict_of(said)
    assert (said.code, verdict["judged"], verdict["reason"]) == (1, "failed", "failed")
    assert "does not fit on the GPU" in verdict["message"]


def test_what_was_seen_with_no_other_contents_in_time_is_not_right(
    judge: Judge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be the candidate that takes so long at sizes that are not timed."""
    monkeypatch.setattr("tuner.tuning.confirmation.EDGE_CASES_S", 0.0)
    said = judge(task(tmp_path / "task"), cuda(tmp_path), "--json")
    verdict = verdict_of(said)
    assert (said.code, verdict["judged"], verdict["reason"]) == (1, "failed", "unverified")
    assert "at other sizes: the limit of" in verdict["message"]


def test_what_was_seen_while_the_reference_was_too_slow_for_other_contents_is_not_right(
    judge: Judge, tmp_path: Path
) -> None:
    said = judge(task(tmp_path / "task"), cuda(tmp_path, "slowreference"), "--json")
    verdict = verdict_of(said)
    assert (said.code, verdict["judged"], verdict["reason"]) == (1, "failed", "unverified")
    assert verdict["message"].endswith("with other inputs: its reference is too slow")
