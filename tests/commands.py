"""Commands as a user meets them: run in this process, with what they left on their streams."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tuner.cli import main


@dataclass
class Said:
    """What a command left on its streams."""

    code: int
    out: str
    err: str

    def rows(self) -> dict[str, str]:
        """Return the lines of a table by the name at their start, the last of each."""
        lines = (re.split(r"\s{2,}", line, maxsplit=1) for line in self.out.splitlines() if line)
        return {line[0]: line[-1] for line in lines}


Tune = Callable[..., Said]
"""``tune`` in a folder of the test's own."""


def said_by(capsys: pytest.CaptureFixture[str], *arguments: str) -> Said:
    """Run the command line."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    assert isinstance(ended.value.code, int)
    return Said(ended.value.code, said.out, said.err)


def assert_one_line(said: Said, *words: str) -> None:
    """One line on stderr, nothing on stdout, and a status that is neither success nor an interruption."""
    assert said.code not in (0, 130), said
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert line.startswith("tune: ")
    for word in words:
        assert word in line, line


def assert_refused(said: Said, code: int, *words: str) -> None:
    """The same, with this status."""
    assert said.code == code, said
    assert_one_line(said, *words)
