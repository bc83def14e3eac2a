"""What a kernel's code does with its arguments, as far as its text shows: indices and their bounds, reads and writes,
and what of the problem a block computes."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from tuner.kernel.source.declarations import KernelSignature, Source
from tuner.kernel.source.expressions import (
    Product,
    Sum,
    largest_of,
    plus,
    python_name,
    python_of,
    python_text,
    sum_of,
    sum_text,
)
from tuner.kernel.source.tree import AROUND, cast_of, code, receiver_of, text_of, variables_of, walk
from tuner.kernel.source.types import vector_of

if TYPE_CHECKING:
    from tree_sitter import Node

AXES = ("x", "y", "z")
_TURNED = str.maketrans("<>", "><")
Alias = tuple[str, Sum, int]
"""The pointer that a variable is made of, by how many elements it is moved, and how many it takes at once."""


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
        extents: the size that an index stays below which the code compares with nothing, by variable.
        lengths: what strides are that the kernel is passed, by name.
    """

    def __init__(
        self,
        source: Source,
        kernel: KernelSignature,
        sizes: Collection[str],
        extents: Mapping[str, str] = MappingProxyType({}),
        lengths: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.body, self.sizes, self.asked = kernel.body, frozenset(sizes), source.asked
        self.code = code(kernel.body)
        self._loads = {name for name, one in source.macros.items() if re.match(r"__ld|\*", one.value)}
        guarded = (name for name, macro in source.macros.items() if macro.guarded)
        numbers = numbers_of(source, but={*self.sizes, *guarded})
        numbers |= {name: python_text(length) for name, length in lengths.items()}
        self._values = dict(variables_of(kernel.body))
        self.begins = {name: python_of(value) for name, value in self._values.items()}
        """Variables with what they begin as; None for what is no expression."""
        self.first = {**numbers, **self.begins}
        changed = dict(self._changed())
        self.variables = {
            **numbers,
            **{name: one for name, one in self.begins.items() if name not in changed},
        }
        self.extents = extents
        self.bounds: dict[str, Sum] = {name: {(size,): 1} for name, size in extents.items()}
        self.again = {name for name, how in self._changed() if how == "=" and name in self.begins}
        """Variables that are set to something else than they begin as."""
        self._inner: set[int] = set()
        """Where comparisons stand that leave out elements at the beginning or the end."""
        for name, bound in self._comparisons():
            self.bounds.setdefault(name, bound)
        self._left_out = list(self._conditional())
        self.pointers = {one.name: Use() for one in kernel.parameters if one.type.pointers}
        self._look_at_pointers()

    # -- variables and bounds

    def _changed(self) -> Iterator[tuple[str, str]]:
        """Yield names of variables, and how they are changed."""
        for one in walk(self.body, "assignment_expression", "update_expression"):
            target = one.child_by_field_name("left") or one.child_by_field_name("argument")
            if target is not None and target.type == "identifier":
                operator = one.child_by_field_name("operator")
                yield text_of(target), text_of(operator) if operator is not None else ""

    def _conditional(self) -> Iterator[range]:
        """Yield places that are left out for some elements: for those at an edge, or by what is in an array."""
        for one in walk(self.body, "if_statement", "for_statement", "while_statement"):
            then = one.child_by_field_name("consequence") or one.child_by_field_name("body")
            if then is None or self.body is None or one.parent is None:
                continue
            head = range(one.start_byte, then.start_byte)
            test = one.child_by_field_name("condition") if one.type == "if_statement" else None
            if not any(walk(test, "subscript_expression")) and not any(
                place in head for place in self._inner
            ):
                continue
            first = next(iter(then.named_children), then) if then.type == "compound_statement" else then
            if first.type == "return_statement":
                yield range(one.end_byte, self.body.end_byte)
            elif first.type == "continue_statement":
                yield range(one.end_byte, one.parent.end_byte)
            elif one.child_by_field_name("alternative") is None:
                yield range(then.start_byte, then.end_byte)

    @property
    def quadratic(self) -> bool:
        """Whether each thread goes through all that the problem has."""
        inner = (name for name in self.bounds if name in self.begins and not self._places({(name,): 1}))
        return any(sum_of(self.begins[name]) == {} for name in inner)

    def sum(self, tree: Node | ast.expr | None) -> Sum | None:
        """Return an expression as a sum, in which variables without a bound are replaced by what they are."""
        unbound = {name: value for name, value in self.variables.items() if name not in self.bounds}
        return sum_of(tree if tree is None or isinstance(tree, ast.expr) else python_of(tree), unbound)

    def _comparisons(self) -> Iterator[tuple[str, Sum]]:
        """Yield variables and what of the problem they stay below: ``i < n``, or an end if ``i >= n``."""
        for one in walk(self.body, "binary_expression"):
            sign, sides = text_of(one.children[1]), (one.children[0], one.children[-1])
            if sign not in ("<", "<=", ">", ">="):
                continue
            for side, other, reads in zip(sides, sides[::-1], (sign, sign.translate(_TURNED)), strict=True):
                low, high = sum_of(python_of(side)), self.sum(other)
                if low is None or high is None:
                    continue
                names = [product for product in low if product]
                single = [product[0] for product in names if len(product) == 1 and low[product] == 1]
                if len(names) > 1:  # y + j < height
                    single = [name for name in single if self._places({(name,): 1})][:1]
                if self._of_problem(high) and single:
                    constant = high.get((), 0) - low.get((), 0)
                    self._inner |= {one.start_byte} if constant < 0 else set()
                    yield single[0], {**high, (): max(constant + (reads in ("<=", ">")), 0)}
                elif names and set(high) <= {()} and reads[0] == ">" and self._places(low):
                    self._inner |= (
                        {one.start_byte} if high.get((), 0) + (reads == ">") > 0 else set()
                    )  # i >= 2

    def _of_problem(self, terms: Sum) -> bool:
        """Return whether a sum has names of the problem, and no others."""
        names = {name for product in terms for part in product for name in re.findall(r"[A-Za-z_]\w*", part)}
        return bool(names) and names <= self.sizes | {"min", "max", "ceil_div"}

    def _places(self, terms: Sum) -> bool:
        """Return whether a sum depends on a block or thread."""
        full = sum_of(python_text(sum_text(terms)), self.first) or {}
        return any("Idx_" in name for product in full for name in product)

    # -- pointers

    def _look_at_pointers(self) -> None:
        self.aliases: dict[str, Alias] = {name: (name, {}, 1) for name in self.pointers}
        """Variables that are pointers, with what each is made of."""
        for name, value in self._values.items():
            if (alias := self._alias(value)) is not None:
                self.aliases[name] = alias
        for one in walk(self.body, "assignment_expression"):
            left, right = one.children[0], one.children[-1]
            if text_of(left) in self.pointers and text_of(one.children[1]) == "+=":
                self.aliases[text_of(left)] = text_of(left), self.sum(right) or {}, 1
        for one in walk(self.body, "identifier"):
            declared = one.parent is not None and one.parent.child_by_field_name("declarator") == one
            if text_of(one) in self.aliases and not declared:
                self._occurrence(one, *self.aliases[text_of(one)])
        for name, use in self.pointers.items():
            parts = {part for index in use.indices for product in index for part in product}
            for inner in re.findall(r"(\w+)\[", " ".join(parts)):
                if inner in self.aliases:
                    self.pointers[self.aliases[inner][0]].limits = name

    def _alias(self, node: Node | None) -> Alias | None:
        """Return what a pointer is made of."""
        if node is None or (not node.named_children and node.type != "identifier"):
            return None
        last = node.named_children[-1] if node.named_children else node
        match node.type:
            case "parenthesized_expression" | "argument_list":
                return self._alias(last)
            case "cast_expression" | "call_expression":
                kind, inner = cast_of(node)
                of = self._alias(inner)
                return of and (of[0], of[1], of[2] * vector_of(kind)[1])
            case "pointer_expression" if (
                text_of(node.children[0]) == "&" and last.type == "subscript_expression"
            ):
                of, index = self._alias(last.named_children[0]), self.sum(last.named_children[-1])
                return of and _moved(of, index)
        terms = sum_of(python_of(node)) or {}
        name = next((one for one in self.aliases if terms.get((python_name(one),)) == 1), "")
        rest = {product: factor for product, factor in terms.items() if product != (python_name(name),)}
        return _moved(self.aliases[name], self.sum(python_text(sum_text(rest)))) if name else None

    def _occurrence(self, node: Node, name: str, offset: Sum, lanes: int) -> None:
        use, around = self.pointers[name], node.parent
        while around is not None and around.type in AROUND:
            if around.type == "cast_expression":
                lanes *= vector_of(cast_of(around)[0])[1]
            node, around = around, around.parent
        if around is None:
            return
        if around.type == "subscript_expression" and around.named_children[0] == node:
            taken, called = around.parent, receiver_of(around)
            if (
                taken is not None
                and taken.type == "pointer_expression"
                and text_of(taken)[0] == "&"
                and not called
            ):
                return  # where another pointer begins
            if (index := self.sum(around.named_children[-1])) is not None:
                use.indices.append(plus([{one: lanes * n for one, n in index.items()}, offset]) or {})
            self._access(around, use)
            return
        called = receiver_of(node)
        loads = called.startswith("__ld") or called in self._loads
        if loads or (around.type == "pointer_expression" and text_of(around)[0] == "*"):
            of = self._alias(node)
            use.indices.append(dict(of[1] if of else offset))
            use.read |= loads
            if not loads:
                self._access(around, use)
        elif called:
            if called.startswith("atomic"):
                use.added = use.written = use.read = True
            else:
                use.passed = True

    def _access(self, node: Node, use: Use) -> None:
        around = node.parent
        while around is not None and around.type in ("field_expression", "parenthesized_expression"):
            node, around = around, around.parent
        operator = around.child_by_field_name("operator") if around is not None else None
        mark = text_of(operator) if operator is not None else ""
        called = receiver_of(node) if mark == "&" else ""
        assigned = (
            around is not None and around.type == "assignment_expression" and around.children[0] == node
        )
        if assigned and mark == "=":
            use.written = True
            use.whole |= not any(node.start_byte in one for one in self._left_out)
        elif assigned or called.startswith("atomic") or mark in ("++", "--"):
            use.added = use.written = use.read = True
        elif called and not called.startswith("__ld"):
            use.passed = True
        else:
            use.read = True

    # -- shapes, grids and blocks

    def shape(self, name: str) -> list[str | None]:
        """Return a tensor's extents in memory order; None for one that the code does not show, none of all."""
        shapes = [shape for index in self.pointers[name].indices if (shape := self._shape(index))]
        most = max(shapes, key=lambda shape: (None not in shape, len(shape)), default=[])
        others = [shape[0] for shape in shapes if len(shape) == 1 and shape[0] is not None]
        return [largest_of(others)] if len(most) == 1 and others else most

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
        outermost = strides[order[-1]]
        if not extents and outermost:  # x[i + 2 * n]: the third of arrays that lie one behind the other
            sized = {product: n for product, n in index.items() if product and self.sizes.issuperset(product)}
            outermost = (
                sum_text(plus([sum_of(python_text(outermost)) or {}, sized]) or {}) if sized else outermost
            )
        return [outermost, *reversed(extents)]

    def _varies(self, name: str) -> bool:
        return name in self.bounds or name in self.begins or "Idx_" in name or "[" in name or "%" in name

    def bound(self, name: str) -> str | None:
        """Return the extent of the problem that a variable stays below; None where the code does not say."""
        if name in self.bounds:
            return sum_text({product: factor for product, factor in self.bounds[name].items() if factor})
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

        for name, tree in self.begins.items():
            by = ""
            if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.FloorDiv):  # several threads for a row
                by, tree = sum_text(self.sum(tree.right) or {}), tree.left
            terms = sum_of(tree, self.first) or {}
            factor = {
                rest(product): number for product, number in terms.items() if block in product and number > 0
            }
            if len(factor) == 1:
                bound = self.bound(name)
                if by and bound:
                    bound = sum_text(self.sum(python_text(f"({bound}) * ({by})")) or {})
                found.append((factor, bound))
        for use in self.pointers.values():
            for index in use.indices:
                found += [({rest(one): max(n, 1)}, None) for one, n in index.items() if block in one]
        found.sort(key=lambda one: one[1] is None)
        return found[0] if found else None

    def uses(self, name: str) -> bool:
        """Return whether the code uses a member of a built-in variable, such as ``threadIdx.x``."""
        return re.search(rf"\b{re.escape(name)}\b", self.code) is not None

    def divided(self, axis: str) -> int:
        """Return by what number ``threadIdx`` of an axis is divided, as 32 for a warp; 1 if by none."""
        divided = re.search(rf"threadIdx\.{axis} / (\d+)\b", self.code)
        return int(divided[1]) if divided else 1


def _quotient(larger: tuple[Product, int], smaller: tuple[Product, int]) -> str | None:
    left = Counter(larger[0])
    left.subtract(smaller[0])
    number, rest = divmod(larger[1], smaller[1])
    if min(left.values(), default=0) < 0 or rest or number < 1:
        return None
    factors = list(left.elements())
    return " * ".join([*([str(number)] if number != 1 or not factors else []), *factors])


def numbers_of(source: Source, but: Collection[str] = ()) -> dict[str, ast.expr | None]:
    """Return the numbers that a source names, but for some."""
    plain = {name: one.value for name, one in source.macros.items() if one.parameters is None}
    return {name: python_of(text) for name, text in {**plain, **source.constants}.items() if name not in but}


def number_of(written: Node | str, known: Mapping[str, ast.expr | None]) -> int | None:
    """Return the whole number that a C expression is by what names stand for; None if it is none."""
    terms = sum_of(python_of(written), known)
    return None if terms is None or set(terms) - {()} else terms.get((), 0)


def _moved(alias: Alias, by: Sum | None) -> Alias | None:
    return None if by is None else (alias[0], plus([alias[1], by]) or {}, alias[2])
