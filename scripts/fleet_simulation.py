"""Simulate a fleet on one machine.

Devices answer from a recording after two seconds, each a little faster or slower than the others, with noise,
stragglers and deaths. All else is real: head, searchers, database, protocol.

    scripts/run python scripts/fleet_simulation.py           # everything; results/evidence/fleet-simulation.json
    scripts/run python scripts/fleet_simulation.py linear --devices 8   # only this
    scripts/run python scripts/fleet_simulation.py kills heads --times 10 --out /tmp/fleet.json

- ``linear``: how much of the devices' time is spent in trials, from the moment in which all of them are ready;
- ``kills``: ``kill -9`` of searchers at random moments; acknowledged rows that are missing, or are there twice;
- ``heads``: the same of the head, with ``--resume`` after each;
- ``overlap``: a list of problems on one device, with and without the next one prepared while one is raced;
- ``table``: whether several devices choose the winners that one device chooses.

Needs no GPU. Trials sleep, so that 64 devices fit on a few cores; their starts do not count.
"""

from __future__ import annotations

import json
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from msgspec import structs

from scripts import harness
from scripts.harness import EVIDENCE
from tests.fleets import RECORDING, Seen, cards, jobs, searchers
from tuner.database.database import Database
from tuner.fleet.head import Head
from tuner.fleet.ledger import Ledger
from tuner.fleet.messages import Answered, Calls
from tuner.fleet.remote import form_of

TRIAL_S, OFFSET, NOISE, STRAGGLERS = 2.0, 0.03, 0.001, 0.01
ROUNDS, SHORTEST, LONGEST = 5, 4, 44
"""Problems for each device, and trials of the shortest and the longest of them."""


GEMM = {"trial_s": 0.055, "opening_s": 1.5, "finishing_s": 2.5}
"""Seconds of a trial, of a problem's data and reference, and of race and confirmation, roughly as of gemm on an H200:
four problems of 100 trials took 34.5 s there, at 15 to 19 trials a second."""


class Noting(Ledger):
    """A ledger that notes each trial when it is acknowledged."""

    notes: Path

    def answer(self, messages: Sequence[Calls]) -> list[Answered]:
        answers = super().answer(messages)
        with self.notes.open("a") as file:
            for message, answer in zip(messages, answers, strict=True):
                calls = message.calls if not answer.error else ()
                ended = [form_of(c.method)[1].decode(c.arguments) for c in calls if c.method == "record"]
                file.writelines(f"{run} {trial.number}\n" for run, trial, _ in ended)
        return answers


def simulate(**settings: Any) -> None:
    os.environ["SIMULATED"] = json.dumps({"recording": str(RECORDING), **settings})


def noting(head: Head, notes: Path) -> Head:
    ledger = Noting(head.ledger.database)
    ledger.notes = notes
    head.ledger = ledger
    return head


def rows(database: Database, notes: Path, runs: int, trials: int) -> dict[str, int]:
    """Return how many rows there are, are missing, and are there twice.

    A problem may have more trials than were asked for if its run was given up and begun anew: those of the first run
    are counted, too.
    """
    stored = [tuple(row.values()) for row in database.select("SELECT run_id, number FROM trials")]
    configurations = database.select("SELECT DISTINCT run_id, variant, configuration FROM trials")
    acknowledged = {tuple(line.split()) for line in notes.read_text().splitlines()}
    finished = database.select("SELECT count(*) AS count FROM runs WHERE state = 'finished'")[0]["count"]
    given_up = database.select(
        "SELECT count(*) AS count FROM trials t JOIN runs r ON r.id = t.run_id WHERE r.state != 'finished'"
    )
    return {
        "trials": len(stored),
        "of_runs_begun_anew": given_up[0]["count"],
        "acknowledged": len(acknowledged),
        "lost": len(acknowledged - {(run, str(number)) for run, number in stored}),
        "doubled": 2 * len(stored) - len(set(stored)) - len(configurations),
        "problems_of_the_file": len(database.check().problems),
        "runs_finished": finished,
        "runs_expected": runs,
        "trials_expected": runs * trials,
    }


def linear(devices: int) -> dict[str, Any]:
    """Tune many problems on many devices; return the share of their time that trials took."""
    with tempfile.TemporaryDirectory() as name:
        folder, count = Path(name), devices * ROUNDS
        gate = folder / "gate"
        gate.mkdir()
        simulate(trial_s=TRIAL_S, offset=OFFSET, noise=NOISE, stragglers=STRAGGLERS, gate=str(gate), log=name)
        seen, began = Seen(), 0.0

        def open_gate(_: Head) -> None:
            nonlocal began
            if not began and len(list(gate.glob("device-*"))) == devices:
                began = time.monotonic()
                (gate / "open").touch()

        seen.on_tick = open_gate
        with Database.open(folder / "tuning.db") as database:
            listed = jobs(count, LONGEST)
            for number, job in enumerate(listed):
                trials = SHORTEST + round((LONGEST - SHORTEST) * number / (count - 1))
                job.task, job.estimate_s = structs.replace(job.task, trials=trials), trials * TRIAL_S
            Head(database, listed, cards(devices, overlap=False), seen).run()
            took_s = time.monotonic() - began
            spent_s = sum(map(float, (folder / "trials.log").read_text().split()))
            measured = database.select("SELECT count(*) AS count FROM trials")[0]["count"]
    return {
        "devices": devices,
        "problems": count,
        "trials": measured,
        "trials_expected": sum(job.task.options.trials for job in listed),
        "trial_s": TRIAL_S,
        "seconds": round(took_s, 1),
        "of_linear": round(spent_s / took_s / devices, 4),
        "failures": len(seen.failures),
    }


