"""From a program to its products: a decoder of Llama 3 8B's shape with random weights, before and after.

    scripts/run python scripts/decoder.py --work decoder --out results/evidence --seconds 540

Its passes (a prefill of 2048 tokens; one token for each of 1, 16 and 64 sequences of 2048) run in CUDA graphs. What
they call is recorded, its products are tuned, the heaviest first, and replaced where that is faster in a graph. Then
the original graph and that with replacements are replayed in turn. Both outputs are compared with a pass in float32.

Everything is kept in ``--work``, and what is there is not done again: start it again with ``--seconds`` until all
passes are in the table. Another machine needs `decoder.state.json`, `decisions.json`, `problems.csv` and `tuning.db` of
that folder.

| step | does |
|---|---|
| record | runs each pass once, and writes `problems.csv` and the calls of each pass |
| tune | `tune gemm --problems` |
| measure | decides on each product, replaces, and times each pass in turn with the original |

"""

from __future__ import annotations

import argparse
import gc
import math
import signal
import statistics
import subprocess
import sys
import traceback
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any

import torch

import tuner
from scripts import harness
from scripts.decoder_model import (
    CASES,
    TINY,
    TINY_CASES,
    Case,
    Decoder,
    Inputs,
    Program,
    Shape,
    captured,
    in_turn,
)
from scripts.harness import TUNE, output_of, say, today, tune
from scripts.page_figures import evidence, program
from tuner.children.nvrtc import nvrtc_version
from tuner.core.errors import TunerError, UsageError
from tuner.core.stats import paired_ratio
from tuner.program.calls import Calls
from tuner.program.decisions import answers, shares
from tuner.program.kinds import CallMode
from tuner.program.replace import Replacement

STEPS = ("record", "tune", "measure")
ROUNDS = 60
MEASURE_S, TUNE_S = 45.0, 30.0
"""What a pass takes to be measured, and a problem to be tuned, roughly: nothing is begun that there is no time for."""
ENDING_S = 20.0
"""For a `tune` that is told to stop."""


