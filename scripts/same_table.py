"""Is the table of winners the same twice? Runs on simulated cards with 6 seeds, compared problem by problem:

    scripts/run python scripts/same_table.py --out results/evidence

No GPU is needed: a card answers with the recorded times, 1 to 3 % longer or not, with a deviation of its own for each
configuration, and with the noise that was measured on an H200: a search sees a candidate's time within 0.3 % (medians
of groups at different moments differ by 0.2 to 0.6 %), a race a kernel that was loaded anew within 0.06 % and each
round of it within 0.19 %. Each problem is tuned once on each card, and every pair of runs is compared: by the fastest
of the race, by the tuner's decision with ``--margin 0.75``, and by the initial configurations alone.
"""

# ruff: noqa: ARG002, E402 - the contract has more arguments than answers need; threads are settled before NumPy is loaded
from __future__ import annotations

import hashlib
import itertools
import multiprocessing
import os
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from statistics import mean, median
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

from scripts import harness
from scripts.page_figures import evidence, fleet
from tuner.children.compilation import Compilation
from tuner.children.measuring import Raced, RaceFailed
from tuner.core import paths
from tuner.core.conditions import Mode
from tuner.core.model import (
    Configuration,
    Measurement,
    Problem,
    Resources,
    RunOptions,
    Status,
    Verification,
)
from tuner.core.observer import Observer
from tuner.database.database import Database
from tuner.devices.base import Incumbent, RaceRequest, measured, no_incumbent, trial_of
from tuner.devices.replay import ReplayDevice
from tuner.formats.recording import read_recording, recorded_kernel
from tuner.kernel.default import simplicity
from tuner.kernel.load import load_kernel
from tuner.tuning.decision import preference
from tuner.tuning.race import FinalRace
from tuner.tuning.request import Request
from tuner.tuning.session import tune

SEARCH_NOISE, LOAD_NOISE, ROUND_NOISE = 0.003, 0.0006, 0.0019
NOISE_FLOOR, SHORT_NOISE_NS = 0.002, 22.0
"""As an H200's calibration has them: the floor, and how far the position of its code moves a short kernel."""
OFFSETS = (0.0, 0.03)
"""Cards are between these slower than the recorded one."""
WITHIN = 0.01
MARGIN = 0.0075
"""With 0.5 % two runs on cards that deviate by 0.1 % chose the same winner in 88 %, with this in 93 %; winners were
0.19 and 0.23 % slower than the best."""
OWN = (0.0, 0.001, 0.002)
"""Deviations of single configurations from card to card that are simulated: they were not measured on two cards yet."""


@dataclass(frozen=True)
class Study:
    """What is simulated."""

    cards: int = 6
    """Each problem is tuned once on each, with a seed of its own, and each pair of runs is compared."""
    trials: int = 200
    share: float = 0.5
    """Trials are at most this share of what was recorded of a problem: of a whole space all runs know all."""
    own: float = 0.001
    """Standard deviation of a configuration's time from card to card, beside the card's speed."""


@dataclass(frozen=True)
class Run:
    """How one run ended: by each rule of decision."""

    winners: dict[str, Configuration]
    times_ns: dict[Configuration, float]
    """What every configuration takes on this card in truth."""


class SimulatedCard(ReplayDevice):
    """A card of the recorded model.

    Args:
        path: the recording.
        card: its number: speed and deviations follow from it.
        own: standard deviation of a configuration's time on this card.
    """

    recorded = False

    def __init__(self, path: Path, card: int, own: float) -> None:
        super().__init__(path)
        self.gpu = replace(self.gpu, uuid=f"GPU-simulated-{card}")
        self._card, self._own = card, own
        self._speed = random.Random(f"card {card}").uniform(*OFFSETS)
        self._noise = random.Random(f"noise {card}")
        self._times: dict[Configuration, float] = {}

    def time_ns(self, configuration: Configuration) -> float:
        """Return what a configuration takes on this card in truth."""
        if configuration not in self._times:
            seed = hashlib.sha256(f"{self._card} {configuration.key}".encode()).hexdigest()
            deviation = random.Random(seed).gauss(0, self._own)
            recorded = median(self._row(configuration).samples_ns)
            self._times[configuration] = recorded * (1 + self._speed) * (1 + deviation)
        return self._times[configuration]

    def times_ns(self) -> dict[Configuration, float]:
        """Return what everything takes that works."""
        rows = self._recorded.rows.items()
        return {c: self.time_ns(c) for c, row in rows if row.status is Status.OK and row.samples_ns}

    def noise_floor(self, time_ns: float, mode: Mode | None = None) -> float:
        """Return the floor that a calibration would have found."""
        return max(NOISE_FLOOR, SHORT_NOISE_NS / time_ns)

    def submit(self, number: int, configuration: Configuration, incumbent: Incumbent = no_incumbent) -> None:
        """Answer without rendering anything: of a simulation nothing is kept."""
        row = self._row(configuration)
        samples: tuple[float, ...] = ()
        if row.samples_ns:
            moment = 1 + self._noise.gauss(0, SEARCH_NOISE)
            factor = self.time_ns(configuration) / median(row.samples_ns) * moment
            samples = tuple(sample * factor for sample in row.samples_ns)
        passed = row.status.ranked
        measurement = Measurement(row.status, samples, row.error, Verification(passed, checked=passed))
        compilation = Compilation(Status.OK, resources=(row.resources or Resources(),))
        self._trials.append(measured(trial_of(number, configuration, compilation), measurement))

    def _race(self, request: RaceRequest) -> Raced | RaceFailed:
        """Time contestants in turn, each loaded once."""
        times = [self.time_ns(one) for one in request.configurations]
        loaded = [time_ns * (1 + self._noise.gauss(0, LOAD_NOISE)) for time_ns in times]
        return Raced(
            [
                [[t * (1 + self._noise.gauss(0, ROUND_NOISE))] * request.samples for t in loaded]
                for _ in range(request.rounds)
            ]
        )

    def confirm(self, configuration: Configuration, time_ns: float) -> Measurement:
        """Agree."""
        return Measurement(Status.OK, (time_ns,) * 8, "", Verification(True))


