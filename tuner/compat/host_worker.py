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
    """Do what a job says; write the times in milliseconds in its place, and the arrays after the first call beside."""
    job = json.loads(path.read_text())
    library = ctypes.CDLL(str(path.with_suffix(".so")))
    function = library[job["name"]]
    function.restype = ctypes.c_float
    arrays: dict[str, Any] = {}
    arguments = []
    for one in job["arguments"]:
        if "file" not in one:
            arguments.append(np.ctypeslib.as_ctypes_type(np.dtype(one["dtype"]))(one["value"]))
            continue
        array = np.load(path.with_name(one["file"]))
        if one["locked"]:
            library.kernel_tune_allocate.restype = ctypes.c_void_p
            if not (start := library.kernel_tune_allocate(ctypes.c_size_t(array.nbytes))):
                sys.exit("there is no page-locked memory for an array")
            memory = (ctypes.c_byte * array.nbytes).from_address(start)
            values, array = array, np.frombuffer(memory, array.dtype).reshape(array.shape)
            array[...] = values
        arrays[one["file"]] = array
        arguments.append(ctypes.c_void_p(array.ctypes.data))
    times = [function(*arguments)]
    for name, array in arrays.items() if job["keep"] else ():
        np.save(path.with_name(f"after-{name}"), array)
    times += [function(*arguments) for _ in range(job["iterations"] - 1)]
    path.write_text(json.dumps(times))


if __name__ == "__main__":
    die_with_parent()
    main(Path(sys.argv[1]))
