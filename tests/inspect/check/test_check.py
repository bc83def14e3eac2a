"""`tune check` finds each planted fault of a kernel's file and its references, and none in right kernels."""

from __future__ import annotations

import json
import re
import signal
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from tests.builtin_kernels import own_kernels
from tests.commands import said_by
from tests.inspect.check.planted import FILE_ALONE, Fault, findings, finds, planted
from tuner.cli import check
from tuner.core.observer import Observer
from tuner.core.processes import ChildDied
from tuner.inspect.check.host_children import HostChild, HostChildren
from tuner.inspect.check.toml_lines import TomlLines
from tuner.kernel.load import find_kernel
from tuner.kernel.toml.file import read_file
from tuner.report.progress import Progress

pytestmark = pytest.mark.usefixtures("forked_children")


ROOT = Path(__file__).parents[3]


TOML, PLAIN, STAGED, REFERENCE = "blend.toml", "blend.cu", "staged.cu.j2", "blend_reference.cu"
NUMPY = '"scale * x + bias"'
ROWS = 'shape = ["rows"], dtype = "input"'
OF_THE_FILE = [
    Fault("no TOML", TOML, "[work]", "[work", "[work", "TOML"),
    Fault("a misspelled table", TOML, "[problem]", "[problm]", "[problm]", "unknown key 'problm'"),
    Fault(
        "no array",
        TOML,
        "[[variants.plain.launches]]",
        "[variants.plain.launches]",
        "plain.launches",
        r"\[\[",
    ),
    Fault(
        "misspelled parameters",
        TOML,
        "plain.parameters]",
        "plain.paramters]",
        "plain.paramters",
        "unknown key 'paramters'",
    ),
    Fault(
        "C++ operators", TOML, '"width <= columns"', '"width <= columns && rows > 1"', "&&", "write and, or"
    ),
    Fault(
        "a function",
        TOML,
        '"ceil_div(columns, width)"',
        '"ceildiv(columns, width)"',
        "ceildiv",
        "mean ceil_div",
    ),
    Fault("a reference's function", TOML, NUMPY, '"scale * sume(x, 1)"', "sume", "mean sum"),
    Fault("unknown key", TOML, 'summary = "one', 'sumary = "one', "sumary", "unknown key 'sumary'"),
    Fault("a text as constraint", TOML, '"width <= columns"', "\"'yes'\"", "a block is at most as", "yes"),
    Fault("a constant constraint", TOML, '"width <= columns"', '"2"', "a block is at most as", "2"),
    Fault("0/0", TOML, 'value = "1.5"', 'value = "0/0"', "0/0", "division|zero"),
    Fault("an infinite scalar", TOML, 'value = "1.5"', 'value = "10**39"', "10**39", "infinite as float32"),
    Fault("axis=5", TOML, NUMPY, '"scale * x + sum(bias, axis=5)"', "axis=5", "axis"),
    Fault("no reference", TOML, "[reference.cuda]", "[extra]", "[extra]", "extra"),
    Fault("shapes that do not fit", TOML, NUMPY, '"scale * x + transpose(x)"', "transpose", "reference"),
    Fault("not a number", TOML, NUMPY, '"scale * log(x) + bias"', "log(x)", "not a number"),
    Fault("no work", TOML, 'bytes = "2 * rows', 'bytes = "0 * rows', "bytes =", "0 \\* rows.* = 0"),
    Fault("nothing summed", TOML, 'reduction = "2"', 'reduction = "rows - rows"', "rows - rows", "reduction"),
    Fault(
        "an empty preset", TOML, "columns = 131072", "columns = 7", "presets.wide", "preset wide has no valid"
    ),
    Fault("an unused input", TOML, "bias = {", f"more = {{ {ROWS} }}\nbias = {{", "more = {", "input more"),
    Fault("golden is missing", TOML, NUMPY, f'{NUMPY}\ngolden.out = "none.npy"', "golden.out", "none.npy"),
]
"""Found without compiling anything."""


CONSTRAINT = "block_size * items <= columns"


BUILT_IN = ("gemm", "permute", "quantize", "cross_entropy", "reduce_axis")
"""The largest, and one of each kind of reference."""


