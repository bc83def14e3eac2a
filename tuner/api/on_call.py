"""``tuner.load(..., policy="tune")``: a problem that is called for the first time is tuned then."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tuner.api.tune import Kernel, RunHow
from tuner.core import paths
from tuner.core.errors import CallError, DatabaseError, TunerError
from tuner.core.files import alone
from tuner.core.model import Gpu
from tuner.kernel.default import plain_default
from tuner.kernel.load import load_kernel
from tuner.kernel.roofline import ARCHITECTURES
from tuner.report.tables import say
from tuner.runtime.arrays import ArrayLayout
from tuner.runtime.dispatch import Match, Policy
from tuner.runtime.driver import primary_context
from tuner.runtime.gpu_plans import GpuPlans
from tuner.runtime.libraries import Library
from tuner.runtime.matching import PreparedCall, match
from tuner.runtime.operation import Operation
from tuner.winners.compiling import compiled_manifest, stored_contents
from tuner.winners.contents import Contents


class TuningOperation(Operation):
    """An operation that tunes a problem without a winner of this GPU, the first time that it is called.

    That call takes as long as the search, which is said on the standard error. It tunes nothing while its stream is
    captured, or while another process or thread tunes on that GPU: then the nearest winner or the default runs, and
    the next call tries again. A problem without a winner is tried once.

    Args:
        kernel: a built-in kernel's name, or the path of a kernel's file.
        db: the database that winners come from and go to; None for results/tuning.db.
        trials: of each problem.
        time_s: seconds after which a search begins nothing new.
        dtypes, options: as for :class:`Operation`.
    """

    def __init__(
        self,
        kernel: str,
        db: str | Path | None,
        trials: int,
        time_s: float,
        *,
        dtypes: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._name, self._db = kernel, Path(db or paths.DATABASE)
        self._trials, self._time_s = trials, time_s
        self._tried: set[tuple[int, ...]] = set()
        self._for_now = threading.local()
        manifest, compiling = compiled_manifest(self._contents())
        super().__init__(
            manifest, compiling.cubin, policy=Policy.NEAREST_VALID, dtypes=dtypes, options=options
        )

    def _contents(self) -> Contents:
        """Return the stored winners, and the default configuration of each computation that the kernel has."""
        kernel, gpu = load_kernel(self._name), like(primary_context(0).limits["cc"])
        try:
            contents = stored_contents(self._name, self._db, "")
        except DatabaseError:
            contents = Contents(kernel)
        roles = {role: dtypes for role, dtypes in kernel.dtypes.items() if not isinstance(dtypes, str)}
        names = [*roles, *kernel.options]
        for values in itertools.product(*roles.values(), *kernel.options.values()):
            given = dict(zip(names, values, strict=True))
            dtypes = {role: str(given.pop(role)) for role in roles}
            problem = kernel.problem(dtypes=dtypes, options=given)
            if (configuration := plain_default(kernel, problem, gpu)) is not None:
                contents.add_default(kernel, problem, gpu, configuration)
        return contents

    def prepare_call(
        self,
        library: Library,
        layouts: Sequence[ArrayLayout | None],
        written: Sequence[ArrayLayout | None] | None,
        handle: int | None,
        sizes: Mapping[str, int],
    ) -> PreparedCall:
        """Tune the problem of some arrays unless it is; return what is left to do for them."""
        gpu = self._gpu(self._device([*layouts, *(written or [])]))
        meant = match(self._manifest, self._computations, layouts, written, sizes, gpu.context.limits)
        stream = library.stream(gpu.context.index) if handle is None else handle
        self._for_now.only = self._lacks_winner(gpu, meant.computation, meant.sizes)
        if self._for_now.only and not self._captured(gpu, stream):
            gpu.context.wait(stream)
            self._for_now.only = not self._tuned(gpu, meant.computation, meant.sizes)
        return super().prepare_call(library, layouts, written, handle, sizes)

    def _captured(self, gpu: GpuPlans, stream: int) -> bool:
        try:
            self._refuse_capture(gpu, stream)
        except CallError:
            return True
        return False

    def keep(self, key: tuple[Any, ...], ready: Any) -> None:
        """Keep what was prepared, unless the next call of its kind shall try to tune."""
        if not self._for_now.only:
            super().keep(key, ready)

    def _lacks_winner(self, gpu: GpuPlans, computation: int, sizes: Mapping[str, int]) -> bool:
        if (gpu.context.index, computation, *sizes.values()) in self._tried:
            return False
        try:
            return gpu.choose(computation, sizes, self._policy).match is not Match.EXACT
        except CallError:
            return True

    def _tuned(self, gpu: GpuPlans, computation: int, sizes: Mapping[str, int]) -> bool:
        """Tune a problem, and take its winner on; False if somebody else tunes on this GPU."""
        with alone(paths.cache() / f"tunes-on-call-{gpu.context.index}.lock") as first:
            if not first:
                return False
            began, of = time.monotonic(), self._manifest.computations[computation]
            self._tried.add((gpu.context.index, computation, *sizes.values()))
            problem = " ".join(f"{name}={size}" for name, size in sizes.items())
            how: RunHow = {"trials": self._trials, "time_s": self._time_s, "db": self._db, "quiet": True}
            how["device"] = f"cuda:{gpu.context.index}"
            try:
                kernel = Kernel(self._name, sizes=sizes, dtypes=of.dtypes, options=of.options)
                result = kernel.tune(**how)
                text = f"{result.time_us:.4g} us, {result.verdict}"
            except TunerError as error:
                text = f"not tuned: {error}"
            say(f"{self.name} {problem}: {text}; {time.monotonic() - began:.1f} s")
            self._renew()
        return True

    def _renew(self) -> None:
        """Take the database's winners on; plans that graphs were captured with stay as they are."""
        manifest, compiling = compiled_manifest(self._contents())
        with self._lock:
            self._manifest, self._cubin = manifest, compiling.cubin
            for index in [index for index in self._gpus if index >= 0]:
                self._gpus[-1 - len(self._gpus)] = self._gpus.pop(index)
            self.kept.clear()


def like(cc: int) -> Gpu:
    """Return a GPU of a compute capability, or of the nearest below."""
    known = max((one for one in ARCHITECTURES if one <= cc), default=min(ARCHITECTURES))
    return replace(ARCHITECTURES[known], cc=cc)
