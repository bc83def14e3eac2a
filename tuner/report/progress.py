"""The progress of a run on the standard error: a live panel on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterable, Mapping

from rich.console import Console, Group
from rich.file_proxy import FileProxy
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.text import Text

from tuner.core import signals
from tuner.core.model import Trial
from tuner.report.configurations import Texts
from tuner.report.layout import message_lines
from tuner.report.tables import counted, duration, percent, throughput
from tuner.report.terminal import below, escaping, printable
from tuner.tuning.state import State
from tuner.tuning.trials import metrics

PLAIN_EVERY_S = 5.0
REDRAW_EVERY_S = 0.1
MOST_REASONS = 2
"""Why variants are left out, a line each: more would hide what matters."""


def make_observer(quiet: bool, shown: Collection[str] = ()) -> SilentProgress:
    """Return what shows progress; notes that the user has seen already are not repeated."""
    if quiet:
        return SilentProgress()
    return _Live(shown) if sys.stderr.isatty() else _Plain(shown)


class SilentProgress:
    """Shows nothing, and knows the run."""

    state: State | None = None

    def started(self, state: State) -> None:
        """Keep the state, which the run goes on to fill in."""
        self.state = state

    def trial(self, state: State, trial: Trial) -> None:
        """Show nothing."""

    def phase(self, state: State, what: str) -> None:
        """Show nothing."""

    def tick(self, state: State) -> None:
        """Show nothing."""

    def close(self) -> None:
        """End nothing."""


class _Plain(SilentProgress):
    """A line at the start, at each better configuration, and every few seconds."""

    def __init__(self, shown: Collection[str] = ()) -> None:
        self._shown = shown
        self._last = time.monotonic()
        self._best: Trial | None = None

    def started(self, state: State) -> None:
        super().started(state)
        for line in heading(state, self._shown):
            _print(line)

    def trial(self, state: State, trial: Trial) -> None:  # noqa: ARG002 - the observer's signature
        now = time.monotonic()
        if (state.incumbent is not self._best and now - self._last > 0.5) or now - self._last > PLAIN_EVERY_S:
            self._best, self._last = state.incumbent, now
            _print(progress_line(state))

    def phase(self, state: State, what: str) -> None:
        _print(progress_line(state) if what == "searched" else what)


def _print(line: str) -> None:
    print("\n".join(message_lines(printable(line))), file=sys.stderr, flush=True)


class Panel:
    """A bar and a few lines on the standard error that are redrawn in place, and gone when it stops."""

    def __init__(self) -> None:
        self.live = Live(console=Console(file=below(sys.stderr)), auto_refresh=False, transient=True)
        self._bar = ProgressBar(width=40)
        self._drawn = 0.0

    @property
    def due(self) -> bool:
        """Whether it was drawn long enough ago to be drawn again."""
        return time.monotonic() - self._drawn >= REDRAW_EVERY_S

    def start(self) -> None:
        """Show it. What others print until it stops appears above it, and is escaped like all that is printed."""
        self.live.start()
        if isinstance(sys.stdout, FileProxy):
            sys.stdout, sys.stderr = escaping(sys.stdout), escaping(sys.stderr)

    def draw(self, done: float, total: float, lines: Iterable[str]) -> None:
        """Show so much of the bar, and these lines below it."""
        self._drawn = time.monotonic()
        self._bar.update(done, total=total)
        texts = [Text(printable(line), overflow="ellipsis", no_wrap=True) for line in lines]
        # Without the padding a bar does not end its line.
        self.live.update(Group(Padding(self._bar), *texts), refresh=True)
        signals.drawn_lines = 1 + len(texts)

    def stop(self) -> None:
        """Remove it, and give the cursor back; once more does nothing."""
        signals.drawn_lines = 0
        self.live.stop()


class _Live(SilentProgress):
    """A panel; what stays is printed above it."""

    def __init__(self, shown: Collection[str] = ()) -> None:
        self._shown = shown
        self._panel = Panel()

    def started(self, state: State) -> None:
        super().started(state)
        for line in heading(state, self._shown):
            self._print(line)
        self._panel.start()

    def trial(self, state: State, trial: Trial) -> None:  # noqa: ARG002
        self._draw(state)

    def tick(self, state: State) -> None:
        self._draw(state)

    def phase(self, state: State, what: str) -> None:
        if what == "searched":
            self._panel.stop()
            what = progress_line(state)
        self._print(what)

    def close(self) -> None:
        # The cursor is hidden until the panel stops, however the run ended.
        self._panel.stop()

    def _print(self, line: str) -> None:
        for part in message_lines(printable(line)):
            self._panel.live.console.print(part, highlight=False, markup=False, soft_wrap=True)

    def _draw(self, state: State) -> None:
        if self._panel.due:
            self._panel.draw(len(state.trials), state.budget, panel_lines(state))


def heading(state: State, shown: Collection[str] = ()) -> list[str]:
    """Return what is tuned, where, in how large a space, with the notes that are not in ``shown``."""
    run, space = state.run, state.space
    lines = [
        f"tuning {run.problem} on {printable(run.gpu.name)} ({run.device})",
        f"{len(space)} {space.kind} configurations of {space.size_before}"
        + (" (a sample)" if space.sampled else "")
        + f", variants {', '.join(variant.name for variant in space.variants)}; {run.sampler}, seed {run.seed}",
    ]
    why = f": {state.conditions_why}" if state.conditions_why else ""
    lines.append(f"timed {run.conditions}{why}")
    if run.calibration:
        lines += [f"note: {printable(note)}" for note in run.calibration.notes if note not in shown]
    lines += left_out_lines(space.left_out)
    if state.known_before:
        lines.append(f"{state.known_before} configurations are known from earlier runs and not tried again")
    if state.transferred:
        sources = " and ".join(sorted(state.transferred_from))
        lines.append(f"{state.transferred} results of {sources} are transferred")
    if state.trials:
        lines.append(f"resuming after {counted(len(state.trials), 'trial')}")
    return lines


def left_out_lines(left_out: Mapping[str, str]) -> list[str]:
    """Return a line for each reason why variants are not searched; one line if there are many reasons."""
    reasons: dict[str, list[str]] = {}
    for name, reason in left_out.items():
        reasons.setdefault(reason, []).append(name)
    if len(reasons) > MOST_REASONS:
        return [
            f"left out, because the problem does not suit them (tune show says why): {', '.join(left_out)}"
        ]
    return [f"left out: {', '.join(names)}: {reason}" for reason, names in reasons.items()]


def panel_lines(state: State) -> list[str]:
    """Return a run's progress in lines that fit a narrow terminal: trials, best time, its configuration, failures."""
    best = state.incumbent
    lines = ["  ".join(_how_far(state))]
    lines += (
        [
            _how_fast(state, best),
            Texts.of_space(state.space, foreign=bool(state.run.foreign))(best.configuration),
        ]
        if best
        else ["nothing verified yet"]
    )
    if last := "  ".join(reversed(_what_happened(state))):  # the failures last: they may be many
        lines.append(last)
    return lines


def progress_line(state: State) -> str:
    """Return a run's progress as a line."""
    best = state.incumbent
    parts = [*_how_far(state), *([_how_fast(state, best)] if best else []), *_what_happened(state)]
    return "  ".join(parts)


def _how_far(state: State) -> list[str]:
    done, total = len(state.trials), state.budget
    rate = (done - state.resumed_trials) / state.elapsed_s if state.elapsed_s > 0 else 0.0
    parts = [f"trial {done}/{total}", f"{rate:.{1 if rate < 10 else 0}f}/s"]
    if rate > 0 and done < total and not state.search_ended:
        parts.append(f"ETA {(total - done) / rate:.0f} s")
    return parts


def _how_fast(state: State, best: Trial) -> str:
    figures = metrics(state.roof, best.time_ns)
    text = ", ".join(filter(None, (f"best {duration(best.time_ns)}", throughput(figures))))
    if figures.speed_of_light is None:
        return text
    return f"{text}, {percent(figures.speed_of_light)} of the speed of light"


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
