"""``tune judge --rounds``: candidates that arrive as files, until a deadline."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.commands import assert_refused
from tests.studies.judging.judged import CUDA, Judge, cuda, in_toml, task
from tuner.devices.base import Device
from tuner.kernel.candidates import candidate_kernel
from tuner.kernel.load import load_kernel
from tuner.studies.bench import choose_against
from tuner.studies.judging import rounds
from tuner.studies.judging.rounds import Rounds, content_digest
from tuner.studies.judging.task import readable_for
from tuner.studies.judging.verdict import Verdict


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(rounds, "POLL_S", 0.01)
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


def until(monkeypatch: pytest.MonkeyPatch, folder: Path, count: int) -> None:
    """Let the deadline come when so many candidates have a verdict."""
    looked, clock = Rounds._candidates, SimpleNamespace(monotonic=time.monotonic, sleep=time.sleep)
    monkeypatch.setattr(rounds, "time", clock)

    def look(self: Rounds) -> Iterator[Path]:
        if len(list(folder.glob("*.verdict.json"))) >= count:
            clock.monotonic = lambda: float("inf")
        return looked(self)

    monkeypatch.setattr(Rounds, "_candidates", look)


@pytest.fixture
def over(judge: Judge, tmp_path: Path, folder: Path) -> Judge:
    """Judge what comes into the folder, against nothing but itself."""
    asked = (task(tmp_path / "task"), "--rounds", folder, "--deadline", "1h", "--against", "none")
    return lambda *more: judge(*asked, *more)


def log(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "judge.jsonl").read_text().splitlines()]


def test_what_hangs_or_crashes_costs_its_own_verdict_and_the_best_is_judged_again(
    over: Judge, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = [cuda(folder, block=block, name=f"b{block}.cu") for block in (32, 64, 128)]
    for fault in ("hang", "die", "wrong"):
        cuda(folder, fault)
    (folder / "bad.py").write_text("def")
    (folder / "notes.txt").write_text("not a candidate")
    (folder / "link.cu").symlink_to(right[0])
    until(monkeypatch, folder, 8)
    said = over("--seed", "5", "--json")
    verdicts = {
        file.name.removesuffix(".verdict.json"): json.loads(file.read_text())
        for file in folder.glob("*.verdict.json")
    }
    reasons = {name: verdict["reason"] for name, verdict in verdicts.items()}
    assert reasons == {
        **{path.name: "" for path in right},
        "hang.cu": "hang",
        "die.cu": "worker_died",
        "wrong.cu": "wrong_result",
        "bad.py": "unreadable",
        "link.cu": "unreadable",
    }
    assert "no plain file" in verdicts["link.cu"]["message"]
    times = {path.name: verdicts[path.name]["problems"][0]["modes"][0]["time_ns"] for path in right}
    best = json.loads((folder / "best.json").read_text())
    assert best["candidate"]["name"] == min(times, key=times.__getitem__)
    assert said.code == 0 and json.loads(said.out) == best
    lines = log(folder)
    assert len({line["seed"] for line in lines if line["reason"] != "unreadable"}) == 7
    assert len(lines) == 9 and lines[-1] == best
    assert len({line["task"]["digest"] for line in lines}) == 1


def test_equal_candidates_do_not_take_each_others_place(
    over: Judge, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda(folder, name="a.cu")
    (folder / "b.cu").write_text("// the same\n" + CUDA.format(fault="ok", block=64))
    until(monkeypatch, folder, 2)
    over("--quiet")
    second = json.loads((folder / "b.cu.verdict.json").read_text())
    (versus,) = second["problems"][0]["modes"][0]["versus"]
    assert (versus["baseline"], versus["verdict"], second["speed"]) == ("best so far", "tied", "tied")
    assert json.loads((folder / "best.json").read_text())["candidate"]["name"] == "a.cu"


def test_a_folder_is_one_candidate_and_what_was_judged_is_kept(
    over: Judge, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = folder / "mine"
    inner.mkdir()
    in_toml(inner)
    until(monkeypatch, folder, 1)
    over("--quiet")
    (first, _) = log(folder)
    assert (first["judged"], first["candidate"]["name"]) == ("right", "mine"), first
    kept = folder / first["candidate"]["copy"]
    assert sorted(path.name for path in kept.iterdir()) == ["mine.toml", "two.cu"]


def test_without_a_right_candidate(judge: Judge, folder: Path, tmp_path: Path) -> None:
    said = judge(task(tmp_path / "task"), "--rounds", folder, "--deadline", "0.05s")
    assert (said.code, said.out) == (3, "no candidate was right\n")
    assert not (folder / "best.json").exists()


def test_only_what_has_changed_is_judged_again(
    over: Judge, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = cuda(folder, name="mine.cu")
    judged = Rounds._judge
    texts = iter([mine.read_text(), CUDA.format(fault="wrong", block=64)])

    def judge_and_edit(self: Rounds, path: Path) -> None:
        judged(self, path)
        if (text := next(texts, None)) is None:
            monkeypatch.setattr(
                rounds, "time", SimpleNamespace(monotonic=lambda: float("inf"), sleep=time.sleep)
            )
        else:
            mine.write_text(text)

    monkeypatch.setattr(Rounds, "_judge", judge_and_edit)
    over("--quiet")
    assert [line["reason"] for line in log(folder)] == ["", "wrong_result", ""]


def test_after_a_judgement_that_failed_there_is_a_new_device(
    over: Judge, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda(folder, "unverified", name="a.cu")
    cuda(folder, name="b.cu")
    until(monkeypatch, folder, 2)
    said = over("--json")
    assert said.code == 0 and json.loads(said.out)["candidate"]["name"] == "b.cu"
    assert [line["judged"] for line in log(folder)] == ["failed", "right", "right"]
    assert len({line["seed"] for line in log(folder)}) == 3


def test_a_function_that_is_the_best_so_far_shares_no_process_with_another_candidate(
    over: Judge, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "a.py").write_text("def candidate(x, y): y.copy_(2 * x)\n")
    allowed: list[set[str]] = []

    @contextmanager
    def isolated(device: Device, readable: list[Path]) -> Iterator[Device]:
        allowed.append({str(path.relative_to(folder)) for path in readable if path.is_relative_to(folder)})
        yield device

    monkeypatch.setattr("tuner.studies.judging.judge.isolated", isolated)
    until(monkeypatch, folder, 2)
    looked = Rounds._candidates

    def one_after_the_other(self: Rounds) -> Iterator[Path]:
        if (folder / "a.py.verdict.json").exists() and not (folder / "b.cu").exists():
            cuda(folder, name="b.cu")
        return looked(self)

    monkeypatch.setattr(Rounds, "_candidates", one_after_the_other)
    over("--quiet")
    first, second, *_ = log(folder)
    assert allowed[0] == {first["candidate"]["copy"]} and second["candidate"]["copy"] not in allowed[1:]
    (versus,) = second["problems"][0]["modes"][0]["versus"]
    assert (versus["baseline"], versus["what"]) == ("best so far", "a.py, in a process of its own")
    assert versus["speedup"] == pytest.approx(
        first["problems"][0]["modes"][0]["time_ns"] / versus_time(second)
    )


def versus_time(line: dict[str, Any]) -> float:
    return float(line["problems"][0]["modes"][0]["time_ns"])


def test_what_is_slower_in_another_mode_is_not_better(
    over: Judge, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SCALE", "0.05")  # so short that warm times may differ
    cuda(folder, name="a.cu")
    cuda(folder, "coldonly", name="b.cu")
    os.utime(folder / "a.cu", (1, 1))
    until(monkeypatch, folder, 2)
    over("--quiet")
    modes = log(folder)[1]["problems"][0]["modes"]
    assert [mode["versus"][0]["verdict"] for mode in modes] == ["faster", "slower"]
    assert json.loads((folder / "best.json").read_text())["candidate"]["name"] == "a.cu"


@pytest.mark.parametrize("own", ["", "[]", '{"mine": 1}', "[" * 90_000])
def test_a_folder_where_rounds_write_is_named_at_once(
    judge: Judge, tmp_path: Path, folder: Path, own: str
) -> None:
    """What is there may be the user's own: only a verdict is removed."""
    best = folder / "best.json"
    if own:
        best.write_text(own)
    else:
        best.mkdir()
    file = task(tmp_path / "task")
    assert_refused(judge(file, "--rounds", folder, "--deadline", "1h"), 2, "best.json", "move it away")
    assert best.read_text() == own if own else best.is_dir()


