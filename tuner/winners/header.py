"""Winners -> a C++17 header: ``constexpr`` data, and an exact look-up.

What comes from a database or a kernel's file becomes C++ tokens that cannot be anything else: names, numbers, comments
and string literals.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from tuner.core.errors import DatabaseError, TunerError
from tuner.core.model import Run, Value, digest
from tuner.database.records import StoredWinner
from tuner.kernel.spec import KernelSpec
from tuner.kernel.toml.table import CPP_KEYWORDS
from tuner.report.configurations import confirmation_text
from tuner.report.tables import duration, speedup, warm_text
from tuner.winners.bundle import exported_template

MARK = "// Written by tune export"
NAMESPACE = "kernel_tune"
MAX_INTEGER = (1 << 63) - 1
INT_MAX = (1 << 31) - 1
TEXT = "std::string_view"

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
_RESERVED = CPP_KEYWORDS.union(
    (
        # names that the header itself uses inside a kernel's namespace, and its structs
        "std", "Problem", "Configuration",
        # macros of compilers and common headers
        "linux", "unix", "i386", "vax", "sparc", "NULL", "EOF", "TRUE", "FALSE", "NDEBUG", "assert",
        "errno", "stdin", "stdout", "stderr",
    )
)  # fmt: skip
_COMMENT = re.compile(r"\*/|/\*|[^A-Za-z0-9 ._,:;()+=%<>@#&|~^!'\"{}\[\]*/-]", re.ASCII)
_TEXT = re.compile(r"[A-Za-z0-9 _.,()<>=!+*/-]{0,500}", re.ASCII)
_STRING = re.compile(r"[^A-Za-z0-9 ._,:;()+=/@#-]", re.ASCII)


def identifier(name: object, what: str) -> str:
    """Return a name if C++ can use it anywhere.

    Raises:
        DatabaseError: not an identifier, too long, a keyword, reserved or a common macro.
    """
    text = str(name)
    reserved = text in _RESERVED or "__" in text or re.match(r"_[A-Z]", text)
    if not isinstance(name, str) or not _IDENTIFIER.fullmatch(text) or reserved:
        raise DatabaseError(
            f"{what} {text[:80]!r} cannot be a name in C++",
            "rename it in the kernel, or export the other kernels by name",
        )
    return text


def comment(text: object) -> str:
    """Return text that cannot begin or end a comment or join lines: printable ASCII without ``\\`` and ``?``."""
    return _COMMENT.sub("_", str(text)[:200]).strip()


def _string(text: object) -> str:
    """Return the inside of a string literal: printable ASCII without quotes, ``\\`` and ``?``."""
    return _STRING.sub("_", str(text)[:128])


@dataclass(frozen=True)
class _Member:
    """A member of a struct; every text in it is a token of C++."""

    name: str
    type: str

    def literal(self, value: Value | None) -> str:
        """Return a value in C++; ``None`` is that of a variant without this parameter.

        Raises:
            DatabaseError: a value that a header cannot hold.
        """
        if value is None:
            return {TEXT: '""', "bool": "false", "double": "0.0"}.get(self.type, "0")
        if self.type == TEXT:
            if not _TEXT.fullmatch(str(value)):
                raise self._refused(value)
            return f'"{value}"'
        if isinstance(value, float) and self.type == "double" and math.isfinite(value):
            return repr(value)
        if not isinstance(value, int) or abs(value) > MAX_INTEGER:
            raise self._refused(value)
        if self.type == "bool":
            return "true" if value else "false"
        return repr(float(value)) if self.type == "double" else str(int(value))

    def _refused(self, value: Value) -> DatabaseError:
        return DatabaseError(
            f"{self.name} = {str(value)[:80]!r} cannot be exported",
            "a header holds numbers, yes or no, names and element expressions; export the other kernels by name",
        )


def _members(values: Iterable[tuple[str, Value]]) -> list[_Member]:
    """Return members by name, each of a type that holds all of its values."""
    by_name: dict[str, list[Value]] = {}
    for name, value in values:
        by_name.setdefault(identifier(name, "the name"), []).append(value)
    members = []
    for name, several in by_name.items():
        if len(set(map(str, several))) < len({(type(value), value) for value in several}):
            raise DatabaseError(
                f"two values of {name} are one in C++",
                "rename one, or export the other kernels by name",
            )
        if any(isinstance(value, str) for value in several):
            kind = TEXT
        elif all(isinstance(value, bool) for value in several):
            kind = "bool"
        elif any(isinstance(value, float) for value in several):
            kind = "double"
        else:
            kind = "int" if all(abs(int(value)) <= INT_MAX for value in several) else "long long"
        members.append(_Member(name, kind))
    return members


def _kernel(winners: Sequence[StoredWinner], kernel: KernelSpec | None) -> dict[str, Any]:
    """Return what the templates need of one kernel.

    Args:
        winners: of it.
        kernel: its file, so that all its parameters have a member; None without one.
    """
    problems = [stored.run.problem for stored in winners]
    in_order = [kernel.problem(), *problems] if kernel else problems
    options = [item for problem in problems for item in problem.options.items()]
    parameters = [item for stored in winners for item in stored.winner.configuration.parameters]
    if kernel:
        options[:0] = [(name, value) for name, values in kernel.options.items() for value in values]
        specs = [spec for variant in kernel.variants.values() for spec in variant.parameters.values()]
        parameters[:0] = [(spec.name, value) for spec in specs for value in spec.values]
    sizes = dict.fromkeys(size for problem in in_order for size in problem.sizes)
    roles = dict.fromkeys(role for problem in in_order for role in problem.dtypes)
    members = {
        "problem": [
            *(_Member(identifier(size, "the size"), "long long") for size in sizes),
            *(_Member(identifier(role, "the role"), TEXT) for role in roles),
            *_members(options),
        ],
        "configuration": [_Member("variant", TEXT), *_members(parameters)],
    }
    name = identifier(problems[0].kernel, "the kernel")
    for names in ([member.name for member in of] for of in members.values()):
        if twice := [one for one in names if names.count(one) > 1]:
            raise DatabaseError(
                f"{name} has two meanings for {twice[0]!r}", "rename one of them in the kernel"
            )
    gone = () if kernel else ("its kernel's file is gone: parameters are those of what is exported",)
    rows = []
    for stored in winners:
        run, winner = stored.run, stored.winner
        values = {
            "problem": {**run.problem.sizes, **run.problem.dtypes, **run.problem.options},
            "configuration": {"variant": winner.configuration.variant, **winner.configuration.values},
        }
        literals = {
            struct: ", ".join(member.literal(values[struct].get(member.name)) for member in of)
            for struct, of in members.items()
        }
        rows.append(
            {
                **literals,
                "gpu": _string(run.gpu.name),
                "cc": _Member("cc", "int").literal(run.gpu.cc),
                "time_ns": _Member("the time", "double").literal(float(winner.time_ns)),
                "conditions": _string(run.conditions),
                "replayed": "true" if run.replayed else "false",
                "comments": [comment(line) for line in (*_origin(stored), *gone)],
            }
        )
    return {
        "name": name,
        "winners": rows,
        "text": exported_template("winners.hpp").render(**members, winners=rows),
    }


def _origin(stored: StoredWinner) -> list[str]:
    """Return comments on where an entry's figures come from."""
    winner, run, trial = stored.winner, stored.run, stored.trial
    source = f"replayed from a recording ({run.device}; " if run.replayed else "measured ("
    ends = f" ({duration(trial.ci_low_ns)} .. {duration(trial.ci_high_ns)})" if trial.ci_low_ns else ""
    lines = [
        f"{run.problem} on {run.gpu.name}",
        f"cc {run.gpu.cc}, driver {run.gpu.driver or 'unknown'}, {stored.created_at[:10]}",
        f"{duration(winner.time_ns)}, {source}{run.conditions}); in the search {duration(trial.time_ns)}{ends}",
    ]
    if winner.ratio is not None:
        default = f" ({duration(winner.default_time_ns)})" if winner.default_time_ns else ""
        versus = speedup(winner.ratio, winner.ratio_low, winner.ratio_high, "")
        lines.append(f"versus the default configuration{default}: {versus}, {winner.verdict}")
    if warm := warm_text(winner.warm):
        lines.append(f"also chosen by its warm time: {warm}")
    confirmed = confirmation_text(winner, replayed=run.replayed)
    lines.append(confirmed if run.replayed else f"confirmed: {confirmed}")
    lines.append(f"trial {winner.trial_id} of run {run.id}")
    return lines


