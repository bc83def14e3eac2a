"""A reference that is a function of the program that tunes: the measuring process asks for its results.

A lambda or closure cannot be sent to another process. So the kernel's folder has a ``caller.py``, an ordinary Python
reference, that connects to a thread of the calling program, which runs the function. Deadlines, repeated calls and
other inputs are those of every Python reference.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import inspect
import json
import os
import secrets
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import msgspec
import numpy as np

from tuner.core.errors import UsageError
from tuner.core.phases import process_began
from tuner.core.trees import parsed
from tuner.kernel.functions import arguments_for, first_line, location

CALLERS = "callers"
"""Folder beside ``caller.py``: a file for each program that answers now."""
STARTING_S = 0.1
"""From the beginning of a process on, which is known to 10 ms, until it has read a file of its own."""
TO_KEEP = "write it to a file, and name it as reference: 'reference.py:FUNCTION'"
"""What to do about a function that is of a program."""
_TEXT = '''"""The reference is a function of the program that called tuner.tune, which this file asks for results."""

from tuner.api.caller import ask

CODE = {code!r}


def reference({parameters}):
    return ask(__file__, {{{pairs}}})
'''


_Part = tuple[str, tuple[int, ...], bytearray] | int | float
"""A number; or an array's dtype, shape and bytes."""
_Parts = dict[str, list[_Part]]
_Answer = tuple[str, _Parts]


class FailedInCallerError(RuntimeError):
    """The function failed in the program that it belongs to."""


def ask(file: str, values: Mapping[str, Any]) -> Any:
    """Return what the calling program's function makes of some values.

    Args:
        file: the ``caller.py``.
        values: by the function's parameters.

    Raises:
        FailedInCallerError: it fails, or that program has ended.
    """
    for path in sorted((Path(file).parent / CALLERS).glob("*.json"), key=os.path.getmtime, reverse=True):
        where = json.loads(path.read_text())
        try:
            with Client(where["address"], "AF_UNIX", authkey=bytes.fromhex(where["key"])) as connection:
                connection.send_bytes(_packed({name: [value] for name, value in values.items()}))
                failed, results = msgspec.msgpack.decode(connection.recv_bytes(), type=_Answer)
        except (OSError, EOFError):
            continue
        if failed:
            raise FailedInCallerError(failed)
        return {
            name: parts[0] if len(parts) == 1 else tuple(parts) for name, parts in _unpacked(results).items()
        }
    raise FailedInCallerError(f"the program whose function this is has ended; {TO_KEEP}")


def asks_its_program(file: Path) -> bool:
    """Return whether a reference's file is one that asks the program whose function it is."""
    return file.name == "caller.py" and "import ask" in file.read_text(encoding="utf-8")


def portable(function: Callable[..., Any]) -> tuple[str, str]:
    """Return a file with a function that needs nothing of its program but modules, and its name; empty if it may.

    It must return arrays by itself: what a caller's function may do besides, such as writing in place, only
    :class:`Answering` understands.
    """
    if inspect.ismethod(function):  # needs its object
        return "", ""
    try:
        code, names, takes = function.__code__, function.__globals__, inspect.getfullargspec(function)
        whole = parsed("".join(inspect.findsource(function)[0]))
        changed = _changed(Path(code.co_filename))
    except (OSError, TypeError, ValueError, SyntaxError, AttributeError):
        return "", ""
    kinds = ast.Lambda if function.__name__ == "<lambda>" else ast.FunctionDef
    found = [
        node for node in ast.walk(whole) if isinstance(node, kinds) and node.lineno == code.co_firstlineno
    ]
    used = {name: names[name] for one in _codes(code) for name in one.co_names if name in names}
    modules = {name: module.__name__ for name, module in used.items() if isinstance(module, ModuleType)}
    known = all(
        of.partition(".")[0] in (*sys.stdlib_module_names, "numpy", "scipy") for of in modules.values()
    )
    alone = known and len(modules) == len(used) and not code.co_freevars
    if not alone or changed or takes.defaults or takes.kwonlydefaults or len(found) != 1:
        return "", ""
    (definition,) = found
    returned: list[ast.expr | None]
    if isinstance(definition, ast.Lambda):
        returned, name = [definition.body], "reference"
        text = f"def {name}({ast.unparse(definition.args)}):\n    return {ast.unparse(definition.body)}\n"
    else:
        returned = [node.value for node in ast.walk(definition) if isinstance(node, ast.Return)]
        name, text = function.__name__, textwrap.dedent(inspect.getsource(function))
    if not returned or None in returned or _writes(definition):
        return "", ""
    imports = [
        f"import {of}" if of == name else f"import {of} as {name}" for name, of in sorted(modules.items())
    ]
    return "\n".join(["from __future__ import annotations", "", *imports, "", "", text]), name


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a function's code, and that of what is defined in it."""
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _codes(one)


