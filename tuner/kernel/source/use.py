"""What a kernel's code does with its arguments, as far as its text shows: indices and their bounds, reads and writes,
and what of the problem a block computes."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tuner.kernel.source.expressions import Product, Sum, plus, python_name, python_of, sum_of, text_of
from tuner.kernel.source.launches import variables_of
from tuner.kernel.source.signature import KernelSignature, Source
from tuner.kernel.source.tokens import Token, close_of, end_of, joined
from tuner.kernel.source.types import vector_of

AXES = ("x", "y", "z")
ASSIGNS = frozenset(("=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", "++", "--"))
_TURNED = str.maketrans("<>", "><")
_ENDS = frozenset(("(", ")", "{", "}", ";", "&&", "||", "?", ",", "=", "!", "[", "]", ":"))
_NO_CALL = ("if", "while", "for", "return", "switch", "sizeof")
_POINTED = re.compile(r"&\s*(\w+)\s*\[(.*)\]\s*\Z", re.DOTALL)
_CAST = re.compile(
    r"(?:reinterpret_cast\s*<\s*(?:const\s+)?(?P<to>\w+)[^>]*>\s*\(\s*|\(\s*(?:const\s+)?(?P<type>\w+)\s*(?:const\s*)?\*+\s*\)\s*\(*\s*)"
    r"(?P<name>\w+)\s*\)*\Z"
)


@dataclass
class Use:
    """What is done with a pointer."""

    read: bool = False
    written: bool = False
    added: bool = False
    """Whether atomic functions or ``+=`` change what is there."""
    whole: bool = False
    """Whether elements are written where no condition leaves out others."""
    passed: bool = False
    """Whether a function gets it: what that does is not looked at."""
    indices: list[Sum] = field(default_factory=list)
    limits: str = ""
    """Of an array of indices: the array that it selects from."""


class CodeUse:
    """A kernel's code.

    Args:
        source: where it stands.
        kernel: the kernel.
        sizes: names that the problem decides.
    """

    def __init__(self, source: Source, kernel: KernelSignature, sizes: Collection[str]) -> None:
        self.body, self.sizes = kernel.body, frozenset(sizes)
        numbers = {
            name: macro.value
            for name, macro in source.macros.items()
            if macro.parameters is None and not macro.guarded and name not in self.sizes
        }
        numbers |= source.constants
        self.begins = begins = dict(variables_of(kernel.body))
        self.first = {**numbers, **begins}
        changed = {name for name, _ in self._changed()}
        self.variables = {**numbers, **{name: text for name, text in begins.items() if name not in changed}}
        self.bounds: dict[str, Sum] = {}
        self.again = {name for name, how in self._changed() if how == "=" and name in begins}
        """Variables that are set to something else than they begin as."""
        self._inner: set[int] = set()
        """Where comparisons stand that leave out elements at the beginning or the end."""
        for name, bound in self._comparisons():
            self.bounds.setdefault(name, bound)
        self._left_out = list(self._conditional())
        self.asked = source.asked
        self.pointers = {one.name: Use() for one in kernel.parameters if one.type.pointers}
        self._look_at_pointers()

    # -- variables and bounds

    def _changed(self) -> Iterator[tuple[str, str]]:
        """Yield names of variables, and how they are changed."""
        for at, token in enumerate(self.body):
            if not token.text.isidentifier():
                continue
            before = self.body[at - 1].text if at else ""
            after = self.body[at + 1].text if at + 1 < len(self.body) else ""
            typed = before.isidentifier() and before not in ("return", "else")
            declared = typed or before in ("*", "&", ",")
            if before in ("++", "--") or (after in ASSIGNS and not (after == "=" and declared)):
                yield token.text, before if before in ("++", "--") else after

    def _conditional(self) -> Iterator[range]:
        """Yield places that are left out for some elements: for those at an edge, or by what is in an array."""
        for at, token in enumerate(self.body):
            close = close_of(self.body, at + 1) if token.text in ("if", "for", "while") else at
            by_data = token.text == "if" and any(one.text == "[" for one in self.body[at:close])
            if not by_data and self._inner.isdisjoint(range(at, close)):
                continue
            end = self._end_of_statement(close + 1)
            first = next((one.text for one in self.body[close + 1 : end] if one.text != "{"), "")
            if first == "return":
                yield range(end, len(self.body))
            elif first == "continue":
                yield range(end, end_of(self.body, end, "}"))
            elif [one.text for one in self.body[end : end + 1]] != ["else"]:
                yield range(close + 1, end)

    def _end_of_statement(self, at: int) -> int:
        return close_of(self.body, end_of(self.body, at, ";{")) + 1

    @property
    def quadratic(self) -> bool:
        """Whether each thread goes through all that the problem has."""
        inner = (name for name in self.bounds if name in self.begins and not self._places({(name,): 1}))
        return any(self.begins[name].strip() == "0" for name in inner)

    def sum(self, tokens: Sequence[Token] | str) -> Sum | None:
        """Return an expression as a sum, in which variables without a bound are replaced by what they are."""
        text = tokens if isinstance(tokens, str) else joined(tokens)
        unbound = {name: value for name, value in self.variables.items() if name not in self.bounds}
        return sum_of(python_of(text), unbound)

    def _comparisons(self) -> Iterator[tuple[str, Sum]]:
        """Yield variables and what of the problem they stay below: ``i < n``, or an end if ``i >= n``."""
        for at, token in enumerate(self.body):
            if (sign := token.text) not in ("<", "<=", ">", ">="):
                continue
            texts = (
                joined(self.body[self._left(at) : at]),
                joined(self.body[at + 1 : end_of(self.body, at + 1, _ENDS - {"(", "["})]),
            )
            for text, other, reads in zip(texts, texts[::-1], (sign, sign.translate(_TURNED)), strict=True):
                low, high = sum_of(python_of(text)), self.sum(other)
                if low is None or high is None:
                    continue
                names = [product for product in low if product]
                single = [product[0] for product in names if len(product) == 1 and low[product] == 1]
                if len(names) > 1:  # y + j < height
                    single = [name for name in single if self._places({(name,): 1})][:1]
                if self._of_problem(high) and single:
                    constant = high.get((), 0) - low.get((), 0)
                    self._inner |= {at} if constant < 0 else set()
                    yield single[0], {**high, (): max(constant + (reads in ("<=", ">")), 0)}
                elif names and set(high) <= {()} and reads[0] == ">" and self._places(low):
                    self._inner |= {at} if high.get((), 0) + (reads == ">") > 0 else set()  # i >= 2

    def _left(self, at: int) -> int:
        depth = 0
        for number in range(at - 1, -1, -1):
            text = self.body[number].text
            depth += text in (")", "]")
            if depth == 0 and (text in _ENDS or text in ("return", "if", "while")):
                return number + 1
            depth -= text in ("(", "[")
        return 0

    def _of_problem(self, terms: Sum) -> bool:
        """Return whether a sum has names of the problem, and no others."""
        names = {name for product in terms for part in product for name in re.findall(r"[A-Za-z_]\w*", part)}
        return bool(names) and names <= self.sizes | {"min", "max"}

    def _places(self, terms: Sum) -> bool:
        """Return whether a sum depends on a block or thread."""
        full = sum_of(python_of(text_of(terms)), self.first) or {}
        return any("Idx_" in name for product in full for name in product)

    # -- pointers

    def _look_at_pointers(self) -> None:
        aliases: dict[str, tuple[str, Sum, int]] = {name: (name, {}, 1) for name in self.pointers}
        for name, text in self.begins.items():
            if (alias := self._alias(text, aliases)) is not None:
                aliases[name] = alias
        for name in [one for one in aliases if one in self.pointers]:
            for at, token in enumerate(self.body[:-2]):
                if token.text == name and self.body[at + 1].text == "+=":
                    offset = self.sum(self.body[at + 2 : end_of(self.body, at + 2, _ENDS - {"(", "["})])
                    aliases[name] = name, offset or {}, 1
        for at, token in enumerate(self.body):
            if token.text in aliases and not (at and self.body[at - 1].text in (".", "->")):
                name, offset, lanes = aliases[token.text]
                self._occurrence(at, self.pointers[name], offset, lanes)
        for name, use in self.pointers.items():
            parts = {part for index in use.indices for product in index for part in product}
            for inner in re.findall(r"(\w+)\[", " ".join(parts)):
                if inner in aliases:
                    self.pointers[aliases[inner][0]].limits = name

    def _alias(self, text: str, aliases: Mapping[str, tuple[str, Sum, int]]) -> tuple[str, Sum, int] | None:
        """Return the pointer that a variable is made of, by how many elements it is moved, and how many it takes."""
        several = 1
        if match := _POINTED.match(text):
            name, moved = match[1], self.sum(match[2])
        elif match := _CAST.match(text):
            name, moved, several = match["name"], {}, vector_of(match["to"] or match["type"])[1]
        else:
            terms = sum_of(python_of(text)) or {}
            name = next((one for one in aliases if (python_name(one),) in terms), "")
            rest = {product: factor for product, factor in terms.items() if product != (python_name(name),)}
            moved = self.sum(text_of(rest))
        if name not in aliases or moved is None:
            return None
        of, before, lanes = aliases[name]
        return of, {**before, **moved}, lanes * several

    def _occurrence(self, at: int, use: Use, offset: Sum, lanes: int) -> None:
        before = self.body[at - 1].text if at else ""
        after = self.body[at + 1].text if at + 1 < len(self.body) else ""
        if after == "[":
            close = close_of(self.body, at + 1)
            if before == "&" and not self._called(at):
                return  # where another pointer begins
            index = self.sum(self.body[at + 2 : close])
            if index is not None:
                use.indices.append(plus([{one: lanes * n for one, n in index.items()}, offset]) or {})
            self._access(at, close + 1, use, before)
        elif before == "*" and at > 1 and self.body[at - 2].text in (";", "{", "}", ")", "=", "(", "+", "-"):
            use.indices.append(dict(offset))
            self._access(at - 1, at + 1, use, self.body[at - 2].text)
        elif before in ("(", ",") and after in (",", ")", "+") and self._called(at):
            if self._called(at).startswith("atomic"):
                use.added = use.written = use.read = True
            else:
                use.passed = True

    def _access(self, start: int, end: int, use: Use, before: str) -> None:
        while end + 1 < len(self.body) and self.body[end].text == ".":
            end += 2
        after = self.body[end].text if end < len(self.body) else ""
        called = self._called(start) if before == "&" else ""
        if after == "=":
            use.written = True
            use.whole |= not any(start in one for one in self._left_out)
        elif called.startswith("atomic") or after in ASSIGNS or before in ("++", "--"):
            use.added = use.written = use.read = True
        elif before == "&" and called and not called.startswith("__ld"):
            use.passed = True
        else:
            use.read = True

    def _called(self, at: int) -> str:
        """Return the function whose parentheses stand around a place; empty for none, or for what is no call."""
        depth = 0
        for number in range(at - 1, 0, -1):
            text = self.body[number].text
            depth += (text in (")", "]")) - (text in ("(", "["))
            if text in (";", "{", "}"):
                break
            if depth < 0:
                name = self.body[number - 1].text
                return name if name.isidentifier() and name not in _NO_CALL else ""
        return ""

    # -- shapes, grids and blocks

    def shape(self, name: str) -> list[str | None]:
        """Return a tensor's extents in memory order; None for one that the code does not show, none of all."""
        shapes = [shape for index in self.pointers[name].indices if (shape := self._shape(index))]
        return max(shapes, key=lambda shape: (None not in shape, len(shape)), default=[])

    def _shape(self, index: Sum) -> list[str | None]:
        strides: dict[tuple[Product, int], str | None] = {}
        for product, factor in index.items():
            sizes = tuple(name for name in product if name in self.sizes)
            rest = [name for name in product if name not in self.sizes]
            if not rest or not any(self._varies(name) for name in rest):
                continue
            first = len(rest) > 1 and not any(name in self.bounds for name in rest)  # a block's first element
            rest_key = (sizes, 1 if first else factor)
            bound = next((self.bound(one) for one in rest if self.bound(one)), None)
            strides[rest_key] = strides.get(rest_key) or bound
        if not strides:
            return []
        order = sorted(strides, key=lambda one: (len(one[0]), one[1]))
        extents: list[str | None] = []
        below: tuple[Product, int] = ((), 1)
        for one in order:
            if one != below:
                extent = _quotient(one, below)
                if extent is None:
                    return []
                extents.append(extent)
            below = one
        return [strides[order[-1]], *reversed(extents)]

    def _varies(self, name: str) -> bool:
        return name in self.bounds or name in self.begins or "Idx_" in name or "[" in name or "%" in name

    def bound(self, name: str) -> str | None:
        """Return the extent of the problem that a variable stays below; None where the code does not say."""
        if name in self.bounds:
            return text_of({product: factor for product, factor in self.bounds[name].items() if factor})
        if match := re.fullmatch(r"\(.* % (\w+)\)", name):
            return match[1] if match[1] in self.sizes else None
        return None

    def depends_on(self, size: str) -> bool:
        """Return whether a bound or an index has a size; also where a function may have it."""
        sums = [*self.bounds.values(), *(index for use in self.pointers.values() for index in use.indices)]
        texts = " ".join(part for one in sums for product in one for part in product)
        return bool(re.search(rf"\b{size}\b", texts)) or any(use.passed for use in self.pointers.values())

    def is_extent(self, name: str) -> bool:
        """Return whether a variable is compared with a name of the problem alone."""
        return any(name == self.bound(variable) for variable in self.bounds)

    def span(self, axis: str) -> tuple[Sum, str | None] | None:
        """Return how many elements a block computes along an axis, and of how many; None if it does not ask for it.

        The first is the factor of ``blockIdx`` in an index, the second the bound of that index.
        """
        found: list[tuple[Sum, str | None]] = []
        block = f"blockIdx_{axis}"

        def rest(product: Product) -> Product:
            return tuple(part for part in product if part != block and part not in self.sizes)

        for name, text in self.begins.items():
            tree, by = python_of(text), ""
            if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.FloorDiv):  # several threads for a row
                by, tree = text_of(self.sum(ast.unparse(tree.right)) or {}), tree.left
            terms = sum_of(tree, self.first) or {}
            factor = {
                rest(product): number for product, number in terms.items() if block in product and number > 0
            }
            if len(factor) == 1:
                bound = self.bound(name)
                if by and bound:
                    bound = text_of(self.sum(f"({bound}) * ({by})") or {})
                found.append((factor, bound))
        for use in self.pointers.values():
            for index in use.indices:
                found += [({rest(one): max(n, 1)}, None) for one, n in index.items() if block in one]
        found.sort(key=lambda one: one[1] is None)
        return found[0] if found else None

    def uses(self, name: str) -> bool:
        """Return whether the code uses a member of a built-in variable, such as ``threadIdx.x``."""
        return re.search(rf"\b{re.escape(name)}\b", joined(self.body)) is not None

    def divided(self, axis: str) -> int:
        """Return by what number ``threadIdx`` of an axis is divided, as 32 for a warp; 1 if by none."""
        divided = re.search(rf"threadIdx\.{axis} / (\d+)\b", joined(self.body))
        return int(divided[1]) if divided else 1


def _quotient(larger: tuple[Product, int], smaller: tuple[Product, int]) -> str | None:
    left = Counter(larger[0])
    left.subtract(smaller[0])
    if min(left.values(), default=0) < 0 or larger[1] % smaller[1]:
        return None
    factors = list(left.elements())
    number = larger[1] // smaller[1]
    return " * ".join([*([str(number)] if number != 1 or not factors else []), *factors])
