"""What ``tuner.tune`` returns: the winner, what it was compared with, all trials; callable, and shown in notebooks."""

from __future__ import annotations

import base64
import html
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.api import folder
from tuner.api.call import in_python
from tuner.api.calling import launch, named
from tuner.api.kinds import path_of
from tuner.children.compile_pool import CompilePool
from tuner.core import paths
from tuner.core.errors import CallError, UsageError
from tuner.core.model import Configuration, Run, Trial, Value
from tuner.core.observer import Observer
from tuner.core.stats import Ratio
from tuner.database.database import Database
from tuner.database.records import RESERVATIONS, Filters, StoredWinner
from tuner.formats.files import new_file
from tuner.kernel.functions import load_function
from tuner.kernel.spec import KernelSpec
from tuner.report.run_plot import run_svg
from tuner.report.summary import best_so_far, how_it_ended, summary, why_nothing
from tuner.runtime.operation import Operation
from tuner.tuning import state
from tuner.tuning.state import State
from tuner.winners.bundle import write_bundle
from tuner.winners.compiling import bundled
from tuner.winners.contents import contents_of
from tuner.winners.current import Kernels
from tuner.winners.header import NAMESPACE, render_header
from tuner.winners.load import load

if TYPE_CHECKING:
    import pandas as pd


class Speedup(float):
    """The default's time over the winner's, as a number with its 95 % interval: ``low`` and ``high``."""

    low: float
    high: float

    @classmethod
    def of(cls, ratio: Ratio) -> Speedup:
        """Return a ratio of two times as a speedup."""
        speedup = cls(ratio.median)
        speedup.low, speedup.high = ratio.low, ratio.high
        return speedup

    def __repr__(self) -> str:
        if not math.isfinite(self.high):
            return f"{float(self):.3f}x"
        return f"{float(self):.3f}x ({self.low:.3f} to {self.high:.3f})"


