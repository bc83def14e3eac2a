"""The documentation says what is true: commands, options, links, files."""

from __future__ import annotations

import ast
import os
import pkgutil
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tuner.cli import cli
from tuner.cli.commands.results import trial
from tuner.kernel.load import builtin_kernels

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    page
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "results").rglob("*.md")]
    if not page.name.endswith(".tmp.md")
)
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
TESTS_COMMAND = "scripts/run pytest -n auto"
MAIN_COMMAND = "scripts/run tune --kernel gemm --trials 200"


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """Return every command that does something, by what a user types."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from commands(found, f"{path} {name}")
    else:
        yield path, command


COMMANDS = dict(commands(cli, "tune"))


# -- commands


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_has_a_section_written_from_its_help(path: str) -> None:
    """What stands between the markers is test_pages' business."""
    marker = f"<!-- figures: commands.reference {path.removeprefix('tune ')} -->"
    assert f"\n## {path}\n\n{marker}\n" in read("docs/commands.md")


def command_lines() -> list[tuple[str, str]]:
    """Find every line in a fenced block of any page that starts with ``tune`` or ``scripts/run tune``."""
    found = []
    for page in PAGES:
        for language, block in FENCED.findall(page.read_text(encoding="utf-8")):
            if language not in ("", "sh", "bash", "console", "shell"):
                continue
            for line in block.replace("\\\n", " ").splitlines():
                command = re.sub(r"^\$ ", "", line.strip()).removeprefix("scripts/run ")
                if command.startswith("tune "):
                    found.append((name_of(page), command))
    return found


@pytest.mark.parametrize(("page", "line"), command_lines())
def test_command_lines_parse(page: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Go through the real command line with nothing left of the commands but their options."""
    called: list[dict[str, object]] = []
    for command in {id(command): command for command in [*COMMANDS.values(), trial]}.values():
        monkeypatch.setattr(command, "callback", lambda **options: called.append(options))
    words = shlex.split(line, comments=True)[1:]
    for stop in ("|", ">", "&&", ";"):
        words = words[: words.index(stop)] if stop in words else words
    cli.main(args=words, prog_name="tune", standalone_mode=False)
    assert called or "--help" in words or "--version" in words
    kernel = str((called[0].get("kernel_name") if called else "") or "gemm")
    assert kernel in builtin_kernels() or "/" in kernel or kernel.endswith(".toml"), f"{page}: {line}"


def test_there_are_command_lines_to_check() -> None:
    assert len(command_lines()) > 20


# -- the two commands


def test_readme_has_the_two_commands() -> None:
    blocks = [block.strip() for _, block in FENCED.findall(read("README.md"))]
    assert {MAIN_COMMAND, TESTS_COMMAND} <= set(blocks[:5])


def test_ci_runs_the_tests_as_the_readme_does() -> None:
    lines = [line.strip().removeprefix("check ") for line in read(".ci/run").splitlines()]
    assert TESTS_COMMAND in lines
    assert os.access(ROOT / "scripts/run", os.X_OK)


# -- links and files


def slug(heading: str) -> str:
    plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    return {slug(heading) for heading in re.findall(r"^#{1,6} (.+)$", text, re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_resolve(page: Path) -> None:
    for target in LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        linked = (page.parent / file).resolve() if file else page
        assert linked.exists(), f"{name_of(page)}: {target}"
        assert ROOT in linked.parents, f"{name_of(page)}: {target} leads out of the project"
        if anchor and linked.suffix == ".md":
            assert anchor in anchors(linked), f"{name_of(page)}: {target}"


def test_there_are_links_to_check() -> None:
    assert sum(len(LINK.findall(page.read_text(encoding="utf-8"))) for page in PAGES) > 100


def test_every_page_is_in_the_sites_contents() -> None:
    lines = set(read("docs/index.md").splitlines())
    pages = {page.relative_to(ROOT / "docs") for page in PAGES if page.is_relative_to(ROOT / "docs")}
    on_the_site = {str(page.with_suffix("")) for page in pages if page.parts[0] != "examples"}
    assert on_the_site - {"index"} <= lines
    assert not on_the_site & {"genindex", "modindex", "search"}, "Sphinx writes a page of its own there"


# -- architecture


@pytest.mark.parametrize("page", ["docs/architecture.md", "CONTRIBUTING.md"])
def test_files_that_are_named_exist(page: str) -> None:
    prose = FENCED.sub("", read(page))
    made_in_use = {"results/tuning.db"}
    for name in set(re.findall(r"`((?:\.?\w+/)+[\w./-]*)`", prose)) - made_in_use:
        inside = (ROOT / "tuner").rglob(name.rstrip("/"))
        assert (ROOT / name).exists() or any(inside), f"{page} names {name}"


def test_steps_of_a_trial_name_what_is_there() -> None:
    named = re.findall(r"`([\w/]+\.py):([\w.]+)`", read("docs/architecture.md"))
    assert len(named) > 10
    for file, name in named:
        tree = ast.parse((ROOT / "tuner" / file).read_text(encoding="utf-8"))
        for part in name.split("."):
            inside = [node for node in tree.body if getattr(node, "name", None) == part]
            assert inside, f"docs/architecture.md: {file} has no {name}"
            tree = inside[0]


def test_names_of_the_package_exist() -> None:
    named = re.compile(r"`(tuner(?:\.[A-Za-z_]\w*)+)")
    names = {
        (name_of(page), name) for page in PAGES for name in named.findall(page.read_text(encoding="utf-8"))
    }
    assert len({name for _, name in names}) > 4
    for page, name in sorted(names - {("CHANGELOG.md", name) for _, name in names}):
        try:
            pkgutil.resolve_name(name)
        except (ImportError, AttributeError):
            pytest.fail(f"{page} names {name}, which is not there")
