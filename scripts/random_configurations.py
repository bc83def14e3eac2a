"""Draws random configurations of the built-in kernels, at edge-case sizes, and checks every result on the GPU.

    scripts/run python scripts/random_configurations.py
    scripts/run python scripts/random_configurations.py --count 5000 --seed 1 --kernels reduce,transform --json

Kernels, variants, dtypes and options come in turn; sizes and parameters are drawn. Sizes share no factor with any tile,
or, in every second pair of problems, are eight times such a number, so that variants which want whole vectors are not
left out; nor are those that want few rows or columns. Each configuration is rendered, compiled, run on poisoned
outputs, compared element by element with the reference, and timed once: what a search does with a hopeless one.

A configuration that the compiler's report rules out is refused, as in a search. Any other outcome than a right result
is a failure: it is printed with all that is needed to repeat it, and the exit status is 1.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tuner.core import paths
from tuner.core.errors import SpaceError, TunerError
from tuner.core.model import Configuration, Gpu, Measurement, Problem, Status, Value
from tuner.devices.base import Device, Outcome
from tuner.devices.choose import has_gpu
from tuner.kernel.load import builtin_kernels, load_kernel
from tuner.kernel.plan import tensors_of
from tuner.kernel.roofline import roof_of
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec
from tuner.kernel.variant_spec import VariantSpec

GROUP = 16
"""Configurations of one problem: preparing its data costs as much as measuring a few of them."""
TRIES = 3000
"""Draws until a variant's valid configurations are enumerated instead."""
SMALL, LARGE = 1 << 16, 1 << 22
"""Most elements of the largest tensor: of three problems in four, and of the fourth."""
MOST_FLOPS = 1 << 31
FEW = 16
SMALL_PRIMES = 2 * 3 * 5 * 7 * 11 * 13
"""Sizes have none of its factors."""
EXPRESSIONS = {
    1: ("x + 0.5 * (20 - x)", "x", "sqrt(abs(x)) * 3 - 1", "where(x > 0, x, 0.1 * x)", "tanh(x) + x ** 3"),
    2: ("x * y + 1", "maximum(x, y) - minimum(x, y)", "x / (1 + abs(y))", "sin(x) * cos(y)"),
    3: ("x * y + z", "where(x > y, z, -z)", "x + 2 * y - 0.5 * z"),
}  # fmt: skip
"""For options that are element expressions, by the number of tensors that they use."""
NOT_TIMED = (Status.TOO_FAST, Status.CLOCK_MISMATCH)
"""Right, but the time is not to be believed: no matter here."""
SILENT_S = 120.0
"""Without an answer for so long the device is given up; a kernel that hangs is killed long before."""


@dataclass(frozen=True)
class Case:
    """One configuration of one problem."""

    problem: Problem
    configuration: Configuration


@dataclass(frozen=True)
class Failure:
    """A case that did not give a right result."""

    case: Case
    status: str
    error: str

    def to_json(self) -> dict[str, Any]:
        return {
            "problem": self.case.problem.to_json(),
            "variant": self.case.configuration.variant,
            "parameters": self.case.configuration.values,
            "status": self.status,
            "error": self.error,
        }

    def __str__(self) -> str:
        configuration = self.case.configuration
        return f"{self.case.problem} | {configuration}: {self.status}: {self.error}"


@dataclass
class Tally:
    """What became of the cases so far."""

    outcomes: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """By kernel, variant, and ``ok``, ``refused``, ``untimed`` or ``failed``."""
    failures: list[Failure] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    """Why configurations were refused."""

    def add(self, case: Case, measurement: Measurement) -> None:
        word = verdict(measurement)
        self.outcomes[case.problem.kernel, case.configuration.variant, word] += 1
        if word == "refused":
            self.reasons[measurement.error] += 1
        if word == "failed":
            self.failures.append(Failure(case, str(measurement.status), measurement.error))

    @property
    def done(self) -> int:
        return sum(self.outcomes.values())

    def rows(self) -> list[tuple[Any, ...]]:
        """Return kernel, variant, tried, ok, refused, untimed, failed."""
        pairs = sorted({(kernel, variant) for kernel, variant, _ in self.outcomes})
        found: list[tuple[Any, ...]] = []
        for kernel, variant in pairs:
            counts = [self.outcomes[kernel, variant, word] for word in ("ok", "refused", "untimed", "failed")]
            found.append((kernel, variant, sum(counts), *counts))
        return found


def verdict(measurement: Measurement) -> str:
    """Return ``ok``, ``refused``, ``untimed`` or ``failed``."""
    if measurement.status.ranked:
        return "ok"
    if measurement.status is Status.INVALID_CONFIG:
        return "refused"
    if measurement.status is Status.LAUNCH_ERROR and "not one block fits" in measurement.error:
        return "refused"
    return "untimed" if measurement.status in NOT_TIMED else "failed"


# -- drawing


