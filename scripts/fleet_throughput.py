"""Measure a fleet on the GPUs of this host: throughput, one problem over all of them, and a table from each.

    scripts/run python scripts/fleet_throughput.py --work work/fleet --out results/evidence      # two GPUs, 20 problems
    scripts/run python scripts/fleet_throughput.py --problems 40 --seconds 480 --work work/fleet --out results/evidence
    scripts/run python scripts/fleet_throughput.py --steps spread,tables --work work/fleet --out results/evidence

- ``fleet``: a list of gemm problems from cold caches on all GPUs, with all cores;
- ``one``: the same on the first GPU with its share of the cores;
- ``serial``: the same on the last GPU, with another seed, one problem after the other (``--no-overlap``, which is how
  lists were tuned before);
- ``spread``: one problem of 2,000 trials on the first GPU, and with ``--spread`` over all of them; both winners are
  raced on the first;
- ``tables``: the list on each card alone, all at the same time; how many winners agree, how far the cards' reference
  kernels differ, and what the winners of the others lose on the first card.

Calibrations are made before and are in every cache. What was measured is kept in ``--work`` and not measured again:
with ``--seconds`` nothing is begun that may take longer; start it again for the rest. Exit status 1 if something is
left.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from tuner.children.compile_pool import default_jobs
from tuner.children.nvrtc import nvrtc_version
from tuner.cli.fleet import visible_gpus
from tuner.core.files import whole_file
from tuner.database.database import Database
from tuner.database.records import Filters, StoredWinner
from tuner.devices.local import LocalDevice
from tuner.kernel.load import load_kernel
from tuner.tuning.race import compete

ROOT = Path(__file__).resolve().parents[1]

STEPS = ("fleet", "one", "serial", "spread", "tables")
PROBLEM_S, LONG_TRIAL_S = 9.0, 0.1
"""A problem of 100 trials, and a trial of a long search, on one GPU with 16 cores: whether a step is begun."""
LONG = {"m": 4096, "n": 4096, "k": 4096}
M, N, K = (16, 64, 512, 1024, 2048), (1024, 2048, 4096, 6144), (1024, 2048, 4096)


def shapes(count: int) -> list[dict[str, int]]:
    """Return so many different products, small ones and large ones mixed."""
    every = [{"m": m, "n": n, "k": k} for m in M for n in N for k in K]
    return [every[(17 * i) % len(every)] for i in range(count)]


class Study:
    """What is measured, and what is known so far."""

    tuner = (sys.executable, "-m", "tuner")

    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.work = given, given.work.resolve()
        self.work.mkdir(parents=True, exist_ok=True)
        self.file = self.work / "study.json"
        self.data: dict[str, Any] = json.loads(self.file.read_text()) if self.file.is_file() else {}
        self.began = time.monotonic()
        listed = visible_gpus()
        self.names = list(listed.names)
        self.count = len(listed.names) if given.gpus is None else min(given.gpus, len(listed.names))
        self.cores = given.jobs or default_jobs()
        self.share = max(1, self.cores // self.count)
        self.list = self.work / "problems.csv"
        with self.list.open("w", newline="") as file:
            writer = csv.DictWriter(file, ("m", "n", "k"))
            writer.writeheader()
            writer.writerows(shapes(given.problems))

    @property
    def devices(self) -> list[str]:
        return [f"cuda:{number}" for number in range(self.count)]

    def keep(self, **values: Any) -> None:
        self.data.update(values)
        with whole_file(self.file, replace=True) as partial:
            partial.write_text(json.dumps(self.data, indent=1) + "\n")

    def has_time(self, wanted_s: float) -> bool:
        return not self.given.seconds or time.monotonic() - self.began + wanted_s <= self.given.seconds

    # -- one command of the tuner

    def cold(self, name: str) -> Path:
        """Return the folder of an empty cache that has the calibrations."""
        folder: Path = self.work / f"cache-{name}"
        shutil.rmtree(folder, ignore_errors=True)
        calibrations = self.work / "warm" / "kernel-tune" / "calibrations"
        if calibrations.is_dir():
            shutil.copytree(calibrations, folder / "kernel-tune" / "calibrations", symlinks=True)
            (folder / "kernel-tune").chmod(0o700)
        return folder

    def start(self, name: str, cache: Path, *words: str) -> subprocess.Popen[bytes]:
        (self.work / f"{name}.db").unlink(missing_ok=True)
        command = [*self.tuner, "run", "-k", "gemm", "--json", *words]
        with (self.work / f"{name}.json").open("wb") as out, (self.work / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [*command, "--db", str(self.work / f"{name}.db")],
                stdout=out,
                stderr=log,
                cwd=ROOT,
                env={
                    **os.environ,
                    "XDG_CACHE_HOME": str(cache.resolve()),
                    "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
                },
            )

    def timed(self, name: str, *words: str) -> dict[str, Any]:
        """Run the tuner from a cold cache; return its seconds and what the database says."""
        began = time.monotonic()
        code = self.start(name, self.cold(name), *words).wait()
        return {"seconds": round(time.monotonic() - began, 2), "exit_status": code, **self.counted(name)}

    def kept(self, name: str, *words: str) -> dict[str, Any]:
        """Return what :meth:`timed` does, without measuring it again if it succeeded before."""
        if name not in self.data:
            answer = self.timed(name, *words)
            if answer["exit_status"] or not answer.get("winners"):
                raise RuntimeError((self.work / f"{name}.log").read_text()[-1500:])
            self.keep(**{name: answer})
        return dict(self.data[name])

    def counted(self, name: str) -> dict[str, Any]:
        if not (self.work / f"{name}.db").is_file():
            return {"error": (self.work / f"{name}.log").read_text()[-500:]}
        with Database.open(self.work / f"{name}.db", write=False) as database:
            runs = database.select(
                "SELECT device, count(*) AS runs FROM runs WHERE state = 'finished' GROUP BY 1"
            )
            trials = database.select("SELECT count(*) AS trials FROM trials")[0]["trials"]
            return {
                "runs": {row["device"]: row["runs"] for row in runs},
                "trials": trials,
                "winners": len(exportable(database)),
                "problems_of_the_file": len(database.check().problems),
            }

    # -- the steps

    def calibrate(self) -> None:
        """Tune something tiny on each card, so that it is calibrated."""
        if self.data.get("calibrated") == self.count:
            return
        for device in self.devices:
            words = ("-n", "2", "-s", "m=256,n=256,k=256", "--device", device, "-j", str(self.share))
            name = f"calibrate-{device[5:]}"
            if self.start(name, self.work / "warm", *words).wait():
                raise SystemExit((self.work / f"{name}.log").read_text()[-1500:])
        self.keep(calibrated=self.count)

    def list_words(self, *words: str) -> tuple[str, ...]:
        return ("--problems", str(self.list), "-n", str(self.given.trials), *words)

    def fleet(self) -> dict[str, Any]:
        device = ",".join(self.devices)
        return self.timed("fleet", *self.list_words("--device", device, "-j", str(self.cores)))

    def one(self) -> dict[str, Any]:
        return self.timed("one", *self.list_words("--device", "cuda:0", "-j", str(self.share)))

    def serial(self) -> dict[str, Any]:
        device = ("--device", self.devices[-1], "--seed", "1")
        return self.timed("serial", *self.list_words(*device, "-j", str(self.share), "--no-overlap"))

    def spread(self) -> dict[str, Any]:
        size = ",".join(f"{name}={value}" for name, value in LONG.items())
        words = ("-n", str(self.given.long_trials), "-s", size)
        alone = self.kept("spread-one", *words, "--device", "cuda:0", "-j", str(self.share))
        device = ",".join(self.devices)
        several = self.kept("spread-all", *words, "--device", device, "--spread", "-j", str(self.cores))
        both = []
        for name, answer in (("spread-one", alone), ("spread-all", several)):
            record = json.loads((self.work / f"{name}.json").read_text())[0]
            answer["search_s"] = record["stats"]["search_s"]
            with Database.open(self.work / f"{name}.db", write=False) as database:
                both += exportable(database)
        said = [
            line for line in (self.work / "spread-all.log").read_text().splitlines() if "reference" in line
        ]
        return {
            "trials": self.given.long_trials,
            "one": alone,
            "all": several,
            "times_as_fast": round(alone["search_s"] / several["search_s"], 3),
            "times_as_fast_with_race": round(alone["seconds"] / several["seconds"], 3),
            "winner_of_all_over_that_of_one": self.raced([both])[0],
            "said": said,
        }

    def tables(self) -> dict[str, Any]:
        """Tune the list on each card alone, all at once."""
        if "table_codes" not in self.data:
            running = [
                self.start(
                    f"table-{number}",
                    self.cold(f"table-{number}"),
                    *self.list_words("--device", device, "-j", str(self.share)),
                )
                for number, device in enumerate(self.devices)
            ]
            self.keep(table_codes=[process.wait() for process in running])
        tables, references = [], []
        for number in range(self.count):
            with Database.open(self.work / f"table-{number}.db", write=False) as database:
                stored = exportable(database)
            tables.append({winner.run.problem.key: winner for winner in stored})
            calibrations = [winner.run.calibration for winner in stored]
            references.append(next((c.reference_ns for c in calibrations if c), None))
        first, agree, losses = tables[0], [], []
        for number, table in enumerate(tables[1:], 1):
            both = first.keys() & table.keys()
            same = [key for key in both if first[key].winner.configuration == table[key].winner.configuration]
            agree.append({"card": number, "problems": len(both), "the_same": len(same)})
            losses += [[first[key], table[key]] for key in sorted(both) if key not in same]
        # A fair sample where they are many: each race costs a second or two.
        sample = losses[:: max(1, len(losses) // 40)]
        ratios = [ratio for ratio in self.raced(sample) if ratio is not None]
        known = [reference for reference in references if reference]
        return {
            "exit_status": self.data["table_codes"],
            "agree": agree,
            "reference_ns": references,
            "cards_differ_by": round(max(known) / min(known) - 1.0, 5) if known else None,
            "raced_on_the_first": len(ratios),
            "regret_median": round(statistics.median(ratios) - 1.0, 5) if ratios else None,
            "regret_worst": round(max(ratios) - 1.0, 5) if ratios else None,
        }

    def raced(self, pairs: Sequence[Sequence[StoredWinner]]) -> list[float | None]:
        """Race two winners of a problem at a time on the first card; return the second one's time over the first's."""
        os.environ["XDG_CACHE_HOME"] = str((self.work / "warm").resolve())
        kernel, ratios = load_kernel("gemm"), list[float | None]()
        cache = self.work.resolve() / "warm" / "kernel-tune" / "cubins"
        with closing(LocalDevice(0, self.share, cache, compiler=nvrtc_version())) as device:
            for pair in pairs:
                if len({stored.winner.configuration for stored in pair}) < 2:
                    ratios.append(1.0 if len(pair) == 2 else None)
                    continue
                device.prepare(kernel, pair[0].run.problem, 0, pair[0].run.conditions)
                standing, failed = compete(device, [stored.trial for stored in pair], 0, lambda *_: None)
                ratios.append(None if failed else round(standing.ratio(1, 0).median, 5))
        return ratios


def exportable(database: Database) -> list[StoredWinner]:
    return database.winners(Filters(exportable=True)).rows


def conclude(data: dict[str, Any]) -> dict[str, float]:
    """Return the figures that the steps are for."""
    seconds = {step: data[step]["seconds"] for step in ("fleet", "one", "serial") if step in data}
    figures = {}
    if {"fleet", "one"} <= seconds.keys():
        figures["fleet_over_one"] = round(seconds["one"] / seconds["fleet"], 3)
    if {"one", "serial"} <= seconds.keys():
        figures["overlap_over_serial"] = round(seconds["serial"] / seconds["one"], 3)
    if {"fleet", "serial"} <= seconds.keys():
        figures["fleet_over_serial"] = round(seconds["serial"] / seconds["fleet"], 3)
    return figures


def parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", default="fleet,one,serial", help=f"Of {', '.join(STEPS)}.")
    parser.add_argument("--problems", type=int, default=20)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--long-trials", type=int, default=2000, help="Of the problem that is spread.")
    parser.add_argument("--gpus", type=int, help="Only the first so many.")
    parser.add_argument("--jobs", type=int, help="Compiling processes for all GPUs; one a core by default.")
    parser.add_argument("--seconds", type=float, default=0.0, help="Begin nothing that may take longer.")
    parser.add_argument("--work", type=Path, default=Path("work/fleet"))
    parser.add_argument("--out", type=Path, help="Folder for fleet-N.json, N the number of GPUs.")
    given = parser.parse_args(words)
    if unknown := set(given.steps.split(",")) - set(STEPS):
        parser.error(f"no step {', '.join(unknown)}; choose from: {', '.join(STEPS)}")
    return given


def main(words: Sequence[str] | None = None) -> int:
    """Measure; return 0 where nothing is left to do."""
    given = parse(words)
    study = Study(given)
    about = {"gpus": study.names[: study.count], "jobs": study.cores, "share_of_one": study.share}
    study.keep(about=about, nvrtc=nvrtc_version(), day=time.strftime("%Y-%m-%d"), problems=given.problems)
    study.calibrate()
    alone_s = given.problems * PROBLEM_S * given.trials / 100
    wanted = {"fleet": alone_s / study.count, "one": alone_s, "serial": 1.3 * alone_s, "tables": alone_s}
    wanted["spread"] = given.long_trials * LONG_TRIAL_S * (1 + 1 / study.count)
    steps: dict[str, Callable[[], dict[str, Any]]] = {step: getattr(study, step) for step in STEPS}
    left = []
    for step in given.steps.split(","):
        if step in study.data:
            continue
        if not study.has_time(wanted[step]):
            left.append(step)
            continue
        try:
            answer = steps[step]()
        except Exception:  # noqa: BLE001 - the other steps are measured all the same
            traceback.print_exc()
            left.append(step)
            continue
        print(step, json.dumps(answer), flush=True)
        if "error" in answer or answer.get("winners") == 0:
            print((study.work / f"{step}.log").read_text()[-1500:], file=sys.stderr)
            left.append(step)
            continue
        study.keep(**{step: answer})
        study.keep(figures=conclude(study.data))
        if given.out:
            given.out.mkdir(parents=True, exist_ok=True)
            (given.out / f"fleet-{study.count}.json").write_text(json.dumps(study.data, indent=1) + "\n")
    print(json.dumps(study.data.get("figures", {})), f"left: {', '.join(left) or 'nothing'}")
    return int(bool(left))


if __name__ == "__main__":
    sys.exit(main())
