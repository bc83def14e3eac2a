"""Hostile databases and files: whether each command that reads them ends, in bounds, with at most one line of error.

python scripts/hostile.py                     # results/evidence/hostile.txt is its output
python scripts/hostile.py --case "database 17" --keep /tmp/case     # one case again, with its folder
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from scripts.harness import parser
from scripts.hostile_input import databases, files, readers, runner
from scripts.hostile_input.beside import NAME

COMMANDS_OF_A_DATABASE = 3
Record = dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    options = parser(__doc__)
    add = options.add_argument
    add("--databases", type=int, default=1020, help="hostile databases, three commands each")
    add("--files", type=int, default=2000, help="mutated files, a command each")
    add("--seed", default="0")
    add("--jobs", type=int, default=os.cpu_count())
    add("--case", metavar="NAME", help="one case, such as: database 17")
    add("--keep", type=Path, metavar="FOLDER", help="with --case: leave its files here")
    given = options.parse_args(arguments)
    cases = [("database", i) for i in range(given.databases)] + [("file", i) for i in range(given.files)]
    if given.case:
        kind, number = given.case.split()
        cases, given.jobs = [(kind, int(number))], 1
    began = time.monotonic()
    work = Path(given.keep or tempfile.mkdtemp(prefix="hostile-"))
    try:
        records = list(campaign(cases, given, work))
    finally:
        if not given.keep:
            shutil.rmtree(work, ignore_errors=True)
    return report(records, given, time.monotonic() - began)


def campaign(cases: list[tuple[str, int]], given: argparse.Namespace, work: Path) -> Iterator[Record]:
    """Run cases in several processes; yield a record for each command."""
    import_everything()
    start = work / "template"
    start.mkdir(parents=True)
    databases.template(start, lambda *arguments: _run_once(arguments, start))
    records = partial(_records, given=given, work=work)
    with ProcessPoolExecutor(given.jobs, mp_context=get_context("fork")) as pool:
        for of_case in pool.map(records, cases):
            yield from of_case


def import_everything() -> None:
    """Import what commands would import, so that it counts for none of them."""
    import importlib
    import pkgutil

    import tuner

    left_out = ("tuner.gpu", "tuner.__main__", "tuner.program", "tuner.runtime.torch")  # torch takes a second
    for module in pkgutil.walk_packages(tuner.__path__, "tuner."):
        if not module.name.startswith(left_out):
            importlib.import_module(module.name)
    importlib.import_module("rich.console")
    importlib.import_module("tests.stored")


def _run_once(arguments: tuple[str, ...], folder: Path) -> int:
    (folder / "home").mkdir(exist_ok=True)
    streams = folder.parent / "streams"
    streams.mkdir(exist_ok=True)
    ended = runner.forked(runner.tune(arguments, folder), streams)
    sys.stderr.write(ended.err.decode())
    return ended.status


def _records(case: tuple[str, int], given: argparse.Namespace, work: Path) -> list[Record]:
    name = "{} {}".format(*case)
    folder, streams = work / name.replace(" ", ""), work / f"streams{os.getpid()}"
    folder.mkdir()
    streams.mkdir(exist_ok=True)
    try:
        return list(_case(*case, given.seed, folder, streams))
    except Exception:  # noqa: BLE001 - the other cases are worth having
        return [{"case": name, "kind": "(the case)", "problems": [f"case: {traceback.format_exc()[-600:]}"]}]
    finally:
        if not given.keep:
            shutil.rmtree(folder, ignore_errors=True)


def _case(kind: str, number: int, seed: str, folder: Path, streams: Path) -> Iterator[Record]:
    note = streams / "what"

    def write() -> int:
        if kind == "database":
            what = databases.write(folder, folder.parent / "template" / NAME, seed, number)
        else:
            what = files.write(folder, seed, number)
        note.write_text(what)
        return 0

    made, case = runner.forked(write, streams, 60.0), f"{kind} {number}"
    if made.status:
        raise RuntimeError(f"exit status {made.status}: {made.err.decode()[-300:]}")
    # SQLite takes what a journal beside the file holds, and an older version is migrated, also to read.
    what = note.read_text()
    unsettled = any(change in what for change in ("log beside", "of other versions"))
    of_files = files.commands(folder, seed, number) if kind == "file" else []
    for command in of_files or readers.commands(seed, number, COMMANDS_OF_A_DATABASE):
        if unsettled:
            command = replace(command, makes=(*command.makes, NAME))
        ended = runner.run_and_check(command, folder, streams)
        yield {
            "case": case,
            "what": what,
            "kind": command.kind,
            "arguments": command.arguments,
            "status": ended.status,
            "wall_s": round(ended.wall_s, 3),
            "cpu_s": round(ended.cpu_s, 3),
            "rss_mib": ended.rss_bytes >> 20,
            "child_rss_mib": ended.child_rss_bytes >> 20,
            "compiles": command.compiles,
            "error": ended.err.decode(errors="replace").strip().rpartition("\n")[2][:300],
            "problems": ended.problems,
        }
        for name in command.makes:
            if name not in (NAME, "t.db"):
                if (folder / name).is_dir():
                    shutil.rmtree(folder / name)
                else:
                    (folder / name).unlink(missing_ok=True)


def report(records: list[Record], given: argparse.Namespace, took_s: float) -> int:
    """Print a table of commands, and what failed; returns the exit status."""
    by_kind: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        by_kind[record["kind"]].append(record)
    print(
        f"python scripts/hostile.py --databases {given.databases} --files {given.files} --seed {given.seed}"
    )
    head = f"{'command':<20} {'runs':>5} {'exit 0':>6} {'1':>5} {'2':>5}"
    print(f"{head}  cpu s p50   p95   max  MiB max  failed")
    for kind in sorted(by_kind):
        group = by_kind[kind]
        statuses = Counter(record.get("status") for record in group)
        cpu = sorted(record.get("cpu_s", 0.0) for record in group)
        worst = max(record.get("rss_mib", 0) for record in group)
        failed = sum(bool(record["problems"]) for record in group)
        p50, p95 = cpu[len(cpu) // 2], cpu[int(0.95 * (len(cpu) - 1))]
        print(
            f"{kind:<20} {len(group):>5} {statuses[0]:>6} {statuses[1]:>5} {statuses[2]:>5}  "
            f"{p50:>9.2f} {p95:>5.2f} {cpu[-1]:>5.2f} {worst:>8}  {failed:>6}"
        )
    failures = [record for record in records if record["problems"]]
    classes = Counter(problem.split(":")[0] for record in failures for problem in record["problems"])
    print(f"{len(records)} commands in {took_s:.0f} s with {given.jobs} jobs: {len(failures)} failed")
    for name, count in classes.most_common():
        print(f"  {name}: {count}")
    for record in failures:
        print(f"--seed {given.seed} --case '{record['case']}' ({record.get('what', '')}): "
              f"tune {' '.join(record.get('arguments', ()))!a}")  # fmt: skip
        for problem in record["problems"]:
            print(f"    {problem[:300]!a}")
    print("FAILED" if failures else "PASSED")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
