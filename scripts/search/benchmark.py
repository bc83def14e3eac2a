"""Replays recorded spaces with many seeds, and says how soon each sampler finds what is within 5 % of the best.

scripts/run python scripts/search/benchmark.py FOLDER... --samplers gp-ei,tpe,random --seeds 20

A folder may hold recordings of this tool, Kernel Tuner's cache files and T4 files, and T1 files beside them. The
recorded configurations are the valid set. One evaluation is one configuration that was not tried before, whether it
then fails or not. The fraction is the best recorded time over the best time found. A run begins with a random
configuration (``--first default``: with the default), and ends when it has found the best one.

``--stop 0.002,0.005 --patience 10,20`` says instead what ``tune run --stop auto`` would save and lose at these noise
floors: every run goes through all trials, and the loss is how much longer the best time is that was found by the stop.

``--ahead 24`` tells each result when 24 configurations have been asked for since, as with compilers that work ahead;
``--compilers 16 --seconds 0.3,0.1`` lets the search nominate and choose as in a run whose candidates take so long to
compile and to time.
"""

# ruff: noqa: E402 - threads are settled before NumPy is loaded
from __future__ import annotations

import argparse
import copy
import json
import multiprocessing
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np

from tuner import __version__
from tuner.devices.base import Compiled
from tuner.formats.foreign_recording import read_json
from tuner.formats.kernel_tuner_cache import is_cache, read_cache
from tuner.formats.recording import read_recording, recorded_kernel
from tuner.formats.t1 import read_t1
from tuner.formats.t4 import is_t4, read_t4
from tuner.kernel.load import load_kernel
from tuner.model import Configuration
from tuner.search.kernel_initial import settle
from tuner.search.samplers import make_search
from tuner.search.stopping import PATIENCE, StoppingCriterion
from tuner.search.study import Search
from tuner.space.space import SearchSpace
from tuner.tuning.shortlist import Shortlist

BUDGETS = (25, 50, 100, 200)
NEAR = 1.05


@dataclass(frozen=True)
class Case:
    """A recorded space, with the time of each configuration."""

    name: str
    space: SearchSpace
    times: tuple[np.ndarray, ...]
    """For each variant the time of each row in nanoseconds; not a number for a failure."""
    initial: tuple[Configuration, ...] = ()
    """What the kernel's file would have tried first, as far as it is recorded."""

    @property
    def kernel(self) -> str:
        """What a case has in common with those that can teach it: the kernel, and its dtype and options."""
        name, _, problem = self.name.partition(":")
        return name.split("-")[0] + ",".join(
            part for part in problem.split(",") if not part[-1].isdigit() or "=" not in part
        )

    @property
    def best(self) -> float:
        return float(min(np.nanmin(times) for times in self.times if not np.isnan(times).all()))


def case_of(
    name: str,
    space: SearchSpace,
    recorded: Mapping[Configuration, float | None],
    initial: tuple[Configuration, ...] = (),
) -> Case:
    times = tuple(np.full(len(variant), np.nan) for variant in space.variants)
    for configuration, time_ns in recorded.items():
        if time_ns and (location := space.locate(configuration)) is not None:
            times[location[0]][location[1]] = time_ns
    return Case(name, space, times, initial)


def cases_of(path: Path) -> list[Case]:
    """Read a file; what is no recording gives nothing."""
    data = read_json(path)
    if isinstance(data, dict) and "format" in data:
        recording = read_recording(path)
        kernel, found = load_kernel(recorded_kernel(path, recording.kernel)), []
        for recorded in recording.problems:
            space = SearchSpace.from_kernel(kernel, recorded.problem, recording.gpu).restricted(recorded.rows)
            times = {c: median(r.samples_ns) if r.status.ranked else None for c, r in recorded.rows.items()}
            problem = str(recorded.problem).replace(" ", ",")
            settled = settle(kernel, recorded.problem, recording.gpu, space)
            initial = tuple(one.configuration for one in settled if one.configuration)
            found.append(case_of(f"{recording.name}:{problem}", space, times, initial))
        return found
    defaults = {}
    for other in sorted(path.parent.glob("*.T1.json")):
        if path.name.startswith(other.name.removesuffix(".T1.json") + "-"):
            defaults = read_t1(other).defaults
    if is_cache(data):
        foreign = read_cache(path, data, defaults)
    elif is_t4(data):
        foreign = read_t4(path, data, defaults)
    else:
        return []
    times = {foreign.configuration(row): time_ns for row, time_ns in foreign.times_ns.items()}
    return [case_of(foreign.name, foreign.space(), times)]


