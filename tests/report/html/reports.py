"""Databases for the tests of ``tune report``, and what is read back from a page."""

from __future__ import annotations

import base64
import functools
import gzip
import io
import json
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.stored import CALIBRATION, GPU, make_benchmark, make_run, make_trial, make_winner
from tuner.cli import main
from tuner.core.model import Configuration, Gpu, Problem, Run, RunOptions, Status, Trial, digest
from tuner.database.database import Database
from tuner.database.records import Metrics
from tuner.database.rows import encode_trial
from tuner.report.html import page

CARD = replace(GPU, clock_hz=1.98e9, memory_bytes_per_s=4.8e12)
HOSTILE = (  # the first two are tags that Plotly itself would make elements of
    '<b><a href="//x">'
    "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&{x|y}${1}\u202ereversed"
)
_packed = page.packed
_packed_text = functools.cache(_packed)
page.packed = lambda content: (_packed_text if isinstance(content, str) else _packed)(content)
"""The library of a page is compressed once: that takes as long as its figures."""
FAILURES = {13: Status.COMPILE_ERROR, 29: Status.WRONG_RESULT}


def make_tuned(number: int, seed: int = 0, status: Status = Status.OK) -> Trial:
    """Return a trial whose time is decided by two parameters, block more than stages, and a little noise."""
    block, stages, unroll = 32 << number % 4, 1 + number // 4 % 3, 1 + number // 12 % 2
    noise = 1 + 0.001 * ((7919 * (number + seed)) % 11 - 5)
    time_ns = 1000.0 * (256 / block) ** 0.5 * (1.2 if stages == 1 else 1.0) * noise
    configuration = Configuration.of("tiled", {"block": block, "stages": stages, "unroll": unroll})
    trial = replace(make_trial(number, time_ns, status), configuration=configuration)
    if status.ranked:
        return trial
    return replace(
        trial, time_ns=None, ci_low_ns=None, ci_high_ns=None, samples_ns=(), error="it failed\nbadly"
    )


def tuned(path: Path, run: Run | None = None, count: int = 60) -> list[Trial]:
    """Record a run of trials, some of which failed, with a winner, and return the trials as they are stored."""
    run = run or make_run(gpu=CARD)
    with Database.open(path) as database:
        database.connection.execute("PRAGMA synchronous = OFF")
        database.start_run(run)
        rows, sources = [], set()
        for number in range(count):
            status = FAILURES.get(number, Status.SLOW if number % 20 == 7 else Status.OK)
            trial = make_tuned(number, status=status)
            light = Metrics(800.0, 2000.0, 500 / trial.time_ns) if trial.time_ns else Metrics()
            rows.append(encode_trial(run, trial, light, [digest(text) for text in trial.sources]))
            sources.update(trial.sources)
        with database.transaction():  # as record() does, all at once: each by itself takes 0.2 ms
            database.insert_sources(sorted(sources))
            database.tables["trials"].insert_all(rows)
        trials = database.trials(run.id)
        best = min((trial for trial in trials if trial.time_ns), key=lambda trial: trial.time_ns or 0.0)
        default = trials[0]
        database.record_winner(
            run.id,
            replace(
                make_winner(best, best.time_ns or 0.0),
                default_trial_id=default.id,
                default_time_ns=default.time_ns,
                race={
                    "medians_ns": [
                        [str(best.configuration), best.time_ns],
                        [str(trials[2].configuration), 1500.0],
                    ],
                    "noise_floor": 0.004,
                    "rounds": 16,
                    "verdict": "faster",
                },
            ),
        )
        database.finish_run(run.id, "finished", {"search_s": 1.5, "trials": count})
    return trials


def several(path: Path, count: int = 60) -> None:
    """Record runs of two problems on two GPUs, one of them twice, and a bench."""
    tuned(path, make_run("a" * 32, gpu=CARD), count)
    tuned(path, make_run("b" * 32, gpu=replace(CARD, name="NVIDIA A100", cc=80)), count)
    two(path, count)


