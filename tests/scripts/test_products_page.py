"""The page's table of products beside others."""

from __future__ import annotations

from typing import Any

from scripts.page_figures import evidence, races


def row(kernel: str, mode: str, ratio: float) -> dict[str, Any]:
    options = ["layout=nt", "op=x + bias"]
    return {"kernel": kernel, "gpu": "G", "mode": mode, "options": options, "rival": "torch", "ratio": ratio}


def test_means_are_by_options_and_mode() -> None:
    rows = [
        row("linear", "cold", 1.0),
        row("linear", "rotating", 4.0),
        row("linear", "warm", 3.0),
        row("bmm", "cold", 9.0),
    ]
    text = evidence.shown("products", rows, lambda: races.beside("linear"))
    assert "| linear layout=nt op=x + bias | torch | cold or rotating | 2 | 2.000 | 1.000 |" in text
    assert "| linear layout=nt op=x + bias | torch | warm | 1 | 3.000 | 3.000 |" in text
    assert "9.000" not in text and "\nG (" in text
