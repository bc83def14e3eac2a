"""Library calls in kernel files, ``torch.mm(a, b, out=c)``: parsed by a whitelist, and not run as Python."""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

from tuner.core.errors import ExpressionError, TunerError
from tuner.expressions.arithmetic import MAX_LENGTH
from tuner.expressions.parsing import parse_tree
from tuner.runtime.dtypes import ITEMSIZE

_TORCH = """
_scaled_mm abs add addbmm addcdiv addcmul addmm addmv addr amax amin argmax argmin baddbmm bmm cat clamp cos cumprod
cumsum div dot erf exp exp2 expm1 flatten lerp linalg.vector_norm log log1p log2 log_softmax logsumexp matmul maximum
mean minimum mm mul mv neg nn.functional.gelu nn.functional.layer_norm nn.functional.linear nn.functional.relu
nn.functional.rms_norm nn.functional.scaled_dot_product_attention nn.functional.silu outer permute pow prod reciprocal
reshape rsqrt sigmoid sin softmax sqrt square squeeze stack sub sum tanh transpose unsqueeze where
"""
_CUPY = """
abs absolute add amax amin argmax argmin clip concatenate cos cumprod cumsum divide dot exp exp2 expand_dims expm1 log
log1p log2 matmul max maximum mean min minimum multiply negative outer power prod ravel reciprocal reshape sin sqrt
square squeeze stack subtract sum tanh transpose true_divide where
"""
FUNCTIONS = {"torch": frozenset(_TORCH.split()), "cupy": frozenset(_CUPY.split())}
"""Allowed functions by library. None of them accesses files, creates arrays without inputs, or takes code."""

_Result = Callable[[Mapping[str, Any], Mapping[str, Any]], Any]
"""Takes the library's functions and dtypes by name, and the values of names."""
EXAMPLE = "write one call, such as torch.add(a, b, out=c)"


