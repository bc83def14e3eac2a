"""Calls a host function in a process of its own: ``python -m tuner.compat.host_worker JOB.json``."""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tuner.core.processes import die_with_parent


def main(path: Path) -> None:
    """Do what a job says; write the times in milliseconds, and the arrays after the first call, beside it."""
    job = json.loads(path.read_text())
    library = ctypes.CDLL(job["library"])
    function = library[job["name"]]
    function.restype = ctypes.c_float
    arrays: dict[str, Any] = {}
    arguments = []
    for one in job["arguments"]:
        if "file" not in one:
            arguments.append(np.ctypeslib.as_ctypes_type(np.dtype(one["dtype"]))(one["value"]))
            continue
        array = arrays[one["file"]] = np.load(path.with_name(one["file"]))
        start = ctypes.c_void_p(array.ctypes.data)
        if one["locked"] and library.kernel_tune_lock(start, ctypes.c_size_t(array.nbytes)):
            sys.exit("the pages of an array cannot be locked")
        arguments.append(start)
    times = [function(*arguments)]
    for name, array in arrays.items() if job["keep"] else ():
        np.save(path.with_name(f"after-{name}"), array)
    times += [function(*arguments) for _ in range(job["iterations"] - 1)]
    path.with_name("times.json").write_text(json.dumps(times))


if __name__ == "__main__":
    die_with_parent()
    main(Path(sys.argv[1]))
