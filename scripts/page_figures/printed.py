"""What commands print: excerpts of stored output, and of commands that need no GPU."""

from __future__ import annotations

import json
import re
import shlex
from functools import cache

from click.testing import CliRunner

from scripts.page_figures.evidence import ROOT, Rows, table, text
from tuner.cli import cli

ALONE = ("--gpu", "H200", "--db", "no.db")
"""The same answer on every machine: no GPU is looked for, and no database."""


def fenced(lines: list[str]) -> str:
    return "\n".join(["```text", *lines, "```"])


def excerpt(file: str, *parts: str) -> str:
    """Return lines of a file of the evidence, such as ``1-4 7``; what is left out between them is ``...``."""
    lines = text(file).splitlines()
    shown: list[str] = []
    last = 0
    for part in parts:
        first, _, end = part.partition("-")
        if last and int(first) > last + 1:
            shown.append("...")
        last = int(end or first)
        shown += lines[int(first) - 1 : last]
    return fenced(shown)


def found(file: str, pattern: str, number: str = "0") -> str:
    """Return what a pattern finds in the lines of a file of the evidence: the first time, or after so many others."""
    return str(re.findall(pattern, text(file), re.MULTILINE)[int(number)])


def table_in(file: str) -> str:
    """Return the first table of a file of the evidence, as the script wrote it."""
    return found(file, r"(?:^\|.*\n)+").rstrip()


def example(file: str, lines: str) -> str:
    """Return lines of a kernel's file below docs/examples, such as ``1-16``."""
    first, _, end = lines.partition("-")
    shown = (ROOT / "docs" / "examples" / file).read_text(encoding="utf-8").splitlines()
    language = "toml" if file.endswith(".toml") else "cuda"
    return "\n".join([f"```{language}", *shown[int(first) - 1 : int(end)], "```"])


@cache
def _said(command: str) -> str:
    done = CliRunner().invoke(cli, [*shlex.split(command)[1:], *ALONE])
    assert done.exit_code == 0, done.output
    return done.stdout


STEPS = (
    ("scalar float", "4 B", "float32", "vector_width=1"),
    ("float4", "16 B", "float32", "vector_width=4"),
    ("scalar half", "2 B", "float16", "vector_width=1"),
    ("half2", "4 B", "float16", "vector_width=2"),
    ("half x 8 by half2", "4 x 4 B", "float16", "vector_width=2 items_per_thread=4 arrangement=blocked"),
    ("half x 8 packed", "16 B", "float16", "vector_width=8"),
    ("several packed (two)", "2 x 16 B", "float16", "vector_width=8 items_per_thread=2"),
)


def explained_steps() -> str:
    """Return how `tune explain` counts the steps of a vector addition."""
    head = [
        "step",
        "of each input, a thread asks for",
        "bytes in flight on an SM",
        "instructions for each byte",
        "bytes in flight",
    ]
    rows: Rows = [head]
    for step, asks_for, dtype, values in STEPS:
        config = shlex.quote(f"vectorized {values}")
        said = json.loads(
            _said(f"tune explain vector_add --size n=2**28 --dtype {dtype} --config {config} --json")
        )
        (launch,) = said["launches"]
        path = launch["code"]["sass"]["main_path"]
        (advice,) = (line["verdict"] for line in said["advice"] if line["about"] == "bytes in flight")
        in_flight = f"{launch['bytes_in_flight']['bytes'] / 1024:.0f} KiB"
        rows.append(
            [step, asks_for, in_flight, f"{path['instructions'] / path['global_bytes']:.2g}", f"`{advice}`"]
        )
    return table(rows)


def sanitized() -> str:
    """Return which winners ran under Compute Sanitizer, and how often: the tools of one such choice in one row."""
    tools: dict[tuple[str, ...], list[str]] = {}
    for block in text("sanitize.txt").strip().split("\n\n"):
        command_line, *lines = block.splitlines()
        which = f"`{command_line.split()[3]}`"
        which += ", winners" if "--winners" in command_line else ", one configuration"
        which += "".join(f", `{said}`" for said in re.findall(r"--option (\S+)", command_line))
        which += "".join(f", `{said}`" for said in re.findall(r"--edges \d+", command_line))
        values = dict(re.split(r"  +", line, maxsplit=1) for line in lines if re.match(r"\w+  ", line))
        runs = re.findall(r"^(\w+) +clean: (\d+) runs$", block, re.MULTILINE)
        assert runs, f"not clean: {command_line}"
        (dtype,) = re.findall(r"b?float\d+", values["problem"].split(" product=")[0])
        for tool, count in runs:
            row = (which, dtype, values["configurations"].split()[0], count, values["problem"])
            tools.setdefault(row, []).append(tool)
    head = ["`tune sanitize`", "dtype", "configurations", "tools", "runs of each", "findings"]
    return table(
        [head]
        + [
            [which, dtype, chosen, ", ".join(names), count, "none"]
            for (which, dtype, chosen, count, _), names in tools.items()
        ]
    )


def python_example() -> str:
    """Return the first example of a call from Python, and what it prints on a GPU."""
    code = (ROOT / "docs/examples/matmul/tune.py").read_text(encoding="utf-8")
    code = code[code.index("import") :].rstrip()
    return f"```python\n{code}\n```\n\n{fenced(text('python-example.txt').splitlines())}"


def front() -> str:
    """Return the table with which a run under a bound on the error ends, without the configurations."""
    (shown,) = re.findall(r"^dtype .*?^  winner: .*?$", text("figures.txt"), re.MULTILINE | re.DOTALL)
    width = shown.index("configuration")
    return fenced([line if line.startswith("  ") else line[:width].rstrip() for line in shown.splitlines()])
