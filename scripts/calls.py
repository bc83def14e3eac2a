"""Winners as functions, measured on the GPU of this machine:

    scripts/run python scripts/calls.py --out results/evidence

Bundles of the winners of products (``results/evidence``), of the other built-in kernels and of
the examples are made as a user makes them. Then:

| step | does |
|---|---|
| size | the bytes of a bundle of ten winners of products |
| imports | how long the import takes of what calls a bundle, and of the bindings alone, in fresh processes |
| cold | how long it takes to load a bundle where a context is there, in fresh processes |
| host | the host's time of a warm call in C++ and Python, beside torch's |
| races | the tuner's own launch of each winner in turn with the bundle's in C++ and Python: in CUDA graphs, as it was \
tuned and with warm caches, outputs verified; what is slower is timed once more |

What was measured is kept in ``--work`` (``calls.json``), and not measured again: the script ends after ``--seconds``,
and can be started again, on another machine with a copy of that file. Exit status 1 if something could not be measured,
is wrong, or is slower than the tuner's own launch.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from scripts import harness
from scripts.calling.bundles import build, compilers, folder_bytes, write_bundles
from scripts.calling.cases import Case, cases
from scripts.calling.races import Races, first_gpu
from scripts.calling.starts import cold_ms, host_us, import_ms
from scripts.harness import ROOT, listed, say, today
from scripts.page_figures import evidence, program
from tuner.children.nvrtc import nvrtc_version
from tuner.core.model import Gpu

STEPS = ("size", "imports", "cold", "host", "races")
TEN = 10
TIMES = 15
"""Fresh processes of each kind."""
SHORT = ("gemm", {"m": 512, "n": 512, "k": 512})
"""The product whose calls cost the GPU least, so that it keeps up with the host."""


def settled(
    rows: Iterable[dict[str, Any]], time_again: Callable[[str], Iterable[dict[str, Any]]]
) -> Iterator[dict[str, Any]]:
    """Yield races. Where a call was slower it is timed once more, and that counts: of hundreds, noise makes a few."""
    for row in rows:
        if any(ratio["verdict"] == "slower" for ratio in row.get("ratios", {}).values()):
            for again in time_again(row["asked"]):
                yield {**again, "first": row["ratios"]}
        else:
            yield row


class Study(harness.Study):
    """Does the steps, as far as the time goes."""

    def __init__(self, given: argparse.Namespace, gpu: Gpu) -> None:
        super().__init__(given.work / "calls.json", given.seconds, where={}, races={})
        self._given, self._gpu = given, gpu
        self._work = given.work.absolute()
        self._every, only = cases(gpu), given.only or [""]
        self.cases = [case for case in self._every if any(text in case.key for text in only)]
        self._compilers = compilers()

    # -- what all need ------------------------------------------------------------------------------------------------

    def _bundles(self) -> dict[str, Path]:
        return write_bundles(self.cases, self._gpu, self._work / "bundles")

    def _short(self) -> Case:
        name, sizes = SHORT
        of = (case for case in self._every if case.kernel.name == name)
        return next(case for case in of if dict(case.problem.sizes) == sizes)

    def _ten(self) -> Path:
        products = [case for case in self._every if case.kernel.name == "gemm"]
        first = [self._short(), *(case for case in products if case != self._short())]
        return write_bundles(first[:TEN], self._gpu, self._work / "ten")["gemm"]

    def _program(self) -> Path:
        return self._built("g++", "measure.cpp", self._work / "measure", shared=False)

    def _built(self, name: str, source: str, path: Path, *, shared: bool) -> Path:
        return path if path.is_file() else build(name, self._compilers[name], source, path, shared=shared)

    def _libraries(self) -> dict[str, Path]:
        """Return the C interface by compiler; one that fails to build it is said, and left out."""
        libraries = {}
        for name in self._compilers:
            path = self._work / f"launcher-{name.strip('+')}.so"
            try:
                libraries[name] = self._built(name, "c_interface.cpp", path, shared=True)
            except RuntimeError as error:
                self.failures.append(str(error))
        return libraries

    # -- the steps ----------------------------------------------------------------------------------------------------

    def _size(self) -> None:
        bundle = self._ten()
        winners = len(json.loads((bundle / "manifest.json").read_text())["winners"])
        cubins = folder_bytes(bundle / "cubin")
        self.keep(size={"winners": winners, "bytes": folder_bytes(bundle), "cubin_bytes": cubins})

    def _imports(self) -> None:
        self.once("imports", lambda: import_ms(self._ten(), TIMES))

    def _cold(self) -> None:
        self.once("cold", lambda: cold_ms(self._ten(), self._short(), self._program(), TIMES))

    def _host(self) -> None:
        self.once("host", lambda: host_us(self._ten(), self._short(), self._program(), 5))

    def _races(self) -> None:
        bundles, libraries = self._bundles(), self._libraries()
        left = {case.key: modes for case in self.cases if (modes := self.modes_left(case))}
        while left and self.has_time():
            status = self._race_in_child(bundles, libraries, left)
            if left and status:  # what was at work has ended the process
                problem, (mode, *_) = next(iter(left.items()))
                self.data["races"][f"{problem} {mode}"] = {"error": f"the process ended with status {status}"}
                self.keep()
                del left[problem]
            elif not status:
                break

    def modes_left(self, case: Case) -> list[str]:
        done = self.data["races"]
        return [mode for mode in self._given.modes if not _timed(done.get(f"{case.key} {mode}", {}), case)]

    def _race_in_child(
        self, bundles: Mapping[str, Path], libraries: Mapping[str, Path], left: dict[str, list[str]]
    ) -> int | None:
        """Race what is left in one process, and take out what it has timed; return its exit status."""
        context = multiprocessing.get_context("spawn")
        rows, sender = context.Pipe(duplex=False)
        how = (bundles, libraries, self._given.rounds, self._given.seed)
        child = context.Process(target=race_cases, args=(left, self.left_s, how, sender))
        child.start()
        sender.close()
        with suppress(EOFError):
            while True:
                problem, row = rows.recv()
                mode = row.pop("asked")
                self.data["races"][f"{problem} {mode}"] = row
                self.keep()
                say(f"{problem} {mode}: {row.get('error') or _short_row(row)}")
                modes = left.get(problem, [])
                if mode in modes:
                    modes.remove(mode)
                if row.get("error") or not modes:
                    left.pop(problem, None)
        child.join()
        return child.exitcode


def race_cases(
    wanted: Mapping[str, list[str]], seconds: float, how: tuple[Any, ...], rows: Connection
) -> None:
    """Race cases by their keys, each in some modes, and send each row as soon as it is there; a process of its own."""
    until = time.monotonic() + seconds
    races = Races(*how)
    try:
        for case in cases(races.gpu):
            if case.key not in wanted or time.monotonic() >= until:
                continue

            def again(mode: str, case: Case = case) -> Iterator[dict[str, Any]]:
                return races.rows(case, [mode])

            for row in settled(list(races.rows(case, wanted[case.key])), again):
                rows.send((case.key, row))
    finally:
        races.close()


def _timed(row: Mapping[str, Any], case: Case) -> bool:
    return "ratios" in row and row["configuration"] == str(case.configuration)  # else it is another winner's


def _short_row(row: Mapping[str, Any]) -> str:
    ratios = ", ".join(f"{name} {one['median']:.4f} {one['verdict']}" for name, one in row["ratios"].items())
    return f"{row['mode']}, {row['times_ns']['tuner'] / 1e3:.2f} us, {ratios}"


def misses(races: Mapping[str, Any]) -> Iterator[str]:
    """Yield what failed, is wrong, or is slower than the tuner's own launch beyond its noise, a line each."""
    for name, row in sorted(races.items()):
        if row.get("error"):
            yield f"{name}: {row['error']}"
            continue
        if not row["verified"]:
            yield f"{name}: a wrong output"
        for way, ratio in row["ratios"].items():
            if ratio["verdict"] == "slower" and not way.startswith("tuner"):  # whose own loads say the noise
                yield f"{name}: {way} takes {ratio['median']:.4f} of the tuner's own launch, beyond its noise"


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    options = harness.study_parser(__doc__, STEPS, "calls")
    options.set_defaults(seconds=540.0)
    add = options.add_argument
    add("--only", type=listed(), default="", help="Only problems with one of these: 'gemm 512x512x512'.")
    add("--modes", type=listed(), default="own,warm", help="own: as the tuner times it; warm.")
    add("--rounds", type=int, default=12)
    add("--seed", type=int, default=0, help="Of the inputs and the order.")
    return options.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Measure; return 0 where all is as it is asked."""
    given = parse(words)
    there = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), there]))  # of all that is started
    gpu = first_gpu()
    study = Study(given, gpu)
    python = sys.version.split()[0]
    where = {"gpu": gpu.name, "driver": gpu.driver, "nvrtc": nvrtc_version(), "python": python}
    study.keep(where=where, day=today(), compilers=sorted(compilers()))
    study.run(given.steps)
    figures = [program.races] * any("ratios" in row for row in study.data["races"].values()) + [
        program.host
    ] * ("host" in study.data)
    text = evidence.shown("calls", study.data, *figures)
    print(text)
    harness.write(given.out, "calls", study.data, text)
    wrong = [*study.failures, *misses(study.data["races"])]
    say("\n".join(wrong))
    return int(bool(wrong))


if __name__ == "__main__":
    harness.run(main, gpu=True)
