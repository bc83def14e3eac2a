"""The C++ launcher on the fake driver: what it launches and refuses, and that compilers take it without a warning."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.compiled_once import run_once
from tests.cpp_interface import (
    INCLUDE,
    ROOT,
    STRICT,
    interface,
    output_of,
    program_output,
    python_on,
    sanitized,
)
from tests.fake_driver import include_options
from tests.runtime.manifests import NAME, write_bundle
from tests.winners.exported_winners import WINNERS
from tuner.winners.header import render_header

pytestmark = pytest.mark.usefixtures("forked_children")


def test_expressions_have_the_values_that_python_gives() -> None:
    done = subprocess.run(
        [*sanitized("expressions"), ROOT / "tests" / "expressions.json"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_eight_threads_load_once_and_launch_8000_times(tmp_path: Path) -> None:
    wrong, loads, launches, refused = program_output("threads", write_bundle(tmp_path / "bundle")).split()
    # 61 launches show where clusters run; clusters of 16 in 20 of them.
    assert (wrong, loads, launches, refused) == ("0", "1", str(8000 + 61), "0")


def test_500_damaged_bundles_give_a_clear_line_and_no_launch(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path / "bundle")
    output = output_of(*sanitized("damaged"), bundle, tmp_path / "bad", NAME)
    refused, unclear, planned, damaged_cubins, launches = map(int, output.split())
    assert refused > 400
    assert planned > 100
    assert damaged_cubins >= 90
    assert (unclear, launches) == (0, 0)


REFUSALS = """
stream = context(0)
code, bundle = opened(sys.argv[2])
assert code == 0, text.value
sizes = {"m": 512, "n": 512, "k": 512}
kind = ("input=bfloat16", "layout=nt")
memory = int(check(cu.cuMemAlloc(1 << 24)))
code, plan = planned(bundle, sizes, *kind)
assert code == 0, text.value
need = launcher.kt_workspace_bytes(plan)
work = memory + (1 << 23)
a, b, c = memory, memory + (1 << 20), memory + (1 << 21)
refused = {}

def refuse(what, code):
    assert code, what
    refused[what] = [code, text.value.decode()]

