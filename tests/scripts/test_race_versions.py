"""scripts/race_versions.py: which configurations meet, with which templates, and what is said of their times."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.faults.bench_device import GPU, BenchDevice
from tuner.children.compile_pool import CompilePool
from tuner.children.measuring import CandidateContestant
from tuner.devices.base import Contestant, RaceRequest, RaceResult
from tuner.devices.requests import Requests
from tuner.kernel.load import load_kernel
from tuner.kernel.render import render
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.spec import KernelSpec
from tuner.kernel.validity import invalid_reason

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import pages
import race_versions
from page_figures import evidence
from shape_notes import Problem, Shape
from version_matches import Matches, in_terms_of, loaded_from, translated, tuned

EARLIER = """
[kernel]
name = "gemm"
[problem]
sizes = { m = 64, n = 64, k = 64 }
dtypes = { input = ["float16", "bfloat16"], accumulate = "float32", output = "input" }
options = { layout = ["nn", "nt"] }
[tensors]
a = { shape = ["m", "k"], dtype = "input" }
b = { shape = ["k", "n"], dtype = "input", transposed = "layout == 'nt'" }
c = { shape = ["m", "n"], dtype = "output", role = "output" }
[reference]
numpy = "a @ b"
reduction = "k"
[work]
flops = "2 * m * n * k"
bytes = "(m * k + k * n + m * n) * itemsize(input)"
[variants.naive.parameters]
block_x = { values = [32, 64], default = 32 }
unroll = { values = [1, 4], default = 1 }
[[variants.naive.launches]]
template = "gemm/naive.cu.j2"
entry = "earlier"
arguments = ["a", "b", "c", "m", "n", "k"]
grid = ["m", "n"]
block = ["block_x"]
"""
TEMPLATE = """{% include 'common/types.cuh.j2' %}
extern "C" __global__ void earlier(const void*, const void*, void*, int, int, int) { int x = {{ block_x }}; (void)x; }
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "earlier"
    for name, text in (
        ("search_spaces/gemm.toml", EARLIER),
        ("templates/gemm/naive.cu.j2", TEMPLATE),
        ("templates/common/types.cuh.j2", "// types of then\n"),
    ):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


@pytest.fixture
def earlier(checkout: Path, tmp_path: Path) -> KernelSpec:
    return loaded_from(checkout, tmp_path / "copy")


def won(tmp_path: Path, *keys: str, **parameters: int) -> Path:
    """Write a file of `gemm_shapes.py` with the same winner for all problems."""
    problems = []
    for key in keys:
        problem = Problem.parse(key)
        search = {"variant": "naive", "parameters": parameters}
        race = {"ours": {"time_ns": 5000.0}}
        identity = {**vars(problem.shape), "dtype": problem.dtype, "layout": problem.layout}
        problems.append({**identity, "search": search, "race": race})
    file = tmp_path / "won.json"
    file.write_text(json.dumps({"problems": problems}))
    return file


