"""A GPU that is not there: answers from a recorded space, with its recorded samples and statuses."""

# ruff: noqa: ARG002 - the contract has more arguments than recorded answers need
from __future__ import annotations

import math
import random
import shlex
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tuner.children.compilation import Compilation
from tuner.children.measuring import Raced, RaceFailed
from tuner.core import paths
from tuner.core.conditions import Conditions, Mode, Regime
from tuner.core.errors import DeviceError, KernelError, NotRecordedError, RecordingError
from tuner.core.model import Configuration, Measurement, Problem, Status, Trial, Value, Verification
from tuner.devices.base import Device, Incumbent, RaceRequest, no_incumbent, say_nothing
from tuner.devices.submissions import measured, trial_of
from tuner.formats.recording import RecordedProblem, Recording, Row, find_recording, read_recording
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.load import read_kernel
from tuner.kernel.options import options_of
from tuner.kernel.render import render
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec

HERE = "here `tune show`, `tune explain` and `tune render` describe it, and `tune check` finds mistakes in it"
"""What can be done without a GPU."""

SHORT_FROM = 16
"""Powers of two from this one on are written as such: 2**24, but 4096."""


class ReplayDevice(Device):
    """Answers at once with what a recording holds.

    Args:
        source: the recording, or its file.
        say: told how the recording and a space differ.
        notes: what the user should know about the choice of this device.

    Raises:
        RecordingError: it cannot be read.
    """

    recorded = True
    lookahead = 1  # each answer is there before the next submission
    any_regime = False
    """Whether the regime that is asked for does not matter: the times are what they are."""

    def __init__(
        self, source: Path | Recording, say: Callable[[str], None] = say_nothing, notes: Sequence[str] = ()
    ) -> None:
        self.recording = read_recording(source) if isinstance(source, Path) else source
        self.gpu = self.recording.gpu
        self.name = f"replay:{self.recording.name}"
        super().__init__(say)
        self.notes, self.versions = tuple(notes), dict(self.recording.versions)
        self._trials: list[Trial] = []
        self._recorded: RecordedProblem
        self._rows: dict[tuple[str, frozenset[tuple[str, Value]]], Row] = {}
        self._kernel: KernelSpec
        self._identity: KernelIdentity

    def choose_conditions(
        self, kernel: KernelSpec, problem: Problem, mode: Mode | None, regime: Regime
    ) -> tuple[Conditions, str]:
        """Return the conditions of the recording.

        Raises:
            RecordingError: others are asked for.
        """
        conditions = self.recording.conditions
        if mode not in (None, conditions.mode) or not (self.any_regime or regime is conditions.regime):
            remedy = "leave out --mode" if self.any_regime else "leave out --mode and --regime"
            raise RecordingError(f"{self.name} was recorded {conditions}", remedy)
        return conditions, "as it was recorded"

    def refuse_other(self, kernel: KernelSpec) -> None:
        """Say that the recording is not of this kernel, or of one that computes something else.

        Raises:
            RecordingError: that.
        """
        if kernel.name != self.recording.kernel:
            raise RecordingError(
                f"{self.name} is a recording of {self.recording.kernel}, not of {kernel.name}"
            )
        recorded, parts = self.recording.computation, KernelIdentity(kernel).parts
        if recorded and (differing := [name for name, part in parts.items() if recorded.get(name) != part]):
            example = paths.example(kernel.name)
            of = "another file of that name"
            if example.is_file() and KernelIdentity(read_kernel(example)).parts == recorded:
                of = f"docs/examples/{kernel.name}/{example.name}"
            elif (paths.recordings() / f"{self.recording.name}.json.gz").is_file():
                of = "the built-in kernel of that name"
            raise RecordingError(
                f"nothing is recorded for this {kernel.name} ({kernel.file.name}): {self.name} is of {of}, "
                f"which differs in {', '.join(differing)}",
                f"run it on a machine with a GPU; {HERE}",
            )

    def _prepare(
        self, kernel: KernelSpec, problem: Problem, seed: int, conditions: Conditions, truth: Problem | None
    ) -> None:
        """Find the problem in the recording."""
        self.conditions, self._trials = conditions, []
        self.refuse_other(kernel)
        self._identity = KernelIdentity(kernel)
        for recorded in self.recording.problems:
            if recorded.problem == problem:
                self._kernel, self._recorded = kernel, recorded
                self._rows = {_key(configuration): row for configuration, row in recorded.rows.items()}
                self._refuse_changed()
                return
        nearest = self.nearest(problem)
        options = "none" if nearest is None else as_options(kernel, problem, nearest)
        count, shown = str(len(self.recording.problems)), recording_of(kernel)
        if shown is not None and shown.name == f"{self.recording.name}.json.gz" and count != "1":
            count += f" (tune show {kernel.name} lists them)"
        raise NotRecordedError(self.name, str(problem), options, count)

    def _refuse_changed(self) -> None:
        """Refuse a kernel of which no variant is as it was recorded: every trial would say so.

        Raises:
            DeviceError: it has changed.
        """
        firsts = {one.variant: (one, row) for one, row in reversed([*self._recorded.rows.items()])}
        for one, row in firsts.values():
            if not row.source:  # of another tool
                return
            variant = self._kernel.variants.get(one.variant)
            if variant is None or variant.parameters.keys() != one.values.keys():
                continue
            try:
                rendered = render(self._kernel, self._recorded.problem, self.gpu, one)
            except (KernelError, MemoryError):  # a trial says it
                return
            if self._is_of(row, one.variant, tuple(source for source, _ in rendered)):
                return
        remedy = "run it on a GPU, which measures what it is now"
        raise DeviceError(f"{self._kernel.name} has changed since {self.name} was recorded", remedy)

    def nearest(self, problem: Problem) -> Problem | None:
        """Return the recorded problem that is most like one: itself, if it was recorded."""
        held = [recorded.problem for recorded in self.recording.problems]
        return min(held, key=partial(_distance, problem), default=None)

    def recorded_instead(self, kernel: KernelSpec, problem: Problem) -> Problem:
        """Return the recorded problem for one that the user did not choose; say so where that is another one.

        Dtypes and options stay: where they were not recorded, the problem stays, too.
        """
        nearest = self.nearest(problem)
        if kernel.name != self.recording.kernel or nearest in (None, problem):
            return problem
        if (nearest.dtypes, nearest.options) != (problem.dtypes, problem.options):
            return problem
        instead = as_options(kernel, problem, nearest)
        self.say(f"{self.name} does not hold {kernel.name}'s default problem: {instead} instead")
        return nearest

    def _ready(self) -> bool:
        return not self._trials

    def restrict(self, space: SearchSpace) -> SearchSpace:
        """Return the space with what was recorded."""
        return space.restricted(self._recorded.rows)

    def submit(self, number: int, configuration: Configuration, incumbent: Incumbent = no_incumbent) -> None:
        """Look the configuration up, unless the kernel has changed since."""
        row, variant = self._row(configuration), configuration.variant
        try:
            rendered = render(self._kernel, self._recorded.problem, self.gpu, configuration)
            sources = tuple(source for source, _ in rendered)
            options = options_of(self._kernel, self._recorded.problem, self.gpu, configuration)
        except (KernelError, MemoryError) as error:
            memory = isinstance(error, MemoryError)
            status = Status.COMPILE_OOM if memory else Status.COMPILE_ERROR
            why = "out of memory while rendering" if memory else str(error)
            self._trials.append(trial_of(number, configuration, Compilation(status, why)))
            return
        resources = (row.resources,) if row.resources else ()
        implementation = self._identity.implementation(variant, sources, options)
        compilation = Compilation(
            Status.OK, sources=sources, resources=resources, implementation=implementation
        )
        recorded = Measurement(Status.INVALID_CONFIG, error="the kernel has changed since this was recorded")
        if self._is_of(row, variant, sources):
            recorded = _measurement(row)
        self._trials.append(measured(trial_of(number, configuration, compilation), recorded))

    def _is_of(self, row: Row, variant: str, sources: tuple[str, ...]) -> bool:
        return self.recording.row_digest(self._identity, variant, sources) == row.source

    def _row(self, configuration: Configuration) -> Row:
        """Return what was recorded of a configuration; a stored trial may have one that the kernel never had."""
        row = self._rows.get(_key(configuration))
        if row is None:
            raise RecordingError(f"{self.name} does not hold {configuration}", "choose one of the kernel's")
        return row

    def collect(self, timeout_s: float) -> list[Trial]:
        """Return what was submitted."""
        trials, self._trials = self._trials, []
        return trials

    def _race(self, request: RaceRequest) -> Raced | RaceFailed:
        """Draw a recorded sample a round: groups would look surer than the few samples behind them are."""
        draw = random.Random(request.seed)
        recorded = [self._row(one).samples_ns for one in request.configurations]
        return Raced(
            [[[draw.choice(samples_ns)] for samples_ns in recorded] for _ in range(request.rounds)],
            ("replayed",),
        )

    def close(self) -> None:
        """There is nothing to let go of."""


