"""A portfolio from its first search to its members. Every comparison is recorded, so that it can be resumed anywhere.

1. A short search at a few problems that lie far apart gives configurations beyond those that rules name.
2. At each problem candidates (``portfolio_candidates.py``) are timed in turn, twice; then those that may be the
   fastest, longer. At problems between these, what is expected to be the fastest is timed, too.
3. Few are chosen (``portfolio_cover.py``), by what was timed and what is expected. Each is changed in a parameter or
   two, and the changes are timed at all problems that it runs best: few have to suit many. So are all that are chosen
   and were not timed there. This is repeated.
4. The choice is made again; what is kept is timed where it was not yet, and the choice is made a last time.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tuner.core.errors import DatabaseError, DeviceError, Interrupted, TunerError
from tuner.core.groups import grouped
from tuner.core.model import Configuration, Problem, RunOptions, digest
from tuner.core.observer import Observer
from tuner.database.database import Database
from tuner.database.records import Filters
from tuner.devices.base import Device
from tuner.kernel.identity import KernelIdentity
from tuner.studies.portfolio_candidates import CandidateChoice, between, spread
from tuner.studies.portfolio_cover import Cover
from tuner.studies.portfolio_races import CHANGED, COMPARED, SCREENED, PortfolioRequest, Races
from tuner.tuning import session
from tuner.tuning.request import Request
from tuner.winners.portfolios import BOUND, MEMBER, Portfolio, make_portfolio, portfolio_rows

SCREEN_ROUNDS, SCREEN_SAMPLES = 2, 4
COMPARE_ROUNDS, COMPARE_SAMPLES = 6, 8
FILL_ROUNDS = 2
"""A screening tells what is 10 % slower, for a third of the time; six medians of eight are good to some 0.3 %."""
MOST_COMPARED = 8
MARGINS = (0.05, 0.15)
"""Octaves that what is expected counts more than a time, in the first choice and in the second; the third keeps only
what was timed wherever it can run."""
EXPECTED = 24
"""Configurations that are timed at a problem between: one more costs little once the problem is ready."""
TURNS = 4
"""Of choosing, and changing what is chosen."""
SEARCHED, TIMED_BY, BETWEEN_BY, CHANGED_BY = 0.2, 0.5, 0.6, 0.85
"""Shares of a time limit at which searches, comparisons of candidates, those between, and turns end."""
CONTENDER = 1.10
"""Of a problem's first comparison: what is slower is not compared again."""


T = TypeVar("T")


@dataclass(frozen=True)
class Built:
    """The outcome.

    Attributes:
        portfolios: one for each computation.
        cubins: of all members and defaults.
        untimed: problems that were not measured, with the reason.
    """

    portfolios: tuple[Portfolio, ...]
    cubins: int
    untimed: tuple[tuple[Problem, str], ...]


