"""The problems of a fleet, from the queue to their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from msgspec import structs

from tuner.core.model import Gpu, Run, RunOptions
from tuner.database.records import Mark
from tuner.fleet.messages import Task


@dataclass(eq=False)
class Job:
    """A problem to be tuned."""

    number: int
    """Its place in the order that the user gave."""
    task: Task
    """What is sent of it, but for the key and what it goes on with."""
    estimate_s: float = 0.0
    """How long it may take, compared with the others: the longest begin first."""
    going_on: Run | None = None
    """The interrupted run that it goes on with."""
    mark: Mark | None = None
    """What was known when that began."""
    devices: list[str] = field(default_factory=list)
    """Where it was given out, in order."""
    failures: int = 0
    """How often a searcher ended with it, or its device failed."""
    cuts: int = 0
    """How often the way to its searcher was cut, since there was a new trial."""
    trials: int = 0
    """Trials that its run had when it was given out last."""

    compared: Sequence[Job] = ()
    """The problems whose times will be compared with its own, with itself; they stay on one device."""
    settle: Callable[[Gpu], RunOptions] | None = None
    """Returns how it is tuned on a GPU; None leaves that to the task."""
    too_inaccurate: bool = False
    """Whether it failed because no kernel of its dtype can be within the bound on the error."""
    worth: str = ""
    """What it is worth to a program, where that is known."""
    time_s: Callable[[], float | None] | None = None
    """Returns how long it may be searched if it begins now, within the time of the task; None for no limit."""

    @property
    def has_time(self) -> bool:
        """Whether any time is left for it."""
        time_s = self.time_s() if self.time_s is not None else None
        return time_s is None or time_s > 0.0

    def give_out(self, device: str, gpu: Gpu | None) -> Task:
        """Return the task to send to a device now, which has such a GPU."""
        self.devices.append(device)
        key = f"{self.number}.{len(self.devices)}"
        options = self.settle(gpu) if self.settle is not None and gpu is not None else self.task.options
        limits_s = [self.time_s() if self.time_s is not None else None, options.time_s]
        options = replace(options, time_s=min((s for s in limits_s if s is not None), default=None))
        return structs.replace(self.task, key=key, options=options, going_on=self.going_on, mark=self.mark)

    @property
    def name(self) -> str:
        """The problem, as a user reads it."""
        return str(self.task.problem)
