"""Is the table of winners the same twice? Runs on two cards, with 2 seeds, compared problem by problem:

    scripts/run python scripts/same_table.py simulate --out results/evidence
    scripts/run python scripts/same_table.py gpu --work work/same-table --out results/evidence --seconds 540

``simulate`` needs no GPU: simulated cards answer with the recorded spaces and the noise of an H200
(``scripts/reproducing/simulated.py``). Each problem is tuned once on each card, and every pair of runs is compared: by
the fastest of the race, by the tuner's decision with ``--margin 0.75``, and by the initial configurations alone.

``gpu`` tunes 40 problems on each of two GPUs of this host (twice on one with ``--device cuda:0 cuda:0``), with
a seed and a database of its own for each, so that neither knows of the other. Problems with two winners are tuned on
both cards again, with the merged databases and other seeds. Then it races on either card what both found: the winners,
those after tuning again, and the fastest initial configurations. What was measured is kept in ``--work``: the same
command, stopped by ``--seconds``, goes on. Exit status 1 if something is left to do.
"""

# ruff: noqa: E402 - threads are settled before NumPy is loaded
from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

from scripts import harness
from scripts.reproducing.measured import measure
from scripts.reproducing.simulated import Run, Study, compared, run, totals
from tuner.core import paths
from tuner.core.model import Problem
from tuner.formats.recording import read_recording

OWN = (0.0, 0.001, 0.002)
"""Deviations of single configurations from card to card that are simulated: they were not measured on two cards yet."""
RULES = {
    "fastest": "the fastest of the race",
    "decision": "as the tuner decides",
    "initial": "initial configurations alone",
}


def _job(job: tuple[Study, Path, int, int]) -> tuple[str, Problem, Run]:
    study, path, index, card = job
    problem = read_recording(path).problems[index].problem
    return f"{path.name} {index}", problem, run(study, path, problem, card)


def simulate(study: Study, processes: int) -> list[dict[str, Any]]:
    """Return how far the runs of each recorded problem agree."""
    jobs = [
        (study, path, index, card)
        for path in sorted(paths.recordings().glob("*.json.gz"))
        for index in range(len(read_recording(path).problems))
        for card in range(study.cards)
    ]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        ended = pool.map(_job, jobs, chunksize=1)
    rows = []
    for _, group in groupby(ended, key=lambda one: one[0]):
        runs = list(group)
        rows.append(compared(runs[0][1], [one[2] for one in runs]))
    return rows


def table(studies: Sequence[dict[str, Any]]) -> str:
    """Return the totals of several studies as text."""
    lines = [
        "How often two runs of a problem, on two simulated cards with 2 seeds, end with the same configuration,",
        "how often their winners are within 1 % of each other on either card, and how far a winner is behind the",
        "best of the recorded space (means over problems; the largest single one in brackets).",
        "",
        "| deviation of a configuration from card to card | rule | same | within 1 % | behind the best |",
        "|---|---|---|---|---|",
    ]
    for study in studies:
        for rule, total in study["totals"].items():
            lines.append(
                f"| {100 * study['study']['own']:.1f} % | {RULES[rule]} | {total['same']:.0%} | "
                f"{total['within']:.0%} | {100 * total['behind']:.2f} % ({100 * total['behind_max']:.2f} %) |"
            )
    first = studies[0]["study"]
    lines += [
        "",
        f"{int(studies[0]['totals']['decision']['problems'])} problems of results/recorded, {first['cards']} cards, "
        f"{first['trials']} trials or {first['share']:.0%} of the recorded space, whichever is fewer.",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    options = harness.parser(__doc__)
    add = options.add_argument
    add("what", choices=["simulate", "gpu"])
    add("--out", type=Path, help="Folder for same-table.json and .txt, or same-table-gpu.*.")
    add("--work", type=Path, default=Path("work/same-table"))
    add("--seconds", type=float, default=540.0, help="gpu: begin nothing new after so long.")
    add("--problems", type=int, default=40, help="gpu: only the first so many.")
    add("--trials", type=int, default=200)
    add("--again", type=int, default=100, help="gpu: trials where the two do not agree.")
    add("--jobs", type=int, help="gpu: compiling processes for each GPU.")
    add("--device", nargs=2, help="gpu: instead of cuda:0 and cuda:1.")
    add("--processes", type=int, default=os.cpu_count())
    given = options.parse_args()
    if given.what == "gpu":
        return measure(given)
    studies = []
    for own in OWN:
        study = Study(trials=given.trials, own=own)
        rows = simulate(study, given.processes)
        studies.append({"study": asdict(study), "totals": totals(rows), "problems": rows})
    text = table(studies)
    sys.stdout.write(text)
    harness.write(given.out, "same-table", studies, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
