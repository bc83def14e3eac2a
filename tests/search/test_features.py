"""The features by which the model compares configurations."""

import numpy as np
import pytest

from tests.small_spaces import build, union
from tuner.search.features import Features


def features_of(values, **others):
    return Features(build(("v", {"p": values, **others}, [])))


def test_ratios_for_amounts_and_steps_for_others():
    (feature,) = features_of([16, 32, 64]).features
    assert np.allclose(feature.distances[0], [0, 0.5, 1])
    (feature,) = features_of([64, 96, 128]).features
    assert np.allclose(feature.distances[0], [0, 0.5, 1])


@pytest.mark.parametrize("values", [["x", "y", "z"], [0, 1, 2]])
def test_names_and_numbered_methods_have_no_order(values):
    (feature,) = features_of(values).features
    assert np.allclose(feature.distances, 1 - np.eye(3))


def test_how_often_two_divides_is_a_feature_unless_it_is_the_size():
    size, powers = features_of([16, 32, 48, 64]).features
    assert size.distances[0, 2] > size.distances[0, 1]
    assert powers.distances[0, 2] == 0 < powers.distances[0, 1]
    assert len(features_of([16, 32, 64, 128]).features) == 1


def test_variants_share_the_features_of_a_name():
    features = Features(union())
    names = [feature.name for feature in features.features]
    assert names[:2] == ["variant", "a"]
    assert "one" in names  # present in one variant, absent in the others
    for feature in features.features:
        d = feature.distances
        assert np.allclose(d, d.T)
        assert (np.diag(d) == 0).all()
        # A distance that can be drawn: its kernel has no negative eigenvalue.
        assert np.linalg.eigvalsh(np.exp(-((d / 0.5) ** 2))).min() > -1e-9