def two(path: Path, count: int = 60) -> None:
    """Record runs of two problems, and a bench."""
    other = Problem("vector_add", {"n": 1024}, {"input": "float32"})
    tuned(path, make_run("c" * 32, problem=other, gpu=CARD), count)
    tuned(path, make_run("d" * 32, gpu=CARD), count)
    with Database.open(path) as database:
        database.record_benchmark([make_benchmark(), make_benchmark("torch", ratio=1.25)])


def hostile(path: Path) -> None:
    """Record a run in which every name that a file of others can choose is hostile."""
    problem = Problem(HOSTILE, {HOSTILE: 4}, {HOSTILE: HOSTILE}, {HOSTILE: HOSTILE})
    gpu: Gpu = replace(CARD, name=HOSTILE, driver=HOSTILE, uuid=HOSTILE)
    run = replace(
        make_run("e" * 32, problem, gpu), versions={HOSTILE: HOSTILE}, options=RunOptions(sampler=HOSTILE),
        calibration=replace(CALIBRATION, notes=(HOSTILE,)),
    )  # fmt: skip
    with Database.open(path) as database:
        database.start_run(run)
        for number in range(40):
            trial = make_tuned(number, status=FAILURES.get(number, Status.OK))
            values = {HOSTILE: f"{HOSTILE}{number % 3}", "block": number % 4}
            trial = replace(trial, configuration=Configuration.of(HOSTILE, values), error=HOSTILE)
            database.record(run.id, trial, metrics=Metrics(800.0, 2000.0, 0.5))
        best = database.trials(run.id)[0]
        database.record_winner(
            run.id,
            replace(
                make_winner(best), reason=HOSTILE, exportable=False, race={"medians_ns": [[HOSTILE, 9.0]]}
            ),
        )
        database.finish_run(run.id, "finished", {"search_s": HOSTILE, "trials": HOSTILE})


class Page(HTMLParser):
    """A page as a browser without scripts sees it: elements, their attributes, texts."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self.text = ""
        self._within = ""
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._within = tag
        if tag in ("script", "style"):
            (self.scripts if tag == "script" else self.styles).append("")

    def handle_endtag(self, tag: str) -> None:
        self._within = ""

    def handle_data(self, data: str) -> None:
        if self._within == "script":
            self.scripts[-1] += data
        elif self._within == "style":
            self.styles[-1] += data
        else:
            self.text += data

    @cached_property
    def data(self) -> dict[str, Any]:
        """The figures, tables and themes that the script shows."""
        return json.loads(gzip.decompress(base64.b64decode(self.scripts[0])))  # type: ignore[no-any-return]

    def traces(self, key: str) -> dict[str, dict[str, Any]]:
        """Return a figure's traces by name, else by type."""
        return {one.get("name", one["type"]): one for one in self.data["figures"][key]["data"]}

    def columns(self, problem: int = 1) -> dict[str, list[Any]]:
        """Return a problem's table of trials."""
        return {one["name"]: one["values"] for one in self.data["tables"][f"problem-{problem}-trials"]}

    def keys(self, ending: str) -> list[str]:
        """Return the figures whose key ends so."""
        return [key for key in self.data["figures"] if key.endswith(ending)]

    def policy(self) -> str:
        """The content security policy."""
        (found,) = [
            a["content"] for _, a in self.elements if a.get("http-equiv") == "Content-Security-Policy"
        ]
        return found or ""


def report(db: Path, *options: str) -> Page:
    """Return the page that the command writes of a database."""
    path = db.parent / "report.html"
    said = io.StringIO()
    with pytest.raises(SystemExit) as ended, redirect_stdout(said), redirect_stderr(said):
        main(["report", "--db", str(db), "-o", str(path), "--force", *options])
    assert ended.value.code == 0, said.getvalue()
    return Page(path)
