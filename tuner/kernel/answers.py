"""What slow references on the host have answered in this run, for all of its measuring processes.

A run asks for the same contents again: where a process ended, a winner is confirmed once more, or a race follows. Only
the tuner's own processes write here, and what they try runs on the GPU.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
import zipfile
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import structs

from tuner.core.model import Value
from tuner.expressions.array import Array
from tuner.kernel.python_reference import Asked, expected_on_host
from tuner.kernel.reference import Expected, SettledReference
from tuner.runtime.launches import Buffer

KEPT_S = 0.1
"""What took longer is kept: writing and reading 2^20 elements takes some 20 ms."""
MOST_BYTES = 1 << 29
"""Of all files; half of it for one, and for what is kept when another comes."""


class Answers:
    """Asks references on the host, unless the answer is known.

    Args:
        folder: of the files; None keeps nothing.
        released: what a reference runs in, if there is one: others may have the GPU meanwhile, and for longer.
    """

    def __init__(
        self,
        folder: Path | None = None,
        released: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        self._folder, self._released = folder, released
        self._terms: dict[str, dict[str, int]] = {}
        self.last_s = 0.0
        """What the last one took that was asked for, also if it failed."""

    def of(
        self,
        reference: SettledReference,
        tensors: Sequence[Buffer],
        inputs: Mapping[str, Array],
        numbers: Mapping[str, Value],
        wanted: Collection[str],
        known: Mapping[str, Array] | None = None,
        *,
        further: bool = False,
        probes: int = 0,
    ) -> tuple[dict[str, Expected], float]:
        """Return what is expected of some outputs without golden files, and in how many seconds that was computed.

        A function that has been asked in this run is known to give the same for the same inputs. Terms that were
        estimated hold for other contents of the same sizes.

        Args:
            reference: and the following: as for :func:`tuner.kernel.python_reference.expected_on_host`.
            tensors: of the problem.
            inputs: values.
            numbers: sizes and scalars.
            wanted: outputs.
            known: values of these.
            further: whether this is a further content.
            probes: with which magnitudes are estimated.

        Raises:
            KernelError: the reference fails.
        """
        reference = structs.replace(reference, golden={})
        function = reference.python
        code = function.file.read_bytes() if function and function.file.is_file() else b""
        prefix = hashlib.sha256(repr(function).encode() + code).hexdigest()[:16]
        digest = hashlib.blake2b(repr((prefix, reference, tensors, numbers)).encode())
        problem = f"{prefix}-{digest.hexdigest()[:32]}.json"

        def file(folder: Path) -> Path:
            content = digest.copy()
            content.update(repr((list(wanted), further, probes)).encode())
            for name in sorted(inputs):
                content.update(np.ascontiguousarray(inputs[name]).data)
            return folder / f"{prefix}-{content.hexdigest()[:32]}"

        asked = self._folder is not None and any(self._folder.glob(f"{prefix}-*"))
        if self._folder is not None and asked:
            if kept := _read(file(self._folder)):
                self.last_s = kept[1]
                return kept
            with contextlib.suppress(OSError, ValueError):
                self._terms.setdefault(problem, json.loads((self._folder / problem).read_text()))
        computes = bool(wanted) and (reference.numpy or function)
        with self._released() if computes else contextlib.nullcontext():
            began = time.monotonic()
            try:
                how = Asked(further, asked, probes, known or {}, self._terms.get(problem, {}))
                expected = expected_on_host(reference, tensors, inputs, numbers, wanted, how)
            finally:
                self.last_s = took_s = time.monotonic() - began
        if not further and not reference.reduction:  # of another content a sum of zeros may have no terms
            told = {name: one.terms for name, one in expected.items() if one.probes != 1}
            self._terms[problem] = {**self._terms.get(problem, {}), **told}
        if self._folder is not None and took_s > KEPT_S:
            with contextlib.suppress(OSError):  # it is computed again, then
                _write(file(self._folder), expected, took_s)
                (self._folder / problem).write_text(json.dumps(self._terms.get(problem, {})))
        return expected, took_s


def _read(file: Path) -> tuple[dict[str, Expected], float] | None:
    try:
        with np.load(file, allow_pickle=False) as kept:
            expected = {}
            for name in kept["names"].tolist():
                value, magnitude, *counts = (kept[f"{field.name} {name}"] for field in fields(Expected))
                expected[name] = Expected(value, magnitude, *map(int, counts))
            return expected, float(kept["took_s"])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None


def _write(file: Path, expected: Mapping[str, Expected], took_s: float) -> None:
    arrays: dict[str, Any] = {"names": list(expected), "took_s": took_s}
    for name, one in expected.items():
        arrays |= {f"{field} {name}": of for field, of in vars(one).items()}
    held = list(file.parent.iterdir())
    if sum(array.nbytes for array in map(np.asarray, arrays.values())) > MOST_BYTES / 2:
        return
    if sum(path.stat().st_size for path in held) > MOST_BYTES / 2:
        for path in held:
            path.unlink()
    partial = file.with_name(f"{os.getpid()}")
    with partial.open("wb") as out:
        np.savez(out, **arrays)
    partial.replace(file)
