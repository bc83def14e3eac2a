"""An earlier version of gemm and this one, timed in turn on the same buffers, in the same graphs, in shuffled rounds:

    scripts/run python scripts/race_versions.py --old ../earlier --winners gemm-shapes.json --out results/evidence

``--old`` is a checkout of then, or a folder with its ``search_spaces`` and ``templates``. What won there
(``--winners``, files of ``gemm_shapes.py``) runs with the templates of then, and with those of now
(``version_matches.py`` knows what parameters were called). A problem that was not tuned takes what won with another
dtype or layout. ``--found``, files of the same form, has winners of now: they run beside both. ``--variants all`` takes
the default configuration of each variant of then instead.

Each problem is timed as the tuner would time it, cold or rotating, and then warm: back to back on the same buffers.
All sources are compiled before anything is timed. What was timed is kept in ``--work``, and not timed again: the
script can be stopped, or given ``--seconds``, and started again. What has changed since is, and so is what is asked for
with more ``--rounds``. Exit status 1 if this version is slower anywhere
beyond the noise, or something could not be run.

Without a GPU ``--compile`` shows which configurations are valid and compile, for an H200.
"""

from __future__ import annotations

import argparse
import json
import math
import queue
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

from shape_notes import LAYOUTS, SHAPES, Problem, Shape
from version_matches import Match, Matches, in_terms_of, loaded_from, tuned

from tuner.children.compilation import Compilation, RenderRequest
from tuner.children.compile_pool import CompilePool
from tuner.core import paths
from tuner.core.conditions import Mode, Regime
from tuner.core.errors import TunerError
from tuner.core.files import whole_file
from tuner.core.model import Configuration, Gpu, Status
from tuner.core.stats import Verdict, paired_ratio, reference_verdict
from tuner.devices.base import Contestant, Device, RaceRequest
from tuner.devices.choose import open_device
from tuner.kernel.load import load_kernel
from tuner.kernel.roofline import ARCHITECTURES
from tuner.studies.bench.bench import SAMPLES

FEWEST_ROUNDS = 6
SAYS_NOTHING_S = 120.0
"""Without a compiler's answer for so long there will be none: each has a deadline of half of that."""


def compiled(matches: Sequence[Match], gpu: Gpu, jobs: int | None) -> dict[Configuration, str]:
    """Compile everything on all cores, into the cache; return what does not compile, and why."""
    answers: queue.SimpleQueue[tuple[Configuration, Compilation]] = queue.SimpleQueue()
    requests = {}
    for match in matches:
        for entry in match.entries:
            problem = in_terms_of(entry.kernel, match.problem)
            request = RenderRequest(entry.kernel.file, problem, gpu, entry.configuration)
            requests[entry.kernel.file, problem.key, entry.configuration] = request
    with closing(CompilePool(jobs, paths.cubins())) as pool:
        for request in requests.values():
            pool.submit(request, partial(_answered, answers, request.configuration))
        ended = [answers.get(timeout=SAYS_NOTHING_S) for _ in requests]
    return {
        configuration: compilation.error
        for configuration, compilation in ended
        if compilation.status is not Status.OK
    }


def _answered(
    answers: queue.SimpleQueue[tuple[Configuration, Compilation]],
    configuration: Configuration,
    compilation: Compilation,
) -> None:
    answers.put((configuration, compilation))


# -- timing


def raced(device: Device, match: Match, mode: Mode | None, rounds: int, seed: int) -> dict[str, Any]:
    """Time a match; return a row, with the reason in ``error`` where it could not be timed.

    Args:
        device: a GPU of this machine.
        match: what runs.
        mode: what the caches hold; None leaves it to the problem.
        rounds: groups of each.
        seed: of the inputs and the order.
    """
    new = match.entries[1].kernel
    problem = in_terms_of(new, match.problem)
    warm = Mode.WARM if mode is Mode.WARM else None  # on the data of the other mode
    conditions, _ = device.choose_conditions(new, problem, None if warm else mode, Regime.RESTED)
    row: dict[str, Any] = {"mode": str(warm or conditions.mode), "taken_from": match.taken_from}
    row["configurations"] = {entry.name: str(entry.configuration) for entry in match.entries}
    try:
        device.prepare(new, problem, seed, conditions)
        contestants = [
            Contestant(entry.configuration, match.known_ns, kernel=entry.kernel) for entry in match.entries
        ]
        race = device.race(RaceRequest(contestants, rounds, SAMPLES, seed, warm))
    except TunerError as error:
        return {**row, "error": str(error)}
    if race.failed is not None:
        return {**row, "error": f"{match.entries[race.failed].name}: {race.error}"}
    medians = [[median(groups[i]) for groups in race.samples_ns] for i in range(len(match.entries))]
    times_ns = [median(found) for found in medians]
    row["times_ns"] = {entry.name: ns for entry, ns in zip(match.entries, times_ns, strict=True)}
    row["tags"], row["ratios"] = list(race.tags), {}
    for entry, ours, time_ns in list(zip(match.entries, medians, times_ns, strict=True))[1:]:
        ratio = paired_ratio(medians[0], ours)
        noise = device.noise_floor(time_ns, warm)
        verdict = str(reference_verdict(ratio, noise))
        row["ratios"][entry.name] = {**vars(ratio), "verdict": verdict, "noise_floor": noise}
    return row


