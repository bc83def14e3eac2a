"""The marker of tests that need several GPUs."""

from __future__ import annotations

import pytest

from tuner.cli.fleet import visible_gpus
from tuner.devices.started import has_gpu

several = pytest.mark.skipif(
    not has_gpu() or len(visible_gpus().names) < 2, reason="needs two GPUs of one model"
)
