"""What scripts take from ``kernel_tuner.file_utils``: results and machine as files of the T4 format."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.compat.kernel_tuner.results import ERROR, PARTS, write_json
from tuner.core.version import __version__
from tuner.formats.autotuners import FAILED, SCHEMA_VERSION

QUERY = (
    "name", "uuid", "driver_version", "memory.total", "clocks.max.sm", "clocks.max.memory", "power.limit",
)  # fmt: skip
"""What is asked of ``nvidia-smi``."""
_NAMES = {"compile": "compilation", "verification": "validation", "strategy": "search_algorithm"}
_WORDS = {kind: word for word, kind in FAILED.items()}


def store_output_file(
    output_filename: str | Path,
    results: Sequence[Mapping[str, Any]],
    tune_params: Mapping[str, Any],
    objective: str = "time",
) -> None:
    """Write results of ``tune_kernel`` as a T4 file, which ``tune db import`` and ``--device replay:`` read.

    Args:
        output_filename: gets ``.json``; its folder is made.
        results: as returned.
        tune_params: as passed.
        objective: what was minimized or maximized.
    """
    metadata = {"timeunit": "milliseconds", "autotuner": {"name": "kernel-tune", "version": __version__}}
    listed = [_result(one, tune_params, objective) for one in results]
    write_json(output_filename, {"results": listed, "schema_version": SCHEMA_VERSION, "metadata": metadata})


def _result(one: Mapping[str, Any], tune_params: Mapping[str, Any], objective: str) -> dict[str, Any]:
    others = {"timestamp", "times", "status", "message", ERROR, *(f"{part}_time" for part in PARTS)}
    times = {_NAMES.get(part, part): one.get(f"{part}_time", 0.0) for part in PARTS}
    return {
        "timestamp": one.get("timestamp", ""),
        "configuration": {name: one[name] for name in tune_params if name in one},
        "times": {**times, "runtimes": one.get("times", [])},
        "invalidity": _WORDS[one[ERROR]] if ERROR in one else "correct",
        "correctness": int(ERROR not in one),
        "measurements": [
            {"name": name, "value": value, "unit": "ms" if name == "time" else ""}
            for name, value in one.items()
            if name not in tune_params and name not in others
        ],
        "objectives": [objective],
    }


def store_metadata_file(metadata_filename: str | Path) -> None:
    """Write what this machine is, as the metadata of a T4 file; the name gets ``.json``, its folder is made."""
    installed = {one.name: one.version for one in importlib.metadata.distributions()}
    metadata = {
        "operating_system": platform.platform(),
        "hardware": {"hardware_description": [platform.uname()._asdict()]},
        "environment": {
            "device_query": {"nvidia-smi": _gpus()},
            "requirements": [f"{name}=={version}" for name, version in sorted(installed.items())],
        },
    }
    write_json(metadata_filename, {"metadata": metadata, "schema_version": SCHEMA_VERSION})


def _gpus() -> list[dict[str, str]]:
    command = ["nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [dict(zip(QUERY, map(str.strip, line.split(",")), strict=False)) for line in said.splitlines()]