def recording_of(kernel: KernelSpec) -> Path | None:
    """Return the recording of a kernel if that is a built-in one and has one; a user's may have its name."""
    path = find_recording(kernel.name) if kernel.folder == paths.search_spaces() else None
    if path is None or path.with_name(path.name.removesuffix(".json.gz")).is_dir():
        return path
    recorded = read_recording(path).computation
    return path if not recorded or recorded == KernelIdentity(kernel).parts else None


def recorded_options(kernel: KernelSpec) -> list[str]:
    """Return the options that name each problem that can be replayed without a GPU."""
    path = recording_of(kernel)
    if path is None:
        return []
    return [as_options(kernel, kernel.problem(), held.problem) for held in read_recording(path).problems]


def _distance(wanted: Problem, held: Problem) -> tuple[int, float]:
    """Return how far a problem is from another: first by what else it is, then by the factors between their sizes."""
    others = [(wanted.dtypes, held.dtypes), (wanted.options, held.options)]
    sizes = [(size, held.sizes.get(name, 1)) for name, size in wanted.sizes.items()]
    return sum(a != b for a, b in others), sum(abs(math.log2(a / b)) for a, b in sizes)


def as_options(kernel: KernelSpec, wanted: Problem, held: Problem) -> str:
    """Return the options that ask for a held problem in the place of the wanted one.

    A dtype or an option is named unless it is the kernel's default and was wanted.
    """
    default = kernel.problem()
    sizes = ",".join(f"{name}={_short(size)}" for name, size in held.sizes.items())
    texts = [f"--size {sizes}"] if sizes else []
    for index, (role, dtype) in enumerate(held.dtypes.items()):
        free = not isinstance(kernel.dtypes.get(role), str)
        if free and {dtype} != {default.dtypes.get(role), wanted.dtypes.get(role)}:
            texts.append(f"--dtype {role}={dtype}" if index else f"--dtype {dtype}")
    for name, value in held.options.items():
        if {value} != {default.options.get(name), wanted.options.get(name)}:
            texts.append(f"--option {shlex.quote(f'{name}={value}')}")
    return " ".join(texts)


def _short(size: int) -> str:
    """Return a size as one would type it."""
    power = size.bit_length() - 1
    return f"2**{power}" if power >= SHORT_FROM and size == 1 << power else str(size)


def _key(configuration: Configuration) -> tuple[str, frozenset[tuple[str, Value]]]:
    """Return what names a configuration, whatever the order of its parameters, which a kernel's file may change."""
    return configuration.variant, frozenset(configuration.parameters)


def _measurement(row: Row) -> Measurement:
    passed = row.status.ranked
    return Measurement(
        row.status, row.samples_ns, row.error, Verification(passed, checked=passed), tags=("replayed",)
    )
