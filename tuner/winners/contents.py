"""What a program that calls winners gets: computations, configurations, winners, and the tool's own defaults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.core.model import Problem, canonical_json
from tuner.database.records import StoredWinner
from tuner.kernel.default import default_configurations, preference
from tuner.kernel.spec import KernelSpec
from tuner.winners.current import Kernels
from tuner.winners.portfolios import Portfolio, kind_of
from tuner.winners.records import BundledConfiguration, baked_sizes


@dataclass(frozen=True)
class BundledWinner:
    """A winner, and the numbers of its computation and configuration."""

    computation: int
    configuration: int
    stored: StoredWinner


@dataclass(frozen=True, order=True)
class BundledDefault:
    """A configuration for problems of a computation on GPUs of a compute capability that no winner is valid for."""

    computation: int
    cc: int
    configuration: int


@dataclass(frozen=True)
class BundledPortfolio:
    """A portfolio, and the numbers of its computation and of its members' configurations."""

    computation: int
    members: tuple[int, ...]
    stored: Portfolio


@dataclass(frozen=True)
class Contents:
    """All of it, of one kernel."""

    kernel: KernelSpec
    computations: tuple[Problem, ...]
    """One problem for each set of dtypes and options."""
    configurations: tuple[BundledConfiguration, ...]
    winners: tuple[BundledWinner, ...]
    defaults: tuple[BundledDefault, ...]
    """Of each computation and compute capability in the order in which they are to be tried."""
    portfolios: tuple[BundledPortfolio, ...] = ()

    def computation_of(self, bundled: BundledConfiguration) -> int:
        """Return the number of a configuration's computation."""
        return [kind_of(problem) for problem in self.computations].index(kind_of(bundled.problem))


def contents_of(
    winners: Sequence[StoredWinner], kernels: Kernels, portfolios: Sequence[Portfolio] = ()
) -> Contents:
    """Return what belongs to some winners and portfolios, at least one, of one kernel whose file is there.

    Raises:
        TunerError: the kernel's file cannot be read.
    """
    members = _Members()
    ordered = sorted(
        winners, key=lambda w: (kind_of(w.run.problem), w.run.gpu.cc, w.run.problem.key, w.run.gpu.name)
    )
    for stored in ordered:
        run, kernel = stored.run, kernels.kernel(stored.run)
        members.add_winner(stored, kernel)
        for problem, configuration in default_configurations(kernel, run.problem, run.gpu):
            members.add_default(BundledConfiguration(kernel, problem, run.gpu, configuration))
    for portfolio in portfolios:
        members.add_portfolio(portfolio)
    return Contents(
        kernels.kernel(ordered[0].run) if ordered else portfolios[0].kernel,
        tuple(members.computations.values()),
        tuple(members.configurations.values()),
        tuple(members.winners),
        members.defaults_in_order(),
        tuple(members.portfolios),
    )


def without_the_rest(winners: Sequence[StoredWinner], portfolios: Sequence[Portfolio]) -> list[StoredWinner]:
    """Return winners without those that a portfolio of their computation and GPU did not keep."""
    kept = {
        (kind_of(portfolio.problems[0]), portfolio.gpu.name): {one for one, _ in portfolio.members}
        for portfolio in portfolios
    }
    return [
        stored
        for stored in winners
        if stored.winner.configuration
        in kept.get((kind_of(stored.run.problem), stored.run.gpu.name), {stored.winner.configuration})
    ]


class _Members:
    """Computations and configurations, each once, in the order in which they came."""

    def __init__(self) -> None:
        self.computations: dict[str, Problem] = {}
        self.configurations: dict[str, BundledConfiguration] = {}
        self.winners: list[BundledWinner] = []
        self.defaults: dict[BundledDefault, None] = {}
        self.portfolios: list[BundledPortfolio] = []

    def add_winner(self, stored: StoredWinner, kernel: KernelSpec) -> None:
        run, configuration = stored.run, stored.winner.configuration
        bundled = BundledConfiguration(kernel, run.problem, run.gpu, configuration)
        self.winners.append(BundledWinner(*self._numbers(bundled), stored))

    def add_portfolio(self, portfolio: Portfolio) -> None:
        kernel, gpu = portfolio.kernel, portfolio.gpu
        numbers = [
            self._numbers(BundledConfiguration(kernel, problem, gpu, configuration))
            for configuration, problem in portfolio.members
        ]
        members = tuple(number for _, number in numbers)
        self.portfolios.append(BundledPortfolio(numbers[0][0], members, portfolio))
        for problem, configuration in default_configurations(kernel, portfolio.members[0][1], gpu):
            self.add_default(BundledConfiguration(kernel, problem, gpu, configuration))

    def add_default(self, bundled: BundledConfiguration) -> None:
        computation, configuration = self._numbers(bundled)
        self.defaults.setdefault(BundledDefault(computation, bundled.gpu.cc, configuration))

    def defaults_in_order(self) -> tuple[BundledDefault, ...]:
        """Return the defaults of each computation and compute capability as they are to be tried."""
        bundled = list(self.configurations.values())

        def order(default: BundledDefault) -> tuple[object, ...]:
            configuration = bundled[default.configuration]
            preferred = preference(configuration.kernel, configuration.configuration)
            return default.computation, default.cc, preferred

        return tuple(sorted(self.defaults, key=order))

    def _numbers(self, bundled: BundledConfiguration) -> tuple[int, int]:
        """Return the numbers of a configuration's computation and of itself."""
        kind = kind_of(bundled.problem)
        self.computations.setdefault(kind, bundled.problem)
        sizes = bundled.problem.sizes
        baked = {name: sizes[name] for name in baked_sizes(bundled.kernel, bundled.launches.values())}
        file = str(bundled.kernel.file)
        key = canonical_json([kind, bundled.gpu.cc, bundled.configuration.key, baked, file])
        self.configurations.setdefault(key, bundled)
        return list(self.computations).index(kind), list(self.configurations).index(key)
