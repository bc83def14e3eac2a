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
        self._codes: Codes = np.empty((0, len(self.distances)), dtype=np.int64)
        self._inverse_root: Floats = np.empty((0, 0))
        self._weights: Floats = np.empty(0)
        self._mean = 0.0
        self._trust: Floats | None = None

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
        apart = self._apart(codes)
        theta = self.theta
        value, slope = self._loss(theta, apart, targets, alike)
        if not np.isfinite(value):
            theta = self.middle
            value, slope = self._loss(theta, apart, targets, alike)
        hessian = np.diag(0.3 * self.spread**2)
        for _ in range(steps):
            step = -hessian @ slope
            step *= min(1.0, 1.5 / max(float(np.abs(step).max()), 1e-12))
            for _ in range(6):
                new_value, new_slope = self._loss(theta + step, apart, targets, alike)
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

    def evidence(self, codes: Codes, targets: Floats, alike: Floats) -> float:
        """Give how well tasks of that correlation explain the results: a log likelihood, but for a constant."""
        return -self._loss(self.theta, self._apart(codes), targets, alike)[0] if self.distances else 0.0

    def condition(
        self, codes: Codes, targets: Floats, trust: Floats | None = None, alike: Floats | None = None
    ) -> None:
        """Take in results, under the hyperparameters that there are.

        Args:
            codes: one row a configuration.
            targets: their results.
            trust: correlation of each result's task with the one that is to be predicted; 1 when left out.
            alike: correlation of the tasks that each two results belong to; 1 when left out.
        """
        self._codes, self._trust = codes, None
        covariance = self._covariance(codes)
        if alike is not None:
            covariance *= alike
        self._trust = trust
        covariance[np.diag_indices(len(codes))] += np.exp(self.theta[-1]) + JITTER
        self._inverse_root = np.linalg.inv(np.linalg.cholesky(covariance))
        inverse = self._inverse_root.T @ self._inverse_root
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

    def _covariance(self, codes: Codes) -> Floats:
        """Give the covariance of configurations with those that were taken in."""
        lengths, main, share, rest, _ = self._split(self.theta)
        shape = len(codes), len(self._codes)
        total, product = np.zeros(shape), np.full(shape, rest)
        for j, distances in enumerate(self.distances):
            table, _ = _matern(distances[:, self._codes[:, j]] / lengths[j])
            total += (main[j] * table)[codes[:, j]]
            product *= (1 - share[j] + share[j] * table)[codes[:, j]]
        total += product
        if self._trust is not None:
            total *= self._trust
        return total

    def _apart(self, codes: Codes) -> Floats:
        return np.stack([d[np.ix_(c, c)] for d, c in zip(self.distances, codes.T, strict=True)])

    def _loss(
        self, theta: Floats, apart: Floats, targets: Floats, alike: Floats | None = None
    ) -> tuple[float, Floats]:
        """Give the negative log posterior of hyperparameters, and its gradient."""
        count, size = len(self.distances), len(targets)
        lengths, main, share, rest, noise = self._split(theta)
        kernels, slopes = _matern(apart / lengths[:, None, None])
        factors = 1 - share[:, None, None] + share[:, None, None] * kernels
        product = rest * np.prod(factors, axis=0)
        covariance = np.tensordot(main, kernels, 1) + product
        if alike is not None:
            covariance *= alike
        covariance[np.diag_indices(size)] += noise + JITTER
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
        pull = np.outer(weights, weights) - inverse
        gradient = scores / self.spread
        gradient[-1] -= 0.5 * np.trace(pull) * noise
        if alike is not None:
            pull = pull * alike
        within = pull * product / factors
        both = pull * main[:, None, None] + within * share[:, None, None]
        gradient[:count] -= 0.5 * np.einsum("jab,jab->j", both, slopes)
        gradient[count : 2 * count] -= 0.5 * main * np.einsum("ab,jab->j", pull, kernels)
        gradient[2 * count : 3 * count] -= (
            0.5 * share * (1 - share) * np.einsum("jab,jab->j", within, kernels - 1)
        )
        gradient[-2] -= 0.5 * (pull * product).sum()
        return float(value), gradient


def _matern(scaled: NDArray[np.float64]) -> tuple[Floats, Floats]:
    """Give the kernel at a distance over its length, and the derivative by the length's logarithm."""
    decay = np.exp(-ROOT5 * scaled)
    square = 5 / 3 * scaled * scaled
    return (1 + ROOT5 * scaled + square) * decay, square * (1 + ROOT5 * scaled) * decay
