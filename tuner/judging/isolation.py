"""What a process may read in which code runs that others wrote."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tuner.kernel.baselines import Baseline
from tuner.kernel.modules import FILE
from tuner.kernel.spec import KernelSpec

COPIES = "judged"
"""Folder, in one of candidates, of copies of them, each in one of its own."""


def readable_for(task: KernelSpec, candidate: KernelSpec, baselines: Iterable[Baseline]) -> list[Path]:
    """Return the files that a process needs: the candidate's, and those of its task."""
    own, reference = candidate.file, task.reference
    files = [one.file for one in baselines if one.file] + list(reference.golden.values())
    files += [reference.python.file] if reference.python else []
    files += [tensor.file for tensor in task.tensors.values() if tensor.file]
    model = task.folder / FILE
    files += [model] if model.is_file() else []
    # What references import lies beside them; but beside a candidate are others.
    beside = [one for file in files if file.parent != own.parent for one in file.parent.glob("*.py")]
    calls = [variant.call.file for variant in candidate.variants.values() if variant.call]
    owned = [own.parent] if own.parent.parent.name == COPIES else [own, *calls]
    return [*owned, *files, *beside]
