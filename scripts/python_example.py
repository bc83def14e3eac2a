"""The README's first example, as a user runs it: what it prints, and with ``--plot`` a figure of its search.

    scripts/run python scripts/python_example.py --out results/evidence/python-example.txt

Without a GPU it replays a recording, and says so. The figure of docs/index.md is made by
``--plot docs/images/search-matmul.svg``.
"""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import tempfile
from pathlib import Path

from scripts.harness import parser
from tuner.report.run_plot import plot_run

EXAMPLE = Path(__file__).resolve().parents[1] / "docs" / "examples" / "matmul"


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--plot", type=Path)
    given = options.parse_args()
    out, plot = given.out.resolve(), given.plot and given.plot.resolve()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as printed:
        for file in EXAMPLE.iterdir():
            (Path(folder) / file.name).write_bytes(file.read_bytes())
        with contextlib.chdir(folder):
            result = runpy.run_path("tune.py")["r"]
    out.write_text(printed.getvalue())
    if plot:
        plot_run(result._result, plot)
    os.write(2, printed.getvalue().encode())


if __name__ == "__main__":
    main()
