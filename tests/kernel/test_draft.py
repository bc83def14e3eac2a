"""Drafts of kernel files: what is written is read as the same kernel, and comments say what is to be settled."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tuner.kernel.draft import Draft, Given, LaunchDraft, ParameterDraft, TensorDraft
from tuner.kernel.load import read_kernel


def test_a_draft_is_read_as_what_it_says(tmp_path: Path) -> None:
    (tmp_path / "scale.cu").write_text(
        'extern "C" __global__ void scale(const float* x, float* y, float a, int n) {}'
    )
    draft = Draft(
        "scale",
        {"n": Given("2**20", "as large as you use it", gap=True)},
        {
            "x": TensorDraft(["n"], "float32", init={"uniform": [0, 1.5]}),
            "y": TensorDraft(["n"], "float32", "output", note="written by the kernel"),
        },
        [
            LaunchDraft(
                "scale.cu",
                "scale",
                ["x", "y", "a", {"value": "n", "dtype": "int32"}],
                ["ceil_div(n, BLOCK)"],
                ["BLOCK"],
                shared_bytes="4 * BLOCK",
            )
        ],
        {"BLOCK": ParameterDraft([64, 128, 256], 128, "threads of a block")},
        {'a "block" of 64 or more': "BLOCK >= 64"},
        summary='äöü \\ "quoted"\n\x7f',
        scalars={"a": ("float32", 0.5)},
        reference={"numpy": "a * x"},
        head=["Two lines", "of a comment."],
    )
    (tmp_path / "scale.toml").write_text(text := draft.toml())
    kernel = read_kernel(tmp_path / "scale.toml")
    assert (kernel.name, kernel.sizes, kernel.summary) == ("scale", {"n": 2**20}, draft.summary)
    assert kernel.tensors["x"].between[1].text == "1.5"
    (launch,) = kernel.variants["main"].launches
    assert [argument.name for argument in launch.arguments] == ["x", "y", "a", ""]
    assert launch.shared_bytes.text == "4 * BLOCK"
    assert dict(kernel.variants["main"].constraints)['a "block" of 64 or more'].text == "BLOCK >= 64"
    assert text.startswith("# Two lines\n# of a comment.\n")
    assert 'n = "2**20"  # TODO: as large as you use it\n' in text


def test_values_that_need_care_in_toml() -> None:
    values = {
        "inf": float("inf"),
        "none": float("-inf"),
        "small": 1e-30,
        "on": True,
        "list": [1, [2, {"a b": "c"}]],
    }
    draft = Draft(
        "k", {"n": 8}, {"x": TensorDraft(["n"], "float32")}, [], reference=values | {"long": "x" * 200}
    )
    read = tomllib.loads(draft.toml())
    assert read["reference"] == values | {"long": "x" * 200}
    assert read["problem"]["dtypes"] == {"input": ["float32"]}
