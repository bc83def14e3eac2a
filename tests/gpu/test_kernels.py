"""Every built-in kernel and variant is right at sizes that no tile divides."""

from __future__ import annotations

import random

import pytest

from tuner.devices.local import LocalDevice
from tuner.kernel_file import builtin_kernels, load_kernel
from tuner.model import Configuration, Problem, Status
from tuner.space import SearchSpace

SIZES = {
    "vector_add": [{"n": n} for n in (1, 3, 255, 4099, 1 << 20, (1 << 20) + 17)],
    "saxpy": [{"n": n} for n in (1, 3, 255, 4099, (1 << 20) + 17)],
    "gemm": [
        {"m": m, "n": n, "k": k}
        for m, n, k in [
            (1, 1, 1),
            (3, 5, 7),
            (17, 31, 65),
            (127, 129, 131),
            (128, 128, 128),
            (257, 264, 72),
            (1, 512, 300),
            (640, 8, 1025),
        ]
    ],
}
CONFIGURATIONS = 6


def _cases() -> list[tuple[str, str, str, str]]:
    cases = []
    for name in builtin_kernels():
        kernel = load_kernel(name)
        role = next(iter(kernel.dtypes))
        layouts = kernel.options.get("layout", ("",))
        cases += [(name, v, d, str(o)) for v in kernel.variants for d in kernel.dtypes[role] for o in layouts]
    return cases


@pytest.mark.parametrize(("name", "variant", "dtype", "layout"), _cases())
def test_right_at_awkward_sizes(
    device: LocalDevice, name: str, variant: str, dtype: str, layout: str
) -> None:
    kernel = load_kernel(name)
    options = {"layout": layout} if layout else {}
    problem = kernel.problem(dtypes={"": dtype}, options=options)
    _usable, refused = kernel.usable_variants(problem, device.gpu)
    if variant in refused:
        pytest.skip(refused[variant])
    space = SearchSpace.from_kernel(kernel, problem, device.gpu, [variant])
    draw = random.Random(f"{name} {variant} {dtype}")
    configurations = list(space.configurations())
    chosen = [space.default, *draw.sample(configurations, min(CONFIGURATIONS, len(configurations)))]
    wrong = []
    for sizes in SIZES[name]:
        small = kernel.problem(sizes, {"": dtype}, options)
        wrong += [f"{small} {c}: {m}" for c, m in _measure_all(device, small, chosen).items()]
    assert not wrong, "\n".join(wrong)


def _measure_all(
    device: LocalDevice, problem: Problem, chosen: list[Configuration]
) -> dict[Configuration, str]:
    kernel = load_kernel(problem.kernel)
    device.incumbent_ns = 1.0  # everything is hopelessly slow against it: one timed run each is enough here
    device.prepare(kernel, problem, seed=7)
    for number, configuration in enumerate(chosen):
        device.submit(number, configuration)
    bad: dict[Configuration, str] = {}
    answered = 0
    while answered < len(chosen):
        for outcome in device.collect(1.0):
            answered += 1
            if outcome.measurement.status not in (Status.OK, Status.SLOW):
                bad[outcome.configuration] = f"{outcome.measurement.status} {outcome.measurement.error}"
    return bad
