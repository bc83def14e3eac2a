"""Medians with confidence intervals, and whether one kernel is faster than another.

Times of a kernel are skewed, with outliers to one side; so all statistics here use the median and assume no
distribution. Outliers are counted, never removed.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np

MIN_SAMPLES = 6
"""Fewest samples that can say anything with 95 % confidence: all of n lie on one side of the median with
probability 2 / 2**n, which is 3 % for 6."""
OUTLIER_SIGMAS = 5.0
"""Standard deviations from the median beyond which a sample is an outlier: far enough for skewed samples."""
MAD_TO_SIGMA = 1.4826
"""The standard deviation of a normal distribution over its median absolute deviation."""
OUTLIER_FLOOR = 0.005
"""Deviation, relative to the median, below which no sample is an outlier: a GPU's timer is so coarse that more than
half of the samples of a short kernel can be equal, and their median absolute deviation zero."""
EQUIVALENT = 0.0075
"""How much slower than the fastest a winner of another run may be to be one that both runs may choose
(:mod:`tuner.winners.agreement`)."""


def median(samples: Sequence[float]) -> float:
    """Return the middle value, or the mean of the two; NaN of none."""
    # NumPy takes 50 times as long for tens of samples.
    return float(statistics.median(samples)) if len(samples) else math.nan


def median_interval(samples: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Return a confidence interval of the median, for samples of any distribution.

    The k-th smallest and the k-th largest sample enclose it unless fewer than k samples fall on one of its
    sides, and the number that do is binomial(n, 1/2). With fewer than :data:`MIN_SAMPLES` samples it is the
    smallest and the largest, which enclose the median with a probability of only 1 - 2**(1 - n).
    """
    ordered = np.sort(np.asarray(samples, dtype=float))
    rank = _interval_rank(len(ordered), confidence)
    return float(ordered[rank - 1]), float(ordered[-rank])


@functools.lru_cache(maxsize=1024)
def _interval_rank(count: int, confidence: float) -> int:
    """Return the largest k, at least 1, with P(binomial(count, 1/2) < k) <= (1 - confidence) / 2."""
    k = np.arange(count)
    # log of count choose 0, 1, 2, ...: sums of the logarithms of (count - k) / (k + 1).
    log_choose = np.concatenate([[0.0], np.cumsum(np.log((count - k) / (k + 1)))])
    below = np.cumsum(np.exp(log_choose - count * np.log(2)))
    return max(1, int(np.searchsorted(below, (1 - confidence) / 2, side="right")))


def fewest_samples(confidence: float) -> int:
    """Return the fewest samples whose median has an interval of this confidence.

    The smallest and the largest of n enclose the median with a probability of 1 - 2**(1 - n): 95 % needs
    :data:`MIN_SAMPLES`.
    """
    return math.ceil(1 - math.log2(1 - confidence) - 1e-9)


def outlier_count(samples: Sequence[float]) -> int:
    """Return how many samples are more than five standard deviations, estimated robustly, from the median."""
    middle = median(samples)
    deviations = [abs(sample - middle) for sample in samples]
    limit = max(OUTLIER_SIGMAS * MAD_TO_SIGMA * median(deviations), OUTLIER_FLOOR * abs(middle))
    return sum(deviation > limit for deviation in deviations)


class Verdict(StrEnum):
    """How a candidate compares with a reference."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    """Any difference is below the noise."""
    AMBIGUOUS = "ambiguous"
    """The samples do not decide; more of them might."""


UNDECIDED = (Verdict.SAME, Verdict.AMBIGUOUS)
_OPPOSITE = {Verdict.FASTER: Verdict.SLOWER, Verdict.SLOWER: Verdict.FASTER}


@dataclass(frozen=True)
class Ratio:
    """A candidate's time over a reference's, with the bounds of its 95 % interval; below 1 is faster."""

    median: float
    low: float
    high: float


def paired_ratio(a: Sequence[float], b: Sequence[float], confidence: float = 0.95) -> Ratio:
    """Return the median of a[i] / b[i] with its interval, for two kernels timed interleaved.

    Pairs measured side by side share the drift of the clock, which cancels. The interval is
    :func:`median_interval`'s, which encloses what a percentile bootstrap expects: that one is too narrow for few
    pairs (from 7 it called 6 % of 3,000 equal kernels faster, and 7 % slower). With fewer than
    :func:`fewest_samples` pairs the interval is infinite.

    Args:
        a: times of the candidate.
        b: times of the reference, each taken next to the one in ``a``.
        confidence: of the interval.

    Raises:
        ValueError: the lists are empty or of different lengths.
    """
    if len(a) != len(b) or not len(a):
        raise ValueError(f"{len(a)} and {len(b)} samples do not pair up")
    ratios = np.asarray(a, dtype=float) / np.asarray(b, dtype=float)
    if len(ratios) < fewest_samples(confidence):
        return Ratio(median(ratios), 0.0, float("inf"))
    return Ratio(median(ratios), *median_interval(ratios, confidence))


def verdict(ratio: Ratio, noise_floor: float) -> Verdict:
    """Return whether the candidate is faster than the reference.

    Faster: the whole interval is below 1, and the median by more than the noise floor. Slower: the reverse. Same: the
    whole interval is within the noise floor of 1. Anything else is ambiguous.

    Args:
        ratio: of the candidate to the reference.
        noise_floor: how far from 1 a kernel's ratio to itself gets on this machine, such as 0.002.
    """
    if ratio.high < 1 and ratio.median < 1 - noise_floor:
        return Verdict.FASTER
    if ratio.low > 1 and ratio.median > 1 + noise_floor:
        return Verdict.SLOWER
    if ratio.low >= 1 - noise_floor and ratio.high <= 1 + noise_floor:
        return Verdict.SAME
    return Verdict.AMBIGUOUS


def reference_verdict(ratio: Ratio, noise_floor: float) -> Verdict:
    """Return whether the reference is faster than the candidate, as :func:`verdict`."""
    of_candidate = verdict(ratio, noise_floor)
    return _OPPOSITE.get(of_candidate, of_candidate)


def ratio_record(ratio: Ratio | None) -> dict[str, Any]:
    """Return a ratio with the ends of its interval, as rows and JSON name them; None without a ratio."""
    values = (ratio.median, ratio.low, ratio.high) if ratio else (None, None, None)
    return dict(zip(("ratio", "ratio_low", "ratio_high"), values, strict=True))


def equivalence_margin(noise_floor: float) -> float:
    """Return by how much, as a share, a winner may be slower than the fastest and still count as equally fast.

    Args:
        noise_floor: of the times; 0 where nothing is known of it: then only equal times count as equal.
    """
    return max(noise_floor, EQUIVALENT) if noise_floor else 0.0