def kills(times: int, seed: int = 0) -> dict[str, Any]:
    """Kill searchers at random moments; return what became of the rows."""
    draw, killed = random.Random(seed), 0
    with tempfile.TemporaryDirectory() as name:
        folder, count, trials = Path(name), 3 * times, 24
        simulate(trial_s=0.1, offset=OFFSET, noise=NOISE)
        seen, at = Seen(), time.monotonic() + 3.0

        def kill(_: Head) -> None:
            nonlocal killed, at
            if killed < times and time.monotonic() > at and (alive := searchers()):
                os.kill(draw.choice(alive), signal.SIGKILL)
                killed += 1
                at = time.monotonic() + draw.uniform(0.2, 1.6)

        seen.on_tick = kill
        with Database.open(folder / "tuning.db") as database:
            head = Head(database, jobs(count, trials), cards(4), seen)
            noting(head, folder / "notes").run()
            counted = rows(database, folder / "notes", count, trials)
    return {"killed": killed, **counted, "failures": len(seen.failures), "left_behind": len(searchers())}


def heads(times: int, seed: int = 0) -> dict[str, Any]:
    """Kill the head at random moments, and resume it until everything is tuned."""
    draw, killed, count, trials = random.Random(seed), 0, 3 * times, 24
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        simulate(trial_s=0.1, offset=OFFSET, noise=NOISE, folder=name)
        while True:
            head = get_context("spawn").Process(target=serve, args=(folder, count, trials))
            head.start()
            head.join(draw.uniform(2.0, 6.0) if killed < times else 600.0)
            if not head.is_alive():
                break
            head.kill()
            head.join()
            killed += 1
        time.sleep(1.0)
        with Database.open(folder / "tuning.db") as database:
            counted = rows(database, folder / "notes", count, trials)
        left_behind = len(searchers(name))
    return {"killed": killed, **counted, "left_behind": left_behind}


def serve(folder: Path, count: int, trials: int) -> None:
    """Be a head that goes on where the last one was killed."""
    with Database.open(folder / "tuning.db") as database:
        listed = []
        for job in jobs(count, trials):
            run = next(
                filter(None, (database.latest_unfinished(job.task.problem, f"cuda:{n}") for n in range(4))),
                None,
            )
            done = database.select(
                "SELECT 1 FROM runs WHERE problem_key = ? AND state = 'finished'", job.task.problem.key
            )
            job.going_on = run
            listed += [] if done else [job]
        noting(Head(database, listed, cards(4), Seen()), folder / "notes").run()


def overlap(count: int = 8) -> dict[str, Any]:
    """Tune a list on one device with the times of gemm on an H200; return the seconds with overlap and without."""
    seconds = {}
    simulate(**GEMM)
    for name, together in (("with", True), ("without", False)):
        with tempfile.TemporaryDirectory() as folder, Database.open(Path(folder) / "tuning.db") as database:
            began = time.monotonic()
            Head(database, jobs(count, 100), cards(1, overlap=together), Seen()).run()
            seconds[name] = round(time.monotonic() - began, 1)
    ratio = round(seconds["without"] / seconds["with"], 3)
    return {"problems": count, "trials": 100, **GEMM, **seconds, "times_as_fast": ratio}


def table(devices: int, count: int = 24) -> dict[str, Any]:
    """Tune the same problems on one device and on several; return how many winners agree."""
    simulate(trial_s=0.0, offset=OFFSET, noise=NOISE)
    winners: list[dict[str, str]] = []
    for number in (1, devices):
        with tempfile.TemporaryDirectory() as name, Database.open(Path(name) / "tuning.db") as database:
            Head(database, jobs(count, 40), cards(number, overlap=False), Seen()).run()
            found = database.select(
                "SELECT r.problem_key AS problem, w.variant || w.configuration AS winner "
                "FROM winners w JOIN runs r ON r.id = w.run_id"
            )
            winners.append({row["problem"]: row["winner"] for row in found})
    one, many = winners
    same = sum(many.get(problem) == winner for problem, winner in one.items())
    return {"problems": count, "devices": devices, "the_same_winner": same, "offset": OFFSET, "noise": NOISE}


def main() -> None:
    options = harness.parser(__doc__.splitlines()[0])
    add = options.add_argument
    add("sections", nargs="*", metavar="SECTION", help="linear, kills, heads, overlap, table")
    add("--devices", type=int, action="append", help="of linear; 8 and 64")
    add("--times", type=int, help="kills, instead of 100 of searchers and 20 of heads")
    add("--out", type=Path, default=EVIDENCE / "fleet-simulation.json")
    given = options.parse_args()
    wanted = given.sections or ["linear", "kills", "heads", "overlap", "table"]
    found = json.loads(given.out.read_text()) if given.out.is_file() else {}
    found["command"], found["day"] = "scripts/fleet_simulation.py", harness.today()
    found["settings"] = {"trial_s": TRIAL_S, "offset": OFFSET, "noise": NOISE, "stragglers": STRAGGLERS}
    sections: dict[str, dict[str, Callable[[], dict[str, Any]]]] = {
        "linear": {f"linear_{count}": partial(linear, count) for count in given.devices or [8, 64]},
        "kills": {"kills": lambda: kills(given.times or 100)},
        "heads": {"heads": lambda: heads(given.times or 20)},
        "overlap": {"overlap": overlap},
        "table": {"table": lambda: table(8)},
    }
    if unknown := set(wanted) - sections.keys():
        options.error(f"no section {', '.join(unknown)}")
    for section in wanted:
        for name, measure in sections[section].items():
            found[name] = measure()
            print(name, json.dumps(found[name]), flush=True)
            given.out.parent.mkdir(parents=True, exist_ok=True)
            harness.write_json(given.out, found)


if __name__ == "__main__":
    main()
