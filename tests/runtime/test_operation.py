"""Operations are called: on a driver without a GPU, each program in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.manifests import NAME, product_manifest, write_bundle
from tests.runtime.programs import launches, run

pytestmark = pytest.mark.usefixtures("forked_children")


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_bundle(tmp_path / "product_bundle")


def test_arrays_decide_what_is_launched(bundle: Path) -> None:
    program = """
a, b, w = torch.randn(96, 64, **bfloat16), torch.randn(64, 32, **bfloat16), torch.randn(32, 64, **bfloat16)
torch.streams[0] = int(check(cu.cuStreamCreate(1)))
c = op(a, b)
assert (c.shape, c.stride(), c.dtype) == ((96, 32), (32, 1), torch.bfloat16)
out = torch.randn(96, 32, **bfloat16)
assert op(a, w.T, out=out) is out
print(a.data_ptr(), b.data_ptr(), c.data_ptr(), w.data_ptr(), out.data_ptr(), torch.streams[0])
op(a, b, alpha=-2.0)
op(a, b)
choice = op.plan(m=96, n=32, k=64, options={"layout": "nt"})
assert (choice.match, choice.variant) == ("nearest", "split") and choice.tuned_at == {"m": 512, "n": 512, "k": 512}
assert op.plan(m=96, n=32, k=63, options={"layout": "nt"}).match == "default"
"""
    lines = launches(run(program, bundle))
    first, second, third, fourth = (line for line in lines if line["kernel"] != "whereabouts")
    assert [first["kernel"], second["kernel"]] == ["plain", "split"]
    assert first["grid"] == [12, 1, 1] and second["cluster"] == [2, 1, 1]
    numbers = [int.from_bytes(bytes.fromhex(text), "little") for text in first["arguments"]]
    assert numbers[4:] == [96, 32, 64]
    alphas = [line["arguments"][3] for line in (first, third, fourth)]
    assert alphas == ["0000c03f", "000000c0", "0000c03f"]
    assert first["stream"] == second["stream"] != 0


def test_threads_share_an_operation(bundle: Path) -> None:
    program = """
x = [torch.randn(512, 512, **bfloat16) for _ in range(3)]
def calls(number):
    for i in range(1000):
        (op(x[0], x[1].T, out=x[2], stream=streams[number % 4]) if i % 2 else op(x[0], x[1], out=x[2]))
streams = [int(check(cu.cuStreamCreate(1))) for _ in range(4)]
op.warm([{"m": 512, "n": 512, "k": 512, "options": {"layout": layout}, "dtypes": {"input": "bfloat16"}}
         for layout in ("nn", "nt")])
