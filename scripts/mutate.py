"""A program that has its kernels judged: it mutates a softmax, and gains, or not.

    scripts/run python scripts/mutate.py --minutes 8 --folder build/mutate --out results/evidence/mutate.json
    scripts/run python scripts/mutate.py --again --folder build/mutate

Starts `tune judge --rounds` in the folder, writes candidates there, reads their verdicts, and goes on from the fastest.
Some are wrong on purpose. Needs a GPU. With ``--again`` the judgement of the best is repeated from the log: its copy,
on the inputs of its seed. Exit status 1: nothing was gained, a wrong one was called right, or the judgement came out
otherwise.
"""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from scripts import harness
from scripts.harness import ROOT, TUNE, say

TASK = (str(ROOT / "docs/examples/softmax/softmax.toml"), "--dtype", "float32")
GENES: dict[str, tuple[Any, ...]] = {
    "block": (32, 64, 128, 256, 512, 1024),
    "vector": (1, 2, 4),
    "unroll": (1, 2, 4, 8),
    "sweeps": ("two", "one"),
    "exponential": ("expf(value)", "__expf(value)", "exp2f(1.44269504f * (value))"),
    "pointers": ("", "__restrict__"),
}
"""The first of each is what it starts from."""
SWEEPS = {
    "two": """each([&](float value) { return largest = fmaxf(largest, value); }, nullptr);
    const float most = over_block(largest, true);
    each([&](float value) { return sum += power(value - most); }, nullptr);""",
    "one": """each([&](float value) {
        if (value > largest) sum = sum * power(largest - value), largest = value;
        return sum += power(value - largest);
    }, nullptr);
    const float most = over_block(largest, true);
    sum *= power(largest - most);""",
}
FAULTS = {
    "odd": ("at < columns;", "at < columns / 2 * 2;"),
    "short": (
        "power(value - most) / all",
        "__int_as_float(__float_as_int(power(value - most) / all) & 0xffffc000)",
    ),
    "beyond": ("// end", "if (blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) y[columns] = 0.0f;"),
}
"""Lines that make a candidate wrong: for odd rows, by a lower precision, outside of the tensor."""
FAULTY = 0.2
AHEAD = 2
"""Candidates that wait: the referee is never without one."""
POLL_S = 0.05
SOURCE = """\
// tune: softmax__@fault@<<<rows, @block@>>>(x, y, columns)
constexpr int BLOCK = @block@, VECTOR = @vector@;
struct alignas(4 * VECTOR) Part { float of[VECTOR]; };

__device__ float power(float value) { return @exponential@; }

__device__ float over_block(float value, bool largest) {
    __shared__ float parts[32];
    for (int step = 16; step > 0; step /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, value, step);
        value = largest ? fmaxf(value, other) : value + other;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    value = parts[0];
    for (int warp = 1; warp < BLOCK / 32; ++warp)
        value = largest ? fmaxf(value, parts[warp]) : value + parts[warp];
    return value;
}

extern "C" __global__ void __launch_bounds__(BLOCK)
softmax__@fault@(const float* @pointers@ x, float* @pointers@ y, int columns) {
    x += blockIdx.x * (long long)columns;
    y += blockIdx.x * (long long)columns;
    auto each = [&](auto make, float* to) {
        if (columns % VECTOR) {
            for (int at = threadIdx.x; at < columns; at += BLOCK) {
                const float made = make(x[at]);
                if (to) to[at] = made;
            }
            return;
        }
        #pragma unroll @unroll@
        for (int at = threadIdx.x * VECTOR; at < columns; at += BLOCK * VECTOR) {
            Part part = *reinterpret_cast<const Part*>(x + at);
            for (float& one : part.of) one = make(one);
            if (to) *reinterpret_cast<Part*>(to + at) = part;
        }
    };
    float largest = -__int_as_float(0x7f800000), sum = 0.0f;
    @sweeps@
    const float all = over_block(sum, false);
    each([&](float value) { return power(value - most) / all; }, y);
    // end
}
"""


def rendered(genes: dict[str, Any], fault: str = "") -> str:
    """Return a candidate's source."""
    text = SOURCE.replace("@sweeps@", SWEEPS[genes["sweeps"]]).replace("@fault@", fault or "right")
    for name, value in genes.items():
        text = text.replace(f"@{name}@", str(value))
    return text.replace(*FAULTS[fault]) if fault else text


