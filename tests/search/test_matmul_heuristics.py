"""Initial configurations from NVIDIA's matmul heuristics: a fake package, and the real one where it is installed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.faults.kernels import configuration, scale_kernel, write_kernel
from tests.faults.stub_device import StubDevice, Watcher
from tests.sessions import request_of
from tuner.core.errors import KernelError, TunerError, UsageError
from tuner.core.model import Configuration, Gpu, Problem
from tuner.database.database import Database
from tuner.kernel.load import load_kernel, read_kernel
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec
from tuner.report.summary import summary
from tuner.search import matmul_heuristics
from tuner.search.initial import gather
from tuner.search.matmul_heuristics import MAX_PROPOSALS, propose, similar_gpu
from tuner.tuning.session import tune
from tuner.tuning.state import Result

H200 = ARCHITECTURES[90]

HEURISTICS = """
[heuristics.matmul]
when = "n > 2"
sizes = { m = "n", n = "2 * n", k = 64 }
transposed = { b = "order == 'down'" }
dtypes = { input = "input", accumulate = "float32", output = "input" }

[[heuristics.matmul.into]]
variant = "plain"
when = "parts_of_k == 1"
parameters = { block_size = "cta_m", items = "load_stages" }
"""

FAKE_PACKAGE = '''
"""Answers as the real one does, from answers.json; and writes down what it was asked."""
import enum
import json
import os
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent


class Kernel:
    cta_tile_m = cta_tile_n = cta_tile_k = warp_tile_m = warp_tile_n = warp_tile_k = 64
    stages, split_k, cluster_m, cluster_n, swizzle_factor, cta_order = 4, 1, 1, 1, 1, 0


class Words:
    def __class_getitem__(cls, name):
        return name


NvMatmulHeuristicsMatmulLayout = NvMatmulHeuristicsTarget = NvMatmulHeuristicsNvidiaGpu = Words


class NvMatmulHeuristicsFlags:
    PERF_MODEL_BASED_AUTO_TUNING = 8


class NvMatmulHeuristicsInterfaceEx:
    def __init__(self, backend, flags, gpu):
        self.asked = {"backend": backend, "flags": flags, "gpu": gpu}

    def makeNvMatmulHeuristicsProblem(self, m, n, k, layout):
        return {"m": m, "n": n, "k": k, "layout": layout}

    def get(self, problem, count, precision):
        answers = json.loads((HERE / "answers.json").read_text())
        (HERE / "asked.json").write_text(json.dumps({**self.asked, **problem, "count": count, "precision": precision}))
        if answers == "crash":
            os.abort()
        if answers == "hang":
            time.sleep(60)
        if answers == "raise":
            raise RuntimeError("no kernel\\nfor this")
        print("chatter on standard output")
        found = []
        for runtime, changes in answers[:count]:
            kernel = Kernel()
            kernel.__dict__.update(changes)
            found.append({"kernel": kernel, "runtime": runtime})
        return found

    def __del__(self):
        os.abort()
'''

Answer = Callable[[Any], Path]


@pytest.fixture
def answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Answer:
    """Install a fake package that gives these answers."""
    folder = tmp_path / "site" / "nvMatmulHeuristics"

    def give(answers: Any) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").write_text(FAKE_PACKAGE)
        (folder / "answers.json").write_text(json.dumps(answers))
        monkeypatch.syspath_prepend(str(folder.parent))
        monkeypatch.setattr(matmul_heuristics, "installed", lambda: True)
        return folder / "asked.json"

    return give


@pytest.fixture
def kernel(tmp_path: Path) -> KernelSpec:
    return scale_kernel(tmp_path / "kernel", extra=HEURISTICS, items=(1, 2, 4, 8))


def proposed(kernel: KernelSpec, gpu: Gpu = H200, **problem: Any) -> list[Configuration]:
    asked = kernel.problem(**problem)
    return propose(kernel, asked, gpu, SearchSpace.from_kernel(kernel, asked, gpu))


# -- the kernel's file


def test_the_table_does_not_separate_results(tmp_path: Path, kernel: KernelSpec) -> None:
    assert kernel.digest == scale_kernel(tmp_path / "plain", items=(1, 2, 4, 8)).digest
    assert kernel.matmul is not None
    assert scale_kernel(tmp_path / "plain").matmul is None


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"cta_m"', '"cta_p"', ("cta_p", "did you mean cta_")),
        ('"cta_m"', "48", ("block_size = 48", "never")),
        ('m = "n", ', "", ("'m' is missing",)),
        ('"2 * n"', '"2 * cta_n"', ("cta_n",)),
        ('accumulate = "float32"', 'accumulate = "float23"', ("float23", "did you mean float32")),
        ("transposed = { b", "transposed = { c", ("'c'",)),
        ('when = "parts_of_k == 1"', 'when = "split == 1"', ("split",)),
        ('variant = "plain"\nwhen', 'variant = "simple"\nwhen', ("simple", "plain")),
        ("[heuristics.matmul]", "[heuristics.matmull]", ("matmull", "matmul")),
        ("sizes = { n = 1024 }", "sizes = { n = 1024, cta_m = 3 }", ("'cta_m'", "rename")),
    ],
)
def test_what_is_wrong_is_refused(tmp_path: Path, old: str, new: str, words: tuple[str, ...]) -> None:
    path = write_kernel(tmp_path, extra=HEURISTICS)
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(KernelError) as caught:
        read_kernel(path)
    message = str(caught.value)
    assert message.startswith("scale.toml: ")
    assert "\n" not in message
    for word in words:
        assert word in message


def test_a_table_without_a_way_is_refused(tmp_path: Path) -> None:
    path = write_kernel(tmp_path, extra=HEURISTICS[: HEURISTICS.index("[[")])
    with pytest.raises(KernelError, match=r"heuristics\.matmul\.into"):
        read_kernel(path)


# -- what becomes of the answers


def test_the_question(kernel: KernelSpec, answer: Answer) -> None:
    asked = answer([])
    assert proposed(kernel, sizes={"n": 96}, options={"order": "down"}) == []
    assert json.loads(asked.read_text()) == {
        "m": 96, "n": 192, "k": 64, "layout": "NT_ROW_MAJOR", "precision": "SSS",
        "backend": "CUTLASS3", "flags": 8, "gpu": "H200_SXM", "count": 16,
    }  # fmt: skip
    proposed(kernel, ARCHITECTURES[86], dtypes={"": "float16"})
    question = json.loads(asked.read_text())
    found = [question[word] for word in ("layout", "precision", "backend", "gpu")]
    assert found == ["NN_ROW_MAJOR", "HSH", "CUTLASS", "RTX_3090"]


def test_proposals_move_to_the_nearest(kernel: KernelSpec, answer: Answer) -> None:
    answer(
        [
            [3.0, {"cta_tile_m": 256, "stages": 5}],
            [1.0, {"cta_tile_m": 96, "stages": 1}],
            [2.0, {"cta_tile_m": 64, "stages": 2, "split_k": 2}],
            [4.0, {"cta_tile_m": 260, "stages": 4}],
        ]
    )
    # The fastest first; between 64 and 128 the nearer by its ratio; nothing takes a split; two are the same.
    assert proposed(kernel) == [configuration(block_size=128), configuration(block_size=256, items=4)]


def test_the_first_parameters_count_most(tmp_path: Path, answer: Answer) -> None:
    rules = '[variants.plain.constraints]\n"at most 256" = "block_size * items <= 256"\n'
    answer([[1.0, {"cta_tile_m": 128, "stages": 4}]])
    assert proposed(scale_kernel(tmp_path / "a", extra=rules + HEURISTICS)) == [
        configuration(block_size=128, items=2)
    ]
    turned = HEURISTICS.replace(
        'block_size = "cta_m", items = "load_stages"', 'items = "load_stages", block_size = "cta_m"'
    )
    assert proposed(scale_kernel(tmp_path / "b", extra=rules + turned)) == [
        configuration(block_size=64, items=4)
    ]


def test_only_a_few(tmp_path: Path, answer: Answer) -> None:
    answer([[float(i), {"cta_tile_m": 32 * i}] for i in range(1, 17)])
    kernel = scale_kernel(tmp_path, extra=HEURISTICS, blocks=range(32, 513, 32))
    assert [c.values["block_size"] for c in proposed(kernel)] == [32 * i for i in range(1, MAX_PROPOSALS + 1)]


def test_what_the_library_has_no_words_for(tmp_path: Path, answer: Answer, kernel: KernelSpec) -> None:
    asked = answer([[1.0, {}]])
    assert proposed(kernel, sizes={"n": 2}) == []
    assert proposed(kernel, sizes={"n": 2**31}) == []
    assert proposed(kernel, ARCHITECTURES[75]) == []
    integers = HEURISTICS.replace('accumulate = "float32"', 'accumulate = "int32"')
    assert proposed(scale_kernel(tmp_path / "b", extra=integers)) == []
    assert not asked.exists()


@pytest.mark.parametrize(
    ("name", "cc", "sms", "known"),
    [
        ("NVIDIA H200", 90, 132, "H200_SXM"),
        ("NVIDIA H100 80GB HBM3", 90, 132, "H100_SXM"),
        ("NVIDIA H100 PCIe", 90, 114, "H100_PCIE"),
        ("NVIDIA H100 NVL", 90, 132, "H100_NVL"),
        ("NVIDIA H20", 90, 78, "H20_SXM"),
        ("NVIDIA GH200 480GB", 90, 132, "H100_SXM"),
        ("NVIDIA A100-SXM4-80GB", 80, 108, "A100_SXM_80GB"),
        ("NVIDIA A100-PCIE-40GB", 80, 108, "A100_PCIE_80GB"),
        ("NVIDIA GeForce RTX 4090", 89, 128, "RTX_4090"),
        ("NVIDIA L40S", 89, 142, "L40S"),
        ("NVIDIA RTX 6000 Ada Generation", 89, 142, "RTX_6000_ADA"),
        ("NVIDIA GeForce RTX 5090", 120, 170, "RTX_5090"),
        ("Tesla T4", 75, 40, None),
        ("NVIDIA GB10", 121, 48, None),
    ],
)
def test_the_most_similar_gpu(name: str, cc: int, sms: int, known: str | None) -> None:
    assert similar_gpu(replace(H200, name=name, cc=cc, sm_count=sms)) == known


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ("crash", "died (killed by SIGABRT"),
        ("hang", "no answer in 0.5 s"),
        ("raise", "RuntimeError: no kernel for this"),
    ],
)
def test_its_faults_cost_nothing(
    kernel: KernelSpec, answer: Answer, monkeypatch: pytest.MonkeyPatch, answers: str, words: str
) -> None:
    monkeypatch.setattr(matmul_heuristics, "DEADLINE_S", 0.5 if answers == "hang" else 10.0)
    answer(answers)
    with pytest.raises(TunerError) as caught:
        proposed(kernel)
    assert words in str(caught.value)
    assert "--initial kernel" in str(caught.value)
    assert "\n" not in str(caught.value)
    space = SearchSpace.from_kernel(kernel, kernel.problem(), H200)
    initial = gather(kernel, kernel.problem(), H200, space, "auto", recorded=False)
    assert not initial.sources
    assert words in initial.notes[0]
    with pytest.raises(TunerError):
        gather(kernel, kernel.problem(), H200, space, "all", recorded=False)


# -- in a run


def run(kernel: KernelSpec, database: Database, **changes: Any) -> Result:
    request = request_of(kernel, kernel.problem(), trials=8, from_scratch=True, **changes)
    return tune(request, StubDevice(), database, Watcher())


def test_they_come_after_the_kernels_own(tmp_path: Path, database: Database, answer: Answer) -> None:
    answer([[1.0, {"cta_tile_m": 128, "stages": 4}], [2.0, {"cta_tile_m": 256, "stages": 2}]])
    own = '[[initial]]\nvariant = "plain"\nparameters = { block_size = 128, items = 4 }\n'
    kernel = scale_kernel(tmp_path / "kernel", extra=own + HEURISTICS)
    source = matmul_heuristics.source()
    result = run(kernel, database)
    assert result.stats["seeds"] == {"scale.toml": [1], source: [2]}
    assert f"initial    1 from scale.toml, 1 from {source}; " in summary(result, tmp_path, full=True)
    assert run(kernel, database, initial="kernel").stats["seeds"] == {"scale.toml": [1]}
    assert run(kernel, database, initial="heuristics").stats["seeds"] == {source: [1, 2]}
    assert run(kernel, database, initial="none").stats["seeds"] == {}


def test_a_fault_is_said_at_the_end(kernel: KernelSpec, database: Database, answer: Answer) -> None:
    answer("raise")
    result = run(kernel, database)
    assert "initial    " in summary(result, Path("tuning.db"), full=True)
    assert "failed: RuntimeError: no kernel" in summary(result, Path("tuning.db"), full=True)
    assert "RuntimeError" in result.stats["seed_notes"][0]


def test_a_recording_does_without(kernel: KernelSpec, answer: Answer) -> None:
    """So that it gives the same run everywhere; unless they are asked for."""
    answer([[1.0, {"cta_tile_m": 128}]])
    space = SearchSpace.from_kernel(kernel, kernel.problem(), H200)

    def sources(which: str) -> int:
        return len(gather(kernel, kernel.problem(), H200, space, which, recorded=True).sources)

    assert [sources(which) for which in ("auto", "kernel", "heuristics", "all")] == [0, 0, 1, 1]


def test_requiring_what_is_not_installed(
    tmp_path: Path, kernel: KernelSpec, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matmul_heuristics, "installed", lambda: False)
    with pytest.raises(UsageError, match=r"not installed; in the checkout: pip install '.\[heuristics\]'"):
        run(kernel, database, initial="heuristics")
    assert run(kernel, database).stats["seeds"] == {}
    with pytest.raises(UsageError, match=r"scale.toml does not say what to make of heuristics"):
        run(scale_kernel(tmp_path / "plain"), database, initial="all")


# -- the package itself


@pytest.mark.skipif(not matmul_heuristics.installed(), reason="nvidia-matmul-heuristics is not installed")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("cc", [80, 86, 89, 90, 100, 120])
def test_the_real_one_proposes_for_gemm(cc: int, dtype: str) -> None:
    kernel, gpu = load_kernel("gemm"), ARCHITECTURES[cc]
    for sizes, layout in (
        ((4096, 4096, 4096), "nt"),
        ((16, 8192, 8192), "nn"),
        ((512, 512, 65536), "tn"),
        ((4104, 4104, 4104), "tt"),
        ((1, 1, 1), "nt"),
    ):
        problem = kernel.problem(dict(zip("mnk", sizes, strict=True)), {"": dtype}, {"layout": layout})
        space = SearchSpace.from_kernel(kernel, problem, gpu)
        found = propose(kernel, problem, gpu, space)
        assert 1 <= len(found) <= MAX_PROPOSALS, problem
        assert all(space.contains(one) for one in found)
        assert tiles_of(kernel, problem, gpu, found[0]) >= 1


def tiles_of(kernel: KernelSpec, problem: Problem, gpu: Gpu, found: Configuration) -> int:
    """Count the blocks of a configuration's first launch: a proposal is a kernel that could run."""
    grid = kernel.variants[found.variant].launches[0].grid
    names = {**kernel.environment(problem, gpu), **found.values}
    return int(grid[0].evaluate(names))
