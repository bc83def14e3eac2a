"""Outputs that are slices of larger matrices are written where they lie; what is beside them is untouched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cpp_interface import interface, python_on
from tests.runtime.manifests import manifest_with, product_manifest, with_slices, write_bundle
from tests.runtime.programs import launches, run
from tuner.core.errors import BundleError
from tuner.runtime.manifest import read_manifest

pytestmark = pytest.mark.usefixtures("forked_children")

START = """
big = torch.randn(512, 2048, **bfloat16)
def part(first, columns, rows=512, width=2048):
    return torch.randn(rows, columns, strides=(width, 1), address=big.data_ptr() + 2 * first, **bfloat16)
a, w = torch.randn(512, 512, **bfloat16), torch.randn(512, 512, **bfloat16)
"""


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_bundle(tmp_path / "bundle", with_slices(product_manifest()))


def passed(line: dict[str, Any]) -> tuple[list[int], list[int]]:
    """Return address and stride in bytes of C: as its struct has them, and as its tensor map does."""
    struct, mapped = bytes.fromhex(line["arguments"][2]), line["arguments"][3]
    address, stride = (int.from_bytes(struct[at : at + size], "little") for at, size in ((0, 8), (8, 4)))
    return [address, 2 * stride], [mapped["address"], mapped["stride"]]


def test_a_slice_is_written_where_it_lies(bundle: Path) -> None:
    program = """
for out in (part(128, 512), part(640, 512), None, part(0, 512, width=1024)):
    assert out is None or op(a, w.T, out=out) is out
    op(a, w.T)
print(big.data_ptr())
"""
    lines = [line for line in launches(run(START + program, bundle)) if line["kernel"] != "whereabouts"]
    assert [line["kernel"] for line in lines] == [
        "apart", "split", "apart", "split", "split", "apart", "split",
    ]  # fmt: skip
    found = [passed(line) for line in lines if line["kernel"] == "apart"]
    assert all(struct == mapped for struct, mapped in found)
    (first, *_), (second, *_), (third, _) = found
    assert second[0] - first[0] == 1024 and [one[1] for one in (first, second, third)] == [4096, 4096, 2048]


def test_columns_beside_it_may_be_read(bundle: Path) -> None:
    program = """
op(part(0, 512), w.T, out=part(512, 512))
op(part(512, 512), w.T, out=part(0, 512))
refused("overlaps with a", part(0, 512), w.T, out=part(504, 512))
refused("overlaps with a", part(504, 512), w.T, out=part(0, 512))
refused("overlaps with a", part(0, 512), w.T, out=part(1600, 512))  # in the next row
refused("overlaps with a", part(0, 512), w.T, out=part(512, 512, width=1024))
"""
    lines = launches(run(START + program, bundle))
    assert [line["kernel"] for line in lines].count("apart") == 2


def test_other_slices_are_refused(bundle: Path) -> None:
    program = """
refused("rows of c lie 2047 elements apart", a, w.T, out=part(0, 512, width=2047))
refused("cannot write", a, w.T, out=part(0, 512, width=2**31))
refused("multiple of 16 bytes", a, w.T, out=part(4, 512))
refused("cannot write; give an array without gaps", a, w, out=part(0, 512))  # plain
refused("neither", a, w.T, out=torch.randn(512, 512, strides=(2048, 2), address=big.data_ptr(), **bfloat16))
"""
    assert not launches(run(START + program, bundle))


def test_it_is_captured_once_it_was_prepared(bundle: Path) -> None:
    program = """
stream = torch.streams[0] = int(check(cu.cuStreamCreate(1)))
problem = {"m": 512, "n": 512, "k": 512, "options": {"layout": "nt"}}
op.warm([problem])
def captured():
    check(cu.cuStreamBeginCapture(stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL))
captured()
refused("warm()", a, w.T, out=part(0, 512))
check(cu.cuStreamEndCapture(stream))
op.warm([{**problem, "apart": True}])
assert op.plan(**problem, apart=True).match == "exact"
captured()
op(a, w.T, out=part(0, 512))
check(cu.cuGraphLaunch(check(cu.cuGraphInstantiate(check(cu.cuStreamEndCapture(stream)), 0)), stream))
"""
    assert [line["kernel"] for line in launches(run(START + program, bundle))][-1] == "apart"


CPP = """
stream, memory = context(0), int(check(cu.cuMemAlloc(1 << 24)))
_, bundle = opened(sys.argv[2])
a, b, c, work = (memory + (at << 21) for at in range(4))
def asked(strides, apart=1, tensors=(a, b, c)):
    code, plan = planned(bundle, {"m": 512, "n": 512, "k": 512}, "input=bfloat16", "layout=nt", apart=apart)
    need = launcher.kt_workspace_bytes(plan)
    assert code == prepare(plan, work, need, stream) == 0, text.value
    return run(plan, tensors, work, need, stream, strides), text.value.decode()
for strides in (None, [0, 0, 2048], [1024, 0, 1024]):
    assert asked(strides)[0] == 0, text.value
assert asked([1024, 0, 1024], tensors=(a, b, a + 1024))[0] == 0, text.value
refused = [asked([0, 0, 2048], apart=0), asked([0, 0, 511]), asked([0, 0, 1020]), asked([0, 0, 1 << 31]),
           asked([0, 1024, 0]), asked([1024, 0, 1024], tensors=(a, b, a + 1008)),
           asked([2048, 0, 1024], tensors=(a, b, a + 1024))]
print(json.dumps(refused))
"""


def test_a_slice_is_written_from_c_plus_plus(bundle: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    printed = python_on(interface(), CPP, bundle, log=str(log))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    found = [passed(line) for line in lines if line.get("kernel") == "apart"]
    assert [struct[1] for struct, _ in found] == [1024, 4096, 2048, 2048]
    assert all(struct == mapped for struct, mapped in found)
    words = [
        "with apart", "a row or more", "multiple of 16 bytes", "below 2^31", "pass a copy", "overlap",
        "overlap",
    ]  # fmt: skip
    for (code, text), said in zip(json.loads(printed), words, strict=True):
        assert code != 0 and said in text and "\n" not in text


def test_slices_name_what_is_there() -> None:
    launch = {**product_manifest()["configurations"][0]["launches"][0], "arguments": [{"stride": "d"}]}
    with pytest.raises(BundleError, match=r"launches\[1\]: there is no stride d"):
        read_manifest(manifest_with(("configurations.0.slices", [launch])))
