"""Small search spaces with made-up times, for tests of samplers."""

import dataclasses
import math

from tuner.expressions.arithmetic import parse
from tuner.kernel.load import load_kernel
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.space import SearchSpace
from tuner.kernel.variant_spec import ParameterSpec, VariantSpec
from tuner.search.samplers import make_search


def build(*variants):
    specs = {}
    for name, parameters, constraints in variants:
        parameters = {n: ParameterSpec(n, tuple(v), v[len(v) // 2]) for n, v in parameters.items()}
        checks = tuple((text, parse(text)) for text in constraints)
        specs[name] = VariantSpec(name, "", None, parameters, checks, (), ())
    kernel = dataclasses.replace(load_kernel("vector_add"), variants=specs)
    return SearchSpace.from_kernel(kernel, kernel.problem(), ARCHITECTURES[90])


def union():
    """56 configurations: two variants that share a name, and one without a choice."""
    return build(
        ("plain", {"a": [1]}, []),
        ("tiled", {"a": [1, 2, 4, 8], "wide": [False, True], "mode": ["x", "y"]}, ["a < 8 or wide"]),
        ("split", {"a": [1, 2, 4, 8], "b": [1, 2, 3, 5, 8], "scale": [0.5, 1.5], "one": [7]}, ["a * b < 32"]),
    )


def single(values=6, parameters=5):
    names = {f"p{i}": list(range(1, values + 1)) for i in range(parameters)}
    return build(("v", names, ["p0 * p1 <= 12", "p2 + p3 != 5"]))


def cost(configuration):
    """Return log2 of the time in ns, with one best configuration in every variant."""
    base = {"plain": 14.0, "tiled": 11.0, "split": 10.0, "v": 10.0}[configuration.variant]
    numbers = [v for v in configuration.values.values() if not isinstance(v, str)]
    return base + sum(abs(math.log2(1 + v) - 1.5) for v in numbers)


def time_of(configuration):
    return 2 ** cost(configuration)


def best_cost(sampler, seed, budget, space):
    search, best = make_search(sampler, space, seed), math.inf
    for i in range(budget):
        configuration = search.ask()
        failed = i % 9 == 5
        search.tell(configuration, None if failed else time_of(configuration))
        best = best if failed else min(best, cost(configuration))
    return best
