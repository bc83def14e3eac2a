"""The features by which the model compares configurations."""

import numpy as np
import pytest

from tests.small_spaces import build, union
from tuner.core.model import Resources
from tuner.search.features import Features, encode_resources, resource_distances


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


def test_a_parameter_without_a_choice_is_no_feature():
    assert len(features_of([7])) == 0


def test_levels_of_resources():
    unknown, plain, spilling = encode_resources(
        [None, Resources(32, 1024, 0, 0, 0, 8), Resources(255, 1024, 0, 8, 64, 2)]
    )
    tables = resource_distances()
    assert [len(table) - 1 for table in tables] == unknown.tolist()
    for table in tables:
        assert np.allclose(table, table.T)
        assert (np.diag(table) == 0).all()
        assert table.max() <= 1
    apart = [table[a, b] for table, a, b in zip(tables, plain, spilling, strict=True)]
    assert apart[0] == pytest.approx(3 / 5.04, abs=0.01)  # eight times the registers, of 8 to 256
    assert apart[2] == 0
    assert apart[3] > 0.3