def test_the_best_is_told_where_it_cannot_be_written(
    over: Judge, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda(folder, name="a.cu")
    until(monkeypatch, folder, 1)
    last = Rounds._last

    def in_the_way(self: Rounds) -> Verdict | None:
        (folder / "best.json").mkdir()
        return last(self)

    monkeypatch.setattr(Rounds, "_last", in_the_way)
    said = over()
    assert said.code == 0 and "a.cu: right" in said.out
    assert "the verdict is in judge.jsonl alone" in said.err and "the best is in" not in said.err


def test_stopped_by_ctrl_c(over: Judge, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cuda(folder, name="a.cu")
    monkeypatch.setattr(
        "tuner.cli.judge.stopping", lambda: nullcontext(lambda: (folder / "a.cu.verdict.json").exists())
    )
    said = over()
    assert (said.code, said.out) == (130, "") and "judge.jsonl" in said.err
    assert [line["judged"] for line in log(folder)] == ["right"]


def test_a_best_that_cannot_be_judged_once_more_is_not_called_wrong(
    over: Judge, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuda(folder, name="a.cu")
    until(monkeypatch, folder, 1)
    last = Rounds._last

    def without_room(self: Rounds) -> Verdict | None:
        monkeypatch.setenv("FAKE_SETUP", "refuse")
        self.judgement = self.reopened()
        return last(self)

    monkeypatch.setattr(Rounds, "_last", without_room)
    said = over("--json")
    assert (said.code, json.loads(said.out)["reason"]) == (1, "failed")
    assert "the best is in" not in said.err and not (folder / "best.json").exists()


def test_what_was_not_judged_may_come_again_and_a_folder_in_the_verdicts_place_ends_nothing(
    over: Judge, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, judged = cuda(folder, "unverified", name="a.cu"), Rounds._judge
    (folder / "a.cu.verdict.json").mkdir()  # a candidate, too

    def judge_and_touch(self: Rounds, path: Path) -> None:
        judged(self, path)
        os.utime(mine, (1, 1))
        if len(log(folder)) == 3:
            monkeypatch.setattr(
                rounds, "time", SimpleNamespace(monotonic=lambda: float("inf"), sleep=time.sleep)
            )

    monkeypatch.setattr(Rounds, "_judge", judge_and_touch)
    said = over()
    assert sorted(line["reason"] for line in log(folder)) == ["unreadable", "unverified", "unverified"]
    assert "the verdict is in judge.jsonl alone" in said.err


def test_files_that_change_places_are_another_candidate(tmp_path: Path) -> None:
    for name, texts in (("one", "12"), ("other", "21")):
        for inner, text in zip("ab", texts, strict=True):
            (tmp_path / name / inner).mkdir(parents=True)
            (tmp_path / name / inner / "x.h").write_text(text)
    assert content_digest(tmp_path / "one") != content_digest(tmp_path / "other")


def test_the_function_of_a_kernels_file_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def twice(x, y): ...\n")
    (tmp_path / "mine.toml").write_text('[variants.mine]\ncall = "mine.py:twice"\n')
    kernel = load_kernel(str(task(tmp_path / "task")))
    readable = readable_for(kernel, candidate_kernel(kernel, str(tmp_path / "mine.toml")), ())
    assert {tmp_path / "mine.py", tmp_path / "mine.toml"} <= set(readable)


def test_what_a_baseline_imports_from_beside_a_candidate_can_be_read_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    texts = {
        "right.py": "import numpy\nfrom near import twice\nimport pack.deep\n\ndef y(x): return twice(x)\n",
        "near.py": "import far, near\n\ndef twice(x): return 2 * x\n",
        "far.py": "import numpy as pack",
        "pack/deep.py": "import under",
        "under.py": "",
        "other.py": "def candidate(x, y): ...\n",
        "mine.py": "def candidate(x, y): ...\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    file = task(tmp_path)
    file.write_text(file.read_text().replace('numpy = "2 * x"', 'python = "secret.py:y"'))
    (tmp_path / "secret.py").write_text("def y(x): return 2 * x")
    kernel = load_kernel(str(file))
    baselines = choose_against(kernel, [f"{tmp_path}/right.py:y"]).baselines
    readable = readable_for(kernel, candidate_kernel(kernel, str(tmp_path / "mine.py")), baselines)
    found = {str(path.relative_to(tmp_path)) for path in readable}
    assert found == {"mine.py", "right.py", "near.py", "far.py", "pack", "under.py"}


def test_links_lead_nowhere(
    judge: Judge, over: Judge, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither is what they lead to read into the folder, nor is it written over."""
    secrets, mine = tmp_path / "secrets", cuda(folder, name="mine.cu")
    secrets.mkdir()
    (secrets / "key").write_text("key")
    (folder / "more").symlink_to(secrets)
    planted = folder / "judged" / content_digest(mine)[:16]
    planted.mkdir(parents=True)
    (planted / "mine.cu").symlink_to(secrets / "key")
    place = os.open(folder, os.O_RDONLY)
    for name in ("deep", *["a"] * 1200):
        os.mkdir(name, dir_fd=place)
        inner = os.open(name, os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = inner
    os.close(place)
    (folder / "a\nmine.cu: right, faster.cu").write_text("none")
    until(monkeypatch, folder, 4)
    try:
        said = over()
    finally:
        subprocess.run(["rm", "-rf", folder / "deep"], check=True)  # Python's own way is not deep enough
    verdicts = {line["candidate"]["name"]: line["judged"] for line in log(folder)}
    assert (verdicts["mine.cu"], verdicts["more"], verdicts["deep"]) == ("right", "refused", "refused")
    assert (secrets / "key").read_text() == "key" and (planted / "mine.cu").read_bytes() == mine.read_bytes()
    assert not list((folder / "judged").rglob("key"))
    assert "mine.cu: right, faster.cu" not in said.err.splitlines()[0] and "a\\nmine" in said.err
    (folder / "judge.jsonl").unlink()
    (folder / "judge.jsonl").symlink_to(secrets / "key")
    refused = judge(tmp_path / "task" / "scale.toml", "--rounds", folder, "--deadline", "1h")
    assert refused.code == 2 and "move it away" in refused.err and (secrets / "key").read_text() == "key"


def test_a_best_whose_copy_was_changed_is_none(
    over: Judge, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cuda(folder, name="a.cu")
    answered = Rounds._answer

    def answer(self: Rounds, path: Path, verdict: Verdict) -> None:
        answered(self, path, verdict)
        if path == first:
            (folder / verdict.candidate.copy / "a.cu").write_text("slower")
            cuda(folder, name="b.cu", block=128)

    monkeypatch.setattr(Rounds, "_answer", answer)
    until(monkeypatch, folder, 2)
    over("--quiet")
    assert json.loads((folder / "b.cu.verdict.json").read_text())["problems"][0]["modes"][0]["versus"] == []
    assert json.loads((folder / "best.json").read_text())["candidate"]["name"] == "b.cu"
