"""What hangs on what memory held before is found on the CPU; what reads it and leaves it out is right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.inspect.check.cpu_run import CpuChild, cpu_run
from tests.inspect.check.test_contents import FLOATS, written
from tuner.inspect.emulator.building import COMPILER

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs g++")
SIGNS = {"x": FLOATS["x"], "y": ("int32", "int", "output")}
SHARED = "__shared__ float s[64]; float& held = s[threadIdx.x];"


@pytest.mark.parametrize(
    ("tensors", "reference", "body", "fault"),
    [
        (SIGNS, "where(x > 0, 1, -1)", "if (x[i] > 0) y[i] = 1;", "is not written, expected -1"),
        (FLOATS, "minimum(x, 0)", "y[i] = fminf(fminf(y[i], x[i]), 0.0f);", "where memory holds 0xFB before: y[0]"),
        (FLOATS, "x", SHARED + " held = fmaxf(held, x[i]); y[i] = held;", "where memory holds 0x7B before: y[0] is "),
        (FLOATS, "x", SHARED + " y[i] = held == held ? 0 : x[i];", "where memory holds"),
        (FLOATS, "x", SHARED + " const float before = held; y[i] = threadIdx.x > 64 ? before : x[i];", ""),
        (FLOATS, "x", "const float before = y[i]; y[i] = n < 0 ? before : x[i];", ""),
    ],
)  # fmt: skip
def test_what_memory_held_before_is_no_part_of_a_result(
    child: CpuChild,
    tmp_path: Path,
    tensors: dict[str, tuple[str, str, str]],
    reference: str,
    body: str,
    fault: str,
) -> None:
    answer = cpu_run(child, written(tmp_path, tensors, reference, body))
    assert fault in answer.fault if fault else not answer.fault


@pytest.mark.parametrize("zeroed", [True, False])
def test_scratch_memory_holds_anything_before(child: CpuChild, tmp_path: Path, zeroed: bool) -> None:
    file = written(tmp_path, FLOATS, "maximum(x, 0)", "s[i] = fmaxf(s[i], x[i]); y[i] = fmaxf(s[i], 0.0f);")
    code = tmp_path / "k.cu"
    code.write_text(code.read_text().replace("float* y,", "float* y, float* s,"))
    scratch = f'variants.v.scratch.s = {{ shape = ["n"], dtype = "float32", zeroed = {str(zeroed).lower()} }}'
    text = (
        file.read_text().replace("[[variants", f"{scratch}\n[[variants").replace('"y", "n"', '"y", "s", "n"')
    )
    file.write_text(text)
    answer = cpu_run(child, file)
    assert answer.fault.startswith("where memory holds 0x7B before: y[0]") is not zeroed
    assert zeroed or "before anything is written there" in answer.remedy
