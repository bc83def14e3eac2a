"""Records complete sub-lattices of the built-in kernels and of two examples on the GPU of this machine, for replay.

    scripts/run python scripts/record.py --out results/recorded

Every configuration over the values of ``record_plans.py`` is rendered, compiled, verified and timed like any trial,
through ``brute-force`` runs in a database of its own, which is then written as one recording for each kernel. Problems
that are whole are kept in a file ``NAME.partial.json.gz``: started again, also on another card of this name, the script
goes on behind them. With ``--seconds`` no problem is begun after so many.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from scripts.harness import parser, run, say, today
from scripts.record_plans import PLANS, Lattice, Plan, problem_of
from scripts.recording_files import row_of, write_recording
from tuner import __version__
from tuner.core import paths
from tuner.core.conditions import Mode
from tuner.core.model import Configuration, Problem, RunOptions, Status
from tuner.core.observer import Observer
from tuner.database.database import Database
from tuner.devices.base import Device
from tuner.devices.choose import open_device
from tuner.formats.recording import (
    RecordedProblem,
    Recording,
    Row,
    read_recording,
    short_implementation,
)
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.load import load_kernel
from tuner.kernel.spec import KernelSpec
from tuner.tuning.request import Request
from tuner.tuning.session import tune

MAX_SAMPLES = 16
"""Samples kept of a row: the replayed race draws from them."""


def main() -> None:
    options = parser(__doc__)
    options.add_argument("kernels", nargs="*", default=list(PLANS))
    options.add_argument("--out", type=Path, default=Path("results/recorded"))
    options.add_argument("--db", type=Path, default=Path("results/recording.db"))
    options.add_argument("--seconds", type=float, default=math.inf, help="Begin no problem after so many.")
    arguments = options.parse_args()
    until = time.monotonic() + arguments.seconds
    for name in arguments.kernels:
        _record(name, PLANS[name], arguments.db, arguments.out, until)


def _record(name: str, plans: Sequence[Plan], db: Path, out: Path, until: float) -> None:
    kernel = load_kernel(name)
    device = open_device("cuda", kernel.name, None, paths.cubins())
    wanted = [(problem_of(kernel, text), plan.lattices) for plan in plans for text in plan.problems]
    try:
        recorded = {one.problem.key: one for one in _partial(kernel, device, out)}
        with Database.open(db) as database:
            for problem, lattices in wanted:
                if problem.key in recorded or time.monotonic() >= until:
                    continue
                recorded[problem.key] = RecordedProblem(
                    msgspec.convert(problem.to_json(), Problem),
                    _rows(kernel, problem, lattices, device, database),
                )
                # What is whole is kept, come what may; a recording takes the place of another when all of it is there.
                ordered = [recorded[one.key] for one, _ in wanted if one.key in recorded]
                _write(kernel, device, ordered, out, whole=len(ordered) == len(wanted))
    finally:
        device.close()


def _rows(
    kernel: KernelSpec, problem: Problem, lattices: Sequence[Lattice], device: Device, database: Database
) -> dict[Configuration, Row]:
    rows = {}
    for lattice in lattices:
        if kernel.usable_variants(problem, device.gpu)[1].get(lattice.variant):
            continue
        began = time.monotonic()
        request = Request(
            kernel,
            problem,
            RunOptions(
                trials=10**6,
                sampler="brute-force",
                variants=(lattice.variant,),
                fixed=lattice.values,
                from_scratch=True,
                mode=Mode.COLD,  # one recording is timed in one way
            ),
        )
        result = tune(request, device, database, Observer(), finish=False)
        for trial in database.trials(result.state.run.id):
            kept = trial.samples_ns[:MAX_SAMPLES] if trial.status is not Status.WRONG_RESULT else ()
            rows[trial.configuration] = row_of(trial, short_implementation(trial.implementation), kept)
        seconds = time.monotonic() - began
        count = len(result.state.trials)
        print(f"{problem} {lattice.variant}: {count} rows in {seconds:.1f} s", flush=True)
    return rows


def _partial(kernel: KernelSpec, device: Device, out: Path) -> Sequence[RecordedProblem]:
    """Return what an earlier call has left, if that was recorded of this kernel on such a card with these versions."""
    path = out / f"{_name(kernel, device)}.partial.json.gz"
    if not path.is_file():
        return ()
    before = read_recording(path)
    same = (before.computation, before.gpu.name, dict(before.versions)) == (
        KernelIdentity(kernel).parts,
        device.gpu.name,
        _versions(device),
    )
    return before.problems if same else ()


def _name(kernel: KernelSpec, device: Device) -> str:
    return f"{kernel.name}-{device.gpu.name.removeprefix('NVIDIA ').replace(' ', '_')}"


def _versions(device: Device) -> dict[str, str]:
    return {"kernel-tune": __version__, **device.versions}


def _write(
    kernel: KernelSpec, device: Device, recorded: Sequence[RecordedProblem], out: Path, whole: bool
) -> None:
    recording = Recording(
        _name(kernel, device),
        kernel.name,
        device.gpu,
        today(),
        _versions(device),
        tuple(recorded),
        computation=KernelIdentity(kernel).parts,
    )
    path = out / f"{recording.name}{'' if whole else '.partial'}.json.gz"
    write_recording(path, recording)
    if whole:
        path.with_name(f"{recording.name}.partial.json.gz").unlink(missing_ok=True)
        if (out / recording.name).is_dir():
            say(f"remove {out / recording.name}: it keeps the kernel of the recording before")
    rows = sum(len(problem.rows) for problem in recorded)
    say(f"{path}: {rows} rows, {path.stat().st_size / 2**20:.2f} MiB")


if __name__ == "__main__":
    run(main, gpu=True)
