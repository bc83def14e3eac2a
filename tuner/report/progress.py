"""Progress on the standard error: a panel on a terminal, lines elsewhere; and what a run says of itself meanwhile."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from rich.console import Console, Group
from rich.file_proxy import FileProxy
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.text import Text

from tuner.core import signals
from tuner.core.model import Trial
from tuner.core.observer import Observer
from tuner.kernel.space import by_reason, space_size
from tuner.report.configurations import Texts, timed_text
from tuner.report.layout import message_lines
from tuner.report.tables import counted, percent, say
from tuner.report.terminal import below, escaping, printable
from tuner.tuning.state import SEARCHED, SEARCHING, State, metrics

PLAIN_EVERY_S = 5.0
BETTER_EVERY_S = 0.5
"""From one line to the next about a better configuration, where lines stay."""
REDRAW_EVERY_S = 0.1
MOST_REASONS = 2
"""Why variants are left out, a line each: more would hide what matters."""
T = TypeVar("T")


class Progress(Observer[T]):
    """Shows progress on the standard error: a panel on a terminal, lines now and then elsewhere.

    The panel is a bar with a few lines that are redrawn in place, from the first step until :meth:`close`. What others
    print meanwhile appears above it, and is escaped like all that is printed.

    Args:
        lines_of: what is shown of this as it is at a step.
        plain_every_s: from one step that is shown to the next where lines stay; infinity for none.
        at_once: show the first step, too, where lines stay.
    """

    def __init__(
        self,
        lines_of: Callable[[Progress[T]], Sequence[str]],
        plain_every_s: float = PLAIN_EVERY_S,
        *,
        at_once: bool = False,
    ) -> None:
        self._lines_of, self._every_s = lines_of, plain_every_s
        self.live = sys.stderr.isatty()
        self._panel: Live | None = None
        self._bar = ProgressBar(width=40)
        self._said = -math.inf if at_once else time.monotonic()
        """When a step was shown."""
        self.what, self.steps, self.done = "", 0.0, -1.0
        self._first: tuple[float, float] | None = None
        """When the first step of the phase was told, and how many were done then."""

    def phase(self, what: str, steps: float = 0) -> None:
        """Count from here, and show nothing yet."""
        self.what, self.steps, self.done, self._first = what, steps, -1.0, None

    def step(self, now: T, done: float | None = None) -> None:
        """Show where the work is, unless that was done a moment ago."""
        super().step(now)
        self.done = self.done + 1 if done is None else done
        first = self._first is None
        self._first = self._first or (time.monotonic(), self.done)
        silent_s = time.monotonic() - self._said
        if self.live:
            if self._panel is None or first or silent_s >= REDRAW_EVERY_S:
                self._said = time.monotonic()
                self._draw()
        elif self._due(silent_s):
            self._said = time.monotonic()
            for line in self._lines_of(self):
                self.note(line)

    def _due(self, silent_s: float) -> bool:
        """Return whether to show a step where lines stay, so long after the last one."""
        return silent_s >= self._every_s

    def _draw(self) -> None:
        if self._panel is None:
            self._panel = Live(console=Console(file=below(sys.stderr)), auto_refresh=False, transient=True)
            self._panel.start()
            if isinstance(sys.stdout, FileProxy):
                sys.stdout, sys.stderr = escaping(sys.stdout), escaping(sys.stderr)
        texts = [Text(printable(line), overflow="ellipsis", no_wrap=True) for line in self._lines_of(self)]
        self._bar.update(self.done, total=self.steps)
        # Without the padding a bar does not end its line.
        self._panel.update(Group(Padding(self._bar), *texts), refresh=True)
        signals.drawn_lines = 1 + len(texts)

    def note(self, text: str) -> None:
        """Print a line, above the panel."""
        for part in message_lines(printable(text)):
            if self._panel is not None:
                self._panel.console.print(part, highlight=False, markup=False, soft_wrap=True)
            else:
                print(part, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Remove the panel, and give the cursor back; the next step shows it again."""
        if self._panel is not None:
            signals.drawn_lines = 0
            self._panel.stop()
            self._panel = None

    @property
    def left(self) -> str:
        """What a phase takes yet, if it goes on as it did so far: ``, about 40 s left``; empty before a second step."""
        began, before = self._first or (0.0, self.done)
        if self.done <= before:
            return ""
        left_s = (time.monotonic() - began) / (self.done - before) * (self.steps - self.done)
        return f", about {left_s:.0f} s left" if left_s < 100 else f", about {left_s / 60:.0f} min left"


def counted_line(progress: Progress[str]) -> list[str]:
    """Return how far a phase is, in one line: ``comparing: 3 of 12, about 40 s left: gemm m=512``."""
    now = f": {progress.now}" if progress.now else ""
    return [f"{progress.what}: {max(int(progress.done), 0)} of {progress.steps:.0f}{progress.left}{now}"]


def counting(*, quiet: bool, every_s: float = PLAIN_EVERY_S, at_once: bool = False) -> Observer[str]:
    """Return what shows how far the phases of some work are, as :func:`counted_line` says it, or notes alone."""
    return _Notes() if quiet else Progress(counted_line, every_s, at_once=at_once)


class _Notes(Observer[str]):
    def note(self, text: str) -> None:
        """Say it."""
        say(text)


