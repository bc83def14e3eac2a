"""Shares the problems of ``gemm_shapes.py`` out to several GPUs of one machine."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence

from shape_notes import Notes, Problem
from shape_winners import keep_winners

COST_S, COST_S_OF_TFLOP = 25.0, 4.0
"""Roughly what a problem takes, and more for each 10^12 operations of its product: to share problems out."""


def shared_out(problems: Sequence[Problem], count: int) -> list[list[Problem]]:
    """Share problems out so that each GPU has about as much to do; the same every time."""
    parts: list[list[Problem]] = [[] for _ in range(count)]
    costs = [0.0] * count
    for problem in sorted(problems, key=lambda one: -one.shape.flop):
        least = costs.index(min(costs))
        parts[least].append(problem)
        costs[least] += COST_S + COST_S_OF_TFLOP * problem.shape.flop / 1e12
    return parts


def on_each(script: str, given: argparse.Namespace, problems: Sequence[Problem], notes: Notes) -> None:
    """Have a process for each GPU do its part, and gather what they found.

    Each has a folder of its own in ``--work``, and begins with what is known there: that may be kept elsewhere without
    these folders.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(given.gpus)))).split(",")
    if len(visible) < given.gpus:
        sys.exit(f"{len(visible)} GPUs are visible, not {given.gpus}")
    same = (
        "trials",
        "time",
        "rounds",
        "sustained_rounds",
        "ablation_rounds",
        "longer",
        "longer_time",
        "edges",
        "seconds",
    )
    words = [word for name in same for word in (f"--{name.replace('_', '-')}", str(getattr(given, name)))]
    jobs = given.jobs or max(1, (os.cpu_count() or 1) // given.gpus)
    folders = [given.work / f"gpu-{number}" for number in range(given.gpus)]
    children = []
    for gpu, folder, part in zip(visible, folders, shared_out(problems, given.gpus), strict=False):
        if part:
            part_of = Notes(folder)
            part_of.take(notes)
            if notes.winners.is_file() and not part_of.winners.is_file():
                keep_winners(notes.winners, part_of.winners, part)
            keys = ",".join(problem.key for problem in part)
            command = [
                sys.executable,
                script,
                "--work",
                str(folder),
                "--only",
                keys,
                "--steps",
                given.steps,
            ]
            command += ["--jobs", str(jobs), "--shapes", given.shapes, *words]
            environment = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu}
            children.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment))
    try:
        failed = [child.args for child in children if child.wait()]
    finally:
        for child in children:
            child.terminate()
        for folder in folders:
            if folder.is_dir():
                notes.take(part_of := Notes(folder))
                if part_of.winners.is_file():
                    merge = ["db", "merge", str(part_of.winners), "--db", str(notes.winners)]
                    subprocess.run([sys.executable, "-m", "tuner", *merge], check=False)
    if failed:
        sys.exit(f"{len(failed)} of {len(children)} processes failed; what they found is kept")
