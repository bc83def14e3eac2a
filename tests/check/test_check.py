"""`tune check`: each planted fault is found with its file and line, and right kernels have none."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.commands import said_by
from tuner.check.emulation import HostChild, HostChildren
from tuner.check.toml_lines import TomlLines
from tuner.emulator import host
from tuner.emulator.host import COMPILER, HostArray, HostKernel, NotForHost, Schedule, machine
from tuner.kernel.load import builtin_kernels, find_kernel
from tuner.kernel.toml.file import read_file

pytestmark = pytest.mark.usefixtures("forked_children")

ROOT = Path(__file__).parents[2]
PLANTED = ROOT / "tests" / "planted"
FILE_ALONE = ("--configurations", "0", "--no-cpu")


@dataclass(frozen=True)
class Fault:
    """One edit of the right kernel, and where it must be found."""

    name: str
    file: str
    right: str
    wrong: str
    at: str
    """Text of the line that the finding names, in the edited file."""
    says: str
    """Regular expression that the finding has."""
    found_in: str = ""
    """File of the finding, if it is another than the edited one."""


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

ARGUMENTS = 'arguments = ["x", "bias", "out", "scale", "columns"]'
CONSTRAINT = "block_size * items <= columns"
FLOAT = '{ value = "columns", dtype = "float32" }'
SCRATCH = 'scaled = { shape = ["rows", "columns"], dtype = "float32" }'
OF_VARIANTS = [
    Fault("sum", TOML, CONSTRAINT, "block_size + items", "block_size + items", "no condition"),
    Fault("never", TOML, CONSTRAINT, "block_size > columns + 9999", "9999", "no valid"),
    Fault("chosen", TOML, CONSTRAINT, "items == 4", "items == 4", "default of .* breaks"),
    Fault(
        "block",
        TOML,
        'block = ["block_size"]',
        'block = ["32 * block_size"]',
        "32 *",
        "launched: block of 4096",
    ),
    Fault("grid", TOML, '"ceil_div(columns, width)"', '"columns // 2**20"', "2**20", "= 0"),
    Fault("shared", TOML, '"4 * width"', '"width * 2**20"', "2**20", "shared memory"),
    Fault("gpu", TOML, '"cc >= 75"', '"cc >= 990"', "cc >= 990", "no known GPU"),
    Fault(
        "parameter", TOML, "items = {", "some = { values = [1, 2] }\nitems = {", "some =", "parameter some"
    ),
    Fault("scratch", TOML, "scaled = {", f"other = {{ {ROWS} }}\nscaled = {{", "other = {", "scratch other"),
    Fault("output", TOML, '"out", "columns"]', '"scaled", "columns"]', "launches]]", "gets the output out"),
    Fault("count", TOML, ARGUMENTS, ARGUMENTS[:-1] + ', "rows"]', '"rows"]', "takes 5 parameters.*passes 6"),
    Fault("real", TOML, ARGUMENTS, ARGUMENTS.replace('"columns"', FLOAT), FLOAT, "argument 5 .*integer"),
    Fault("order", TOML, '"out", "scale"', '"scale", "out"', '"scale", "out"', "argument 3 .*a pointer"),
    Fault("dtype", TOML, SCRATCH, SCRATCH.replace("32", "64"), '["x", "scaled"', "float64.*32-bit float"),
    Fault("entry", TOML, 'entry = "blend"', 'entry = "blemd"', "launches]]", "blemd"),
    Fault("code", PLAIN, "const int column =", "const int colunm =", "column < columns", "column"),
    Fault("source", STAGED, "to_float(bias[column])", "to_flaot(bias[column])", "to_flaot", "to_flaot"),
    Fault("half", PLAIN, "float(bias[column])", "bias[column] + 0.5", "0.5", r"operator.*float16"),
    Fault("host", PLAIN, "<cuda_fp16.h>", "<iostream>", "<iostream>", "between #ifndef __CUDACC_RTC__"),
    Fault("cudas", PLAIN, "<cuda_fp16.h>", "<cuda_fp61.h>", "<cuda_fp61.h>", "come with nvidia-cuda-runtime"),
    Fault("macro", PLAIN, "int columns)", "int items)", "int items)", "items is a macro here"),
    Fault("jinja", STAGED, "{{ width }} - 1", "{{ wdith }} - 1", "wdith", "wdith"),
]
"""Found by compiling."""

ON_CPU = [
    Fault("edge", PLAIN, "if (column < columns) {", "{", "variants.", "array|wrong", TOML),
    Fault(
        "index", PLAIN, "float(bias[column])", "float(bias[first])", "variants.", r"out\[\d+, \d+\] is", TOML
    ),
    Fault(
        "input",
        PLAIN,
        "const long long row",
        "const_cast<input_type*>(x)[0] = 1;\n    const long long row",
        "variants.",
        "input x is written",
        TOML,
    ),
    Fault("barrier", STAGED, "    __syncthreads();\n", "", "variants.", "wrong", TOML),
    Fault(
        "waits",
        STAGED,
        "__syncthreads();",
        "if (threadIdx.x < 5) { __syncthreads(); } else { __syncwarp(); }",
        "variants.",
        "a standstill: ",
        TOML,
    ),
    Fault(
        "added",
        PLAIN,
        "out[row * columns + column] =",
        "out[row * columns + column] = float(out[row * columns + column]) +",
        "variants.",
        'role = "inout"',
        TOML,
    ),
    Fault("lost", STAGED, "i < count", "i < count - 1", "variants.", "is nan", TOML),
]
"""Found by running it."""

OF_REFERENCES = [
    Fault("entry", TOML, 'entry = "blend_reference"', 'entry = "other"', "reference.cuda", "other"),
    Fault("code", REFERENCE, "const double added", "const doubel added", "doubel", "doubel"),
    Fault(
        "differ", REFERENCE, "product + added", "product - added", "reference.cuda", "references of out", TOML
    ),
]


def edited(text: str, fault: Fault) -> str:
    assert fault.right in text, fault.name
    return text.replace(fault.right, fault.wrong, 1)


def planted(folder: Path, *faults: Fault) -> Path:
    """Return a copy of the right kernel, with faults in it."""
    shutil.copytree(PLANTED, folder, dirs_exist_ok=True)
    for fault in faults:
        file = folder / fault.file
        file.write_text(edited(file.read_text(), fault))
    return folder / TOML


def with_variants(folder: Path, faults: list[Fault]) -> Path:
    """Return a kernel that has, beside the right variants, a copy of one for each fault."""
    kernel = planted(folder)
    head, plain, staged = re.split(
        r"(?=^\[variants\.(?:plain|staged)\]$)", kernel.read_text(), flags=re.MULTILINE
    )
    blocks = [head, plain, staged]
    for fault in faults:
        original = next(
            block for block in (plain, staged) if fault.right in block or f'"{fault.file}"' in block
        )
        name, file = ("plain", PLAIN) if original is plain else ("staged", STAGED)
        block = edited(original, fault) if fault.file == TOML else original
        own = f"{fault.name}_{file}"
        source = (folder / file).read_text()
        (folder / own).write_text(source if fault.file == TOML else edited(source, fault))
        blocks.append(
            block.replace(f"variants.{name}", f"variants.{fault.name}").replace(f'"{file}"', f'"{own}"')
        )
    kernel.write_text("\n".join(blocks))
    return kernel


def findings(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str]]:
    said = said_by(capsys, "check", *arguments)
    return said.code, said.out.splitlines()


def finds(lines: list[str], file: Path, fault: Fault) -> bool:
    """Return whether a line names the fault's line in a file, and says what it must."""
    text = file.read_text().splitlines()
    return any(
        fault.at in text[int(match[1]) - 1] and re.search(fault.says, match[2])
        for line in lines
        if (match := re.match(rf"{re.escape(str(file))}:(\d+): (.*)", line))
    )