def read_cases(paths: list[Path], only: list[str]) -> list[Case]:
    cases: dict[str, Case] = {}
    for given in paths:
        for path in sorted(given.iterdir()) if given.is_dir() else [given]:
            if path.suffix not in (".json", ".gz") or path.name.endswith(".T1.json"):
                continue
            stem = path.name.split(".json")[0]
            if stem.endswith("_T4") and stem.removesuffix("_T4") in cases:
                continue  # the same measurements in another format
            if not only or any(word in stem for word in only):
                cases |= {case.name: case for case in cases_of(path)}
    return list(cases.values())


@dataclass(frozen=True)
class Job:
    case: int
    sampler: str
    seed: int
    trials: int
    batch: int
    random_first: bool
    warm: int
    seeded: bool = False
    rules: tuple[tuple[float, int], ...] = ()
    """Noise floors and patiences to stop by."""
    ahead: int = 0
    """Configurations that are asked for before the first of them is told; 0 for batches."""
    compilers: int = 0
    """With which a shortlist is kept; 0 for none."""
    seconds: tuple[float, float] = (0.0, 0.0)
    """That a candidate takes to compile and to time."""


class Ready:
    """Compiles at once: what may be chosen when is a matter of counts."""

    def __init__(self, compilers: int) -> None:
        self.compilers, self.lookahead = compilers, compilers + 8

    def compile(self, configuration: Configuration) -> None:
        pass

    def compiled(self, configuration: Configuration) -> Compiled:  # noqa: ARG002
        return Compiled(failed=False)

    def forget(self, configuration: Configuration) -> None:
        pass


CASES: list[Case] = []


def replay(job: Job) -> dict[str, Any]:
    """One run: the best time after each evaluation, and the processor time of a suggestion."""
    case = CASES[job.case]
    space = copy.copy(case.space)
    rng = np.random.default_rng(job.seed)
    if job.random_first:
        number = int(rng.integers(len(space.variants)))
        space.default = space.variants[number].configuration(int(rng.integers(len(space.variants[number]))))
    search = make_search(job.sampler, space, job.seed)
    if job.warm:
        teach(search, job)
    if job.seeded:
        search.begin_with(case.initial)
    criteria = {rule: criterion_of(*rule) for rule in job.rules}
    stops: dict[tuple[float, int], int] = {}
    best, found = case.best, np.inf
    trajectory: list[float] = []
    spent = 0.0

    def measure(configuration: Configuration) -> float | None:
        nonlocal found
        location = space.locate(configuration)
        assert location is not None
        time_ns = float(case.times[location[0]][location[1]])
        found = min(found, time_ns) if time_ns == time_ns else found
        trajectory.append(found)
        return time_ns if time_ns == time_ns else None

    if job.ahead or job.compilers:
        began = time.process_time()
        late(search, job, measure, lambda: found <= best)
        spent = time.process_time() - began
    while not (job.ahead or job.compilers) and len(trajectory) < job.trials and (found > best or criteria):
        asked = []
        for _ in range(min(job.batch, job.trials - len(trajectory))):
            began = time.process_time()
            configuration = search.ask()
            spent += time.process_time() - began
            if configuration is None:
                break
            asked.append(configuration)
            for criterion in criteria.values():
                criterion.asked(search.expected_improvement)
        for configuration in asked:
            time_ns = measure(configuration)
            search.tell(configuration, time_ns)
            for criterion in criteria.values():
                criterion.told(time_ns)
        for rule, criterion in criteria.items():
            if criterion.reached:
                stops.setdefault(rule, len(trajectory))
        if not asked:
            break
    near = next((i + 1 for i, t in enumerate(trajectory) if t <= NEAR * best), None)
    fractions = [best / trajectory[min(b, len(trajectory)) - 1] for b in BUDGETS]
    return {
        "space": case.name,
        "sampler": job.sampler,
        "seed": job.seed,
        "near": near,
        "fractions": fractions,
        "ms": 1000 * spent / max(len(trajectory), 1),
        "stops": [
            {
                "noise_floor": rule[0],
                "patience": rule[1],
                "trials": (end := stops.get(rule, len(trajectory))),
                "of": len(trajectory),
                "loss": trajectory[end - 1] / trajectory[-1] - 1,
            }
            for rule in job.rules
        ],
    }


