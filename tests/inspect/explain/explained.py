"""`tune explain` where there is no GPU, and what it says as JSON."""

from __future__ import annotations

import json
from typing import Any

from click.testing import CliRunner, Result

from tuner.cli.commands.inspection import explain


def run(*arguments: str) -> Result:
    return CliRunner().invoke(explain, arguments, catch_exceptions=False)


def data(*arguments: str) -> dict[str, Any]:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.output)
    return found


def limits(launch: dict[str, Any]) -> dict[str, int]:
    return {limit["name"]: limit["blocks"] for limit in launch["occupancy"]["limits"]}
