"""From a program to its kernels: a decoder of Llama 3 8B's shape with random weights, by torch and with winners.

    scripts/run python scripts/decoder.py --work decoder --out results/evidence --seconds 540
    scripts/run python scripts/decoder.py --operators --work block --out results/evidence --seconds 540

The first runs passes of 32 layers (a prefill of 2048 tokens; one token for each of 1, 16 and 64 sequences of 2048) in
CUDA graphs. What they call is recorded, its products are tuned, the heaviest first, and replaced where that is faster
in a graph. With ``--operators`` passes of 4 layers (the prefill with the losses of all logits; 16 sequences with the
shares of theirs) are written with the operators of `tuner.load`, for all but attention, and compared with torch and
with torch compiled as a whole, in CUDA graphs and without.

Programs are run in turn, and their outputs are compared with those in float32. Everything is kept in ``--work``, and
what is there is not done again: start it again with ``--seconds`` until all passes are in the table. Another machine
needs the files of that folder with the ending `.json`, `.csv` and `.db`.

| step | does |
|---|---|
| record | runs each pass once, and writes `problems.csv`; with ``--operators`` nothing is to be recorded |
| tune | `tune run` for all problems of a kernel |
| measure | replaces each product where that is faster, or loads the operators, and times each pass in turn |

"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import tuner
from scripts import harness
from scripts.decoder_model import (
    CASES,
    TINY,
    TINY_CASES,
    Apart,
    ByWinners,
    Case,
    Decoder,
    Inputs,
    Pass,
    Shape,
    Together,
    captured,
    in_turn,
    within,
)
from scripts.harness import TUNE, CommandError, machine, say, tune
from scripts.page_figures import evidence, program
from scripts.torch_here import torch
from tuner.core.errors import TunerError
from tuner.core.stats import paired_ratio
from tuner.program.calls import Calls
from tuner.program.decisions import answers, shares
from tuner.program.kinds import CallMode
from tuner.program.replace import Replacement

STEPS = ("record", "tune", "measure")
ROUNDS = 60
MEASURE_S, TUNE_S = 60.0, 30.0
"""What a pass takes to be measured, and a kernel's problems to be tuned, at least: nothing is begun that there is no
time for."""
ENDING_S = 20.0
"""For a `tune` that is told to stop."""
OPTIONS = {
    "gemm": ["layout=nt"],
    "norm": ["before=x + residual"],
    "rope": ["style=half"],
    "gated": [],
    "cross_entropy": ["gradient=none"],
    "softmax": [],
}
"""The kernels whose operators are called, with what is not their default."""
Load = Callable[[str], Any]


def compiled(function: Pass) -> Pass:
    """Return a pass that torch compiles as a whole for its shapes."""
    made: Pass = torch.compile(function, fullgraph=True, dynamic=False)
    return made


def errors_of(passes: Mapping[str, Pass], true: Any) -> dict[str, float]:
    """Return how far outputs are from those in float32."""
    return {name: float((call().float() - true).norm() / true.norm()) for name, call in passes.items()}


def problems(kernel: str, shape: Shape, cases: Sequence[Case]) -> Iterator[str]:
    """Yield the sizes at which operators are called in passes."""
    for case in cases:
        rows = case.batch * case.tokens
        if kernel == "gemm":
            yield from dict.fromkeys(f"m={rows},n={n},k={k}" for n, k in shape.products.values())
        elif kernel == "rope":
            yield f"tokens={rows},q_heads={shape.heads},k_heads={shape.kv_heads},pairs={shape.head // 2}"
        elif kernel in ("norm", "gated", "cross_entropy" if case.tokens > 1 else "softmax"):
            columns = {"norm": shape.hidden, "gated": shape.intermediate}.get(kernel, shape.vocabulary)
            yield f"rows={rows},columns={columns}"


class Study(harness.Study):
    """Does the steps, as far as the time goes.

    Args:
        given: of the command line.
        load: returns the operation of a kernel; by default the winners of the database.
        compiler: of a whole pass.
    """

    name = "decoder"
    layers, trials, time_s = 32, 200, 10.0
    figures: tuple[Callable[[], str], ...] = (program.passes, program.products)

    def __init__(
        self, given: argparse.Namespace, load: Load | None = None, compiler: Callable[[Pass], Pass] = compiled
    ) -> None:
        self._shape = TINY if given.tiny else Shape(layers=given.layers or self.layers)
        how = {"layers": self._shape.layers, "device": given.device}
        known: dict[str, Any] = {"recorded": [], "begun": [], "tuned": [], "cases": {}, "failed": {}}
        super().__init__(given.work / f"{self.name}.state.json", given.seconds, how, **known)
        self._given, self._load, self._compiler = given, load, compiler
        self._operations: dict[str, Any] = {}
        self.folder: Path = given.work
        self._cuda = given.device == "cuda"
        self.cases = self._of(TINY_CASES if given.tiny else CASES)
        self._model: Decoder | None = None
        self.broken = False
        """Whether a pass has failed, after which nothing of this process's GPU can be relied on."""

    # -- what is replaced, or written with operators

    def _of(self, cases: Sequence[Case]) -> Sequence[Case]:
        return cases

    def rows(self, case: Case) -> list[str]:
        """Return the names of what is measured of a pass."""
        return [case.name]

    def _lists(self) -> Iterator[tuple[str, list[str]]]:
        """Yield the kernels that are tuned, with the words that name their problems."""
        yield "gemm", ["--problems", str(self.problems)]

    def _measured(self, case: Case) -> dict[str, dict[str, Any]]:
        """Return the figures of a pass, by the names of its rows."""
        model, inputs = self._decoder(), self._inputs(case)
        original, calls = self._recorded(inputs)
        decisions, mode = self.folder / "decisions.json", CallMode.GRAPH if self._cuda else CallMode.EAGER
        how: dict[str, Any] = {"decisions": decisions, "device": self._given.device, "modes": (mode,)}
        replacement = Replacement(self._operation("gemm"), calls, **how)
        replacement.decide()
        passes = {"torch": original, "tuned": self._pass(lambda: model(Apart(), inputs), replacement)}
        errors = errors_of(passes, model(Apart(), inputs, wide=True))
        found = self._in_turn(passes)
        predicted_us = replacement.predict(1000 * found["torch_us"]) / 1000
        rows = answers(replacement)
        say(f"{case.name}: {found['ratio']:.4f}\n{replacement}")
        figures = {
            **{"predicted_us": predicted_us, "prediction_error": predicted_us / found["tuned_us"] - 1},
            "output_errors": errors,
            "shares": shares(rows),
            "products": [row.to_json() for row in rows],
            "refused_calls": sum(sum(replacement.refusals(row.kind).values()) for row in rows),
        }
        return {case.name: found | figures}

    # -- the passes

    @property
    def problems(self) -> Path:
        return self.folder / "problems.csv"

    @property
    def database(self) -> Path:
        return self.folder / "tuning.db"

    def _decoder(self) -> Decoder:
        if self._model is None:
            self._model = Decoder(self._shape, self._given.device)
        return self._model

    def _inputs(self, case: Case) -> Inputs:
        return Inputs(self._shape, case, self._given.device)

    def _pass(self, function: Pass, around: AbstractContextManager[Any]) -> Pass:
        """Return a pass as it is timed, within a context: on a GPU as a graph."""
        if not self._cuda:
            return within(around, function)
        with around:
            return captured(function)

    def _recorded(self, inputs: Inputs) -> tuple[Pass, Calls]:
        """Return a pass, and what it calls each time."""
        model = self._decoder()
        with tuner.record(self._given.device):
            function = self._pass(lambda: model(Apart(), inputs), nullcontext())
        with tuner.record(self._given.device) as calls:
            function()
        return function, calls

    def _in_turn(self, passes: Mapping[str, Pass]) -> dict[str, float]:
        """Return the time of each pass, and how many times as long it takes as the tuned one."""
        timed = in_turn(list(passes.values()), self._given.rounds, self._cuda)
        times = dict(zip(passes, timed, strict=True))
        found = {f"{name}_us": median(samples) / 1000 for name, samples in times.items()}
        for name in passes.keys() - {"tuned"}:
            ratio, of = paired_ratio(times[name], times["tuned"]), "" if name == "torch" else f"{name}_"
            found |= {f"{of}ratio": ratio.median, f"{of}ratio_low": ratio.low, f"{of}ratio_high": ratio.high}
        return found

    # -- the steps

    def _record(self) -> None:
        if set(self.data["recorded"]) == {case.name for case in self.cases}:
            return
        if self._cuda and self._given.steps != ["record"]:
            # The GPU is calibrated, and its times are recorded, for tuners that have it alone.
            own = ["--work", str(self._given.work), "--layers", str(self._shape.layers), "--steps", "record"]
            own += ["--tiny"] if self._given.tiny else []
            done = subprocess.run([sys.executable, __file__, *own], stdout=subprocess.DEVNULL, check=False)
            if done.returncode not in (0, 1):
                raise CommandError(f"recording ended with {done.returncode}")
            self.read()
            return
        together = Calls(self._given.device)
        for case in self.cases:
            _, calls = self._recorded(self._inputs(case))
            together.counts += calls.counts
            say(f"{case.name}: {calls}")
        together.save(self.problems)
        self.keep(recorded=[case.name for case in self.cases])

    def _tune(self) -> None:
        """Tune all problems of a kernel in one list: the next one is prepared while one is raced."""
        for kernel, words in () if self._load else self._lists():
            if kernel in self.data["tuned"]:
                continue
            if not self.has_time(TUNE_S):
                return
            limits = ["--trials", str(self._given.trials or self.trials)]
            limits += ["--time", str(self._given.time or self.time_s)]
            limits += ["--resume"] if kernel in self.data["begun"] else []
            self.keep(begun=[*self.data["begun"], kernel])
            where = ["--db", str(self.database)]
            process = subprocess.Popen([*TUNE, "run", kernel, *words, *where, *limits])
            try:
                status = process.wait(max(0.0, self.left_s - ENDING_S))
            except subprocess.TimeoutExpired:
                process.terminate()  # Ctrl-C may be ignored in a shell's background
                with suppress(subprocess.TimeoutExpired):
                    process.wait(ENDING_S)
                return
            finally:
                process.kill()
                process.wait()
            if status > 1:
                self.failures.append(f"tune run {kernel} ended with {status}")
                say(self.failures[-1])
                continue
            self.keep(tuned=[*self.data["tuned"], kernel])

    def _measure(self) -> None:
        if not self._load and {kernel for kernel, _ in self._lists()} - {*self.data["tuned"]}:
            say("the problems are to be tuned first")
            return
        failed = self.data["failed"]
        for case in sorted(self.left, key=lambda case: case.name in failed):
            if not self.has_time(MEASURE_S):
                return
            try:
                self.data["cases"] |= self._measured(case)
                failed.pop(case.name, None)
            except Exception as error:  # noqa: BLE001 - the others are measured all the same
                traceback.print_exc()
                failed[case.name] = f"{type(error).__name__}: {str(error).strip()[:500]}"
                self.broken = True
            self.keep(where=machine("kernel-tune", "nvrtc", "torch"))
            if self.broken:
                return
            if self._cuda:
                gc.collect()

    @property
    def left(self) -> list[Case]:
        """The passes that are not measured, or not in each way."""
        return [case for case in self.cases if {*self.rows(case)} - self.data["cases"].keys()]

    def _operation(self, kernel: str) -> Any:
        """Return the winners as a program has them, compiled at once by all cores."""
        if kernel not in self._operations:
            self._operations[kernel] = (self._load or self._bundled)(kernel)
        return self._operations[kernel]

    def _bundled(self, kernel: str) -> Any:
        folder = self.folder / "bundles" / kernel
        folder.parent.mkdir(exist_ok=True)
        words = ["--kernel", kernel, "--db", str(self.database), "--dtype", "bfloat16", "--force", "--quiet"]
        tune("bundle", *words, "-o", str(folder))
        return tuner.load(kernel, bundle=folder)