OF_REFERENCES = [
    Fault("entry", TOML, 'entry = "blend_reference"', 'entry = "other"', "reference.cuda", "other"),
    Fault("code", REFERENCE, "const double added", "const doubel added", "doubel", "doubel"),
    Fault(
        "differ", REFERENCE, "product + added", "product - added", "reference.cuda", "references of out", TOML
    ),
]


@pytest.mark.parametrize("fault", OF_THE_FILE, ids=lambda fault: fault.name.replace(" ", "_"))
def test_faults_of_the_file(fault: Fault, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = findings(capsys, str(planted(tmp_path, fault)), *FILE_ALONE)
    assert code == 1
    assert finds(lines, tmp_path / TOML, fault), lines


def test_a_child_that_is_killed_is_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[HostChild] = []
    take = HostChildren.take

    def kill_the_first(children: HostChildren) -> HostChild:
        taken.append(take(children))
        if len(taken) == 1:
            taken[0].stop()
        return taken[-1]

    monkeypatch.setattr(HostChildren, "take", kill_the_first)
    kernel = planted(tmp_path, OF_THE_FILE[14])
    code, lines = findings(capsys, str(kernel), *FILE_ALONE)
    assert code == 1
    assert finds(lines, kernel, OF_THE_FILE[14]), lines
    assert len(taken) == 2


@pytest.mark.parametrize("fault", OF_REFERENCES, ids=lambda fault: fault.name)
def test_faults_of_references(fault: Fault, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = [] if fault.name == "differ" else ["--no-cpu", "-j", "1"]
    kernel = planted(tmp_path, fault)
    code, lines = findings(capsys, str(kernel), "--configurations", "1", "--cc", "80", *more)
    assert code == 1
    assert finds(lines, tmp_path / (fault.found_in or fault.file), fault), lines


@pytest.mark.parametrize(
    ("beside", "file", "right"),
    [("items = {", PLAIN, "column < columns"), ("width = {", STAGED, "{{ width }} - 1")],
)
def test_a_misspelt_parameter_is_said_where_it_is_misspelt_alone(
    beside: str, file: str, right: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    planted(tmp_path, Fault("parameter", TOML, beside, f"extra = {{ values = [1, 2] }}\n{beside}", "", ""))
    template = tmp_path / file
    misspelt = "column < columns * extar" if file == PLAIN else "{{ width * extar }} - 1"
    template.write_text(template.read_text().replace(right, misspelt, 1))
    check = (str(tmp_path / TOML), "--configurations", "1", "--cc", "80", "-j", "1", "--no-cpu")
    code, lines = findings(capsys, *check)
    assert code == 1
    assert len(lines) == 1 and "extar" in lines[0] and file in lines[0]
    template.write_text(template.read_text().replace("extar", "extra"))
    assert findings(capsys, *check) == (0, [])


OFFSET = """\
kernel = { name = "offset" }
problem = { sizes = { n = 4096 }, dtypes = { input = "int64" } }
tensors.x = { shape = ["n"], dtype = "input" }
tensors.y = { shape = ["n"], dtype = "input", role = "output" }
reference = { numpy = "x + 4611686018427387905" }
work = { bytes = "16 * n" }
variants.v.parameters.block_size = { values = [64] }
[[variants.v.launches]]
template = "offset.cu"
entry = "offset"
arguments = ["x", "y", "n"]
grid = ["ceil_div(n, block_size)"]
block = ["block_size"]
"""
OFFSET_CODE = """
extern "C" __global__ void offset(const long long* x, long long* y, int n) {
    const int i = blockIdx.x * block_size + threadIdx.x;
    if (i < n) y[i] = x[i] + ADDED;
}
"""


def test_integers_above_2_to_the_53_are_exact(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "offset.toml").write_text(OFFSET)
    check = (str(tmp_path / "offset.toml"), "--configurations", "1", "--cc", "80", "-j", "1")
    (tmp_path / "offset.cu").write_text(OFFSET_CODE.replace("ADDED", "4611686018427387905"))
    assert findings(capsys, *check, "--cc", "90") == (0, [])
    (tmp_path / "offset.cu").write_text(OFFSET_CODE.replace("ADDED", "4611686018427387904"))
    code, lines = findings(capsys, *check)
    assert code == 1
    assert len(lines) == 1
    got, expected = re.findall(r"46116860184273\d+", lines[0])
    assert int(expected) == int(got) + 1


def test_a_reference_that_fails_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (fault,) = (fault for fault in OF_THE_FILE if fault.name == "not a number")
    _, lines = findings(
        capsys, str(planted(tmp_path, fault)), "--configurations", "1", "--cc", "80", "-j", "1"
    )
    assert len(lines) == 1


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_file_of_a_built_in_kernel_has_no_finding(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert findings(capsys, name, *FILE_ALONE) == (0, [])


@pytest.mark.parametrize("name", ["heat", "spmv"])
def test_a_right_kernel_has_no_finding(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    file = ROOT / "docs" / "examples" / name / f"{name}.toml"
    assert findings(capsys, str(file), "--configurations", "1", "--cc", "80", "-j", "1") == (0, [])


def test_json_and_exit_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = planted(tmp_path / "wrong", OF_THE_FILE[8])
    said = said_by(capsys, "check", str(wrong), *FILE_ALONE, "--json")
    found = json.loads(said.out)
    assert said.code == 1
    assert {"file", "line", "problem", "remedy"} == found["findings"][0].keys()
    right = planted(tmp_path / "right")
    said = said_by(capsys, "check", str(right), *FILE_ALONE, "--json")
    assert (said.code, json.loads(said.out)["findings"]) == (0, [])
    for arguments in (["nowhere.toml"], [str(right), "--cc", "77"], [str(right), "--configurations", "few"]):
        assert said_by(capsys, "check", *arguments).code == 2


def test_golden_files_must_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    golden = Fault("golden", TOML, NUMPY, f'{NUMPY}\ngolden.out = "out.npy"', "golden.out", "shape")
    kernel = planted(tmp_path, golden)
    np.save(tmp_path / "out.npy", np.zeros((3, 4)))
    code, lines = findings(capsys, str(kernel), *FILE_ALONE)
    assert code == 1
    assert finds(lines, kernel, golden), lines
    np.save(tmp_path / "out.npy", np.zeros((1024, 2048), np.float16))
    assert findings(capsys, str(kernel), *FILE_ALONE) == (0, [])


def test_a_python_reference_is_run_and_its_faults_located(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit = Fault("python", TOML, f"numpy = {NUMPY}", 'python = "blend.py:blend"', "", "")
    kernel = planted(tmp_path, edit)
    (tmp_path / "blend.py").write_text("def blend(x, bias, scale):\n    return scale * x + bias[:, None]\n")
    code, lines = findings(capsys, str(kernel), *FILE_ALONE)
    assert code == 1
    assert any(line.startswith(f"{tmp_path / 'blend.py'}:2: ") for line in lines), lines
    (tmp_path / "blend.py").write_text("def blend(x, bias, scale):\n    return scale * x + bias\n")
    assert findings(capsys, str(kernel), *FILE_ALONE) == (0, [])
    scalars = "[scalars]\nshift = { dtype = 'int32', value = '1' }\n"
    text = kernel.read_text()
    kernel.write_text(text.replace("[scalars]\n", scalars, 1))
    assert "scalar shift is used nowhere" in findings(capsys, str(kernel), *FILE_ALONE)[1][0]
    (tmp_path / "blend.py").write_text(
        "def blend(x, bias, scale, shift):\n    return scale * x + shift * bias\n"
    )
    assert findings(capsys, str(kernel), *FILE_ALONE) == (0, [])


def test_a_reference_of_sizes_that_belong_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The problem's own are too many for it, and no list of small ones has such."""
    edit = Fault("python", TOML, f"numpy = {NUMPY}", 'python = "blend.py:blend"', "", "")
    large = Fault("sizes", TOML, "rows = 1024, columns = 2048", "rows = 8192, columns = 24576", "", "")
    kernel = planted(tmp_path, edit, large)
    code = (
        "def blend(x, bias, scale):\n    assert x.shape[1] == @ * x.shape[0]\n    return scale * x + bias\n"
    )
    for times, found in (("3", 0), ("5", 1)):
        (tmp_path / "blend.py").write_text(code.replace("@", times))
        assert findings(capsys, str(kernel), *FILE_ALONE)[0] == found


def test_lines_of_every_key_of_built_in_kernels() -> None:
    """A line that is given for a key has the key's name in it."""
    checked = 0
    for kernel in own_kernels():
        file = find_kernel(kernel)
        text, data = file.read_text(), read_file(file).data
        lines = TomlLines(text, data)
        for variant, table in data["variants"].items():
            for kind in ("parameters", "constraints"):
                for name in table.get(kind, {}):
                    line = text.splitlines()[lines.line(("variants", variant, kind, name)) - 1]
                    assert name in line.replace('\\"', '"'), (file.name, variant, name)
                    checked += 1
    assert checked > 100


def test_show_says_what_makes_a_kernel_useless(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    right = planted(tmp_path / "right")
    assert "reference  none" not in (shown := said_by(capsys, "show", str(right)).out)
    assert "not valid here" not in shown
    wrong = planted(tmp_path / "wrong", Fault("default", TOML, CONSTRAINT, "items == 4", "", ""))
    reference = re.compile(r"^\[reference\]\n.*?(?=^\[work\])", re.DOTALL | re.MULTILINE)
    wrong.write_text(reference.sub("", wrong.read_text()))
    shown = said_by(capsys, "show", str(wrong)).out
    assert "reference  none" in shown
    assert "the default is not valid here: a block is at most a row" in shown
    code, lines = findings(capsys, str(wrong), *FILE_ALONE)
    assert code == 1
    assert any("nothing says what out must be" in line for line in lines)


def test_a_scalar_may_be_used_in_an_include_that_is_not_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unused = Fault(
        "scalar", TOML, "[scalars]\n", '[scalars]\nextra = { dtype = "float32", value = "1" }\n', "", ""
    )
    code, lines = findings(capsys, str(planted(tmp_path / "known", unused)), *FILE_ALONE)
    assert code == 1 and any("scalar extra is used nowhere" in line for line in lines)
    unknown = Fault("include", STAGED, '{% include "common/types.cuh.j2" %}', "{% include types %}", "", "")
    code, lines = findings(capsys, str(planted(tmp_path / "unknown", unused, unknown)), *FILE_ALONE)
    assert (code, lines) == (0, [])


@pytest.mark.parametrize("limit", [(), ("--time", "100")])
def test_what_was_found_is_printed_when_a_check_is_stopped(
    limit: tuple[str, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By a signal, or after the time that was given; and on the way it says how far it is."""

    def wait(self: HostChildren, runs: Sequence[object], observer: Observer[str]) -> Iterator[None]:
        observer.phase("runs on the CPU", 3)
        observer.step("the first")
        if limit:  # its time ends here
            signal.setitimer(signal.ITIMER_REAL, 0.01)
        else:
            signal.raise_signal(signal.SIGTERM)
        threading.Event().wait(60.0)
        yield None

    monkeypatch.setattr(HostChildren, "ask_all", wait)
    monkeypatch.setattr(check, "Progress", partial(Progress, plain_every_s=0.0))
    (fault,) = (fault for fault in OF_THE_FILE if fault.name == "an unused input")
    path = str(planted(tmp_path, fault))
    said = said_by(capsys, "check", path, "--configurations", "1", "--cc", "80", "-j", "1", *limit)
    assert said.code == (1 if limit else 130)
    assert finds(said.out.splitlines(), tmp_path / TOML, fault)
    assert "variants: valid configurations: 1 of 2" in said.err
    assert "stopped at " in said.err and "not looked at, and nothing was run on the CPU" in said.err
    assert "1 finding until it was stopped" in said.err


def test_a_check_without_a_finding_that_had_no_time_is_no_success(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = said_by(capsys, "check", "vector_add", "--time", "0.1", "--json")
    assert (said.code, json.loads(said.out)["complete"]) == (124, False)


def test_a_reference_without_an_end_is_no_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    child = Mock()
    child.receive.side_effect = ChildDied("killed by SIGXCPU")
    monkeypatch.setattr(HostChildren, "take", lambda _: child)
    fault = Fault("", TOML, f"numpy = {NUMPY}", 'python = "endless.py:mine"', "", "")
    path = planted(tmp_path, fault)
    (tmp_path / "endless.py").write_text("def mine(x, bias):\n    while True:\n        pass\n")
    for more in ((), ("--json",)):
        said = said_by(capsys, "check", str(path), "--configurations", "1", "--cc", "80", *more)
        assert said.code == 124 and "the CPU: it is slow, or does not end" in said.out + said.err
        if more:
            assert json.loads(said.out)["complete"] is False
        else:
            assert (
                "0 findings, but no reference to compare with, in " in said.err and "tune it" not in said.err
            )
