"""A TOML table that checks the types of its values and rejects unknown keys, with errors that locate it in the file."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any, NoReturn, TypeVar

from tuner.core.errors import KernelError, suggestion

Result = TypeVar("Result")


class Table:
    """A TOML table, with its location in the file and the keys that have not been read.

    Args:
        data: its values.
        where: the file and the keys above it, for errors.
    """

    def __init__(self, data: Mapping[str, Any], where: str) -> None:
        self.data = data
        self.where = where
        self._unread = dict.fromkeys(data)
        self._allowed: dict[str, None] = {}

    def fail(self, problem: str, remedy: str = "") -> NoReturn:
        """Raise an error that names this table."""
        raise KernelError(" ".join(f"{self.where}: {problem}".split()), " ".join(remedy.split()))

    def get(self, key: str, kind: type | tuple[type, ...], default: Any = ...) -> Any:
        """Return a key's value after checking its type; without a default the key must be present."""
        self._allowed[key] = None
        self._unread.pop(key, None)
        if key not in self.data:
            if default is ...:
                for wrong in difflib.get_close_matches(key, self._unread, n=1):
                    self.fail(f"unknown key {wrong!r}", f"did you mean {key}? see docs/kernel-files.md")
                self.fail(f"key {key!r} is missing", "see docs/kernel-files.md")
            return default
        value = self.data[key]
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            names = " or ".join(_TOML_NAMES[k] for k in kinds)
            remedy = (
                f"write [[...{key}]] for a table of it"
                if kinds == (list,) and isinstance(value, dict)
                else ""
            )
            self.fail(f"{key} = {value!r} is not {names}", remedy)
        return value

    def has(self, key: str) -> bool:
        """Return whether an optional key is present; errors about unknown keys then suggest it."""
        self._allowed[key] = None
        return key in self.data

    def table(self, key: str) -> Table:
        """Return a table below this one; an empty one if it is absent."""
        return Table(self.get(key, dict, {}), f"{self.where}: {key}")

    def tables(self, key: str) -> list[Table]:
        """Return an array of tables below this one."""
        items = self.get(key, list, [])
        if not all(isinstance(item, dict) for item in items):
            self.fail(f"{key} must be an array of tables", f"write [[...{key}]]")
        return [Table(item, f"{self.where}: {key}[{i}]") for i, item in enumerate(items)]

    def children(self) -> dict[str, Table]:
        """Return the tables below this one by key, for tables whose keys are names."""
        return {name: self.table(name) for name in list(self.data)}

    def only(self, *keys: str) -> None:
        """Raise an error for the first key that is none of these: before a table that is misspelled seems missing."""
        for key in self.data:
            if key not in keys:
                self.fail(f"unknown key {key!r}", suggestion(key, keys))

    def require(self, value: Any, choices: Collection[Any], problem: str) -> None:
        """Raise an error with this problem and the choices unless the value is one of them."""
        if value not in choices:
            self.fail(problem, suggestion(str(value), map(str, choices)))

    def done(self, result: Result) -> Result:
        """Return what was made of the table; raise an error for the first key that was not read for it."""
        for key in self._unread:
            self.fail(f"unknown key {key!r}", suggestion(key, self._allowed))
        return result


_TOML_NAMES = {
    dict: "a table",
    list: "an array",
    str: "text",
    int: "an integer",
    float: "a number",
    bool: "true or false",
}