class Versions(BenchDevice):
    """Answers a race by which version a contestant is of."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ns = {"cold": 1000.0, "warm": 1000.0}
        self.raced: list[str] = []

    def race(self, request: RaceRequest) -> RaceResult:
        mode = request.mode or self.conditions.mode
        self.raced.append(f"{self.timed[-1][0].sizes['m']} {mode}")
        earlier = [
            one.kernel is not None and one.kernel.variants.keys() == {"naive"} for one in request.contestants
        ]
        times = [1000.0 if then else self.now_ns[str(mode)] for then in earlier]
        return RaceResult([[[ns + turn % 2] for ns in times] for turn in range(request.rounds)])


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Versions:
    device = Versions()
    monkeypatch.setattr(race_versions, "open_device", lambda *_: device)
    monkeypatch.setattr(race_versions, "compiled", lambda *_: {})
    return device


def test_parameters_have_the_names_of_today() -> None:
    kernel = load_kernel("gemm")
    then = {
        "left_side": "b",
        "epilogue": "at_once",
        "spare_sms": 4,
        "gathered": True,
        "group": 8,
        "block_m": 192,
    }
    now = translated(kernel, "wgmma", then).values
    assert (now["swap_ab"], now["epilogue"], now["sm_margin"]) == (True, "serial", 4)
    assert (now["gpc_locality"], now["raster_group"], now["block_m"]) == (True, 8, 192)
    parts = translated(kernel, "wgmma_split_k", {"split_k": 2, "grid_k": 4})
    assert (parts.values["cluster_k"], parts.values["split_k"]) == (2, 4)
    assert translated(kernel, "wgmma_split_k", parts.values) == parts
    assert translated(kernel, "wgmma_few_rows", {}).variant == "wgmma_skinny_m"


def test_templates_of_then_win_over_those_of_the_package(earlier: KernelSpec) -> None:
    problem = earlier.problem()
    ((source, entry),) = render(earlier, problem, GPU, translated(earlier, "naive", {"block_x": 64}))
    assert entry == "earlier" and "types of then" in source and "int x = 64" in source


def test_a_problem_that_was_not_tuned_takes_its_layouts_winner(earlier: KernelSpec, tmp_path: Path) -> None:
    file = won(tmp_path, "bfloat16-64x64x64", "bfloat16-64x64x64-nt", block_x=64)
    new = load_kernel("gemm")
    matches = Matches(earlier, new, GPU, tuned([file]), {})
    found = matches.of(Problem.parse("float16-64x64x64-nt"))
    assert (found.taken_from, found.known_ns) == ("bfloat16-64x64x64-nt", 5000.0)
    old, now = found.entries
    assert old.configuration.values == {"block_x": 64, "unroll": 1}
    assert now.configuration.values["block_x"] == 64 and now.kernel is new
    assert not invalid_reason(new, in_terms_of(new, found.problem), GPU, now.configuration)
    assert matches.of(Problem.parse("bfloat16-64x64x64")).taken_from == ""
    unknown = matches.of(Problem(Shape(32, 32, 32), "float16"))
    assert not unknown.entries and "tuned" in unknown.error


def test_configurations_by_hand(earlier: KernelSpec) -> None:
    by_hand = ("naive block_x=64", "naive block_x=128 unroll=8")
    found = Matches(earlier, load_kernel("gemm"), GPU, {}, {}, by_hand).of(
        Problem(Shape(32, 32, 32), "float16")
    )
    assert [entry.configuration.values["block_x"] for entry in found.entries] == [64, 128]


def test_what_is_slower_beyond_the_noise_is_told(
    checkout: Path,
    tmp_path: Path,
    device: Versions,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = won(tmp_path, "float16-64x64x64", "float16-32x32x32")
    words = ["--old", str(checkout), "--winners", str(file), "--work", str(tmp_path / "work")]
    words += ["--out", str(tmp_path / "out"), "--only", "float16-64x64x64,float16-32x32x32"]
    assert race_versions.main(words) == 0
    assert device.raced == ["32 cold", "32 warm", "64 cold", "64 warm"]  # quick ones first
    assert len(device.timed) == 2  # both modes on the same data
    device.raced.clear()
    assert race_versions.main(words) == 0 and not device.raced  # nothing twice
    assert race_versions.main([*words, "--rounds", "20", "--modes", "own"]) == 0
    assert device.raced == ["32 cold", "64 cold"]  # unless in more rounds, or once it has changed
    template = checkout / "templates/gemm/naive.cu.j2"
    template.write_text(template.read_text().replace("int x =", "int y = 1, x ="))
    assert race_versions.main([*words, "--rounds", "20", "--only", "float16-32x32x32"]) == 0
    assert device.raced[2:] == ["32 cold", "32 warm"]
    device.now_ns = {"cold": 995.0, "warm": 1100.0}
    assert race_versions.main([*words, "--work", str(tmp_path / "other")]) == 1
    text = (tmp_path / "out" / "gemm-versions.txt").read_text()
    assert text.count("  SLOWER") == 2 and "slower beyond the noise: 0 of 2" in text
    rows = json.loads((tmp_path / "out" / "gemm-versions.json").read_text())["rows"]
    assert rows["float16-64x64x64 warm"]["ratios"]["new"]["verdict"] == "slower"
    assert rows["float16-64x64x64 own"]["ratios"]["new"]["median"] == pytest.approx(1000 / 995, abs=1e-4)
    capsys.readouterr()
    monkeypatch.setattr(evidence, "FOLDER", tmp_path / "out")
    assert (
        "| float16 | nn | back to back | 2 | 0.909 | 0.909 to 0.909 | 2 |" in pages.FIGURES["gemm-versions"]()
    )


def test_what_won_now_runs_beside_both_and_may_save_a_slower_one(
    checkout: Path, tmp_path: Path, device: Versions
) -> None:
    file = won(tmp_path, "float16-64x64x64")
    words = ["--old", str(checkout), "--winners", str(file), "--found", str(file), "--modes", "own"]
    words += ["--work", str(tmp_path / "work"), "--only", "float16-64x64x64", "--out", str(tmp_path)]
    assert race_versions.main(words) == 0
    (row,) = json.loads((tmp_path / "gemm-versions.json").read_text())["rows"].values()
    assert row["ratios"].keys() == {"new", "found"} == row["configurations"].keys() - {"old"}
    row["ratios"]["new"]["verdict"] = "slower"
    assert not race_versions.slower(row)


def test_defaults_of_variants(checkout: Path, tmp_path: Path, device: Versions) -> None:
    words = ["--old", str(checkout), "--variants", "all", "--only", "float16-64x64x64,float16-32x32x32-nt"]
    words += ["--work", str(tmp_path / "work"), "--out", str(tmp_path), "--modes", "own"]
    assert race_versions.main(words) == 0
    rows = json.loads((tmp_path / "gemm-versions.json").read_text())["rows"]
    assert rows.keys() == {"float16-64x64x64 naive own", "float16-32x32x32-nt naive own"}
    assert rows["float16-64x64x64 naive own"]["configurations"]["old"] == "naive block_x=32 unroll=1"
    assert "\nfloat16-64x64x64 naive " in (tmp_path / "gemm-versions.txt").read_text()


def test_a_configuration_that_is_not_valid_is_told(
    checkout: Path, tmp_path: Path, device: Versions, capsys: pytest.CaptureFixture[str]
) -> None:
    file = won(tmp_path, "float16-64x64x64", block_x=31)
    words = ["--old", str(checkout), "--winners", str(file), "--work", str(tmp_path / "work")]
    assert race_versions.main([*words, "--only", "float16-64x64x64"]) == 1
    assert "float16-64x64x64: old: naive block_x=31" in capsys.readouterr().err
    assert not device.raced


def test_nothing_is_begun_when_the_time_is_over(
    checkout: Path, tmp_path: Path, device: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 1.0, 100.0])
    monkeypatch.setattr(race_versions.time, "monotonic", lambda: next(clock))
    file = won(tmp_path, "float16-64x64x64")
    words = ["--old", str(checkout), "--winners", str(file), "--work", str(tmp_path / "work")]
    race_versions.main([*words, "--only", "float16-64x64x64", "--seconds", "50"])
    assert device.raced == ["64 cold"]


def test_everything_compiles_without_a_gpu(
    checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = won(tmp_path, "float16-64x64x64")
    words = ["--old", str(checkout), "--winners", str(file), "--work", str(tmp_path / "work"), "--jobs", "1"]
    words += ["--only", "float16-64x64x64", "--compile"]
    assert race_versions.main(words) == 0
    assert "1 of 1 pairs compile" in capsys.readouterr().out
    (checkout / "templates/gemm/naive.cu.j2").write_text("{% if %}")
    assert race_versions.main(words) == 1
    (checkout / "templates/gemm/naive.cu.j2").write_text(TEMPLATE.replace("int x", "it x"))
    assert race_versions.main(words) == 1
    assert '"it" is undefined' in capsys.readouterr().err


def test_a_contestant_of_another_version_is_compiled_from_that(earlier: KernelSpec) -> None:
    new, gpu = load_kernel("gemm"), ARCHITECTURES[90]
    problem, configuration = earlier.problem(), translated(earlier, "naive", {})
    pool = CompilePool(1, None)
    try:
        contestant = Contestant(configuration, kernel=earlier)
        (asked,) = Requests(new, gpu, pool).contestants([contestant], problem)
    finally:
        pool.close()
    assert isinstance(asked, CandidateContestant)
    assert asked.candidate.entries == ("earlier",) and asked.required
