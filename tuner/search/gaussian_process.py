"""A Gaussian process over levels of features, with hyperparameters that a few results can settle.

The kernel is a sum over the features, each with a weight of its own, and a product of them in which each takes part
more or less: ``sum_j b_j k_j + s prod_j (1 - w_j + w_j k_j)``. The sum carries the main effects, which in log time
are most of the variation; the product carries the rest, with all interactions. Both have the same ``k_j``, a Matérn
kernel of smoothness 5/2 on the distance between the levels.

Hyperparameters are the most probable ones under log-normal priors (logit-normal for ``w``), found by BFGS from
where the last fit ended.

Features have few levels, and results are many pairs: whatever depends on two levels only is computed once for each two
levels and looked up, and gradients are summed up by levels before they are multiplied out. That is some ten times less
work than kernels and their derivatives for each feature and pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.search.features import Codes, Floats

ROOT5 = np.sqrt(5.0)
JITTER = 1e-8
MEAN_VARIANCE = 1.0
"""Prior variance of the mean of standardised results."""
FIRST_SCALE, LONGEST_STEP = 0.3, 1.5
"""Of BFGS: the first inverse Hessian, in squared spreads of the prior, and the most that a hyperparameter may move."""
TRIES, SHRINKING, SUFFICIENT = 6, 0.4, 1e-4
"""Of its line search: steps that are tried, each over the one before, and the share of the decrease that the slope
promises with which one is taken (Armijo's condition)."""
LEAST_GAIN = 1e-3
"""Of the log posterior, below which no further step is worth its time."""


@dataclass(frozen=True)
class Prior:
    """Medians and spreads (standard deviations of the logarithm, or logit) of the hyperparameters."""

    length: float = 1.0
    length_spread: float = 0.4
    main: float = 0.1
    main_spread: float = 1.5
    share: float = 0.5
    share_spread: float = 2.0
    rest: float = 0.5
    rest_spread: float = 1.0
    noise: float = 1e-3
    noise_spread: float = 1.0

    def moments(self, count: int) -> tuple[Floats, Floats]:
        """Return means and standard deviations of the hyperparameters for a number of features."""
        logit = np.log(self.share / (1 - self.share))
        middle = [np.log(self.length), np.log(self.main), logit]
        spread = [self.length_spread, self.main_spread, self.share_spread]
        return (
            np.append(np.repeat(middle, count), np.log([self.rest, self.noise])),
            np.append(np.repeat(spread, count), [self.rest_spread, self.noise_spread]),
        )


@dataclass(frozen=True)
class Pairs:
    """All pairs of some configurations."""

    first: Codes
    second: Codes
    levels: Codes
    """For each feature and pair the index of its two levels into the table of all features."""


@dataclass(frozen=True)
class _Tables:
    """Kernels of each two levels of each feature, under the hyperparameters."""

    sums: list[Floats]
    """Weighted kernels, one square table a feature."""
    factors: list[Floats]
    """Factors of the product."""
    rest: float
    """Weight of the product."""
    variance: float
    """Of any one configuration."""


class GaussianProcess:
    """Learns standardised results of configurations, and predicts others with their uncertainty.

    Args:
        distances: for each feature the distances between its levels.
        prior: of the hyperparameters.
    """

    def __init__(self, distances: Sequence[Floats], prior: Prior = Prior()) -> None:
        self.distances = list(distances)
        self.middle, self.spread = prior.moments(len(self.distances))
        self.theta = self.middle.copy()
        sizes = np.array([len(d) for d in self.distances], dtype=np.int64)
        self._sizes = sizes
        self._starts = np.concatenate([[0], np.cumsum(sizes**2)]).astype(np.int64)
        self._table = np.concatenate([d.ravel() for d in self.distances] or [np.empty(0)])
        self._owner = np.repeat(np.arange(len(sizes)), sizes**2)
        self._codes: Codes = np.empty((0, len(self.distances)), dtype=np.int64)
        self._inverse_root: Floats = np.empty((0, 0))
        self._weights: Floats = np.empty(0)
        self._mean = 0.0
        self._tables = self._tabulate()
        self._fantasized: tuple[Codes, Floats, Floats] | None = None

    @property
    def variance(self) -> float:
        """Of any one configuration, before any result."""
        return self._tables.variance

    @property
    def noise(self) -> float:
        """Variance of repeated results of a configuration."""
        return float(np.exp(self.theta[-1])) + JITTER

    def fit(self, codes: Codes, targets: Floats, steps: int) -> None:
        """Improve the hyperparameters by a bounded number of BFGS steps.

        With a backtracking line search: Nocedal and Wright, "Numerical Optimization", 2006, algorithms 3.1 and 6.1.

        Args:
            codes: one row a configuration.
            targets: their results.
            steps: at most so many.
        """
        if not self.distances:
            return
        pairs = self.pairs(codes)
        theta = self.theta
        value, slope = self._loss(theta, pairs, targets)
        if not np.isfinite(value):
            theta = self.middle
            value, slope = self._loss(theta, pairs, targets)
        hessian = np.diag(FIRST_SCALE * self.spread**2)
        for _ in range(steps):
            step = -hessian @ slope
            step *= min(1.0, LONGEST_STEP / max(float(np.abs(step).max()), 1e-12))
            for _ in range(TRIES):
                new_value, new_slope = self._loss(theta + step, pairs, targets)
                if new_value < value + SUFFICIENT * (slope @ step):
                    break
                step = SHRINKING * step
            else:
                break
            change = new_slope - slope
            gain, theta, value, slope = value - new_value, theta + step, new_value, new_slope
            if gain < LEAST_GAIN:
                break
            if (curvature := float(step @ change)) > 1e-9:
                turn = np.eye(len(theta)) - np.outer(step, change) / curvature
                hessian = turn @ hessian @ turn.T + np.outer(step, step) / curvature
        self.theta = theta
        self._tables = self._tabulate()
        self._codes = self._codes[:0]

    def evidence(self, codes: Codes, targets: Floats) -> float:
        """Return how well the model explains results: a log likelihood, but for a constant."""
        return -self._loss(self.theta, self.pairs(codes), targets)[0] if self.distances else 0.0

    def condition(self, codes: Codes, targets: Floats) -> None:
        """Condition on results, with the present hyperparameters.

        Args:
            codes: one row a configuration.
            targets: their results.
        """
        self._fantasized = None
        self._decompose(codes)
        root = self._inverse_root
        ones, own = root.sum(axis=1), root @ targets
        self._mean = float(ones @ own / (ones @ ones + 1.0 / MEAN_VARIANCE))
        self._weights = root.T @ (own - self._mean * ones)

    def mean(self, codes: Codes) -> Floats:
        """Return the expected results of some configurations."""
        return np.asarray(self._mean + self.between(codes, self._codes) @ self._weights)

    def fantasize(self, codes: Codes) -> None:
        """Add configurations with their expected results: the expectations of others stay, their deviations shrink."""
        explained = self.between(codes, self._codes) @ self._inverse_root.T
        left = self.between(codes, codes) - explained @ explained.T
        left[np.diag_indices(len(codes))] += self.noise
        self._fantasized = codes, explained, np.linalg.inv(np.linalg.cholesky(left))

    def posterior(self, blocks: Sequence[Codes]) -> Posterior:
        """Predict several groups of configurations; a feature that is the same throughout a group costs nothing."""
        blocks = [block for block in blocks if len(block)]
        others = (
            self._codes if self._fantasized is None else np.concatenate([self._codes, self._fantasized[0]])
        )
        size, columns, means = len(self._codes), [], []
        for block in blocks:
            covariance = self.between(block, others)
            explained = covariance[:, :size] @ self._inverse_root.T
            means.append(self._mean + covariance[:, :size] @ self._weights)
            if self._fantasized is not None:
                _, of_others, root = self._fantasized
                explained = np.hstack([explained, (covariance[:, size:] - explained @ of_others.T) @ root.T])
            columns.append(explained)
        return Posterior(self, np.concatenate(blocks), np.concatenate(means), np.concatenate(columns))

    def pairs(self, codes: Codes) -> Pairs:
        """Return all pairs of configurations."""
        first, second = np.triu_indices(len(codes), 1)
        columns = codes.T
        levels = self._starts[:-1, None] + columns[:, first] * self._sizes[:, None] + columns[:, second]
        return Pairs(first, second, levels)

    def _decompose(self, codes: Codes) -> None:
        """Invert the root of the covariance; where results were only added, that of the others is extended."""
        before = len(self._codes)
        if not (0 < before <= len(codes) and np.array_equal(self._codes, codes[:before])):
            before = 0
        new, old = codes[before:], self._inverse_root[:before, :before]
        across = self.between(new, codes[:before]) @ old.T
        corner = self.between(new, new) - across @ across.T
        corner[np.diag_indices(len(new))] += self.noise
        root = np.linalg.inv(np.linalg.cholesky(corner))
        self._inverse_root = np.zeros((len(codes), len(codes)))
        self._inverse_root[:before, :before] = old
        self._inverse_root[before:, :before] = -root @ across @ old
        self._inverse_root[before:, before:] = root
        self._codes = codes

    def _split(self, theta: Floats) -> tuple[Floats, Floats, Floats, float, float]:
        count = len(self.distances)
        share = 1 / (1 + np.exp(-theta[2 * count : 3 * count]))
        rest, noise = np.exp(theta[3 * count :])
        return np.exp(theta[:count]), np.exp(theta[count : 2 * count]), share, float(rest), float(noise)

    def _tabulate(self) -> _Tables:
        lengths, main, share, rest, _ = self._split(self.theta)
        sums, factors = [], []
        for j, distances in enumerate(self.distances):
            kernel, _ = _matern(distances / lengths[j])
            sums.append(main[j] * kernel)
            factors.append(1 - share[j] + share[j] * kernel)
        return _Tables(sums, factors, rest, float(main.sum() + rest))

    def between(self, codes: Codes, others: Codes) -> Floats:
        """Return the covariance of each two configurations."""
        shape = len(codes), len(others)
        # A feature that all rows share needs one row.
        total, product = np.zeros(shape[1]), np.full(shape[1], self._tables.rest)
        same = (codes == codes[:1]).all(axis=0)
        for j in np.flatnonzero(same):
            if len(codes):
                total += self._tables.sums[j][codes[0, j], others[:, j]]
                product *= self._tables.factors[j][codes[0, j], others[:, j]]
        totals, products = np.tile(total, (shape[0], 1)), np.tile(product, (shape[0], 1))
        for j in np.flatnonzero(~same):
            totals += self._tables.sums[j][:, others[:, j]].take(codes[:, j], axis=0)
            products *= self._tables.factors[j][:, others[:, j]].take(codes[:, j], axis=0)
        return np.asarray(totals + products)

    def _loss(self, theta: Floats, pairs: Pairs, targets: Floats) -> tuple[float, Floats]:
        """Return the negative log posterior of hyperparameters, and its gradient."""
        count, size = len(self.distances), len(targets)
        lengths, main, share, rest, noise = self._split(theta)
        kernels, slopes = _matern(self._table / lengths[self._owner])
        factors = 1 - share[self._owner] + share[self._owner] * kernels
        product = rest * factors[pairs.levels].prod(axis=0)
        between = (main[self._owner] * kernels)[pairs.levels].sum(axis=0) + product
        covariance = np.empty((size, size))
        covariance[pairs.first, pairs.second] = between
        covariance[pairs.second, pairs.first] = between
        covariance[np.diag_indices(size)] = main.sum() + rest + noise + JITTER
        try:
            root = np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:
            return np.inf, np.zeros_like(theta)
        inverse = np.linalg.inv(covariance)
        sums = inverse.sum(axis=1)
        mean = sums @ targets / (sums.sum() + 1.0 / MEAN_VARIANCE)
        weights = inverse @ (targets - mean)
        scores = (theta - self.middle) / self.spread
        value = 0.5 * ((targets - mean) @ weights + mean**2 / MEAN_VARIANCE + scores @ scores)
        value += np.log(np.diag(root)).sum()
        trace = float(weights @ weights - np.trace(inverse))
        # Each pair stands for two elements of the matrix.
        pull = 2 * (weights[pairs.first] * weights[pairs.second] - inverse[pairs.first, pairs.second])
        within = pull * product
        # By two levels of a feature: what pulls at its kernel there, in the sum and within the product.
        by_sum = self._by_levels(pairs, pull)
        by_product = self._by_levels(pairs, within) / factors
        both = by_sum * main[self._owner] + by_product * share[self._owner]
        gradient = scores / self.spread
        gradient[:count] -= 0.5 * self._by_feature(both * slopes)
        gradient[count : 2 * count] -= 0.5 * main * (self._by_feature(by_sum * kernels) + trace)
        gradient[2 * count : 3 * count] -= (
            0.5 * share * (1 - share) * self._by_feature(by_product * (kernels - 1))
        )
        gradient[-2] -= 0.5 * (within.sum() + rest * trace)
        gradient[-1] -= 0.5 * trace * noise
        return float(value), gradient

    def _by_levels(self, pairs: Pairs, pulls: Floats) -> Floats:
        """Add up what belongs to pairs, for each two levels of each feature."""
        each = np.broadcast_to(pulls, pairs.levels.shape).ravel()
        return np.asarray(np.bincount(pairs.levels.ravel(), each, len(self._table)))

    def _by_feature(self, values: Floats) -> Floats:
        return np.add.reduceat(values, self._starts[:-1])


class Posterior:
    """Expected results of some configurations, and their standard deviations.

    Args:
        model: that predicts.
        codes: one row a configuration.
        mean: expected results.
        columns: covariances with the results, so scaled that their squares are what the variance shrinks by.
    """

    def __init__(self, model: GaussianProcess, codes: Codes, mean: Floats, columns: Floats) -> None:
        self.model, self.codes, self.mean = model, codes, mean
        self._columns = columns
        self._variance = model.variance - np.einsum("ij,ij->i", columns, columns)

    @property
    def deviation(self) -> Floats:
        """Standard deviations."""
        return np.asarray(np.sqrt(np.maximum(self._variance, 1e-10)))

    def fantasize(self, row: int) -> None:
        """Add the expected result of one of them: expectations stay, deviations of those like it shrink."""
        column = self.model.between(self.codes, self.codes[row : row + 1])[:, 0]
        column -= self._columns @ self._columns[row]
        column /= np.sqrt(max(self._variance[row], 0.0) + self.model.noise)
        self._variance = self._variance - column**2
        self._columns = np.column_stack([self._columns, column])


def _matern(scaled: NDArray[np.float64]) -> tuple[Floats, Floats]:
    """Return the kernel at a distance over its length, and the derivative by the length's logarithm."""
    decay = np.exp(-ROOT5 * scaled)
    square = 5 / 3 * scaled * scaled
    return (1 + ROOT5 * scaled + square) * decay, square * (1 + ROOT5 * scaled) * decay
