"""How well a portfolio does at sizes that did not make it, measured on the GPU of this machine:

    scripts/run python scripts/portfolio.py --work work --out results/evidence --seconds 570
    scripts/run python scripts/portfolio.py --kernel softmax --work work-softmax --out results/evidence

200 problems of gemm in bfloat16 are drawn, layouts nn and nt, or 40 of another kernel of :data:`SUBJECTS`; four fifths
make a portfolio, with ``tune portfolio``'s own code and at most 10 minutes, or 90 s. Then a bundle is written, and each
of the others is tuned by itself, in a database of its own; its winner, what the bundle chooses, and the kernel's
default are timed in turn, outputs verified. How much fewer cubins would lose is computed from what was timed, with each
measured size left out in turn.

| step | |
|---|---|
| portfolio | searches, measures and chooses, and writes the bundle |
| compare | tunes each of the others, and compares |

What was measured is kept in ``--work``, and not measured again: the same command goes on, until nothing is left, also
on another machine with the same card: what it needs are `portfolio.json`, `portfolio.db`, `tuned.db` and the folder
`bundle`. Comparisons that failed are made again, last. Exit status 1 if something is left to do, or what is asked is
missed.
"""

from __future__ import annotations

import argparse
import json
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from scripts import harness
from scripts.harness import Study, quantiles, say, study_parser
from scripts.lab import raced
from tuner.cli.options import ProblemTexts
from tuner.cli.problems import make_problems
from tuner.core import paths
from tuner.core.errors import Interrupted, TunerError
from tuner.core.model import Configuration, Problem, RunOptions
from tuner.core.observer import Observer
from tuner.core.signals import stopping
from tuner.core.stats import paired_ratio
from tuner.database.database import Database
from tuner.database.records import StoredWinner
from tuner.devices.base import Device
from tuner.devices.choose import open_device
from tuner.kernel.default import default_configuration
from tuner.kernel.load import load_kernel
from tuner.kernel.spec import KernelSpec
from tuner.report.progress import counting
from tuner.runtime.dispatch import dispatch
from tuner.runtime.entries import Manifest
from tuner.runtime.launch_limits import DEVICE_LIMITS
from tuner.runtime.manifest import read_manifest
from tuner.studies.bench import stored_winners
from tuner.studies.portfolio import Building, Built
from tuner.studies.portfolio_candidates import CandidateChoice
from tuner.studies.portfolio_cover import Cover
from tuner.studies.portfolio_races import PortfolioRequest, Races
from tuner.studies.portfolio_report import built_as_json
from tuner.tuning import session
from tuner.tuning.request import Request
from tuner.winners.fitting import COST_WEIGHTS, NEIGHBOURS, fit
from tuner.winners.portfolios import TIMED, Timings, measured, portfolio_rows, timings_of

KEPT_EVERY_S = 2.0
"""Its time so far is written down so often."""
ROUNDS = 20
ROUNDS_OF_ALL = 2
"""Of all members that can run a problem: they say what a better decision would gain."""
METHODS = {
    "the nearest size alone": ((1,), (0,)),
    "means of near sizes": (NEIGHBOURS, (0,)),
    "costs, corrected by near sizes": (NEIGHBOURS, COST_WEIGHTS),
}
"""Neighbours and weights of costs among which a decision is fitted."""
CURVE = (4, 8, 12, 16, 24, 32)
"""Most cubins, the defaults' among them, for the trade of cubins against slowdown."""


@dataclass(frozen=True)
class Subject:
    """A kernel whose portfolio is measured.

    Attributes:
        rows: what is drawn, in equal numbers.
        count: of problems, of which a fifth is held out.
        time_s: of each search for comparison.
        trials: of these.
        searched: problems that the portfolio searches first.
        choice_s: of the time for a portfolio, for the last choice, in which nothing is measured.
        asked: most that the figures may be; of cubins, those of the defaults count.
        least: of a measurement that counts: fewer problems, or poorer searches to compare with, prove nothing.
    """

    rows: tuple[str, ...]
    count: int
    time_s: float
    trials: int
    searched: int
    choice_s: float
    asked: Mapping[str, float]
    least: Mapping[str, float]


