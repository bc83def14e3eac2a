"""How large ``tune show`` and a run say that a space is: what is valid, what is a sample, what can be launched."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tests.commands import Tune
from tuner.core.errors import TunerError
from tuner.core.model import Configuration, Gpu, Problem
from tuner.kernel import enumeration
from tuner.kernel.launchable import unlaunchable
from tuner.kernel.load import load_kernel, read_kernel
from tuner.kernel.plan import make_plan
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec

TOML = """\
kernel = {{ name = "twice" }}
problem = {{ sizes = {{ count = {count} }}, dtypes = {{ input = "float32" }} }}
tensors.x = {{ shape = ["count"], dtype = "input" }}
tensors.y = {{ shape = ["count"], dtype = "input", role = "output" }}
reference = {{ numpy = "2 * x" }}
work = {{ bytes = "8 * count" }}

[variants.plain.parameters]
{parameters}
{constraints}
[[variants.plain.launches]]
template = "twice.cu"
entry = "twice"
arguments = ["x", "y", {arguments}]
grid = {grid}
block = {block}
shared_bytes = "{shared}"
{more}
"""
SOURCE = 'extern "C" __global__ void twice(const float* x, float* y, int n) {}\n'


def written(folder: Path, **changes: object) -> str:
    """Write a kernel; return its path."""
    values: dict[str, object] = {
        "count": 4096, "parameters": "threads = { values = [64, 128, 256] }", "constraints": "",
        "arguments": '"count"', "grid": '["ceil_div(count, threads)"]', "block": '["threads"]', "shared": "0",
        "more": "",
    }  # fmt: skip
    (folder / "twice.cu").write_text(SOURCE)
    (folder / "twice.toml").write_text(TOML.format(**{**values, **changes}))
    return str(folder / "twice.toml")


def factors(count: int, constraint: str, default: int = 1, more: str = "") -> dict[str, str]:
    names = "abcdefghijkl"[:count]
    first = f"{{ values = {list(range(1, 65))}, default = {default} }}"
    others = f"{{ values = {list(range(1, 65))} }}"
    lines = [f"{name} = {first if name == 'a' else others}" for name in names]
    text = constraint.replace("{*}", " * ".join(names)).replace("{+}", " + ".join(names))
    return {
        "parameters": "\n".join(lines),
        "constraints": f'[variants.plain.constraints]\n"as it must be" = "{text}"',
        "grid": '["ceil_div(count, a)"]',
        "block": '["a"]',
        "more": more,
    }


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"count": '"2**26"', "grid": '["1", "ceil_div(count, threads)"]'}, {"more than 65535 blocks in y": 3}),
        ({"count": '"2**23"', "grid": '["1", "1", "ceil_div(count, threads)"]'}, {"more than 65535 blocks in z": 2}),
        ({"count": '"2**31"'}, {"count beyond int32": 3}),
        ({"arguments": '"count", { value = "2**33 // threads" }'}, {"2\\*\\*33 // threads beyond int32": 0}),
        ({"block": '["threads", 8]'}, {"a block of more than 1024 threads": 1}),
        ({"block": '["1", "1", "threads"]'}, {"more than 64 threads in z": 2}),
        ({"shared": "threads * 1024"}, {"more than 232448 bytes of shared memory": 1}),
        ({"grid": '["count // 4096 - threads // 128"]'}, {"a grid of no blocks in x": 2}),
        ({"grid": '["threads / 128"]'}, {"a fraction of blocks in x": 1}),
        ({"arguments": '"count", { value = "192 / threads" }'}, {"192 / threads, a fraction for int32": 2}),
        ({"more": 'repeat = { name = "i", count = "1 + 6000 * (threads // 128)" }'}, {"more than 4096 launches": 2}),
        ({"more": 'cluster = [2]\n', "grid": '["count // threads // 16"]'}, {"no multiple of its cluster": 1}),
        (
            {"shared": "threads * 1024", "block": '["threads", 8]', "more": 'when = "threads != 128"'},
            {"a block of more than 1024 threads": 2},
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_launched_is_no_configuration(
    tune: Tune, tmp_path: Path, changes: dict[str, object], said: dict[str, int]
) -> None:
    path = written(tmp_path, **changes)
    shown = json.loads(tune("show", path, "--json", device="").out)["space"]
    (reason, count), *_ = said.items()
    assert shown["valid"] == 3 and shown["launchable"] == 3 - count
    assert sum(shown["unlaunchable"].values()) == count
    text = " ".join(tune("show", path, device="").out.split())
    if count:
        assert (
            "3 valid of 3" not in text and f"{3 - count} launchable of 3; valid, but not launchable:" in text
        )
        assert reason in text
    else:
        assert "3 valid of 3" in text
    # What the plan of each configuration says, one after another.
    kernel, gpu = read_kernel(Path(path)), ARCHITECTURES[90]
    space = SearchSpace.from_kernel(kernel, kernel.problem(), gpu)
    assert sum(_refused(kernel, kernel.problem(), gpu, one) for one in space.configurations()) == count
    assert tune("show", path, device="").code == (count == 3)


def _refused(kernel: KernelSpec, problem: Problem, gpu: Gpu, configuration: Configuration) -> bool:
    try:
        make_plan(kernel, problem, gpu, configuration)
    except TunerError:
        return True
    return False


@pytest.mark.parametrize(
    ("name", "variant", "sizes", "cc"),
    [
        ("gemm", "wgmma", {"m": 64, "n": 2**21 * 3, "k": 64}, 90),
        ("gemm", "tiled", {"m": 2**23, "n": 2, "k": 8}, 75),
        ("reduce", "two_pass", {}, 86),
        ("transform", "bulk", {"n": 2**33}, 90),
    ],
)
def test_counts_are_those_of_the_plans(name: str, variant: str, sizes: dict[str, int], cc: int) -> None:
    kernel, gpu = load_kernel(name), ARCHITECTURES[cc]
    problem = kernel.problem({size: sizes.get(size, known) for size, known in kernel.sizes.items()})
    space = SearchSpace.from_kernel(kernel, problem, gpu, [variant]).variants[0]
    rows = np.random.default_rng(0).choice(len(space), min(len(space), 300), replace=False)
    counted = unlaunchable(kernel, kernel.variants[variant], problem, gpu, space.matrix[rows])
    plans = Counter(_refused(kernel, problem, gpu, space.configuration(int(row))) for row in rows)
    assert sum(counted.values()) == plans[True]


def test_a_sample_says_that_it_is_one_and_has_what_is_known_to_be_valid(
    tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enumeration, "MAX_ROWS", 2000)
    monkeypatch.setattr(enumeration, "MAX_PARTIAL", 1000)
    first = '[[initial]]\nvariant = "plain"\nparameters = { a = 13, b = 11 }\n'
    path = written(tmp_path, **factors(6, "({+}) % 7 == 0", 2, first))
    said = tune("show", path, "--json", device="")
    space = json.loads(said.out)["space"]
    assert space["sampled"] and space["about"] == pytest.approx(64**6 / 7, rel=0.1)
    text = " ".join(tune("show", path, device="").out.split())
    assert (
        f"about {space['about']:.3g} valid of {64**6}, of which a sample of {space['valid']} is searched"
        in text
    )
    assert "initial 1. plain a=13 b=11" in text
    kernel = read_kernel(Path(path))
    whole = SearchSpace.from_kernel(kernel, kernel.problem(), ARCHITECTURES[90])
    values = dict.fromkeys("abcdef", 1)
    default, initial = whole.default, {**values, "a": 13, "b": 11}
    assert default.values == {**values, "a": 2}
    assert any(one.values == initial for one in whole.configurations())
    recorded = Configuration.of("plain", {**values, "a": 64, "b": 9})
    assert list(whole.restricted([recorded]).configurations()) == [recorded]
    assert whole.including([recorded]).contains(recorded)
    assert not whole.including([Configuration.of("plain", {**values, "a": 3})]).contains(recorded)
    assert tune("render", path, "--config", "default", device="").code == 0


def test_that_none_was_found_is_no_proof(tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enumeration, "MAX_ROWS", 2000)
    monkeypatch.setattr(enumeration, "MAX_PARTIAL", 1000)
    odd = "({*}) % 1000000007 == 12345"  # one in 10^9, and the modulus is prime: only trying helps
    path = written(tmp_path, **factors(7, odd))
    for command in (("show", path), ("render", path, "--config", "default")):
        said = tune(*command, device="")
        assert "no configuration that is valid was found" in said.err and "there may be one" in said.err
        assert "none of" in said.out + said.err and "no configuration is valid" not in said.err
    said = tune("check", path, device="")
    assert (
        said.code == 1 and "no valid configuration of variant plain was found: none of" in said.out + said.err
    )
    exact = written(tmp_path, **factors(7, "{*} == 67"))
    said = tune("show", exact, device="")
    assert said.code == 1 and "no configuration is valid" in said.err and "no combination meets" in said.out
