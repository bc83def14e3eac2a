"""Library calls in kernel files, ``torch.mm(a, b, out=c)``: parsed by a whitelist, and not run as Python."""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

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
        self._body, self.tf32 = _unwrapped(parse_tree(text, remedy=EXAMPLE))
        self._functions: set[str] = set()
        self._dtypes: set[str] = set()
        names: set[str] = set()
        self._check(self._body, names, outermost=True)
        libraries = {name.split(".")[0] for name in self._functions}
        if len(libraries) != 1:
            raise ExpressionError(f"{self.text!r} mixes {' and '.join(sorted(libraries))}", "use one library")
        self.library = libraries.pop()
        """``torch`` or ``cupy``."""
        if self.tf32 and self.library != "torch":
            raise ExpressionError(f"{self.text!r}: tf32(...) is for torch", "leave it out")
        self.names = frozenset(names)
        """The tensors, scalars and sizes that it uses, including outputs."""
        self.outputs = self._outputs()
        """The tensors that it writes."""

    def bind(self, module: Any) -> Callable[[Mapping[str, Any]], Any]:
        """Return a function that makes the call for values by name.

        Args:
            module: the imported library.

        Raises:
            TunerError: this version of the library lacks a function or dtype.
        """
        functions = {}
        for name in self._functions:
            try:
                functions[name] = functools.reduce(getattr, name.split(".")[1:], module)
            except AttributeError:
                version = getattr(module, "__version__", "")
                raise TunerError(f"{self.library} {version} has no {name}", "update it") from None
        dtypes = {}
        for name in self._dtypes:
            if not hasattr(module, name):
                raise TunerError(f"{self.text}: {self.library} has no {name}", "choose another dtype")
            dtypes[name] = getattr(module, name)
        return lambda values: _evaluate(self._body, functions, values, dtypes)

    def _check(self, node: ast.AST, names: set[str], *, outermost: bool = False) -> None:
        match node:
            case ast.Call(func=ast.Attribute() as function):
                self._functions.add(_allowed(function, self.text))
                for keyword in node.keywords:
                    if keyword.arg is None or (keyword.arg == "out" and not outermost):
                        _refuse(keyword.value, self.text, "only the outermost call has out=")
                if outermost and all(keyword.arg != "out" for keyword in node.keywords):
                    raise ExpressionError(
                        f"{self.text!r} does not say where its result goes", "add out= with the output's name"
                    )
                for child in node.args:
                    self._check(child, names)
                for keyword in node.keywords:
                    if keyword.arg == "dtype":
                        self._dtypes.add(_dtype(keyword.value, self.text))
                    else:
                        self._check(keyword.value, names)
                return
            case _ if outermost:
                _refuse(node, self.text, EXAMPLE)
            case ast.Name(id=name):
                names.add(name)
                return
            case ast.Constant(value=None | int()):
                return
            case ast.Constant(value=float() as value) if math.isfinite(value):
                return
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                self._check(operand, names)
                return
            case ast.Tuple(elts=items) | ast.List(elts=items):
                for item in items:
                    self._check(item, names)
                return
        _refuse(node, self.text, "use calls of torch or cupy, names, numbers and keywords")

    def _outputs(self) -> tuple[str, ...]:
        assert isinstance(self._body, ast.Call)
        target = next(keyword.value for keyword in self._body.keywords if keyword.arg == "out")
        items = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
        if not items or not all(isinstance(item, ast.Name) for item in items):
            _refuse(target, self.text, "out= takes an output's name, or several in parentheses")
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
        _refuse(function, text, f"call functions of {' or '.join(FUNCTIONS)}")
    name = ".".join(reversed(parts))
    if name not in FUNCTIONS[node.id]:
        _refuse(function, text, f"{node.id}'s functions here: {', '.join(sorted(FUNCTIONS[node.id]))}")
    return f"{node.id}.{name}"


def _dtype(node: ast.expr, text: str) -> str:
    """Return the name of a dtype."""
    if not isinstance(node, ast.Name) or node.id not in ITEMSIZE:
        _refuse(node, text, f"dtype= takes one of {', '.join(ITEMSIZE)}")
    return node.id


def _refuse(node: ast.AST, text: str, remedy: str) -> NoReturn:
    part = ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__
    raise ExpressionError(f"{part!r} is not allowed in {text!r}", remedy)


def _evaluate(
    node: ast.AST, functions: Mapping[str, Any], values: Mapping[str, Any], dtypes: Mapping[str, Any]
) -> Any:
    def run(child: ast.AST) -> Any:
        return _evaluate(child, functions, values, dtypes)

    match node:
        case ast.Call():
            given = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
            keywords = {n: dtypes[ast.unparse(v)] if n == "dtype" else run(v) for n, v in given.items()}
            return functions[ast.unparse(node.func)](*(run(child) for child in node.args), **keywords)
        case ast.Name(id=name):
            return values[name]
        case ast.Constant(value=value):
            return value
        case ast.UnaryOp(operand=operand):
            return -run(operand)
        case ast.Tuple(elts=items):
            return tuple(run(item) for item in items)
        case ast.List(elts=items):
            return [run(item) for item in items]
    raise AssertionError(node)