# -- the table


def slower(row: Mapping[str, Any]) -> bool:
    """Whether nothing of now is as fast as the old kernel, or it could not be timed."""
    return all(one["verdict"] == Verdict.SLOWER for one in row.get("ratios", {}).values())


def table(state: Mapping[str, Any]) -> str:
    """Write all that was timed for people."""
    lines = [
        ", ".join([state["where"].get("gpu", "no GPU"), *state["where"].get("versions", [])]),
        "",
        "Ratios are the old kernel's time over the new one's, timed in turn on the same buffers, with the ends of a",
        "95 % interval. new: the same configuration; found: what a search of now has found. *: tuned for another",
        "dtype or layout.",
    ]
    rows = list(state["rows"].values())
    for own in (True, False):
        chosen = [row for row in rows if (row["mode"] != Mode.WARM) == own]
        if chosen:
            lines += ["", "cold or rotating, as the tuner times it" if own else "warm: back to back"]
            lines.append(
                f"{'problem':48s} {'mode':8s} {'old us':>9s} {'new us':>9s} {'old / new':36s} old / found"
            )
            lines += [_line(row) for row in sorted(chosen, key=_order)]
            lines += _summary(chosen)
    return "\n".join(lines)


def _order(row: Mapping[str, Any]) -> tuple[Any, ...]:
    problem = Problem.parse(row["problem"])
    at = SHAPES.index(problem.shape) if problem.shape in SHAPES else len(SHAPES)
    return problem.layout, problem.dtype, at, row["problem"], row["variant"]


def _line(row: Mapping[str, Any]) -> str:
    name = _name(row) + ("*" if row["taken_from"] else "")
    if row.get("error"):
        return f"{name:48s} {row['mode']:8s} {row['error']}"
    ratios = [_ratio(row["ratios"][one]) for one in ("new", "found") if one in row["ratios"]]
    times = [f"{row['times_ns'][one] / 1e3:9.2f}" for one in ("old", "new")]
    behind = "  SLOWER" if slower(row) else ""
    return f"{name:48s} {row['mode']:8s} {' '.join(times)} {' '.join(f'{one:36s}' for one in ratios)}{behind}".rstrip()


def _name(row: Mapping[str, Any]) -> str:
    return f"{row['problem']} {row['variant']}".strip()


def _ratio(one: Mapping[str, Any]) -> str:
    interval = f"({one['low']:.3f}..{one['high']:.3f})"
    return f"{one['median']:.3f} {interval} {one['verdict']}"


