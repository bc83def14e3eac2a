"""The one place where a command's body is imported: when the command runs, so that help answers at once."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

Command = Callable[..., Any]


def runs(body: str | Callable[[dict[str, Any]], str]) -> Callable[[Command], Command]:
    """Return a decorator: the function that it decorates has a command's help, and the body does its work.

    Args:
        body: ``module:function``, or what chooses that by click's keyword arguments. The function is called with them.
    """

    def decorate(described: Command) -> Command:
        @functools.wraps(described)
        def run(**arguments: Any) -> None:
            module, name = (body if isinstance(body, str) else body(arguments)).split(":")
            getattr(importlib.import_module(module), name)(**arguments)

        return run

    return decorate
