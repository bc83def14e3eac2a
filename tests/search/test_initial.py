"""Initial configurations: read from a kernel's file, settled for a problem and a GPU, tried after the default."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from tests.commands import said_by
from tests.faults.compiling_device import CompilingDevice
from tests.faults.kernels import configuration, scale_kernel, write_kernel
from tests.faults.stub_device import StubDevice, Watcher, good, stop_after, time_of
from tests.sessions import request_of
from tuner.cli.commands.run import run as run_command
from tuner.database.database import Database
from tuner.errors import Interrupted, KernelError
from tuner.expressions.arithmetic import Expression, parse
from tuner.expressions.evaluation import ceil_div
from tuner.hardware.roofline import ARCHITECTURES
from tuner.kernel.load import read_kernel
from tuner.kernel.spec import KernelSpec
from tuner.model import Configuration, Gpu, Measurement, Status
from tuner.report.summary import summary
from tuner.search.initial import CHOICES
from tuner.search.kernel_initial import MAX_INITIAL, settle
from tuner.space.space import SearchSpace
from tuner.tuning.history import RETRIED as MOST_BEFORE
from tuner.tuning.session import tune
from tuner.tuning.state import Result

H200 = ARCHITECTURES[90]
INITIAL = """
[[initial]]
variant = "plain"
when = "n >= 1024"
parameters = { block_size = 128, items = "4 if n > sm_count * block_size else 2" }
doc = "large"

[[initial]]
variant = "plain"
parameters = { items = "ceil_div(n, 1024)", block_size = 64 }

