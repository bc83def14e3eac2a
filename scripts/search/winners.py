"""How good is what a run chooses? Measured on the GPU of this machine, each winner in fresh processes:

    scripts/run python scripts/search/winners.py --work work --out results/evidence --seconds 540

| step | |
|---|---|
| finalists | 20 problems: how far the winner of 200 trials is behind the best of all finalists |
| budget | 8 problems: how far the winner of 50 trials is behind that of 400, each from an empty database |

Contestants are timed in turn, in rounds of random order, in one fresh process after the other. Which finalist is the
best is chosen by the rounds of the other processes, and judged by those of one: a best that was chosen by the same
rounds would be lucky. Where a run chooses by two modes, a time is the geometric mean of both. What was measured is
kept in `--work`, and the same command goes on.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from scripts import harness
from scripts.harness import Study, say, study_parser, today, versions
from scripts.lab import raced
from tuner.cli.options import ProblemTexts
from tuner.cli.problems import make_problems
from tuner.core import paths
from tuner.core.conditions import Conditions, Mode
from tuner.core.errors import TunerError
from tuner.core.model import Configuration, Problem, RunOptions
from tuner.core.observer import Observer
from tuner.database.database import Database
from tuner.devices.base import Device
from tuner.devices.choose import open_device
from tuner.kernel.load import load_kernel
from tuner.kernel.spec import KernelSpec
from tuner.tuning.request import Request
from tuner.tuning.session import tune
from tuner.tuning.state import Finish

PROBLEMS = (
    *(f"gemm {size} float16" for size in ("m=4096,n=4096,k=4096", "m=1024,n=1024,k=1024", "m=512,n=512,k=16384")),
    *(f"gemm {size} bfloat16" for size in ("m=8192,n=8192,k=4096", "m=16,n=8192,k=8192", "m=4095,n=4097,k=4093")),
    *(f"gemm {size} float32" for size in ("m=2048,n=2048,k=2048", "m=256,n=4096,k=1024")),
    *(f"{kernel} n={n} float32" for kernel in ("vector_add", "saxpy", "reduce") for n in (1 << 20, 1 << 26)),
    *(f"transform n={n} float32" for n in (1 << 22, 1 << 26)),
    *(f"mean_matvec groups={n},vectors={n},length={n} float32" for n in (256, 1024)),
    *(f"{kernel} rows=16384,columns=4096 float16" for kernel in ("softmax", "norm")),
)  # fmt: skip
OF_BUDGET = tuple(PROBLEMS[i] for i in (0, 4, 6, 9, 11, 13, 15, 17))
"""Of each built-in kernel one, and three of gemm."""
TRIALS, FEW, MANY = 200, 50, 400
PROCESSES, ROUNDS, SAMPLES = 3, 40, 4
Times = npt.NDArray[np.float64]
"""The times of one process: one row a round, one column a contestant."""


def behind(processes: Sequence[Times], winner: int, best: int | None = None) -> list[float]:
    """Return a winner's time over that of the best contestant, once for each process.

    Args:
        processes: two or more.
        winner: its column.
        best: the best one's; None to choose it by the rounds of the other processes.
    """
    found = []
    for number, own in enumerate(processes):
        others = np.concatenate([one for at, one in enumerate(processes) if at != number])
        ratios = np.median(others / others[:, [winner]], axis=0)
        against = int(np.argmin(ratios)) if best is None else best
        found.append(float(np.median(own[:, winner] / own[:, against])))
    return found


def problem_of(text: str) -> tuple[KernelSpec, Problem]:
    """Return the kernel and the problem of a text: name, sizes, dtype."""
    name, sizes, dtype = text.split()
    kernel = load_kernel(name)
    (problem,) = make_problems(kernel, ProblemTexts([sizes], [dtype]))
    return kernel, problem


class Winners(Study):
    """The steps.

    Args:
        work: folder of what is known.
        seconds: as of a study.
        only: words of the problems that are wanted; none for all.
        opened: opens the GPU, in new processes, with so many compilers.
        jobs: compilers of a search; None for one a core.
    """

    def __init__(
        self,
        work: Path,
        seconds: float,
        only: Sequence[str],
        opened: Callable[[int | None], Device],
        jobs: int | None = None,
    ) -> None:
        super().__init__(work / "winners.json", seconds, finalists={}, budget={})
        self._only, self._open, self._jobs, self._conditions = only, opened, jobs, Conditions()

    def _finalists(self) -> None:
        self._each("finalists", PROBLEMS, self._regret)

    def _budget(self) -> None:
        self._each("budget", OF_BUDGET, self._of_budget)

    def _each(
        self, step: str, problems: Sequence[str], measured: Callable[[KernelSpec, Problem], dict[str, Any]]
    ) -> None:
        known = self.data[step]
        for text in problems:
            if text in known or not all(word in text for word in self._only) or not self.has_time():
                continue
            try:
                known[text] = measured(*problem_of(text))
            except TunerError as error:  # a finding: the others are measured all the same
                self.failures.append(f"{text}: {error}")
                say(self.failures[-1])
                continue
            self.keep(**{step: known})
            print(f"{text}: {float(np.mean(known[text]['behind'])):.4f}, {known[text]['chosen']}", flush=True)

    def _regret(self, kernel: KernelSpec, problem: Problem) -> dict[str, Any]:
        finish = self._tuned(kernel, problem, TRIALS, 0)
        contestants = [configuration for configuration, _ in finish.medians_ns]
        winner = contestants.index(finish.winner.configuration)
        processes = self._raced(kernel, problem, contestants, finish)
        times = [[float(one) for one in np.median(own, axis=0)] for own in processes]
        return {
            "gpu": self.data["gpu"],
            "behind": behind(processes, winner),
            "said": finish.behind,
            "rounds": finish.rounds,
            "chosen": str(contestants[winner]),
            "contestants": [str(one) for one in contestants],
            "times_ns": times,
        }

    def _of_budget(self, kernel: KernelSpec, problem: Problem) -> dict[str, Any]:
        few, many = (self._tuned(kernel, problem, trials, seed) for seed, trials in enumerate((FEW, MANY)))
        chosen, best = few.winner.configuration, many.winner.configuration
        found = [1.0]
        if chosen != best:
            found = behind(self._raced(kernel, problem, [chosen, best], many), 0, 1)
        return {"behind": found, "chosen": str(chosen), "of_many": str(best)}

    def _tuned(self, kernel: KernelSpec, problem: Problem, trials: int, seed: int) -> Finish:
        """Return how a run from an empty database ends.

        Raises:
            TunerError: it has no winner.
        """
        request = Request(kernel, problem, RunOptions(trials=trials, seed=seed))
        with tempfile.TemporaryDirectory() as folder, closing(self._open(self._jobs)) as device:
            with Database.open(Path(folder) / "run.db") as database:
                result = tune(request, device, database, Observer())
            self.data.setdefault("gpu", device.gpu.name)
            self.data.setdefault("driver", device.gpu.driver)
            self._conditions = device.conditions
        if result.finish is None or not result.finish.exportable:
            raise TunerError("no winner was confirmed")
        return result.finish

    def _raced(
        self, kernel: KernelSpec, problem: Problem, contestants: Sequence[Configuration], finish: Finish
    ) -> list[Times]:
        """Return the times of contestants in one fresh process after the other."""
        modes: list[Mode | None] = [None, *([Mode.WARM] if finish.warm is not None else [])]
        processes = []
        for seed in range(PROCESSES):
            with closing(self._open(1)) as device:  # all is in the cache
                device.prepare(kernel, problem, seed + 1, self._conditions)
                of_modes = [
                    np.array(raced(device, contestants, ROUNDS, SAMPLES, seed, mode)).T for mode in modes
                ]
            processes.append(np.exp(np.mean(np.log(of_modes), axis=0)))
        return processes

    @property
    def summary(self) -> dict[str, Any]:
        """The geometric mean and the worst of each step, over its problems."""
        found: dict[str, Any] = {}
        for step in ("finalists", "budget"):
            ratios = {text: float(np.mean(row["behind"])) for text, row in self.data[step].items()}
            if ratios:
                worst = max(ratios, key=lambda text: ratios[text])
                found[step] = {
                    "problems": len(ratios),
                    "geomean": float(np.exp(np.mean(np.log(list(ratios.values()))))),
                    "worst": ratios[worst],
                    "worst_problem": worst,
                }
        return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what is left, and write what there is; return 1 if something failed."""
    options = study_parser(__doc__, ("finalists", "budget"), "winners")
    options.add_argument("--only", type=harness.listed(), default="", help="problems with these words")
    options.add_argument("--jobs", type=int, help="compiling processes")
    given = options.parse_args(arguments)

    def opened(jobs: int | None) -> Device:
        return open_device("cuda", "gemm", jobs, paths.cubins())

    study = Winners(given.work, given.seconds, given.only, opened, given.jobs)
    study.run(given.steps)
    for step, row in study.summary.items():
        print(
            f"{step}: {row['problems']} problems, geometric mean {row['geomean']:.4f}, worst {row['worst']:.4f} "
            f"({row['worst_problem']})"
        )
    about = {"day": today(), **versions("kernel-tune", "nvrtc")}
    harness.write(given.out, "winners", about | study.data | {"summary": study.summary})
    return 1 if study.failures else 0


if __name__ == "__main__":
    harness.run(main, gpu=True)
