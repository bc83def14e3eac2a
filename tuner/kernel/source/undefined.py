"""Names that a source uses and nothing defines: its parameters, sizes that are macros, types."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tuner.kernel.source.declarations import read_declarations
from tuner.kernel.source.tree import NAMES, expression, text_of, tree_of, walk
from tuner.kernel.source.types import PASSED_AS

if TYPE_CHECKING:
    from tree_sitter import Node

_OF_BUILD = re.compile(r"_[A-Z_]\w*|N?DEBUG|WIN(32|64)")
"""Macros by which a source asks for a system or a build."""
_KNOWN = re.compile(
    r"__\w+|cu(?:da|rand|blas|fft)\w*|cuC\w+|cu\w*Complex\w*|CU(?:DA|DART|BLAS|FFT|RAND)?_\w+"
    r"|M_(?:E|LOG2E|LOG10E|LN2|LN10|PI|PI_[24]|[12]_PI|2_SQRTPI|SQRT2|SQRT1_2)F?|(?:FLT|DBL|LDBL)_[A-Z0-9_]+"
    r"|(?:U?(?:INT|LONG|LLONG|SHRT|CHAR)|SCHAR|SIZE|PTRDIFF|U?INT(?:8|16|32|64|PTR|MAX))_(?:MIN|MAX|BIT)"
    r"|(?:u?(?:char|short|int|long|longlong)|float|double|half|nv_bfloat16)[1234]?(?:_\d+a)?"
    r"|(?:tex|surf)(?:[123C]|ture)\w*|u?int\w*_t|size_t|ssize_t|ptrdiff_t|(?:thread|block)Idx|(?:block|grid)Dim"
    r"|warpSize|std|NULL|nullptr|this|auto|dim3|INFINITY|NAN|HUGE_VALF?|RAND_MAX|EOF|wchar_t|clock_t|nvcuda"
    r"|cooperative_groups|(?:grid|thread|coalesced|cluster)_group|thread_block(?:_tile)?|tiled_partition"
    r"|asm|volatile|inline|const|void|static|extern|template|typename|class|struct|operator"
    r"|return|if|else|for|while|do|switch|case|break|continue|default|goto|constexpr|consteval|sizeof|decltype|explicit"
    r"|virtual|public|private|protected|friend|mutable|noexcept|override|final|try|catch|throw|new|delete|union|enum"
    r"|typedef|using|namespace|register|signed|unsigned|bool|alignas|alignof|thread_local|requires|concept|typeid"
)
"""What CUDA or its headers define, and keywords, which stand as names where a text is not C++ as it is."""


@functools.lru_cache(maxsize=64)
def undefined_names(text: str, entry: str = "", headers: Sequence[str] = ()) -> Mapping[str, bool]:
    """Return names that a kernel uses and nothing defines, in the order of their use; whether each is used as a type.

    Functions are left out.

    Args:
        text: the source.
        entry: the kernel; empty for any.
        headers: texts of its own headers, in a tuple.

    Raises:
        KernelError: the texts are too large.
    """
    whole = read_declarations("\n".join([*headers, text]))
    items, _ = whole.reached(entry)
    used, macros = dict[str, bool](), dict(whole.macros)
    declared = {*macros, *PASSED_AS, *(name for one in whole.items for name in one.names)}
    trees = [one.node for one in whole.items if one not in items and not one.plain_function]
    declared |= {text_of(name) for tree in trees for name in walk(tree, *NAMES) if _is_declared(name)}
    trees = [one.node for one in whole.items if one in items and one.names]
    for tree in trees:
        for node in walk(tree, *NAMES):
            name = text_of(node)
            if _is_declared(node):
                declared.add(name)
            elif not _is_called(node):
                used[name] = used.get(name, False) or node.type == "type_identifier"
            if (macro := macros.pop(name, None)) is not None:
                trees.append(expression(macro.value) or tree_of(macro.value))
                declared |= {*(macro.parameters or ()), *re.findall(r"(\w+) ?=(?!=)", macro.value)}
    asked = (name for name in sorted(whole.asked) if not _OF_BUILD.fullmatch(name))
    used |= {name: False for name in asked if name not in used}
    return {name: kind for name, kind in used.items() if name not in declared and not _KNOWN.fullmatch(name)}


def _is_declared(node: Node) -> bool:
    """Return whether a declaration introduces a name here."""
    parent = node.parent
    if parent is None:
        return False
    whole = parent if parent.type == "assignment_expression" and node == parent.children[0] else node
    around = whole.parent
    if around is not None and around.type == "binary_expression" and text_of(around.children[1]) == ">":
        first = around.children[0]  # A<3> x = ... reads like two comparisons
        return first.type == "binary_expression" and text_of(first.children[1]) == "<"
    named = parent.children_by_field_name("name") if parent.type != "qualified_identifier" else []
    of_template = parent.type.endswith("type_parameter_declaration") or parent.type == "reference_declarator"
    return of_template or node in named or node in parent.children_by_field_name("declarator")


def _is_called(node: Node) -> bool:
    """Return whether a name is a function's, a literal's, a member's, a label, or one in a namespace."""
    if node.type in ("field_identifier", "namespace_identifier"):
        return True
    parent = node.parent
    called = parent.child_by_field_name("function") if parent is not None else None
    return called == node or (
        parent is not None and parent.type in ("qualified_identifier", "goto_statement", "operator_name")
    )
