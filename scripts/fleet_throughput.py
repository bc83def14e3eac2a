"""Measure a fleet on the GPUs of this host:

    scripts/run python scripts/fleet_throughput.py --work work/fleet --out results/evidence      # two GPUs, 20 problems
    scripts/run python scripts/fleet_throughput.py --problems 40 --seconds 480 --work work/fleet --out results/evidence

- ``fleet``: a list of gemm problems from cold caches on all GPUs, with all cores;
- ``one``: the same on the first GPU with its share of the cores;
- ``serial``: the same on the last GPU, with another seed, one problem after the other (``--no-overlap``, which is how
  lists were tuned before).

Calibrations are made before and are in every cache. What was measured is kept in ``--work`` and not measured again:
with ``--seconds`` nothing is begun that may take longer; start it again for the rest. Exit status 1 if something is
left. Whether the cards' tables agree is measured by ``same_table.py``.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from scripts import harness
from scripts.harness import ROOT, TUNE, say, today
from tuner.children.compile_pool import default_jobs
from tuner.children.nvrtc import nvrtc_version
from tuner.cli.fleet import visible_gpus
from tuner.database.database import Database
from tuner.database.records import Filters

STEPS = ("fleet", "one", "serial")
PROBLEM_S = 9.0
"""A problem of 100 trials on one GPU with 16 cores: whether a step is begun."""
M, N, K = (16, 64, 512, 1024, 2048), (1024, 2048, 4096, 6144), (1024, 2048, 4096)


def shapes(count: int) -> list[dict[str, int]]:
    """Return so many different products, small ones and large ones mixed."""
    every = [{"m": m, "n": n, "k": k} for m in M for n in N for k in K]
    return [every[(17 * i) % len(every)] for i in range(count)]


class Study(harness.Study):
    """What is measured, and what is known so far."""

    tuner = TUNE

    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.work = given, given.work.resolve()
        super().__init__(self.work / "study.json", given.seconds)
        self.names = list(visible_gpus().names)[: given.gpus]
        self.count = len(self.names)
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
        path = os.pathsep.join(path for path in sys.path if path)
        environment = {**os.environ, "XDG_CACHE_HOME": str(cache.resolve()), "PYTHONPATH": path}
        with (self.work / f"{name}.json").open("wb") as out, (self.work / f"{name}.log").open("wb") as log:
            command += ["--db", str(self.work / f"{name}.db")]
            return subprocess.Popen(command, stdout=out, stderr=log, cwd=ROOT, env=environment)

    def timed(self, name: str, *words: str) -> dict[str, Any]:
        """Run the tuner from a cold cache; return its seconds and what the database says."""
        began = time.monotonic()
        code = self.start(name, self.cold(name), *words).wait()
        return {"seconds": round(time.monotonic() - began, 2), "exit_status": code, **self.counted(name)}

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
                "winners": len(database.winners(Filters(exportable=True)).rows),
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
    options = harness.study_parser(__doc__, STEPS, "work/fleet")
    add = options.add_argument
    add("--problems", type=int, default=20)
    add("--trials", type=int, default=100)
    add("--gpus", type=int, help="Only the first so many.")
    add("--jobs", type=int, help="Compiling processes for all GPUs; one a core by default.")
    return options.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    """Measure; return 0 where nothing is left to do."""
    given = parse(words)
    study = Study(given)
    about = {"gpus": study.names, "jobs": study.cores, "share_of_one": study.share}
    study.keep(about=about, nvrtc=nvrtc_version(), day=today(), problems=given.problems)
    study.calibrate()
    alone_s = given.problems * PROBLEM_S * given.trials / 100
    wanted = {"fleet": alone_s / study.count, "one": alone_s, "serial": 1.3 * alone_s}
    steps: dict[str, Callable[[], dict[str, Any]]] = {step: getattr(study, step) for step in STEPS}
    left = []
    for step in given.steps:
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
            say((study.work / f"{step}.log").read_text()[-1500:])
            left.append(step)
            continue
        study.keep(**{step: answer})
        study.keep(figures=conclude(study.data))
        harness.write(given.out, f"fleet-{study.count}", study.data)
    print(json.dumps(study.data.get("figures", {})), f"left: {', '.join(left) or 'nothing'}")
    return int(bool(left))


if __name__ == "__main__":
    sys.exit(main())
