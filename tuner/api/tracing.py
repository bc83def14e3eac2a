"""A user's function of sizes and parameters as an expression of kernel files.

The function is called with symbols that write down what is done with them. Where it asks one whether it is true, or for
its value (as a key, for ``int()`` or another library), it is called once for each answer, and the results become
``A if condition else B``. So the text holds for all values of the parameters, whatever the function does.
"""

from __future__ import annotations

import inspect
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn

import numpy as np

from tuner.core.errors import ExpressionError, UsageError, suggestion, typed
from tuner.core.model import Value
from tuner.expressions.arithmetic import MAX_LENGTH, Expression, parse
from tuner.kernel.functions import first_line

MAX_CALLS = 1000
"""Of a function, one for each way through it."""
MAX_DECISIONS = 64
"""On one way, as of a loop that ends by a symbol: each is one more call, in which all before it are asked again."""
MAX_COMBINATIONS = 1000
"""Of values, among which one is looked for that a way is possible with."""
_GIVEN = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.KEYWORD_ONLY,
)


class _Fork(BaseException):
    """A function's way depends on a symbol: it goes on once for each of these answers."""

    def __init__(self, answers: Sequence[tuple[str, Any]], possible: Sequence[bool]) -> None:
        self.answers = answers
        """Condition and answer; the last condition holds where no other does."""
        self.possible = possible
        """Whether any values give that answer: where none do, the function may fail."""


class _Trace:
    """One way through a function.

    Args:
        taken: which answer is taken at each fork, up to the end of the way that is known.
        choices: the values of each parameter by name, and the one value of each size.
        settled: gets the sizes whose value counts: the text holds for no others.
        sizes: by name.
    """

    def __init__(
        self,
        taken: Sequence[int],
        choices: Mapping[str, Sequence[Value]],
        settled: set[str],
        sizes: Mapping[str, int],
    ) -> None:
        self._taken, self._asked, self._choices, self._sizes = taken, 0, choices, sizes
        self._values: dict[str, Value] = {}
        self._conditions: list[tuple[Expression, bool]] = []
        self._settled = settled

    def _take(
        self, answers: Sequence[tuple[str, Any]], conditions: Sequence[tuple[Expression, bool]] = ()
    ) -> Any:
        """Return which of several answers this way takes; each has its condition where some may be impossible."""
        if len(answers) == 1:
            return answers[0][1]
        if self._asked == len(self._taken):
            possible = [self._possible([one]) for one in conditions] or [True] * len(answers)
            raise _Fork(answers, possible)
        self._asked += 1
        return answers[self._taken[self._asked - 1]][1]

    def truth(self, text: str) -> bool:
        """Return whether a condition holds on this way."""
        condition = parse(text)
        if condition.names <= self._values.keys():
            return bool(condition.evaluate(self._values))
        if (
            known := next((answer for one, answer in self._conditions if one.text == text), None)
        ) is not None:
            return known
        answers = [(text if answer else f"not {text}", answer) for answer in (True, False)]
        answer = bool(self._take(answers, [(condition, answer) for _, answer in answers]))
        self._conditions.append((condition, answer))
        return answer

    def value(self, text: str) -> Any:
        """Return the value of a text on this way, on which its names have one value each from now on."""
        expression = parse(text)
        self._settled |= expression.names & self._sizes.keys()
        for name in sorted(expression.names - self._values.keys()):
            tests = [(parse(f"{name} == {value!r}"), value) for value in self._choices[name]]
            answers = [(test.text, value) for test, value in tests if self._possible([(test, True)])]
            self._values[name] = self._take(answers)
        return expression.evaluate(self._values)

    def _possible(self, more: Sequence[tuple[Expression, bool]]) -> bool:
        """Return whether values of the parameters meet all conditions so far, and one more; sizes may be any."""
        conditions = [
            one for one in (*self._conditions, *more) if not any(name in self._sizes for name in one[0].names)
        ]
        names = sorted({name for condition, _ in conditions for name in condition.names})
        lists = [[self._values[name]] if name in self._values else self._choices[name] for name in names]
        if math.prod(map(len, lists)) > MAX_COMBINATIONS:
            return True
        return any(
            all(condition.holds(values) is answer for condition, answer in conditions)
            for values in (dict(zip(names, one, strict=True)) for one in itertools.product(*lists))
        )