def _summary(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    timed = [row for row in rows if row.get("ratios")]
    for name in ("new", "found"):
        ratios = [row["ratios"][name] for row in timed if name in row["ratios"]]
        if ratios:
            verdicts = [one["verdict"] for one in ratios]
            counts = ", ".join(f"{verdicts.count(one)} {one}" for one in Verdict if one in verdicts)
            mean = geometric_mean(one["median"] for one in ratios)
            yield f"{name}: geometric mean of {len(ratios)}: {mean:.4f} ({counts})"
    behind = [_name(row) for row in timed if slower(row)]
    yield f"slower beyond the noise: {len(behind)} of {len(timed)}{': ' if behind else ''}{', '.join(behind)}"


# -- the command


class State:
    """What was timed, in a file that is written after each race."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "race-versions.json"
        self.data: dict[str, Any] = {"where": {}, "rows": {}}
        if self._path.is_file():
            self.data |= json.loads(self._path.read_text())

    def keep(self, key: str, row: dict[str, Any]) -> None:
        """Write down a row."""
        self.data["rows"][key] = row
        with whole_file(self._path, replace=True) as partly:
            partly.write_text(json.dumps(self.data, indent=1) + "\n")


def race_all(
    device: Device,
    matches: Sequence[Match],
    modes: Sequence[Mode | None],
    given: argparse.Namespace,
    state: State,
) -> None:
    """Time what was not timed, quick products first, until the time is over."""
    until = time.monotonic() + (given.seconds or math.inf)
    versions = [f"{name} {number}" for name, number in device.versions.items()]
    state.data["where"] = {"gpu": device.gpu.name, "versions": versions}
    for match in sorted(matches, key=lambda one: one.problem.shape.flop):
        how = {"rounds": given.rounds, "implementations": match.implementations(device.gpu)}
        for mode in modes:
            key = f"{match.name} {mode or 'own'}"
            if _timed(state.data["rows"].get(key, {"error": "not timed"}), how):
                continue
            if time.monotonic() >= until:
                return
            row = raced(device, match, mode, given.rounds, given.seed)
            state.keep(key, {"problem": match.problem.key, "variant": match.variant, **how, **row})
            print(_line(state.data["rows"][key]), file=sys.stderr, flush=True)


def _timed(row: Mapping[str, Any], how: Mapping[str, Any]) -> bool:
    """Whether a row is of the same kernels, in as many rounds."""
    return (
        not row.get("error")
        and row["rounds"] >= how["rounds"]
        and row["implementations"] == how["implementations"]
    )


def problems_of(given: argparse.Namespace) -> list[Problem]:
    """Return the problems of the command line."""
    if given.only:
        return [Problem.parse(key) for key in given.only.split(",")]
    shapes = [Shape.parse(text) for text in given.shapes.split(",") if text] or SHAPES
    kinds = [(dtype, layout) for layout in given.layouts.split(",") for dtype in given.dtypes.split(",")]
    return [Problem(shape, *kind) for kind in kinds for shape in shapes]


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--old", type=Path, required=True, help="Checkout of the earlier version.")
    parser.add_argument("--winners", default="", help="JSON files, with commas between: what won there.")
    parser.add_argument("--found", default="", help="JSON files: what a search of now has found.")
    parser.add_argument("--old-config", default="", help="This one instead: 'wgmma block_m=128 ...'.")
    parser.add_argument("--new-config", default="", help="And this one of today's kernel.")
    parser.add_argument("--variants", default="", help="Their default configurations instead; all for all.")
    parser.add_argument("--shapes", default="", help="Only these, with commas between: 4096,512x512x65536.")
    parser.add_argument("--dtypes", default="bfloat16,float16", help="With commas between.")
    parser.add_argument("--layouts", default="nn,nt", help=f"Of {', '.join(LAYOUTS)}.")
    parser.add_argument("--only", default="", help="Problems by name: bfloat16-4096x4096x4096-nt.")
    parser.add_argument(
        "--modes", default="own,warm", help="own: as the tuner times it; cold, rotating, warm."
    )
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0, help="Of the inputs and the order.")
    parser.add_argument("--seconds", type=float, default=0.0, help="Begin nothing new after so many.")
    parser.add_argument("--jobs", type=int, default=None, help="Compiling processes; one a core by default.")
    parser.add_argument("--compile", action="store_true", help="Compile everything, and time nothing.")
    parser.add_argument("--work", type=Path, default=Path("race-versions"), help="What is known so far.")
    parser.add_argument("--out", type=Path, help="Folder for gemm-versions.txt and gemm-versions.json.")
    given = parser.parse_args(words)
    if given.rounds < FEWEST_ROUNDS:
        parser.error(f"a race has at least {FEWEST_ROUNDS} rounds")
    return given


def main(words: Sequence[str] | None = None) -> int:
    """Run; return 0 where nothing is slower than it was, 1 where something is, or could not be run."""
    given = parse(words)
    with tempfile.TemporaryDirectory() as folder:
        old, new = loaded_from(given.old, Path(folder)), load_kernel("gemm")
        won, found = (
            [Path(text) for text in files.split(",") if text] for files in (given.winners, given.found)
        )
        state = State(given.work)
        if given.compile:
            gpu, device = ARCHITECTURES[90], None
        else:
            device = open_device("cuda", "gemm", given.jobs, paths.cubins(), partial(print, file=sys.stderr))
            gpu = device.gpu
        try:
            pairs = Matches(old, new, gpu, tuned(won), tuned(found), (given.old_config, given.new_config))
            names = [name for name in given.variants.split(",") if name not in ("", "all")]
            matches = [
                match
                for problem in problems_of(given)
                for match in (pairs.of_variants(problem, names) if given.variants else [pairs.of(problem)])
            ]
            refused = compiled(matches, gpu, given.jobs)
            complaints = [f"{match.name}: {match.error}" for match in matches if match.error]
            complaints += [f"{configuration}: {error}" for configuration, error in refused.items()]
            runnable = [match for match in matches if match.entries]
            if device is not None:
                modes = [None if mode == "own" else Mode(mode) for mode in given.modes.split(",")]
                race_all(device, runnable, modes, given, state)
        finally:
            if device is not None:
                device.close()
    print(f"{len(runnable)} of {len(matches)} pairs compile" if given.compile else table(state.data))
    print(*complaints, sep="\n", file=sys.stderr)
    if given.out and not given.compile:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "gemm-versions.txt").write_text(table(state.data) + "\n")
        (given.out / "gemm-versions.json").write_text(json.dumps(state.data, indent=1) + "\n")
    return int(bool(complaints) or any(map(slower, state.data["rows"].values())))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TunerError as error:
        sys.exit(f"error: {error}")