def _changed(file: Path) -> bool:
    """Return whether a file was written since this process began, so that it may have other functions now."""
    age_s = time.monotonic() - process_began()
    return file.exists() and file.stat().st_mtime > time.time() - age_s + STARTING_S


def _writes(definition: ast.AST) -> bool:
    """Return whether a function writes into what it is given: arrays of a file's reference are read-only."""
    given = {node.arg for node in ast.walk(definition) if isinstance(node, ast.arg)}
    for node in ast.walk(definition):
        into: Any = node.value if isinstance(node, ast.keyword) and node.arg == "out" else None
        if isinstance(node, ast.AugAssign):
            into = node.target
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            into = node.value
        while isinstance(into, ast.Subscript | ast.Attribute):
            into = into.value
        if isinstance(into, ast.Name) and into.id in given:
            return True
    return False


def _packed(values: Mapping[str, Sequence[Any]], failed: str | None = None) -> bytes:
    """Return a message: the values, or an answer that has them behind what failed, which may be nothing."""
    parts = {name: [_part(one) for one in of] for name, of in values.items()}
    return msgspec.msgpack.encode(parts if failed is None else (failed, parts))


def _part(value: Any) -> Any:
    whole = type(value) in (bool, int) and abs(value) < 1 << 63
    if whole or type(value) is float:  # np.float64 is a float, too
        return value
    array = np.asarray(value)
    if array.dtype.kind not in "biufc":
        raise TypeError(f"it returns {array.dtype} values: return an array of numbers")
    return array.dtype.str, array.shape, array.ravel().view(np.uint8).data


def _unpacked(parts: _Parts) -> dict[str, list[Any]]:
    return {
        name: [
            np.frombuffer(part[2], part[0]).reshape(part[1]) if isinstance(part, tuple) else part
            for part in of
        ]
        for name, of in parts.items()
    }


def caller_file(function: Callable[..., Any], available: Mapping[str, str]) -> str:
    """Return the text of ``caller.py``.

    Args:
        function: the reference.
        available: what it may take: names in the kernel's file by those that its parameters may have.

    Raises:
        UsageError: it wants something else.
    """
    positional, named = arguments_for(function, available, "the reference")
    if len(positional):
        raise UsageError(
            "the reference has parameters without names", "wrap it in a function that names them"
        )
    pairs = ", ".join(f"{name!r}: {of}" for name, of in named.items())
    parameters = ", ".join(dict.fromkeys(named.values()))
    return _TEXT.format(code=code_digest(function), parameters=parameters, pairs=pairs)


def code_digest(function: Callable[..., Any]) -> str:
    """Return a digest of a function's code and of what it refers to; another each time if that cannot be told."""
    seen: set[int] = set()
    content = hashlib.sha256()

    def add(value: Any) -> None:
        if isinstance(value, CodeType):
            content.update(value.co_code)
            for part in (value.co_names, value.co_varnames, *value.co_consts):
                add(part)
        elif isinstance(value, FunctionType):
            if id(value) not in seen:
                seen.add(id(value))
                used = inspect.getclosurevars(value)
                for part in (
                    value.__code__,
                    value.__defaults__,
                    *used.nonlocals.items(),
                    *used.globals.items(),
                ):
                    add(part)
        elif isinstance(value, tuple | list):
            for part in value:
                add(part)
        elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
            content.update(f"{value.dtype} {value.shape}".encode() + value.tobytes())
        else:
            text = value.__name__ if isinstance(value, ModuleType) else repr(value)
            own = (
                Path(getattr(value, "__file__", None) or "/") if isinstance(value, ModuleType) else Path("/")
            )
            if own.is_relative_to(Path.cwd()) and own.is_file():
                content.update(own.read_bytes())
            if " at 0x" in text or "..." in text:
                raise TypeError(type(value).__name__)
            content.update(f"{text};".encode())

    try:
        add(function)
    except Exception:  # noqa: BLE001 - what a closure holds may refuse to be written down in any way
        return secrets.token_hex(16)
    return content.hexdigest()[:32]


