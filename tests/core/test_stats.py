import math

import numpy as np
import pytest

from tuner.core.stats import (
    MIN_SAMPLES,
    Ratio,
    Verdict,
    equivalence_margin,
    fewest_samples,
    median,
    median_interval,
    outlier_count,
    paired_ratio,
    verdict,
)


def timings(rng, count, mean=1.0):
    """Skewed, with 0.5 % noise and 2 % outliers of +20 %: what a GPU gives."""
    return mean * (1 + 0.005 * rng.exponential(size=count) + 0.2 * (rng.random(count) < 0.02))


@pytest.mark.parametrize(
    ("count", "rank"),
    # From the table of order statistics for 95 %: P(binomial(n, 1/2) < rank) <= 0.025.
    [(6, 1), (8, 1), (9, 2), (12, 3), (20, 6), (30, 10), (50, 18), (100, 40)],
)
def test_median_interval_matches_published_ranks(count, rank):
    assert median_interval(list(range(1, count + 1))) == (rank, count + 1 - rank)


def test_median_interval_of_very_few_samples_is_their_range():
    assert median_interval([5.0]) == (5.0, 5.0)
    assert median_interval([2.0, 1.0, 3.0]) == (1.0, 3.0)


def test_median_interval_of_very_many_samples():
    low, high = median_interval(np.arange(1_000_001))
    assert 498_900 < low < 499_100  # 500,000 - 1.96 * 1000 / 2
    assert high == 1_000_000 - low


@pytest.mark.parametrize("count", [7, 101])
def test_median_interval_covers_the_median(count):
    rng = np.random.default_rng(1)
    true = 1 + 0.005 * math.log(2)
    hits = 0
    for _ in range(1000):
        low, high = median_interval(1 + 0.005 * rng.exponential(size=count))
        hits += low <= true <= high
    assert hits >= 940


@pytest.mark.parametrize("count", [7, 40])
def test_equal_kernels_are_seldom_called_faster(count):
    rng = np.random.default_rng(2)
    verdicts = [
        verdict(paired_ratio(timings(rng, count), timings(rng, count)), noise_floor=0.0) for _ in range(400)
    ]
    assert verdicts.count(Verdict.FASTER) <= 20
    assert verdicts.count(Verdict.SLOWER) <= 20


def test_a_real_difference_is_seen_through_drift():
    rng = np.random.default_rng(3)
    verdicts = []
    for _ in range(100):
        drift = 1 + np.cumsum(rng.normal(scale=0.0005, size=100))
        a, b = timings(rng, 100, 0.99) * drift, timings(rng, 100) * drift
        verdicts.append(verdict(paired_ratio(a, b), noise_floor=0.002))
    assert verdicts.count(Verdict.FASTER) >= 98
    assert verdict(paired_ratio(b, a), 0.002) is Verdict.SLOWER


def test_ratio_is_of_pairs():
    a, b = [1.0, 10.0, 100.0] * 4, [2.0, 20.0, 200.0] * 4
    assert paired_ratio(a, b) == Ratio(0.5, 0.5, 0.5)
    assert paired_ratio([100.0 + place for place in range(20)], [4.0] * 20) == Ratio(
        27.375, 26.25, 28.5
    )  # the 6th of each end


