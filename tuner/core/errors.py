"""The tuner's errors. Each says in one line what is wrong and what to do about it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

MOST_CHOICES = 40
"""Names that a message lists at most."""


_CREDENTIALS = re.compile(r"(:/{1,2}[^\s:/?#@]*:)(\S+(?=@)|(?!\d+(?:[/\s,;]|$))[^\n]+(?=@))")
"""What stands before the password of a URL, which as a path has one slash, and the password: also one with a blank that
should have been escaped, unless it begins as a port."""
_NAMED = re.compile(r"(?i)([?&]\w*(?:pass|pwd|token|secret|key)\w*=)([^&\s\"']+)")
"""The same of one that is an argument of the URL."""
_ENDLESS = re.compile(r"(?<!\S)(\S{1000})\S{500,}(\S{100})")
"""What a user gave as a name or a number and a message repeats, as long as hardly any path."""


def without_passwords(text: str) -> str:
    """Return text with ``***`` in the place of the password of each URL in it."""
    return _NAMED.sub(r"\1***", _CREDENTIALS.sub(r"\1***", text)) if ":/" in text else text


def typed(value: object) -> str:
    """Return the name of a value's type with its article, for messages: ``an int``."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeioAEIO' else 'a'} {name}"


def _told(text: str) -> str:
    return _ENDLESS.sub(
        lambda word: f"{word[1]}[{len(word[0])} characters]{word[2]}", without_passwords(text)
    )


def shown(value: object) -> str:
    """Return a value as Python writes it, for messages: of one line, and of what is long its beginning."""
    return f"{' '.join(repr(value).split()):.80}"


class TunerError(Exception):
    """A failure that the user can act on; passwords of URLs, and most of endless words, are left out of what it says.

    Args:
        problem: what is wrong, naming the file, key or value.
        remedy: what to do about it; empty when ``problem`` already says it.
    """

    exit_code = 1

    def __init__(self, problem: str, remedy: str = "") -> None:
        self.problem = problem = _told(problem)
        self.remedy = remedy = _told(remedy)
        super().__init__(f"{problem}; {remedy}" if remedy else problem)


class UsageError(TunerError):
    """A name or value on the command line does not exist or does not fit."""

    exit_code = 2


class KernelError(TunerError):
    """A kernel's TOML file or template is wrong."""

    exit_code = 2


class ExpressionError(KernelError):
    """An expression cannot be parsed, or has no value for these names."""


class DivisionByZeroError(ExpressionError):
    """An expression divides by zero for these names."""


class SpaceError(TunerError):
    """No configuration is left to try."""

    exit_code = 2


class TooInaccurateError(TunerError):
    """No kernel of the dtype can be as accurate as required; nothing was tried."""


class CompileError(TunerError):
    """NVRTC is missing, or rejected a kernel that must compile (a reference, a helper)."""


class DeviceError(TunerError):
    """The GPU, its driver or the measuring process cannot be used."""


class NoGpuError(DeviceError):
    """This machine has no NVIDIA GPU or no driver."""


class RecordingError(DeviceError):
    """A recording cannot be read, or lacks what is needed."""


class NotRecordedError(RecordingError):
    """A recording does not hold a problem.

    Args:
        recording: its name.
        problem: which it lacks.
        nearest: options that name the most similar problem that it holds.
        held: how many it holds, and what lists them.
    """

    def __init__(self, recording: str, problem: str, nearest: str, held: str) -> None:
        # What names the problem itself, as a run of several, leaves this beginning out.
        super().__init__(f"{problem}: {recording} does not hold it", f"take the nearest of {held}: {nearest}")
        self.nearest = nearest


class BundleError(TunerError):
    """A bundle is damaged or newer than this version, or does not fit this driver or GPU."""


class CallError(TunerError):
    """A winner cannot be called with these arrays, sizes or values."""


class DatabaseError(TunerError):
    """The database cannot be read or written."""


class NotStoredError(DatabaseError):
    """The database has no run or trial of this name."""

    exit_code = 2


class Interrupted(TunerError):  # noqa: N818 - an event, not an error
    """The user pressed Ctrl-C; everything measured so far is kept."""

    exit_code = 130


ELSEWHERE = {
    "float": "float32", "fp32": "float32", "f32": "float32", "double": "float64", "fp64": "float64", "f64": "float64",
    "half": "float16", "fp16": "float16", "f16": "float16",
    "bf16": "bfloat16", "fp8": "float8_e4m3fn", "tf32": "float32", "complex": "complex64", "size_t": "uint64",
    "char": "int8", "short": "int16", "int": "int32", "long": "int64", "long long": "int64", "uchar": "uint8",
    "ushort": "uint16", "uint": "uint32", "unsigned": "uint32", "ulong": "uint64", "unsigned char": "uint8",
    "unsigned short": "uint16", "unsigned int": "uint32", "unsigned long long": "uint64",
    **{f"{kind[0]}{bits}": f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)}, "out": "output",
}  # fmt: skip
"""What names of C and of other programs are here."""


def suggestion(wrong: str, choices: Iterable[str]) -> str:
    """Return a remedy for a wrong name: the choice that was probably meant, and all choices, or the first of many."""
    if not (choices := list(choices)):
        return "there is none to choose"
    like = {one.lower(): one for one in reversed(choices) if _like_numbers(wrong, one)}
    meant = ELSEWHERE.get(wrong.lower(), "")
    close = [like[one] for one in difflib.get_close_matches(wrong.lower(), like, n=1)]
    close = [meant] if meant in choices else close
    guess = f"did you mean {close[0]}? " if close else ""
    more = f" and {len(choices) - MOST_CHOICES} more" if len(choices) > MOST_CHOICES else ""
    return f"{guess}choose from: {', '.join(choices[:MOST_CHOICES])}{more}"


def _like_numbers(wrong: str, choice: str) -> bool:
    """Return whether a wrong digit, or digits in a wrong order, can make one of the other.

    float8 is no mistyped float32, but int63 may be int64, and float23 float32.
    """
    given, meant = ("".join(filter(str.isdigit, text)) for text in (wrong, choice))
    if sorted(given) == sorted(meant) or not given or not meant:
        return True
    return len(given) == len(meant) and sum(a != b for a, b in zip(given, meant, strict=True)) <= 1


def first_line(text: str) -> str:
    """Return the first line of a message that is not empty."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")
