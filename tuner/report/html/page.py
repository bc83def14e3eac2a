"""The page: HTML by Jinja, with everything in it, under a policy that allows nothing from elsewhere.

Names come from databases of others. They enter the HTML escaped, the script as JSON in an element of its own that they
cannot end, and the figures as text on a canvas. The browser runs the two scripts and the style that the policy names by
their digests, and nothing else, and asks no server for anything.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from tuner.core.model import Value, value_text
from tuner.core.version import __version__
from tuner.report.configurations import StoredTexts
from tuner.report.html.comparison_figures import comparison, history, overview
from tuner.report.html.parameter_figures import parameter_figures
from tuner.report.html.roofline_figures import roofline, rooflines
from tuner.report.html.run_figures import clocks, convergence, facts, outcomes, samples
from tuner.report.html.subjects import Subjects, TunedProblem
from tuner.report.layout import kept_together
from tuner.report.tables import duration, percent, problem_text, speedup, throughput
from tuner.report.terminal import printable

ASSETS = Path(__file__).parent / "assets"
LONGEST = 1000
"""Characters of a name or message in a cell or figure; longer ones are cut."""


def page(subjects: Subjects, what: str, database: Path, moment: str) -> str:
    """Return the page.

    Args:
        subjects: what it is about.
        what: that in words, for the title.
        database: where it was read.
        moment: when, in UTC.
    """
    figures = []
    if len(subjects.best) > 1:
        figures = [overview(subjects.best), *rooflines(subjects.best)]
    sections = [_section(number, one) for number, one in enumerate(subjects.problems)]
    drawn = {one.key: {"kind": one.kind, **one.data} for one in figures}
    drawn |= {f"{of['key']}-{f.key}": {"kind": f.kind, **f.data} for of in sections for f in of["figures"]}
    style, library = _asset("page.css"), _asset("echarts.min.js")
    script = "\n".join(map(_asset, ("common.js", "search.js", "timing.js", "page.js")))
    script = f'"use strict";\n(() => {{\n{script}}})();'
    environment = Environment(
        loader=FileSystemLoader(ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_written,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2").render(
        what=what,
        database=str(database),
        moment=moment,
        version=__version__,
        figures=figures,
        sections=sections,
        several=len({(one["gpu"], one["replayed"]) for one in sections}) > 1,
        not_detailed=subjects.not_detailed,
        damaged=subjects.damaged[:20],
        policy=Markup(_policy(style, library, script)),
        style=Markup(style),
        library=Markup(library),
        script=Markup(script),
        data=Markup(script_json(drawn)),
    )


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _policy(style: str, *scripts: str) -> str:
    """Return the content security policy: these texts, and nothing else."""
    allowed = " ".join(map(_digest, scripts))
    return f"default-src 'none'; script-src {allowed}; style-src {_digest(style)}; base-uri 'none'; form-action 'none'"


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def script_json(value: Any) -> str:
    """Return JSON that no text in it can end a script element with: in ASCII, without < and &; NaN becomes null."""
    dumped = json.dumps(_plain(value), separators=(",", ":"), allow_nan=False)
    return dumped.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return _shown(value) if isinstance(value, str) else value


def _shown(value: Any) -> Any:
    """Return a text without characters that are not seen or turn it around, and without the end of a very long one."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    seen = printable(value)
    return seen if len(seen) <= LONGEST else f"{seen[:LONGEST]}..."


def _written(value: Any) -> Any:
    """Return a text as the page's HTML has it: no line ends before a unit."""
    shown = _shown(value)
    return kept_together(shown) if isinstance(shown, str) and not isinstance(shown, Markup) else shown


def _section(number: int, problem: TunedProblem) -> dict[str, Any]:
    """Return a problem on a GPU as the page shows it: of its configuration, also what is not the default's."""
    run, winner = problem.run, problem.winner
    importance, effects, lines = parameter_figures(problem)
    figures = [
        comparison(problem),
        convergence(problem),
        importance,
        roofline(problem),
        effects,
        lines,
        outcomes(problem),
        samples(problem),
        clocks(problem),
        history(problem),
    ]
    usual = _defaults(problem)
    chosen = winner.winner.configuration if winner else None
    return {
        "key": f"problem-{number + 1}",
        "kernel": run.problem.kernel,
        "problem": problem_text(run.problem),
        "gpu": f"{run.gpu.name}, {run.conditions}",
        "replayed": run.replayed,
        "state": "" if problem.state == "finished" else problem.state,  # as it should
        "headline": _headline(problem),
        "variant": chosen.variant if chosen else "",
        "configuration": [
            (name, value_text(value), name in usual and usual[name] != value)
            for name, value in (chosen.parameters if chosen else ())
        ],
        "figures": [one for one in figures if one],
        "facts": facts(problem),
    }


def _defaults(problem: TunedProblem) -> Mapping[str, Value]:
    """Return the default values of the winner's variant: those that ran, else those of the kernel's file."""
    if problem.winner is None:
        return {}
    variant = problem.winner.winner.configuration.variant
    ran = problem.default.configuration if problem.default else None
    return ran.values if ran and ran.variant == variant else StoredTexts().of(problem.run).defaults(variant)


def _headline(problem: TunedProblem) -> list[tuple[str, str, str]]:
    if problem.winner is None:
        if not (times := [one.time_ns for one in problem.timed if one.time_ns]):
            return [("winner", "none", "no configuration was verified and timed")]
        return [("winner", "none", f"no race was held; the fastest trial took {duration(min(times))}")]
    winner, metrics = problem.winner.winner, problem.winner.metrics
    better = problem.stored_best
    of_another = f"; {duration(better.winner.time_ns)} in run {better.run.id[:8]}" if better else ""
    why = f"; {problem.why_not_the_fastest}" if problem.why_not_the_fastest else ""
    listed = [("winner", duration(winner.time_ns), throughput(metrics) + of_another + why)]
    if winner.ratio:
        compared = speedup(winner.ratio, winner.ratio_low, winner.ratio_high, winner.verdict)
        listed.append(("versus the default", f"{winner.ratio:.3f}x", compared.partition(" ")[2].strip()))
    if metrics.speed_of_light:
        least = duration(metrics.speed_of_light * winner.time_ns)
        said = f"100 % is {least}, the least time that the hardware allows"
        listed.append(("of the speed of light", percent(metrics.speed_of_light), said))
    if problem.run.replayed:
        listed.append(("confirmed", "no", "recorded samples only: measure on a GPU before relying on it"))
    elif winner.exportable:
        edges = "right at edge-case sizes" if winner.edges_verified else "verified at no edge-case size"
        again = duration(winner.confirmed_ns) if winner.confirmed_ns else "yes"
        listed.append(("confirmed", again, f"in a fresh process; {edges}"))
    else:
        listed.append(("confirmed", "no", winner.reason))
    return listed
