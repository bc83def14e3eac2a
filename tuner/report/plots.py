"""Figures as PNG or SVG, where matplotlib is installed: what all of them share."""

from __future__ import annotations

import logging
import math
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.core.conditions import Calibration
from tuner.core.errors import TunerError, UsageError
from tuner.core.files import refuse_to_replace, whole_file
from tuner.core.model import Gpu
from tuner.kernel.roofline import peak_flops, pipe_of
from tuner.report.terminal import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SUFFIXES = (".png", ".svg")
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999999", "#000000")
"""Told apart with any common colour blindness (Okabe and Ito 2008); the first is the one that matters."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
MAX_LABEL = 90
"""Characters of a label; a longer one is cut."""
MEMORY, PIPES = "memory", {"vector": "vector units", "matrix": "tensor cores"}
MEASURED = ", measured"
"""Ends the name of a ceiling that is not the data sheet's."""
LEAST_RATE = 1e3
"""Bytes or FLOP per second."""


def check_plot(path: Path) -> None:
    """Make sure, before anything is measured, that a figure can be drawn there.

    Raises:
        UsageError: another kind of file, no such folder, or nothing can be written there.
        TunerError: matplotlib is not installed, or its settings are wrong.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"--plot {path}", f"the file's name ends in {' or '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise UsageError(f"--plot {path}: there is no folder {path.parent}", "make it first")
    try:
        refuse_to_replace(path)
        with tempfile.TemporaryFile(dir=path.parent):  # permissions alone do not tell for every file system
            pass
    except OSError as error:
        problem = f"--plot {path}: cannot write there: {error.strerror}"
        raise UsageError(problem, "choose a file in a folder of your own") from None
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # of a home that cannot be written
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise TunerError("figures need matplotlib", "in the checkout: pip install '.[plot]'") from None
    except Exception as error:  # noqa: BLE001 - of its settings
        said = " ".join(str(error).split())
        raise TunerError(f"matplotlib does not start: {said}", "see MPLBACKEND and matplotlibrc") from None


def ceilings(gpu: Gpu, dtypes: Iterable[str], calibration: Calibration | None) -> dict[str, float]:
    """Return what bounds the rates of a GPU by names: the memory in bytes a second, arithmetic units in FLOP.

    They are those of the data sheet, then what a calibration has reached, as far as they are known.
    """
    rates = {MEMORY: gpu.memory_bytes_per_s}
    for dtype in dtypes:
        for pipe in dict.fromkeys(("vector", pipe_of(gpu, dtype, "matrix"))):
            rates[", ".join(filter(None, (PIPES[pipe], dtype)))] = peak_flops(gpu, dtype, pipe)
    if calibration is not None:
        rates[f"{MEMORY}{MEASURED}"] = max(calibration.read_bytes_per_s, calibration.copy_bytes_per_s)
        reached = {
            "vector": ("float32", calibration.vector_flops),
            "matrix": ("float16", calibration.matrix_flops),
        }
        for pipe, (dtype, flops) in reached.items():
            if (name := f"{PIPES[pipe]}, {dtype}") in rates:
                rates[f"{name}{MEASURED}"] = flops
    return {name: rate for name, rate in rates.items() if LEAST_RATE < rate < math.inf}


def make_logarithmic(
    axes: Axes, which: str, steps: Sequence[float] = (), text: Callable[[float], str] = "{:g}".format
) -> None:
    """Scale one axis by powers of ten, with plain numbers beside it; times, whose range is narrow, get 2 and 5, too.

    Args:
        axes: the panel.
        which: ``x`` or ``y``.
        steps: between powers of ten; by default of an ``x`` axis 1, 2 and 5, for that has times, else 1.
        text: what is written beside a value.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set(**{f"{which}scale": "log"})
    axis = getattr(axes, f"{which}axis")
    axis.set_major_locator(LogLocator(subs=steps or ((1.0, 2.0, 5.0) if which == "x" else (1.0,))))
    axis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))
    axis.set_minor_formatter(NullFormatter())


def short(text: str) -> str:
    """Return a label that fits, without what a renderer would choke on."""
    text = printable(text)
    return text if len(text) <= MAX_LABEL else f"{text[: MAX_LABEL - 3]}..."


@contextmanager
def sheet(
    path: Path,
    width: float,
    height: float,
    rows: int = 1,
    grid: str = "x",
    heights: Sequence[float] | None = None,
) -> Iterator[tuple[Figure, Sequence[Axes]]]:
    """Return an empty figure of panels below each other, and write it at the end; equal content gives an equal SVG.

    Args:
        path: a ``.png`` or ``.svg`` file, which is replaced.
        width: in inches, as the height.
        height: of all panels together.
        rows: panels, which share what is to the left and right.
        grid: ``x``, ``y`` or ``both``: the lines behind the data.
        heights: of the panels, relative to each other; with these they share nothing.

    Raises:
        UsageError, TunerError: as :func:`check_plot`.
    """
    check_plot(path)
    from matplotlib import style
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    plain = {"text.parse_math": False, "svg.fonttype": "none", "svg.hashsalt": "kernel-tune"}
    with style.context(["default", plain]):  # whatever the user's own settings are
        # Not by pyplot: nothing global is left behind, and no display is looked for.
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(rows, 1, squeeze=False, sharex=heights is None, height_ratios=heights)[:, 0]
        for axes in panels:
            axes.grid(axis=grid, color="#dddddd")
            axes.set_axisbelow(True)
            axes.spines[["top", "right"]].set_visible(False)
        yield figure, panels
        kind = path.suffix.lower().removeprefix(".")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a glyph that the font lacks is drawn as a box
            with whole_file(path, replace=True) as partial:
                metadata = {"Date": None} if kind == "svg" else None
                figure.savefig(partial, format=kind, dpi=150, metadata=metadata)
