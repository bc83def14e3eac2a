"""A configuration as people read it, what differs from its variant's default or all of it; and its launches."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from tuner.core.conditions import Calibration, Conditions
from tuner.core.errors import TunerError
from tuner.core.model import Configuration, Gpu, Problem, Run, Value, value_text
from tuner.database.records import RESERVATIONS, Metrics, Winner
from tuner.formats.results import ABSENT
from tuner.kernel.load import builtin_kernels, kernel_of_run, load_kernel
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec
from tuner.report.tables import duration, percent, picked, throughput
from tuner.runtime.launches import Launch
from tuner.runtime.structs import leaves, size_of


@dataclass(frozen=True)
class ChosenConfiguration:
    """One configuration, ready to be planned and compiled."""

    kernel: KernelSpec
    problem: Problem
    gpu: Gpu
    configuration: Configuration
    source: str = ""
    """Where the configuration comes from, for people: ``winner, trial 12``, ``trial 12``, ``as given``, ``default``."""
    time_ns: float | None = None
    """Its stored time for this problem on a GPU of this name; None where there is none."""
    conditions: Conditions | None = None
    """Under which that time was taken."""
    trial_id: int | None = None
    """The row that it comes from, if any."""
    notes: tuple[str, ...] = ()
    """What a reader should know about the choice."""


ELSE_DEFAULT = " (else default)"
"""What the head of a column of :meth:`Texts.cell` says where not all parameters are named."""


class Texts:
    """The texts of one kernel's configurations.

    Args:
        defaults: values of the parameters, by variant; where a variant has none, all parameters are named.
        foreign: another tool's configurations, of which all parameters are named that each has: variants and defaults
            are unknown.
    """

    def __init__(
        self, defaults: Mapping[str, Mapping[str, Value]] | None = None, *, foreign: bool = False
    ) -> None:
        self._defaults, self._foreign = defaults or {}, foreign
        self.note = ELSE_DEFAULT if self._defaults else ""
        """Goes behind the name of a column of :meth:`cell`."""

    @classmethod
    def of_kernel(cls, kernel: KernelSpec | None, *, full: bool = False) -> Texts:
        """Return those of a kernel; with ``full`` or without a kernel all parameters are named."""
        if full or kernel is None:
            return cls()
        return cls({variant.name: variant.defaults for variant in kernel.variants.values()})

    @classmethod
    def of_space(cls, space: SearchSpace, *, full: bool = False, foreign: bool = False) -> Texts:
        """Return those of a search space; another tool's (``foreign``) has no defaults, so all parameters are named."""
        if full or foreign:
            return cls(foreign=foreign)
        return cls({v.name: {p.name: p.default for p in v.parameters} for v in space.variants})

    def defaults(self, variant: str) -> Mapping[str, Value]:
        """Return a variant's default values; nothing where they are not known."""
        return self._defaults.get(variant, {})

    def _differing(self, configuration: Configuration) -> dict[str, Value]:
        """Return the parameters that differ from the default; all where that is not known, or has others."""
        values, defaults = configuration.values, self.defaults(configuration.variant)
        if defaults.keys() != values.keys():
            return values
        return {name: value for name, value in values.items() if value != defaults[name]}

    def cell(self, configuration: Configuration) -> str:
        """Return variant and values; what is not named is the default, which ``--config`` means, too."""
        shown = self._differing(configuration)
        if self._foreign:
            return " ".join(f"{n}={value_text(v)}" for n, v in shown.items() if v != ABSENT)
        return " ".join([configuration.variant, *(f"{n}={value_text(v)}" for n, v in shown.items())])

    def __call__(self, configuration: Configuration) -> str:
        """Return the same, and that the others have their default values."""
        shown = self._differing(configuration)
        text = self.cell(configuration)
        if len(shown) == len(configuration.parameters):
            return text
        return f"{text}, else default" if shown else f"{text}, all default"


def builtin(name: str) -> KernelSpec | None:
    """Return the built-in kernel of a name; None where there is none."""
    return load_kernel(name) if name in builtin_kernels() else None


class StoredTexts:
    """The texts of configurations of stored runs; of a kernel whose file is gone they name all parameters.

    Args:
        full: whether all parameters are named.
    """

    def __init__(self, *, full: bool = False) -> None:
        self._full = full
        self.note = "" if full else ELSE_DEFAULT
        self._texts: dict[tuple[str, str, str], Texts] = {}

    def of(self, run: Run) -> Texts:
        """Return those of a run's kernel."""
        key = run.problem.kernel, run.kernel_file, run.foreign
        if key not in self._texts:
            kernel: KernelSpec | None = None
            if not (self._full or run.foreign):
                with suppress(TunerError):
                    kernel = kernel_of_run(run)
            self._texts[key] = Texts(foreign=True) if run.foreign else Texts.of_kernel(kernel)
        return self._texts[key]