@pytest.mark.parametrize("confidence", [0.95, 0.99, 0.998, 0.9999])
def test_interval_encloses_what_a_percentile_bootstrap_expects(confidence):
    """The median of resampled pairs lies below the interval with less than the tail's probability, for any times."""
    for count in range(fewest_samples(confidence), 201):
        lowest = paired_ratio(range(1, count + 1), [1.0] * count, confidence).low
        below = (lowest - 1) / count  # the probability that a drawn pair lies there; half of them must
        half = range((count + 1) // 2, count + 1)
        chance = sum(math.comb(count, j) * below**j * (1 - below) ** (count - j) for j in half)
        assert chance <= (1 - confidence) / 2


def test_too_few_pairs_decide_nothing():
    ratio = paired_ratio([1.0] * (MIN_SAMPLES - 1), [2.0] * (MIN_SAMPLES - 1))
    assert ratio.median == 0.5
    assert verdict(ratio, 0.001) is Verdict.AMBIGUOUS
    assert verdict(paired_ratio([1.0] * MIN_SAMPLES, [2.0] * MIN_SAMPLES), 0.001) is Verdict.FASTER


def test_pairs_must_pair_up():
    with pytest.raises(ValueError, match="do not pair up"):
        paired_ratio([1.0], [1.0, 2.0])
    with pytest.raises(ValueError, match="do not pair up"):
        paired_ratio([], [])


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        (Ratio(0.95, 0.94, 0.96), Verdict.FASTER),
        (Ratio(1.05, 1.04, 1.06), Verdict.SLOWER),
        (Ratio(1.0, 0.995, 1.005), Verdict.SAME),
        (Ratio(0.995, 0.991, 0.999), Verdict.SAME),  # surely faster, but by less than the noise
        (Ratio(0.97, 0.93, 1.01), Verdict.AMBIGUOUS),
        (Ratio(0.992, 0.985, 0.999), Verdict.AMBIGUOUS),
        (Ratio(0.985, 0.975, 1.0), Verdict.AMBIGUOUS),  # an interval that reaches 1
        (Ratio(1.015, 1.0, 1.025), Verdict.AMBIGUOUS),
        (Ratio(1.0, 0.99, 1.01), Verdict.SAME),  # as far as the noise
        (Ratio(1.0, 0.9899, 1.01), Verdict.AMBIGUOUS),
        (Ratio(1.01, 1.005, 1.01), Verdict.SAME),
    ],
)
def test_verdict(ratio, expected):
    assert verdict(ratio, noise_floor=0.01) is expected


@pytest.mark.parametrize(("noise_floor", "margin"), [(0.0, 0.0), (0.002, 0.0075), (0.02, 0.02)])
def test_winners_of_runs_are_equally_fast_within_the_noise_and_a_margin(noise_floor, margin):
    assert equivalence_margin(noise_floor) == margin


def test_outliers_are_counted():
    rng = np.random.default_rng(5)
    samples = rng.normal(100, 1, 200)
    assert outlier_count(samples) == 0
    samples[[3, 50, 70]] += [20, -20, 30]
    assert outlier_count(samples) == 3


@pytest.mark.parametrize(("sample", "count"), [(107.4, 0), (107.43, 1), (92.57, 1), (92.6, 0)])
def test_an_outlier_is_five_standard_deviations_from_the_median(sample, count):
    """Their median deviation is 1, which is that of a normal distribution with one of 1.4826."""
    assert outlier_count([99.0, 101.0] * 20 + [100.0, 100.0, sample]) == count


@pytest.mark.parametrize(("confidence", "count"), [(0.5, 2), (0.95, MIN_SAMPLES), (0.975, 7), (0.998, 10)])
def test_surer_takes_more_samples(confidence, count):
    """All of n lie on one side of the median with probability 2 / 2**n."""
    assert fewest_samples(confidence) == count
    assert 2 / 2**count <= 1 - confidence + 1e-12
    assert 2 / 2 ** (count - 1) > 1 - confidence
    sufficient, too_few = [1.0] * count, [1.0] * (count - 1)
    assert paired_ratio(sufficient, sufficient, confidence) == Ratio(1.0, 1.0, 1.0)
    assert paired_ratio(too_few, too_few, confidence) == Ratio(1.0, 0.0, math.inf)


def test_median():
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert median([4.0, 1.0]) == 2.5


def test_a_coarse_timer_makes_no_outliers():
    assert outlier_count([1000.0] * 60 + [1004.0] * 30) == 0
    assert outlier_count([1000.0] * 60 + [1006.0] * 3) == 3
