"""The page: HTML by Jinja, with everything in it, under a policy that allows nothing from elsewhere.

Plotly's library and the data of figures and tables are in it compressed, and the page's script inflates them. Names
come from databases of others: they enter the HTML escaped, figures by :func:`tuner.report.html.drawing.inert`, and the
data as base64. The browser runs the two scripts that the policy names by their digests, and asks no server.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from tuner.core.version import __version__
from tuner.report.html import timing_figures, words
from tuner.report.html.drawing import ACCENT, DIM, SECOND, THIRD, Figure
from tuner.report.html.roofline_figures import roofline, rooflines
from tuner.report.html.study_figures import study_figures
from tuner.report.html.subjects import Subjects, TunedProblem
from tuner.report.layout import kept_together
from tuner.report.terminal import printable

ASSETS = Path(__file__).parent / "assets"
LONGEST = 1000
"""Characters of a name or message in a cell; longer ones are cut."""
WITHOUT_SCRIPTS = 50
"""Rows of the table of trials that the HTML has; the script shows all."""
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
THEMES = {"light": ("#1b1f24", "#e3e7ec", "#ffffff"), "dark": ("#e8eaed", "#323943", "#1c2026")}
"""Colours of text, lines and panels."""
Advice = Sequence[tuple[str, str, str]]
"""Verdict, what it is about, and why."""


def page(
    subjects: Subjects, what: str, database: Path, moment: str, advice: Mapping[str, Advice] | None = None
) -> str:
    """Return the page.

    Args:
        subjects: what it is about.
        what: that in words, for the title of several problems.
        database: where it was read.
        moment: when, in UTC.
        advice: what a look at the winner's code suggests, by the id of its run.
    """
    figures: list[Figure] = []
    if len(subjects.best) > 1:
        overview = timing_figures.overview(subjects.best)
        figures = [*([overview] if overview else []), *rooflines(subjects.best)]
    sections = [_section(number, one, advice or {}) for number, one in enumerate(subjects.problems, 1)]
    data = {
        "figures": {one.key: one.to_json() for one in figures}
        | {f"{of['key']}-{one.key}": one.to_json() for of in sections for one in of["figures"]},
        "tables": {f"{of['key']}-trials": of["trials"] for of in sections},
        "templates": {name: template(*colours) for name, colours in THEMES.items()},
    }
    environment = Environment(
        loader=FileSystemLoader(ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_written,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = _asset("page.js")
    return environment.get_template("page.html.j2").render(
        what=words.title(subjects.problems[0]) if len(sections) == 1 else what,
        database=str(database),
        moment=moment,
        version=__version__,
        figures=figures,
        sections=sections,
        words=words,
        not_detailed=subjects.not_detailed,
        damaged=subjects.damaged[:20],
        policy=Markup(
            f"default-src 'none'; script-src {_digest(script)} {_digest(get_plotlyjs())}; style-src 'unsafe-inline'; "
            "img-src data: blob:; base-uri 'none'; form-action 'none'"
        ),
        style=Markup(_asset("page.css")),
        library=Markup(packed(get_plotlyjs())),
        script=Markup(script),
        data=Markup(packed(data)),
    )


def packed(content: Any) -> str:
    """Return a text, or else JSON, compressed, in letters that can end no element and no literal."""
    if not isinstance(content, str):
        content = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(gzip.compress(content.encode(), mtime=0)).decode()


def template(ink: str, grid: str, panel: str) -> dict[str, Any]:
    """Return what Plotly draws of all figures alike, in the colours of a theme."""
    axis = {
        "gridcolor": grid,
        "zerolinecolor": grid,
        "linecolor": grid,
        "automargin": True,
        "title": {"standoff": 8},
    }
    clear = "rgba(0, 0, 0, 0)"
    return {
        "layout": {
            "font": {"family": FONT, "size": 12, "color": ink},
            "paper_bgcolor": clear,
            "plot_bgcolor": clear,
            "colorway": [ACCENT, SECOND, THIRD, DIM],
            "xaxis": axis,
            "yaxis": axis,
            "hoverlabel": {"bgcolor": panel, "bordercolor": grid, "font": {"family": FONT, "color": ink}},
            "legend": {"orientation": "h", "x": 0, "y": 1.01, "yanchor": "bottom"},
            "margin": {"l": 8, "r": 8, "t": 32, "b": 8},
            "modebar": {"bgcolor": clear, "color": DIM, "activecolor": ACCENT},
        }
    }


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _written(value: Any) -> Any:
    """Return a text as the HTML has it: with all characters seen, not endless, and no line that ends before a unit."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    seen = printable(value)
    return kept_together(seen if len(seen) <= LONGEST else f"{seen[:LONGEST]}...")


def _section(number: int, problem: TunedProblem, advice: Mapping[str, Advice]) -> dict[str, Any]:
    """Return what the page shows of a problem on a GPU besides what is said in words."""
    found = {one.key: one for one in study_figures(problem)}
    figures = [
        timing_figures.comparison(problem),
        *(found.get(key) for key in ("convergence", "importance")),
        roofline(problem),
        *(found.get(key) for key in ("slices", "parallel", "contour")),
        timing_figures.outcomes(problem),
        timing_figures.history(problem),
    ]
    trials = words.trials(problem)
    return {
        "key": f"problem-{number}",
        "problem": problem,
        "advice": advice.get(problem.run.id, ()),
        "figures": [one for one in figures if one],
        "trials": trials,
        "rows": list(zip(*(one["values"][:WITHOUT_SCRIPTS] for one in trials), strict=True)),
    }
