"""Operations whose launches are computed by torch on the CPU, at the addresses that a GPU would get."""

from __future__ import annotations

import ctypes
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from tuner.core.errors import CallError
from tuner.core.model import Value
from tuner.kernel.load import load_kernel
from tuner.runtime import libraries
from tuner.runtime.dtypes import ITEMSIZE
from tuner.runtime.interpret import scalar_values
from tuner.runtime.launch_limits import DEVICE_LIMITS
from tuner.runtime.manifest import read_manifest
from tuner.runtime.matching import PreparedCall, match
from tuner.runtime.operation import Operation
from tuner.runtime.torch_gradients import evaluate_element
from tuner.winners.manifest import json_of
from tuner.winners.records import computation_of

Compute = Callable[..., None]


def gemm(tensors: Mapping[str, Any], **_: Any) -> None:
    tensors["c"].copy_(tensors["a"].double() @ tensors["b"].double())


def bmm(tensors: Mapping[str, Any], layout: str, **_: Any) -> None:
    a, b = (
        tensors[name].transpose(1, 2) if order == "t" else tensors[name]
        for name, order in zip("ab", layout, strict=True)
    )
    tensors["c"].copy_(a.double() @ b.double())


def baddbmm(tensors: Mapping[str, Any], op: str, layout: str, **scalars: Any) -> None:
    assert layout == "nn"
    x = tensors["a"].double() @ tensors["b"].double()
    tensors["c"].copy_(
        _element(op, {**tensors, "x": x}, **{k: v for k, v in scalars.items() if k != "broadcast"})
    )


def linear(tensors: Mapping[str, Any], op: str, **scalars: Any) -> None:
    x = tensors["a"].double() @ tensors["b"].double()
    tensors["c"].copy_(_element(op, {**tensors, "x": x}, **scalars))


def scaled_mm(tensors: Mapping[str, Any], **_: Any) -> None:
    a, b = (tensors[name].double() * tensors[f"scale_{name}"].double() for name in "ab")
    tensors["c"].copy_(a @ b)


def vector_add(tensors: Mapping[str, Any], **_: Any) -> None:
    tensors["c"].copy_(tensors["a"].double() + tensors["b"].double())


def saxpy(tensors: Mapping[str, Any], alpha: float, **_: Any) -> None:
    tensors["y"].copy_(alpha * tensors["x"].double() + tensors["y"].double())


def reduce(tensors: Mapping[str, Any], op: str, **_: Any) -> None:
    tensors["out"].copy_(getattr(tensors["x"].double(), op)())


def reduce_axis(tensors: Mapping[str, Any], op: str, over: str, before: str, **_: Any) -> None:
    function = torch.amax if op == "max" else getattr(torch, op)
    element = evaluate_element(before, {k: each.double() for k, each in tensors.items() if k in "xy"})
    tensors["index" if "arg" in op else "out"].copy_(function(element, 1 if over == "columns" else 0))


def mean_matvec(tensors: Mapping[str, Any], layout: str, **_: Any) -> None:
    mean = tensors["x"].double().mean(1 if layout == "nml" else 0)
    tensors["y"].copy_(mean @ tensors["w"].double().t())


def transpose(tensors: Mapping[str, Any], **_: Any) -> None:
    tensors["out"].copy_(tensors["x"].transpose(1, 2))


def permute(tensors: Mapping[str, Any], axes: str, **_: Any) -> None:
    tensors["out"].copy_(tensors["x"].permute(["abc".index(axis) for axis in axes]))


def rope(tensors: Mapping[str, Any], style: str, **_: Any) -> None:
    cosine, sine = (tensors[name].double()[:, None] for name in ("cosine", "sine"))
    for name in "qk":
        x, out = tensors[name].double(), tensors[f"{name}_out"]
        first, second = x.chunk(2, -1) if style == "half" else (x[..., ::2], x[..., 1::2])
        rotated = [first * cosine - second * sine, second * cosine + first * sine]
        out.copy_(torch.cat(rotated, -1) if style == "half" else torch.stack(rotated, -1).flatten(2))


