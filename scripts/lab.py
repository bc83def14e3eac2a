"""What measuring scripts share: a GPU with the tuner's own timing on it, in this very process."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from scripts import harness
from scripts.page_figures import evidence
from tuner.children.compilation import RenderRequest
from tuner.children.compile_pool import CompilePool
from tuner.children.cubin_cache import CubinCache
from tuner.children.measuring import BaselineContestant
from tuner.core import paths
from tuner.core.conditions import Conditions, Mode, Regime
from tuner.core.errors import CompileError, TunerError
from tuner.core.model import Configuration, Gpu, Problem, Status, Value
from tuner.devices.base import Contestant, Device, RaceRequest
from tuner.devices.requests import Requests
from tuner.gpu.baselines import open_baseline
from tuner.gpu.buffers import Helpers
from tuner.gpu.candidate import Loaded, Timed, load
from tuner.gpu.clocks import Clocks
from tuner.gpu.driver import Context, described
from tuner.gpu.problem import ProblemSession, open_session
from tuner.gpu.timing import Samples, Timer
from tuner.kernel.functions import BaselineKind
from tuner.kernel.load import load_kernel
from tuner.kernel.plan import numbers_of
from tuner.kernel.spec import KernelSpec
from tuner.studies.interleaved import SAMPLES

PLAIN: dict[str, Value] = {
    "block_size": 256,
    "vector_width": 4,
    "items_per_thread": 1,
    "min_blocks": 0,
    "load_hint": "none",
    "store_hint": "none",
}
"""A float32 vector addition as a textbook writes it: 16-byte loads, one a thread."""


def no_deadline(seconds: float) -> None:
    """Ignore a deadline: no guard kills this process after it."""


class Lab:
    """The first GPU; a context that closes it at the end."""

    def __init__(self, deadline: Callable[[float], None] = no_deadline, jobs: int | None = 2) -> None:
        self.context = Context(0)
        self.gpu = described(self.context.device)
        self.timer = Timer(self.context, Clocks(self.gpu.uuid))
        self.cache = CubinCache(paths.cubins())
        self.helpers = Helpers(self.context, self.gpu, self.cache)
        self.pool = CompilePool(jobs, paths.cubins())
        self._deadline = deadline

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.close()

    def requests(self, kernel: KernelSpec) -> Requests:
        """Return what makes requests for a kernel."""
        return Requests(kernel, self.gpu, self.pool)

    @contextmanager
    def session(
        self,
        kernel: KernelSpec,
        problem: Problem,
        mode: Mode = Mode.COLD,
        regime: Regime = Regime.RESTED,
        seed: int = 1,
    ) -> Iterator[ProblemSession]:
        """Make a problem ready."""
        request = self.requests(kernel).setup(problem, seed, Conditions(mode, regime))
        session, _ = open_session(request, self.helpers, self.timer, self._deadline)
        try:
            yield session
        finally:
            session.close()

    def candidate(
        self, session: ProblemSession, kernel: KernelSpec, problem: Problem, configuration: Configuration
    ) -> Loaded:
        """Compile and load a configuration."""
        compilation = self.pool.compile(RenderRequest(kernel.file, problem, self.gpu, configuration))
        if compilation.status is not Status.OK:
            raise CompileError(f"{configuration}: {compilation.error}")
        return load(session.data, compilation.candidate)

    @contextmanager
    def torch(self, session: ProblemSession, kernel: KernelSpec, problem: Problem) -> Iterator[Timed]:
        """Capture the torch call that the kernel's file names."""
        numbers = numbers_of(kernel, problem, self.gpu)
        baseline = BaselineContestant(BaselineKind.CALL, kernel.baselines["torch"][0].text, None, numbers)
        with closing(open_baseline(session.data, baseline)) as call:
            yield call


def vector_add(exponent: int) -> tuple[KernelSpec, Problem]:
    """Return the float32 addition of 2^exponent elements."""
    kernel = load_kernel("vector_add")
    return kernel, kernel.problem({"n": 2**exponent}, {}, {})


def gemm(size: int, dtype: str) -> tuple[KernelSpec, Problem]:
    """Return a square product."""
    kernel = load_kernel("gemm")
    return kernel, kernel.problem(dict.fromkeys("mnk", size), {"": dtype}, {})


def time_of(session: ProblemSession, timed: Timed, groups: int = 4) -> Samples:
    """Take some groups behind one that is thrown away."""
    first_ns, _ = session.first_run(timed, 0.0)
    graph = session.graph(timed, session.size(first_ns), first_ns)
    try:
        session.take(graph, first_ns)
        samples = Samples()
        for _ in range(groups):
            samples.add(session.take(graph, first_ns))
        return samples
    finally:
        graph.close()


def raced(
    device: Device,
    chosen: Sequence[Configuration],
    rounds: int,
    samples: int = SAMPLES,
    seed: int = 0,
    mode: Mode | None = None,
) -> list[Sequence[float]]:
    """Return the medians of each round of configurations that are timed in turn on a device that is prepared.

    Raises:
        TunerError: one cannot be timed.
    """
    race = device.race(RaceRequest([Contestant(one) for one in chosen], rounds, samples, seed, mode))
    for failed, error in race.failures.items():
        raise TunerError(f"{chosen[failed]}: {error}")
    return [race.timed[number].medians_ns for number in range(len(chosen))]


def parser(text: str | None) -> argparse.ArgumentParser:
    """Return a parser that knows ``--out``."""
    options = harness.parser(text)
    options.add_argument("--out", type=Path, metavar="FILE.json", help="Keep the figures there.")
    return options


@contextmanager
def unfinished(out: Path | None, gpu: str) -> Iterator[harness.Kept]:
    """Keep rows by name beside ``--out`` until all are there: a script that was cut off goes on."""
    kept = harness.Kept(out and out.with_suffix(f".{gpu.replace(' ', '-')}.partial.json"))
    yield kept
    if kept.file:
        kept.file.unlink(missing_ok=True)


def keep(out: Path | None, gpu: Gpu | None, page: Callable[[], str] | None = None, **data: Any) -> None:
    """Write the figures, with the GPU that they are of; print them as a page has them."""
    data = ({"gpu": gpu.name, "driver": gpu.driver} if gpu else {}) | data
    if page:
        print(evidence.shown(page.__name__, data, page))
    if out is not None:
        harness.write_json(out, data)