@cache
def kernel_of(path: Path) -> Any:
    """Return the kernel of a recording, as it was recorded."""
    return load_kernel(recorded_kernel(path, read_recording(path).kernel))


def run(study: Study, path: Path, problem: Problem, card: int) -> Run:
    """Tune a problem on a card, with the card's number as the seed, and decide by each rule."""
    device, kernel = SimulatedCard(path, card, study.own), kernel_of(path)
    recorded = next(one for one in device.recording.problems if one.problem == problem)
    trials = max(8, min(study.trials, round(study.share * len(recorded.rows))))
    options = RunOptions(trials=trials, seed=card, from_scratch=True, one_mode=True)
    request = Request(kernel, problem, options)
    with tempfile.TemporaryDirectory() as folder, Database.open(Path(folder) / "simulated.db") as database:
        state = tune(request, device, database, Observer(), finish=False).state
    trials_in_order = sorted(state.trials, key=lambda trial: trial.number)

    def finish(**decision: Any) -> Configuration:
        race = FinalRace(device, problem, state.default, ignore, ignore, seed=card, **decision)
        ended = race.run(trials_in_order)
        assert ended is not None
        return ended.winner.configuration

    initial = tuple(state.initial.sources)
    prefer = preference(simplicity(kernel, state.space.default, initial), {})
    winners = {
        "fastest": finish(),
        "decision": finish(initial=initial, prefer=prefer, margin=MARGIN),
    }
    started = [state.default, *(trial for trials in state.initial_trials.values() for trial in trials)]
    timed = [trial for trial in started if trial is not None and trial.status is Status.OK and trial.time_ns]
    if timed:
        winners["initial"] = min(timed, key=lambda trial: trial.time_ns or 0.0).configuration
    return Run(winners, device.times_ns())


def ignore(*_: object) -> None:
    """Take no note."""


def compared(problem: Problem, runs: Sequence[Run]) -> dict[str, Any]:
    """Return how far the runs of a problem agree, by rule."""
    rules = [rule for rule in runs[0].winners if all(rule in run.winners for run in runs)]
    pairs = list(itertools.combinations(runs, 2))
    return {"problem": str(problem), **{rule: _agreement(rule, runs, pairs) for rule in rules}}


def _agreement(rule: str, runs: Sequence[Run], pairs: Sequence[tuple[Run, Run]]) -> dict[str, float]:
    same = [a.winners[rule] == b.winners[rule] for a, b in pairs]
    apart = [
        max(abs(on.times_ns[a.winners[rule]] / on.times_ns[b.winners[rule]] - 1) for on in (a, b))
        for a, b in pairs
    ]
    behind = [run.times_ns[run.winners[rule]] / min(run.times_ns.values()) - 1 for run in runs]
    return {
        "same": mean(same),
        "within": mean(difference <= WITHIN for difference in apart),
        "apart_max": max(apart),
        "behind": mean(behind),
        "behind_max": max(behind),
    }


def totals(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the means over problems, by rule, and the largest of what has a maximum."""
    rules: list[str] = [
        rule for rule in ("fastest", "decision", "initial") if any(rule in row for row in rows)
    ]
    result = {}
    for rule in rules:
        of_rule = [row[rule] for row in rows if rule in row]
        result[rule] = {
            name: (max if name.endswith("max") else mean)(one[name] for one in of_rule) for name in of_rule[0]
        }
        result[rule]["problems"] = len(of_rule)
    return result


def _job(job: tuple[Study, Path, int, int]) -> tuple[str, Problem, Run]:
    study, path, index, card = job
    problem = read_recording(path).problems[index].problem
    return f"{path.name} {index}", problem, run(study, path, problem, card)


def simulate(study: Study, processes: int) -> list[dict[str, Any]]:
    """Return how far the runs of each recorded problem agree."""
    jobs = [
        (study, path, index, card)
        for path in sorted(paths.recordings().glob("*.json.gz"))
        for index in range(len(read_recording(path).problems))
        for card in range(study.cards)
    ]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        ended = pool.map(_job, jobs, chunksize=1)
    rows = []
    for _, group in itertools.groupby(ended, key=lambda one: one[0]):
        runs = list(group)
        rows.append(compared(runs[0][1], [one[2] for one in runs]))
    return rows


def main() -> int:
    options = harness.parser(__doc__)
    add = options.add_argument
    add("--out", type=Path, help="Folder for same-table.json and .txt.")
    add("--trials", type=int, default=200)
    add("--processes", type=int, default=os.cpu_count())
    given = options.parse_args()
    studies = []
    for own in OWN:
        study = Study(trials=given.trials, own=own)
        rows = simulate(study, given.processes)
        studies.append({"study": asdict(study), "totals": totals(rows), "problems": rows})
    text = evidence.shown("same-table", studies, fleet.simulated_table)
    print(text)
    harness.write(given.out, "same-table", studies, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