@dataclass
class Building:
    """Measures, chooses and records a portfolio; what an earlier one has recorded is not measured again."""

    _request: PortfolioRequest
    _device: Device
    _database: Database
    _progress: Observer[str]
    _stop: Callable[[], bool] = lambda: False
    _began: float = 0.0
    _untimed: dict[str, tuple[Problem, str]] = field(default_factory=dict)
    _longest_s: float = 0.0
    """Of the steps since the searches: none is begun that may end too late."""

    def run(self) -> Built:
        """Return the outcome.

        Raises:
            Interrupted: ``stop`` said so; everything measured is recorded.
            TunerError: no problem could be measured.
        """
        request = self._request
        self._began = time.monotonic() - request.spent_s
        problems = [request.problems[number] for number in spread(request.problems)]
        self._search(problems[: request.searched])
        self._longest_s = 0.0
        self._races = Races(request, self._device, self._database)
        self._candidates = CandidateChoice(request.kernel, self._device.gpu, self._winners(), request.seed)
        self._compare(problems)
        self._compare_between(problems)
        measured = [one for one in problems if self._races.timings(one).of(one)]
        kinds = grouped(measured, lambda one: one.kind)
        if not kinds:
            reasons = [reason for _, reason in self._untimed.values()]
            raise DeviceError("no problem could be measured", (reasons or ["allow more time"])[0])
        return self._built([ones[0] for ones in kinds.values()])

    # -- measuring

    def _search(self, problems: Sequence[Problem]) -> None:
        request, database = self._request, self._database
        computations = KernelIdentity(request.kernel).computations
        left = [one for one in problems if not database.has_finished(one, self._device.name, computations)]
        for problem in self._each("searching", left, SEARCHED):
            self._progress.step(str(problem))
            options = RunOptions(
                trials=request.trials, seed=request.seed, mode=request.mode, regime=request.regime
            )
            search = Request(request.kernel, problem, options)
            self._attempt(problem, session.tune, search, self._device, database, Observer(), self._stop)

    def _winners(self) -> list[Configuration]:
        """Return the configurations that won, on this model of GPU first."""
        rows = self._database.winners(Filters(kernel=self._request.kernel.name)).rows
        own = sorted(rows, key=lambda one: one.run.gpu.name != self._device.gpu.name)
        return list(dict.fromkeys(one.winner.configuration for one in own if not one.run.foreign))

    def _compare(self, problems: Sequence[Problem]) -> None:
        """Time candidates at each problem; those of the next are compiled meanwhile."""
        done = self._races.done(COMPARED)
        left = [problem for problem in problems if problem.key not in done]
        following = iter(left[1:])
        chosen = self._chosen(left[0]) if left else []
        waiting = {one.key: (one, "no time was left") for one in left}
        for problem in self._each("comparing", left, TIMED_BY):
            del waiting[problem.key]
            self._progress.step(f"{problem}: {len(chosen)} configurations")
            after = next(following, None)
            now, chosen = chosen, self._chosen(after) if after is not None else []
            self._attempt(problem, self._compare_at, problem, now)
        self._untimed |= waiting

    def _chosen(self, problem: Problem) -> list[Configuration]:
        configurations = self._candidates.first(problem, self._races.all_timings())
        self._device.compile_ahead(self._request.kernel, problem, configurations)
        return configurations

    def _compare_at(self, problem: Problem, configurations: Sequence[Configuration]) -> None:
        times = self._races.run(problem, configurations, SCREEN_ROUNDS, SCREEN_SAMPLES, SCREENED)
        if not times:
            raise DeviceError("every configuration failed")
        limit = CONTENDER * min(times.values())
        fastest = sorted((one for one in times if times[one] <= limit), key=lambda one: times[one])
        if not self._stop():
            self._races.run(problem, fastest[:MOST_COMPARED], COMPARE_ROUNDS, COMPARE_SAMPLES, COMPARED)

    def _change(self, cover: Cover, turn: int) -> None:
        """Change what is chosen; time the changes at each problem that it runs best, and all that is chosen."""
        request, races = self._request, self._races
        tag = f"{CHANGED} {turn}"
        done = races.done(tag)
        if self._over(CHANGED_BY) or {problem.key for problem in races.all_timings().problems} <= done:
            return
        kept = cover.choose(request.bound, request.cubins, MARGINS[0])
        missing = {problem.key: ones[1:] for problem, ones in cover.missing(kept)}
        seen, work = set(races.all_timings().configurations), []
        for member, problems in cover.served(kept):
            left = [problem for problem in problems if problem.key not in done]
            changes = self._candidates.changes([member], left, seen) if left else []
            seen |= set(changes)
            for problem in left:
                timed = races.timings(problem).of(problem)
                both = dict.fromkeys(
                    [min(timed, key=timed.__getitem__), member, *changes, *missing.get(problem.key, ())]
                )
                work.append((problem, [one for one in both if self._candidates.runs(problem, one)]))
        for problem, ones in self._each(f"changing what is chosen, turn {turn} of {TURNS}", work, CHANGED_BY):
            self._screen(problem, ones, tag)

    def _compare_between(self, problems: Sequence[Problem]) -> None:
        """Time what is expected to be the fastest at as many problems between: what is kept is for sizes like these."""
        kinds = grouped(problems, lambda one: one.kind).values()
        between_all = [one for ones in kinds for one in between(ones, self._request.seed)]
        done = self._races.done(COMPARED)
        left = [problem for problem in between_all if problem.key not in done]
        for problem in self._each("comparing between them", left, BETWEEN_BY):
            default, timings = self._candidates.default(problem), self._races.all_timings()
            first = {} if default is None else {default: None}
            ones = self._candidates.expected(problem, timings, EXPECTED)
            self._screen(problem, list(first | dict.fromkeys(ones)), COMPARED)

    def _each(self, what: str, items: Sequence[T], share: float) -> Iterator[T]:
        """Yield the items of a phase until this share of the time is over."""
        self._progress.phase(what, len(items))
        for item in items:
            if self._over(share):
                return
            yield item

    def _screen(self, problem: Problem, ones: Sequence[Configuration], tag: str) -> None:
        self._progress.step(f"{problem}: {len(ones)} configurations")
        self._device.compile_ahead(self._request.kernel, problem, ones)
        self._attempt(problem, self._races.run, problem, ones, SCREEN_ROUNDS, SCREEN_SAMPLES, tag)

    def _attempt(self, problem: Problem, work: Callable[..., object], *of: object) -> None:
        """Do something for a problem; if that fails, say so and go on."""
        if self._stop():
            raise Interrupted("stopped; everything measured is kept", "the same command goes on")
        try:
            with self._timed_step():
                work(*of)
        except (Interrupted, DatabaseError):
            raise
        except TunerError as error:
            self._untimed[problem.key] = (problem, error.problem)
            self._progress.note(f"{problem}: {error.problem}")

    @contextmanager
    def _timed_step(self) -> Iterator[None]:
        began = time.monotonic()
        yield
        self._longest_s = max(self._longest_s, time.monotonic() - began)

    def _over(self, share: float) -> bool:
        limit = self._request.time_s
        if limit is None:
            return False
        last = self._longest_s if share == 1.0 else 0.0
        return time.monotonic() - self._began + last > share * limit

    # -- choosing

    def _built(self, kinds: Sequence[Problem]) -> Built:
        """Choose members, and time them wherever they can run.

        Args:
            kinds: a problem of each computation.
        """
        request, gpu, races = self._request, self._device.gpu, self._races
        cover = Cover(races, self._candidates, kinds)
        kept = self._kept_before(kinds)
        if not kept:
            for turn in range(1, TURNS + 1):
                self._change(cover, turn)
            for margin in (*MARGINS, None):
                with self._timed_step():
                    kept = cover.choose(request.bound, request.cubins, margin)
                missing = cover.missing(kept)
                self._time(missing)
                if not missing or self._over(1.0):
                    break
            kept = [[one for one in ones if one not in races.failed] for ones in kept]
        portfolios = []
        for kind, ones in zip(kinds, kept, strict=True):
            timings = races.timings(kind)
            members = [(one, cover.best_at(timings, one)) for one in ones]
            portfolios.append(make_portfolio(request.kernel, gpu, request.bound, members, timings))
        self._record(portfolios)
        return Built(tuple(portfolios), cover.cubins(kept), tuple(self._untimed.values()))

    def _time(self, missing: Sequence[tuple[Problem, Sequence[Configuration]]]) -> None:
        """Time what is kept where it was not yet."""
        for problem, ones in self._each("timing what is kept", missing, 1.0):
            self._progress.step(f"{problem}: {len(ones) - 1} configurations")
            self._attempt(problem, self._races.run, problem, ones, FILL_ROUNDS, COMPARE_SAMPLES, COMPARED)

    def _tags(self) -> tuple[str, ...]:
        """Return what a finished portfolio was asked for."""
        request = self._request
        sizes = digest(sorted(problem.key for problem in request.problems))
        return f"{BOUND}{request.bound}", f"cubins={request.cubins}", f"problems={sizes}"

    def _kept_before(self, problems: Sequence[Problem]) -> list[list[Configuration]]:
        """Return what the database has of the same request, one problem of each kind, if nothing was measured since."""
        if self._races.measured:
            return []
        kept, tags = [], self._tags()
        rows = portfolio_rows(self._database, self._request.kernel)
        members = [row for row in rows if row.contestant == MEMBER and row.gpu.name == self._device.gpu.name]
        for problem in problems:
            own = [row for row in members if row.problem.kind == problem.kind]
            last = [row for row in own if row.bench == own[-1].bench]
            if not last or last[0].tags != tags:
                return []
            kept.append([row.configuration for row in last if row.configuration is not None])
        return kept

    def _record(self, portfolios: Sequence[Portfolio]) -> None:
        """Write the members down, unless they are what the database has."""
        if self._kept_before([portfolio.problems[0] for portfolio in portfolios]):
            return
        bench = str(uuid.uuid4())
        rows = [
            replace(self._races.row(problem, one), bench=bench, contestant=MEMBER, tags=self._tags())
            for portfolio in portfolios
            for one, problem in portfolio.members
        ]
        self._database.record_benchmark(rows)
