"""Kernel files with keys from before these were renamed: read alike, with a note, until the next release."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.commands import said_by
from tests.faults.kernels import SOURCE, write_kernel, write_synthetic_recording
from tuner.core.errors import KernelError
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.load import read_kernel
from tuner.kernel.spec import KernelSpec

EXTRA = """\
[definitions]
span = "block_size * items"

[variants.plain.pruning]
"there is work for it" = "span <= n"

[[initial]]
variant = "plain"
parameters = { items = [1, 2] }
minimize = "ceil_div(n, span)"

[variants.mapped]
requires = "cc >= 90"
[variants.mapped.parameters]
items = { values = [1, 2] }
[variants.mapped.scratch]
matrix = { shape = ["n", "64"], dtype = "float32" }
[[variants.mapped.launches]]
template = "scale.cu.j2"
entry = "scale"
arguments = [{ tensor_map = "matrix", box = ["8", "32"], l2_promotion = 128 }, { cluster_order = "2" }, "x", "y"]
grid = ["items"]
block = ["32"]
"""
OLD = {
    "[definitions]": "[terms]",
    "plain.pruning]": "plain.worthwhile]",
    "[[initial]]": "[[seeds]]",
    "minimize =": "least =",
    "l2_promotion": "promotion",
    "cluster_order": "places",
}


def old(text: str) -> str:
    for today, before in OLD.items():
        assert today in text
        text = text.replace(today, before)
    return text


def kernel_of(folder: Path, extra: str) -> KernelSpec:
    return read_kernel(write_kernel(folder, extra=extra, source=SOURCE))


def test_old_keys_mean_what_those_of_today_mean(tmp_path: Path) -> None:
    before, today = kernel_of(tmp_path / "before", old(EXTRA)), kernel_of(tmp_path / "today", EXTRA)
    assert KernelIdentity(before).text == KernelIdentity(today).text
    assert before.digest == today.digest
    assert before.initial == today.initial and before.initial[0].minimize is not None
    assert before.variants["plain"].pruning_rules == today.variants["plain"].pruning_rules
    assert not today.old_keys
    assert len(before.old_keys) == len(OLD)


@pytest.mark.parametrize("key", OLD)
def test_both_names_of_a_key_are_refused(tmp_path: Path, key: str) -> None:
    lines = EXTRA.splitlines()
    at = next(i for i, line in enumerate(lines) if key in line)
    if lines[at].startswith("["):  # a table of its own
        lines.append(lines[at].replace(key, OLD[key]))
    elif key == "minimize =":
        lines.insert(at, 'least = "items"')
    else:
        lines[at] = lines[at].replace(key, f'{OLD[key]} = "2", {key}')
    with pytest.raises(KernelError) as refused:
        kernel_of(tmp_path, "\n".join(lines))
    names = [re.sub(r".*\.|\W", "", name) for name in (OLD[key], key)]
    assert f"{names[0]} and {names[1]} are one key" in str(refused.value)
    assert "scale.toml" in str(refused.value) and names[0] in refused.value.remedy


def test_names_of_the_users_own_are_left_alone(tmp_path: Path) -> None:
    """A parameter, a reason or a definition may be called what a key was called."""
    extra = EXTRA.replace("span", "least").replace("there is work for it", "worthwhile")
    kernel = kernel_of(tmp_path, extra)
    assert not kernel.old_keys
    assert kernel.variants["plain"].pruning_rules[0][0] == "worthwhile"


def test_check_says_once_what_was_renamed_and_finds_the_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_kernel(tmp_path, extra=old(EXTRA))
    said = said_by(capsys, "check", str(path), "--configurations", "0", "--no-cpu")
    for new, was in (("definitions", "terms"), ("initial", "seeds"), ("minimize", "least")):
        notes = [line for line in said.err.splitlines() if repr(was) in line and repr(new) in line]
        assert len(notes) == 1, said.err
    text = path.read_text().replace('least = "ceil_div(n, span)"', 'least = "ceil_div(n, spam)"')
    path.write_text(text)
    said = said_by(capsys, "check", str(path), "--configurations", "0", "--no-cpu")
    line = text[: text.index('least = "')].count("\n") + 1
    assert f"{path.name}:{line}: " in said.out and "spam" in said.out


def test_a_run_says_once_what_was_renamed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    extra = old(EXTRA[: EXTRA.index("[variants.mapped]")] + "# l2_promotion cluster_order\n")
    path = write_kernel(tmp_path, extra=extra)
    kernel, recording = read_kernel(path), tmp_path / "scale.json.gz"
    write_synthetic_recording(recording, kernel, [kernel.problem()])
    words = ("run", "--kernel", str(path), "--device", f"replay:{recording}", "--trials", "3")
    said = said_by(capsys, *words, "--db", str(tmp_path / "runs.db"))
    assert said.code == 0, said.err
    assert (said.out + said.err).count("'seeds'") == 1 and "'initial'" in said.out + said.err