@dataclass(frozen=True, repr=False)
class Result:
    """Result of a run.

    Attributes:
        kernel: as it was read from :attr:`file`.
        database: the file that has all of it.
    """

    kernel: KernelSpec
    database: Path
    _arguments: Mapping[str, str]
    """What the file calls the C function's parameters, in order; empty for a kernel given by its file or name."""
    _alone: str
    """Why the call holds for no other sizes; empty if it does."""
    _build: Callable[..., Any] | None
    """The caller's function that builds configurations, if that was the kernel."""
    _state: State
    _result: state.Result | None

    @property
    def stopped(self) -> bool:
        """Whether Ctrl-C ended the search: then the best so far was neither raced nor confirmed."""
        return self._result is None

    @property
    def file(self) -> Path:
        """The kernel's file: what ``tune --kernel`` takes."""
        return self.kernel.file

    @property
    def run(self) -> Run:
        """The run as it is stored: its problem, GPU, options and versions."""
        return self._state.run

    @property
    def measured(self) -> Sequence[Trial]:
        """The trials as they are stored, with all samples, in the order in which they ended."""
        return self._state.trials

    @property
    def _finish(self) -> state.Finish | None:
        return self._result.finish if self._result else None

    @property
    def _winner(self) -> Trial | None:
        return self._finish.winner if self._finish else self._state.incumbent

    @property
    def best(self) -> dict[str, Value]:
        """The winner's parameters by name, and its variant if the kernel has several.

        Raises:
            CallError: no configuration was verified; the text says how most of them ended.
        """
        if self._winner is None:
            remedy = "look at trials, which has the error of each" if self._state.trials else "call it again"
            raise CallError(self.verdict, remedy)
        return self._values(self._winner.configuration)

    def _values(self, configuration: Configuration) -> dict[str, Value]:
        variant = {"variant": configuration.variant} if len(self.kernel.variants) > 1 else {}
        return {**variant, **configuration.values}

    @property
    def time_us(self) -> float:
        """The winner's time in microseconds, as raced; NaN where there is none."""
        if self._finish:
            return self._finish.time_ns / 1e3
        return ((self._winner and self._winner.time_ns) or math.nan) / 1e3

    @property
    def speedup(self) -> Speedup | None:
        """The default's time over the winner's, with its interval; None where they were not raced."""
        return Speedup.of(self._finish.ratio) if self._finish and self._finish.ratio else None

    @property
    def confirmed(self) -> bool:
        """Whether a fresh process reproduced the winner's time and result, so that it can be called and bundled."""
        return bool(self._finish and self._finish.exportable and not self._state.run.replayed)

    @property
    def checked_against(self) -> str:
        """What results were compared with.

        ``reference``, ``default`` (the default configuration), ``kernel`` (your own, in its own precision) or
        ``nothing``.
        """
        return self.kernel.reference.checked_against

    @property
    def verdict(self) -> str:
        """How sure the result is, in a line."""
        if self._result is None:
            if not self._state.trials:
                return "stopped before the first result"
            if self._winner is None:
                return "stopped: no configuration was verified yet"
            return "stopped: the best so far, neither raced nor confirmed"
        if (finish := self._finish) is None:
            return why_nothing(self._result, self.database)
        default = finish.default is not None and finish.default.configuration == finish.winner.configuration
        parts = ["the default configuration" if default else f"{finish.verdict} than the default"]
        if not default and finish.verdict in ("same", "ambiguous"):
            parts = [f"{finish.verdict}: no certain difference from the default"]
        if self._state.run.replayed:
            parts.append("replayed from a recording")
        else:
            parts.append(
                "confirmed in a fresh process" if finish.exportable else f"not confirmed: {finish.reason}"
            )
            if not finish.edge_cases:
                why = self._alone or finish.edge_note or "none is valid"
                parts.append(f"no other size was verified: {why}")
        if self.checked_against in RESERVATIONS:
            parts.append(RESERVATIONS[self.checked_against])
        return "; ".join(parts)

    @cached_property
    def trials(self) -> list[dict[str, Any]]:
        """A record for each trial: its number, parameters, status, error, and ``time_us``: None for a failure."""
        return [
            {
                "trial": number,
                **self._values(trial.configuration),
                "time_us": trial.time_ns / 1e3 if trial.time_ns else None,
                "status": str(trial.status),
                "error": trial.error,
                "registers": trial.resources.registers if trial.resources else None,
                "spill_bytes": trial.resources.spill_bytes if trial.resources else None,
                "shared_bytes": trial.resources.static_shared_bytes + trial.resources.dynamic_shared_bytes
                if trial.resources
                else None,
            }
            for number, trial in enumerate(self._state.trials, 1)
        ]

    def to_pandas(self) -> pd.DataFrame:
        """Return :attr:`trials` as a table of pandas."""
        try:
            import pandas as pd
        except ImportError:
            raise UsageError(
                "to_pandas needs pandas", "install it, or use trials, a list of dictionaries"
            ) from None
        return pd.DataFrame(self.trials)

    def save(self, path: str | Path) -> Path:
        """Write the kernel's file, with what it needs beside it, to a ``.toml`` of this name; return its path.

        What is tuned from there has the same digests, so that these results count for it.
        """
        return folder.save(self.kernel, path)

    @cached_property
    def operation(self) -> Operation:
        """The winner as a function of arrays on the GPU: see ``tuner.load``.

        Raises:
            CallError: no winner was confirmed.
        """
        self._stored()
        return load(self.file, db=self.database)

    @cached_property
    def _built(self) -> Callable[..., Any] | None:
        """The winner, where a function builds configurations.

        Raises:
            CallError: no winner was confirmed.
        """
        call = next(iter(self.kernel.variants.values())).call
        if call is None or not call.builds:
            return None
        self._stored()
        build = self._build or load_function(call.name, call.file)
        return build(**self.best)  # type: ignore[no-any-return]

    def _stored(self) -> list[StoredWinner]:
        """Return the winner as the database has it.

        Raises:
            CallError: none was confirmed.
        """
        if not self.confirmed:
            raise CallError(
                f"there is no confirmed winner: {self.verdict}", "only such a one can be called or written"
            )
        with Database.open(self.database, write=False) as database:
            return database.winners(Filters(run=self._state.run.id)).rows

    @in_python
    def bundle(self, path: str | Path, *, slices: bool = False) -> Path:
        """Write a folder with which programs in Python and C++ call the winner; return it.

        Args:
            path: where.
            slices: whether it also has the code with which a product writes into slices of larger matrices.

        Raises:
            CallError: no winner was confirmed.
            BundleError: there is something of that name, or it cannot be written.
        """
        target = path_of("the path", path, f"bundle('{self.kernel.name}_bundle')")
        contents = contents_of(self._stored(), Kernels(self.kernel))
        with closing(CompilePool(1, paths.cubins())) as pool:
            _, files, _ = bundled(contents, pool, Observer(), warnings.warn, slices=slices)
        write_bundle(target, files, force=False)
        return target

    @in_python
    def export(self, path: str | Path, namespace: str = NAMESPACE) -> Path:
        """Write a C++ header with the winner's parameters; return it.

        Raises:
            CallError: no winner was confirmed.
            DatabaseError: there is something of that name, or it cannot be written.
        """
        target = path_of("the path", path, f"export('{self.kernel.name}.hpp')")
        text = render_header(self._stored(), namespace, Kernels(self.kernel).kernel)
        with new_file(target, force=False) as partial:
            partial.write_text(text, encoding="ascii")
        return target

    def __call__(self, *args: Any, stream: Any = None, **others: Any) -> Any:
        """Launch the winner with the arguments of the C function, in their order or by name; return its outputs.

        Arrays are those of torch, CuPy, JAX or NumPy; of NumPy they are copied to the GPU and back. The winner of a
        kernel that has a file or a name takes arrays as :meth:`operation` does. What a function has built is called as
        it is: with what it takes, on the current stream.

        Raises:
            CallError: no winner was confirmed, or these are not what the kernel takes.
            DeviceError: the driver refuses.
        """
        if (function := self._built) is not None:
            return function(*args, **others, **({} if stream is None else {"stream": stream}))
        if not self._arguments:
            return self.operation(*args, stream=stream, **others)
        return launch(self.operation, self.kernel, named(self._arguments, args, others), stream)

    def __str__(self) -> str:
        if self._result is None:
            return best_so_far(self._state)
        why = how_it_ended(self._result, self.database) if self._result.finish is None else ""
        return "\n".join(filter(None, (summary(self._result, self.database), why)))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the summary with the figure of ``tune --plot``, for notebooks; ``tune report`` has more."""
        drawn = base64.b64encode(run_svg(self._result)).decode() if self._result else ""
        picture = f'<img src="data:image/svg+xml;base64,{drawn}">' if drawn else ""
        return f"<pre>{html.escape(str(self))}</pre>{picture}"

    def __getstate__(self) -> Mapping[str, Any]:
        raise TypeError("a result holds its run: keep its database and file, and open them with tuner.open")
