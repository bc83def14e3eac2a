"""What tests of judging share."""

from __future__ import annotations

from tests.studies.judging.judged import judge, pool

__all__ = ["judge", "pool"]