def late(
    search: Search, job: Job, measure: Callable[[Configuration], float | None], done: Callable[[], bool]
) -> None:
    """One run whose results come late: in the order asked, or chosen from a shortlist."""
    shortlist = Shortlist(search, Ready(job.compilers)) if job.compilers else None  # type: ignore[arg-type]
    under_way: deque[tuple[Configuration, float | None]] = deque()
    for number in range(job.trials):
        if shortlist and not search.opening:
            shortlist.fill(job.trials - number)
            configuration = None if shortlist.empty else search.ask(shortlist.choose())
        else:
            configuration = search.ask()
        if configuration is None or done():
            return
        under_way.append((configuration, measure(configuration)))
        while len(under_way) >= (shortlist.depth if shortlist else job.ahead):
            search.tell(*under_way.popleft())
            if shortlist:
                shortlist.told(*job.seconds)


def criterion_of(noise_floor: float, patience: int) -> StoppingCriterion:
    return StoppingCriterion(lambda time_ns: noise_floor, patience)  # noqa: ARG005 - recordings know one for all times


def teach(search: Search, job: Job) -> None:
    """Let another search of the same kernel elsewhere run first, and hand on what it found."""
    others = [case for i, case in enumerate(CASES) if i != job.case and case.kernel == CASES[job.case].kernel]
    if not others:
        return
    other = others[job.seed % len(others)]
    earlier = make_search(job.sampler, other.space, job.seed + 1000)
    found = []
    for _ in range(job.warm):
        if (configuration := earlier.ask()) is None:
            break
        location = other.space.locate(configuration)
        assert location is not None
        time_ns = float(other.times[location[0]][location[1]])
        told = time_ns if time_ns == time_ns else None
        earlier.tell(configuration, told)
        found.append((configuration, told))
    search.learn(found, distance=1.0)


def summarise(runs: list[dict[str, Any]], trials: int) -> dict[str, Any]:
    near = [run["near"] or np.inf for run in runs]
    fractions = np.array([run["fractions"] for run in runs])
    return {
        "runs": len(runs),
        "to_5_percent": float(np.median(near)),
        "to_5_percent_p90": float(np.quantile(near, 0.9, method="lower")),
        "hit_rate": float(np.mean([n <= trials for n in near])),
        "fraction_median": np.median(fractions, axis=0).tolist(),
        "fraction_p10": np.quantile(fractions, 0.1, axis=0).tolist(),
        "ms": float(np.mean([run["ms"] for run in runs])),
    }


def number(value: float) -> str:
    return f"{value:.1f}" if np.isfinite(value) else "-"


def table(runs: list[dict[str, Any]], samplers: list[str], names: list[str], trials: int) -> dict[str, Any]:
    shown = [b for b in BUDGETS if b <= trials]
    wide = max(map(len, names), default=5)
    result: dict[str, Any] = {}
    for sampler in samplers:
        print(f"\n{sampler}")
        heads = "".join(f"{f'at {b}':>15}" for b in shown)
        print(f"{'space':{wide}}{'to 5 %':>8}{'p90':>7}{'hit':>6}{heads}{'ms':>7}")
        spaces = {
            n: summarise([r for r in runs if (r["sampler"], r["space"]) == (sampler, n)], trials)
            for n in names
        }
        whole = summarise([r for r in runs if r["sampler"] == sampler], trials)
        headline = float(np.median([s["to_5_percent"] for s in spaces.values()]))
        for name, s in [*spaces.items(), ("all runs", whole)]:
            pairs = zip(s["fraction_median"], s["fraction_p10"], strict=True)
            cells = "".join(f"{m:>8.3f} /{p:.3f}" for (m, p), _ in zip(pairs, shown, strict=False))
            p90, hit = number(s["to_5_percent_p90"]), f"{100 * s['hit_rate']:.0f}%"
            print(f"{name:{wide}}{number(s['to_5_percent']):>8}{p90:>7}{hit:>6}{cells}{s['ms']:>7.1f}")
        print(f"median over spaces of each space's median to 5 %: {number(headline)}")
        result[sampler] = {"headline": headline, "all": whole, "spaces": spaces}
    return result