class LibraryCall:
    """A call of a library's function that writes its result to an output of the kernel.

    Grammar: calls of functions in :data:`FUNCTIONS` by dotted name, with positional and keyword arguments. An argument
    is a name (a tensor, scalar or size), a number, ``True``, ``False``, ``None``, another call, a list or tuple of
    these, or minus one of these; ``dtype=`` takes a dtype's name. The outermost call has ``out=``. ``tf32(...)``
    around a call of torch allows its float32 products to round their inputs to tf32.

    Raises:
        ExpressionError: the text is something else.
    """

    def __init__(self, text: str) -> None:
        self.text = " ".join(text.split())
        if len(text) > MAX_LENGTH:
            raise ExpressionError(f"a call of {len(text)} characters", f"keep it under {MAX_LENGTH}")
        body, self.tf32 = _unwrapped(parse_tree(text, remedy=EXAMPLE))
        self._functions: set[str] = set()
        self._dtypes: set[str] = set()
        names: set[str] = set()
        self._result = self._checked(body, names, outermost=True)
        libraries = {name.split(".")[0] for name in self._functions}
        if len(libraries) != 1:
            raise ExpressionError(f"{self.text!r} mixes {' and '.join(sorted(libraries))}", "use one library")
        self.library = libraries.pop()
        """``torch`` or ``cupy``."""
        if self.tf32 and self.library != "torch":
            raise ExpressionError(f"{self.text!r}: tf32(...) is for torch", "leave it out")
        self.names = frozenset(names)
        """The tensors, scalars and sizes that it uses, including outputs."""
        self.outputs = self._outputs(body)
        """The tensors that it writes."""

    def bind(self, module: Any) -> Callable[[Mapping[str, Any]], Any]:
        """Return a function that makes the call for values by name.

        Args:
            module: the imported library.

        Raises:
            TunerError: this version of the library lacks a function or dtype.
        """
        library = {}
        for name in self._functions:
            try:
                library[name] = functools.reduce(getattr, name.split(".")[1:], module)
            except AttributeError:
                version = getattr(module, "__version__", "")
                raise TunerError(f"{self.library} {version} has no {name}", "update it") from None
        for name in self._dtypes:
            if not hasattr(module, name):
                raise TunerError(f"{self.text}: {self.library} has no {name}", "choose another dtype")
            library[name] = getattr(module, name)
        return functools.partial(self._result, library)

    def _checked(self, node: ast.AST, names: set[str], *, outermost: bool = False) -> _Result:
        """Return what gives a node's value; its names are added."""
        match node:
            case ast.Call(func=ast.Attribute() as function):
                self._functions.add(called := _allowed(function, self.text))
                for keyword in node.keywords:
                    if keyword.arg is None or (keyword.arg == "out" and not outermost):
                        raise _refused(keyword.value, self.text, "only the outermost call has out=")
                if outermost and all(keyword.arg != "out" for keyword in node.keywords):
                    raise ExpressionError(
                        f"{self.text!r} does not say where its result goes", "add out= with the output's name"
                    )
                arguments = [self._checked(child, names) for child in node.args]
                named = {str(one.arg): one.value for one in node.keywords}
                keywords = {
                    name: self._dtype(one) if name == "dtype" else self._checked(one, names)
                    for name, one in named.items()
                }
                return lambda library, values: library[called](
                    *(one(library, values) for one in arguments),
                    **{name: one(library, values) for name, one in keywords.items()},
                )
            case _ if outermost:
                raise _refused(node, self.text, EXAMPLE)
            case ast.Name(id=name):
                names.add(name)
                return lambda _, values: values[name]
            case ast.Constant(value=None | int() as value):
                return lambda *_: value
            case ast.Constant(value=float() as value) if math.isfinite(value):
                return lambda *_: value
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                positive = self._checked(operand, names)
                return lambda library, values: -positive(library, values)
            case ast.Tuple(elts=items) | ast.List(elts=items):
                inner = [self._checked(item, names) for item in items]
                kind = tuple if isinstance(node, ast.Tuple) else list
                return lambda library, values: kind(one(library, values) for one in inner)
        raise _refused(node, self.text, "use calls of torch or cupy, names, numbers and keywords")

    def _dtype(self, node: ast.expr) -> _Result:
        if not isinstance(node, ast.Name) or node.id not in ITEMSIZE:
            raise _refused(node, self.text, f"dtype= takes one of {', '.join(ITEMSIZE)}")
        self._dtypes.add(name := node.id)
        return lambda library, _: library[name]

    def _outputs(self, body: ast.expr) -> tuple[str, ...]:
        assert isinstance(body, ast.Call)
        target = next(keyword.value for keyword in body.keywords if keyword.arg == "out")
        items = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
        if not items or not all(isinstance(item, ast.Name) for item in items):
            raise _refused(target, self.text, "out= takes an output's name, or several in parentheses")
        return tuple(item.id for item in items if isinstance(item, ast.Name))


def _unwrapped(body: ast.expr) -> tuple[ast.expr, bool]:
    match body:
        case ast.Call(func=ast.Name(id="tf32"), args=[inner], keywords=[]):
            return inner, True
    return body, False


def _allowed(function: ast.Attribute, text: str) -> str:
    """Return the dotted name of a function that may be called."""
    parts: list[str] = []
    node: ast.expr = function
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in FUNCTIONS:
        raise _refused(function, text, f"call functions of {' or '.join(FUNCTIONS)}")
    name = ".".join(reversed(parts))
    if name not in FUNCTIONS[node.id]:
        raise _refused(function, text, f"{node.id}'s functions here: {', '.join(sorted(FUNCTIONS[node.id]))}")
    return f"{node.id}.{name}"


def _refused(node: ast.AST, text: str, remedy: str) -> ExpressionError:
    part = ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__
    return ExpressionError(f"{part!r} is not allowed in {text!r}", remedy)
