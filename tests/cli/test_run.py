"""``tune run`` as a user meets it: what it answers, and how it ends."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Tune, assert_one_line, said_by
from tests.faults.kernels import write_kernel, write_synthetic_recording
from tuner.children.headers import missing
from tuner.cli import doctor
from tuner.core.errors import Interrupted
from tuner.kernel.load import load_kernel
from tuner.tuning.request import Request
from tuner.tuning.state import Result

pytestmark = pytest.mark.usefixtures("forked_children")

ROOT = Path(__file__).resolve().parents[2]
SMALL = ("--kernel", "vector_add", "--size", "n=2**20", "--trials", "12")


def test_a_size_beside_a_preset_takes_its_place_and_that_is_said(tune: Tune) -> None:
    said = tune("--kernel", "vector_add", "--preset", "large", "--size", "n=2**20", "--trials", "2")
    assert said.code == 0
    assert "tune: n=1048576 in place of n=268435456 of the preset large\n" in said.err
    said = tune(
        "--kernel", "vector_add", "--preset", "small", "--size", "n=2**20", "--trials", "2", "--from-scratch"
    )
    assert said.code == 0 and "in place of" not in said.err


def test_the_tutorials_kernel_is_replayed_before_it_has_its_second_variant(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    example = ROOT / "docs" / "examples" / "rms_norm"
    (tmp_path / "rms_norm.cu").write_text((example / "rms_norm.cu").read_text())
    text = (example / "rms_norm.toml").read_text()
    (tmp_path / "rms_norm.toml").write_text(text[: text.index("[variants.vectors")])
    recording = ROOT / "results" / "recorded" / "rms_norm-H100_80GB_HBM3.json.gz"
    said = said_by(
        capsys, "run", str(tmp_path / "rms_norm.toml"), "--trials", "3", "--device", f"replay:{recording}",
        "--db", str(tmp_path / "tuning.db"),
    )  # fmt: skip
    assert said.code == 0, said.err
    assert "winner     warp" in said.out


def test_a_problem_that_names_what_holds_for_all_says_so(tune: Tune, tmp_path: Path) -> None:
    quick = ("--kernel", "vector_add", "--trials", "2", "--size", "n=2**20", "--dtype", "float32")
    said = tune(*quick, "--problem", "n=1048576,dtype=fp32")
    assert said.code == 0 and "does not hold" not in said.err
    (tmp_path / "p.csv").write_text("n,dtype\n1048576,float16\n268435456,float32\n268435456,\n")
    said = tune(*quick, "--problems", str(tmp_path / "p.csv"))
    for option, name in (("--size n=1048576", "n"), ("--dtype float32", "dtype")):
        assert said.err.count(f"tune: {option} does not hold for a problem that names its own {name}\n") == 1


def test_main_job(tune: Tune, tmp_path: Path) -> None:
    said = tune(*SMALL)
    assert said.code == 0, said.err
    assert "winner" in said.out
    assert "[replayed]" in said.out
    assert "default" in said.out
    assert (tmp_path / "results" / "tuning.db").is_file()
    with sqlite3.connect("results/tuning.db") as connection:
        assert connection.execute("SELECT count(*), min(replayed) FROM trials").fetchone() == (12, 1)


def test_json(tune: Tune) -> None:
    said = tune(*SMALL, "--json", "--quiet")
    assert said.err == ""
    (found,) = json.loads(said.out)
    assert found["replayed"] is True
    assert found["stats"]["trials"] == 12
    assert found["winner"]["time_ns"] > 0


def test_stop_auto(tune: Tune) -> None:
    said = tune("--kernel", "vector_add", "--size", "n=2**20", "--stop", "auto", "--json", "--quiet")
    assert said.code == 0, said.err
    (found,) = json.loads(said.out)
    stopped = found["stats"]["stopped"]
    assert stopped["expected"] < stopped["noise_floor"] and found["stats"]["trials"] < 150
    with sqlite3.connect("results/tuning.db") as connection:
        (narrowing,) = connection.execute("SELECT narrowing FROM runs").fetchone()
    assert json.loads(narrowing)["stop_early"] is True


def test_stop_auto_needs_the_default_sampler(tune: Tune) -> None:
    said = tune(*SMALL, "--stop", "auto", "--sampler", "tpe")
    assert_one_line(said, "sampler tpe does not say what it expects", "leave out --stop auto")


def test_several_problems_in_one_command(tune: Tune, tmp_path: Path) -> None:
    (tmp_path / "sizes.csv").write_text("\ufeffn, dtype\n2**21, float32\n\n 4194304 ,\n", encoding="utf-8")
    said = tune(
        "--kernel", "vector_add", "--problem", "n=2^20", "--problems", "sizes.csv", "--trials", "5", "--json", "-q"
    )  # fmt: skip
    assert said.code == 0, said.err
    assert [found["problem"]["sizes"]["n"] for found in json.loads(said.out)] == [2**20, 2**21, 2**22]


def test_narrowing(tune: Tune) -> None:
    said = tune(
        *SMALL, "--variant", "vectorized", "--fix", "load_hint=none", "--fix", "block_size=64,128,256", "-q"
    )
    assert said.code == 0, said.err
    with sqlite3.connect("results/tuning.db") as connection:
        rows = connection.execute("SELECT variant, configuration FROM trials").fetchall()
    assert {variant for variant, _ in rows} == {"vectorized"}
    assert {json.loads(text)["load_hint"] for _, text in rows} == {"none"}


def test_initial_configurations(tune: Tune) -> None:
    said = tune(*SMALL, "--json", "--quiet", "--initial", "none")
    (found,) = json.loads(said.out)
    assert found["stats"]["seeds"] == {}
    with sqlite3.connect("results/tuning.db") as connection:
        (narrowing,) = connection.execute("SELECT narrowing FROM runs").fetchone()
    assert json.loads(narrowing)["seeds"] == "none"
    assert tune(*SMALL, "--initial", "some").code == 2


def test_nothing_verified_ends_with_1(tune: Tune, tmp_path: Path) -> None:
    kernel = load_kernel("vector_add")
    path = tmp_path / "bad.json.gz"
    write_synthetic_recording(path, kernel, [kernel.problem({"n": 2**20})], 20, failing=True)
    said = tune(*SMALL, "-q", "--db", "my results.db", device=f"replay:{path}")
    assert said.code == 1
    assert (
        "no configuration could be verified; 12 of 12 ended as wrong_result: c[5] is 1, expected 2"
        in said.err
    )
    assert "tune trials 1 --db 'my results.db'" in said.err
    assert "Traceback" not in said.err


@pytest.mark.skipif(any(Path("/dev").glob("nvidia[0-9]*")), reason="there is a GPU here")
def test_without_a_gpu_it_says_so(tune: Tune) -> None:
    assert_one_line(tune(*SMALL, device="cuda"), "no NVIDIA GPU", "without --device cuda")
    for name in ("linear", "softmax"):  # of the latter only the example is recorded
        said = tune(name, device="cuda")
        assert_one_line(said, "`tune explain`", "`tune check`")
        assert "without --device" not in said.err
    said = tune("--kernel", "vector_add", "--trials", "5", device="")
    if said.code == 0:
        assert "no NVIDIA GPU here: replaying what an" in said.err
        assert "--device cuda" in said.err
    else:
        assert_one_line(said, "no NVIDIA GPU")


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (("--kernel", "reduce", "--size", "n=2**29"), "--size n=2**28"),
        (("--kernel", "transform", "--dtype", "float32"), "--size n=2**24 --dtype float16"),
        (
            ("--kernel", "gemm", "--dtype", "float32", "--size", "m=8192"),
            "--size m=4096,n=4096,k=4096 --dtype float32",
        ),
    ],
)
def test_what_is_not_recorded_names_the_options_of_the_nearest(
    tune: Tune, arguments: tuple[str, ...], remedy: str
) -> None:
    said = tune(*arguments, "-q", "--trials", "2", device="replay")
    assert said.code == 1
    assert re.search(r"; take the nearest of \d \(tune show \w+ lists them\): ", said.err)
    assert said.err.endswith(f": {remedy}\n")
    assert said.err.count(f"{arguments[1]} ") == 2  # the problem, and tune show
    assert shlex.split(remedy)[1] in " ".join(tune("show", arguments[1], device="").out.split())
    assert tune(*arguments[:2], *shlex.split(remedy), "-q", "--trials", "2", device="replay").code == 0


def test_a_recording_without_the_default_size_replays_the_nearest(tune: Tune) -> None:
    said = tune("--kernel", "transform", "--trials", "2", "--json", device="replay")
    assert said.code == 0
    assert json.loads(said.out)[0]["problem"]["sizes"] == {"n": 2**24}
    assert "instead" in said.err


SEVERAL = ("--kernel", "vector_add", "--problem", "n=2**20", "--problem", "n=77", "--problem", "n=2**21")


def test_one_problem_that_fails_does_not_end_the_others(tune: Tune) -> None:
    said = tune(*SEVERAL, "--trials", "5", "-q", "--json")
    assert said.code == 1
    found = json.loads(said.out)
    assert [one["problem"]["sizes"]["n"] for one in found] == [2**20, 77, 2**21]
    assert [("winner" in one, "error" in one) for one in found] == [
        (True, False),
        (False, True),
        (True, False),
    ]
    line, count = said.err.splitlines()
    assert count == "tune: 1 of 3 problems have no winner"
    assert line.startswith("tune: vector_add n=77")
    assert "does not hold" in line and "--size n=2**20" in line


def test_a_kernel_file_in_this_folder_is_suggested(tune: Tune, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").touch()
    assert_one_line(tune("run", "--kernel", "mine"), "./mine.toml")
    assert_one_line(tune("mine"), "did you mean mine.toml?")


def test_another_kernel_of_a_recorded_name_is_refused_before_anything_is_said_of_the_recording(
    tune: Tune, tmp_path: Path
) -> None:
    for file in (ROOT / "docs/examples/matmul").glob("matmul.[ct]*"):
        (tmp_path / file.name).write_text(
            file.read_text().replace("a @ b", "2 * a @ b").replace("2048", "64")
        )
    said = tune("--kernel", "matmul.toml", device="replay")
    assert_one_line(said, "nothing is recorded for this matmul", "matmul.toml, which differs in reference;")
    assert_one_line(
        tune("softmax", device="replay"), "nothing is recorded", "docs/examples/softmax/softmax.toml"
    )


def test_a_kernel_of_a_built_in_name_has_no_recording_and_needs_a_gpu(tune: Tune, tmp_path: Path) -> None:
    text = (ROOT / "search_spaces" / "saxpy.toml").read_text()
    templates = ROOT / "templates" / "saxpy"
    text = text.replace('template = "', f'template = "{templates.parent}/').replace("a * x + y", "a * x - y")
    (tmp_path / "mine.toml").write_text(text)
    said = tune("--kernel", "./mine.toml", device="replay")
    assert_one_line(
        said, "nothing is recorded for", "mine.toml", "is of the built-in kernel", "with a GPU", "tune check"
    )


def test_json_of_what_is_finished_when_stopped(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    from tuner.tuning import session

    real = session.tune

    def stopped(request: Request, *others: Any) -> Result:
        if request.problem.sizes["n"] == 2**21:
            raise Interrupted("stopped after 0 of 5 trials", "go on with --resume")
        return real(request, *others)

    monkeypatch.setattr(session, "tune", stopped)
    problems = (f"--problem=n={n}" for n in (2**20, 2**21, 2**22))
    said = tune("--kernel", "vector_add", *problems, "--trials", "5", "-q", "--json")
    assert said.code == 130
    assert [found["problem"]["sizes"]["n"] for found in json.loads(said.out)] == [2**20]
    assert said.err.splitlines() == ["tune: stopped after 0 of 5 trials; go on with --resume"]


def test_resume_begins_what_never_began(tune: Tune) -> None:
    """The first is done, the second failed before it began, and nothing was interrupted."""
    assert tune("--kernel", "vector_add", "--problem", "n=2**20", "--trials", "5", "-q").code == 0
    said = tune(
        *(word.replace("77", "2**22") for word in SEVERAL), "--trials", "5", "-q", "--json", "--resume"
    )
    assert said.code == 0, said.err
    assert [found["problem"]["sizes"]["n"] for found in json.loads(said.out)] == [2**22, 2**21]
    assert said.err == ""
    said = tune(*(word.replace("77", "2**22") for word in SEVERAL), "--trials", "5", "-q", "--resume")
    assert_one_line(said, "no interrupted run of any of the 3 problems", "leave out --resume")


def test_resume_says_which_options_are_not_heeded(tune: Tune) -> None:
    assert tune(*SMALL, "-q").code == 0
    with sqlite3.connect("results/tuning.db") as connection:
        connection.execute("UPDATE runs SET state = 'interrupted'")
    said = tune(*SMALL, "--seed", "3", "--fix", "block_size=64", "-q", "--resume")
    assert said.err.splitlines() == ["tune: a resumed run keeps its own --trials, --seed, --fix"]


def test_show_says_how_large_the_space_is(tune: Tune, tmp_path: Path) -> None:
    said = tune("show", "reduce", "--json", device="")
    data = json.loads(said.out)
    sizes = [variant["space"] for variant in data["variants"] if "valid" in variant["space"]]
    assert data["space"]["valid"] == sum(size["valid"] for size in sizes) > 0
    assert data["space"]["before"] == sum(size["before"] for size in sizes)
    assert (
        f"{data['space']['valid']} valid of {data['space']['before']}"
        in tune("show", "reduce", device="").out
    )
    extra = '[variants.plain.constraints]\n"blocks are enormous" = "block_size > 4096"\n'
    said = tune("show", str(write_kernel(tmp_path / "own", extra=extra)), device="")
    assert said.code == 1
    assert "plain  (0 valid of 16: no combination meets 'blocks are enormous')" in said.out
    assert "no configuration is valid" in said.err


def test_show_of_a_variant_has_nothing_of_the_others(tune: Tune) -> None:
    whole, one = (
        tune("show", "gemm", "--full", device="").out,
        tune("show", "gemm", "--variant", "tiled", device="").out,
    )
    assert "\nwgmma  (" in whole
    assert "wgmma" not in one and "  rows_per_thread " in one
    left_out = tune("show", "gemm", "--variant", "small_k", device="")
    assert left_out.code == 0
    for parameter in ("  tensor_cores ", "  small_k_bytes = "):  # said only where it is asked for
        assert parameter in left_out.out and parameter not in whole
    assert "  small_k: needs k of at most 32" in whole.splitlines()
    assert_one_line(tune("show", "gemm", "--variant", "wgma", device=""), "did you mean wgmma?")


def test_show_of_several_variants_is_a_page_and_names_the_rest(tune: Tune) -> None:
    lines = tune("show", "gemm", device="").out.splitlines()
    variants = load_kernel("gemm").variants
    assert {line.split()[0] for line in lines if line.startswith("  ")} >= set(variants)
    assert len(lines) < 100 and not any("prefetch" in line for line in lines)
    assert lines[-1].endswith("tune show gemm --variant NAME, or --full")


@pytest.mark.parametrize(
    ("folder", "state", "detail"),
    [
        ("new/folder", "ok", "new/folder/kernel-tune"),
        ("file", "note", "file/kernel-tune: Not a directory: nothing"),
        ("/proc/x", "note", "/proc/x/kernel-tune cannot be written (No such file or directory)"),
    ],
)
def test_doctor_tries_to_write_to_the_cache(
    tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, state: str, detail: str
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / folder))
    before = sorted(tmp_path.rglob("*"))
    findings = json.loads(tune("doctor", "--json", device="").out)
    (cache,) = [found for found in findings if found["what"] == "cache"]
    assert cache["state"] == state
    assert detail in cache["detail"]
    assert bool(cache["remedy"]) == (state == "note")
    assert sorted(tmp_path.rglob("*")) == before


def test_doctor_says_where_a_toolkit_that_is_named_is_none(
    tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    findings = json.loads(tune("doctor", "--json", device="").out)
    (headers,) = (one for one in findings if one["what"] == "headers")
    assert (
        headers["state"] == "note"
        and f"a folder without {tmp_path / 'include' / 'cuda.h'}" in headers["detail"]
    )


@pytest.mark.parametrize("lacks", ["", "nv/target", "cub/block/block_reduce.cuh"])
def test_doctor_says_which_headers_are_missing(
    tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    folder = tmp_path / (lacks or "all").replace("/", "_")
    for name in {*missing((tmp_path / "none",))} - {lacks}:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    monkeypatch.setattr("tuner.cli.doctor.header_folders", lambda: (folder,))
    findings = json.loads(tune("doctor", "--json", device="").out)
    (found,) = [found for found in findings if found["what"] == "headers"]
    assert found["state"] == ("note" if lacks else "ok")
    assert lacks in found["detail"] and bool(found["remedy"]) == bool(lacks)


def test_a_machine_that_can_replay_is_no_failure(tune: Tune, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.cli.doctor.has_gpu", lambda: False)
    said = tune("doctor", device="")
    assert said.code == 0 and "only a GPU is missing: recordings can be replayed" in said.err
    monkeypatch.setattr(
        "tuner.cli.doctor._nvrtc", lambda: (doctor._missing("NVRTC", "none", "install it"), "")
    )
    assert tune("doctor", device="").code == 1