before, loads = count("launches"), count("loads")
threads = [threading.Thread(target=calls, args=(number,)) for number in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert count("launches") - before == 8000 and count("loads") == loads == 1, count("launches")
assert count("refused") == 0
"""
    lines = launches(run(program, bundle))
    split = [line for line in lines if line["kernel"] == "split"]
    assert len(split) == 4000 and len([line for line in lines if line["kernel"] == "plain"]) == 4000
    # One workspace for each stream, and never another's.
    assert {
        len({line["arguments"][3] for line in split if line["stream"] == stream})
        for stream in {line["stream"] for line in split}
    } == {1}
    assert len({line["arguments"][4] for line in split}) == 4


def test_capture(bundle: Path) -> None:
    program = """
a, w = torch.randn(512, 512, **bfloat16), torch.randn(512, 512, **bfloat16)
stream = torch.streams[0] = int(check(cu.cuStreamCreate(1)))
out = torch.randn(512, 512, **bfloat16)
def captured(mode, *calls):
    check(cu.cuStreamBeginCapture(stream, mode))
    for call in calls: call()
    return check(cu.cuStreamEndCapture(stream))
modes = cu.CUstreamCaptureMode
for mode in (modes.CU_STREAM_CAPTURE_MODE_GLOBAL, modes.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL):
    captured(mode, lambda: refused("warm()", a, w.T, out=out))
assert count("loads") == 0
op.warm([{"m": 512, "n": 512, "k": 512, "options": {"layout": "nt"}}])
graphs = [captured(modes.CU_STREAM_CAPTURE_MODE_GLOBAL, *[lambda: op(a, w.T, out=out)] * 2) for _ in range(2)]
for graph in graphs:
    check(cu.cuGraphLaunch(check(cu.cuGraphInstantiate(graph, 0)), stream))
op(a, w.T, out=out)
# Another thread may prepare meanwhile.
other = threading.Thread(target=lambda: op.warm([{"m": 8, "n": 8, "k": 8, "options": {"layout": "nt"}}]))
def prepare(): other.start(), other.join()
captured(modes.CU_STREAM_CAPTURE_MODE_GLOBAL, prepare)
assert count("refused") == 0
"""
    lines = [line for line in launches(run(program, bundle)) if line["kernel"] == "split"]
    assert len(lines) == 5
    workspaces = [line["arguments"][4] for line in lines]
    assert workspaces[0] == workspaces[1] and workspaces[2] == workspaces[3]
    assert len(set(workspaces)) == 3  # the stream's own, and one for each graph


def test_wrong_arrays_are_refused_and_never_launched(bundle: Path) -> None:
    program = """
a, b = torch.randn(96, 64, **bfloat16), torch.randn(64, 32, **bfloat16)
c = torch.randn(96, 32, **bfloat16)
refused("without arrays")
refused("2 arrays (a, b), not 1", a)
refused("b has shape (65, 32)", a, torch.randn(65, 32, **bfloat16))
refused("1 dimensions, not 2", a, torch.randn(64, **bfloat16))
refused("is float16", torch.randn(96, 64, dtype="float16"), b)
refused("cpu", a, torch.randn(64, 32, device="cpu", **bfloat16))
refused("cuda:0 and cuda:1", a, torch.randn(64, 32, device="cuda:1", **bfloat16))
refused("neither", a, torch.randn(64, 32, strides=(64, 2), address=b.data_ptr(), **bfloat16))
refused("rows of b lie 64 elements apart", a, torch.randn(64, 32, strides=(64, 1), address=b.data_ptr(), **bfloat16))
part = torch.randn(96, 32, strides=(64, 1), address=c.data_ptr(), **bfloat16)
refused("rows of c lie 64 elements apart", a, b, out=part)
refused("a is column-major", torch.randn(64, 96, **bfloat16).T, b)
refused("c has shape", a, b, out=torch.randn(96, 33, **bfloat16))
refused("c is column-major", a, b, out=torch.randn(32, 96, **bfloat16).T)
refused("overlaps with a", a, b, out=torch.randn(96, 32, address=a.data_ptr() + 4096, **bfloat16))
refused("overlaps with b", a, b, out=torch.randn(96, 32, address=b.data_ptr() - 64, **bfloat16))
refused("multiple of 2 bytes", a, b, out=torch.randn(96, 32, address=c.data_ptr() + 1, **bfloat16))
refused("no memory", a, b, out=torch.randn(96, 32, address=0, **bfloat16))
refused("no scalar 'beta'", a, b, beta=1.0)
refused("give a number", a, b, alpha="x")
refused("sizes q; product takes m, n, k", a, b, sizes={"q": 3})
refused("a has shape", a, b, sizes={"k": 65})
refused("size k = [64]", a, b, sizes={"k": [64]})
refused("an output is None", a, b, out=(None,))
refused("a is missing", None, b, sizes={"m": 96})
refused("1 outputs (c), not 2", a, b, out=(c, c))
refused("list is no array", [1.0], b)
refused("no stream", a, b, stream="s")
refused("read-only", a, b, out=Exported(c.data_ptr(), (96, 32), "bfloat16", flags=1))
refused("the CPU", Exported(4096, (96, 64), "bfloat16", device=(1, 0)), Exported(b.data_ptr(), (64, 32), "bfloat16"))
refused("out=", Exported(a.data_ptr(), (96, 64), "bfloat16"), Exported(b.data_ptr(), (64, 32), "bfloat16"))
refused("sizes m", call=op.plan, m=3, options={"layout": "nn"})
refused("may mean 3", call=op.plan, m=3, n=3, k=3)
refused("is float64", *[torch.randn(64, 64, dtype="float64")] * 2)
# What is right is launched: also at odd addresses if the kernel takes them, and where rows are of one element.
op(a, b, out=torch.randn(96, 32, address=c.data_ptr() + 2, **bfloat16))
op(torch.randn(96, 1, **bfloat16), torch.randn(1, 32, **bfloat16))
op(a, b, out=Exported(c.data_ptr(), (96, 32), "bfloat16"))
nt = torch.randn(32, 64, **bfloat16).T
op.warm([{"m": 96, "n": 32, "k": 64, "options": {"layout": "nt"}}])
refused("multiple of 16 bytes", a, nt, out=torch.randn(96, 32, address=c.data_ptr() + 2, **bfloat16))
op.close()
refused("closed", a, nt.T.T)
"""
    assert len([line for line in launches(run(program, bundle)) if line["kernel"] == "plain"]) == 3


def test_ambiguous_options_are_refused(tmp_path: Path) -> None:
    data = product_manifest()
    for number, name in enumerate(("sum", "max")):
        data["computations"][number] = {**data["computations"][0], "options": {"op": name}}
    data["computations"][2]["options"] = {"op": "sum"}
    data["configurations"] = [data["configurations"][number] for number in range(3)]
    data["winners"] = []
    folder = write_bundle(tmp_path / "ambiguous", data)
    program = """
x = torch.randn(64, 64, **bfloat16)
refused("may mean", x, x)
tuner.load("product", bundle=folder, options={"op": "max"})(x, x)
refused("no product of op = min", call=lambda: tuner.load("product", bundle=folder, options={"op": "min"}))
"""
    assert len(launches(run(program, folder))) == 1


def test_dtypes_that_no_array_shows_are_never_guessed(tmp_path: Path) -> None:
    data = product_manifest()
    for number, name in enumerate(("float32", "bfloat16")):
        dtypes = {**data["computations"][0]["dtypes"], "accumulate": name}
        data["computations"][number] = {**data["computations"][0], "dtypes": dtypes}
    data["winners"] = []
    program = """
x = torch.randn(64, 64, **bfloat16)
refused("may mean", x, x)
tuner.load("product", bundle=folder, dtypes={"accumulate": "float32"})(x, x)
"""
    assert len(launches(run(program, write_bundle(tmp_path / "accumulates", data)))) == 1


def test_shapes_may_be_more_or_less_than_a_size(tmp_path: Path) -> None:
    data = product_manifest()
    data["computations"][0]["tensors"][0]["shape"] = [["-", ["+", "m", 5], 2], ["-", "k", 1]]
    data["computations"][0]["tensors"][1]["shape"] = ["k", ["/", "n", 2]]
    program = """
a, b = torch.randn(99, 63, **bfloat16), torch.randn(64, 16, **bfloat16)
op = tuner.load("product", bundle=folder, options={"layout": "nn"}, dtypes={"input": "bfloat16"})
assert op(a, b, sizes={"n": 32}).shape == (96, 32)
refused("b would have shape (64, 16.5)", a, b, sizes={"n": 33})
refused("the shapes do not tell n", a, b)
"""
    assert len(launches(run(program, write_bundle(tmp_path / "shapes", data)))) == 1


def test_any_array_that_speaks_dlpack(bundle: Path) -> None:
    program = """
address = torch.allocate(1 << 20)
a = Exported(address, (96, 64), "bfloat16", version=None)
b = Exported(address + 65536, (64, 32), "bfloat16", strides=(1, 64))
c = Exported(address + 131072, (96, 32), "bfloat16")
stream = int(check(cu.cuStreamCreate(1)))
assert op(a, b, out=c, stream=stream) is c and set(a.streams + b.streams) >= {stream}
op(a, b, out=c)
assert a.streams[-1] == 1
torch.streams[0] = stream
op(torch.randn(96, 64, **bfloat16), b, out=c)
assert b.streams[-1] == stream
"""
    own = [line for line in launches(run(program, bundle)) if line["kernel"] == "split"]
    assert len(own) == 3 and own[0]["stream"] == own[2]["stream"] != own[1]["stream"]


def test_the_callers_context_stays_current_and_any_gpu_is_used(bundle: Path) -> None:
    program = """
assert check(cu.cuDeviceGetCount()) == 2
own = int(check(cu.cuCtxGetCurrent()))
allocate = torch.allocate
def on_second(size):
    check(cu.cuCtxPushCurrent(check(cu.cuDevicePrimaryCtxRetain(1))))
    try: return allocate(size)
    finally: check(cu.cuCtxPopCurrent())
torch.allocate = on_second
second = dict(dtype="bfloat16", device="cuda:1")
op(torch.randn(512, 512, **second), torch.randn(512, 512, **second).T)
assert int(check(cu.cuCtxGetCurrent())) == own
def in_thread():
    op(torch.randn(512, 512, **second), torch.randn(512, 512, **second).T)
    assert int(check(cu.cuCtxGetCurrent())) == 0
    done.append(True)
done = []
thread = threading.Thread(target=in_thread)
thread.start(), thread.join()
assert done
assert op.plan(m=512, n=512, k=512, options={"layout": "nt"}, device=1).match == "other GPU"
refused("no GPU number 2", call=op.plan, m=8, n=8, k=8, options={"layout": "nt"}, device=2)
"""
    run(program, bundle, devices="NVIDIA H200:90:132:52428800,NVIDIA H100:90:114:52428800")


def test_memory_is_given_back(bundle: Path) -> None:
    program = """
import gc
free = lambda: check(cu.cuMemGetInfo())[0]
x = [torch.randn(512, 512, **bfloat16) for _ in range(3)]
before = free()
op(x[0], x[1].T, out=x[2])
assert free() < before
del op
gc.collect()
assert free() == before
"""
    run(program, bundle)


def test_streams_that_are_gone_do_not_keep_their_memory(bundle: Path) -> None:
    program = """
free = lambda: check(cu.cuMemGetInfo())[0]
x = [torch.randn(512, 512, **bfloat16) for _ in range(3)]
left = []
for _ in range(200):
    torch.streams[0] = int(check(cu.cuStreamCreate(1)))
    op(x[0], x[1].T, out=x[2])
    check(cu.cuStreamDestroy(torch.streams[0]))
    left.append(free())
assert left[1] < left[0] and left[-1] == left[100]
kept = int(check(cu.cuStreamCreate(1)))
for number in range(200):
    torch.streams[0] = kept if number % 2 else int(check(cu.cuStreamCreate(1)))
    before = count("allocations")
    op(x[0], x[1].T, out=x[2])
    assert number % 2 == 0 or number == 1 or count("allocations") == before
"""
    run(program, bundle)


def test_warm_allocates_the_workspace_of_a_stream(bundle: Path) -> None:
    program = """
problem = {"m": 512, "n": 512, "k": 512, "options": {"layout": "nt"}, "dtypes": {"input": "bfloat16"}}
x = [torch.randn(512, 512, **bfloat16) for _ in range(3)]
for stream in (None, int(check(cu.cuStreamCreate(1)))):
    torch.streams[0] = stream or 0
    before = count("allocations")
    op.warm([problem], stream=stream)
    warmed = count("allocations")
    assert warmed > before
    op(x[0], x[1].T, out=x[2])
    assert count("allocations") == warmed
refused("stream", [problem], call=op.warm, stream="a")
"""
    run(program, bundle)


def test_launches_that_differ_in_their_carveout_keep_it(tmp_path: Path) -> None:
    data = product_manifest()
    for configuration, carveout in zip(data["configurations"], (25, 75), strict=False):
        configuration["launches"][0]["carveout"] = carveout
    bundle = write_bundle(tmp_path / "product_bundle", data)
    program = """
a, b, out = (torch.randn(64, 64, **bfloat16) for _ in range(3))
op = tuner.load("product", bundle=folder, policy="default")
for _ in range(2):
    op(a, b, out=out)
    op(a, b.T, out=out)
"""
    assert [line["carveout"] for line in launches(run(program, bundle))] == [25, 75] * 2


# -- bundles that were moved or damaged, and drivers and GPUs that they are not for


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"driver": "12080"}, "the driver supports CUDA 12.8"),
        ({"devices": "NVIDIA L4:89:58"}, "compute capability 8.9"),
        ({"devices": ""}, "no CUDA GPU"),
    ],
)
def test_a_driver_or_gpu_that_does_not_fit(bundle: Path, settings: dict[str, str], words: str) -> None:
    program = f"""
torch.allocate = lambda size: 1 << 40
x = torch.randn(64, 64, **bfloat16)
refused({words!r}, x, x)
"""
    assert run(program, bundle, **settings) == []


def test_a_damaged_cubin_is_not_loaded(bundle: Path) -> None:
    cubin = bundle / "cubin" / f"{NAME}.cubin"
    program = 'x = torch.randn(64, 64, **bfloat16)\nrefused("damaged", x, x)\nassert count("loads") == 0'
    cubin.write_bytes(cubin.read_bytes() + b"\n")
    run(program, bundle)
    cubin.unlink()
    run(program, bundle)
