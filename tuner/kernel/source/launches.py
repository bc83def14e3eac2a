"""Launches as sources write them, ``kernel<<<grid, block>>>(arguments)``, and variables with what they begin as."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tuner.kernel.source.tokens import Token, close_of, end_of, joined, split


@dataclass(frozen=True)
class WrittenLaunch:
    """A ``kernel<<<grid, block, shared, stream>>>(arguments)`` of the source, as texts."""

    kernel: str
    template: tuple[str, ...]
    shape: tuple[str, ...]
    """Grid, block, and perhaps shared memory and stream."""
    arguments: tuple[str, ...]
    variables: Mapping[str, str]
    """What variables of the calling function begin as, by name: ``dim3 grid(n / 2, 1)`` as ``dim3(n / 2, 1)``."""


def written_launch(body: Sequence[Token], at: int) -> WrittenLaunch | None:
    """Return the launch whose ``<<<`` stands at a place of a function; None if it is not plain."""
    stop = next((n for n in range(at, len(body)) if body[n].text == ">>>"), None)
    if stop is None or not at or stop + 1 >= len(body) or body[stop + 1].text != "(":
        return None
    template: tuple[str, ...] = ()
    name = at - 1
    if body[name].text in (">", ">>>"):
        depth = 0
        while name >= 0:
            depth += {">": 1, ">>>": 3, "<": -1}.get(body[name].text, 0)
            if depth == 0:
                break
            name -= 1
        template = tuple(map(joined, split(body[name + 1 : at - 1])))
        name -= 1
    if name < 0 or not body[name].text.isidentifier():
        return None
    shape = tuple(map(joined, split(body[at + 1 : stop])))
    arguments = tuple(map(joined, split(body[stop + 2 : close_of(body, stop + 1)])))
    return WrittenLaunch(body[name].text, template, shape, arguments, dict(variables_of(body[:name])))


def variables_of(body: Sequence[Token]) -> Iterator[tuple[str, str]]:
    """Yield variables with what they begin as: ``8`` of ``int n = 8``, ``dim3(8, 8)`` of ``dim3 grid{8, 8}``."""
    for at in range(1, len(body) - 1):
        kind, name, mark = (body[at + step].text for step in (-1, 0, 1))
        pointer = (
            kind in ("*", "&")
            and at > 1
            and (body[at - 2].text.isidentifier() or body[at - 2].text in (">", "*"))
        )
        if not name.isidentifier() or not (kind.isidentifier() or kind == "," or pointer):
            continue
        if mark == "=":
            yield name, joined(body[at + 2 : end_of(body, at + 2, ";,")])
        elif mark in ("(", "{") and kind in ("dim3", ","):
            yield name, f"dim3({joined(body[at + 2 : close_of(body, at + 1)])})"
