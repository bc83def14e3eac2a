"""No kernel that is fast only where launches repeat, or right only where it is looked at, is ranked or wins; and none
that only looks like one is refused.

``referee/cheats.cu`` says what each number does.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from tests.gpu.test_command_line import tune

HERE = Path(__file__).parent / "referee"
SOURCE = HERE / "cheats.cu"
REASONS = {
    1: "changes kept", 2: "changes kept", 3: "changes inside", 4: "changes launches", 5: "changes launches",
    6: "changes kept", 7: "changes managed", 8: "changes table", 9: "its outputs", 10: "its outputs",
    11: "its outputs", 12: "scratch keep", 13: "scratch keep", 14: "", 15: "", 16: "", 17: "shared memory",
    18: "changed an input", 19: "wrote outside of y", 20: "wrote outside of y", 21: "elements are wrong",
    22: "wrong", 23: "elements are wrong", 24: "elements are wrong", 25: "elements are wrong", 26: "wrong",
}  # fmt: skip
"""What the reason names; of those that lean on a counter or a clock, outputs, scratch or a wrong result."""
SCRATCH = (12, 13, 14, 15, 16)


@pytest.mark.parametrize("mode", ["cold", "rotating"])
def test_no_cheat_is_ranked(mode: str, tmp_path: Path) -> None:
    done = tune(
        tmp_path, "--kernel", str(HERE / "cheats.toml"), "--trials", "60", "--mode", mode, "--json", "-q",
        "--db", "t.db",
    )  # fmt: skip
    (result,) = json.loads(done.stdout)
    assert result["winner"]["configuration"] == {"CHEAT": 0}, result["winner"]
    with sqlite3.connect(tmp_path / "t.db") as database:
        rows = database.execute("SELECT configuration, status, error FROM trials").fetchall()
    found = {json.loads(configuration)["CHEAT"]: (status, error) for configuration, status, error in rows}
    assert found.keys() == {0, *REASONS}
    missed = {
        cheat: found[cheat]
        for cheat, reason in REASONS.items()
        if found[cheat][0] in ("ok", "slow") or reason not in found[cheat][1]
    }
    assert not missed


def test_no_cheat_is_a_faster_baseline(tmp_path: Path) -> None:
    tune(tmp_path, "--kernel", str(HERE / "cheats.toml"), "--trials", "1", "--db", "t.db", "-q")
    against = []
    for cheat in REASONS:
        (tmp_path / f"cheat{cheat}.cu").write_text(
            f"#define CHEAT {cheat}\n#define OWN_SCRATCH\n{SOURCE.read_text()}"
        )
        against += ["--against", f"cheat{cheat}.cu:cheat<<<n // 256, 256>>>(x, y, x, n)"]
    done = tune(
        tmp_path, "bench", "--kernel", str(HERE / "cheats.toml"), "--db", "t.db", "--json", *against, status=0
    )
    print(done.stdout, done.stderr)


def test_what_looks_like_a_cheat_is_ranked(tmp_path: Path) -> None:
    for seed in range(3):
        tune(
            tmp_path, "--kernel", str(HERE / "honest.toml"), "--trials", "20", "--db", f"{seed}.db", "-q",
            "--seed", str(seed),
        )  # fmt: skip
        with sqlite3.connect(tmp_path / f"{seed}.db") as database:
            rows = database.execute("SELECT variant, status, error FROM trials").fetchall()
        assert {variant for variant, _, _ in rows} == {
            "constant_table", "last_block", "through_shared", "pinned", "counting", "persistent", "two_launches",
            "atomics",
        }  # fmt: skip
        assert not [row for row in rows if row[1] not in ("ok", "slow", "unstable")]
