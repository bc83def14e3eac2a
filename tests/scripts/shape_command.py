"""A `tune` that answers scripts/gemm_shapes.py without a GPU."""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scripts import shape_notes
from scripts.gemm_shapes import Study
from scripts.shape_notes import Problem, Shape


class Command:
    """`tune` with scripted answers."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.ratios = {"torch": 1.1, "cublaslt": 1.08}
        self.warm_ratios = {"torch": 1.02, "cublaslt": 1.01}

    def __call__(self, *words: str) -> tuple[str, float]:
        self.calls.append(list(words))
        if words[0] == "bench":
            modes = [after for before, after in itertools.pairwise(words) if before == "--mode"]
            found = [
                self.bench(problem, "cold" if mode == "auto" else mode)
                for problem in self.problems(words)
                for mode in modes or ["auto"]
            ]
            return json.dumps(found), 5.0
        if words[0] == "--kernel":
            return json.dumps([self.run(words)]), 12.0
        return "", 0.1

    def problems(self, words: tuple[str, ...]) -> Iterator[dict[str, int]]:
        for before, text in itertools.pairwise(words):
            if before == "--problem":
                yield {pair.split("=")[0]: int(pair.split("=")[1]) for pair in text.split(",")}

    def run(self, words: tuple[str, ...]) -> dict[str, Any]:
        winner = {
            "variant": "wgmma", "configuration": {"block_m": 128, "stages": 4}, "time_ns": 1.7e5,
            "edge_sizes_verified": 12, "exportable": True, "reason": "",
        }  # fmt: skip
        found: dict[str, Any] = {"gpu": "NVIDIA H200", "winner": winner, "stats": {"trials": 200}}
        return found

    def bench(self, sizes: dict[str, int], mode: str = "cold") -> dict[str, Any]:
        def entry(name: str, ratio: float | None) -> dict[str, Any]:
            verdict = (
                None if ratio is None else "faster" if ratio > 1.01 else "slower" if ratio < 0.99 else "same"
            )
            low, high = (None, None) if ratio is None else (ratio - 0.001, ratio + 0.001)
            return {
                **{"contestant": name, "time_ns": 1.7e5 * (ratio or 1.0), "ratio": ratio, "ratio_low": low},
                **{"ratio_high": high, "verdict": verdict, "verified": True, "sm_clock_hz": 1.6e9},
                **{"variant": "wgmma", "parameters": {"stages": 4}, "tflops": 800.0, "gbytes_per_s": 600.0},
                "speed_of_light": 0.75,
            }

        libraries = [
            entry("torch" if name == "torch" else f"cublaslt.py:{name}", ratio)
            for name, ratio in (self.warm_ratios if mode == "warm" else self.ratios).items()
        ]
        return {
            "problem": {"sizes": sizes},
            **{"gpu": "NVIDIA H200", "driver": "13.0", "mode": mode, "regime": "rested"},
            **{
                "noise_floor": 0.002,
                "tags": [],
                "contestants": [entry("best", None), *libraries],
                "failed": [],
            },
        }


def given(**changes: Any) -> argparse.Namespace:
    usual = {"trials": 200, "time": 20.0, "rounds": 20, "ablation_rounds": 12}
    usual |= {"seconds": 0.0, "jobs": 0}
    return argparse.Namespace(**{**usual, "shapes": [], **changes})


def problems(*shapes: Shape, dtype: str = "bfloat16") -> list[Problem]:
    return [Problem(shape, dtype) for shape in shapes]


def study(
    folder: Path, *shapes: Shape, steps: str = "search,race", **changes: Any
) -> tuple[Study, list[Any]]:
    done = Study(given(work=folder, **changes))
    done.wanted = problems(*shapes)
    done.run(steps.split(","))
    return done, shape_notes.rows_of(done)
