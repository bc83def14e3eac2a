"""Two sources are the same where only comments and white space differ."""

from __future__ import annotations

import pytest

from tuner.kernel.render import source_digest

SOURCE = 'int f(int a) {\n    return a / 2;  // half\n}\nconst char* s = "a  // b";\nchar q = \'"\';\n'


@pytest.mark.parametrize(
    "same",
    [
        SOURCE.replace("  // half", ""),
        SOURCE.replace("// half", "/* the\n half */"),
        SOURCE.replace("    return", "\n\n\treturn"),
        "/* the start */" + SOURCE,
        SOURCE.replace("\n", "\r\n"),
    ],
)
def test_digest_ignores_comments_and_white_space(same: str) -> None:
    assert source_digest(same) == source_digest(SOURCE)


@pytest.mark.parametrize(
    "other",
    [
        SOURCE.replace("a / 2", "a / 3"),
        SOURCE.replace("a  // b", "a // b"),
        SOURCE.replace('"a  // b"', '"a  /* b */"'),
        SOURCE.replace("'\"'", "'x'"),
        SOURCE + 'char r = 1; const char* t = "// x";',
    ],
)
def test_digest_sees_every_change_of_code(other: str) -> None:
    assert source_digest(other) != source_digest(SOURCE)


def test_digest_is_not_confused_by_a_quote_in_a_character() -> None:
    one, other = ('char q = \'"\'; f("//" {});'.replace("{}", tail) for tail in ("+ 1", "+ 2"))
    assert source_digest(one) != source_digest(other)
