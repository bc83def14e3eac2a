"""Bundles of all kernels: whole, with the tuner's defaults; C++ launches what Python does, argument by argument."""

from __future__ import annotations

import hashlib
import itertools
import json
import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.commands import said_by
from tests.cpp_interface import interface, python_on
from tests.fake_driver.programs import run_program
from tests.runtime.drawn_plans import EXAMPLES, PARTS
from tests.stored_winners import H200, store_winners
from tuner.core.model import Configuration, Value
from tuner.kernel.default import plain_default
from tuner.kernel.load import load_kernel
from tuner.kernel.spec import KernelSpec
from tuner.runtime.dispatch import dispatch
from tuner.runtime.launch_limits import DEVICE_LIMITS
from tuner.runtime.manifest import read_manifest

pytestmark = pytest.mark.usefixtures("forked_children", "any_code")

KERNELS = ["gemm", "mean_matvec", "reduce_axis", *EXAMPLES, PARTS]
"""Each launches in another way; test_plans.py has the others."""
LIMITS = {name: getattr(H200, name) for name in DEVICE_LIMITS}
CLUSTER = {"cluster_m": 1, "cluster_n": 2, "gpc_locality": True}
SWAPPED = {"swap_ab": True, "block_m": 256, "block_n": 128, "block_k": 128, "stages": 2, "raster_group": 8}
VARIED: list[tuple[tuple[int, int, int], str, dict[str, Value]]] = [
    ((4096, 4096, 8192), "wgmma", {**CLUSTER, **SWAPPED, "stream_k": True}),
    ((512, 512, 16384), "wgmma_split_k", {**CLUSTER, "split_k": 4, "k_order": "interleaved"}),
]
"""Tensor maps, clusters, tables of their order, memory that is zero once, several launches, blocks that wait."""

BOTH = """
import itertools
from tuner.core.errors import TunerError
from tuner.runtime.cluster_order import ClusterOrders, probe
from tuner.runtime.dispatch import dispatch
from tuner.runtime.kernel import Kernel
from tuner.runtime.manifest import read_manifest

stream = context(0)
folder, cases, limits, log = sys.argv[2], json.load(open(sys.argv[3])), json.loads(sys.argv[4]), sys.argv[5]
code, bundle = opened(folder)
assert code == 0, text.value
manifest = read_manifest(open(folder + "/manifest.json", "rb").read())
modules = {}

def module(name):
    if name not in modules:
        modules[name] = check(cu.cuModuleLoadData(open(f"{folder}/cubin/{name}.cubin", "rb").read()))
    return modules[name]

orders = ClusterOrders(None)
if manifest.probe:
    orders = ClusterOrders(probe(module(manifest.probe[90].cubin), stream, manifest.probe[90].entry))

logged, reading = [], open(log)

def lines():
    logged.extend(json.loads(line) for line in reading)
    return list(logged)

def in_python(number, sizes, work, addresses, strides):
    before = len(lines())
    found = dispatch(manifest, number, sizes, limits, "NVIDIA H200", apart=bool(strides)).concrete
    offsets = found.workspace.offsets
    where = {**addresses, **{name: work + offset for name, offset in offsets.items()}}
    kernels = [Kernel(module(entry.cubin), entry.entry, launch, None, orders.of)
               for launch, entry in zip(found.plan.launches, found.entries)]
    for buffer in found.plan.scratch:
        if buffer.zeroed:
            check(cu.cuMemsetD8Async(where[buffer.name], 0, buffer.size_bytes, stream))
    for kernel, launch, entry in zip(kernels, found.plan.launches, found.entries):
        for symbol, name, size in launch.constants:
            variable, room = check(cu.cuModuleGetGlobal(module(entry.cubin), symbol.encode()))
            check(cu.cuMemcpyDtoDAsync(variable, where[name], size, stream))
        kernel.bind(where, strides)
        kernel.launch(stream)
    made = [line for line in lines()[before:] if line.get("kernel") != "whereabouts"]
    return found.workspace.size_bytes, {tensor.name: tensor.size_bytes for tensor in found.tensors}, made

work = 1 << 46
filling = {name for item in manifest.configurations for launch in item.launches for _, name in launch.constants}
copied = {name: int(check(cu.cuMemAlloc(1 << 20))) for name in filling}
compared = refused = 0
for (number, sizes), apart in itertools.product(cases, (False, True)):
    if apart and not manifest.configurations[0].slices:
        continue
    strides = {"c": -(-sizes["n"] // 8) * 8 + 64} if apart else {}
    computation = manifest.computations[number]
    names = [tensor.name for tensor in computation.tensors]
    addresses = {name: (1 << 45) + (index << 40) for index, name in enumerate(names)} | copied
    kinds = ["\\n".join(f"{a}={str(b).lower() if isinstance(b, bool) else b}" for a, b in dict(words).items())
             for words in (computation.dtypes, computation.options)]
    code, plan = planned(bundle, sizes, *kinds, apart=int(apart))
    try:
        found = dispatch(manifest, number, sizes, limits, "NVIDIA H200").concrete
    except TunerError as error:
        assert code, (sizes, error)
        refused += 1
        continue
    assert code == 0, (sizes, text.value)
    need = launcher.kt_workspace_bytes(plan)
    work = int(check(cu.cuMemAlloc(max(need, 256))))
    need_too, tensors, expected = in_python(number, sizes, work, addresses, strides)
    assert need == need_too
    assert prepare(plan, work, need, stream) == 0, text.value
    before = len(lines())
    passed = [addresses[name] if name in tensors else 0 for name in names]
    assert run(plan, passed, work, need, stream, [strides.get(name, 0) for name in names]) == 0, text.value
    made = lines()[before:]
    assert len(made) == len(expected) and made, (made, expected)
    for ours, theirs in zip(made, expected):
        assert ours == theirs, (sizes, ours, theirs)
    check(cu.cuMemFree(work))
    compared += 1
print(compared, refused)
"""