class RunProgress(Progress[State]):
    """Shows the progress of a run.

    Args:
        shown: notes that the user has seen already, which are not repeated.
        full: also say how it is timed, and what is left out.
    """

    def __init__(self, shown: Collection[str] = (), *, full: bool = False) -> None:
        super().__init__(self._of_run)
        self._shown, self._full = shown, full
        self._last: tuple[Trial | None, float] = (None, 0.0)
        """The incumbent, and how many trials had ended, when a line was last printed."""

    def step(self, now: State, done: float | None = None) -> None:
        """Show how far the run is; at its beginning, what is tuned where."""
        if self.now is None:
            for line in heading(now, self._shown, full=self._full):
                self.note(line)
        super().step(now, done)

    def phase(self, what: str, steps: float = 0) -> None:
        """Print what begins; at the search's end, how far it came."""
        super().phase(what, steps)
        if what == SEARCHED and self.now is not None:
            self.close()
            self.note(progress_line(self.now))
        elif what != SEARCHING:
            self.note(what)

    def _due(self, silent_s: float) -> bool:
        assert self.now is not None
        best, ended = self._last
        better = self.now.incumbent is not best and silent_s > BETTER_EVERY_S
        return self.done != ended and (better or super()._due(silent_s))

    def _of_run(self, _: Progress[State]) -> list[str]:
        assert self.now is not None
        self._last = self.now.incumbent, self.done
        return panel_lines(self.now) if self.live else [progress_line(self.now)]


def heading(state: State, shown: Collection[str] = (), *, full: bool = False) -> list[str]:
    """Return what is tuned, where, in how large a space, with the notes that are not in ``shown``.

    With ``full`` also how it is timed, and all that is left out.
    """
    run, options, space = state.run, state.run.options, state.space
    size = space_size(len(space), space.size_before, space.about, f"{space.kind} configurations")
    lines = [
        f"tuning {run.problem} on {printable(run.gpu.name)} ({run.device})",
        f"{size}, variants {', '.join(variant.name for variant in space.variants)}; {options.sampler},"
        f" seed {options.seed}",
    ]
    if full:
        why = f": {state.conditions_why}" if state.conditions_why else ""
        lines.append(f"timed {run.conditions}{why}")
    if run.calibration:
        lines += [f"note: {printable(note)}" for note in run.calibration.notes if note not in shown]
    if full or len(set(space.left_out.values())) <= MOST_REASONS:
        lines += left_out_lines(space.left_out)
    if options.time_s is not None and not run.replayed:
        limit = f"no configuration begins after {options.time_s:.3g} s"
        if state.device.host_s > options.time_s:
            limit += f", and the reference alone took {state.device.host_s:.0f} s on the host"
        lines.append(f"{limit}; the race and the confirmation then take up to {math.ceil(state.finish_s)} s")
    if state.known_before:
        lines.append(f"{state.known_before} configurations are known from earlier runs and not tried again")
    if taught := state.taught.results:
        sources = " and ".join(sorted(state.taught.of))
        lines.append(f"{taught} results of {sources} guide the search; their winners are tried first")
    lines += [f"no search is guided by {printable(line)}" for line in state.taught.unlike]
    if state.trials:
        lines.append(f"resuming after {counted(len(state.trials), 'trial')}")
    return lines


def left_out_lines(left_out: Mapping[str, str]) -> list[str]:
    """Return a line for each reason why variants are not searched; one line if there are many reasons."""
    reasons = by_reason(left_out)
    if len(reasons) > MOST_REASONS:
        return [
            f"left out, because the problem does not suit them (tune show says why): {', '.join(left_out)}"
        ]
    return [f"left out: {', '.join(names)}: {reason}" for reason, names in reasons.items()]


def panel_lines(state: State) -> list[str]:
    """Return a run's progress in lines that fit a narrow terminal: trials, best time, its configuration, failures."""
    best = state.incumbent
    lines = ["  ".join(_how_far(state))]
    if best:
        texts = Texts.of_space(state.space, foreign=bool(state.run.foreign))
        lines += [_how_fast(state, best), texts(best.configuration)]
    else:
        lines.append("nothing verified yet")
    if last := "  ".join(reversed(_what_happened(state))):  # the failures last: they may be many
        lines.append(last)
    return lines


def progress_line(state: State) -> str:
    """Return a run's progress as a line."""
    best = state.incumbent
    parts = [*_how_far(state), *([_how_fast(state, best)] if best else []), *_what_happened(state)]
    return "  ".join(parts)


def _how_far(state: State) -> list[str]:
    done, total = len(state.trials), state.expected
    rate = (done - state.resumed_trials) / state.elapsed_s if state.elapsed_s > 0 else 0.0
    parts = [f"trial {done} of {total}", f"{rate:.{1 if rate < 10 else 0}f}/s"]
    if rate > 0 and done < total and not state.search_ended:
        parts.append(f"ETA {(total - done) / rate:.0f} s")
    return parts


def _how_fast(state: State, best: Trial) -> str:
    return f"best {timed_text(best.time_ns or 0.0, metrics(state.roof, best.time_ns))}"


def _what_happened(state: State) -> list[str]:
    parts = []
    if state.failures:
        failures = ", ".join(f"{count} {status}" for status, count in sorted(state.failures.items()))
        parts.append(f"failed: {failures}")
    if state.retimed:
        parts.append(f"timed again: {state.retimed}")
    if state.occupied is not None:
        parts.append(f"GPU occupied {percent(state.occupied)}")
    return parts
