"""JSON of other tools: read result by result, so that neither a large file nor a hostile one fills the memory.

A tool that is killed leaves a file without its end. What the file itself closes counts; the rest is left out and said.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tuner.core.errors import RecordingError
from tuner.formats.files import CutOffError, pieces

MAX_BYTES = 256 << 20
"""Of a file with results, unpacked."""
SPACE_BYTES = 8 << 20
"""Of a T1 file, which is read as a whole."""
MOST_RESULTS = 500_000
"""The largest space of the benchmark hub has 350,000 valid configurations."""
VALUE_CHARS = 4 << 20
"""Of one result, and of all else that a file says: they take up to thirty times as much memory."""
MEMBERS = {"cache": "{", "results": "["}
"""Which member of a file has the results, and how it begins."""
TIME_UNITS = ("timeunit", "time_unit", "timeUnit", "TimeUnit")
"""Names under which a file, or a result, gives the unit of its times."""
HEAD = frozenset(
    (
        *TIME_UNITS, "format", "kernel", "metadata", "ConfigurationSpace", "device_name", "kernel_name",
        "problem_size", "tune_params_keys", "tune_params", "objective",
    )
)  # fmt: skip
"""What is kept of the other members."""
NEEDED = {"cache": {"tune_params_keys", "tune_params", "objective"}, "results": set[str]()}
"""Without these a result cannot be read: where they do not stand before the results, they are looked for behind."""
FORMATS = "name a T4, T1 or cache file"
OTHER_TOOLS = {"Results": "KTT", "sections": "CLBlast"}
"""Who writes files of results with such members, which nothing here reads."""
_BLANKS = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()
_AT_THE_END = 16
"""Characters of the longest token that can be cut in its middle, beside a text: two escapes of four digits."""


class _CutOffError(Exception):
    """The file ends where it should go on."""


class JsonResults:
    """A file whose results are read one by one, and again from the first as often as they are asked for.

    Args:
        path: of the file, which may be gzip.

    Attributes:
        head: the members in :data:`HEAD`.
        member: the one with the results; empty where there is none.
        late: whether some of the head stood behind the results, and was not known when they were read.

    Raises:
        RecordingError: it is no object of JSON, or too large.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.member = path, ""
        self.head: dict[str, Any] = {}
        for _ in self.results():
            if NEEDED[self.member] <= self.head.keys():
                break

    def results(self) -> Iterator[Any]:
        """Yield each result that is whole.

        Raises:
            RecordingError: what follows is no JSON, or too much.
        """
        self.late = self._cut = self._unfinished = False
        self._count = 0
        text, among = _Text(self.path), False
        try:
            if text.peek() != "{":
                raise RecordingError(f"{self.path}: neither a T4 file nor a Kernel Tuner cache", FORMATS)
            for name in text.entries():
                if name in OTHER_TOOLS and not self.member:
                    raise other_tool(self.path, OTHER_TOOLS[name])
                if MEMBERS.get(name) == text.peek():
                    self.member, among = name, True
                    for _ in text.entries():
                        result = text.value()
                        self._count += 1
                        yield result
                    among = False
                else:
                    value = text.value()
                    if name in HEAD:
                        self.late |= bool(self._count) and self.head.get(name) != value
                        self.head[name] = value
            text.end()
            self._cut = text.cut
        except _CutOffError:
            if not text.begun:
                raise RecordingError(f"{self.path} is empty", FORMATS) from None
            self._cut, self._unfinished = True, among and text.inside

    def note(self) -> str:
        """Return what is to be said of a file that ends too early, once it was read; empty for any other."""
        left = ", without the last one, which is unfinished" if self._unfinished else ""
        said = f"{self.path.name} has no end; results that are whole: {self._count}{left}"
        return said if self._cut else ""


def other_tool(path: Path, name: str) -> RecordingError:
    """Return an error for a file of a tool whose results are not read."""
    return RecordingError(f"{path}: results of {name}, which are not read", "write a T4 file of them")