class Symbol:
    """A number or text that is not known yet."""

    def __init__(self, text: str, trace: _Trace, quotient: tuple[str, str] | None = None) -> None:
        self._text, self._trace = text, trace
        self._quotient = quotient
        """Both sides of a true division, which may be rounded up or down."""

    def __repr__(self) -> str:
        return self._text

    def __bool__(self) -> bool:
        return self._trace.truth(self._text)

    def _of(self, text: str) -> Symbol:
        return Symbol(f"({text})", self._trace)

    def __neg__(self) -> Symbol:
        return self._of(f"-{self._text}")

    def __pos__(self) -> Symbol:
        return self

    def __invert__(self) -> Symbol:
        return self._of(f"-{self._text} - 1")

    def __abs__(self) -> Symbol:
        return Symbol(f"abs({self._text})", self._trace)

    def __ceil__(self) -> Symbol:
        if self._quotient is None:
            return self._of(f"-(-{self._text} // 1)")
        return Symbol("ceil_div({}, {})".format(*self._quotient), self._trace)

    def __floor__(self) -> Symbol:
        return self._of("{} // {}".format(*(self._quotient or (self._text, "1"))))

    def __truediv__(self, other: object) -> Symbol:
        return Symbol(f"({self._text} / {written(other)})", self._trace, (self._text, written(other)))

    def __rtruediv__(self, other: object) -> Symbol:
        return Symbol(f"({written(other)} / {self._text})", self._trace, (written(other), self._text))

    def __divmod__(self, other: object) -> tuple[Any, Any]:
        return operator.floordiv(self, other), operator.mod(self, other)

    def __rdivmod__(self, other: object) -> tuple[Any, Any]:
        return operator.floordiv(other, self), operator.mod(other, self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # what libraries ask objects for
            raise AttributeError(name)
        return getattr(self._trace.value(self._text), name)


def _operator(sign: str, *, swapped: bool = False) -> Callable[[Symbol, object], Any]:
    def apply(one: Symbol, other: object) -> Any:
        if not isinstance(other, Symbol | int | float | str | np.generic):
            return NotImplemented
        sides = (written(other), repr(one)) if swapped else (repr(one), written(other))
        return one._of(f" {sign} ".join(sides))

    return apply


_SIGNS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
    "and": "&",
    "or": "|",
    "xor": "^",
    "lshift": "<<",
    "rshift": ">>",
}
for _name, _sign in _SIGNS.items():
    setattr(Symbol, f"__{_name}__", _operator(_sign))
    setattr(Symbol, f"__r{_name}__", _operator(_sign, swapped=True))
for _name, _sign in {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}.items():
    setattr(Symbol, f"__{_name}__", _operator(_sign))


