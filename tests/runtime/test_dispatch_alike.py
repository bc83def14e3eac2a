"""C++ and Python choose the same configuration for the same problem, and expect the same of it."""

from __future__ import annotations

import copy
import itertools
import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cpp_interface import sanitized
from tests.runtime.manifests import LIMITS, MANIFEST, PLAIN, manifest_with
from tuner.core.errors import BundleError, TunerError
from tuner.runtime.dispatch import Match, Policy, dispatch
from tuner.runtime.entries import Manifest
from tuner.runtime.manifest import read_manifest

MATCHES = [Match.EXACT, Match.NEAREST, Match.OTHER_GPU, Match.DEFAULT, Match.PORTFOLIO]
POLICIES = [Policy.NEAREST_VALID, Policy.RAISE, Policy.EXACT, Policy.DEFAULT]
COSTS: list[Any] = [
    1,
    ["*", ["ceil_div", ["*", "m", "n"], ["*", 16384, "sm_count"]], "k"],
    ["/", ["*", "m", "n"], 7],
    ["//", "m", ["-", "n", "n"]],
    ["*", ["*", "m", "n"], ["*", "k", "k"]],
    ["-", "m", 5000],
]


def member(configuration: int, cost: Any) -> dict[str, Any]:
    return {"configuration": configuration, **({} if cost == 1 else {"cost": cost})}


def drawn(rng: random.Random, *, timed: bool = True) -> bytes:
    """Return a manifest of gemm with winners and portfolios on two GPUs, whose members were timed or not."""

    def sizes() -> dict[str, int]:
        # From one to sizes that 31 bits do not hold.
        return {
            name: int(2 ** rng.uniform(0, rng.choice((12, 14, 40)))) + rng.choice((0, 8)) for name in "mnk"
        }

    def needs(name: str, divisor: int) -> dict[str, Any]:
        holds = ["==", ["%", name, divisor], 0]
        return {**copy.deepcopy(PLAIN), "requires": [{"reason": f"{name} is round", "holds": holds}]}

    configurations = [
        *MANIFEST["configurations"],
        *(needs(*one) for one in itertools.product("mnk", (2, 8, 64))),
    ]
    portfolios = []
    for gpu in rng.sample(["NVIDIA H200", "NVIDIA H20"], rng.choice((1, 2))):
        chosen = rng.sample([0, *range(3, len(configurations))], rng.randint(1, 8))
        points = [
            {
                "sizes": sizes(),
                "residuals": [rng.choice((None, rng.randint(-300, 2000) if timed else None)) for _ in chosen],
            }
            for _ in range(rng.randint(1, 40))
        ]
        portfolios.append(
            {
                "computation": 0, "gpu": gpu, "bound": 1.05, "neighbours": rng.randint(1, 12),
                "reach": rng.choice((64, 256, 700)), "cost_weight": rng.choice((0, 512, 1024)),
                "members": [member(one, rng.choice(COSTS)) for one in chosen], "points": points,
            }
        )  # fmt: skip
    winner = MANIFEST["winners"][0]
    winners = [
        {**winner, "configuration": rng.randint(3, 8), "sizes": sizes()} for _ in range(rng.randint(0, 3))
    ]
    changes = (("configurations", configurations), ("portfolios", portfolios), ("winners", winners))
    return manifest_with(*changes)


def answer(
    manifest: Manifest, sizes: dict[str, int], limits: dict[str, int], gpu: str, policy: Policy
) -> list[str]:
    """Return what C++ has to print."""
    try:
        found = dispatch(manifest, 0, sizes, limits, gpu, policy)
    except BundleError as error:
        return ["wrong_gpu", error.problem]
    except TunerError:
        return ["no_configuration"]
    number = str(MATCHES.index(found.match))
    return [str(found.concrete.configuration), number, f"{found.expected_slowdown or 0:.17g}"]


@pytest.mark.parametrize(
    ("seed", "policy", "timed"),
    [
        *((seed, Policy.NEAREST_VALID, True) for seed in range(3)),
        *((seed, policy, True) for seed, policy in enumerate(POLICIES[1:], 9)),
        (12, Policy.NEAREST_VALID, False),
    ],
)
def test_both_choose_alike(seed: int, policy: Policy, timed: bool, tmp_path: Path) -> None:
    rng = random.Random(seed)
    data = drawn(rng, timed=timed)
    (tmp_path / "manifest.json").write_bytes(data)
    known = [point["sizes"] for one in json.loads(data)["portfolios"] for point in one["points"]]
    problems = [{name: int(2 ** rng.uniform(0, 15)) for name in "mnk"} for _ in range(40)]
    problems += [{name: size // 8 * 8 or 8 for name, size in one.items()} for one in problems]
    problems += rng.sample(known, min(10, len(known)))
    lines = [(sizes, {**LIMITS, "cc": rng.choices((90, 80, 100), (30, 1, 1))[0]}) for sizes in problems]
    said = subprocess.run(
        [*sanitized("dispatch"), tmp_path / "manifest.json", "NVIDIA H200", str(POLICIES.index(policy))],
        input="\n".join(" ".join(map(str, (*limits.values(), *sizes.values()))) for sizes, limits in lines),
        capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    matches, manifest = set(), read_manifest(data)
    for line, (sizes, limits) in zip(said, lines, strict=True):
        expected = answer(manifest, sizes, limits, "NVIDIA H200", policy)
        if expected[0] == "wrong_gpu":
            assert expected[1] in line
        elif expected[0] == "no_configuration":
            assert not line.split()[1].isdigit()
        else:
            assert line.split() == expected, (sizes, limits)
            matches.add(MATCHES[int(expected[1])])
    if not timed:
        assert matches and Match.PORTFOLIO not in matches, "nothing is known of its members"
    elif policy is Policy.NEAREST_VALID:
        assert Match.PORTFOLIO in matches or Match.OTHER_GPU in matches
