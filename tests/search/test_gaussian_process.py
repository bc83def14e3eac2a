"""The model of the default sampler: what it predicts, and that extending it changes nothing."""

import numpy as np
import pytest

from tests.small_spaces import cost, single
from tuner.search.features import Features
from tuner.search.gaussian_process import GaussianProcess

# -- the model


def test_gradient_is_that_of_the_loss():
    rng = np.random.default_rng(1)
    features = Features(single(4, 4))
    model = GaussianProcess(features.distances)
    codes = features.encode(0, rng.choice(len(features.space), 12, replace=False))
    targets = rng.standard_normal(12)
    theta = model.middle + 0.3 * rng.standard_normal(len(model.middle))
    _, slope = model._loss(theta, model.pairs(codes), targets)
    for i in range(len(theta)):
        step = np.zeros_like(theta)
        step[i] = 1e-5
        up, _ = model._loss(theta + step, model.pairs(codes), targets)
        down, _ = model._loss(theta - step, model.pairs(codes), targets)
        assert slope[i] == pytest.approx((up - down) / 2e-5, rel=1e-3, abs=1e-5)


def predicted(model, codes):
    posterior = model.posterior([codes])
    return posterior.mean, posterior.deviation


def test_predicts_what_it_was_told_and_is_less_sure_elsewhere():
    features = Features(single(6, 4))
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(features.space))
    values = np.array([cost(features.space.variants[0].configuration(int(row))) for row in rows])
    codes, targets = features.encode(0, rows), (values - values.mean()) / values.std()
    model = GaussianProcess(features.distances)
    model.fit(codes[:30], targets[:30], 30)
    model.condition(codes[:30], targets[:30])
    mean, deviation = predicted(model, codes)
    assert np.abs(mean[:30] - targets[:30]).max() < 0.15
    assert deviation[:30].max() < deviation[30:].mean()
    assert np.corrcoef(mean[30:], targets[30:])[0, 1] > 0.95


# -- the model, extended


def test_a_model_that_is_extended_is_the_one_made_anew():
    rng = np.random.default_rng(1)
    features = Features(single(4, 4))
    codes = features.encode(0, rng.choice(len(features.space), 40, replace=False))
    targets = rng.standard_normal(30)
    grown, whole = GaussianProcess(features.distances), GaussianProcess(features.distances)
    for size in (20, 24, 30):
        grown.condition(codes[:size], targets[:size])
    whole.condition(codes[:30], targets)
    for grew, expected in zip(predicted(grown, codes), predicted(whole, codes), strict=True):
        assert grew == pytest.approx(expected, abs=1e-8)
    assert whole.mean(codes) == pytest.approx(predicted(whole, codes)[0])


def test_fantasizing_one_by_one_is_fantasizing_together():
    rng = np.random.default_rng(1)
    features = Features(single(4, 4))
    codes = features.encode(0, rng.choice(len(features.space), 40, replace=False))
    model = GaussianProcess(features.distances)
    model.condition(codes[:20], rng.standard_normal(20))
    posterior = model.posterior([codes[20:30], codes[30:30], codes[30:]])
    before = posterior.mean.copy()
    for row in (3, 7, 15):
        posterior.fantasize(row)
    model.fantasize(codes[20:][[3, 7, 15]])
    mean, deviation = predicted(model, codes[20:])
    assert mean == pytest.approx(before)
    assert posterior.mean == pytest.approx(before)
    assert posterior.deviation == pytest.approx(deviation, abs=1e-6)