@pytest.fixture(scope="module")
def bundles() -> dict[str, Path]:
    """A bundle of each kernel, made once."""
    return {}


@pytest.fixture
def bundle(name: str, bundles: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Return a bundle with the default configuration; for gemm also with others that launch in other ways."""
    if name not in bundles:
        kernel = load_kernel(name)
        problem = kernel.problem()
        default = plain_default(kernel, problem, H200)
        assert default is not None
        winners = [(problem, default)]
        if name == "gemm":
            winners += [
                (kernel.problem(dict(zip("mnk", sizes, strict=True))), configured(kernel, variant, values))
                for sizes, variant, values in VARIED
            ]
        store_winners(tmp_path / "w.db", kernel, winners)
        words = ("--kernel", name, "--db", str(tmp_path / "w.db"), "-o", str(tmp_path / "bundle"))
        said = said_by(capsys, "bundle", *words, "--json", "--slices")
        assert said.code == 0, said.err
        assert json.loads(said.out)["winners"] == len(winners)
        bundles[name] = tmp_path / "bundle"
    return bundles[name]


def configured(kernel: KernelSpec, variant: str, values: Mapping[str, Value]) -> Configuration:
    """Return a variant's default configuration with other values."""
    return Configuration.of(variant, {**kernel.variants[variant].defaults, **values})


def problems(manifest: dict[str, Any]) -> list[tuple[int, dict[str, int]]]:
    """Return the sizes of all winners, and others around them."""
    cases = []
    for winner in manifest["winners"]:
        sizes = winner["sizes"]
        for change in itertools.islice(itertools.product((0, 1, 8), repeat=len(sizes)), 12):
            changed = {name: size + by for (name, size), by in zip(sizes.items(), change, strict=True)}
            cases.append((winner["computation"], changed))
        cases.append((winner["computation"], dict.fromkeys(sizes, 1)))
    return cases


@pytest.mark.parametrize("name", KERNELS)
def test_launches_are_those_of_the_python_runtime(name: str, bundle: Path, tmp_path: Path) -> None:
    manifest = json.loads((bundle / "manifest.json").read_text())
    (tmp_path / "cases.json").write_text(json.dumps(problems(manifest)))
    log = tmp_path / "log"
    log.touch()
    device = f"NVIDIA H200:90:{H200.sm_count}:{H200.l2_bytes}"
    cases, limits = tmp_path / "cases.json", json.dumps(LIMITS)
    output = python_on(interface(), BOTH, bundle, cases, limits, log, devices=device, log=str(log))
    compared, _ = map(int, output.split())
    assert compared >= 4 * len(manifest["winners"])
    if name == "gemm":
        made = log.read_text()
        assert all(
            part in made for part in ('"cooperative":1', '"programmatic":1', '"swizzle":3', '"cluster":[2,')
        )
    if name == PARTS:
        assert manifest["version"] == 2 and '"copied":[' in log.read_text()


@pytest.mark.parametrize("name", KERNELS)
def test_a_bundle_of_every_kernel_can_be_read_and_is_whole(name: str, bundle: Path) -> None:
    manifest = read_manifest((bundle / "manifest.json").read_bytes())
    assert manifest.winners and manifest.defaults
    assert not any("requires" in reason for item in manifest.configurations for reason, _ in item.requires)
    launches = [launch for item in manifest.configurations for launch in (*item.launches, *item.slices)]
    assert all(bool(item.slices) == (name == "gemm") for item in manifest.configurations)
    cubins = {launch.cubin for launch in launches} | {probe.cubin for probe in manifest.probe.values()}
    assert {path.stem for path in bundle.glob("cubin/*")} == cubins
    assert {path.stem for path in bundle.glob("src/*")} == {launch.source for launch in launches}
    for path in (*bundle.glob("cubin/*"), *bundle.glob("src/*")):
        assert hashlib.sha256(path.read_bytes()).hexdigest()[:32] == path.stem
    for launch in launches:
        assert launch.entry.encode() in (bundle / "cubin" / f"{launch.cubin}.cubin").read_bytes()
    texts = ("LICENSE", "README.md", "__init__.py", "core/errors.py", "py.typed", "runtime/manifest.py")
    assert all((bundle / text).is_file() for text in texts)


@pytest.mark.parametrize("name", KERNELS)
def test_the_default_is_the_first_variants_whatever_was_tuned(name: str, bundle: Path) -> None:
    manifest, kernel = read_manifest((bundle / "manifest.json").read_bytes()), load_kernel(name)
    compared = 0
    for number, computation in enumerate(manifest.computations):
        problem = kernel.problem(None, dict(computation.dtypes), dict(computation.options))
        for factor, more in itertools.product((1, 3, 0.125), (0, 1, 2, 8)):
            sizes = {size: max(1, int(value * factor)) + more for size, value in problem.sizes.items()}
            expected = plain_default(kernel, replace(problem, sizes=sizes), H200)
            if expected is None:
                continue
            chosen = dispatch(manifest, number, sizes, LIMITS, H200.name, "default").concrete.configuration
            item = manifest.configurations[chosen]
            assert (item.variant, dict(item.parameters)) == (expected.variant, dict(expected.values)), sizes
            compared += 1
    assert compared >= 4


CALLED = """
import sys
from cuda.bindings import driver as cu
from tests.fake_arrays import Exported
from tests.fake_driver.programs import check, count
import tuner
check(cu.cuInit(0))
check(cu.cuCtxSetCurrent(check(cu.cuDevicePrimaryCtxRetain(0))))
op = tuner.load("parts", bundle=sys.argv[1])
x, w, y = (Exported(int(check(cu.cuMemAlloc(4 * n))), (n,)) for n in (5000, 4, 5000))
op(x, w, out=y, gain=2.0)
op(x, w, out=y)
print(x.address, w.address, y.address)
before, (one, other) = count("waits"), (int(check(cu.cuStreamCreate(1))) for _ in range(2))
for stream in (one, other):
    op(x, w, out=y, stream=stream)
print(count("waits") - before)
check(cu.cuStreamBeginCapture(one, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
op(x, w, out=y, stream=one)
graph = check(cu.cuStreamEndCapture(one))
print(count("waits") - before, check(cu.cuGraphGetNodes(graph, 0))[1])
"""


@pytest.mark.parametrize("name", [PARTS])
def test_a_call_fills_variables_and_the_numbers_in_structs(bundle: Path, tmp_path: Path) -> None:
    printed, logged = run_program(CALLED, tmp_path / "log", bundle)
    x, w, y = map(int, printed[0].split())
    assert printed[1:] == [
        "2",
        "2 3",
    ]  # a call waits for the one before; in a graph there are a copy and two launches
    first, scaled, shifted, again, other, *_ = (line for line in logged if "memset" not in line)
    assert first == again == {"copied": [w, 16]}
    for launch, gain in ((scaled, 2.0), (other, 0.5)):
        part = bytes.fromhex(launch["arguments"][0])
        assert struct.unpack("<QiB3xdffh?5x", part) == (x, 5000, 3, 0.25, gain, 5000.0, -1, True)
    ends, colour = (bytes.fromhex(text) for text in shifted["arguments"])
    assert struct.unpack("<QQQ", ends)[1:] == (y, 5000) and colour == bytes([10, 20, 30, 40])
