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
    "leaning": {
        1: "changes kept", 2: "changes kept", 3: "changes inside", 4: "changes launches", 5: "changes launches",
        6: "calls malloc", 7: "changes managed", 8: "changes table", 9: "its outputs", 10: "its outputs",
        11: "its outputs", 12: "scratch keep", 13: "scratch keep", 14: "", 15: "", 16: "", 17: "shared memory",
        27: "", 28: "calls malloc",
    },
    "wrong": {
        18: "changed an input", 19: "wrote outside of y", 20: "wrote outside of y", 21: "elements are wrong",
        22: "wrong_result: with ", 23: "", 24: "elements are wrong", 25: "elements are wrong",
        26: "wrong_result: with equal numbers",
    },
}  # fmt: skip
"""What the reason names; of a cheat that counts or looks at the clock, what is noticed first."""
LEFTOVERS = {
    **dict.fromkeys((1, 2, 3, 4, 5), "where memory holds 0x"),
    6: "numbers",
    **dict.fromkeys((7, 8), "at leftovers n="),
    9: "",
}
"""What names the cheats of ``referee/leftovers.cu``."""
HONEST_WHEN_ROTATING = (10, 13, 17)
"""They do all of their work where each call has other tensors; their times are true."""


@pytest.mark.parametrize("mode", ["cold", "rotating"])
@pytest.mark.parametrize("variant", ["leaning", "wrong"])
def test_no_cheat_is_ranked(variant: str, mode: str, tmp_path: Path) -> None:
    done = tune(
        tmp_path, "--kernel", str(HERE / "cheats.toml"), "--variant", variant, "--trials", "60", "--mode", mode,
        "--json", "-q", "--db", "t.db",
    )  # fmt: skip
    (result,) = json.loads(done.stdout)
    honest = (0, *HONEST_WHEN_ROTATING) if mode == "rotating" else (0,)
    assert result["winner"]["configuration"]["CHEAT"] in honest, result["winner"]
    with sqlite3.connect(tmp_path / "t.db") as database:
        rows = database.execute("SELECT configuration, status, error FROM trials").fetchall()
    found = {json.loads(configuration)["CHEAT"]: (status, error) for configuration, status, error in rows}
    assert found.keys() == {0, *REASONS[variant]}
    assert {
        cheat: found[cheat]
        for cheat, reason in REASONS[variant].items()
        if cheat not in honest
        and found[cheat][0] != "unstable"  # its time did not repeat: looked at before its results
        and (found[cheat][0] in ("ok", "slow") or reason not in found[cheat][1])
    } == {}


def statuses(folder: Path, file: str, values: str) -> dict[int, tuple[str, str]]:
    """Return the status and error of each value of the only parameter."""
    tune(folder, "--kernel", str(HERE / file), "--fix", values, "--trials", "4", "-q", "--db", "t.db")
    with sqlite3.connect(folder / "t.db") as database:
        rows = database.execute("SELECT configuration, status, error FROM trials").fetchall()
    return {next(iter(json.loads(one).values())): (status, error) for one, status, error in rows}


@pytest.mark.parametrize("cheat", LEFTOVERS)
def test_what_memory_holds_before_and_other_sizes_and_numbers_find_a_cheat(
    cheat: int, tmp_path: Path
) -> None:
    found = statuses(tmp_path, "leftovers.toml", f"CHEAT=0,{cheat}")
    assert found[0] == ("ok", "") and found[cheat][0] not in ("ok", "slow")
    assert LEFTOVERS[cheat] in found[cheat][1]


@pytest.mark.parametrize("race", [1, 2, 3])
def test_a_race_is_lost_beside_other_work(race: int, tmp_path: Path) -> None:
    found = statuses(tmp_path, "races.toml", f"RACE=0,{race}")
    assert found[0] == ("ok", "") and found[race][0] not in ("ok", "slow")
    assert race != 3 or "(alone it is right: a race)" in found[race][1]


def test_no_cheat_is_a_faster_baseline(tmp_path: Path) -> None:
    """Each as a file of a user's own; 23 is right at the only length there is."""
    cheats = {cheat for reasons in REASONS.values() for cheat in reasons} - {23}
    tune(tmp_path, "--kernel", str(HERE / "cheats.toml"), "--trials", "1", "--db", "t.db", "-q")
    against = []
    for cheat in cheats:
        lines = f"#define CHEAT {cheat}", "#define OWN_SCRATCH", SOURCE.read_text()
        (tmp_path / f"cheat{cheat}.cu").write_text("\n".join(lines))
        against += ["--against", f"cheat{cheat}.cu:cheat<<<n / 256, 256>>>(x, y, x, n)"]
    bench = "bench", "--kernel", str(HERE / "cheats.toml"), "--db", "t.db", "--mode", "cold", "--json"
    (result,) = json.loads(tune(tmp_path, *bench, *against, status=1).stdout)
    failed = {one["contestant"]: one["error"] for one in result["failed"]}
    wrong = {one["contestant"] for one in result["contestants"] if not one["verified"]}
    assert failed.keys() | wrong == {f"cheat{cheat}.cu:cheat" for cheat in cheats}
    assert all(failed.values())


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
