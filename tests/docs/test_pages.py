"""The figures of the README and of docs/ are what ``scripts/pages.py`` writes from the evidence."""

from __future__ import annotations

import pytest

from scripts import pages
from scripts.page_figures import evidence, faults

ROOT = pages.ROOT

pytestmark = pytest.mark.skipif(
    not (ROOT / "results" / "evidence").is_dir(), reason="needs the evidence of a checkout"
)


def test_pages_are_what_the_script_writes() -> None:
    """Where it fails: scripts/run python scripts/pages.py, and read the difference."""
    assert [page.name for page in pages.differences()] == []


def test_a_figure_that_was_edited_is_written_again() -> None:
    page = ROOT / "docs" / "measuring.md"
    text = page.read_text()
    inside = text.partition("<!-- figures: measuring.worst_claim -->")[2].partition("<!-- end -->")[0]
    assert inside
    edited = text.replace(f"worst_claim -->{inside}", "worst_claim -->0.01 %").replace("| 2^10 |", "| 2^11 |")
    assert edited != text and pages.filled(edited) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- figures: guessed -->\n<!-- end -->", "no figure is called guessed"),
        ("<!-- figures: measuring.modes -->\n| old |", "a marker without the other"),
        ("| old |\n<!-- end -->", "a marker without the other"),
    ],
)
def test_mistaken_markers_are_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pages.filled(text)


def test_the_table_of_the_exam_names_what_was_not_as_it_must_be() -> None:
    def one(name: str, reason: str, **more: object) -> dict[str, object]:
        return {"name": name, "reason": reason, "as_expected": reason != "right", **more}

    found = [one("a.cu", "repeats", gpu="H", versions={"driver": "13.0"}), one("b.py", "right")]
    data = {"attacks": {"seconds": 99.6, "at_once": 10, "candidates": found}}
    said = evidence.shown("exam", data, faults.exam)
    assert "| attacks, compiled | 1 | 1 | `repeats` 1 |\n| attacks, Python | 1 | 0 | `right` 1 |" in said
    assert "attacks in 100 s, 10 at once" in said and "b.py was `right`" in said