def stopping_table(runs: list[dict[str, Any]], names: list[str]) -> None:
    """Say for each noise floor and patience what stopping saves and what it loses."""
    wide = max(map(len, names), default=5)
    for index, rule in enumerate(runs[0]["stops"]):
        floor = rule["noise_floor"]
        print(f"\nnoise floor {100 * floor:g} %, {rule['patience']} proposals in a row")
        heads = (
            f"{'stopped after':>15}{'earliest':>10}{'latest':>8}{'saved':>7}{'same best':>11}{'> floor':>9}"
        )
        print(f"{'space':{wide}}{heads}{'mean loss':>11}{'p90':>8}{'worst':>8}")
        for name in [*names, "all runs"]:
            stops = [run["stops"][index] for run in runs if name in (run["space"], "all runs")]
            trials, losses = [stop["trials"] for stop in stops], [stop["loss"] for stop in stops]
            saved = 1 - sum(trials) / sum(stop["of"] for stop in stops)
            counts = (
                f"{sum(loss <= 0 for loss in losses)}/{len(losses)}",
                sum(loss > floor for loss in losses),
            )
            late = 100 * np.mean(losses), 100 * np.quantile(losses, 0.9, method="higher"), 100 * max(losses)
            print(
                f"{name:{wide}}{np.median(trials):>15.1f}{min(trials):>10}{max(trials):>8}{saved:>7.0%}"
                f"{counts[0]:>11}{counts[1]:>9}{late[0]:>9.2f} %{late[1]:>6.2f} %{late[2]:>6.2f} %"
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="+", type=Path, help="folders of recordings, or files")
    parser.add_argument("--samplers", default="gp-ei,tpe,random")
    parser.add_argument("--spaces", default="", help="only files with one of these words in their names")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--batch", type=int, default=1, help="ask for so many before telling")
    parser.add_argument("--first", choices=["random", "default"], default="random")
    parser.add_argument(
        "--warm", type=int, default=0, help="trials of an earlier run on another space of the kernel"
    )
    parser.add_argument(
        "--seeded", action="store_true", help="begin with the initial configurations of the kernel's file, where there are any"
    )
    parser.add_argument(
        "--stop", default="", help="noise floors at which to try an early stop, such as 0.002"
    )
    parser.add_argument("--patience", default=str(PATIENCE), help="proposals in a row that must promise less")
    parser.add_argument("--ahead", type=int, default=0, help="results are told so many questions late")
    parser.add_argument("--compilers", type=int, default=0, help="choose from a shortlist, as with so many")
    parser.add_argument("--seconds", default="0.3,0.1", help="to compile and to time, with --compilers")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", type=Path, help="every run, and the table")
    given = parser.parse_args()
    CASES.extend(read_cases(given.paths, [word for word in given.spaces.split(",") if word]))
    samplers = given.samplers.split(",")
    compile_s, measure_s = (float(word) for word in given.seconds.split(","))
    seconds = (compile_s, measure_s)
    rules = tuple(
        (float(floor), int(patience))
        for floor in given.stop.split(",")
        for patience in given.patience.split(",")
        if floor
    )
    jobs = [
        Job(
            i,
            sampler,
            seed,
            given.trials,
            given.batch,
            given.first == "random",
            given.warm,
            given.seeded,
            rules,
            given.ahead,
            given.compilers,
            seconds,
        )
        for sampler in samplers
        for i in range(len(CASES))
        for seed in range(given.first_seed, given.first_seed + given.seeds)
    ]
    with multiprocessing.get_context("fork").Pool(given.jobs) as pool:
        runs = []
        for run in pool.imap_unordered(replay, jobs):
            runs.append(run)
            print(f"\r{len(runs)}/{len(jobs)}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    runs.sort(key=lambda run: (samplers.index(run["sampler"]), run["space"], run["seed"]))
    first = "a random one first" if given.first == "random" else "the default first"
    how = f"batches of {given.batch}"
    if given.compilers:
        how = f"{given.compilers} compilers, {compile_s:g} s to compile and {measure_s:g} s to time"
    elif given.ahead:
        how = f"results {given.ahead} questions late"
    print(
        f"kernel-tune {__version__}: {given.seeds} seeds from {given.first_seed}, {how}, {first}"
        + (f", taught by {given.warm} trials of another size or GPU" if given.warm else "")
        + (", the kernel's initial configurations first" if given.seeded else "")
    )
    names = [case.name for case in CASES]
    for case in CASES:
        sure = np.concatenate(case.times)
        near = int(np.sum(sure <= NEAR * case.best))
        print(
            f"  {case.name}: {len(sure)} configurations, {int(np.isnan(sure).sum())} fail, {near} within 5 %"
            + (f", {len(case.initial)} initial configurations" if given.seeded else "")
        )
    result: dict[str, Any] = {}
    if rules:
        for sampler in samplers:
            print(f"\n{sampler}")
            stopping_table([run for run in runs if run["sampler"] == sampler], names)
    else:
        result = table(runs, samplers, names, given.trials)
    if given.json:
        settings = {
            "seeds": given.seeds,
            "first_seed": given.first_seed,
            "trials": given.trials,
            "batch": given.batch,
            "first": given.first,
            "warm": given.warm,
            "seeded": given.seeded,
        }
        given.json.write_text(
            json.dumps({"settings": settings, "samplers": result, "runs": runs}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
