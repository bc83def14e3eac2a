import dataclasses
import itertools

import numpy as np
import pytest

from tests.counted import calls_of
from tests.faults.kernels import configuration as one_of_scale
from tests.faults.kernels import scale_kernel
from tuner.core.errors import SpaceError, UsageError
from tuner.core.model import Configuration
from tuner.expressions.arithmetic import parse
from tuner.kernel import enumeration
from tuner.kernel.load import load_kernel
from tuner.kernel.plan import invalid_reason
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.space import SearchSpace
from tuner.kernel.variant_spec import ParameterSpec, VariantSpec

GPU = ARCHITECTURES[90]


def variant(name, parameters, constraints=(), requires=None, defaults=None):
    specs = {
        n: ParameterSpec(n, tuple(values), (defaults or {}).get(n, values[0]))
        for n, values in parameters.items()
    }
    if isinstance(constraints, (list, tuple)):
        constraints = {text: text for text in constraints}
    checks = tuple((reason, parse(text)) for reason, text in constraints.items())
    return VariantSpec(name, "", parse(requires) if requires else None, specs, checks, (), ())


def build(*variants, gpu=GPU, **options):
    kernel = dataclasses.replace(
        load_kernel("vector_add"), name="test", sizes={"n": 1000}, variants={v.name: v for v in variants}
    )
    return SearchSpace.from_kernel(kernel, kernel.problem(), gpu, **options)


def by_hand(spec, names=()):
    """What is valid, one scalar evaluation after another."""
    valid = []
    for values in itertools.product(*(p.values for p in spec.parameters.values())):
        point = dict(zip(spec.parameters, values, strict=True))
        if all(condition.holds({**dict(names), **point}) for _, condition in spec.search_conditions):
            valid.append(Configuration.of(spec.name, point))
    return valid


MIXED = variant(
    "mixed",
    {
        "a": [1, 2, 4, 8],
        "flag": [False, True],
        "text": ["x", "y", "z"],
        "scale": [0.5, 1.0, 2.5],
        "b": [3, 5, 7],
    },
    {
        "a and b": "a * b <= 20",
        "text decides": "text != 'z' or flag",
        "a and scale": "a * scale < 9 if flag else a > 1",
        "flags add up": "flag + flag + a != 4",
        "size": "a * b <= n",
    },
)


def test_the_valid_set_is_what_one_by_one_evaluation_gives():
    space = build(MIXED)
    assert list(space.configurations()) == by_hand(MIXED, {"n": 1000})
    assert space.size_before == 4 * 2 * 3 * 3 * 3
    assert not space.sampled


def test_what_pruning_rules_exclude_is_valid_and_not_searched(tmp_path):
    extra = '[variants.plain.pruning]\n"there is work for large blocks" = "n >= 1000 or block_size <= 64"\n'
    kernel = scale_kernel(tmp_path, extra=extra)
    large, small = kernel.problem({"n": 1000}), kernel.problem({"n": 999})
    block, few = one_of_scale(block_size=256), one_of_scale(block_size=64)
    for problem, searched in ((large, True), (small, False)):
        space = SearchSpace.from_kernel(kernel, problem, GPU)
        assert space.contains(block) == searched and space.contains(few)
        assert invalid_reason(kernel, problem, GPU, block) == ""
    with pytest.raises(SpaceError, match="pruning rules for scale"):
        SearchSpace.from_kernel(kernel, small, GPU, fixed={"block_size": [256]})


def test_contains_and_encode():
    space = build(MIXED)
    inside = set(space.configurations())
    for values in itertools.product(*(p.values for p in MIXED.parameters.values())):
        configuration = Configuration.of("mixed", dict(zip(MIXED.parameters, values, strict=True)))
        assert space.contains(configuration) == (configuration in inside)
    some = next(space.configurations())
    assert not space.contains(Configuration.of("other", some.values))
    assert not space.contains(Configuration.of("mixed", {**some.values, "a": 3}))
    assert not space.contains(Configuration.of("mixed", {**some.values, "flag": 1}))
    assert not space.contains(Configuration.of("mixed", {"a": 1}))
    shuffled = dict(reversed(some.values.items()))
    assert space.contains(Configuration.of("mixed", shuffled))


def _distances(space, configuration):
    number, vector = space.encode(configuration)
    return space.variants[number].distances(vector)


def test_distances_are_numbers_of_parameters():
    space = build(MIXED, variant("other", {"a": [1, 2]}))
    everything = [c for c in space.configurations() if c.variant == "mixed"]
    for configuration in everything[::7]:
        expected = [
            c
            for c in everything
            if sum(x != y for x, y in zip(c.parameters, configuration.parameters, strict=True)) == 1
        ]
        near = zip(everything, _distances(space, configuration), strict=True)
        assert [c for c, away in near if away == 1] == expected