def read_json(path: Path) -> Any:
    """Return the content of a JSON file that is read as a whole, gzipped or not.

    Raises:
        RecordingError: it cannot be read, is too large, or is not JSON.
    """
    data = b"".join(pieces(path, SPACE_BYTES))
    if not data.strip():
        raise RecordingError(f"{path} is empty", FORMATS)
    try:
        return json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise _not_utf8(path, error) from None
    except RecursionError:
        raise _too_deep(path) from None
    except ValueError as error:
        raise _not_json(path, str(error)) from None


def _not_utf8(path: Path, error: UnicodeDecodeError) -> RecordingError:
    remedy = "unpack it first if another program than gzip has packed it, or save it as UTF-8"
    return RecordingError(f"{path}: not UTF-8: {error.reason}", remedy)


def _too_deep(path: Path) -> RecordingError:
    return RecordingError(f"{path}: nested too deep", FORMATS)


def _not_json(path: Path, why: str) -> RecordingError:
    return RecordingError(f"{path}: not JSON: {why}", FORMATS)


class _Text:
    """The text of a file as far as it was read, of which no more is kept than the value under way.

    Attributes:
        begun: whether there was anything but blanks.
        inside: whether an entry has begun and not ended.
        cut: whether the file is compressed, and has no end.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._pieces = path, pieces(path, MAX_BYTES)
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._text, self._at, self._entries = "", 0, 0
        self.begun = self.inside = self.cut = False

    def peek(self) -> str:
        """Return the next character that is no blank."""
        if not (found := self._next()):
            raise _CutOffError
        self.begun = True
        return found

    def end(self) -> None:
        """Refuse what follows the end of the outermost value."""
        if self._next():
            raise _not_json(self._path, "something follows its end")

    def entries(self) -> Iterator[str]:
        """Yield the name of each entry of the object or list that is next, whose value the caller takes; "" in a list.

        A comma before the end is allowed, as some tools add an entry with one.
        """
        end = "}" if self.peek() == "{" else "]"
        self._at += 1
        self.inside = False
        while self.peek() != end:
            self._entries += 1
            if self._entries > MOST_RESULTS:
                raise RecordingError(f"{self._path}: more than {MOST_RESULTS} results", "split it")
            self.inside, name = True, ""
            if end == "}":
                name = self.value()
                if not isinstance(name, str) or self.peek() != ":":
                    raise _not_json(self._path, "a name is missing")
                self._at += 1
            yield name
            self.inside = False
            if self.peek() == ",":
                self._at += 1
            elif self.peek() != end:
                raise _not_json(self._path, "a comma is missing")
        self._at += 1

    def value(self) -> Any:
        """Return the next value.

        A number at the very end may have lost digits: it is cut off.
        """
        self.peek()
        while True:
            why = ""
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
                if end < len(self._text) or self._text[end - 1] in '}]"':
                    self._at = end
                    return value
            except json.JSONDecodeError as error:
                if not error.msg.startswith("Unterminated") and error.pos < len(self._text) - _AT_THE_END:
                    why = error.msg
            except RecursionError:
                raise _too_deep(self._path) from None
            except ValueError:
                why = "a number has too many digits"
            if why:
                raise _not_json(self._path, why)
            if len(self._text) - self._at > VALUE_CHARS:
                raise RecordingError(
                    f"{self._path}: one of its values has more than {VALUE_CHARS >> 20} MiB", FORMATS
                )
            if not self._more():
                raise _CutOffError

    def _next(self) -> str:
        while not (found := self._text[self._at : self._at + 1]) > " ":
            self._at = _BLANKS.match(self._text, self._at).end()  # type: ignore[union-attr]  # it matches nothing, too
            if self._at < len(self._text) or not self._more():
                return self._text[self._at : self._at + 1]
        return found

    def _more(self) -> bool:
        """Read on, at least as much as is there, so that a long value is not tried again for each piece."""
        parts = [self._text[self._at :]]
        wanted, size = max(len(parts[0]), 1), 0
        try:
            for piece in self._pieces:
                parts.append(self._decoder.decode(piece))
                size += len(parts[-1])
                if size >= wanted:
                    break
        except CutOffError:
            self.cut = True
        except UnicodeDecodeError as error:
            raise _not_utf8(self._path, error) from None
        self._text, self._at = "".join(parts), 0
        return size > 0
