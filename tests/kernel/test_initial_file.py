"""Initial configurations in a file of their own: the same as in the kernel's, found, checked and located."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands import said_by
from tests.faults.kernels import write_kernel
from tuner.core.errors import KernelError
from tuner.core.model import Configuration
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.initial import settle
from tuner.kernel.load import read_kernel
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec

H200 = ARCHITECTURES[90]
NAMED = 'initial = "scale.initial.toml"\n\n'
SHARED = '[definitions]\nspan = "block_size * items"\n'
INITIAL = """
[definitions]
waves = "ceil_div(ceil_div(n, span), sm_count)"
cost = "waves * (span + 100)"

[[initial]]
variant = "plain"
when = "waves > 0"
parameters = [
    { block_size = [128, 32] },
    { items = [1, 2, 4] },
]
minimize = "cost"

[[initial]]
variant = "plain"
parameters = { items = 3 }
"""


def write(folder: Path, initial: str = INITIAL, extra: str = SHARED) -> Path:
    path = write_kernel(folder, extra=extra)
    path.write_text(NAMED + path.read_text())
    (folder / "scale.initial.toml").write_text(initial)
    return path


def written_together(folder: Path) -> Path:
    return write_kernel(folder, extra=SHARED + INITIAL.replace("\n[definitions]\n", "", 1))


def settled(kernel: KernelSpec, n: int) -> list[Configuration | None]:
    problem = kernel.problem({"n": n})
    space = SearchSpace.from_kernel(kernel, problem, H200)
    return [one.configuration for one in settle(kernel, problem, H200, space.contains)]


def test_a_file_of_their_own_changes_nothing(tmp_path: Path) -> None:
    apart, together = read_kernel(write(tmp_path / "a")), read_kernel(written_together(tmp_path / "b"))
    for n in (100, 5000, 70_000, 1_000_000):
        assert settled(apart, n) == settled(together, n)
    assert len({str(settled(apart, n)) for n in (100, 1_000_000)}) == 2
    assert KernelIdentity(apart).text == KernelIdentity(together).text
    edited = read_kernel(write(tmp_path / "a", INITIAL.replace("items = 3", "items = 2")))
    assert KernelIdentity(edited).text == KernelIdentity(apart).text
    assert edited.digest == apart.digest


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (("scale.initial.toml", "other.toml"), ("scale.toml: initial = 'other.toml'", "put it beside scale.toml")),
        (("scale.initial.toml", "scale.cu.j2"), ("scale.toml: initial = 'scale.cu.j2'", "[[initial]]")),
        (("[work]", '[costs]\nplain = "n"\n[work]'), ("costs", "put it into scale.initial.toml")),
        (('flops = "n"', 'flops = "waves"'), ("scale.toml: work", "unknown name 'waves'")),
    ],
)  # fmt: skip
def test_mistakes_in_the_kernels_file(tmp_path: Path, edit: tuple[str, str], words: tuple[str, ...]) -> None:
    path = write(tmp_path)
    assert edit[0] in path.read_text()
    path.write_text(path.read_text().replace(*edit))
    with pytest.raises(KernelError) as refused:
        read_kernel(path)
    for word in words:
        assert word in f"{refused.value.problem}; {refused.value.remedy}"


MISTAKES = [
    (("waves =", "span ="), "span =", ("'span' names two things",)),
    (("waves > 0", "wave > 0"), 'when = "wave > 0"', ("unknown name 'wave'", "did you mean waves")),
    (("[[initial]]", "[[inital]]"), "[[inital]]", ("unknown key 'inital'", "did you mean initial")),
    (("{ items = [1, 2, 4] }", "{ block_size = 32 }"), "parameters", ("has 'block_size' twice",)),
    (("{ items = [1, 2, 4] }", "4"), "parameters", ("list of such tables",)),
    (('minimize = "cost"', 'minimize = "cots"'), 'minimize = "cots"', ("did you mean cost",)),
    (("cost = ", 'lost = "item"\ncost = '), "lost = ", ("unknown name 'item'",)),
]


@pytest.mark.parametrize(("edit", "at", "words"), MISTAKES)
def test_mistakes_in_a_file_of_their_own_are_located(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], edit: tuple[str, str], at: str, words: tuple[str, ...]
) -> None:
    path = write(tmp_path, INITIAL.replace(*edit))
    with pytest.raises(KernelError, match=r"scale\.initial\.toml"):
        read_kernel(path)
    said = said_by(capsys, "check", str(path), "--configurations", "0", "--no-cpu")
    (finding,) = said.out.splitlines()
    lines = (tmp_path / "scale.initial.toml").read_text().splitlines()
    line = next(number for number, line in enumerate(lines, 1) if at in line)
    assert f"scale.initial.toml:{line}: " in finding
    for word in words:
        assert word in finding


def test_show_has_conditions_as_written_and_what_their_names_mean(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    extra = SHARED + '[variants.plain.constraints]\n"not too large" = "span <= 1024"\n'
    path = str(write(tmp_path, INITIAL.replace("waves > 0", "waves > 10 ** 9"), extra))
    shown = said_by(capsys, "show", path).out.splitlines()
    assert "  - not too large:  span <= 1024" in shown
    assert "  span = block_size * items" in shown and any(line.startswith("  waves = ") for line in shown)
    assert not any(line.startswith("  cost = ") for line in shown)  # no line that is shown uses it
    assert any(line.endswith("holds when waves > 10 ** 9") for line in shown)
    (plain,) = json.loads(said_by(capsys, "show", path, "--json").out)["variants"]
    assert plain["constraints"][0]["condition"] == "block_size * items <= 1024"


def test_of_several_variants_each_gets_the_parameters_that_it_has(tmp_path: Path) -> None:
    wide = '[variants.wide]\nlike = "plain"\nparameters.unroll = { values = [1, 2] }\nlaunches = [{ '
    wide += 'template = "scale.cu.j2", entry = "wide", arguments = ["x", "unroll"], grid = ["1"], block = ["32"] }]\n'
    initial = '[[initial]]\nvariant = ["plain", "wide"]\nparameters = [{ items = 2 }, { unroll = 2 }]\n'
    kernel = read_kernel(write(tmp_path, initial, SHARED + wide))
    assert [dict(one.parameters) for one in kernel.initial] == [{"items": 2}, {"items": 2, "unroll": 2}]
    write(tmp_path, initial.replace("unroll", "unrol"), SHARED + wide)
    with pytest.raises(KernelError, match=r"initial\[0\]: parameters sets 'unrol'"):
        read_kernel(tmp_path / "scale.toml")
