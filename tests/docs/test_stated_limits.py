"""The pages say the limits that the code has."""

from __future__ import annotations

import pytest

from scripts.harness import ROOT
from tuner.core import stats
from tuner.devices.base import LATE_S
from tuner.formats import files, foreign_json, foreign_recording, foreign_results, recording, t1
from tuner.gpu import verify
from tuner.kernel import python_reference as function
from tuner.kernel import reference
from tuner.kernel.edge_sizes import VERIFIED_PROBLEMS
from tuner.tuning import confirmation, decision, elimination, finalists, loop, race

WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
HEATS = elimination.HEATS
MIB = 1 << 20


def percent(share: float) -> str:
    return f"{100 * share:.4g} %"


def us(ns: float) -> str:
    return f"{ns / 1e3:g} us"


STATED = {
    "docs/measuring.md": (
        f"below {stats.MIN_SAMPLES} samples they are the extremes",
        f"Outliers ({WORDS[int(stats.OUTLIER_SIGMAS)]} robust standard deviations off)",
        f"(2^{verify.CROSS_CHECK_ELEMENTS.bit_length() - 1} elements per tensor, "
        f"2^{verify.CROSS_CHECK_WORK.bit_length() - 1} operations)",
        f"{'more than half' if reference.MOST_UNKNOWN == 0.5 else '?'} of its elements) proves nothing",
        f"more than {function.FURTHER_S:g} s for both",
        f"at most {WORDS[finalists.FINALISTS]} verified candidates within "
        f"{percent(finalists.FINALIST_FACTOR - 1)} of the best",
        f"After {HEATS[0]} rounds, {HEATS[1]} more, and {HEATS[2]} more",
        f"or after {elimination.SECONDS:g} s",
        f"at most {percent((1 - elimination.CONFIDENCE) / 2)} of races",
        f"by less than {percent(elimination.CLOSE)}",
        f"within {percent(finalists.NEAR_FACTOR - 1)} of the best (by that mean",
        f"by up to {WORDS[decision.MOST]} margins",
        f"or {WORDS[decision.WINS]} if it won several runs",
        f"adds a {'quarter' if decision.PLACES == 4 else '?'} of a share",
        f"the {WORDS[finalists.PREFERRED]} with the least time by rules 1 and 2",
        f"The {finalists.TIMED_WARM} fastest verified trials, {WORDS[finalists.OF_A_VARIANT]} of each variant",
        f"within {percent(finalists.WARM_FACTOR - 1)} of the best: {WORDS[finalists.WARM_ROUNDS]} rounds of "
        f"{WORDS[finalists.WARM_SAMPLES]} samples",
        f"warm for at most {sum(HEATS[: race.WARM_HEATS])} rounds",
        f"within {percent(confirmation.CONFIRMED_WITHIN)} (or {us(confirmation.EVENT_RESOLUTION_NS)}; "
        f"{us(confirmation.BATCH_RESOLUTION_NS)} if many calls",
        f"it may be {percent(confirmation.ALONE_FASTER)} shorter",
        f"Up to {WORDS[confirmation.CONFIRMING_PROCESSES]} processes are tried",
        f"off by at most {percent(confirmation.MOVED_TOGETHER)}",
        f"at up to {VERIFIED_PROBLEMS} sizes",
        f"more than {confirmation.SLOW_CASE_S:g} s for the problem",
        f"at most {'a minute' if confirmation.EDGE_CASES_S == 60 else '?'}; one size that takes more than "
        f"{LATE_S:g} s",
        f"up to {WORDS[race.MAX_CONFIRMATIONS]} times",
    ),
    "docs/commands.md": (f"more than {percent(stats.EQUIVALENT)} behind another",),
    "docs/kernel-files.md": (
        f"may take {function.LIMIT_S:g} s",
        f"{WORDS[function.PROBES]} times with inputs that are off",
        f"calls would take more than {function.PROBING_S:g} s",
    ),
    "docs/reliability.md": (
        f"may take up to {loop.PATIENCE_S:g} s",
        f"if the tuner died {WORDS[loop.MAX_ATTEMPTS]} times",
    ),
    "docs/formats.md": (
        f"more than {foreign_json.MAX_BYTES // MIB} MiB when unpacked, {foreign_json.MOST_RESULTS:,} results, "
        f"{foreign_results.MOST_SAMPLES / 1e6:g} million single times, or a result of "
        f"{foreign_json.VALUE_CHARS // MIB} MiB",
        f"T1 file of {foreign_json.SPACE_BYTES // MIB} MiB, {foreign_recording.MAX_PARAMETERS} parameters, "
        f"{t1.MOST['Conditions']:,} conditions or {t1.MOST_OF_ALL:,} values",
        f"gzip file of more than {files.MOST_MEMBERS:,} members",
    ),
    "SECURITY.md": (
        f"at most {recording.MAX_BYTES // MIB} MiB when unpacked, with at most "
        f"{recording.MAX_VALUES / 1e6:g} million values",
    ),
}


@pytest.mark.parametrize("page", STATED)
def test_a_page_says_the_limits_that_hold(page: str) -> None:
    text = " ".join((ROOT / page).read_text().split())
    assert [stated for stated in STATED[page] if stated not in text] == []