class OfOperators(Study):
    """The same for passes that are written with operators."""

    name = "block"
    layers, trials, time_s = 4, 100, 6.0
    figures = (partial(program.passes, "block"),)

    def _of(self, cases: Sequence[Case]) -> Sequence[Case]:
        return cases[::2]

    @property
    def _modes(self) -> Sequence[str]:
        return ("graph", "eager") if self._cuda else ("eager",)

    def rows(self, case: Case) -> list[str]:
        """Return the names of what is measured of a pass."""
        return [f"{case.name}, {mode}" for mode in self._modes]

    def _record(self) -> None:
        """Know what is called."""

    def _lists(self) -> Iterator[tuple[str, list[str]]]:
        for kernel, options in OPTIONS.items():
            words = [
                word for text in problems(kernel, self._shape, self.cases) for word in ("--problem", text)
            ]
            words += [word for option in options for word in ("--option", option)]
            yield kernel, [*words, "--dtype", "bfloat16"]

    def _measured(self, case: Case) -> dict[str, dict[str, Any]]:
        model, inputs = self._decoder(), self._inputs(case)
        torchs, winners = Together(), ByWinners({one: self._operation(one).torch() for one in OPTIONS})

        def by_torch() -> Any:
            return model(torchs, inputs)

        passes = {"torch": by_torch, "compiled": self._compiler(by_torch)}
        passes["tuned"] = lambda: model(winners, inputs)
        errors, found = errors_of(passes, model(torchs, inputs, wide=True)), {}
        for name, mode in zip(self.rows(case), self._modes, strict=True):
            timed = {one: captured(call) if mode == "graph" else call for one, call in passes.items()}
            found[name] = {**self._in_turn(timed), "output_errors": errors}
        say(f"{case.name}: {found}")
        return found


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    options = harness.study_parser(__doc__, STEPS, "decoder")
    add = options.add_argument
    add("--operators", action="store_true", help="Passes that are written with operators.")
    add("--layers", type=int, help="32; 4 with operators.")
    add("--trials", type=int, help="200; 100 with operators.")
    add("--time", type=float, help="Seconds of each search: 10; 6 with operators.")
    add("--rounds", type=int, default=ROUNDS)
    add("--device", default="cuda", choices=["cuda", "cpu"])
    add("--tiny", action="store_true", help="A decoder of two small layers, to try it.")
    return options.parse_args(words)


def main(
    words: Sequence[str] | None = None,
    load: Load | None = None,
    compiler: Callable[[Pass], Pass] = compiled,
) -> int:
    """Do what the command line asks for; return 0 if nothing is left, else 1."""
    given = parsed(words)
    try:
        study = (OfOperators if given.operators else Study)(given, load, compiler)
        with torch.no_grad():
            study.run(given.steps)
    except TunerError as error:
        say(str(error))
        return 2
    cases, failed = study.data["cases"], study.data["failed"]
    if study.broken and any(case.name not in failed for case in study.left) and words is None:
        study.restart()
    text = [evidence.shown(study.name, study.data, *(study.figures if cases else ()))]
    for name, case in cases.items():
        errors = ", ".join(f"{of} {error:.1e}" for of, error in case["output_errors"].items())
        text.append(f"{name}: errors beside float32: {errors}")
    text += [f"FAILED: {name}: {error}" for name, error in failed.items()]
    print("\n".join([*text, *study.failures]))
    harness.write(given.out, study.name, study.data, "\n".join(text))
    return int(bool(study.left))


if __name__ == "__main__":
    harness.run(main, gpu="cpu" not in sys.argv)
