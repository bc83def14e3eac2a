"""Fleets of simulated devices, with a head in this process and searchers in processes of their own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tuner.core.model import Problem, RunOptions
from tuner.database.database import Database
from tuner.fleet.cards import Card, Job, Phase
from tuner.fleet.head import Head
from tuner.fleet.messages import ChildLink, OpenDevice, Task, TaskDone
from tuner.fleet.progress import Announcer
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.load import load_kernel

RECORDING = Path(__file__).parents[1] / "results" / "recorded" / "vector_add-H200.json.gz"
OPENER = "tests.faults.simulated_device:open_simulated"


class Seen(Announcer):
    """A watcher that remembers."""

    def __init__(self) -> None:
        super().__init__(self.keep, self.keep_failure, quiet=True)
        self.texts: list[str] = []
        self.began_on: list[tuple[str, str]] = []
        """Device and problem, in order."""
        self.results: dict[int, TaskDone] = {}
        self.failures: dict[int, str] = {}
        self.order: list[tuple[str, int]] = []
        """What has happened to which problem."""
        self.searching: list[int] = []
        """How many problems were searched at a time, on the device with most of them."""
        self.on_tick: Callable[[Head], None] = lambda head: None

    def said(self, card: Card, text: str) -> None:
        self.texts.append(f"{card.name}: {text}")

    def began(self, card: Card, job: Job, lines: Sequence[str]) -> None:
        self.began_on.append((card.name, job.name))
        self.order.append(("began", job.number))

    def keep(self, job: Job, result: TaskDone) -> None:
        self.results[job.number] = result
        self.order.append(("done", job.number))

    def keep_failure(self, job: Job, error: str) -> None:
        self.failures[job.number] = error

    def step(self, head: Head) -> None:
        self.searching.append(max((len(card.of(Phase.SEARCHING)) for card in head.cards), default=0))
        self.on_tick(head)


def problems(count: int) -> list[Problem]:
    kernel = load_kernel("vector_add")
    return [kernel.problem({"n": 2**20 + i}) for i in range(count)]


def jobs(count: int, trials: int = 8, **changes: Any) -> list[Job]:
    """Return problems of a kernel, each with as many trials."""
    kernel = load_kernel("vector_add")
    text = KernelIdentity(kernel).text
    options = RunOptions(trials=trials, sampler=changes.get("sampler", "random"), from_scratch=True)
    return [
        Job(
            number,
            Task(
                "", kernel.file, text, problem, options, database="tuning.db",
            ),
        )
        for number, problem in enumerate(problems(count))
    ]  # fmt: skip


def cards(count: int, *, overlap: bool = True) -> list[Card]:
    """Return simulated devices."""

    def card(number: int) -> Card:
        name = f"cuda:{number}"
        return Card(
            name,
            lambda events, facts: ChildLink(events.put, OpenDevice(name, None, None, facts, OPENER)),
            overlap,
        )

    return [card(number) for number in range(count)]


def searchers(environment: str = "") -> list[int]:
    """Return the processes that this one has started as searchers; or those with this text in their environment."""
    found, own = [], os.getpid()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            words = (folder / "cmdline").read_bytes()
            ours = environment.encode() in (folder / "environ").read_bytes() if environment else parent == own
        except (OSError, ValueError, IndexError):
            continue
        if ours and b"tuner.fleet.searcher" in words:
            found.append(int(folder.name))
    return found


def hold(folder: Path) -> Path:
    """Make the file with which simulated devices wait."""
    (file := folder / "hold").touch()
    return file


def simulate(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
    """Set what simulated devices do."""
    monkeypatch.setenv("SIMULATED", json.dumps({"recording": str(RECORDING), **settings}))


def sound(database: Database, runs: int, trials: int) -> None:
    """Check that there are so many whole runs, with no row lost or doubled."""
    assert database.check().problems == []
    assert [row["state"] for row in database.select("SELECT state FROM runs")] == ["finished"] * runs
    counts = database.select(
        "SELECT count(*) AS trials, count(DISTINCT number) AS numbers, "
        "count(DISTINCT variant || configuration) AS configurations FROM trials GROUP BY run_id"
    )
    assert [tuple(row.values()) for row in counts] == [(trials, trials, trials)] * runs
    assert not database.select("SELECT * FROM attempts")
