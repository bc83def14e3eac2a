"""Initial configurations: read from a kernel's file, and settled for a problem and a GPU."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.commands import said_by
from tests.faults.kernels import configuration, write_kernel
from tests.initial_tables import INITIAL, with_initial
from tuner.core.errors import KernelError
from tuner.core.model import Configuration, Gpu
from tuner.expressions.arithmetic import parse
from tuner.kernel.default import default_configuration, default_configurations
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.initial import MAX_INITIAL, settle
from tuner.kernel.load import read_kernel
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec
from tuner.runtime.expressions import ceil_div

H200 = ARCHITECTURES[90]


def settled(kernel: KernelSpec, gpu: Gpu = H200, **problem: Any) -> list[Configuration | str]:
    chosen = kernel.problem(**problem)
    space = SearchSpace.from_kernel(kernel, chosen, gpu)
    return [entry.configuration or entry.refused for entry in settle(kernel, chosen, gpu, space.contains)]


# -- reading


RULES = """
[[initial]]
variant = "plain"
default = "n >= 1024"
parameters = { block_size = 128, items = 4 }

[[initial]]
variant = "plain"
default = true
when = "n >= 100"
parameters = { block_size = 32 }
"""


@pytest.mark.parametrize(
    ("size", "given"), [(4096, {"block_size": 128, "items": 4}), (512, {"block_size": 32}), (50, {})]
)
def test_the_default_goes_by_the_size(size: int, given: dict[str, Any], tmp_path: Path) -> None:
    kernel = with_initial(tmp_path, RULES)
    plain = dict(kernel.variants["plain"].defaults)
    problem = kernel.problem({"n": size})
    expected = Configuration.of("plain", {**plain, **given})
    assert default_configuration(kernel, problem, H200) == expected
    assert SearchSpace.from_kernel(kernel, problem, H200).default == expected
    narrowed = SearchSpace.from_kernel(kernel, problem, H200, fixed={"block_size": [64]})
    assert narrowed.default.values["block_size"] == 64
    assert {one for _, one in default_configurations(kernel, problem, H200)} == {
        Configuration.of("plain", plain)
    }  # a program takes the first that is valid, whatever the size


@pytest.mark.parametrize(("reference", "digests"), [("numpy", 1), ("default", 2)])
def test_rules_of_the_default_separate_results_that_are_checked_against_it(
    reference: str, digests: int, tmp_path: Path
) -> None:
    found = set()
    for size in ("1024", "2048"):
        path = write_kernel(tmp_path / size, extra=RULES.replace("1024", size))
        text = path.read_text()
        if reference == "default":
            text = re.sub(r"(?m)^\[reference\]\n(.+\n)*", "", text)
            text = f'reference = "default"\n{text}'
        path.write_text(text)
        found.add(KernelIdentity(read_kernel(path)).text)
    assert len(found) == digests


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("parameters = { block_size = 100 }", ("block_size = 100", "never", "[32, 64, 128, 256]")),
        ("parameters = { block_size = '1 // 0' }", ("block_size", "1 // 0")),
        ("parameters = { blocksize = 128 }", ("blocksize", "did you mean block_size")),
        ("default = 'itms > 1'", ("itms", "unknown name")),
        # A parameter is known only to those after it.
        ("parameters = { block_size = '32 * items', items = 2 }", ("items", "unknown name")),
        ("when = 'block_sizes > 2'", ("when", "did you mean block_size")),
        ("parameters = { items = [1, 2] }", ("several values", "minimize")),
        ("parameters = { items = 2 }\nminimize = 'items'", ("several values", "minimize")),
        ("parameters = { items = [] }\nminimize = 'items'", ("items", "empty")),
        ("parameters = { items = [1, 5] }\nminimize = 'items'", ("items = 5", "never")),
        ("parameters = { items = [1, 2] }\nminimize = 'item'", ("minimize", "did you mean items")),
    ],
)
def test_what_is_wrong_is_refused(tmp_path: Path, line: str, words: tuple[str, ...]) -> None:
    path = write_kernel(tmp_path, extra=f'[[initial]]\nvariant = "plain"\n{line}\n')
    with pytest.raises(KernelError) as caught:
        read_kernel(path)
    message = str(caught.value)
    assert message.startswith("scale.toml: initial[0]")
    assert "\n" not in message
    for word in words:
        assert word in message


def test_one_rule_for_several_variants(tmp_path: Path) -> None:
    path = write_kernel(
        tmp_path, extra='[[initial]]\nvariant = ["plain", "other"]\nparameters = { items = 2 }\n'
    )
    text = path.read_text()
    copied = (
        text[text.index("[variants.plain") : text.index("[[initial]]")]
        + text[text.index("[[variants.plain") :]
    )
    path.write_text(text + copied.replace("variants.plain", "variants.other"))
    assert [(seed.variant, seed.parameters) for seed in read_kernel(path).initial] == [
        ("plain", {"items": 2}),
        ("other", {"items": 2}),
    ]
    path.write_text(path.read_text().replace('"plain", "other"', '"plain", "others"'))
    with pytest.raises(KernelError, match=r"initial\[0\].*did you mean other"):
        read_kernel(path)


# -- settling


def test_what_holds_becomes_a_configuration(tmp_path: Path) -> None:
    kernel = with_initial(tmp_path)
    assert settled(kernel) == [
        configuration(block_size=128, items=2),
        configuration(block_size=64, items=1),
        "holds when order == 'down' or input == 'float16'",
    ]
    large = settled(kernel, sizes={"n": 1 << 20}, options={"order": "down"})
    assert large == [
        configuration(block_size=128, items=4),
        "items = 1024 is not among its values",
        configuration(block_size=256),
    ]
    small = settled(kernel, sizes={"n": 512}, dtypes={"": "float16"})
    assert small[1:] == [configuration(block_size=64, items=1), configuration(block_size=256)]


def test_conditions_know_the_parameters(tmp_path: Path) -> None:
    text = """
    [[initial]]
    variant = "plain"
    when = "ceil_div(n, block_size * items) >= sm_count"
    parameters = { block_size = "256 if n > 5000 else 64" }
    """
    kernel = with_initial(tmp_path, text)
    assert settled(kernel, sizes={"n": 64 * 131}) == [f"holds when {kernel.initial[0].when.text}"]  # type: ignore[union-attr]
    assert settled(kernel, sizes={"n": 256 * 132}) == [configuration(block_size=256)]
    assert settled(kernel, replace(H200, sm_count=60), sizes={"n": 64 * 60}) == [configuration(block_size=64)]


CHOICE = """
[[initial]]
variant = "plain"
when = "block_size * items <= n"
parameters = { block_size = [32, 64, 128, 256], items = [1, 2, 4] }
minimize = "ceil_div(ceil_div(n, block_size * items), sm_count) * (block_size * items + 100)"
"""


def test_the_choice_with_the_least_is_taken(tmp_path: Path) -> None:
    """Here a wave model: blocks over SMs, with a cost for each."""
    kernel = with_initial(tmp_path, CHOICE)

    def cost(size: int, work: int) -> int:
        return ceil_div(ceil_div(size, work), 132) * (work + 100)

    for size in (30, 32, 1000, 9000, 132 * 256, 100_000, 1_000_000):
        works = [b * i for b in (32, 64, 128, 256) for i in (1, 2, 4) if b * i <= size]
        (tried,) = settled(kernel, sizes={"n": size})
        if not works:
            assert tried == "holds when block_size * items <= n"
            continue
        assert isinstance(tried, Configuration)
        block_size, items = (int(tried.values[name]) for name in ("block_size", "items"))
        assert cost(size, block_size * items) == min(cost(size, work) for work in works)


def test_a_choice_that_is_not_valid_makes_room(tmp_path: Path) -> None:
    rules = '[variants.plain.constraints]\n"no small blocks" = "block_size > 32 * items"\n'
    text = CHOICE.replace("sm_count) * (block_size * items + 100)", "1) * block_size * items")
    assert settled(with_initial(tmp_path, rules + text)) == [configuration(block_size=64)]
    narrow = kernel = with_initial(tmp_path / "b", text)
    narrow_space = SearchSpace.from_kernel(kernel, kernel.problem(), H200, fixed={"items": (4,)})
    (entry,) = settle(narrow, kernel.problem(), H200, narrow_space.contains)
    assert entry.configuration == configuration(block_size=32, items=4)


def test_what_cannot_be_tried_says_why(tmp_path: Path) -> None:
    rules = '[variants.plain.constraints]\n"at most 256 a block" = "block_size * items <= 256"\n'
    text = """
    [[initial]]
    variant = "plain"
    parameters = { block_size = 128, items = 4 }
    [[initial]]
    variant = "plain"
    parameters = { block_size = 128, items = 2 }
    [[initial]]
    variant = "plain"
    parameters = { block_size = "64 * 2", items = "n // 512" }
    [[initial]]
    variant = "plain"
    parameters = { items = "n // (n - 1024)" }
    """
    kernel = with_initial(tmp_path, rules + text)
    entries = settled(kernel)
    assert entries[0] == "does not meet 'at most 256 a block'"
    assert entries[1] == configuration(block_size=128, items=2)
    assert entries[2] == "the same as one before it"
    assert "has no value here" in str(entries[3])
    narrow = SearchSpace.from_kernel(kernel, kernel.problem(), H200, fixed={"block_size": (64,)})
    assert (
        settle(kernel, kernel.problem(), H200, narrow.contains)[1].refused
        == "not part of the space that is searched"
    )


def test_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_kernel(tmp_path, extra=INITIAL)
    lines = said_by(capsys, "show", str(path)).out.splitlines()
    assert "  initial  1. plain block_size=128 items=2  (large)" in lines
    assert "  unused   3. plain: holds when order == 'down' or input == 'float16'" in lines
    path = write_kernel(tmp_path, extra=INITIAL.replace('doc = "large"', 'doc = "large"\ndefault = true'))
    assert (
        "  initial  1. plain block_size=128 items=2, the default  (large)"
        in said_by(capsys, "show", str(path)).out
    )
    path = write_kernel(tmp_path, extra=INITIAL)
    data = json.loads(said_by(capsys, "show", str(path), "--size", "n=512", "--json").out)
    assert data["seeds"][0]["refused"] == "holds when n >= 1024"
    assert data["seeds"][1]["configuration"] == {"fault": "ok", "block_size": 64, "items": 1}
    assert data["seeds"][1]["parameters"] == {"items": "ceil_div(n, 1024)", "block_size": 64}


def test_at_most_so_many_choices(tmp_path: Path) -> None:
    text = (
        f'[[initial]]\nvariant = "plain"\nparameters = {{ items = {list(range(300))} }}\nminimize = "items"\n'
    )
    with pytest.raises(KernelError, match="300 choices"):
        read_kernel(write_kernel(tmp_path, extra=text, items=range(300)))


def test_equal_choices_go_by_their_order(tmp_path: Path) -> None:
    text = CHOICE.replace("[32, 64, 128, 256]", "[128, 32]").replace("minimize = ", 'minimize = "0"  # ')
    assert settled(with_initial(tmp_path, text)) == [configuration(block_size=128)]


def test_a_variant_that_the_gpu_lacks(tmp_path: Path) -> None:
    kernel = with_initial(tmp_path)
    plain = kernel.variants["plain"]
    hopper = replace(plain, requires=parse("cc >= 90"))
    kernel = replace(kernel, variants={"plain": hopper, "other": replace(plain, name="other")})
    assert settled(kernel, ARCHITECTURES[80])[:2] == ["plain requires cc >= 90"] * 2
    assert settled(kernel)[1] == configuration(block_size=64)


def test_at_most_a_few(tmp_path: Path) -> None:
    items = range(1, 17)
    text = "".join(f'[[initial]]\nvariant = "plain"\nparameters = {{ items = {i} }}\n' for i in items)
    entries = settled(with_initial(tmp_path, text, items=list(items)))
    assert [isinstance(one, Configuration) for one in entries] == [True] * MAX_INITIAL + [False] * (
        16 - MAX_INITIAL
    )
    assert entries[-1] == f"beyond the first {MAX_INITIAL}"
