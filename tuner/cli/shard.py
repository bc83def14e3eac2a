"""``--shard I/N``: one of N parts of a list of problems, the same on every host."""

from __future__ import annotations

import heapq
import re
from collections.abc import Sequence

from tuner.cli.batch import TuningJob
from tuner.core.errors import UsageError
from tuner.kernel.cost import tuning_seconds
from tuner.kernel.spec import KernelSpec

MOST_SHARDS = 100_000


def parse_shard(text: str) -> tuple[int, int]:
    """Return which shard of how many, from 1 on.

    Raises:
        UsageError: it is not written so, or there is no such shard.
    """
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text.strip(), re.ASCII)
    number, count = (int(part) for part in match.groups()) if match else (0, 0)
    if not 1 <= number <= count <= MOST_SHARDS:
        raise UsageError(f"--shard {text!r}", "write I/N with I from 1 to N, such as 1/4, 2/4, 3/4 and 4/4")
    return number, count


def shard_of(jobs: Sequence[TuningJob], kernel: KernelSpec, text: str, trials: int) -> list[TuningJob]:
    """Return a shard's jobs in the order of the list; perhaps none.

    The shards together are the list, and no job is in two. The longest job goes to the shard with the least to do, and
    so on: it depends on the list and the number of trials alone.

    Raises:
        UsageError: the text names no shard.
    """
    number, count = parse_shard(text)
    costs = [sum(tuning_seconds(kernel, problem, trials) for problem in job.choices) for job in jobs]
    # By the problem where costs are equal: the same rows in another order give the same shards.
    longest_first = sorted(range(len(jobs)), key=lambda i: (-costs[i], jobs[i].choices[0].key))
    loads, own = [(0.0, shard) for shard in range(1, count + 1)], set()
    for i in longest_first:
        load, emptiest = loads[0]
        heapq.heapreplace(loads, (load + costs[i], emptiest))
        if emptiest == number:
            own.add(i)
    return [job for i, job in enumerate(jobs) if i in own]