def render_header(
    winners: Sequence[StoredWinner],
    namespace: str = NAMESPACE,
    kernel_of: Callable[[Run], KernelSpec] | None = None,
) -> str:
    """Return the header's text.

    Args:
        winners: what to export, one for each problem and GPU; comments say how each was timed.
        namespace: around all of it.
        kernel_of: returns a run's kernel, whose file has the names of all parameters; raises TunerError without one.
            Then there are only those of the winners.

    Raises:
        DatabaseError: a name or value that a header cannot hold.
    """
    ordered = sorted(
        winners, key=lambda w: (w.run.problem.kernel, w.run.gpu.cc, w.run.gpu.name, w.run.problem.key)
    )
    kernels = []
    for _, group in groupby(ordered, key=lambda stored: stored.run.problem.kernel):
        several = list(group)
        kernel = _kernel(several, _kernel_of_all([stored.run for stored in several], kernel_of))
        kernels.append(kernel | {"digest": digest([namespace, kernel["name"], kernel["text"]])[:8]})
    within = identifier(namespace, "the namespace")
    text = exported_template("header.hpp").render(kernels=kernels, mark=MARK, namespace=within)
    if not text.isascii() or "\\" in text or "??" in text:
        raise DatabaseError(
            "the header would hold characters that C++ reads differently", "export fewer kernels"
        )
    return text


def _kernel_of_all(runs: Sequence[Run], kernel_of: Callable[[Run], KernelSpec] | None) -> KernelSpec | None:
    """Return a kernel with the sizes, dtypes and options of all runs' problems; None if none of theirs has them."""
    if kernel_of is None:
        return None
    for run in runs:
        with suppress(TunerError):  # its file is gone, or cannot be read
            kernel = kernel_of(run)
            own = kernel.sizes.keys(), kernel.dtypes.keys(), kernel.options.keys()
            problems = [each.problem for each in runs]
            if all(own == (p.sizes.keys(), p.dtypes.keys(), p.options.keys()) for p in problems):
                return kernel
    return None
