"""What a program that calls winners gets: computations, configurations, winners, and the tool's own defaults."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.core.errors import KernelError
from tuner.core.model import Configuration, Gpu, Problem, canonical_json
from tuner.database.records import StoredWinner
from tuner.kernel.default import default_configurations, default_order
from tuner.kernel.spec import KernelSpec
from tuner.winners.current import Kernels
from tuner.winners.portfolios import Portfolio
from tuner.winners.records import BundledConfiguration


class Contents:
    """All of it, of one kernel: computations and configurations, each once, in the order in which they came.

    Attributes:
        kernel: whose they are.
        winners: each with the number of its configuration.
        portfolios: each with the numbers of its members' configurations.
    """

    def __init__(self, kernel: KernelSpec) -> None:
        self.kernel = kernel
        self.winners: list[tuple[int, StoredWinner]] = []
        self.portfolios: list[tuple[tuple[int, ...], Portfolio]] = []
        self._defaults: dict[int, None] = {}
        self._computations: dict[str, Problem] = {}
        self._configurations: dict[str, BundledConfiguration] = {}

    @property
    def computations(self) -> list[Problem]:
        """One problem for each set of dtypes and options."""
        return list(self._computations.values())

    @property
    def configurations(self) -> list[BundledConfiguration]:
        """Those of winners, defaults and members of portfolios."""
        return list(self._configurations.values())

    @property
    def defaults(self) -> list[int]:
        """The numbers of the configurations for problems that no winner is valid for.

        Those of each computation and compute capability are in the order in which they are to be tried.
        """
        bundled = self.configurations

        def order(number: int) -> tuple[object, ...]:
            one = bundled[number]
            return self.computation_of(one), one.gpu.cc, default_order(one.kernel, one.configuration)

        return sorted(self._defaults, key=order)

    def computation_of(self, bundled: BundledConfiguration) -> int:
        """Return the number of a configuration's computation."""
        return list(self._computations).index(bundled.problem.kind)

    def add(self, kernel: KernelSpec, problem: Problem, gpu: Gpu, configuration: Configuration) -> int:
        """Add a configuration unless it is there; return its number.

        Raises:
            KernelError: it is a call, which a program makes itself.
        """
        if kernel.variants[configuration.variant].call is not None:
            raise KernelError(f"{configuration} is a call: a bundle has code", "call it from the program")
        bundled = BundledConfiguration(kernel, problem, gpu, configuration)
        kind = problem.kind
        self._computations.setdefault(kind, problem)
        key = canonical_json([kind, gpu.cc, configuration.key, bundled.baked, str(kernel.file)])
        self._configurations.setdefault(key, bundled)
        return list(self._configurations).index(key)

    def add_defaults(self, kernel: KernelSpec, problem: Problem, gpu: Gpu) -> None:
        """Add the configurations that the tuner itself takes for problems like one."""
        for each, configuration in default_configurations(kernel, problem, gpu):
            self.add_default(kernel, each, gpu, configuration)

    def add_default(
        self, kernel: KernelSpec, problem: Problem, gpu: Gpu, configuration: Configuration
    ) -> None:
        """Add a configuration that is taken for problems that no winner is valid for."""
        self._defaults.setdefault(self.add(kernel, problem, gpu, configuration))


def contents_of(
    winners: Sequence[StoredWinner], kernels: Kernels, portfolios: Sequence[Portfolio] = ()
) -> Contents:
    """Return what belongs to some winners and portfolios, at least one, of one kernel whose file is there.

    Raises:
        TunerError: the kernel's file cannot be read.
    """
    ordered = sorted(
        winners, key=lambda w: (w.run.problem.kind, w.run.gpu.cc, w.run.problem.key, w.run.gpu.name)
    )
    contents = Contents(kernels.kernel(ordered[0].run) if ordered else portfolios[0].kernel)
    for stored in ordered:
        run, kernel = stored.run, kernels.kernel(stored.run)
        number = contents.add(kernel, run.problem, run.gpu, stored.winner.configuration)
        contents.winners.append((number, stored))
        contents.add_defaults(kernel, run.problem, run.gpu)
    for portfolio in portfolios:
        kernel, gpu = portfolio.kernel, portfolio.gpu
        members = tuple(contents.add(kernel, problem, gpu, one) for one, problem in portfolio.members)
        contents.portfolios.append((members, portfolio))
        contents.add_defaults(kernel, portfolio.members[0][1], gpu)
    return contents


def without_the_rest(winners: Sequence[StoredWinner], portfolios: Sequence[Portfolio]) -> list[StoredWinner]:
    """Return winners without those that a portfolio of their computation and GPU did not keep."""
    kept = {
        (portfolio.problems[0].kind, portfolio.gpu.name): {one for one, _ in portfolio.members}
        for portfolio in portfolios
    }
    groups = [kept.get((stored.run.problem.kind, stored.run.gpu.name)) for stored in winners]
    pairs = zip(winners, groups, strict=True)
    return [stored for stored, own in pairs if own is None or stored.winner.configuration in own]