def edge_case_size(rng: random.Random, least: int, most: int, factor: int) -> int:
    """Draw a size, evenly over its logarithm, which is ``factor`` times an edge case; one in ten is less than all."""
    if rng.random() < 0.1:
        return factor * rng.randint(1, max(1, least // factor))
    size = int(math.exp(rng.uniform(math.log(factor * least), math.log(most)))) // factor
    while math.gcd(size, SMALL_PRIMES) != 1:
        size += 1
    return factor * size


def draw_problem(kernel: KernelSpec, gpu: Gpu, rng: random.Random, turn: int) -> Problem:
    """Draw sizes, dtypes and options: dtypes and options in turn, so that few cases have all of them."""
    choices = {role: given for role, given in kernel.dtypes.items() if not isinstance(given, str)}
    dtypes = {role: given[turn % len(given)] for role, given in choices.items()}
    options: dict[str, Value] = {}
    for name, values in kernel.options.items():
        options[name] = (
            rng.choice(EXPRESSIONS[rng.choice(list(EXPRESSIONS))])
            if name in kernel.elements
            else values[turn // 3 % len(values)]
        )
    large = turn % 4 == 3
    factor = 8 if turn % 4 >= 2 else 1  # not in step with three dtypes
    for _ in range(1000):
        ends = (SMALL // 8, LARGE) if large else (FEW, SMALL)
        if len(kernel.sizes) > 1:
            ends = (FEW, 4096)  # what their product may be is seen below
        each = {name: edge_case_size(rng, *ends, factor) for name in kernel.sizes}
        if len(kernel.sizes) > 1 and turn % 5 in (1, 2, 4):  # few rows, or few of what the second size counts
            each[list(kernel.sizes)[turn % 5 == 2]] = rng.randint(1, 8)
        problem = kernel.problem(each, dtypes, options)
        largest = max(tensor.count for tensor in tensors_of(kernel, problem, gpu))
        if largest <= (LARGE if large else SMALL) and roof_of(kernel, problem, gpu).flops <= MOST_FLOPS:
            return problem
    raise AssertionError(f"{kernel.name} has no small problems")


def draw_configuration(
    kernel: KernelSpec, variant: VariantSpec, problem: Problem, gpu: Gpu, rng: random.Random
) -> Configuration | None:
    """Draw a configuration that meets the constraints; None where there is none."""
    names = kernel.environment(problem, gpu)
    for _ in range(TRIES):
        values = {name: rng.choice(parameter.values) for name, parameter in variant.parameters.items()}
        if all(condition.holds({**names, **values}) for _, condition in variant.constraints_before):
            return Configuration.of(variant.name, values)
    try:
        space = SearchSpace.from_kernel(kernel, problem, gpu, [variant.name], seed=rng.randrange(1 << 30))
    except SpaceError:
        return None
    return space.variants[0].configuration(rng.randrange(len(space)))


def draw_groups(
    kernels: Sequence[KernelSpec], gpu: Gpu, count: int, seed: int
) -> Iterator[tuple[KernelSpec, Problem, list[Configuration]]]:
    """Draw problems, each with configurations of those variants that had fewest so far, until there are enough.

    The problems do not depend on how often a configuration had to be drawn.
    """
    rng = random.Random(seed)
    drawn: Counter[tuple[str, str]] = Counter()
    left, idle = count, 0
    for turn in itertools.count():
        kernel = kernels[turn % len(kernels)]
        problem = draw_problem(kernel, gpu, rng, turn // len(kernels))
        usable = kernel.usable_variants(problem, gpu)[0]
        of_problem = random.Random(f"{seed} {turn}")
        found: dict[Configuration, None] = {}
        for _ in range(2 * GROUP if usable else 0):
            if len(found) == min(GROUP, left):
                break
            variant = min(usable, key=lambda one: drawn[kernel.name, one.name])
            drawn[kernel.name, variant.name] += 1
            configuration = draw_configuration(kernel, variant, problem, gpu, of_problem)
            if configuration is not None:
                found[configuration] = None
        if found:
            yield kernel, problem, list(found)
        left -= len(found)
        idle = 0 if found else idle + 1
        if left <= 0 or idle > 100:
            return


# -- running


def run_group(
    device: Device,
    kernel: KernelSpec,
    problem: Problem,
    chosen: Sequence[Configuration],
    seed: int,
    tally: Tally,
) -> None:
    """Measure configurations of one problem.

    Raises:
        TunerError: the device has nothing more to say.
    """
    try:
        device.prepare(kernel, problem, seed)
    except TunerError as error:
        for configuration in chosen:
            failed = Measurement(Status.UNVERIFIED, error=f"the problem cannot be prepared: {error}")
            tally.add(Case(problem, configuration), failed)
        return
    for number, configuration in enumerate(chosen):
        device.submit(number, configuration, lambda: 1.0)  # so everything is hopelessly slow, and timed once
    waiting, heard = len(chosen), time.monotonic()
    while waiting:
        outcomes: list[Outcome] = device.collect(1.0)
        for outcome in outcomes:
            tally.add(Case(problem, outcome.configuration), outcome.measurement)
        waiting -= len(outcomes)
        heard = time.monotonic() if outcomes else heard
        if time.monotonic() - heard > SILENT_S:
            raise TunerError(f"{problem}: no answer for {SILENT_S:.0f} s", "see `tune doctor`")


def run_all(device: Device, kernels: Sequence[KernelSpec], given: argparse.Namespace, tally: Tally) -> bool:
    """Go through all groups; gives whether it was stopped by the budget."""
    began = time.monotonic()
    for seed, (kernel, problem, chosen) in enumerate(
        draw_groups(kernels, device.gpu, given.count, given.seed)
    ):
        run_group(device, kernel, problem, chosen, seed, tally)
        spent = time.monotonic() - began
        _progress(tally, given.count, spent)
        if given.seconds and spent > given.seconds:
            return bool(tally.done < given.count)
    return False


def _progress(tally: Tally, count: int, spent_s: float) -> None:
    share = min(tally.done / count, 1.0)
    left_s = spent_s / share * (1.0 - share) if share else 0.0
    text = f"{tally.done} of {count} in {spent_s:.0f} s, {left_s:.0f} s left, {len(tally.failures)} failed"
    end = "\r" if sys.stderr.isatty() else "\n"
    print(f"{text:<72}", end=end, file=sys.stderr, flush=True)


# -- reporting


def report(tally: Tally, device: Device, spent_s: float, stopped: bool, seed: int) -> str:
    """Return the table and the failures as text."""
    head = ("kernel", "variant", "tried", "ok", "refused", "untimed", "failed")
    rows: list[tuple[Any, ...]] = [head, *tally.rows()]
    totals = [sum(row[i] for row in tally.rows()) for i in range(2, 7)]
    rows.append(("all", "", *totals))
    widths = [max(len(str(row[i])) for row in rows) for i in range(7)]
    lines = [
        "  ".join(
            str(cell).ljust(width) if i < 2 else str(cell).rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    lines += ["", *(f"refused {count} times: {reason}" for reason, count in tally.reasons.most_common())]
    lines += [f"FAILED {failure}" for failure in tally.failures]
    stop = ", stopped by --seconds" if stopped else ""
    lines.append(f"{tally.done} configurations in {spent_s:.0f} s on {device.gpu.name}, seed {seed}{stop}")
    lines.append("FAILED" if tally.failures else "PASSED")
    return "\n".join(lines)


def report_json(tally: Tally, device: Device, spent_s: float, stopped: bool, seed: int) -> str:
    """Return the same as JSON."""
    columns = ("kernel", "variant", "tried", "ok", "refused", "untimed", "failed")
    plain: Mapping[str, Any] = {
        "gpu": dataclasses.asdict(device.gpu),
        "versions": dict(device.versions),
        "seed": seed,
        "seconds": round(spent_s, 1),
        "stopped": stopped,
        "passed": not tally.failures,
        "variants": [dict(zip(columns, row, strict=True)) for row in tally.rows()],
        "refused": dict(tally.reasons),
        "failures": [failure.to_json() for failure in tally.failures],
    }
    return json.dumps(plain, indent=2)


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1000, help="configurations (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, help="of everything that is drawn (default: 0)")
    parser.add_argument("--seconds", type=float, default=0.0, help="begin nothing new after so long")
    parser.add_argument(
        "--kernels", default="", help="names with commas between (default: all built-in ones)"
    )
    parser.add_argument("--device", type=int, default=0, help="number of the GPU (default: 0)")
    parser.add_argument("--jobs", type=int, default=None, help="compiling processes (default: one a core)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args(words)
    if given.count < 1:
        parser.error("--count is a whole number from 1 up")
    return given


def main(words: Sequence[str] | None = None) -> int:
    """Run; gives 0 where every result was right, 1 where one was not, 2 where nothing could be run."""
    given = parse(words)
    try:
        names = [name.strip() for name in given.kernels.split(",") if name.strip()] or builtin_kernels()
        kernels = [load_kernel(name) for name in names]
        if not has_gpu():
            raise TunerError("this machine has no NVIDIA GPU", "run it on one that has")  # noqa: TRY301
        from tuner.devices.local import LocalDevice

        device = LocalDevice(given.device, given.jobs, paths.cache() / "cubins", say=say)
    except TunerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return check(device, kernels, given)


def say(text: str) -> None:
    """Print a line beside the results."""
    print(text, file=sys.stderr, flush=True)


def check(device: Device, kernels: Sequence[KernelSpec], given: argparse.Namespace) -> int:
    """Run everything on a device, print what was found, and close it."""
    tally, began, stopped, error = Tally(), time.monotonic(), False, ""
    try:
        stopped = run_all(device, kernels, given, tally)
    except TunerError as ended:
        error = str(ended)
    except KeyboardInterrupt:
        error = "interrupted"
    finally:
        device.close()
    text = report_json if given.json else report
    print(text(tally, device, time.monotonic() - began, stopped, given.seed))
    if error:
        print(f"error: {error}", file=sys.stderr)
    return 1 if tally.failures or error else 0


if __name__ == "__main__":
    sys.exit(main())
