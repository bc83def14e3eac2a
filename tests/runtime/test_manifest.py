"""Reading a bundle's manifest: whatever is damaged in it is refused in one line, by one kind of error."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest

from tests.runtime.manifests import LIMITS, MANIFEST, SHA, manifest_with
from tuner.core.errors import BundleError, CallError
from tuner.runtime.dispatch import dispatch
from tuner.runtime.manifest import file_digest, read_manifest

DEEP = 1
for _ in range(100):
    DEEP = ["neg", DEEP]  # type: ignore[assignment]


def test_everything_is_read() -> None:
    manifest = read_manifest(manifest_with())
    assert manifest.sizes == ("m", "n", "k")
    assert manifest.probe[90].entry == "whereabouts"
    assert manifest.computations[0].options == {"layout": "nt", "fast": True, "scale": 2.0}
    assert [bool(tensor.transposed) for tensor in manifest.computations[0].tensors] == [
        False, True, False, False
    ]  # fmt: skip
    tiled = manifest.configurations[1]
    assert str(tiled) == "tiled block_m=128 split=True schedule=stream_k ratio=0.5"
    assert [(item.name, item.zeroed, item.zeroed_once) for item in tiled.scratch] == [
        ("copy", False, False), ("partials", True, False), ("tickets", False, True)
    ]  # fmt: skip
    pad, launch = tiled.launches
    assert (pad.shared_bytes.tree, pad.cluster, pad.carveout, pad.alignment) == (0, (), None, None)
    assert (pad.cooperative, pad.programmatic, pad.resident, launch.when) == (False, False, None, None)
    assert (launch.cubin, launch.source, launch.entry) == ("f" * 32, "e" * 32, "tiled")
    assert [side.tree for side in launch.grid] == [
        ("*", 2, ("ceil_div", "m", 128)), ("ceil_div", "n", 128)
    ]  # fmt: skip
    assert launch.arguments[0].name == "copy"
    assert launch.arguments[0].map is not None
    assert launch.arguments[0].map.instead == ("a",)
    assert [argument.kind for argument in launch.arguments[-3:]] == ["scalar", "", ""]
    assert (manifest.winners[0].time_ns, manifest.winners[1].time_ns) == (174000.5, 9000.0)


def test_what_may_be_absent() -> None:
    absent = ("probe", "winners", "defaults", "computations.0.scalars", "computations.0.options")
    unused = ("configurations.1.launches.1.arguments", [{"tensor": "c"}])
    manifest = read_manifest(manifest_with(*((key, None) for key in absent), unused))
    assert (manifest.probe, manifest.winners, manifest.defaults) == ({}, (), ())


def test_a_file_is_known_by_its_digest() -> None:
    assert len(file_digest(b"")) == 32
    assert file_digest(b"") == "e3b0c44298fc1c149afbf4c8996fb924"


LAUNCH = "configurations.1.launches.1"
LOOP = {"name": "level", "count": 2}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("format", "other"), "its format is 'other'"),
        (("version", None), "version is missing"),
        (("version", True), "version: it must be a whole number"),
        (("kernel", 5), "kernel: it must be a text"),
        (("summary", "two\nlines"), "summary: it must be a text on one line"),
        (("license", "x" * 10001), "license: it must be a text on one line"),
        (("minimum_driver", -1), "minimum_driver: it must be a whole number"),
        (("surprise", 1), "the key 'surprise' is unknown"),
        (("sizes", ["m", "m", "k"]), "sizes: m is there twice"),
        (("sizes", ["m", "n", "cc"]), "cc is a limit of the GPU"),
        (("sizes", "mnk"), "sizes: it must be a list"),
        (("probe", []), "probe: it must be an object"),
        (("probe.x", {"cubin": SHA, "entry": "e"}), "probe: it must be a compute capability"),
        (("probe.90.cubin", SHA.upper()), "probe.90.cubin: it must be 32 hexadecimal digits"),
        (("probe", None), r"configurations\[1\]: there is no probe 90"),
        (("computations.0.dtypes.input", "bfloat17"), r"dtypes.input: it must be one of float64"),
        (("computations.0.options.layout", [1]), "options.layout: it must be a text"),
        (("computations.0.tensors.0.role", "temporary"), r"tensors\[0\].role: it must be one of input"),
        (("computations.0.tensors.0.shape", ["q"]), r"shape\[0\]: an expression has the unknown name 'q'"),
        (("computations.0.tensors.0.shape", [1] * 33), "it must be a list of 0 to 32 items"),
        (("computations.0.tensors.0.transposed", 1), "transposed: it must be true or false"),
        (("computations", []), r"configurations\[0\]: there is no computation 0"),
        (("configurations.1.computation", 1), r"configurations\[1\]: there is no computation 1"),
        (("configurations.1.parameters.block_m", {}), r"parameters.block_m: it must be a text"),
        (("configurations.1.requires.0.holds", DEEP), "nested deeper than 100"),
        (("configurations.1.requires.0.holds", ["and", *[1] * 10000]), "more than 10000 parts"),
        (("configurations.1.requires.0.holds", ["eval", "m"]), "unknown operator 'eval'"),
        (("configurations.1.scratch.0.name", "tickets"), "tickets is there twice"),
        (("configurations.1.scratch.0.name", "other"), r"launches\[0\]: there is no scratch copy"),
        ((f"{LAUNCH}.entry", "a b"), "entry: it must be a name"),
        ((f"{LAUNCH}.cubin", "../../etc/passwd"), "cubin: it must be 32 hexadecimal digits"),
        ((f"{LAUNCH}.grid", [1, 1, 1, 1]), "grid: it must be a list of 1 to 3"),
        ((f"{LAUNCH}.grid", [["//", "m"]]), r"grid\[0\]: an expression has 1 operands for '//'"),
        ((f"{LAUNCH}.grid", [2**63]), "beyond 64 bits"),
        ((f"{LAUNCH}.arguments.0.map", ["alpha"]), "there is no map alpha"),
        ((f"{LAUNCH}.arguments.2", {"tensor": "q"}), r"launches\[1\]: there is no tensor q"),
        ((f"{LAUNCH}.arguments.2", {"scalar": "a"}), "there is no scalar a"),
        ((f"{LAUNCH}.arguments.2", {}), "it must have tensor, scratch"),
        ((f"{LAUNCH}.arguments.2", "a"), r"arguments\[2\]: it must be an object"),
        ((f"{LAUNCH}.repeat", [LOOP, LOOP]), r"repeat\[1\]: level is there twice"),
        ((f"{LAUNCH}.repeat", [{**LOOP, "count": "level"}]), "unknown name 'level'"),
        ((f"{LAUNCH}.repeat", [{**LOOP, "name": f"l{n}"} for n in range(9)]), "a list of 0 to 8 items"),
        ((f"{LAUNCH}.grid", ["level"]), "unknown name 'level'"),
        ((f"{LAUNCH}.arguments.2", {"one_of": ["a", "q"], "index": 0}), "there is no one_of q"),
        (("winners.0.configuration", 3), r"winners\[0\]: there is no configuration 3"),
        (("winners.0.computation", 1), r"winners\[0\]: configuration 1 is for another computation"),
        (("winners.0.sizes", {"m": 1}), "sizes must be m, n, k"),
        (("winners.0.sizes.m", 2**62 + 1), "whole number from 1"),
        (("winners.0.time_ns", 0), "time_ns: it must be a number above 0"),
        (("defaults.0.configuration", 2), r"defaults\[0\]: configuration 2 is for another"),
    ],
)
def test_what_is_damaged(change: tuple[str, Any], said: str) -> None:
    with pytest.raises(BundleError, match=said) as caught:
        read_manifest(manifest_with(change))
    assert str(caught.value).startswith("manifest.json")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "byte 0 is not UTF-8"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b"[]", "it must be an object"),
        (b"null", "it must be an object"),
        (b'{"a": 1, "a": 1}', "'a' is there twice"),
        (b'{"a": NaN}', "NaN is no number"),
        (b'{"a": -Infinity}', "-Infinity is no number"),
        (b'{"a": 1' + b"0" * 5000 + b"}", "beyond 64 bits"),
        (b"[" * 1000000, "nested too deeply"),
        (b'{"a":' * 100000, "nested too deeply"),
        (b" " * (64 * 2**20 + 1), "the limit is 67108864"),
        (json.dumps({**MANIFEST, "minimum_driver": "X"}).encode().replace(b'"X"', b"1e400"), "whole number"),
    ],
)
def test_what_is_no_manifest(data: bytes, said: str) -> None:
    with pytest.raises(BundleError, match=said) as caught:
        read_manifest(data)
    assert "\n" not in str(caught.value)


def test_a_newer_version_says_so() -> None:
    newer = manifest_with(("version", 3), ("kernel", None), ("surprise", 1))
    with pytest.raises(BundleError, match="version 3 of the format, and this kernel-tune reads up to 2"):
        read_manifest(newer)


def paths(value: Any, start: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [start, *(path for key, item in inner for path in paths(item, (*start, key)))]


def damaged(kind: int) -> bytes:
    """Return the manifest's bytes with one fault of a kind, drawn at random."""
    data = bytearray(manifest_with())
    if kind == 0:
        for _ in range(random.choice([1, 1, 3])):
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        return bytes(data)
    if kind == 1:
        return bytes(data[: random.randrange(len(data))])
    if kind == 2:
        start = random.randrange(len(data))
        return bytes(data[:start] + data[start + random.randrange(1, 40) :])
    document: Any = copy.deepcopy(MANIFEST)
    *parents, last = random.choice(paths(document)[1:])
    target = document
    for part in parents:
        target = target[part]
    if kind == 3:
        del target[last]
    else:
        swaps: list[Any] = [None, True, -1, 0, 1.5, 2**63, 10**30, "", "m", "\x00", [], ["+"], {}, {"a": 1}]
        target[last] = random.choice([*swaps, float("nan"), float("inf"), [["if"]], DEEP, [1] * 50])
    return json.dumps(document).encode()


def test_no_damage_gives_another_error() -> None:
    """300 damaged manifests: refused, or usable as far as they can be read; never another exception."""
    random.seed(11)
    refused = 0
    for number in range(300):
        data = damaged(number % 5)
        try:
            manifest = read_manifest(data)
        except BundleError as error:
            refused += 1
            assert len(str(error).splitlines()) == 1
            continue
        for computation in range(len(manifest.computations)):
            try:
                dispatch(manifest, computation, dict.fromkeys(manifest.sizes, 256), LIMITS, "NVIDIA H200")
            except (BundleError, CallError) as error:
                assert len(str(error).splitlines()) == 1
    assert refused > 180