_ROWS = "samples={{count}},rows=64..8192,columns={}..{}"
_OF_ROWS = Subject(
    (_ROWS.format(256, 32768) + ":8", _ROWS.format(257, 32767)), 40, 3.0, 60, 4, 5.0,
    {"median": 1.05, "p95": 1.15, "cubins": 12, "seconds": 90.0, "invalid": 0, "unmatched": 0},
    {"held_out": 8, "trials": 60, "time_s": 3.0},
)  # fmt: skip
_OF_GEMM = "m=1..8192,n=512..16384:64,k=512..16384:64,samples={count},layout="
"""As language models have them: any number of rows, and weights whose sides are multiples of 64."""
SUBJECTS = {
    "gemm": Subject(
        (_OF_GEMM + "nn", _OF_GEMM + "nt"), 200, 10.0, 120, 8, 15.0,
        {"median": 1.04, "p95": 1.15, "worst": 1.40, "cubins": 32, "seconds": 600.0, "invalid": 0, "unmatched": 0},
        {"held_out": 40, "trials": 120, "time_s": 10.0},
    ),
    "softmax": _OF_ROWS,
    "norm": _OF_ROWS,
}  # fmt: skip


def drawn(count: int, name: str = "gemm") -> tuple[list[Problem], list[Problem]]:
    """Return problems that make the portfolio, four fifths, and those that it is measured by."""
    made: list[Problem] = []
    held_out: list[Problem] = []
    for row in (subject := SUBJECTS[name]).rows:
        text = row.format(count=count // len(subject.rows))
        problems = make_problems(load_kernel(name), ProblemTexts(dtypes=["bfloat16"], problem_texts=[text]))
        made += [problem for number, problem in enumerate(problems) if number % 5]
        held_out += problems[::5]
    return made, held_out


class HeldOut(Study):
    """The measurements, each kept in the work folder.

    Args:
        given: of the command line.
        signalled: whether this process is told to stop.

    Attributes:
        device: on which all is timed.
    """

    device: Device

    def __init__(self, given: argparse.Namespace, signalled: Callable[[], bool]) -> None:
        self._work, self._signalled = given.work, signalled
        self.kernel, self._subject = load_kernel(given.kernel), SUBJECTS[given.kernel]
        how = {"count": given.count, "trials": given.trials, "time_s": given.time, "searched": given.search}
        how = {name: getattr(self._subject, name) if value is None else value for name, value in how.items()}
        self.how = {**how, "kernel": given.kernel}
        super().__init__(given.work / "portfolio.json", given.seconds, self.how, problems={})
        self.data.setdefault("seconds", 0.0)
        self.made, self.held_out = drawn(how["count"], given.kernel)

    @property
    def left(self) -> list[Problem]:
        """What was not compared so far."""
        return [one for one in self.held_out if one.key not in self.data["problems"]]

    def _stop(self) -> bool:
        return self._signalled() or not self.has_time()

    def _portfolio(self) -> None:
        """Make the portfolio, and its bundle."""
        if "portfolio" in self.data:
            return
        bundle, path = self._work / "bundle", self._work / "portfolio.db"
        with Database.open(path) as database:
            built = self._built(database)
            self.data["decisions"] = self._decisions(built, database)
            self.data["curve"] = self._curve(built, database)
        write_bundle(self.kernel, path, bundle)
        gpu = {
            "name": self.device.gpu.name,
            "uuid": self.device.gpu.uuid[:8],
            "driver": self.device.gpu.driver,
        }
        cubins = len([*(bundle / "cubin").iterdir()])
        self.keep(portfolio=built_as_json(built), gpu=gpu, cubins=cubins)

    def _built(self, database: Database) -> Built:
        """Measure and choose; how long that takes is kept even if this process is killed."""
        began, spent_s = time.monotonic(), self.data["seconds"]
        request = PortfolioRequest(
            self.kernel,
            tuple(self.made),
            cubins=int(self._subject.asked["cubins"]),
            searched=self.how["searched"],
            time_s=self._subject.asked["seconds"] - self._subject.choice_s,
            spent_s=spent_s,
        )

        def stop() -> bool:
            seconds = spent_s + time.monotonic() - began
            if seconds > self.data["seconds"] + KEPT_EVERY_S:
                self.keep(seconds=seconds)
            return self._stop()

        try:
            with closing(counting(quiet=False)) as progress:
                return Building(request, self.device, database, progress, stop).run()
        finally:
            self.keep(seconds=spent_s + time.monotonic() - began)

    def _decisions(self, built: Built, database: Database) -> dict[str, Any]:
        """Return how ways to decide do on sizes that are left out, each in turn."""
        rows = [row for row in portfolio_rows(database, self.kernel) if row.contestant == TIMED]
        outcomes: dict[str, list[float]] = {name: [] for name in METHODS}
        for portfolio in built.portfolios:
            kind = portfolio.problems[0].kind
            timings = timings_of(row for row in rows if row.problem.kind == kind)
            for name, method in METHODS.items():
                outcomes[name] += self._left_out(portfolio.members, timings, *method)
        return {name: quantiles(values) for name, values in outcomes.items()}

    def _curve(self, built: Built, database: Database) -> list[dict[str, Any]]:
        """Return for numbers of cubins the slowdown at sizes that are left out, each in turn."""
        request, gpu = PortfolioRequest(self.kernel, tuple(self.made)), self.device.gpu
        races = Races(request, self.device, database)
        kinds = [portfolio.problems[0] for portfolio in built.portfolios]
        cover, rows = Cover(races, CandidateChoice(self.kernel, gpu, (), 0), kinds), []
        for most in CURVE:
            kept, outcomes = cover.choose(request.bound, most, None), list[float]()
            for kind, ones in zip(kinds, kept, strict=True):
                timings = races.timings(kind)
                outcomes += self._left_out([(one, cover.best_at(timings, one)) for one in ones], timings)
            rows.append({"most": most, "cubins": cover.cubins(kept), **quantiles(outcomes)})
        return rows

    def _left_out(
        self, members: Sequence[tuple[Configuration, Problem]], timings: Timings, *method: Sequence[int]
    ) -> list[float]:
        """Return how slow the chosen is at each measured size over the best timed there, with that size left out."""
        *_, inputs = measured(self.kernel, self.device.gpu, members, timings)
        return [float(one) for one in np.exp2(fit(*inputs, *method).chosen) if np.isfinite(one)]

    def _compare(self) -> None:
        """Tune each problem by itself, and compare."""
        known = self.data["problems"]
        left = [one for one in self.held_out if "error" in known.get(one.key, {"error": ""})]
        if "portfolio" not in self.data:
            return
        manifest = read_manifest((self._work / "bundle" / "manifest.json").read_bytes())
        for problem in sorted(left, key=lambda one: one.key in known):
            row = {"sizes": dict(problem.sizes), "layout": problem.options.get("layout", "")}
            try:
                row |= self._row(problem, manifest)
            except Interrupted:
                raise
            except Exception as error:  # noqa: BLE001 - a finding: the others are compared all the same
                row["error"] = str(error)
                if not isinstance(error, TunerError):
                    traceback.print_exc()
            known[problem.key] = row
            self.keep()
            print(f"{problem}: {row.get('over_tuned', row.get('error'))}", flush=True)

    def _row(self, problem: Problem, manifest: Manifest) -> dict[str, Any]:
        gpu = self.device.gpu
        limits = {name: getattr(gpu, name) for name in DEVICE_LIMITS}
        computation = [dict(one.options) for one in manifest.computations].index(dict(problem.options))
        found = dispatch(manifest, computation, problem.sizes, limits, gpu.name)
        chosen = self._configuration(manifest, found.concrete.configuration)
        members = [self._configuration(manifest, number) for number, _ in found.ranking]
        row = {"match": str(found.match), "chosen": str(chosen), "expected": found.expected_slowdown}
        row |= self._compared(problem, chosen) | {"over_best_kept": 1.0}
        if chosen in members:
            try:
                times = [median(rounds) for rounds in raced(self.device, members, ROUNDS_OF_ALL)]
                row["over_best_kept"] = times[members.index(chosen)] / min(times)
            except TunerError as error:
                say(f"{problem}: {error}")  # one that was not chosen
        return row

    def _configuration(self, manifest: Manifest, number: int) -> Configuration:
        """Return a configuration of a bundle."""
        entry = manifest.configurations[number]
        parameters = self.kernel.variants[entry.variant].parameters
        return Configuration.of(entry.variant, {name: entry.parameters[name] for name in parameters})

    def _compared(self, problem: Problem, chosen: Configuration) -> dict[str, Any]:
        device, winner = self.device, self._tuned(problem)
        default = default_configuration(self.kernel, problem, device.gpu)
        if default is None:
            raise TunerError("there is no default")
        tuned = winner.trial.configuration
        contestants = list(dict.fromkeys((tuned, chosen, default)))
        device.prepare(self.kernel, problem, 0, winner.run.conditions)
        times = dict(zip(contestants, raced(device, contestants, ROUNDS), strict=True))
        over_tuned = paired_ratio(times[chosen], times[tuned])
        over_default = paired_ratio(times[chosen], times[default])
        return {
            "tuned": str(tuned),
            "tuned_on": winner.run.gpu.uuid[:8],
            "time_ns": median(times[chosen]),
            "over_tuned": over_tuned.median,
            "over_tuned_interval": [over_tuned.low, over_tuned.high],
            "over_default": over_default.median,
            "slower_than_default": over_default.low > 1 + device.noise_floor(median(times[chosen])),
        }

    def _tuned(self, problem: Problem) -> StoredWinner:
        """Return the winner of a search for this problem alone, perhaps an earlier one with the present kernel."""
        if self._stop():
            raise Interrupted("time is over", "the same command goes on")
        options = RunOptions(trials=self.how["trials"], from_scratch=True, time_s=self.how["time_s"])
        request = Request(self.kernel, problem, options)
        with Database.open(self._work / "tuned.db") as database:
            for search in (True, False):
                winners = stored_winners(database, self.device.gpu, self.kernel).rows
                if known := [one for one in winners if one.run.problem == problem]:
                    return known[0]
                if search:
                    session.tune(request, self.device, database, Observer(), self._stop)
        raise TunerError("the search confirmed nothing")


def write_bundle(kernel: KernelSpec, database: Path, folder: Path) -> None:
    """Write a portfolio and the defaults as a bundle."""
    words = ["--kernel", kernel.name, "--dtype", "bfloat16", "--db", str(database), "-o", str(folder)]
    harness.tune("bundle", *words, "--few", "--force", "--quiet")


def summary(data: Mapping[str, Any], subject: Subject = SUBJECTS["gemm"]) -> dict[str, Any]:
    """Return the figures of the held-out problems, and which of them miss what is asked."""
    rows = list(data["problems"].values())
    timed = [row for row in rows if "error" not in row]
    if not timed:
        return {"held_out": len(rows), "invalid": len(rows), "missed": ["invalid"]}
    figures = {
        "held_out": len(rows),
        **quantiles([row["over_tuned"] for row in timed]),
        "invalid": len(rows) - len(timed),
        "unmatched": sum(row["match"] != "portfolio" for row in timed),
        "slower_than_default": sum(row["slower_than_default"] for row in timed),
        "layouts": {
            layout: quantiles([row["over_tuned"] for row in timed if row["layout"] == layout])
            for layout in sorted({row["layout"] for row in timed} - {""})
        },
        "over_best_kept": quantiles([row.get("over_best_kept", 1.0) for row in timed]),
        "said": quantiles([row["expected"] or 1.0 for row in timed]),
        "cubins": data["cubins"],
        "seconds": data["seconds"],
        "trials": data["how"]["trials"],
        "time_s": data["how"]["time_s"],
    }
    missed = [name for name, most in subject.asked.items() if not figures[name] <= most]  # nor is NaN enough
    missed += [name for name, least in subject.least.items() if not figures[name] >= least]
    missed += ["slower_than_default"] if figures["slower_than_default"] else []
    return {**figures, "missed": missed}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is left, and write what there is."""
    options = study_parser(__doc__, ("portfolio", "compare"), "portfolio")
    options.set_defaults(seconds=570.0)
    add = options.add_argument
    add("--kernel", default="gemm", choices=SUBJECTS)
    add("--count", type=int, help="problems, of which a fifth is held out")
    add("--trials", type=int, help="of each search for comparison")
    add("--time", type=float, help="seconds of each of these")
    add("--search", type=int, help="problems that the portfolio searches first")
    add("--device", default="cuda")
    add("--jobs", type=int, help="compiling processes")
    given = options.parse_args(arguments)
    try:
        with stopping() as signalled:
            state = HeldOut(given, signalled)
            opened = open_device(given.device, given.kernel, given.jobs, paths.cubins(), print)
            with closing(opened) as state.device:
                state.run(given.steps)
    except TunerError as error:
        say(str(error))
        return 2
    if state.left:
        compared = len(state.held_out) - len(state.left)
        print(f"{compared} of {len(state.held_out)} are compared; the same command goes on")
        return 1
    subject, suffix = SUBJECTS[given.kernel], "" if given.kernel == "gemm" else f"-{given.kernel}"
    figures = summary(state.data, subject)
    harness.write(given.out, f"portfolio{suffix}", {**state.data, "asked": subject.asked, "summary": figures})
    print(json.dumps(figures, indent=1))
    return 1 if figures["missed"] else 0


if __name__ == "__main__":
    harness.run(main)
