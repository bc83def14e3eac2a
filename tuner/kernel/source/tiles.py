"""Loops over the tiles of a size: ``t * TILE`` is an index along K where ``t`` stays below ``K / TILE``."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING

from tuner.kernel.source.expressions import Sum, number_of
from tuner.kernel.source.tree import text_of, walk

if TYPE_CHECKING:
    from tree_sitter import Node

_COUNT = re.compile(r"\(?(?:ceil_div\()?(?P<size>\w+)(?P<by> //|,) (?P<tile>\w+)\)*")

_WITHIN = re.compile(r"\((?P<of>.+) % \((?P<size>\w+) // (?P<tile>\w+)\)\)")
"""Which of the tiles in one of another size: t of ``t * 4`` that stays below BK where t is ``x % (BK / 4)``."""


class Tiles:
    """The numbers of tiles that code counts.

    Args:
        body: the code.
        sizes: names that the problem decides.
        terms: returns an expression as a sum.
        numbers: what has a value in the source.
        extents: what variables stay below that nothing is compared with.
    """

    def __init__(
        self,
        body: Node | None,
        sizes: Collection[str],
        terms: Callable[[Node], Sum | None],
        numbers: Mapping[str, ast.expr | None],
        extents: Mapping[str, str],
    ) -> None:
        self._body, self._sizes, self._terms, self._numbers = body, sizes, terms, numbers
        self._of = dict(self._counted())
        for name, text in extents.items():
            if found := _COUNT.fullmatch(text):
                self._of[name] = found["size"], found["tile"], True
        self.whole: set[tuple[str, str]] = set()
        """Sizes with a tile's, where what is left over is not computed."""

    @property
    def bounds(self) -> dict[str, Sum]:
        """What the names stay below that :meth:`named` gives."""
        return {f"{name}_tiles": {(size,): 1} for name, (size, *_) in self._of.items()}

    def named(self, index: Sum) -> Sum:
        """Return an index with a name of its own for a number of tiles times a tile's size."""
        left = dict(index)
        for product, factor in index.items():
            for name in product:
                size, tile, whole = self._of.get(name, ("", "", False))
                new = f"{name}_tiles"
                if found := _WITHIN.fullmatch(name):
                    tile, new = found["tile"], f"({found['of']} % {found['size']})"
                by = int(tile) if tile.isdecimal() and factor % int(tile) == 0 else 1
                if tile in product or by > 1:
                    rest = [part for part in product if part not in (name, tile)]
                    left[tuple(sorted((*rest, new)))] = left.pop(product) // by
                    self.whole |= {(size, tile)} if whole else set()
                    break
        return left

    def _counted(self) -> Iterator[tuple[str, tuple[str, str, bool]]]:
        """Yield variables with the size, a tile's, and whether only whole tiles are counted."""
        for one in walk(self._body, "binary_expression"):
            high = self._terms(one.children[-1]) if text_of(one.children[1]) in ("<", "!=") else None
            if high and [*high.values()] == [1] and len(count := next(iter(high))) == 1:
                found = _COUNT.fullmatch(count[0])
                if found and found["size"] in self._sizes:
                    tile = number_of(found["tile"], self._numbers) or found["tile"]
                    yield text_of(one.children[0]), (found["size"], str(tile), found["by"] != ",")
