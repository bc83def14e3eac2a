"""The fixture that measures a candidate of a scripted session."""

from __future__ import annotations

from tests.gpu_process.scripted_session import measured  # noqa: F401 - a fixture
