"""What a kernel's code does with its arguments, as far as its text shows: indices and their bounds, reads and writes,
and what of the problem a block computes."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from tuner.kernel.source.accesses import Accesses
from tuner.kernel.source.cooperative_groups import without_groups
from tuner.kernel.source.declarations import KernelSignature, Source
from tuner.kernel.source.expressions import (
    Product,
    Sum,
    names_of,
    numbers_of,
    plus,
    python_of,
    python_text,
    quotient,
    smallest_of,
    sum_of,
    sum_text,
    times,
)
from tuner.kernel.source.tiles import Tiles
from tuner.kernel.source.tree import code, text_of, variables_of, walk, with_own_names

if TYPE_CHECKING:
    from tree_sitter import Node

AXES = ("x", "y", "z")
_TURNED = str.maketrans("<>", "><")
LEAST_SIZE = 64
"""A number of at least so much is taken for a size that the source fixes."""


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
        self.body = with_own_names(without_groups(kernel.body))
        self.sizes, self.asked = frozenset(sizes), source.asked
        self.code = code(self.body)
        guarded = (name for name, macro in source.macros.items() if macro.guarded)
        numbers = numbers_of(source, but={*self.sizes, *guarded})
        numbers |= {name: python_text(length) for name, length in lengths.items()}
        numbers["warpSize"] = ast.Constant(32)
        if not self.uses("blockIdx.x") and not self.uses("this_grid"):
            # A ticket that a block takes is its number.
            tickets = re.findall(r"\b(\w+) = \(?(?:\w+\) ?)?atomicAdd\([^;]*, 1[uUlL]*\)", self.code)
            numbers |= {
                one: ast.Name("blockIdx_x") for one in tickets if re.search(rf"\b{one} \*", self.code)
            }
        values = dict(variables_of(self.body))
        trees = {name: python_of(value) for name, value in values.items()}
        numbers |= {name: tree for name, tree in trees.items() if isinstance(tree, ast.Lambda)}
        self.begins = {name: tree for name, tree in trees.items() if not isinstance(tree, ast.Lambda)}
        """Variables with what they begin as; None for what is no expression."""
        self.numbers, self.first = numbers, {**numbers, **self.begins}
        changed = dict(self._changed())
        self.variables = {
            **numbers,
            **{name: one for name, one in self.begins.items() if name not in changed},
        }
        self.extents = extents
        self.bounds: dict[str, Sum] = {
            name: sum_of(python_text(size)) or {(size,): 1} for name, size in extents.items()
        }
        written_out = {
            f"index_{axis}": python_text(f"blockIdx_{axis} * blockDim_{axis} + threadIdx_{axis}")
            for axis in AXES
            if f"index_{axis}" not in values
        }
        self.first |= written_out
        self.again = {name for name, how in self._changed() if how == "=" and name in self.begins}
        """Variables that are set to something else than they begin as."""
        ends = re.findall(r"\b(\w+) ?(?:[!=]= ?\(?(\w+) ?- ?1|\+ ?1 ?[!=]= ?(\w+))\b", self.code)
        self.ends = {name: one or other for name, one, other in ends if {one, other} & self.sizes}
        """Variables whose last value is that before a size: of ``y == rows - 1`` the rows."""
        self.inner: set[int] = set()
        """Where comparisons stand that leave out elements at the beginning or the end."""
        self.short = dict.fromkeys(self.ends, -1)
        """By how much variables stay below their bounds at an edge: -1 of ``y < rows - 1``."""
        self.counts: dict[str, int] = {}
        """Up to what number loops count that is of no size, by variable: 3 of ``for (k = 0; k < 3; ++k)``."""
        self.beside: dict[str, set[Product]] = {}
        """What a variable stays below its bound with: 16 * t of ``t * 16 + threadIdx.x < n``."""
        for name, bound in self._comparisons(written_out):
            self.bounds.setdefault(name, bound)
        self.begins |= {name: tree for name, tree in written_out.items() if name in self.bounds}
        for name, tree in self.begins.items():  # clamped: min(i, n - 1)
            for last in map(self.sum, smallest_of(tree, self.variables)):
                if last and self._of_problem(last) and last.get(()) == -1 and name not in changed:
                    self.bounds.setdefault(name, plus([last, {(): 1}]) or {})
        self.tiles = Tiles(self.body, self.sizes, self.sum, numbers, extents)
        self.bounds |= dict(self._kept_places()) | self.tiles.bounds
        self.again -= self.bounds.keys()
        loads = {name for name, one in source.macros.items() if one.value.startswith("__ld")}
        names = {one.name: one for one in kernel.parameters if one.type.pointers}
        accesses = Accesses(self.body, names, values, self.sum, list(self._conditional()), loads)
        self.pointers, self.aliases, self.steps = accesses.pointers, accesses.aliases, accesses.steps
        for use in self.pointers.values():
            indices = [self._named(index, self.bounds) for index in use.indices]
            use.indices = [self._by_bounded(self.tiles.named(index)) for index in indices]

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
            if not any(walk(test, "subscript_expression")) and not any(place in head for place in self.inner):
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
        inner = (name for name in self.bounds if name in self.begins and not self.places({(name,): 1}))
        return any(sum_of(self.begins[name]) == {} for name in inner)

    def sum(self, tree: Node | ast.expr | None) -> Sum | None:
        """Return an expression as a sum, in which variables without a bound are replaced by what they are."""
        unbound = {name: value for name, value in self.variables.items() if name not in self.bounds}
        return sum_of(tree if tree is None or isinstance(tree, ast.expr) else python_of(tree), unbound)

    def _named(self, index: Sum, names: Collection[str]) -> Sum:
        """Return an index with ``index_x`` for ``blockIdx.x * blockDim.x + threadIdx.x``, if that is among names."""
        left = dict(index)
        for axis in (axis for axis in AXES if f"index_{axis}" in names):
            for product, factor in index.items():
                rest = [part for part in product if part not in (f"blockDim_{axis}", f"blockIdx_{axis}")]
                own = tuple(sorted((*rest, f"threadIdx_{axis}")))
                if len(product) == len(rest) + 2 and left.get(own) == factor:
                    del left[own], left[product]
                    left[tuple(sorted((*rest, f"index_{axis}")))] = factor
        return left

    def _by_bounded(self, index: Sum) -> Sum:
        """Return an index as the variable with a bound that it is: 4 * i where ``first = 4 * i`` stays below n."""
        if any(self.bound(part) for product in index for part in product) or not self.places(index):
            return index
        full = sum_of(python_text(sum_text(index)), self.first)
        same = (
            one
            for one in self.bounds
            if one in self.variables and sum_of(self.begins.get(one), self.first) == full
        )
        return next(({(name,): 1} for name in same), index)

    def _comparisons(self, written_out: Collection[str]) -> Iterator[tuple[str, Sum]]:
        """Yield variables and what of the problem they stay below: ``i < n``, or an end if ``i >= n``.

        Last come those that stay below a number of the source, which is a size if it is large.

        Args:
            written_out: names of indices that the code has no variable for, as a function may return them.
        """
        below: list[tuple[str, Sum]] = []
        for one in walk(self.body, "binary_expression"):
            sign, sides = text_of(one.children[1]), (one.children[0], one.children[-1])
            if sign not in ("<", "<=", ">", ">="):
                continue
            for side, other, reads in zip(sides, sides[::-1], (sign, sign.translate(_TURNED)), strict=True):
                low, high = sum_of(python_of(side), self.numbers), self.sum(other)
                least = smallest_of(python_of(other), self.variables) if reads[0] == "<" else ()
                high = next((of for of in map(self.sum, least) if of and self._of_problem(of)), high)
                if low is None or high is None:
                    continue
                low = self._named(low, written_out)
                over = {one: -n for one, n in low.items() if any(one) and all(map(self._passed, one))}
                if over and len(low) > len(over):  # x + RADIUS < width
                    low, high = plus([low, over]) or {}, plus([high, over]) or {}
                less = [one for one in high if high[one] < 0 and all(self._passed(part) for part in one)]
                rest = {product: n for product, n in high.items() if product not in less}
                if any(less) and self._of_problem(rest):  # x < width - RADIUS
                    high = {**rest, (): -1}
                match [(*one, n) for one, n in low.items() if one], [one for one in high if one]:
                    case [(str(name), int(n))], [(size,)] if n > 1 and size in self.sizes:  # 4 * i < n
                        yield name, {(f"({size} // {n})",): 1}
                        continue
                names = [product for product in low if product]
                single = [product[0] for product in names if len(product) == 1 and low[product] == 1]
                single = [one for one in single if not re.match(r"\(?\w+\(", one)]  # what a function says
                if len(names) > 1:  # y + j < height
                    single = [name for name in single if self.places({(name,): 1})][:1]
                if self._of_problem(high) and single:
                    self.beside.setdefault(single[0], set()).update({*names} - {(single[0],)})
                    constant = high.get((), 0) - low.get((), 0)
                    self.inner |= {one.start_byte} if constant < 0 else set()
                    constant += reads in ("<=", ">")
                    self.short[single[0]] = min(self.short.get(single[0], 0), constant)
                    yield single[0], {**high, (): max(constant, 0)}
                elif single and set(high) == {()}:
                    number = high[()] - low.get((), 0) + (reads in ("<=", ">"))
                    if self._counts_to(one, single[0], high[()]):
                        below.append((single[0], {(): number}))
                    elif one.parent is not None and one.parent.type == "for_statement" and reads[0] == "<":
                        self.counts[single[0]] = max(number, self.counts.get(single[0], 1))
                elif names and set(high) <= {()} and reads[0] == ">" and self.places(low):  # i >= 2
                    self.inner |= {one.start_byte} if high.get((), 0) + (reads == ">") > 0 else set()
        yield from below

    def _passed(self, part: str) -> bool:
        """Return whether a part of a product is a name that comes from outside of the code, and no size."""
        inside = part in self.first or "Idx_" in part or "Dim_" in part
        return part.isidentifier() and not inside and part not in self.sizes

    def _kept_places(self) -> Iterator[tuple[str, Sum]]:
        """Yield variables that are set to another one with a bound, as to the place of the best so far, with that."""
        assigned: dict[str, set[str]] = {}
        for one in walk(self.body, "assignment_expression"):
            assigned.setdefault(text_of(one.children[0]), set()).add(text_of(one.children[-1]))
        for name in self.again - self.bounds.keys():
            taken = assigned.get(name, set())
            bounds = [self.bounds[one] for one in taken if one in self.bounds]
            begins = {one: self.begins.get(one) for one in (name, *taken) if one not in self.bounds}
            known = (
                isinstance(tree, ast.Constant | ast.UnaryOp) or (tree and name in names_of(tree))
                for tree in begins.values()
            )
            if bounds and all(one == bounds[0] for one in bounds) and all(known):
                yield name, bounds[0]

    def _counts_to(self, comparison: Node, name: str, number: int) -> bool:
        """Return whether a number is what there is of something: a large one for all blocks, any for a block's loop."""
        loop = comparison.parent is not None and comparison.parent.type == "for_statement"
        by_threads = loop and not re.search(rf"\b{re.escape(name)} ?[/%&>]", self.code)
        large = number >= LEAST_SIZE and self.places({(name,): 1}, "block")
        return large or (by_threads and self.places({(name,): 1}, "thread"))

    def _of_problem(self, terms: Sum) -> bool:
        """Return whether a sum has names of the problem, and no others, and grows with one: ``x < -limit`` does not."""
        names = {name for product in terms for part in product for name in re.findall(r"[A-Za-z_]\w*", part)}
        grows = any(factor > 0 for product, factor in terms.items() if product)
        return bool(names) and grows and names <= self.sizes | {"min", "max", "ceil_div"}

    def places(self, terms: Sum, of: str = "", depth: int = 2) -> bool:
        """Return whether a sum depends on a block or thread, or on a ``block``."""
        full = sum_of(python_text(sum_text(terms)), self.first) or {}
        parts = [name for product in full for name in product]
        inner = {
            name for one in parts if one[0] == "(" for name in re.findall(r"[A-Za-z_]\w*(?! ?[\[(])", one)
        }
        inner &= self.begins.keys() if depth else set()
        return any(f"{of}Idx_" in name for name in parts) or any(
            self.places({(name,): 1}, of, depth - 1) for name in inner
        )

    # -- grids and blocks

    def is_size(self, part: str) -> bool:
        """Return whether a part of a product is a size of the problem, or a size by a number: ``C / 4``."""
        of = re.fullmatch(r"\((\w+) // (\w+)\)", part)
        known = not of or of[2].isdecimal() or of[2] in self.sizes
        counted = of[2] if of and of[1].isdecimal() else of[1] if of else part  # 32 / BITS, C / 4
        return known and counted in self.sizes

    def bound(self, name: str) -> str | None:
        """Return the extent of the problem that a variable stays below; None where the code does not say."""
        if name in self.bounds:
            return sum_text({product: factor for product, factor in self.bounds[name].items() if factor})
        match python_text(name) if name.startswith("(") else None:
            case ast.BinOp(op=ast.Mod(), right=right):
                product = next(iter(self.sum(right) or {()}))
                return product[0] if len(product) == 1 and self.is_size(product[0]) else None
            case ast.BinOp(left=ast.Name(id=divided), op=ast.FloorDiv(), right=right):
                over, by = self.bounds.get(divided, {}), self.sum(right) or {}
                if len(over := {product: n for product, n in over.items() if n}) == len(by) == 1:
                    rest = f"(ceil_div({sum_text(over)}, {sum_text(by)}))"  # i / width / height
                    return quotient(over, by) or (rest if len(next(iter(by))) > 1 else None)
                return next((one for one in self.sizes if by and times(by, {(one,): 1}) == over), None)
        return None

    def is_extent(self, name: str) -> bool:
        """Return whether a variable is compared with a name of the problem alone."""
        return any(name == self.bound(variable) for variable in self.bounds)

    def depends_on(self, size: str) -> bool:
        """Return whether a bound or an index has a size; also where a function may have it."""
        sums = [*self.bounds.values(), *(index for use in self.pointers.values() for index in use.indices)]
        texts = " ".join(part for one in sums for product in one for part in product)
        return bool(re.search(rf"\b{size}\b", texts)) or any(use.passed for use in self.pointers.values())

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
            of_block = [product for product in terms if block in product]
            factor = {rest(product): terms[product] for product in of_block if terms[product] > 0}
            if len(of_block) == len(factor) == 1:
                bound = self.bound(name)
                if by and bound:
                    bound = sum_text(self.sum(python_text(f"({bound}) * ({by})")) or {})
                elif bound and (before := self._before(name, terms.get((), 0))):
                    bound = sum_text(plus([self.bounds.get(name, {}), {(): before}]) or {})
                if bound or not (by or terms == {(block,): 1}):
                    found.append((factor, bound))
        for use in self.pointers.values():
            for index in use.indices:
                of_block = [one for one in index if block in one]
                found += [({rest(one): max(index[one], 1)}, None) for one in of_block if len(of_block) == 1]
        found.sort(key=lambda one: one[1] is None)
        return found[0] if found else None

    def _before(self, name: str, begin: int) -> int:
        """Return how many threads more than its bound a variable has that begins before 0, by which is written."""
        indices = [index for use in self.pointers.values() if use.written for index in use.indices]
        writes = any(name in product for index in indices for product in index)
        return max(self.short.get(name, 0) - begin, 0) if writes and begin < 0 else 0

    def uses(self, name: str) -> bool:
        """Return whether the code uses a member of a built-in variable, such as ``threadIdx.x``."""
        return re.search(rf"\b{re.escape(name)}\b", self.code) is not None