class Author:
    """Writes candidates, and goes on from the best.

    Args:
        folder: in which they are judged.
        seed: of the mutations.
        keep: told of the rows so far after each verdict.
    """

    def __init__(
        self, folder: Path, seed: int, keep: Callable[[list[dict[str, Any]]], None] = lambda _: None
    ) -> None:
        self.folder, self._random, self._keep = folder, random.Random(seed), keep
        self.best = {name: values[0] for name, values in GENES.items()}
        self.waiting: dict[str, tuple[dict[str, Any], str]] = {}
        self.rows: list[dict[str, Any]] = []
        self._tried: set[str] = set()

    def run(self, alive: Callable[[], bool]) -> None:
        """Write and read as long as the referee is there."""
        while alive():
            while len(self.waiting) < AHEAD and self._write():
                pass
            self._read()
            time.sleep(POLL_S)
        self._read()

    def _write(self) -> bool:
        """Write another candidate; return whether there was one."""
        for _ in range(1000):
            genes, fault = dict(self.best), ""
            if self._tried:
                for name in self._random.sample(list(GENES), self._random.choice((1, 1, 2))):
                    genes[name] = self._random.choice(GENES[name])
                fault = self._random.choice(list(FAULTS)) if self._random.random() < FAULTY else ""
            text = rendered(genes, fault)
            if text not in self._tried:
                break
        else:
            return False
        self._tried.add(text)
        name = f"{len(self._tried):04}.cu"
        (self.folder / f".{name}").write_text(text)
        (self.folder / f".{name}").rename(self.folder / name)
        self.waiting[name] = genes, fault
        return True

    def _read(self) -> None:
        for name in [one for one in self.waiting if (self.folder / f"{one}.verdict.json").is_file()]:
            verdict = json.loads((self.folder / f"{name}.verdict.json").read_text())
            genes, fault = self.waiting.pop(name)
            modes = [mode for at in verdict["problems"] for mode in at["modes"]]
            so_far = [
                one["verdict"] for mode in modes for one in mode["versus"] if one["baseline"] == "best so far"
            ]
            right = verdict["judged"] == "right"
            better = right and ("faster" in so_far if so_far else True) and "slower" not in so_far
            if better:
                self.best = genes
            time_us = modes[0]["time_ns"] / 1e3 if right else None
            row = {"name": name, "genes": genes, "fault": fault, "judged": verdict["judged"]}
            self.rows.append({**row, "reason": verdict["reason"], "time_us": time_us, "best": better})
            self._keep(self.rows)
            say(
                f"{name} {'BEST ' * better}{verdict['judged']} {verdict['reason']} {time_us or ''} {fault} {genes}"
            )


def result_of(rows: list[dict[str, Any]], minutes: float) -> dict[str, Any]:
    """Return what came of the candidates: counts, the bests in their order, and the gain over the first."""
    bests = [row for row in rows if row["best"]]
    judged = Counter(
        f"{row['fault'] or 'meant to be right'}: {row['reason'] or row['judged']}" for row in rows
    )
    gain = bests[0]["time_us"] / bests[-1]["time_us"] if bests else 0.0
    wrong = [row["name"] for row in rows if row["fault"] and row["judged"] == "right"]
    return {
        "minutes": minutes,
        "judged": dict(judged),
        "bests": bests,
        "gain": gain,
        "wrong called right": wrong,
    }


def repeated(folder: Path) -> bool:
    """Judge the best of a log again; return whether the verdict is as it was."""
    before = json.loads((folder / "best.json").read_text())
    copy = folder / before["candidate"]["copy"] / before["candidate"]["name"]
    words = ["judge", *TASK, str(copy), "--seed", str(before["seed"]), "--json", "-q", "--against", "default"]
    # Whatever its status is: a refusal is a verdict, too.
    after = json.loads(subprocess.run([*TUNE, *words], stdout=subprocess.PIPE, check=False).stdout)
    times = [mode["time_ns"] for one in (before, after) for at in one["problems"] for mode in at["modes"][:1]]
    print(
        f"{copy.name}: {before['judged']}, {before['speed']}; again {after['judged']}, {after['speed']}; {times} ns"
    )
    same = ("judged", "speed", "seed")
    return [before[name] for name in same] == [after[name] for name in same]


def main() -> int:
    options = harness.parser(__doc__)
    add = options.add_argument
    add("--minutes", type=float, default=8.0)
    add("--folder", type=Path, default=Path("build/mutate"))
    add("--seed", type=int, default=0)
    add("--again", action="store_true")
    add("--out", type=Path)
    given = options.parse_args()
    if given.again:
        return int(not repeated(given.folder))
    if given.folder.exists():
        options.error(f"{given.folder} is there: name another --folder, or repeat it with --again")
    given.folder.mkdir(parents=True)
    kept = harness.Kept(given.out)

    def keep(rows: list[dict[str, Any]]) -> None:
        kept.keep(**result_of(rows, given.minutes), date=harness.today())

    author = Author(given.folder, given.seed, keep)
    deadline = ["--deadline", f"{given.minutes * 60:.0f}s", "--against", "default", "-q", "--json"]
    referee = subprocess.Popen(
        [*TUNE, "judge", *TASK, "--rounds", str(given.folder), *deadline], stdout=subprocess.DEVNULL
    )
    with suppress(KeyboardInterrupt):  # what is judged so far is the result
        author.run(lambda: referee.poll() is None)
    referee.wait()
    result = result_of(author.rows, given.minutes)
    print(json.dumps({name: value for name, value in result.items() if name != "bests"}, indent=1))
    return int(
        referee.returncode not in (0, 4) or result["gain"] <= 1.0 or bool(result["wrong called right"])
    )


if __name__ == "__main__":
    harness.run(main, gpu=True)