@pytest.mark.parametrize("fault", OF_THE_FILE, ids=lambda fault: fault.name.replace(" ", "_"))
def test_faults_of_the_file(fault: Fault, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = findings(capsys, str(planted(tmp_path, fault)), *FILE_ALONE)
    assert code == 1
    assert finds(lines, tmp_path / TOML, fault), lines


def of_variant(lines: list[str], kernel: Path) -> set[str]:
    """Return the variants in whose part of the file, or of whose templates, findings are."""
    names, text = set(), kernel.read_text().splitlines()
    for line in lines:
        file, number = line.split(":")[:2]
        if file == str(kernel):
            before = (re.match(r"\[+variants\.(\w+)", one) for one in text[: int(number)])
            names.add([match[1] for match in before if match][-1])
        else:
            names.add(Path(file).name.split("_")[0])
    return names


@pytest.mark.parametrize("on_cpu", [False, True], ids=["compiled", "run"])
def test_faults_of_variants(on_cpu: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All at once, a variant for each: every one is found, and nothing is found in the right variants."""
    if on_cpu and COMPILER is None:
        pytest.skip("no g++")
    faults = ON_CPU if on_cpu else OF_VARIANTS
    kernel = with_variants(tmp_path, faults)
    more = [] if on_cpu else ["--no-cpu"]
    said = said_by(capsys, "check", str(kernel), "--configurations", "1", "--cc", "80", "-j", "1", *more)
    lines = said.out.splitlines()
    assert said.code == 1
    missed = []
    for fault in faults:
        template = PLAIN if fault.file == PLAIN else STAGED
        file = kernel if TOML in (fault.file, fault.found_in) else tmp_path / f"{fault.name}_{template}"
        if not finds(lines, file, fault):
            missed.append(fault.name)
    assert not missed, f"{missed}\n{said.out}{said.err}"
    assert of_variant(lines, kernel) == {fault.name for fault in faults}, said.out + said.err


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


def test_a_compiler_that_is_killed_has_a_second_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if COMPILER is None:
        pytest.skip("no g++")
    machine()
    compiler, mark = tmp_path / "g++", tmp_path / "tried"
    compiler.write_text(f"#!/bin/sh\nif mkdir '{mark}'; then kill -9 $$; fi\nexec '{COMPILER}' \"$@\"\n")
    compiler.chmod(0o755)
    monkeypatch.setattr(host, "COMPILER", str(compiler))
    HostKernel('extern "C" __global__ void one(float* x) { x[0] = 1; }', "one", tmp_path / "right")
    assert mark.is_dir()
    compiler.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(NotForHost, match="status 3"):
        HostKernel("", "one", tmp_path / "wrong")


def test_functions_of_cuda_are_there_on_the_cpu(tmp_path: Path) -> None:
    if COMPILER is None:
        pytest.skip("no g++")
    right = {
        "warpSize": 32, "__brev(1u)": 2**31, "__clzll(1)": 63, "__ffsll(8)": 4, "__mulhi(1 << 30, -4)": -1,
        "__fma_rn(2.0, 3.0, 4.0)": 10, "__dsqrt_rn(9.0)": 3, "__float2uint_rn(2.5f)": 2,
    }  # fmt: skip
    lines = "".join(f"y[{number}] = {text};\n" for number, text in enumerate(right))
    source = f'extern "C" __global__ void values(double* y) {{ {lines} }}'
    y = HostArray(len(right), "float64", 8)
    HostKernel(source, "values", tmp_path)(1, 1, 0, Schedule(), y)
    assert list(y.numbers) == list(right.values())


@pytest.mark.parametrize("fault", OF_REFERENCES, ids=lambda fault: fault.name)
def test_faults_of_references(fault: Fault, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = [] if fault.name == "differ" else ["--no-cpu", "-j", "1"]
    kernel = planted(tmp_path, fault)
    code, lines = findings(capsys, str(kernel), "--configurations", "1", "--cc", "80", *more)
    assert code == 1
    assert finds(lines, tmp_path / (fault.found_in or fault.file), fault), lines


def test_what_does_not_compile_or_fit_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faults = [fault for fault in OF_VARIANTS if fault.name in ("jinja", "entry", "count")]
    kernel = with_variants(tmp_path, faults)
    said = said_by(capsys, "check", str(kernel), "--configurations", "1", "--cc", "80", "-j", "1")
    lines = said.out.splitlines()
    assert len(lines) == 3
    assert all(sum(bool(re.search(fault.says, line)) for line in lines) == 1 for fault in faults)
    assert "emulator" not in said.err


def test_a_write_outside_of_an_array_names_the_array(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(ROOT / "docs" / "examples" / "rms_norm", tmp_path, dirs_exist_ok=True)
    source = tmp_path / "rms_norm.cu"
    source.write_text(source.read_text().replace("row >= rows", "row > rows"))
    said = said_by(capsys, "check", str(tmp_path / "rms_norm.toml"), "--configurations", "1", "--cc", "90")
    assert "after the last element of y" in said.out


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


def test_a_reference_that_fails_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (fault,) = (fault for fault in OF_THE_FILE if fault.name == "not a number")
    _, lines = findings(
        capsys, str(planted(tmp_path, fault)), "--configurations", "1", "--cc", "80", "-j", "1"
    )
    assert len(lines) == 1


def test_a_variant_that_no_small_problem_suits_is_said_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right, wrong = '"ceil_div(columns, width)"', '"rows * columns // 2097152"'
    file = planted(tmp_path, Fault("grid", TOML, right, wrong, "", ""))
    said = said_by(capsys, "check", str(file), "--configurations", "1", "--cc", "80", "-j", "1")
    (note,) = [line for line in said.err.splitlines() if "was not run" in line]
    assert "rows * columns // 2097152 = 0" in note


def test_the_right_kernel_has_no_finding(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, lines = findings(
        capsys, str(planted(tmp_path)), "--configurations", "2", "--cc", "80", "--cc", "90"
    )
    assert (code, lines) == (0, [])


@pytest.mark.parametrize("name", builtin_kernels())
def test_the_file_of_a_built_in_kernel_has_no_finding(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert findings(capsys, name, *FILE_ALONE) == (0, [])


@pytest.mark.parametrize(
    "name", ["saxpy", "docs/examples/heat/heat.toml", "docs/examples/softmax/softmax.toml"]
)
def test_a_right_kernel_has_no_finding(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert findings(capsys, name, "--configurations", "1", "--cc", "80", "-j", "1") == (0, [])


def test_errors_of_independent_parts_are_all_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kernel = with_variants(tmp_path, [OF_VARIANTS[0], OF_VARIANTS[1]])
    kernel.write_text(
        kernel.read_text()
        .replace("block_size + items", "block_sice", 1)
        .replace("columns + 9999", "colunms", 1)
        .replace("[work]", '[baselines]\nnumpy = "np.add(x, x)"\n\n[work]')
    )
    code, lines = findings(capsys, str(kernel), *FILE_ALONE)
    assert code == 1
    text = kernel.read_text().splitlines()
    named = [text[int(line.split(":")[1]) - 1] for line in lines]
    assert len(named) == 3
    assert all(any(word in line for line in named) for word in ("block_sice", "colunms", "np.add"))


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


def test_lines_of_every_key_of_built_in_kernels() -> None:
    """A line that is given for a key has the key's name in it."""
    checked = 0
    for kernel in builtin_kernels():
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
