"""``tune judge`` on a real GPU: candidates of each kind that are right, slow, wrong in a corner, or cheats."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.test_cheats import HERE as REFEREE
from tests.gpu.test_cheats import REASONS, SOURCE
from tests.gpu.test_command_line import tune
from tuner.children.nvrtc import compile_source
from tuner.core.conditions import Mode
from tuner.core.phases import listed
from tuner.devices.base import say_nothing
from tuner.devices.local import LocalDevice
from tuner.kernel.candidates import candidate_kernel
from tuner.kernel.load import load_kernel
from tuner.studies.judging.judge import Judgement
from tuner.studies.judging.task import task_of
from tuner.studies.judging.verdict import Judged

SIZE = ("--size", f"n={1 << 24}")
TASK = "vector_add"
ADD = """\
// tune: add<<<ceil_div(n, {block}), {block}>>>(a, b, c, int64(n))
extern "C" __global__ void add(const float* a, const float* b, float* c, long long n) {{
    const long long i = blockIdx.x * {block}ll + threadIdx.x;
    {work}
}}
"""
RIGHT = "if (i < n) c[i] = a[i] + b[i];"
SLOW = (
    "for (int k = 0; k < 24; ++k) if (i < n) c[i] = __fadd_rn(__ldcv(a + (i * 97 + k * 31) % n), 0.0f);\n"
    + RIGHT
)
UNBOUND = "c[i] = a[i] + b[i];"
HALF = "if (i < n && i < n - n / 64) c[i] = a[i] + b[i];"
HANG = "while (true) __nanosleep(1000);"
TORCH = "import torch\n\ndef candidate(a, b, c):\n    torch.add(a, b, out=c)\n"
RETURNED = "import torch\n\ndef candidate(a, b):\n    return torch.add(a, b)\n"
TORCH_WRONG = "def candidate(a, b, c):\n    c.copy_((a.half() + b.half()).float())\n"
EXITS = {"right": (0, 4), "wrong": (3,), "refused": (3,), "failed": (1,)}
torch_only = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")


def judged(folder: Path, name: str, text: str, *more: str, task: str = TASK) -> dict[str, Any]:
    (folder / name).write_text(text)
    done = tune(folder, "judge", task, name, "--json", *more, status=None)
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode in EXITS[found["judged"]]
    return found


def add(work: str = RIGHT, block: int = 256) -> str:
    return ADD.format(block=block, work=work)


@pytest.mark.parametrize(
    ("name", "text"), [("mine.cu", add(block=512)), pytest.param("mine.py", TORCH, marks=torch_only)]
)
def test_a_right_candidate_within_ten_seconds(name: str, text: str, tmp_path: Path) -> None:
    judged(tmp_path, "warm.cu", add(), *SIZE)  # calibrates, compiles references
    found = judged(tmp_path, name, text, *SIZE, "--against", "default")
    print(f"{name}: {listed(found['phases'])}")
    assert found["judged"] == "right", found
    (at,) = found["problems"]
    assert at["seconds"] < 10, found["phases"]
    assert at["fresh_ns"] and len(at["sizes"]) >= 6 and at["contents"]
    assert all(mode["versus"] for mode in at["modes"])


def test_a_slow_kernel_is_right_and_slower(tmp_path: Path) -> None:
    found = judged(tmp_path, "slow.cu", add(SLOW), *SIZE, "--against", "default")
    assert (found["judged"], found["speed"]) == ("right", "slower"), found


@pytest.mark.parametrize(
    ("work", "reasons"),
    [
        (UNBOUND, ("wrong_result", "memory_fault", "wrong_at_other_size")),
        (HALF, ("wrong_result",)),
        ("", ("wrong_result",)),
        (HANG, ("hang",)),
        ("if (i < n) *(float*)8 = a[i];", ("memory_fault",)),
    ],
)
def test_what_is_wrong(tmp_path: Path, work: str, reasons: tuple[str, ...]) -> None:
    found = judged(tmp_path, "mine.cu", add(work), *SIZE)
    assert found["reason"] in reasons, found
    assert found["message"]


@torch_only
@pytest.mark.parametrize("text", [TORCH, RETURNED])
def test_functions_are_tied_with_torch(tmp_path: Path, text: str) -> None:
    found = judged(tmp_path, "mine.py", text, *SIZE, "--against", "torch")
    assert found["judged"] == "right", found
    (at,) = found["problems"]
    assert {one["verdict"] for mode in at["modes"] for one in mode["versus"]} <= {"tied", "ambiguous"}, found


@torch_only
def test_a_lower_precision_inside_is_wrong(tmp_path: Path) -> None:
    assert judged(tmp_path, "mine.py", TORCH_WRONG, *SIZE)["judged"] == "wrong"


@pytest.mark.parametrize(
    "text", ["def candidate(a, b, c): raise ValueError('no')", "def candidate(a, b, c): a.cpu()"]
)
@torch_only
def test_functions_that_cannot_be_captured(tmp_path: Path, text: str) -> None:
    found = judged(tmp_path, "mine.py", text, *SIZE)
    assert (found["judged"], found["reason"]) == ("refused", "launch_error"), found


def test_no_cheat_is_right(device: LocalDevice, tmp_path: Path) -> None:
    """Each as a candidate of its own, of the kernel whose variants they are."""
    cheats = {cheat for reasons in REASONS.values() for cheat in reasons} - {23}
    kernel = load_kernel(str(REFEREE / "cheats.toml"))
    judgement = Judgement(device, task_of(kernel, [kernel.problem()], ["none"], Mode.COLD), 1, say_nothing)
    found = {}
    for cheat in sorted(cheats):
        launch = "// tune: cheat<<<n / 256, 256>>>(x, y, x, n)"
        lines = launch, f"#define CHEAT {cheat}", "#define OWN_SCRATCH", SOURCE.read_text()
        file = tmp_path / f"cheat{cheat}.cu"
        file.write_text("\n".join(lines))
        verdict = judgement.judge(candidate_kernel(kernel, str(file)), file.name)
        found[cheat] = verdict.judged, verdict.reason, verdict.message
    assert {cheat: why for cheat, why in found.items() if why[0] not in (Judged.WRONG, Judged.REFUSED)} == {}


def test_a_cubin_and_a_kernels_file(device: LocalDevice, tmp_path: Path) -> None:
    kernel = load_kernel(TASK)
    problem = kernel.problem({"n": 1 << 20})
    judgement = Judgement(device, task_of(kernel, [problem], ["default"], None), 1, say_nothing)
    (tmp_path / "mine.cubin").write_bytes(compile_source(add(), "add", device.gpu.arch, (), ()).cubin)
    launch = add().partition("\n")[0].removeprefix("// tune: ")
    (tmp_path / "mine.cubin.launch").write_text(launch)
    (tmp_path / "mine.cu").write_text(add())
    (tmp_path / "mine.toml").write_text(
        """
        [variants.mine.parameters]
        threads = { values = [128, 256] }

        [[variants.mine.launches]]
        template = "mine.cu"
        entry = "add"
        arguments = ["a", "b", "c", { value = "n", dtype = "int64" }]
        grid = ["ceil_div(n, 256)"]
        block = ["256"]
        """
    )
    for name in ("mine.cubin", "mine.toml"):
        verdict = judgement.judge(candidate_kernel(kernel, str(tmp_path / name)), name)
        assert verdict.judged is Judged.RIGHT, verdict
        assert all(mode.versus for mode in verdict.problems[0].modes)


def test_equal_kernels_are_not_told_apart(tmp_path: Path) -> None:
    """The default configuration against itself, judged again and again."""
    for seed in range(6):
        baseline = "mine.cu:add<<<ceil_div(n, 256), 256>>>(a, b, c, int64(n))"
        found = judged(tmp_path, "mine.cu", add(), *SIZE, "--against", baseline, "--seed", str(seed))
        assert found["speed"] in ("tied", "ambiguous"), found


def test_rounds(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for name, work in {"right": RIGHT, "hang": HANG, "fault": "*(float*)8 = 1.0f;", "wrong": HALF}.items():
        (folder / f"{name}.cu").write_text(add(work))
    rounds = "judge", TASK, "--rounds", "in", "--deadline", "60s"
    tune(tmp_path, *rounds, *SIZE, "--against", "none", "--json")
    lines = [json.loads(line) for line in (folder / "judge.jsonl").read_text().splitlines()]
    reasons = {line["candidate"]["name"]: line["reason"] for line in lines}
    assert reasons == {
        "right.cu": "", "hang.cu": "hang", "fault.cu": "memory_fault", "wrong.cu": "wrong_result",
    }  # fmt: skip
    assert json.loads((folder / "best.json").read_text())["candidate"]["name"] == "right.cu"


MODEL = """\
import torch


class Model(torch.nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = torch.nn.Linear(inner, outer)

    def forward(self, x):
        return torch.nn.functional.gelu(self.linear(x)) * 2.0


def get_inputs():
    return [torch.rand(1024, 2048)]


def get_init_inputs():
    return [2048, 1024]
"""
NEW = """\
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.linear = torch.nn.Linear(inner, outer)

    def forward(self, x):
        {work}
"""


@torch_only
@pytest.mark.parametrize(
    ("work", "judged_as"),
    [
        ("return torch.nn.functional.gelu(self.linear(x)).mul_(2.0)", "right"),
        ("return sum(torch.nn.functional.gelu(self.linear(x)) for _ in range(4)) / 2.0", "slower"),
        ("return torch.nn.functional.gelu(self.linear(x), approximate='tanh') * 2.0", "wrong"),
        ("return torch.nn.functional.gelu(self.linear(x.half().float())) * 2.0", "wrong"),
    ],
)
def test_modules(tmp_path: Path, work: str, judged_as: str) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    found = judged(tmp_path, "new.py", NEW.format(work=work), task="model.py")
    assert judged_as in (found["judged"], found["speed"]), found
