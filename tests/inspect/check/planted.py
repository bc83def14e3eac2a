"""A right kernel, the faults that are planted in it, and what `tune check` finds."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.commands import said_by

ROOT = Path(__file__).parents[3]
PLANTED = ROOT / "tests" / "planted"
FILE_ALONE = ("--configurations", "0", "--no-cpu")


@dataclass(frozen=True)
class Fault:
    """One edit of the right kernel, and where it must be found."""

    name: str
    file: str
    right: str
    wrong: str
    at: str
    """Text of the line that the finding names, in the edited file."""
    says: str
    """Regular expression that the finding has."""
    found_in: str = ""
    """File of the finding, if it is another than the edited one."""


TOML, PLAIN, STAGED, REFERENCE = "blend.toml", "blend.cu", "staged.cu.j2", "blend_reference.cu"


def edited(text: str, fault: Fault) -> str:
    assert fault.right in text, fault.name
    return text.replace(fault.right, fault.wrong, 1)


def planted(folder: Path, *faults: Fault) -> Path:
    """Return a copy of the right kernel, with faults in it."""
    shutil.copytree(PLANTED, folder, dirs_exist_ok=True)
    for fault in faults:
        file = folder / fault.file
        file.write_text(edited(file.read_text(), fault))
    return folder / TOML


def with_variants(folder: Path, faults: list[Fault]) -> Path:
    """Return a kernel that has, beside the right variants, a copy of one for each fault."""
    kernel = planted(folder)
    head, plain, staged = re.split(
        r"(?=^\[variants\.(?:plain|staged)\]$)", kernel.read_text(), flags=re.MULTILINE
    )
    blocks = [head, plain, staged]
    for fault in faults:
        original = next(
            block for block in (plain, staged) if fault.right in block or f'"{fault.file}"' in block
        )
        name, file = ("plain", PLAIN) if original is plain else ("staged", STAGED)
        block = edited(original, fault) if fault.file == TOML else original
        own = f"{fault.name}_{file}"
        source = (folder / file).read_text()
        (folder / own).write_text(source if fault.file == TOML else edited(source, fault))
        blocks.append(
            block.replace(f"variants.{name}", f"variants.{fault.name}").replace(f'"{file}"', f'"{own}"')
        )
    kernel.write_text("\n".join(blocks))
    return kernel


def findings(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str]]:
    said = said_by(capsys, "check", *arguments)
    return said.code, said.out.splitlines()


def finds(lines: list[str], file: Path, fault: Fault) -> bool:
    """Return whether a line names the fault's line in a file, and says what it must."""
    text = file.read_text().splitlines()
    return any(
        fault.at in text[int(match[1]) - 1] and re.search(fault.says, match[2])
        for line in lines
        if (match := re.match(rf"{re.escape(str(file))}:(\d+): (.*)", line))
    )