def test_nearest_prefers_hamming_then_steps():
    space = build(variant("v", {"a": [1, 2, 3, 4], "b": [1, 2, 3, 4]}, ["a + b != 4", "a != b"])).variants[0]
    excluded = np.zeros(len(space), dtype=bool)
    wanted = np.array([0, 2])  # a = 1, b = 3: not valid
    values = space.configuration(space.nearest(wanted, excluded)).values
    # One parameter away, by one step: (1, 2), (1, 4), (2, 3). The first in order without a generator.
    assert values == {"a": 1, "b": 2}
    picked = {
        space.configuration(space.nearest(wanted, excluded, np.random.default_rng(i))) for i in range(40)
    }
    assert {tuple(c.values.values()) for c in picked} == {(1, 2), (1, 4), (2, 3)}
    for pair in [(1, 2), (1, 4), (2, 3)]:
        excluded[space.find(space.encode({"a": pair[0], "b": pair[1]}))] = True
    assert space.configuration(space.nearest(wanted, excluded)).values == {"a": 4, "b": 3}
    excluded[:] = True
    assert space.nearest(wanted, excluded) is None


def test_fixing_parameters():
    small, large = variant("small", {"a": [1, 2]}), variant("large", {"a": [1, 2, 3], "b": [1, 2]})
    assert len(build(small, large, fixed={"a": (2,)})) == 3
    space = build(small, large, fixed={"b": (1,)})
    assert [v.name for v in space.variants] == ["large"]
    assert space.left_out == {"small": "has no parameter b"}
    space = build(small, large, fixed={"a": (3,)})
    assert space.left_out == {"small": "a has none of the values asked for"}
    assert len(space) == 2
    # Text from the command line stands for any type; a = 2 is excluded because "flags add up" to 4.
    narrowed = build(MIXED, fixed={"flag": ("yes",), "a": ("2", "4"), "scale": ("0.5",), "text": ("x",)})
    rest = {"a": 4, "flag": True, "text": "x", "scale": 0.5}
    assert [c.values for c in narrowed.configurations()] == [{**rest, "b": 3}, {**rest, "b": 5}]
    assert narrowed.size_before == 2 * 3
    assert build(MIXED, fixed={"flag": (False,)}).default.values["flag"] is False


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"variants": ("mixt",)}, "no variant 'mixt'.*did you mean mixed"),
        ({"fixed": {"scal": (1,)}}, "no parameter 'scal'.*did you mean scale"),
        ({"fixed": {"a": (3,)}}, "a is never 3.*1, 2, 4, 8"),
        ({"fixed": {"flag": (1,)}}, "flag is never 1"),
    ],
)
def test_unknown_names_and_values(options, message):
    with pytest.raises(UsageError, match=message):
        build(MIXED, **options)


def test_an_empty_space_says_what_excluded_everything():
    spec = variant("v", {"a": [1, 2, 4], "b": [1, 2]}, {"harmless": "a <= 4", "too strict": "a * b > 8"})
    with pytest.raises(SpaceError, match="v: no combination meets 'too strict'") as error:
        build(spec, variant("w", {"a": [1]}, requires="cc >= 100"))
    assert "w: requires cc >= 100" in str(error.value)
    assert "harmless" not in str(error.value)
    assert "constraints" not in error.value.remedy  # the kernel is built in
    modern = [variant(name, {"a": [1]}, requires="cc >= 100") for name in ("w", "x")]
    with pytest.raises(SpaceError, match="w, x: requires cc >= 100"):
        build(*modern)
    both = variant("v", {"a": [1, 2, 4]}, {"not one": "a > 1", "not more": "a < 2"})
    with pytest.raises(SpaceError, match="'not more'"):
        build(both)
    with pytest.raises(SpaceError, match="'size'"):
        build(variant("v", {"a": [1]}, {"size": "n % 16 == 0"}))