refuse("unprepared", run(plan, [a, b, c], work, need, stream))
refuse("workspace null", prepare(plan, 0, need, stream))
refuse("workspace too small", prepare(plan, work, need - 1, stream))
refuse("workspace misaligned", prepare(plan, work + 8, need, stream))
check(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
refuse("prepared in a capture", prepare(plan, work, need, stream))
check(cu.cuStreamEndCapture(stream))
fake.fake_cuda_reset()
assert prepare(plan, work, need, stream) == 0, text.value
before = fake.fake_cuda_count(b"launches")
refuse("null", run(plan, [a, 0, c], work, need, stream))
refuse("misaligned", run(plan, [a + 8, b, c], work, need, stream))
refuse("overlap", run(plan, [a, b, a + 1024], work, need, stream))
refuse("overlap of the workspace", run(plan, [a, b, work], work, need, stream))
refuse("too few tensors", run(plan, [a, b], work, need, stream))
refuse("another workspace", run(plan, [a, b, c], work + (1 << 22), need, stream))
refuse("small workspace", run(plan, [a, b, c], work, need - 1, stream))
refuse("rows apart that are read by address", run(plan, [a, b, c], work, need, stream, [0, 1024, 0]))
refuse("rows of another length", run(plan, [a, b, c], work, need, stream, [504, 0, 0]))
refuse("rows at odd places", run(plan, [a, b, c], work, need, stream, [516, 0, 0]))
refuse("overlap of rows apart", run(plan, [a, b, a + (1 << 19)], work, need, stream, [1024, 0, 0]))
refuse("no such size", planned(bundle, {"m": 1, "n": 1, "q": 1}, *kind)[0])
refuse("size 0", planned(bundle, {**sizes, "m": 0}, *kind)[0])
refuse("ambiguous", planned(bundle, sizes)[0])
refuse("no such dtype", planned(bundle, sizes, "input=int8")[0])
refuse("no winner", planned(bundle, {**sizes, "m": 64}, *kind, policy=2)[0])
refuse("another capability", planned(bundle, sizes, *kind, device=2)[0])
refuse("no GPU", planned(bundle, sizes, *kind, device=7)[0])
code, other = planned(bundle, sizes, *kind, device=1)
assert code == 0 and launcher.kt_match(other) == 2, text.value
refuse("another GPU's context", prepare(other, work, need, stream))
assert fake.fake_cuda_count(b"launches") == before
assert fake.fake_cuda_count(b"refused") == 0
counts = {what: fake.fake_cuda_count(what.encode()) for what in ("allocations", "synchronisations")}
assert run(plan, [a, b, c], work, need, stream) == 0, text.value
assert fake.fake_cuda_count(b"launches") == before + 1
check(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
assert run(plan, [a, b, c], work, need, stream) == 0, text.value
executable = check(cu.cuGraphInstantiate(check(cu.cuStreamEndCapture(stream)), 0))
check(cu.cuGraphLaunch(executable, stream))
assert fake.fake_cuda_count(b"launches") == before + 2
assert counts == {what: fake.fake_cuda_count(what.encode()) for what in counts}
print(json.dumps(refused))
"""


def test_wrong_input_never_launches(tmp_path: Path) -> None:
    devices = "NVIDIA H200:90:132:52428800,NVIDIA H100:90:114:52428800,NVIDIA L4:89:58"
    bundle = write_bundle(tmp_path / "bundle")
    output = python_on(interface(), REFUSALS, bundle, devices=devices)
    refused: dict[str, Any] = json.loads(output)
    assert len(refused) == 24
    for _, line in refused.values():
        assert line
        assert "\n" not in line


APART = """
stream, memory = context(0), int(check(cu.cuMemAlloc(1 << 24)))
_, bundle = opened(sys.argv[2])
_, plan = planned(bundle, {"m": 512, "n": 512, "k": 512}, "input=bfloat16", "layout=nt")
need, work = launcher.kt_workspace_bytes(plan), memory + (1 << 23)
tensors = [memory, memory + (1 << 21), memory + (1 << 22)]
assert prepare(plan, work, need, stream) == 0, text.value
for strides in (None, [1024, 0, 0], [1024, 0, 0], [0, 0, 0]):
    assert run(plan, tensors, work, need, stream, strides) == 0, text.value
"""


def test_rows_may_lie_apart_where_tensor_maps_read_them(tmp_path: Path) -> None:
    bundle, log = write_bundle(tmp_path / "bundle"), tmp_path / "log"
    python_on(interface(), APART, bundle, log=str(log))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    maps = [line["arguments"][0] for line in lines if line.get("kernel") == "split"]
    assert [one["stride"] for one in maps] == [1024, 2048, 2048, 1024]


OPENS = """
stream = context(0)
code, bundle = opened(sys.argv[2])
if code == 0:
    code, plan = planned(bundle, {"m": 512, "n": 512, "k": 512}, "input=bfloat16", "layout=nt")
if code == 0:
    work = int(check(cu.cuMemAlloc(1 << 22)))
    code = prepare(plan, work, 1 << 22, stream)
print(code, text.value.decode())
"""


@pytest.mark.parametrize(
    ("changed", "driver", "code"),
    [
        ({}, "13000", "0"),
        ({"version": 3, "what": 1}, "13000", "3"),
        ({}, "12080", "4"),
        ({"sizes": ["m"]}, "13000", "2"),
    ],
)
def test_a_bundle_can_be_moved_and_what_cannot_be_used_is_refused(
    changed: dict[str, Any], driver: str, code: str, tmp_path: Path
) -> None:
    bundle = write_bundle(tmp_path / "bundle", changed).rename(tmp_path / "elsewhere, moved")
    assert python_on(interface(), OPENS, bundle, driver=driver).startswith(code + " ")


TWICE = """
#include <kernel_tune/launcher.hpp>
#include "tuned.hpp"
static_assert(kernel_tune::vector_add::find("NVIDIA H200", {1LL << 40, "float32"})->cc == 90);
kernel_tune::Status second(kernel_tune::Bundle& bundle) { return kernel_tune::Bundle::open("nowhere", bundle); }
"""
DEVICE = """
constexpr auto winner = kernel_tune::vector_add::find("NVIDIA H200", {1LL << 40, "float32"});
template <int block_m> __global__ void kernel(int* out) { *out = block_m; }
void launch(int* out) { kernel<winner->configuration.block_m><<<1, 1>>>(out); }
"""
PROGRAMS = [ROOT / "docs" / "examples" / "cpp" / "main.cpp", ROOT / "scripts" / "cpp" / "c_interface.cpp"]


def test_headers_define_nothing_that_another_file_of_a_program_may_not() -> None:
    said = subprocess.run(["nm", "-C", interface()], capture_output=True, text=True, check=True)
    symbols = [line.split(None, 2)[1:] for line in said.stdout.splitlines() if not line.startswith(" ")]
    assert any(kind == "W" and "kernel_tune" in name for kind, name in symbols)
    assert not [
        name for kind, name in symbols if kind in "TBDR" and "kernel_tune::" in name.partition("(")[0]
    ]


def test_two_bundles_and_a_header_of_winners_have_no_warning_in_one_file(tmp_path: Path) -> None:
    """Nor have the programs, which other tests compile where there is nvcc."""
    for bundle in ("first", "second"):
        shutil.copytree(INCLUDE, tmp_path / bundle)
    (tmp_path / "tuned.hpp").write_text(render_header(WINNERS))
    nvcc, files = shutil.which("nvcc"), ["first/kernel_tune/launcher.hpp"]
    text, command = TWICE + DEVICE, ["nvcc", "-std=c++17", "-x", "cu", "--ptx"]
    if nvcc is None:
        text, command = TWICE, ["g++", *STRICT, "-fno-exceptions", "-fsyntax-only", *include_options()]
        files += PROGRAMS
    (tmp_path / "both.cpp").write_text(text + "".join(f'#include "{file}"\n' for file in files))
    command += ['-DBUNDLE="bundle"', "-Isecond", "-I.", "-c", "both.cpp"]
    done = run_once(*command, folder=tmp_path, reads=(INCLUDE, *(source.parent for source in PROGRAMS)))
    assert done.returncode == 0, done.stderr[-4000:]
    assert "warning" not in done.stderr


def test_the_namespace_is_of_this_version() -> None:
    from tuner import __version__
    from tuner.runtime.manifest import VERSION

    text = (INCLUDE / "kernel_tune" / "version.hpp").read_text()
    assert f"#define KERNEL_TUNE_NAMESPACE v{__version__.replace('.', '_')}\n" in text
    assert f"kFormatVersion = {VERSION};" in text
