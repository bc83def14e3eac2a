"""``tune bundle``: what is written, that a reader takes it, and that its plans are those of the tuner."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.commands import said_by
from tests.stored_winners import H200, store_winners
from tuner.core.errors import CallError
from tuner.core.model import Configuration, Gpu, Problem
from tuner.kernel.default import default_configuration
from tuner.kernel.edge_sizes import tile_edge_problems
from tuner.kernel.load import builtin_kernels, load_kernel
from tuner.kernel.plan import invalid_reason, make_plan
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec
from tuner.runtime.dispatch import dispatch
from tuner.runtime.entries import Manifest
from tuner.runtime.launch_limits import DEVICE_LIMITS
from tuner.runtime.manifest import read_manifest
from tuner.runtime.plans import interpret

pytestmark = pytest.mark.usefixtures("forked_children")

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted(str(path) for path in (ROOT / "docs" / "examples").glob("*/*.toml"))
KERNELS = [*builtin_kernels(), *EXAMPLES]
LIMITS = {name: getattr(H200, name) for name in DEVICE_LIMITS}


def default(kernel: KernelSpec, problem: Problem) -> Configuration:
    return SearchSpace.from_kernel(kernel, problem, H200).default


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A bundle of each kernel, made once."""
    return {}


@pytest.fixture
def bundle_of(
    bundles: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], Path]:
    def of(name: str) -> Path:
        if name not in bundles:
            kernel, database, output = load_kernel(name), tmp_path / "w.db", tmp_path / "bundle"
            problem = kernel.problem()
            store_winners(database, kernel, [(problem, default(kernel, problem))])
            said = said_by(
                capsys, "bundle", "--kernel", name, "--db", str(database), "-o", str(output), "--json"
            )
            assert said.code == 0, said.err
            assert json.loads(said.out)["winners"] == 1
            bundles[name] = output
        return bundles[name]

    return of


def manifest_of(bundle: Path) -> Manifest:
    return read_manifest((bundle / "manifest.json").read_bytes())


@pytest.mark.parametrize("name", KERNELS)
def test_a_bundle_of_every_kernel_can_be_read_and_is_whole(
    name: str, bundle_of: Callable[[str], Path]
) -> None:
    bundle = bundle_of(name)
    manifest = manifest_of(bundle)
    assert manifest.winners and manifest.defaults
    assert not any("requires" in reason for item in manifest.configurations for reason, _ in item.requires)
    launches = [launch for item in manifest.configurations for launch in item.launches]
    cubins = {launch.cubin for launch in launches} | {probe.cubin for probe in manifest.probe.values()}
    assert {path.stem for path in bundle.glob("cubin/*")} == cubins
    assert {path.stem for path in bundle.glob("src/*")} == {launch.source for launch in launches}
    for path in (*bundle.glob("cubin/*"), *bundle.glob("src/*")):
        assert hashlib.sha256(path.read_bytes()).hexdigest()[:32] == path.stem
    for launch in launches:
        assert launch.entry.encode() in (bundle / "cubin" / f"{launch.cubin}.cubin").read_bytes()
    for name_there in (
        "LICENSE",
        "README.md",
        "__init__.py",
        "core/errors.py",
        "py.typed",
        "runtime/manifest.py",
    ):
        assert (bundle / name_there).is_file()


@pytest.mark.parametrize("name", KERNELS)
def test_plans_from_the_manifest_are_those_of_the_tuner(name: str, bundle_of: Callable[[str], Path]) -> None:
    """At sizes around the tiles, valid or not, and on a GPU with other limits of the same compute capability."""
    manifest, kernel = manifest_of(bundle_of(name)), load_kernel(name)
    smaller = replace(H200, name="NVIDIA H100 PCIe", sm_count=114, l2_bytes=50 << 20)
    compared = 0
    for number, item in enumerate(manifest.configurations):
        computation = manifest.computations[item.computation]
        problem = kernel.problem(None, dict(computation.dtypes), dict(computation.options))
        values = kernel.variants[item.variant].parameters
        configuration = Configuration.of(item.variant, {name: item.parameters[name] for name in values})
        for other in (problem, *tile_edge_problems(problem, configuration)):
            for gpu in (H200, smaller):
                compared += agree(manifest, number, kernel, other, gpu, configuration)
    assert compared > 10


@pytest.mark.parametrize("name", KERNELS)
def test_the_default_is_the_tuners_own_whatever_was_tuned(
    name: str, bundle_of: Callable[[str], Path]
) -> None:
    manifest, kernel = manifest_of(bundle_of(name)), load_kernel(name)
    compared = 0
    for number, computation in enumerate(manifest.computations):
        problem = kernel.problem(None, dict(computation.dtypes), dict(computation.options))
        for factor, more in itertools.product((1, 3, 0.125), (0, 1, 2, 8)):
            sizes = {size: max(1, int(value * factor)) + more for size, value in problem.sizes.items()}
            expected = default_configuration(kernel, replace(problem, sizes=sizes), H200)
            if expected is None:
                continue
            chosen = dispatch(manifest, number, sizes, LIMITS, H200.name, "default").concrete.configuration
            item = manifest.configurations[chosen]
            assert (item.variant, dict(item.parameters)) == (expected.variant, dict(expected.values)), sizes
            compared += 1
    assert compared >= 4


def agree(
    manifest: Manifest,
    number: int,
    kernel: KernelSpec,
    problem: Problem,
    gpu: Gpu,
    configuration: Configuration,
) -> bool:
    """Assert that interpreter and tuner agree on a problem; return whether it is valid."""
    limits = {name: getattr(gpu, name) for name in DEVICE_LIMITS}
    reason = invalid_reason(kernel, problem, gpu, configuration)
    try:
        concrete = interpret(manifest, number, problem.sizes, limits)
    except CallError as error:
        assert reason, f"{configuration} for {problem}: {error}"
        return False
    assert not reason, f"{configuration} for {problem}: {reason}"
    plan = make_plan(kernel, problem, gpu, configuration)
    assert concrete.plan == plan
    return True
