"""Variants that are like others: what they take over, what they drop, and where mistakes in it are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import said_by
from tests.faults.kernels import scale_kernel, write_kernel
from tuner.core.errors import KernelError
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.load import read_kernel
from tuner.kernel.spec import KernelSpec

BASE = """\
[variants.plain.constraints]
"whole warps" = "block_size % 32 == 0"
"few items" = "items <= 4"

[variants.plain.pruning]
"there is work for it" = "block_size <= n"
"""
LIKE = """
[variants.wide]
like = "plain"
summary = "wide blocks"

[variants.wide.parameters]
block_size = { values = [256, 512] }
items = false
unroll = { values = [1, 2], default = 2 }

[variants.wide.constraints]
"few items" = false
"whole warps" = "block_size % 64 == 0"

[variants.wide.pruning]
"it is large" = "n >= 1024"

[[variants.wide.launches]]
template = "scale.cu.j2"
entry = "wide"
arguments = ["x", "y", "unroll"]
grid = ["n"]
block = ["block_size"]
"""
WRITTEN_OUT = """
[variants.wide]
summary = "wide blocks"

[variants.wide.parameters]
fault = { values = ["ok"] }
block_size = { values = [256, 512] }
unroll = { values = [1, 2], default = 2 }

[variants.wide.constraints]
"whole warps" = "block_size % 64 == 0"

[variants.wide.pruning]
"there is work for it" = "block_size <= n"
"it is large" = "n >= 1024"
""" + LIKE[LIKE.index("\n[[variants.wide.launches]]") :]


def kernel_with(folder: Path, text: str) -> KernelSpec:
    return scale_kernel(folder, extra=BASE + text)


def test_a_variant_like_another_is_what_it_would_be_written_out(tmp_path: Path) -> None:
    like, out = kernel_with(tmp_path / "like", LIKE), kernel_with(tmp_path / "out", WRITTEN_OUT)
    assert KernelIdentity(like).text == KernelIdentity(out).text
    one, other = like.variants["wide"], out.variants["wide"]
    assert list(one.parameters.items()) == list(other.parameters.items())
    assert (one.constraints, one.pruning_rules) == (other.constraints, other.pruning_rules)
    assert len(one.launches) == 1 and one.launches[0].entry == "wide"
    plain = like.variants["plain"]
    assert plain == kernel_with(tmp_path / "like", "").variants["plain"]


def test_all_is_taken_over_also_from_a_variant_further_on_in_the_file(tmp_path: Path) -> None:
    text = '[variants.again]\nlike = "more"\n[variants.more]\nlike = "plain"\nparameters.items.default = 2\n'
    text += 'requires = "n > 1"\n[variants.any]\nlike = "more"\nrequires = false\n'
    variants = kernel_with(tmp_path, text).variants
    assert variants["again"].requires and variants["any"].requires is None
    assert variants["again"].parameters["items"].default == variants["more"].parameters["items"].default == 2
    assert variants["plain"].parameters["items"].default == 1
    assert variants["again"].parameters["items"].values == variants["plain"].parameters["items"].values
    assert [launch.entry for launch in variants["again"].launches] == ["scale__{{ fault }}"]
    assert [reason for reason, _ in variants["again"].constraints] == ["whole warps", "few items"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[variants.other]\nlike = "plian"', ("variants: other: like = 'plian'", "did you mean plain")),
        ('[variants.a]\nlike = "b"\n[variants.b]\nlike = "a"', ("variants: b: like = 'a' leads back to b",)),
        ('[variants]\nb = 5\n[variants.other]\nlike = "b"', ("variants: b = 5 is not a table",)),
        ("[variants.other]\nlike = 5", ("variants: other: like = 5 is not text",)),
        ('[variants.other]\nlike = "plain"\nconstraints."few" = false', ("'few' = false drops", "few items")),
        ('[variants.other]\nlike = "plain"\nparameters.item = false', ("'item' = false drops", "items")),
        ('[variants.other]\nlike = "plain"\nrequires = false', ("other: requires = false drops",)),
        (
            '[variants.a]\nlike = "plain"\nparameters.items.default = 2\n'
            '[variants.b]\nlike = "a"\nparameters.items.values = [1]',
            ("variants: b: parameters: items: default = 2",),
        ),
        ('[variants.other]\nlike = "plain"\nparameters.items = false', ("unknown name 'items'",)),
        (
            '[variants.other]\nlike = "plain"\nparametres.items = false',
            ("parametres", "did you mean parameters"),
        ),
        ('[variants.other]\nconstraints."few items" = 5', ("few items: '5' is always 5",)),
    ],
)
def test_mistakes_are_refused_and_located(tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    with pytest.raises(KernelError) as refused:
        kernel_with(tmp_path, text)
    message = f"{refused.value.problem}; {refused.value.remedy}"
    assert message.startswith("scale.toml: variants: ") and "\n" not in message
    for word in words:
        assert word in message


def test_a_chain_that_makes_a_small_file_large_is_refused(tmp_path: Path) -> None:
    reasons = "".join(f'"{i}" = "items > 0"\n' for i in range(400))
    chain = "".join(f'[variants.v{i + 1}]\nlike = "v{i}"\n' for i in range(200))
    text = f'[variants.v0]\nlike = "plain"\n[variants.v0.constraints]\n{reasons}{chain}'
    with pytest.raises(KernelError, match="variants take over too many"):
        kernel_with(tmp_path, text)


def check(capsys: pytest.CaptureFixture[str], path: Path) -> list[str]:
    return said_by(capsys, "check", str(path), "--configurations", "2", "--no-cpu").out.splitlines()


def test_findings_in_what_is_taken_over_name_the_line_that_has_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = '[variants.other]\nlike = "plain"\nparameters.block_size = { values = [96, 97], default = 97 }\n'
    text += '[variants.fine]\nlike = "plain"\n'
    path = write_kernel(tmp_path, extra=BASE + text)
    lines = path.read_text().splitlines()
    (finding,) = check(capsys, path)
    at = next(number for number, line in enumerate(lines, 1) if line.startswith('"whole warps"'))
    assert f"{path.name}:{at}: " in finding and "other" in finding
    path.write_text(path.read_text().replace('like = "plain"\nparameters', 'like = "plan"\nparameters'))
    (finding,) = check(capsys, path)
    at = next(number for number, line in enumerate(lines, 1) if line == 'like = "plain"')
    assert f"{path.name}:{at}: " in finding and "did you mean plain" in finding


WHOLE = """
like = { file = "scale.toml", arguments.y = ["n"] }

