"""What the measuring process is told, and what its replies mean: plain data for the pipe."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from tuner.compile.pool import Compilation, CompilePool
from tuner.conditions import Conditions, Mode
from tuner.errors import DeviceError
from tuner.hardware.batching import batch_of
from tuner.hardware.roofline import roof_of
from tuner.kernel.baselines import Baseline, settle_baseline
from tuner.kernel.launches import Plan
from tuner.kernel.plan import reference_launch, scalars_of, tensors_of
from tuner.kernel.reference import answer_of
from tuner.kernel.spec import KernelSpec
from tuner.model import Configuration, Gpu, Measurement, Problem, Status, Verification

CLOCK_TOLERANCE = 1.02
"""The highest clock that the driver names is not exceeded by more."""


class Requests:
    """Makes requests about one kernel on one GPU.

    Args:
        kernel: the kernel.
        gpu: the GPU.
        pool: compiles the references.
    """

    def __init__(self, kernel: KernelSpec, gpu: Gpu, pool: CompilePool) -> None:
        self._kernel, self._gpu, self._pool = kernel, gpu, pool

    def setup(
        self,
        problem: Problem,
        seed: int,
        conditions: Conditions,
        truth: Problem | None = None,
        *,
        timed: bool = True,
    ) -> dict[str, Any]:
        """Ask for a problem's data, reference and limits.

        Args:
            problem: what is computed.
            seed: of the inputs.
            conditions: how it will be timed.
            truth: the same in a wider dtype, for the errors.
            timed: whether anything will be timed; verifying alone needs a quieter GPU less.

        Raises:
            DeviceError: the CUDA reference does not compile.
        """
        kernel, gpu = self._kernel, self._gpu
        roof = roof_of(kernel, problem, gpu)
        tensors = tensors_of(kernel, problem, gpu)
        # What the calls before have left in the L2 costs a warm kernel nothing.
        size_bytes = 0.0 if conditions.mode is Mode.WARM else roof.bytes
        return {
            "do": "setup",
            "seed": seed,
            "timed": timed,
            "mode": conditions.mode,
            "regime": conditions.regime,
            "batch": asdict(batch_of(roof, tensors, gpu, conditions)),
            "limits": {
                "floor_ns": _floor_ns(roof.flops, size_bytes, roof.peak_flops, gpu),
                "flops": roof.flops,
                "peak_flops": roof.peak_flops,
            },
            **self._answer(problem),
            "truth": self._answer(truth) if truth is not None else None,
        }

    def baseline(self, baseline: Baseline, problem: Problem) -> dict[str, Any]:
        """Describe a baseline that needs no compiler.

        Raises:
            UsageError: none of its calls fits the problem.
        """
        baseline = settle_baseline(baseline, self._kernel, problem)
        scalars = scalars_of(self._kernel, problem, self._gpu)
        return {
            "kind": baseline.kind,
            "text": baseline.text,
            "file": None if baseline.file is None else str(baseline.file),
            "sizes": dict(problem.sizes),
            "scalars": {name: value for name, (_, value) in scalars.items()},
        }

    def _answer(self, problem: Problem) -> dict[str, Any]:
        """Describe the tensors of a problem, and how to find out what its outputs must be."""
        kernel, gpu = self._kernel, self._gpu
        answer = answer_of(kernel, problem, gpu)
        return {
            "tensors": [asdict(buffer) for buffer in tensors_of(kernel, problem, gpu)],
            "reference": {
                "numpy": {output: expression.text for output, expression in answer.numpy.items()},
                "cuda": self._cuda(problem),
                "golden": {output: str(path) for output, path in answer.golden.items()},
                "sizes": dict(problem.sizes),
                "scalars": {name: value for name, (_, value) in scalars_of(kernel, problem, gpu).items()},
                "reduction": answer.reduction,
                "accumulate": answer.accumulate,
                "tolerance": answer.tolerance,
                "operand_rounding": answer.operand_rounding,
                "flops": roof_of(kernel, problem, gpu).flops,
            },
        }

    def _cuda(self, problem: Problem) -> dict[str, Any] | None:
        kernel = self._kernel
        launch = reference_launch(kernel, problem, self._gpu)
        if launch is None:
            return None
        first = next(iter(kernel.variants.values()))
        configuration = Configuration.of(first.name, first.defaults)
        compilation = self._pool.compile(kernel.file, problem, self._gpu, configuration, reference=True)
        if compilation.status is not Status.OK:
            raise DeviceError(
                f"the CUDA reference does not compile: {compilation.error}", f"correct {kernel.file}"
            )
        return {
            "cubin": base64.b64encode(compilation.cubins[0]).decode(),
            "entry": compilation.entries[0],
            "launch": asdict(launch),
        }


def candidate_request(plan: Plan, compilation: Compilation) -> dict[str, Any]:
    """Describe a compiled candidate."""
    return {
        "plan": plan.to_json(),
        "cubins": [base64.b64encode(cubin).decode() for cubin in compilation.cubins],
        "entries": list(compilation.entries),
    }


def measurement_of(reply: Mapping[str, Any]) -> Measurement:
    """Read a reply to a request to measure."""
    if "failed" in reply:
        return Measurement(Status(reply["failed"]), error=reply["error"])
    data = dict(reply["measurement"])
    data["status"] = Status(data["status"])
    data["samples_ns"] = tuple(data["samples_ns"])
    data["tags"] = tuple(data["tags"])
    data["verification"] = Verification(**data["verification"]) if data["verification"] else None
    span = reply.get("span")
    data["measure_s"] = span[1] - span[0] if span else 0.0
    return Measurement(**data)


def _floor_ns(flops: float, size_bytes: float, peak_flops: float, gpu: Gpu) -> float:
    """Return the time that no kernel can beat: what the L2 may still hold after the flush costs nothing."""
    compute = flops / peak_flops if peak_flops else 0.0
    memory = max(0.0, size_bytes - gpu.l2_bytes) / gpu.memory_bytes_per_s if gpu.memory_bytes_per_s else 0.0
    return math.floor(max(compute, memory) * 1e9 / CLOCK_TOLERANCE)
