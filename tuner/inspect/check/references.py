"""Whether there is a reference for each output, and golden files fit."""

from __future__ import annotations

import numpy as np

from tuner.core.model import Gpu
from tuner.inspect.check.findings import Report
from tuner.inspect.check.subjects import problems
from tuner.kernel.plan import tensors_of
from tuner.kernel.spec import KernelSpec


def check_reference(kernel: KernelSpec, gpu: Gpu, report: Report) -> None:
    """Report outputs without a reference, golden files that do not fit, and a NumPy reference that has no value."""
    reference = kernel.reference
    for tensor in kernel.tensors.values():
        everything = reference.cuda is not None or reference.python is not None
        covered = everything or tensor.name in {*reference.numpy, *reference.golden}
        if tensor.role != "input" and not covered:
            problem = f"nothing says what {tensor.name} must be"
            report.add(
                ("reference",), problem, "add [reference] with numpy, cuda or golden: results are not checked"
            )
    _check_golden(kernel, gpu, report)


def _check_golden(kernel: KernelSpec, gpu: Gpu, report: Report) -> None:
    for name, file in kernel.reference.golden.items():
        key = ("reference", "golden", name)
        try:
            golden = np.load(file, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            report.add(key, f"golden file {file}: {error}", "save it with numpy.save")
            continue
        if golden.dtype.kind not in "biuf":
            report.add(key, f"golden file {file} holds {golden.dtype}", "save real numbers")
        shapes = {
            str(problem): tensor.shape[::-1] if tensor.transposed else tensor.shape
            for problem in problems(kernel).values()
            for tensor in tensors_of(kernel, problem, gpu)
            if tensor.name == name
        }
        if shapes and golden.shape not in shapes.values():
            wanted = " or ".join(dict.fromkeys(map(str, shapes.values())))
            report.add(
                key, f"golden file {file} has shape {golden.shape}, not {wanted}", "save it for a preset"
            )