def transform(tensors: Mapping[str, Any], op: str, **_: Any) -> None:
    tensors["out"].copy_(_element(op, tensors))


def own_softmax(tensors: Mapping[str, Any], **_: Any) -> None:
    tensors["y"].copy_(torch.softmax(tensors["x"].double(), 1))


def softmax(
    tensors: Mapping[str, Any], op: str, before: str, mask: str, scale: float, offset: float, **_: Any
) -> None:
    score = _element(before, tensors, scale=scale)
    if mask == "boolean":
        score = score.masked_fill(~tensors["keep"], -torch.inf)
    if mask == "causal":
        seen = torch.ones(score.shape[1], score.shape[1], dtype=torch.bool).tril()[int(offset) :]
        score = score.masked_fill(~seen.repeat(len(score) // len(seen) + 1, 1)[: len(score)], -torch.inf)
    tensors["out"].copy_(getattr(torch, op)(score, 1))


def norm(tensors: Mapping[str, Any], op: str, before: str, after: str, eps: float, **_: Any) -> None:
    z = _element(before, tensors)
    distance = z - z.mean(1, keepdim=True) if op == "layer_norm" else z
    n = distance / torch.sqrt((distance**2).mean(1, keepdim=True) + eps)
    tensors["out"].copy_(_element(after, tensors, n=n))
    if "total" in tensors:
        tensors["total"].copy_(z)


def cross_entropy(tensors: Mapping[str, Any], scale: float, ignore_index: float, **_: Any) -> None:
    x, target = tensors["x"].double(), tensors["target"]
    kinds: Any = {"reduction": "none", "ignore_index": int(ignore_index)}
    tensors["loss"].copy_(torch.nn.functional.cross_entropy(x, target, **kinds))
    hot = torch.zeros_like(x).scatter_(1, target.clamp(0).unsqueeze(1), 1.0)
    if "grad" in tensors:
        grad = scale * (torch.softmax(x, 1) - hot)
        tensors["grad"].copy_(grad.masked_fill((target == int(ignore_index)).unsqueeze(1), 0.0))


def quantize(tensors: Mapping[str, Any], by: str, **_: Any) -> None:
    x = tensors["x"].double()
    parts = x.unflatten(1, (-1, 128 if by == "group" else x.shape[1]))
    scale = parts.abs().amax(2).clamp(min=1e-10) / 448
    tensors["scale"].copy_(scale)
    tensors["out"].copy_((parts / scale.unsqueeze(2)).flatten(1).to(torch.float8_e4m3fn))


def gated(tensors: Mapping[str, Any], op: str, **_: Any) -> None:
    gate, up = tensors["x"].double().chunk(2, 1)
    tensors["out"].copy_(_element(op, {}, gate=gate, up=up))


def _element(text: str, tensors: Mapping[str, Any], **more: Any) -> Any:
    names = {name: each.double() for name, each in tensors.items()}
    functions = {name: getattr(torch, name) for name in ("where", "tanh", "abs", "exp", "erf")}
    functions["silu"] = torch.nn.functional.silu
    functions |= {name: getattr(torch.nn.functional, name) for name in ("gelu", "silu")}
    return eval(text, {**functions, **names, **more})  # noqa: S307 - the tests' own text


class OnCpu(Operation):
    """Takes tensors of the CPU for those of a GPU; counts launches and keeps their addresses."""

    def __init__(self, manifest: Any, compute: Compute, **choices: Any) -> None:
        super().__init__(manifest, lambda name: b"", **choices)
        self.compute, self.launches, self.prepared, self.capturing = compute, 0, 0, False
        self.addresses: list[int] = []
        self.apart: frozenset[str] = frozenset()

    def prepare_call(self, library: Any, layouts: Any, written: Any, handle: Any, sizes: Any) -> Any:
        layouts = [each and each._replace(device=0) for each in layouts]
        meant = match(
            self._manifest, self._computations, layouts, written, sizes, dict.fromkeys(DEVICE_LIMITS, 90)
        )
        if self.capturing:
            raise CallError(
                f"{self.name} was not prepared for this problem", "call it once before, or its warm()"
            )
        self.prepared += 1
        alignments = dict.fromkeys(meant.shapes, 16)
        gpu = SimpleNamespace(context=SimpleNamespace(index=0))
        plan: Any = SimpleNamespace(alignments=alignments, apart=self.apart)
        call = PreparedCall(meant, gpu, plan, True)  # type: ignore[arg-type]
        call.meant = meant  # type: ignore[attr-defined]
        return call

    def launch(
        self,
        call: Any,
        addresses: Sequence[int],
        scalars: Mapping[str, float],
        stream: int,
        *,
        wait: bool = False,
    ) -> None:
        self.launches += 1
        self.addresses = list(addresses)
        meant = call.meant
        computation = self._manifest.computations[meant.computation]
        entries = [entry for entry in (*meant.inputs, *meant.outputs) if entry is not None]
        tensors = {
            entry.name: at(
                address,
                meant.shapes[entry.name],
                entry.dtype,
                transposed=bool(entry.transposed),
                stride=call.strides.get(entry.name, 0),
            )
            for entry, address in zip(entries, addresses, strict=True)
        }
        own = {entry.name: entry.value.evaluate({}) for entry in computation.scalars}
        values = scalar_values(computation, {**own, **scalars})  # type: ignore[dict-item]
        with torch.no_grad():
            self.compute(tensors, **values, **computation.options)


def at(address: int, shape: tuple[int, ...], dtype: str, *, transposed: bool, stride: int = 0) -> Any:
    """Return the tensor that a kernel finds at an address, whose rows lie so many elements apart."""
    held = shape[::-1] if transposed else shape
    length = held[-1] if held else 1
    apart = stride or length
    count = (math.prod(held) // length - 1) * apart + length
    memory = (ctypes.c_uint8 * (count * ITEMSIZE[dtype])).from_address(address)
    tensor = torch.frombuffer(memory, dtype=getattr(torch, dtype))
    tensor = tensor.as_strided((count // apart + (count % apart > 0), length), (apart, 1)).reshape(held)
    return tensor.permute(*range(len(held))[::-1]) if transposed else tensor


def on_cpu(
    name: str, compute: Compute, problems: Iterable[Mapping[str, Value]], *, path: str = "", **choices: Any
) -> OnCpu:
    """Return the operation of a kernel with the computations of some problems, by dtypes and options."""
    kernel = load_kernel(path or name)
    computations = []
    for problem in problems:
        dtypes = {key: str(value) for key, value in problem.items() if key in kernel.dtypes}
        options = {key: value for key, value in problem.items() if key in kernel.options}
        computations.append(json_of(computation_of(kernel, kernel.problem({}, dtypes, options))))
    return of_manifest(kernel.name, kernel.summary, list(kernel.sizes), computations, compute, **choices)


def of_manifest(
    kernel: str, summary: str, sizes: list[str], computations: list[Any], compute: Compute, **choices: Any
) -> OnCpu:
    """Return the operation of a manifest with some computations."""
    written = {
        "format": "kernel-tune bundle", "version": 1, "tool": "a test", "kernel": kernel, "summary": summary,
        "license": "", "minimum_driver": 13000, "sizes": sizes, "probe": {}, "computations": computations,
        "configurations": [], "winners": [], "defaults": [],
    }  # fmt: skip
    return OnCpu(read_manifest(json.dumps(written).encode()), compute, **choices)


def pose_as_gpu(patch: Any) -> None:
    """Let the CPU's current stream be the legacy one."""
    patch.setattr(libraries._Torch, "stream", lambda self, device: 0)