class Answering:
    """A thread that answers with a function's results, as long as the block lasts.

    Args:
        function: of the calling program.
        folder: of the kernel's file.
        outputs: names of the kernel's outputs, in order.
        library: whose arrays the function gets: ``torch``, ``cupy`` or ``numpy``.
        names: those of the kernel's file by those that the function may use.

    Attributes:
        error: what the function raised last.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        folder: Path,
        outputs: Sequence[str],
        library: str,
        names: Mapping[str, str],
    ) -> None:
        self._function, self._outputs, self._library, self._names = function, outputs, library, names
        self.error: BaseException | None = None
        self._key = secrets.token_bytes(32)
        self._listener = Listener(family="AF_UNIX", authkey=self._key)
        (folder / CALLERS).mkdir(exist_ok=True, mode=0o700)
        self._file = folder / CALLERS / f"{secrets.token_hex(8)}.json"
        self._closing = False

    def __enter__(self) -> Answering:
        descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump({"address": self._listener.address, "key": self._key.hex()}, file)
        threading.Thread(target=self._serve, daemon=True, name="reference").start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing = True
        self._file.unlink(missing_ok=True)
        with contextlib.suppress(Exception):  # the thread waits for a connection
            Client(self._listener.address, "AF_UNIX", authkey=self._key).close()
        self._listener.close()

    def _serve(self) -> None:
        while not self._closing:
            with contextlib.suppress(Exception), self._listener.accept() as connection:
                self._answer(connection)

    def _answer(self, connection: Connection[Any, Any]) -> None:
        values = _unpacked(msgspec.msgpack.decode(connection.recv_bytes(), type=_Parts))
        try:
            given = {name: self._given(part) for name, (part,) in values.items()}
            answer = _packed(self._results(self._function(**given), given), "")
        except BaseException as error:  # noqa: BLE001 - whatever a user's function throws
            self.error = error
            answer = _packed({}, _where(error, self._function))
        connection.send_bytes(answer)

    def _given(self, value: Any) -> Any:
        if self._library == "numpy" or not hasattr(value, "shape"):
            return value
        library = sys.modules[self._library]
        return library.from_numpy(value) if self._library == "torch" else library.asarray(value)

    def _results(self, result: Any, given: Mapping[str, Any]) -> dict[str, list[Any]]:
        """Return values, and perhaps magnitudes, by output; of a function that returns nothing what it has written."""
        given = {self._names.get(name, name): value for name, value in given.items()}
        if result is None and all(name in given for name in self._outputs):
            result = {name: given[name] for name in self._outputs}
        if len(self._outputs) == 1 and not isinstance(result, Mapping):
            result = {self._outputs[0]: result}
        if isinstance(result, tuple | list) and len(result) == len(self._outputs):
            result = dict(zip(self._outputs, result, strict=True))
        if not isinstance(result, Mapping):
            raise TypeError(
                f"it returns {type(result).__name__}: return a dict of {', '.join(self._outputs)}"
            )
        return {
            self._names.get(name, name): [
                _plain(one) for one in (value if isinstance(value, tuple) and len(value) == 2 else [value])
            ]
            for name, value in result.items()
        }


def _plain(array: Any) -> Any:
    """Return an array of torch or CuPy as one of NumPy."""
    if hasattr(array, "detach"):
        array = array.detach().cpu()
        return (array.double() if array.is_floating_point() else array).numpy()
    return array.get() if hasattr(array, "get") and hasattr(array, "shape") else array


def _where(error: BaseException, function: Callable[..., Any]) -> str:
    """Return an exception in one line, with the line of the function that it came from."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    where = location(error, Path(code.co_filename)) if code else ""
    return ": ".join(filter(None, (where, first_line(error))))
