"""Stand-ins for ncu and compute-sanitizer: they read the job, keep its diary, and write what the tools would.

Each is a small executable file. What it does wrong is in ``FAKE_TOOL``, a JSON object in the environment; what it was
called with goes, a line each, to the file that ``FAKE_CALLS`` names. No GPU is touched: the process that the real tools
would start is never started, unless ``run`` says so.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

COMMON = """
import json, os, subprocess, sys, time
from pathlib import Path

import msgspec

WORD = json.loads(os.environ.get("FAKE_TOOL", "{}"))
ARGUMENTS = sys.argv[1:]
if os.environ.get("FAKE_CALLS"):
    with open(os.environ["FAKE_CALLS"], "a") as calls:
        calls.write(json.dumps(ARGUMENTS) + "\\n")


def value(option):
    return ARGUMENTS[ARGUMENTS.index(option) + 1] if option in ARGUMENTS else ""


def read_job():
    job = msgspec.msgpack.decode(Path(ARGUMENTS[-1]).read_bytes())
    return job, os.fsdecode(job["diary"])


def note(diary, kind, **entry):
    with open(diary, "a") as file:
        file.write(json.dumps({"type": kind, **entry}) + "\\n")
"""

NCU = """
if "--import" in ARGUMENTS:
    sys.stdout.write(Path(value("--import")).read_text())
    sys.exit(WORD.get("import_status", 0))
if WORD.get("run"):
    sys.exit(subprocess.run(ARGUMENTS[ARGUMENTS.index("-P") - 1:]).returncode)
job, diary = read_job()
if WORD.get("permission"):
    print("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters")
    sys.exit(1)
for name in WORD.get("unknown", []):
    if name in value("--metrics"):
        print("==ERROR== Failed to find metric regex:^" + name.split(".")[0] + "(\\\\.|$)")
        sys.exit(1)
print("==PROF== Connected to process 1")
note(diary, "Ready", pid=os.getpid())
number = job["runs"][0]["number"]
note(diary, "Waiting")
if WORD.get("locked"):
    time.sleep(600)
note(diary, "Began", number=number)
note(diary, "Placed", tensors={"y": [4096, 1024]})
if WORD.get("hang"):
    time.sleep(600)
outcome = WORD.get("outcome", "ok")
note(diary, "Ended", number=number, outcome=outcome, error=WORD.get("error", ""), log_bytes=0)
if WORD.get("busy"):
    print("==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no other tool is running.")
    sys.exit(1)
if outcome == "ok":
    Path(value("--export")).write_text(Path(os.environ["FAKE_CSV"]).read_text())
note(diary, "Done")
"""

SANITIZER = """
if WORD.get("run"):
    sys.exit(subprocess.run(ARGUMENTS[ARGUMENTS.index("-P") - 1:]).returncode)
tool, log = value("--tool"), Path(value("--log-file"))
job, diary = read_job()
faults = WORD.get(tool, {})          # entry or number -> what happens
lines = ["========= COMPUTE-SANITIZER"]
count = 0


def say(*new):
    lines.extend("========= " + line if line else "=========" for line in new)
    log.write_text("\\n".join(lines) + "\\n")


RECORDS = {
    "memcheck": [
        "Invalid __global__ write of size 4 bytes", "    at {entry}(const float *, float *)+0x90",
        "    by thread (31,0,0) in block (3,0,0)", "    Access to 0x1400 is out of bounds",
        "    and is 1 bytes after the nearest allocation at 0x1000 of size 1,024 bytes", "",
    ],
    "racecheck": [
        "Error: Race reported between Write access at {entry}(float *)+0x90",
        "    and Read access at {entry}(float *)+0x120 [508 hazards]", "",
    ],
    "synccheck": [
        "Barrier error detected. Divergent thread(s) in block.", "    at {entry}(float *)+0xf0",
        "    by thread (37,0,0) in block (0,0,0)", "",
    ],
    "initcheck": [
        "Uninitialized __global__ memory read of size 4 bytes", "    at compare_float32+0x70",
        "    by thread (31,0,0) in block (1,0,0)", "    Address 0x1000", "",
    ],
}
if WORD.get("refuses"):
    say(WORD["refuses"])
    sys.exit(1)
if WORD.get("scribbles"):
    Path(diary).write_text('{"type": "Began", "number": "one"}\\n')
    sys.exit(0)
if WORD.get("no_context"):
    note(diary, "Complaint", error=WORD["no_context"])
    say("ERROR SUMMARY: 0 errors")
    sys.exit(2)
if WORD.get("blind"):
    faults = {}
log.write_text(lines[0] + "\\n")
note(diary, "Ready", pid=os.getpid())
alone = len(job["runs"]) == 1
for run in job["runs"]:
    number, entry = run["number"], run["candidate"]["entries"][0]
    fault = faults.get(str(number), faults.get(entry, ""))
    if number == -1:
        fault = "" if WORD.get("blind") else "finding"
    note(diary, "Waiting")
    if WORD.get("locked"):
        time.sleep(600)
    note(diary, "Began", number=number)
    note(diary, "Placed", tensors={"y": [4096, 1024]})
    outcome, error = "ok", ""
    if fault == "hang":
        time.sleep(600)
    if fault == "vanish":
        sys.exit(9)
    if fault.startswith(("finding", "shy")) and not (fault == "shy" and alone):
        count += 1
        say(*(line.format(entry=entry) for line in RECORDS[tool]))
        if tool == "memcheck":
            outcome, error = "fault", "CUDA_ERROR_LAUNCH_FAILED (719)"
    if fault == "wrong":
        outcome, error = "wrong", "y[3] is 0, expected 2"
    if fault == "fault":
        outcome, error = "fault", "CUDA_ERROR_ILLEGAL_ADDRESS (700)"
    if fault == "unlaunchable":
        outcome, error = "unlaunchable", "CUDA_ERROR_INVALID_VALUE (1)"
    size = WORD.get("late_log") and 24 or log.stat().st_size
    note(diary, "Ended", number=number, outcome=outcome, error=error, log_bytes=size)
    if outcome == "fault":
        say("Error: process didn't terminate successfully", "Target application returned an error")
        say("ERROR SUMMARY: %d errors" % count)
        sys.exit(3)
note(diary, "Done")
count += 3 * sum(str(run["number"]) in WORD.get("unknown_format", []) for run in job["runs"])
if not WORD.get("silent"):
    if tool == "racecheck":
        say("RACECHECK SUMMARY: %d hazards displayed (%d errors, 0 warnings)" % (count, count))
    else:
        say("ERROR SUMMARY: %d errors" % count)
    if WORD.get("full") and count and not alone:
        say("ERROR SUMMARY: 900 errors were not printed. Use --print-limit option to adjust the number")
"""


def write_tool(folder: Path, name: str, text: str) -> Path:
    """Write an executable of this name."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!{sys.executable}\n" + textwrap.dedent(COMMON) + text)
    path.chmod(0o755)
    return path


def fake_ncu(folder: Path) -> Path:
    """Write a stand-in for ncu."""
    return write_tool(folder, "ncu", NCU)


def fake_sanitizer(folder: Path) -> Path:
    """Write a stand-in for compute-sanitizer."""
    return write_tool(folder, "compute-sanitizer", SANITIZER)