class Study(harness.Study):
    """Does the steps, as far as the time goes.

    Args:
        given: of the command line.
        operation: what multiplies; by default the winners of the database.
    """

    def __init__(self, given: argparse.Namespace, operation: Any = None) -> None:
        known: dict[str, Any] = {"how": {}, "recorded": [], "cases": {}, "failed": {}}
        super().__init__(given.work / "decoder.state.json", given.seconds, **known)
        self._given, self._operation = given, operation
        self.folder: Path = given.work
        self._cuda = given.device == "cuda"
        self._mode = CallMode.GRAPH if self._cuda else CallMode.EAGER
        self.cases: Sequence[Case] = TINY_CASES if given.tiny else CASES
        self._shape = TINY if given.tiny else Shape(layers=given.layers)
        self._model: Decoder | None = None
        self.broken = False
        """Whether a pass has failed, after which nothing of this process's GPU can be relied on."""
        how = {"layers": self._shape.layers, "device": given.device}
        if (self.data["how"] or how) != how:
            raise UsageError(f"{self.folder} was measured with {self.data['how']}", "name another --work")
        self.data["how"] = how

    @property
    def problems(self) -> Path:
        return self.folder / "problems.csv"

    @property
    def database(self) -> Path:
        return self.folder / "tuning.db"

    # -- the passes

    def _decoder(self) -> Decoder:
        if self._model is None:
            self._model = Decoder(self._shape, self._given.device)
        return self._model

    def _program(self, inputs: Inputs, around: AbstractContextManager[Any]) -> Program:
        model = self._decoder()
        return (captured if self._cuda else Program)(lambda: model(inputs), around)

    def _recorded(self, inputs: Inputs) -> tuple[Program, Calls]:
        """Return a pass, and what it calls each time."""
        with tuner.record(self._given.device):
            program = self._program(inputs, nullcontext())
        with tuner.record(self._given.device) as calls:
            program()
        return program, calls

    # -- the steps

    def _record(self) -> None:
        if set(self.data["recorded"]) == {case.name for case in self.cases}:
            return
        if self._cuda and self._given.steps != ["record"]:
            # The GPU is calibrated, and its times are recorded, for tuners that have it alone.
            own = ["--work", str(self._given.work), "--layers", str(self._given.layers), "--steps", "record"]
            own += ["--tiny"] if self._given.tiny else []
            subprocess.run([sys.executable, __file__, *own], stdout=subprocess.DEVNULL, check=False)
            self.read()
            return
        together = Calls(self._given.device)
        for case in self.cases:
            _, calls = self._recorded(self._decoder().inputs(case))
            together.counts += calls.counts
            say(f"{case.name}: {calls}")
        together.save(self.problems)
        self.data["recorded"] = [case.name for case in self.cases]
        self.keep()

    def _tune(self) -> None:
        """Tune all problems in one list: the next one is prepared while one is raced."""
        if self._operation is not None or "tuned" in self.data or not self.has_time(TUNE_S):
            return
        words = ["--kernel", "gemm", "--problems", str(self.problems), "--db", str(self.database), "--quiet"]
        words += ["--trials", str(self._given.trials), "--time", str(self._given.time)]
        words += ["--resume"] if self.database.is_file() else []
        status = self._tuned_until([*TUNE, *words])
        if status is not None:
            self.keep(tuned=status)

    def _tuned_until(self, command: Sequence[str]) -> int | None:
        """Run a `tune` until the time is over; return its exit status, None if it was told to stop."""
        process = subprocess.Popen(command)
        try:
            left_s = self.left_s - ENDING_S
            return process.wait(None if math.isinf(left_s) else max(0.0, left_s))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)  # Ctrl-C may be ignored in a shell's background
            with suppress(subprocess.TimeoutExpired):
                process.wait(ENDING_S)
            return None
        finally:
            process.kill()
            process.wait()

    def _measure(self) -> None:
        if self._operation is None and "tuned" not in self.data:
            say("the problems are to be tuned first")
            return
        operation, failed = self._operation, self.data["failed"]
        left_cases = [case for case in self.cases if case.name not in self.data["cases"]]
        for case in sorted(left_cases, key=lambda case: case.name in failed):
            if not self.has_time(MEASURE_S):
                return
            try:
                operation = operation or self._bundled()
                self.data["cases"][case.name] = self._measured(case, operation)
                failed.pop(case.name, None)
            except Exception as error:  # noqa: BLE001 - the others are measured all the same
                traceback.print_exc()
                failed[case.name] = f"{type(error).__name__}: {str(error).strip()[:500]}"
                self.broken = True
            self.data["where"] = where(self._given.device)
            self.keep()
            if self.broken:
                return
            if self._cuda:
                gc.collect()

    def _bundled(self) -> Any:
        """Return the winners as a program has them, compiled at once by all cores."""
        folder = self.folder / "bundle"
        words = ["--kernel", "gemm", "--db", str(self.database), "--dtype", "bfloat16", "--force", "--quiet"]
        tune("bundle", *words, "-o", str(folder))
        return tuner.load("gemm", bundle=folder)

    def _measured(self, case: Case, operation: Any) -> dict[str, Any]:
        model = self._decoder()
        inputs = model.inputs(case)
        original, calls = self._recorded(inputs)
        decisions = self.folder / "decisions.json"
        how = {"decisions": decisions, "device": self._given.device, "modes": (self._mode,)}
        replacement = Replacement(operation, calls, **how)
        replacement.decide()
        tuned = self._program(inputs, replacement)
        true = model(inputs, wide=True)
        outputs = [program().float().clone() for program in (original, tuned)]
        errors = [float((one - true).norm() / true.norm()) for one in outputs]
        own, theirs = in_turn([original, tuned], self._given.rounds, self._cuda)
        ratio = paired_ratio(own, theirs)
        predicted = replacement.predict(statistics.median(own))
        measured = statistics.median(theirs)
        rows = answers(replacement)
        say(f"{case.name}: {ratio.median:.4f}\n{replacement}")
        return {
            **{"torch_us": statistics.median(own) / 1000, "tuned_us": measured / 1000},
            **{"ratio": ratio.median, "ratio_low": ratio.low, "ratio_high": ratio.high},
            **{"predicted_us": predicted / 1000, "prediction_error": predicted / measured - 1},
            "output_errors": {"torch": errors[0], "tuned": errors[1]},
            "shares": shares(rows),
            "products": [row.to_json() for row in rows],
            "refused_calls": sum(sum(replacement.refusals(row.kind).values()) for row in rows),
        }


def where(device: str) -> dict[str, str]:
    """Return the machine and the versions."""
    versions = {"torch": torch.__version__, "nvrtc": nvrtc_version(), "kernel-tune": tuner.__version__}
    versions["day"] = today()
    if device != "cuda":
        return {"gpu": "none", **versions}
    driver = output_of(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
    return {"gpu": torch.cuda.get_device_name(), "driver": driver.strip(), **versions}


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    options = harness.study_parser(__doc__, STEPS, "decoder")
    add = options.add_argument
    add("--layers", type=int, default=32)
    add("--trials", type=int, default=200)
    add("--time", type=float, default=10.0, help="Seconds of each search.")
    add("--rounds", type=int, default=ROUNDS)
    add("--device", default="cuda", choices=["cuda", "cpu"])
    add("--tiny", action="store_true", help="A decoder of two small layers, to try it.")
    return options.parse_args(words)


def main(words: Sequence[str] | None = None, operation: Any = None) -> int:
    """Do what the command line asks for; return 0 if nothing is left, else 1."""
    given = parsed(words)
    try:
        study = Study(given, operation)
        study.run(given.steps)
    except TunerError as error:
        say(str(error))
        return 2
    untried = {case.name for case in study.cases} - study.data["cases"].keys() - study.data["failed"].keys()
    if study.broken and untried and words is None:
        study.restart()
    figures = (program.passes, program.products) if study.data["cases"] else ()
    failed = [f"FAILED: {name}: {error}" for name, error in study.data["failed"].items()]
    text = "\n".join([evidence.shown("decoder", study.data, *figures), *failed])
    print(text)
    harness.write(given.out, "decoder", study.data, text)
    return int(len(study.data["cases"]) < len(study.cases))


if __name__ == "__main__":
    sys.exit(main())