def test_what_divides_by_zero_is_not_valid(monkeypatch):
    spec = variant("v", {"a": [32, 64, 128], "b": [0, 1, 2]}, ["1 // (a - 64) >= -1", "b == 0 or a % b == 0"])
    expected = [(a, b) for a in (32, 128) for b in (0, 1, 2)]
    assert [tuple(c.values.values()) for c in build(spec).configurations()] == expected
    kernel = dataclasses.replace(load_kernel("vector_add"), variants={"v": spec})
    divides = Configuration.of("v", {"a": 64, "b": 1})
    assert invalid_reason(kernel, kernel.problem(), GPU, divides) == "1 // (a - 64) >= -1"
    with pytest.raises(SpaceError, match="no combination meets 'everywhere'"):
        build(variant("v", {"a": [1, 2]}, {"everywhere": "a // 0 > 1"}))
    with pytest.raises(SpaceError, match="no combination meets 'of the problem'"):
        build(variant("v", {"a": [1, 2]}, {"of the problem": "1 // (n - 1000) >= 0"}))
    monkeypatch.setattr(enumeration, "MAX_ROWS", 2)
    space = build(variant("v", {"a": [64, 32, 128, 256, 512]}, ["1 // (a - 64) >= -1"]))
    assert space.sampled
    assert space.default.values["a"] != 64


def test_restricted_to_a_recording():
    space = build(MIXED, variant("other", {"a": [1, 2]}))
    chosen = list(space.configurations())[3:20:4]
    outside = Configuration.of("mixed", {**chosen[0].values, "a": 99})
    part = space.restricted([*chosen, *reversed(chosen), outside])
    assert list(part.configurations()) == chosen
    assert part.contains(part.default)
    assert part.size_before == space.size_before
    assert all(len(c) <= 4 for c in part.variants[0].choices)
    with pytest.raises(SpaceError, match="recording"):
        space.restricted([outside])


def test_very_many_points_are_not_looked_at_one_by_one():
    spec = variant("v", {f"p{i}": [1, 2, 3, 4, 5, 6, 7, 8] for i in range(6)}, ["p0 * p1 <= 56"])
    spaces = []
    assert calls_of(lambda: spaces.append(build(spec))) < 60_000
    (space,) = spaces
    assert len(space) > 250_000
    assert not space.sampled
    assert len(np.unique(space.variants[0].matrix @ 8 ** np.arange(6))) == len(space)


def test_a_huge_space_is_sampled(monkeypatch):
    monkeypatch.setattr(enumeration, "MAX_ROWS", 20_000)
    monkeypatch.setattr(enumeration, "MAX_TESTED", 100_000)
    values = list(range(1, 9))
    spec = variant(
        "v", {f"p{i}": values for i in range(12)}, ["p0 * p11 <= 32", "p3 != p4"], defaults={"p4": 5, "p1": 3}
    )
    space = build(spec)
    assert space.sampled
    assert space.size_before == 8**12
    assert 19_000 < len(space) <= 20_001
    matrix = space.variants[0].matrix
    assert len(np.unique(matrix, axis=0)) == len(space)
    for configuration in itertools.islice(space.configurations(), 0, None, 97):
        names = configuration.values
        assert names["p0"] * names["p11"] <= 32
        assert names["p3"] != names["p4"]
    # Uniform: each value of a free parameter occurs equally often, within five standard deviations.
    shares = np.minimum(32 // np.array(values), 8)  # of the values of p0: how many of p11's go with each
    for column, expected in ((7, np.full(8, len(space) / 8)), (0, len(space) * shares / shares.sum())):
        counts = np.bincount(matrix[:, column], minlength=8)
        assert np.all(np.abs(counts - expected) < 5 * np.sqrt(expected))
    assert space.default.values == spec.defaults
    assert list(build(spec).configurations()) == list(space.configurations())
    assert list(build(spec, seed=1).configurations()) != list(space.configurations())


def test_default_or_the_valid_configuration_nearest_to_it():
    parameters = {"a": [1, 2, 3, 4], "b": [1, 2, 3, 4]}
    assert build(variant("v", parameters, defaults={"a": 3, "b": 2})).default.values == {"a": 3, "b": 2}
    space = build(variant("v", parameters, ["a * b != 6"], defaults={"a": 3, "b": 2}))
    assert space.default.values == {"a": 2, "b": 2}
    assert build(variant("v", parameters, defaults={"a": 3}), fixed={"a": [1, 4]}).default.values["a"] == 4


def test_a_variant_without_parameters():
    space = build(variant("plain", {}))
    assert len(space) == 1
    assert space.default == Configuration.of("plain", {})
    assert space.contains(space.default)
    assert list(_distances(space, space.default)) == [0]


def test_variants_that_cannot_run_are_left_out():
    ok, modern = variant("ok", {"a": [1]}), variant("modern", {"a": [1]}, requires="cc >= 100")
    space = build(ok, modern)
    assert [v.name for v in space.variants] == ["ok"]
    assert space.left_out == {"modern": "requires cc >= 100"}
    assert len(build(ok, modern, gpu=ARCHITECTURES[100])) == 2


def test_constraints_on_what_the_compiler_says_wait():
    assert len(build(variant("v", {"a": [1, 2]}, ["registers * a <= 64"]))) == 2