[[initial]]
variant = "plain"
when = "order == 'down' or input == 'float16'"
parameters = { block_size = 256 }
"""


def with_initial(folder: Path, text: str = INITIAL, **changes: Any) -> KernelSpec:
    return scale_kernel(folder, extra=text, **changes)


def settled(kernel: KernelSpec, gpu: Gpu = H200, **problem: Any) -> list[Configuration | str]:
    chosen = kernel.problem(**problem)
    space = SearchSpace.from_kernel(kernel, chosen, gpu)
    return [entry.configuration or entry.refused for entry in settle(kernel, chosen, gpu, space)]


# -- reading


def test_values_and_expressions(tmp_path: Path) -> None:
    kernel = with_initial(tmp_path)
    first, second, third = kernel.initial
    assert first.doc == "large"
    assert first.parameters["block_size"] == 128
    assert isinstance(first.parameters["items"], Expression)
    assert second.when is None
    assert third.parameters == {"block_size": 256}


def test_initial_configurations_do_not_separate_results(tmp_path: Path) -> None:
    assert with_initial(tmp_path / "a").digest == scale_kernel(tmp_path / "b").digest


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("parameters = { block_size = 100 }", ("block_size = 100", "never", "[32, 64, 128, 256]")),
        ("parameters = { block_size = '2 * 50' }", ("never", "[32, 64, 128, 256]")),
        ("parameters = { block_size = true }", ("never",)),
        ("parameters = { block_size = '1 // 0' }", ("block_size", "1 // 0")),
        ("parameters = { blocksize = 128 }", ("blocksize", "did you mean block_size")),
        ("parameters = { fault = 'okay' }", ("okay",)),
        ("parameters = { block_size = '32 * itms' }", ("itms", "unknown name")),
        # A parameter is known only to those after it.
        ("parameters = { block_size = '32 * items', items = 2 }", ("items", "unknown name")),
        ("when = 'block_sizes > 2'", ("when", "did you mean block_size")),
        ("when = 'registers < 32'", ("when", "registers")),
        ("wehn = 'n > 2'", ("wehn",)),
        ("parameters = { items = [1, 2] }", ("several values", "minimize")),
        ("parameters = { items = 2 }\nminimize = 'items'", ("several values", "minimize")),
        ("parameters = { items = [] }\nminimize = 'items'", ("items", "empty")),
        ("parameters = { items = [1, 5] }\nminimize = 'items'", ("items = 5", "never")),
        ("parameters = { items = [1, 'n'] }\nminimize = 'items'", ("items = 'n'", "never")),
        ("parameters = { items = [1, 2] }\nminimize = 'item'", ("minimize", "did you mean items")),
        ("parameters = [1]", ("parameters",)),
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


def test_an_unknown_variant_is_refused(tmp_path: Path) -> None:
    path = write_kernel(tmp_path, extra='[[initial]]\nvariant = "plan"\n')
    with pytest.raises(KernelError, match="did you mean plain"):
        read_kernel(path)


def test_at_most_so_many_choices(tmp_path: Path) -> None:
    text = (
        f'[[initial]]\nvariant = "plain"\nparameters = {{ items = {list(range(300))} }}\nminimize = "items"\n'
    )
    with pytest.raises(KernelError, match="300 choices"):
        read_kernel(write_kernel(tmp_path, extra=text, items=range(300)))


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


def test_a_constant_expression_is_a_value(tmp_path: Path) -> None:
    text = '[[initial]]\nvariant = "plain"\nparameters = { block_size = "2 ** 6", fault = "ok" }\n'
    assert with_initial(tmp_path, text).initial[0].parameters == {"block_size": 64, "fault": "ok"}


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
    (entry,) = settle(narrow, kernel.problem(), H200, narrow_space)
    assert entry.configuration == configuration(block_size=32, items=4)


def test_equal_choices_go_by_their_order(tmp_path: Path) -> None:
    text = CHOICE.replace("[32, 64, 128, 256]", "[128, 32]").replace("minimize = ", 'minimize = "0"  # ')
    assert settled(with_initial(tmp_path, text)) == [configuration(block_size=128)]


def test_the_gpu_decides_too(tmp_path: Path) -> None:
    kernel = with_initial(tmp_path)
    few = replace(H200, sm_count=4)
    assert settled(kernel, few)[0] == configuration(block_size=128, items=4)
    assert settled(kernel)[0] == configuration(block_size=128, items=2)


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
        settle(kernel, kernel.problem(), H200, narrow)[1].refused == "not part of the space that is searched"
    )


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
    assert [isinstance(one, Configuration) for one in entries] == [True] * MAX_INITIAL + [False] * 8
    assert entries[-1] == f"beyond the first {MAX_INITIAL}"


# -- in a run


@pytest.fixture
def kernel(tmp_path: Path) -> KernelSpec:
    return with_initial(tmp_path / "kernel", blocks=range(32, 513, 32), items=range(1, 9))


FIRST = [configuration(block_size=128, items=2), configuration(block_size=64, items=1)]


def run(kernel: KernelSpec, database: Database, device: StubDevice, **changes: Any) -> Result:
    stop, watcher = changes.pop("stop", lambda: False), changes.pop("watcher", None) or Watcher()
    request = request_of(kernel, kernel.problem(), **{"trials": 12, "from_scratch": True, **changes})
    return tune(request, device, database, watcher, stop)


@pytest.mark.parametrize("sampler", ["gp-ei", "tpe", "random", "brute-force"])
@pytest.mark.parametrize("lookahead", [1, 8])
def test_they_come_after_the_default(
    database: Database, kernel: KernelSpec, sampler: str, lookahead: int
) -> None:
    device = StubDevice(lookahead)
    result = run(kernel, database, device, sampler=sampler)
    assert device.submitted[:3] == [result.state.space.default, *FIRST]
    assert len(device.submitted) == len(set(device.submitted)) == 12
    assert result.stats["seeds"] == {"scale.toml": [1, 2]}
    assert database.run_state(result.state.run.id)["stats"]["seeds"] == {"scale.toml": [1, 2]}


def test_none_of_them(database: Database, kernel: KernelSpec) -> None:
    device = StubDevice()
    result = run(kernel, database, device, initial="none")
    assert result.stats["seeds"] == {}
    assert "seeds" not in summary(result, Path("tuning.db"))
    assert device.submitted[1:3] != FIRST


def test_the_summary_says_where_they_come_from(database: Database, kernel: KernelSpec) -> None:
    only = StubDevice(
        answer=lambda c: good(time_of(c)) if c in FIRST else Measurement(Status.WRONG_RESULT, error="no")
    )
    result = run(kernel, database, only, trials=3)
    assert "initial    2 from scale.toml; the winner is one of them" in summary(result, Path("tuning.db"))
    result = run(kernel, database, StubDevice(answer=lambda c: good(2000.0 if c in FIRST else 1000.0)))
    assert "initial    2 from scale.toml; the best of them 2 us" in summary(result, Path("tuning.db"))
    failing = StubDevice(
        answer=lambda c: Measurement(Status.WRONG_RESULT, error="no") if c in FIRST else good(1000.0)
    )
    result = run(kernel, database, failing)
    assert "initial    2 from scale.toml; none of them worked" in summary(result, Path("tuning.db"))


def test_the_command_line_offers_what_there_is() -> None:
    (option,) = (one for one in run_command.params if one.name == "initial")
    assert isinstance(option.type, click.Choice)
    assert tuple(option.type.choices) == CHOICES


def test_a_narrowed_space_leaves_them_out(database: Database, kernel: KernelSpec) -> None:
    result = run(kernel, database, StubDevice(), fixed={"items": ("1",)})
    assert result.stats["seeds"] == {"scale.toml": [1]}


def test_what_earlier_runs_tried_is_not_tried_again(database: Database, kernel: KernelSpec) -> None:
    def answer(tried: Configuration) -> Measurement:
        return good(9e6) if tried in FIRST else good(time_of(tried))  # too slow to be tried again

    run(kernel, database, StubDevice(answer=answer), from_scratch=False)
    device = StubDevice(answer=answer)
    assert run(kernel, database, device, from_scratch=False, seed=3).stats["seeds"] == {"scale.toml": []}
    assert not set(FIRST) & set(device.submitted)


def test_the_best_of_earlier_runs_may_be_one_of_them(database: Database, kernel: KernelSpec) -> None:
    """Named twice, it is tried once, before anything could be compiled ahead."""

    def answer(tried: Configuration) -> Measurement:
        return good(1e5 if tried in FIRST else time_of(tried) + 1e5)

    run(kernel, database, StubDevice(answer=answer), sampler="gp-ei")
    device = CompilingDevice(answer=answer)
    result = run(kernel, database, device, sampler="gp-ei", from_scratch=False)
    assert set(FIRST) <= set(device.submitted[1:4])
    assert len(device.submitted) == len(set(device.submitted)) == len(result.state.trials) == 12


@pytest.mark.parametrize("resumed", [False, True])
def test_the_best_of_earlier_runs_come_first(database: Database, kernel: KernelSpec, resumed: bool) -> None:
    earlier = StubDevice()
    run(kernel, database, earlier, fixed={"items": ("3", "4")})  # none of the initial ones is among these
    best = set(sorted(earlier.submitted, key=time_of)[:MOST_BEFORE])
    if resumed:
        with pytest.raises(Interrupted):
            run(kernel, database, StubDevice(), from_scratch=False, stop=lambda: True)
    device = StubDevice()
    result = run(kernel, database, device, from_scratch=False, resume=resumed)
    first = device.submitted[: 1 + MOST_BEFORE + len(FIRST)]
    assert first[0] == result.state.space.default
    assert set(first[1:-2]) == best
    assert first[-2:] == FIRST


def test_resumption_tries_what_is_left_of_them(database: Database, kernel: KernelSpec) -> None:
    watcher = Watcher()
    with pytest.raises(Interrupted):
        run(kernel, database, StubDevice(), watcher=watcher, stop=stop_after(watcher, 1))
    assert len(watcher.numbers) == 2  # what was under way had an end
    device = StubDevice()
    result = run(kernel, database, device, resume=True, initial="none")
    assert device.submitted[0] == FIRST[1]
    assert FIRST[0] not in device.submitted
    assert result.stats["seeds"] == {"scale.toml": [1, 2]}


def test_a_resumed_run_keeps_its_choice(database: Database, kernel: KernelSpec) -> None:
    watcher = Watcher()
    with pytest.raises(Interrupted):
        run(kernel, database, StubDevice(), watcher=watcher, stop=stop_after(watcher, 2), initial="none")
    assert run(kernel, database, StubDevice(), resume=True).stats["seeds"] == {}


def test_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_kernel(tmp_path, extra=INITIAL)
    lines = said_by(capsys, "show", str(path)).out.splitlines()
    assert "  initial  1. plain block_size=128 items=2  (large)" in lines
    assert "  unused   3. plain: holds when order == 'down' or input == 'float16'" in lines
    long = INITIAL.replace("n >= 1024", "n >= 1024 and n " + "+ 0 " * 40 + "< 0")
    path = write_kernel(tmp_path, extra=long)
    out = said_by(capsys, "show", str(path)).out
    (line,) = (line for line in out.splitlines() if "1. plain" in line)
    assert line.startswith("  unused   1. plain  (large): holds when n >= 1024 and n + 0")
    assert out.count("+ 0") < 40 and " ...\n" in out
    out = said_by(capsys, "show", "gemm", "--cc", "80", "--size", "m=64,n=64,k=64").out
    _, _, left_out = " ".join(out.split()).partition("variants that are left out here: ")
    assert "(wgmma);" in left_out
    assert sum("wgmma " in line for line in out.splitlines() if line.startswith("  unused")) == 0
    path = write_kernel(tmp_path, extra=INITIAL)
    data = json.loads(said_by(capsys, "show", str(path), "--size", "n=512", "--json").out)
    assert data["seeds"][0]["refused"] == "holds when n >= 1024"
    assert data["seeds"][1]["configuration"] == {"fault": "ok", "block_size": 64, "items": 1}
    assert data["seeds"][1]["parameters"] == {"items": "ceil_div(n, 1024)", "block_size": 64}