def _valued(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda symbol, *_, **__: function(symbol._trace.value(symbol._text))


_VALUES: dict[str, Callable[..., Any]] = {
    "hash": hash, "int": int, "index": operator.index, "float": float, "str": str, "round": round,
    "trunc": math.trunc, "array": np.asarray, "format": format,
}  # fmt: skip
for _name, _function in _VALUES.items():
    setattr(Symbol, f"__{_name}__", _valued(_function))


def written(value: object) -> str:
    """Return a value as an expression has it."""
    if not isinstance(value, Symbol) and hasattr(value, "item"):  # a number of NumPy
        value = value.item()
    return repr(value)


class _Names(dict[str, Any]):
    """What a function gets whose one parameter stands for all names: ``p["BLOCK"]`` or ``p.BLOCK``."""

    def __missing__(self, name: str) -> Any:
        raise KeyError(f"there is no {name}; {suggestion(name, self)}")

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError as error:  # what asks whether there is such an attribute expects another error
            raise AttributeError(*error.args) from None


def traced(
    what: str,
    function: Callable[..., Any],
    sizes: Mapping[str, int],
    parameters: Mapping[str, Sequence[Value]],
    settled: set[str] | None = None,
    names: Mapping[str, str] | None = None,
) -> list[str]:
    """Return a function of sizes and parameters as expressions, one for each number that it returns.

    Args:
        what: the argument of the call that it is, for errors.
        function: its parameters are names; or it has one of any name, which gets all as a mapping with attributes.
        sizes: by name.
        parameters: the values of each by name.
        settled: gets the sizes whose value counts: the expressions hold for no others.
        names: those of sizes and parameters by others that the function may use for them.

    Raises:
        UsageError: it wants another name, fails, or depends on too many values.
    """
    settled = set() if settled is None else settled
    choices = {**{name: [size] for name, size in sizes.items()}, **parameters}
    wanted = _wanted(what, function, choices)
    calls = 0

    def way(taken: tuple[int, ...]) -> list[str]:
        nonlocal calls
        if (calls := calls + 1) > MAX_CALLS:
            _too_much(what)
        trace = _Trace(taken, choices, settled, sizes)
        try:
            given = {name: of for name, of in (names or {}).items() if of in choices}
            given |= {name: name for name in choices}
            result = _called(what, function, wanted, {name: Symbol(of, trace) for name, of in given.items()})
            return [
                _expression(what, part) for part in (result if isinstance(result, tuple | list) else [result])
            ]
        except _Fork as fork:
            if not any(fork.possible):  # on a way that no values take
                raise UsageError(f"the function for {what} has no value", "correct it") from None
            if len(taken) == MAX_DECISIONS:
                _too_much(what)
            ways = list[tuple[str, list[str]]]()
            for at, (condition, _) in enumerate(fork.answers):
                with suppress(*([] if fork.possible[at] else [UsageError])):
                    ways.append((condition, way((*taken, at))))
        if len({len(texts) for _, texts in ways}) > 1:
            raise UsageError(
                f"the function for {what} returns more numbers at times", "return as many always"
            )
        texts = ways[-1][1]
        for condition, others in reversed(ways[:-1]):
            pairs = zip(others, texts, strict=True)
            texts = [
                other if other == text else f"({other} if {condition} else {text})" for other, text in pairs
            ]
        return texts

    return [parse(text).canonical if len(text) <= MAX_LENGTH else _too_much(what) for text in way(())]


def _too_much(what: str) -> NoReturn:
    raise UsageError(
        f"the function for {what} depends on too many values to be kept as text",
        "write it with arithmetic and comparisons alone, or as text",
    )


def _wanted(what: str, function: Callable[..., Any], choices: Iterable[str]) -> list[str]:
    """Return the names of what a function must be given."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise UsageError(
            f"the function for {what} does not say what it takes", "wrap it in a Python function"
        ) from None
    wanted = [one.name for one in parameters if one.default is one.empty and one.kind in _GIVEN]
    if any(one.kind is one.VAR_KEYWORD for one in parameters):
        wanted += [name for name in choices if name not in {one.name for one in parameters}]
    return wanted


def _called(what: str, function: Callable[..., Any], wanted: Sequence[str], names: Mapping[str, Any]) -> Any:
    unknown = [name for name in wanted if name not in names]
    if unknown and len(wanted) > 1:
        raise UsageError(f"the function for {what} wants {unknown[0]!r}", suggestion(unknown[0], names))
    try:
        return function(_Names(names)) if unknown else function(**{name: names[name] for name in wanted})
    except Exception as error:
        remedy = f"its parameter {wanted[0]} is a mapping of {', '.join(names)}" if unknown else "correct it"
        raise UsageError(f"the function for {what} fails: {first_line(error)}", remedy) from error


def _expression(what: str, value: Any) -> str:
    remedy = "return a number, or a tuple of up to three"
    if value is None:
        raise UsageError(f"the function for {what} returns nothing", remedy)
    try:
        text = written(value)
    except (TypeError, ValueError, RuntimeError):  # of NumPy and torch: an array of several
        problem = f"the function for {what} returns {typed(value)}"
        raise UsageError(problem, remedy) from None
    if len(text) > MAX_LENGTH:
        _too_much(what)
    try:
        return parse(text).text
    except ExpressionError as error:
        raise UsageError(
            f"the function for {what} returns {text[:80]}: {error.problem}", error.remedy
        ) from None
