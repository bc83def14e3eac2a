"""docs/common-headers.md names what the common headers have: all of it, nothing else, with the right parameters."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEADERS = sorted(path.name for path in (ROOT / "templates" / "common").glob("*.cuh.j2"))
SECTIONS = dict(
    re.findall(
        r"^## common/(\S+)\n(.*?)(?=^## |\Z)",
        (ROOT / "docs" / "common-headers.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
)
FUNCTION = re.compile(r"__device__ __forceinline__ [^;{(]*?\b(\w+)(?:<\w+>)?\(((?:[^()]|\([^()]*\))*)\)")
TYPE = re.compile(r"^(?:struct (?:alignas\((?:[^()]|\([^()]*\))*\) )?|using |#define )(\w+)", re.MULTILINE)


def code_of(header: str) -> str:
    return re.sub(r"//[^\n]*", "", (ROOT / "templates" / "common" / header).read_text())


def parameters(text: str) -> list[str]:
    """Return the names of parameters; brackets around optional ones, and array bounds, make no difference."""
    text = re.sub(r"<[^<>]*>", "", text)
    text = re.sub(r"\(&(\w+)\)\[\w+\]", r"\1", text).replace("[,", ",").replace("]", "")
    return [part.split()[-1].strip("*&") for part in text.split(",") if part.strip()]


def listed(header: str) -> dict[str, str]:
    """Return the name of each function and type in the page's tables, with what it stands in."""
    cells = re.findall(r"^\| (`.*?`) \|", SECTIONS[header], re.MULTILINE)
    names = {}
    for text in (text for cell in cells for text in re.findall(r"`([^`]+)`", cell)):
        head = text.split("(")[0]
        names[re.sub(r"<[^<>]*>$", "", head).split()[-1].strip("*")] = text
    return names


def test_every_header_has_a_section() -> None:
    assert sorted(SECTIONS) == HEADERS


@pytest.mark.parametrize("header", HEADERS)
def test_everything_public_is_listed_and_nothing_else(header: str) -> None:
    code = code_of(header)
    public = {name for name, _ in FUNCTION.findall(code)} | set(TYPE.findall(code))
    assert public
    assert public - {"LOAD_BOX"} == set(listed(header))
    assert all(f"`{name}`" in SECTIONS[header] for name in public & {"LOAD_BOX"})


@pytest.mark.parametrize("header", HEADERS)
def test_parameters_are_those_of_the_code(header: str) -> None:
    signatures: dict[str, list[list[str]]] = {}
    for name, text in FUNCTION.findall(code_of(header)):
        signatures.setdefault(name, []).append(parameters(text))
    for name, text in listed(header).items():
        if "(" in text:
            shown = parameters(text[text.index("(") + 1 : text.rindex(")")])
            assert shown in signatures[name], (name, shown, signatures[name])
            if "[" in text.replace("[INPUTS]", ""):  # the last one may be left out
                assert shown[:-1] in signatures[name]