[kernel]
name = "scale_more"

[problem.sizes]
n = 64

[variants.plain.parameters]
items = { values = [1], default = 1 }
"""


def test_a_file_may_be_like_another(tmp_path: Path) -> None:
    """It changes what it names, drops what is false, and its launches that take y take further arguments."""
    base = write_kernel(tmp_path)
    (more := tmp_path / "more.toml").write_text(WHOLE)
    own, other = read_kernel(more), read_kernel(base)
    (name, variant), taken = next(iter(own.variants.items())), next(iter(other.variants.values()))
    assert (own.name, own.sizes, own.summary) == ("scale_more", {"n": 64}, other.summary)
    assert own.tensors == other.tensors
    arguments = [argument.name for argument in taken.launches[0].arguments]
    assert [argument.name for argument in variant.launches[0].arguments] == [*arguments, "n"]
    with_false = WHOLE.replace("[kernel]", f"[variants]\n{name} = false\n[kernel]").split("[variants.plain")[
        0
    ]
    more.write_text(with_false)
    with pytest.raises(KernelError, match="no variants"):
        read_kernel(more)


def test_what_is_taken_over_may_be_tried_first_with_a_parameter_more(tmp_path: Path) -> None:
    rules = '\n[[initial]]\nvariant = "wide"\nparameters.unroll = 1\n[[initial]]\nvariant = "plain"\n'
    write_kernel(tmp_path, extra=BASE + LIKE + rules)
    (more := tmp_path / "more.toml").write_text(
        WHOLE.partition("[variants")[0].replace(
            'arguments.y = ["n"]', "initial.unroll = 2, initial.block_size = 256"
        )
    )
    wide, plain = read_kernel(more).initial
    assert wide.parameters == {"unroll": 1, "block_size": 256}
    assert plain.parameters == {"block_size": 256}


@pytest.mark.parametrize(
    ("like", "what"),
    [
        ('like = "nothing.toml"', "no such file"),
        ('like = "more.toml"', "too long"),
        ('like = { file = "scale.toml", arguments.y = "n" }', "list arguments"),
        ('like = { file = "scale.toml", initial.items = 1 }', "none"),
    ],
)
def test_what_a_file_cannot_be_like(like: str, what: str, tmp_path: Path) -> None:
    write_kernel(tmp_path)
    (more := tmp_path / "more.toml").write_text(like)
    with pytest.raises(KernelError, match=what):
        read_kernel(more)
