"""Results of one made-up search, in the formats of other tools."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any


def time_of(bx: int, by: int) -> float | str:
    """Return milliseconds; wide blocks do not compile, and a large product does not run."""
    if bx == 256:
        return "CompilationFailedConfig"
    return "RuntimeFailedConfig" if bx * by > 256 else 1 + abs(bx - 64) / 64 + abs(by - 2)


def cache(without: tuple[tuple[int, int], ...] = ()) -> dict[str, Any]:
    rows = {}
    for bx in (16, 32, 64, 128, 256):
        for by in (1, 2, 4):
            if (bx, by) not in without and bx * by <= 512:
                time = time_of(bx, by)
                row = {
                    "bx": bx,
                    "by": by,
                    "fast": 1,
                    "time": time,
                    "compile_time": 100.0,
                    "benchmark_time": 5.0,
                }
                if not isinstance(time, str):
                    row["times"] = [time, time + 0.25, time - 0.25]
                rows[f"{bx},{by},1"] = row
    return {
        "device_name": "Some GPU",
        "kernel_name": "stencil",
        "problem_size": [512, 256],
        "tune_params_keys": ["bx", "by", "fast"],
        "tune_params": {"bx": [16, 32, 64, 128, 256], "by": [1, 2, 4], "fast": [1]},
        "objective": "time",
        "cache": rows,
    }


def t4(recorded: dict[str, Any]) -> dict[str, Any]:
    """Return the same as a T4 file of the hub, with its quirks."""
    results = []
    for row in recorded["cache"].values():
        failed = isinstance(row["time"], str)
        words = {"CompilationFailedConfig": "compile", "RuntimeFailedConfig": "runtime"}
        times: dict[str, Any] = {"compilation": row["compile_time"]}
        if not failed:
            times["runtimes"] = row["times"]
        results.append(
            {
                "timestamp": "",
                "configuration": {name: row[name] for name in recorded["tune_params_keys"]},
                "times": times,
                "invalidity": words.get(row["time"], "correct"),
                "correctness": 1,
                "measurements": [{"name": "time", "value": row["time"], "unit": ""}],
                "objectives": ["time"],
            }
        )
    return {"metadata": {"timeunit": "miliseconds"}, "results": results, "schema_version": "1.0.0"}


def t1(conditions: tuple[str, ...] = ("bx * by <= 512", "fast == 1 or bx < 32")) -> dict[str, Any]:
    parameters = [
        ("bx", "[16 * 2**i for i in range(5)]", 32),
        ("by", "[1, 2, 4]", 1),
        ("fast", "[1]", 1),
        ("n", "[15]", 15),
    ]
    return {
        "ConfigurationSpace": {
            "TuningParameters": [
                {"Name": name, "Type": "int", "Values": values, "Default": default}
                for name, values, default in parameters
            ],
            "Conditions": [{"Parameters": [], "Expression": text} for text in conditions],
        },
        "KernelSpecification": {"KernelName": "stencil"},
    }


def written(path: Path, data: Any, cut: int = 0) -> Path:
    text = json.dumps(data)
    text = text[: len(text) - cut]
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def trajectory(said: tuple[int, str, str]) -> list[dict[str, Any]]:
    assert said[0] == 0, said
    trajectory: list[dict[str, Any]] = json.loads(said[1])[0]["trajectory"]
    return trajectory


def close_times(runtimes: int, jitter: float) -> dict[str, Any]:
    """Return a T4 file whose best two configurations are 0.5 % apart, and the default is 20 % slower."""
    results = []
    for block, time in ((32, 1.0), (64, 1.2), (128, 1.005)):
        chance = random.Random(block)
        times = [time * chance.uniform(1 - jitter, 1 + jitter) for _ in range(runtimes)]
        results.append(
            {
                "configuration": {"block": block},
                "times": {"runtimes": times} if runtimes else {},
                "invalidity": "correct",
                "measurements": [{"name": "time", "value": time, "unit": "ms"}],
                "objectives": ["time"],
            }
        )
    return {"results": results, "schema_version": "1.0.0"}
