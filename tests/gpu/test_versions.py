"""Two versions of a kernel in one race."""

from __future__ import annotations

import shutil
from pathlib import Path

from tuner.core.conditions import Mode
from tuner.core.model import Configuration
from tuner.core.stats import paired_ratio
from tuner.devices.base import Contestant, RaceRequest
from tuner.devices.local import LocalDevice
from tuner.kernel.load import load_kernel
from tuner.kernel.spec import KernelSpec

ROOT = Path(__file__).parents[2]
IDLE = 'extern "C" __global__ void %s(const void*, const void*, void*, int, int, int) {}'


def loaded_from(checkout: Path, folder: Path) -> KernelSpec:
    """Return a checkout's gemm, from a copy: templates are looked up beside its file first."""
    for part in ("templates", "search_spaces"):
        shutil.copytree(checkout / part, folder, dirs_exist_ok=True)
    return load_kernel(str(folder / "gemm.toml"))


def test_versions_run_on_the_same_data(device: LocalDevice, tmp_path: Path) -> None:
    """A copy of this version is as fast as it; one that computes nothing is found out."""
    new, same, idle = (
        load_kernel("gemm"),
        loaded_from(ROOT, tmp_path / "same"),
        loaded_from(ROOT, tmp_path / "idle"),
    )
    (launch,) = idle.variants["naive"].launches
    launch.template.write_text(IDLE % launch.entry)
    configuration = Configuration.of("naive", new.variants["naive"].defaults)
    device.prepare(new, new.problem({"m": 256, "n": 256, "k": 256}, {"": "float16"}, {"layout": "nt"}), 0)
    for mode in (None, Mode.WARM):
        race = device.race(
            RaceRequest([Contestant(configuration, kernel=same), Contestant(configuration)], 8, 8, 0, mode)
        )
        assert not race.failures
        old_ns, new_ns = (race.timed[i].medians_ns for i in range(2))
        assert 0.9 < paired_ratio(old_ns, new_ns).median < 1.1
    race = device.race(
        RaceRequest([Contestant(configuration), Contestant(configuration, kernel=idle)], 8, 8, 0)
    )
    assert list(race.failures) == [1]
