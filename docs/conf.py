"""Build the documentation site: Sphinx, Markdown by MyST, the furo theme.

scripts/run pip install --group docs
scripts/run sphinx-build -W --keep-going docs build/site
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from sphinx.application import Sphinx

from tuner import __version__

project = "kernel-tune"
copyright = "the kernel-tune authors"
version = release = __version__
extensions = ["myst_parser"]
myst_heading_anchors = 4
exclude_patterns = ["examples"]
root_doc = "index"
smartquotes_action = "qe"  # not dashes: --size is an option
html_theme = "furo"
html_title = f"kernel-tune {__version__}"
html_static_path = ["_static"]
html_css_files = ["site.css"]

# The site's names of pages that lie beside docs/; docs/project/ has a stand-in for each.
BESIDE = {
    "CHANGELOG.md": "project/changelog.md",
    "CODE_OF_CONDUCT.md": "project/code-of-conduct.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "results/evidence/README.md": "project/evidence.md",
    "results/recorded/README.md": "project/recorded-spaces.md",
}
ROOT = Path(__file__).resolve().parents[1]


def _read(_app: Sphinx, name: str, source: list[str]) -> None:
    """Take the page beside docs/ in place of its stand-in, and mend links between the two."""
    page = ROOT / "docs" / f"{name}.md"
    original = next((ROOT / beside for beside, at in BESIDE.items() if at == f"{name}.md"), page)

    def link(old: re.Match[str]) -> str:
        target = (original.parent / old[1]).resolve()
        target = ROOT / "docs" / BESIDE.get(str(target.relative_to(ROOT)), target)
        if not target.is_relative_to(ROOT / "docs") or target.is_dir():
            return old[0] if original == page else ""
        return f"]({os.path.relpath(target, page.parent)}{old[2]})"

    source[0] = re.sub(r"\]\(([\w./-]+)((?:#[\w-]+)?)\)", link, original.read_text(encoding="utf-8"))


def setup(app: Sphinx) -> None:
    """Read pages by :func:`_read`."""
    app.connect("source-read", _read)
