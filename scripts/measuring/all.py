"""Everything that docs/measuring.md shows, in some ten minutes on one GPU:

    scripts/run python scripts/measuring/all.py results/evidence

Between the other measurements, every minute, the spread of one cuBLAS product is measured (``spread.py``), so that its
ten measurements see the card after all kinds of work.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scripts import harness
from scripts.measuring.spread import MEASUREMENTS, measure_if_due

HERE = Path(__file__).resolve().parent


def main() -> None:
    options = harness.parser(__doc__)
    add = options.add_argument
    add("folder", type=Path)
    add("--work", type=Path, help="Folder of intermediate results; an interrupted call goes on there.")
    add("--every", type=float, default=64.0, metavar="SECONDS", help="From one spread to the next.")
    add("--until", type=float, default=1e9, metavar="SECONDS", help="End after so long, finished or not.")
    given = options.parse_args()
    work = given.work or Path(tempfile.mkdtemp())
    work.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + given.until
    spread = work / "spread.jsonl"
    tasks = [["ten_runs.py", "--one", str(seed), "--folder", str(work)] for seed in range(10)]
    tasks += [["ten_runs.py", "--folder", str(work), "--out", str(work / "ten-runs.json")]]
    tasks += [[f"{name}.py", "--out", str(work / f"{name}.json")] for name in ("modes", "tools", "race_cost")]
    cases = ("arithmetic", "copy", "addition", "product")
    meanwhile = ["--spread", str(spread), "--every", str(given.every)]
    tasks += [["twins.py", "--only", case, "--out", str(work / "twins.json"), *meanwhile] for case in cases]
    while tasks and time.monotonic() < deadline:
        measure_if_due(spread, given.every)
        task = tasks.pop(0)
        done = work / f"done-{'-'.join(Path(word).name for word in task)}"
        if not done.exists() and _call(task, work):
            done.touch()
    while len(spread.read_text().splitlines()) < MEASUREMENTS and time.monotonic() < deadline:
        time.sleep(0.5)
        measure_if_due(spread, given.every)
    if spread.exists():
        _call(["spread.py", "--summary", str(spread), "--out", str(work / "spread.json")], work)
    given.folder.mkdir(parents=True, exist_ok=True)
    for file in ("ten-runs", "modes", "tools", "race_cost", "twins", "spread"):
        if (work / f"{file}.json").exists():
            shutil.copy(work / f"{file}.json", given.folder / f"{file.replace('_', '-')}.json")
    shutil.copy(work / "measuring.txt", given.folder)


def _call(task: list[str], folder: Path) -> bool:
    """Run a script, and say whether it went well."""
    began = time.monotonic()
    print(f"$ {' '.join([task[0], *(Path(word).name for word in task[1:])])}", flush=True)
    command = [sys.executable, str(HERE / task[0]), *task[1:]]
    with (folder / "measuring.txt").open("a") as log:
        log.write(f"$ {' '.join([task[0], *(Path(word).name for word in task[1:])])}\n")
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        log.write(done.stdout)
    print(f"{done.stdout}[{time.monotonic() - began:.1f} s, status {done.returncode}]\n", flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    main()
