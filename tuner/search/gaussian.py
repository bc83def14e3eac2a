"""A Gaussian process over levels of features, with hyperparameters that a few results can settle.

The kernel is a sum over the features, each with a weight of its own, and a product of them in which each takes part
more or less: ``sum_j b_j k_j + s prod_j (1 - w_j + w_j k_j)``. The sum carries the main effects, which in log time
are most of what there is; the product what is left, with all interactions. Both have the same ``k_j``, a Matérn
kernel of smoothness 5/2 on the distance between the levels.

Hyperparameters are the most probable ones under log-normal priors (logit-normal for ``w``), found by BFGS from
where the last fit ended.
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
        """Give means and standard deviations of the hyperparameters for a number of features."""
        logit = np.log(self.share / (1 - self.share))
        middle = [np.log(self.length), np.log(self.main), logit]
        spread = [self.length_spread, self.main_spread, self.share_spread]
        return (
            np.append(np.repeat(middle, count), np.log([self.rest, self.noise])),
            np.append(np.repeat(spread, count), [self.rest_spread, self.noise_spread]),
        )


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
        self._inverse_root: Floats = np.empty((0, 0))
        self._weights: Floats = np.empty(0)
        self._mean = 0.0
        self._trust: Floats | None = None
        # All tables of distances, one after the other. Two results differ in each feature by one of its few pairs of
        # levels, so that kernels are evaluated for the pairs, and what they are for results is looked up.
        self._levels = np.array([len(table) for table in self.distances], dtype=np.int64)
        self._flat = np.concatenate([np.ravel(table) for table in self.distances] or [np.empty(0)])
        self._tables = np.cumsum(self._levels**2) - self._levels**2
        self._columns = np.cumsum(self._levels) - self._levels
        self._known = self._view(np.empty((0, len(self.distances)), dtype=np.int64))

    def fit(self, codes: Codes, targets: Floats, steps: int, alike: Floats | None = None) -> None:
        """Improve the hyperparameters by a bounded number of BFGS steps.

        Args:
            codes: one row a configuration.
            targets: their results.
            steps: at most so many.
            alike: correlation of the tasks that each two results belong to; 1 when left out.
        """
        if not self.distances:
            return
        view = self._view(codes)
        theta = self.theta
        value, slope = self._loss(theta, view, targets, alike)
        if not np.isfinite(value):
            theta = self.middle
            value, slope = self._loss(theta, view, targets, alike)
        hessian = np.diag(0.3 * self.spread**2)
        for _ in range(steps):
            step = -hessian @ slope
            step *= min(1.0, 1.5 / max(float(np.abs(step).max()), 1e-12))
            for _ in range(6):
                new_value, new_slope = self._loss(theta + step, view, targets, alike)
                if new_value < value + 1e-4 * (slope @ step):
                    break
                step = 0.4 * step
            else:
                break
            change = new_slope - slope
            gain, theta, value, slope = value - new_value, theta + step, new_value, new_slope
            if gain < 1e-3:
                break
            if (curvature := float(step @ change)) > 1e-9:
                turn = np.eye(len(theta)) - np.outer(step, change) / curvature
                hessian = turn @ hessian @ turn.T + np.outer(step, step) / curvature
        self.theta = theta

    def evidence(self, codes: Codes, targets: Floats, relations: Sequence[Floats]) -> list[float]:
        """Give how well each of some relations of tasks explains the results: log likelihoods, but for a constant."""
        if not self.distances:
            return [0.0] * len(relations)
        parts = self._parts(self.theta, self._view(codes))
        return [-self._posterior(self.theta, parts, targets, alike)[0] for alike in relations]

    def condition(
        self, codes: Codes, targets: Floats, trust: Floats | None = None, alike: Floats | None = None
    ) -> None:
        """Take in results, under the hyperparameters that there are.

        Args:
            codes: one row a configuration.
            targets: their results; the last may be unknown (not a number), and are taken to be what the others predict.
            trust: correlation of each result's task with the one that is to be predicted; 1 when left out.
            alike: correlation of the tasks that each two results belong to; 1 when left out.
        """
        self._known, self._trust = self._view(codes), trust
        parts = self._parts(self.theta, self._known)
        covariance = parts.sums + parts.product
        if alike is not None:
            covariance *= alike
        covariance[np.diag_indices(len(codes))] += np.exp(self.theta[-1]) + JITTER
        self._inverse_root = np.linalg.inv(np.linalg.cholesky(covariance))
        if (known := int(np.isfinite(targets).sum())) < len(targets):
            # The inverse of a triangular matrix begins with the inverse of its beginning.
            self._solve(self._inverse_root[:known, :known], targets[:known])
            believed = self._mean + covariance[known:, :known] @ self._weights
            targets = np.append(targets[:known], believed)
        self._solve(self._inverse_root, targets)

    def _solve(self, inverse_root: Floats, targets: Floats) -> None:
        inverse = inverse_root.T @ inverse_root
        sums = inverse.sum(axis=1)
        self._mean = float(sums @ targets / (sums.sum() + 1.0 / MEAN_VARIANCE))
        self._weights = inverse @ (targets - self._mean)

    def predict(self, codes: Codes) -> tuple[Floats, Floats]:
        """Give the expected results of configurations, and their standard deviations."""
        covariance = self._covariance(codes)
        known = covariance @ self._inverse_root.T
        _, main, _, rest, _ = self._split(self.theta)
        variance = main.sum() + rest - np.einsum("ij,ij->i", known, known)
        return self._mean + covariance @ self._weights, np.sqrt(np.maximum(variance, 1e-10))

    def _split(self, theta: Floats) -> tuple[Floats, Floats, Floats, float, float]:
        count = len(self.distances)
        share = 1 / (1 + np.exp(-theta[2 * count : 3 * count]))
        rest, noise = np.exp(theta[3 * count :])
        return np.exp(theta[:count]), np.exp(theta[count : 2 * count]), share, float(rest), float(noise)

    def _view(self, codes: Codes) -> _View:
        """Prepare some configurations for comparisons between them."""
        columns = codes + self._columns
        marks = np.zeros((len(codes), int(self._levels.sum())))
        marks[np.arange(len(codes))[:, None], columns] = 1.0
        occurring = np.flatnonzero(marks.any(axis=0))
        feature = np.searchsorted(self._columns, occurring, side="right") - 1
        starts = self._tables + codes * self._levels
        entries = starts[:, feature] + (occurring - self._columns[feature])
        return _View(codes, marks[:, occurring], entries, occurring, feature)

    def _covariance(self, codes: Codes) -> Floats:
        """Give the covariance of configurations with those that were taken in.

        What all of them share, such as what other variants' parameters have, is looked up once.
        """
        lengths, main, share, rest, _ = self._split(self.theta)
        tables, _ = _matern(self._flat / self._spread_out(lengths))
        total = np.zeros((len(codes), len(self._known.codes)))
        logs = np.zeros_like(total)
        alike = (codes == codes[:1]).all(axis=0) if len(codes) else np.ones(len(main), dtype=bool)
        sums, factors = self._spread_out(main) * tables, np.log1p(self._spread_out(share) * (tables - 1))
        for columns, some in ((alike, codes[:1]), (~alike, codes)):
            inside = columns[self._known.feature]
            feature, occurring = self._known.feature[inside], self._known.occurring[inside]
            entries = (self._tables + some * self._levels)[:, feature] + (occurring - self._columns[feature])
            marks = self._known.marks[:, inside].T
            total += sums[entries] @ marks
            logs += factors[entries] @ marks
        total += rest * np.exp(logs)
        if self._trust is not None:
            total *= self._trust
        return total

    def _spread_out(self, values: Floats) -> Floats:
        """Repeat a value of each feature for all pairs of its levels."""
        return np.repeat(values, self._levels**2)

    def _parts(self, theta: Floats, view: _View) -> _Parts:
        """Evaluate the kernel for all pairs of levels, and for all pairs of results."""
        lengths, main, share, rest, _ = self._split(theta)
        kernels, slopes = _matern(self._flat / self._spread_out(lengths))
        factors = 1 + self._spread_out(share) * (kernels - 1)
        sums = (self._spread_out(main) * kernels)[view.entries] @ view.marks.T
        product = rest * np.exp(np.log(factors)[view.entries] @ view.marks.T)
        return _Parts(kernels, slopes, factors, sums, product)

    def _posterior(
        self, theta: Floats, parts: _Parts, targets: Floats, alike: Floats | None
    ) -> tuple[float, Floats]:
        """Give the negative log posterior, and its derivative by the covariance, doubled and negative."""
        covariance = parts.sums + parts.product
        if alike is not None:
            covariance *= alike
        covariance[np.diag_indices(len(targets))] += np.exp(theta[-1]) + JITTER
        try:
            root = np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:
            return np.inf, np.zeros_like(covariance)
        inverse = np.linalg.inv(covariance)
        sums = inverse.sum(axis=1)
        mean = sums @ targets / (sums.sum() + 1.0 / MEAN_VARIANCE)
        weights = inverse @ (targets - mean)
        scores = (theta - self.middle) / self.spread
        value = 0.5 * ((targets - mean) @ weights + mean**2 / MEAN_VARIANCE + scores @ scores)
        value += np.log(np.diag(root)).sum()
        return float(value), np.outer(weights, weights) - inverse

    def _loss(
        self, theta: Floats, view: _View, targets: Floats, alike: Floats | None = None
    ) -> tuple[float, Floats]:
        """Give the negative log posterior of hyperparameters, and its gradient."""
        count = len(self.distances)
        _, main, share, _, noise = self._split(theta)
        parts = self._parts(theta, view)
        value, pull = self._posterior(theta, parts, targets, alike)
        if not np.isfinite(value):
            return value, np.zeros_like(theta)
        gradient = (theta - self.middle) / self.spread**2
        gradient[-1] -= 0.5 * np.trace(pull) * noise
        if alike is not None:
            pull = pull * alike
        within = pull * parts.product
        gradient[-2] -= 0.5 * within.sum()

        def by_levels(matrix: Floats) -> Floats:
            """Sum over the results that have each pair of levels."""
            sums = (matrix @ view.marks).ravel()
            return np.bincount(view.entries.ravel(), sums, len(self._flat)).astype(np.float64)

        pulls, withins = by_levels(pull), by_levels(within) / parts.factors
        terms = (
            (self._spread_out(main) * pulls + self._spread_out(share) * withins) * parts.slopes,
            self._spread_out(main) * pulls * parts.kernels,
            self._spread_out(share * (1 - share)) * withins * (parts.kernels - 1),
        )
        for number, term in enumerate(terms):
            gradient[number * count : (number + 1) * count] -= 0.5 * np.add.reduceat(term, self._tables)
        return value, gradient


@dataclass(frozen=True)
class _View:
    """Configurations, ready for comparisons."""

    codes: Codes
    marks: Floats
    """One row a configuration, one column a level of a feature that occurs; 1 where it has that level."""
    entries: Codes
    """In the same places: where the pair of its level of that feature and that level stands among the tables."""
    occurring: Codes
    """For each column, the number of the level among those of all features."""
    feature: Codes
    """For each column, the feature."""


@dataclass(frozen=True)
class _Parts:
    """The kernel: for the pairs of levels of all features, and summed and multiplied up for pairs of results."""

    kernels: Floats
    slopes: Floats
    factors: Floats
    sums: Floats
    product: Floats


def _matern(scaled: NDArray[np.float64]) -> tuple[Floats, Floats]:
    """Give the kernel at a distance over its length, and the derivative by the length's logarithm."""
    decay = np.exp(-ROOT5 * scaled)
    square = 5 / 3 * scaled * scaled
    return (1 + ROOT5 * scaled + square) * decay, square * (1 + ROOT5 * scaled) * decay
