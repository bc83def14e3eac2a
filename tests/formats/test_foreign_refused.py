"""Files of other tools that are wrong are refused in one line, and leave nothing behind."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.formats.foreign_files import cache, t1, written
from tuner.core.errors import ExpressionError
from tuner.formats.t1 import parse_values

pytestmark = pytest.mark.usefixtures("forked_children")


Tune = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("[1, 2, 2, 4]", (1, 2, 4)), ("list(range(2, 9, 3))", (2, 5, 8)),
        ("[2**i for i in range(4)]", (1, 2, 4, 8)), ("[i for i in range(1, 9) if i % 3 == 0]", (3, 6)),
        ("[1] + [32 * i for i in range(1, 3)]", (1, 32, 64)), ("['a', \"b\"]", ("a", "b")),
        ("[True, 1, 1.0]", (True, 1)), ("range(9, 1, -4)", (9, 5)), ("sorted([3, 1, 2])", (1, 2, 3)),
        ([3, 4], (3, 4)),
    ],
)  # fmt: skip
def test_values(text: object, values: tuple[object, ...]) -> None:
    assert parse_values(text) == values


@pytest.mark.parametrize(
    "text",
    [
        *("", "5", "[]", "[None]", "[[1]]", "range(10**9)", "range(1, 2, 0)", "[1] * 10**9", "{1: 2}", "[x]"),
        *("open('f')", "[().__class__]", "[i for i in range(10**4) for j in range(10**4)]", "(" * 500, "[1e999]"),
        *("range(2**70)", "[9**9**9]", [None], [{}], {"a": 1}, None),
        *("range()", "range(1, 9, 2, 1)", "range(stop=3)", "sorted(['a', 1])", "sorted()"),
    ],
)  # fmt: skip
def test_values_that_are_refused(text: object) -> None:
    with pytest.raises(ExpressionError):
        parse_values(text)


BROKEN = {
    "empty": b"",
    "text": b"some text",
    "deep": b"[" * 200_000,
    "cut": gzip.compress(json.dumps(cache()).encode())[:30],
    "not-gzip": b"\x1f\x8bxxxxxxxx",
    "no-rows": json.dumps({**cache(), "cache": {}}).encode(),
    "keys-twice": json.dumps({**cache(), "tune_params_keys": ["bx", "bx"]}).encode(),
    "no-values": json.dumps({**cache(), "tune_params": {}}).encode(),
    "lists-as-values": json.dumps({**cache(), "tune_params": {"bx": [[1]], "by": [2], "fast": [1]}}).encode(),
    "energy": json.dumps({**cache(), "objective": "energy"}).encode(),
    "t4-empty": json.dumps({"results": []}).encode(),
    "t4-without-configuration": json.dumps({"results": [{}]}).encode(),
    "t4-of-lists": json.dumps({"results": [{"configuration": {"a": [1]}}]}).encode(),
    "t1": json.dumps(t1()).encode(),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_files_are_refused_in_one_line(tune: Tune, tmp_path: Path, name: str) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(BROKEN[name])
    for command in (("--device", f"replay:{path}"), ("import", path)):
        status, out, err = tune(*command)
        assert (status, out, err.count("\n")) == (1, "", 1), err
        assert "broken.json" in err and "Error(" not in err
        assert "; " in err  # a remedy
        assert len(err) < 600


@pytest.mark.parametrize("name", [name for name in BROKEN if name != "t1"])
def test_broken_spaces_are_refused_in_one_line(tune: Tune, tmp_path: Path, name: str) -> None:
    (tmp_path / "broken.json").write_bytes(BROKEN[name])
    path = written(tmp_path / "a.json", cache())
    status, out, err = tune("--space", "broken.json", "--device", f"replay:{path}")
    assert (status, out, err.count("\n")) == (1, "", 1), err


@pytest.mark.parametrize(
    ("member", "entry", "count"),
    [
        ("Conditions", {"Expression": "bx > 0"}, 1001),
        ("TuningParameters", {"Name": "p%d", "Values": "[1]"}, 201),
        ("TuningParameters", {"Name": "p%d", "Values": "range(9999)"}, 11),
        ("TuningParameters", {"Name": "p", "Values": "[1]"}, 2),
    ],
)
def test_a_space_that_takes_long_to_read_is_refused(
    tune: Tune, tmp_path: Path, member: str, entry: dict[str, str], count: int
) -> None:
    data = t1()
    data["ConfigurationSpace"][member] += [
        {name: text.replace("%d", str(i)) for name, text in entry.items()} for i in range(count)
    ]
    path = written(tmp_path / "a.json", cache())
    said = tune("--space", written(tmp_path / "a.T1.json", data), "--device", f"replay:{path}")
    assert said[0] == 1 and said[2].count("\n") == 1
    assert re.search("are allowed|more than 100000 values|two parameters are named 'p'", said[2])


@pytest.mark.parametrize(
    "condition",
    [
        "bx <", "os.system('x')", "unknown > 1", "bx < 0", "bx ** 10**9 > 1", "", "bx == 'a' + 'b'", "1 / 0 > bx",
    ],
)  # fmt: skip
def test_broken_conditions_are_refused_in_one_line(tune: Tune, tmp_path: Path, condition: str) -> None:
    space = written(tmp_path / "a.T1.json", t1((condition,)))
    status, out, err = tune("--space", space, "--device", f"replay:{written(tmp_path / 'a.json', cache())}")
    assert status in (1, 2)
    assert (out, err.count("\n")) == ("", 1), err
    assert "a.T1.json" in err or "no configuration is valid" in err


def test_a_bomb_is_refused(tune: Tune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.formats.foreign_json.MAX_BYTES", 1 << 20)
    (tmp_path / "bomb.json.gz").write_bytes(gzip.compress(b" " * (8 << 20)))
    status, _, err = tune("import", "bomb.json.gz")
    assert status == 1
    assert "larger than 1 MiB" in err


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((), "name a kernel"),
        (("--device", "replay:nothing"), "there is no file"),
        (("--device", "cuda"), "name a kernel"),
        (("--kernel", "gemm", "--space", "a.json"), "leave out the kernel"),
        (("--kernel", "gemm", "--device", "replay:a.json"), "leave out the kernel"),
        (("--device", "replay:a.json", "--dtype", "float32"), "leave out --dtype"),
        (("--device", "replay:a.json", "--size", "x=5"), "does not hold"),
        (("--device", "replay:a.json", "--mode", "cold"), "leave out --mode"),
        (("--device", "replay:a.json", "--max-error", "1"), "leave out --max-error"),
        (("--device", "replay:a.json", "--fix", "bx=7"), "never '7'"),
    ],
)
def test_command_lines_that_do_not_fit(
    tune: Tune, tmp_path: Path, arguments: tuple[str, ...], word: str
) -> None:
    written(tmp_path / "a.json", cache())
    status, _, err = tune("run", *arguments)
    assert status in (1, 2)
    assert word in err
    assert err.count("\n") == 1
