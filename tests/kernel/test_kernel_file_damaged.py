"""What is no kernel file, or damaged; and names and problems that there are not."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from tests.kernel_files import GOOD, refusal, write
from tuner.core.errors import KernelError, UsageError
from tuner.kernel.load import load_kernel, read_kernel
from tuner.kernel.toml.file import MAX_FILE_BYTES


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("[kernel", "not valid TOML"),
        ("a = {\n b = 1 }", "(at line 1, column 6); a table in { } stands on one line"),
        ("a = { b = 1, }", "without a comma behind its last entry"),
        ("a = \u201cb\u201d", "write plain quotes"),
        ("[kernel]\nfast = [\n\n", "at line 2, the end"),
        (GOOD.replace("fast = ", "block_size = "), "not valid TOML"),
        (b"\xff\xfe", "byte 0 is not UTF-8"),
        ("x = " + "[" * 5000, "nested too deeply"),
        (".".join(["a"] * 40_000) + " = 1", "line 1: a key has more than 20 parts"),
        ("# a.\n[" + " . ".join(['"a"'] * 40_000) + "]", "line 2: a key has more than 20 parts"),
        (GOOD.replace("fast", "0x" + "f" * 5000), "an integer has more than 64 bits"),
        ("# " + "x" * MAX_FILE_BYTES, "more than 1 MiB"),
        ("", "'name' is missing"),
    ],
)
def test_what_is_not_a_kernel_file_is_refused(text: str | bytes, part: str, tmp_path: Path) -> None:
    assert part in refusal(write(tmp_path, text))


def test_a_path_that_is_no_utf_8_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"m\xfcll")
    folder.mkdir()
    assert "its path is no UTF-8; rename or move it" in refusal(write(folder, GOOD))


def test_a_cuda_reference_writes_all_outputs_and_all_magnitudes_or_none(tmp_path: Path) -> None:
    table = (
        '[reference.cuda]\ntemplate = "scale.cu"\nentry = "scale"\n'
        'arguments = ["x", "y"]\ngrid = ["1"]\nblock = ["32"]\n\n[work]'
    )
    alone = GOOD.replace('[reference]\nnumpy = "alpha * x"\n', "")
    assert alone != GOOD
    text = alone.replace("[work]", table)
    for arguments, missing in (('["x"]', "'y'"), ('["x", "y_magnitude"]', "'y'")):
        refused = refusal(write(tmp_path, text.replace('["x", "y"]', arguments)))
        assert f"argument {missing} is missing" in refused
    second = '[tensors.z]\nshape = ["n"]\ndtype = "float32"\nrole = "output"\n\n[reference.cuda]'
    of_two = text.replace("[reference.cuda]", second).replace('["x", "y"]', '["x", "y", "y_magnitude", "z"]')
    assert "argument 'z_magnitude' is missing" in refusal(write(tmp_path, of_two))
    for arguments, against in (('["x", "y"]', "kernel"), ('["x", "y", "y_magnitude"]', "reference")):
        path = write(tmp_path, text.replace('["x", "y"]', arguments))
        assert read_kernel(path).reference.checked_against == against
    assert "leave one of them out" in refusal(write(tmp_path, GOOD.replace("[work]", table)))


def test_unknown_names_of_kernels(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean vector_add"):
        load_kernel("vectr_add")
    (tmp_path / "build.py").touch()
    with pytest.raises(UsageError, match=r"source; give the \.toml"):  # tune init reads no Python
        load_kernel(f"{tmp_path}/build.py")
    with pytest.raises(UsageError, match="no kernel file"):
        load_kernel(str(tmp_path / "none.toml"))
    with pytest.raises(KernelError, match="cannot read"):
        read_kernel(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({"sizes": {"m": 4}}, "no size 'm'"),
        ({"sizes": {"n": 0}}, "size n=0"),
        ({"sizes": {"n": 2**62 + 1}}, "size n=4611686018427387905"),
        ({"dtypes": {"": "int8"}}, "no dtype of input 'int8'"),
        ({"dtypes": {"output": "float16"}}, "fixes output to float32"),
        ({"options": {"order": "sideways"}}, "value of option order"),
        ({"preset": "smal"}, "did you mean small"),
    ],
)
def test_problems_that_the_kernel_does_not_have(arguments: dict[str, Any], part: str, tmp_path: Path) -> None:
    kernel = read_kernel(write(tmp_path, GOOD))
    with pytest.raises(UsageError, match=part):
        kernel.problem(**arguments)


def test_damaged_files_never_raise_anything_else(tmp_path: Path) -> None:
    """Cut, doubled and swapped pieces of a good file: each is read or refused, never a traceback."""
    rng = random.Random(0)
    pieces = [
        "0",
        "-1",
        "true",
        '""',
        "[]",
        "{}",
        "nan",
        '"\\u0000"',
        "[[1]]",
        "1e400",
        '"cc"',
        '"(" ',
        "9" * 20,
    ]
    refused = 0
    for _ in range(120):
        lines = GOOD.splitlines()
        row = rng.randrange(len(lines))
        if "=" in lines[row] and rng.random() < 0.8:
            key, _, rest = lines[row].partition("=")
            lines[row] = f"{key}= {rng.choice(pieces)}" if rng.random() < 0.7 else f"{key}x={rest}"
        else:
            lines[row : row + rng.randrange(3)] = []
        try:
            kernel = read_kernel(write(tmp_path, "\n".join(lines)))
            for preset in [None, *kernel.presets]:
                kernel.problem(preset=preset)
        except (KernelError, UsageError) as error:
            assert "\n" not in str(error)
            refused += 1
    assert refused > 60


def test_words_with_points_that_are_no_keys_are_left_alone(tmp_path: Path) -> None:
    long = ".".join(["a"] * 40)
    texts = f'"""{long}""" # {long}', f"'{long}' # {long}", f'"{long}\\"" # {long}'
    for text in texts:
        read_kernel(write(tmp_path, GOOD.replace('"y = 2 x"', text)))