def shape_text(launch: Launch) -> str:
    """Return grid, block and whatever else a launch has besides its arguments."""
    parts = [f"grid {_sides(launch.grid)}", f"block {_sides(launch.block)}"]
    if launch.cluster:
        parts.append(f"clusters of {_sides(launch.cluster)}")
    if launch.shared_bytes:
        parts.append(f"{launch.shared_bytes} bytes of dynamic shared memory")
    if launch.cooperative:
        parts.append("cooperative")
    if launch.programmatic:
        parts.append("begins before the kernel before it ends")
    if launch.carveout is not None:
        parts.append(f"carveout {launch.carveout} %")
    parts += [f"{symbol} filled from {tensor}" for symbol, tensor, _ in launch.constants]
    return ", ".join(parts)


def arguments_text(launch: Launch) -> str:
    """Return a launch's arguments in order, each as its name or as its type and value."""
    return ", ".join(_argument(*argument) for argument in launch.arguments)


def launch_record(entry: str, launch: Launch) -> dict[str, Any]:
    """Return a launch for ``--json``."""
    shape = "grid block cluster shared_bytes cooperative carveout alignment resident programmatic"
    arguments = [_argument_record(*argument) for argument in launch.arguments]
    record = {"entry": entry, **picked(launch, shape), "arguments": arguments}
    if launch.constants:
        record["constants"] = {symbol: tensor for symbol, tensor, _ in launch.constants}
    return record


def _sides(sides: tuple[int, int, int]) -> str:
    return " x ".join(map(str, sides))


def _argument(kind: str, name: str, value: Value) -> str:
    if kind == "buffer":
        return name
    if kind == "map":
        return f"tensor map of {name}"
    if kind == "struct":
        return f"{{{', '.join(_argument(*leaf[2:]) for leaf in leaves([(kind, name, value)]))}}}"
    return f"order of clusters, by {value}" if kind == "cluster_order" else f"{name} {value}"


def _argument_record(kind: str, name: str, value: Value) -> dict[str, Any]:
    if kind == "buffer":
        return {"kind": kind, "name": name}
    if kind == "map":
        return {"kind": kind, "name": name, "map": json.loads(str(value))}
    if kind == "cluster_order":
        return {"kind": "cluster_order", "size": value}
    if kind == "struct":
        parts = list(leaves([(kind, name, value)]))
        fields = [{**_argument_record(*leaf[2:]), "offset": leaf.offset} for leaf in parts]
        return {"kind": kind, "size_bytes": size_of((kind, name, value)), "fields": fields}
    return {"kind": kind, "dtype": name, "value": value}


def launch_note(
    calibration: Calibration | None, conditions: Conditions, time_ns: float, *, tied: bool = False
) -> str:
    """Return the note that launch latency decides, with its time; empty if it does not, or was not measured.

    Args:
        calibration: of the GPU, where there is one.
        conditions: under which the time was taken.
        time_ns: of the fastest.
        tied: whether others are statistically tied with it.
    """
    if calibration is None or not calibration.launch_decides(conditions, time_ns, tied=tied):
        return ""
    empty = duration(calibration.launch_ns[str(conditions.mode)])
    same = ", and the fastest are tied" if tied else ""
    return f"launch latency decides: {duration(time_ns)}, where a kernel that copies 512 bytes takes {empty}{same}"


def edges_text(winner: Winner) -> str:
    """Return whether a winner is right at edge-case sizes."""
    return "right at edge-case sizes" if winner.edges_verified else "verified at no edge-case size"


def confirmation_text(winner: Winner, *, replayed: bool) -> str:
    """Return whether a winner was confirmed, and how."""
    if replayed:
        return "recorded samples only, not confirmed"
    if not winner.exportable:
        return ": ".join(filter(None, ("no", winner.reason)))
    again = f"{duration(winner.confirmed_ns)} in a fresh process" if winner.confirmed_ns else "yes"
    only = RESERVATIONS.get(winner.checked_against, "")
    return ", ".join(filter(None, (again, edges_text(winner), only)))


def timed_text(time_ns: float, metrics: Metrics, ends: str = "") -> str:
    """Return a time, perhaps with its interval, and what it means: ``190.1 us, 3.2 TFLOP/s, 81.0 % of peak``."""
    peak = f"{percent(metrics.of_peak)} of peak" if metrics.of_peak else ""
    return ", ".join(filter(None, (f"{duration(time_ns)}{ends}", throughput(metrics), peak)))
