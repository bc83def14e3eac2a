"""A variant that is a Python function in place of launches: what needs code says that there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import assert_refused, said_by
from tests.faults.kernels import write_kernel
from tuner.core.errors import CompileError, KernelError
from tuner.core.model import Configuration
from tuner.kernel.functions import PythonFunction, built
from tuner.kernel.load import read_kernel
from tuner.kernel.roofline import ARCHITECTURES
from tuner.winners.contents import Contents

CALL = '[variants.called]\ncall = "mine.py:mine"\nparameters.block_size = { values = [1, 2] }\n'


def written(folder: Path, extra: str = CALL) -> Path:
    (folder / "mine.py").write_text("def mine(x, y, block_size): y.copy_(2 * x)\n")
    file = write_kernel(folder).resolve()
    file.write_text(file.read_text().partition("[variants.")[0] + extra)
    return file


def test_what_needs_code_says_that_it_has_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(written(tmp_path))
    assert "called  (2 valid of 2)" in said_by(capsys, "show", file).out
    said = said_by(capsys, "check", file, "--no-cpu")
    assert said.code == 0, said
    assert "only a GPU runs it: the function of called" in said.err
    assert_refused(said_by(capsys, "explain", file, "--config", "called block_size=2"), 2, "is a call")
    kernel = read_kernel(Path(file))
    problem, gpu = kernel.problem(), ARCHITECTURES[90]
    with pytest.raises(KernelError, match="is a call: a bundle has code"):
        Contents(kernel).add(kernel, problem, gpu, Configuration.of("called", {"block_size": 1}))


@pytest.mark.parametrize(
    ("returned", "part"),
    [
        ("3", "mine.py:mine returns an int; return a function of the arrays"),
        ("lambda *arrays: None", "what mine.py:mine returns names no parameters"),
        ("lambda: 1 / block_size", "names no parameters"),
        ("[][1]", "mine.py:1: IndexError: list index out of range"),
    ],
)
def test_what_is_built_can_be_called(tmp_path: Path, returned: str, part: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(f"def mine(block_size): return {returned}\n")
    with pytest.raises(CompileError) as caught:
        built(PythonFunction(file, "mine", builds=True), {"block_size": 1})
    assert part in str(caught.value)


def test_it_has_launches_or_a_call(tmp_path: Path) -> None:
    with pytest.raises(KernelError, match="there are no launches; add"):
        read_kernel(written(tmp_path, "[variants.called]\n"))
    both = CALL + '[[variants.called.launches]]\ntemplate = "scale.cu.j2"\nentry = "e"\narguments = []\n'
    with pytest.raises(KernelError, match="both launches and a call"):
        read_kernel(written(tmp_path, both + 'grid = ["1"]\nblock = ["1"]\n'))
    with pytest.raises(KernelError, match="both a call and a build"):
        read_kernel(written(tmp_path, CALL + 'build = "mine.py:mine"\n'))
    with pytest.raises(KernelError, match="no file nowhere"):
        read_kernel(written(tmp_path, CALL.replace("mine.py", "nowhere.py")))
