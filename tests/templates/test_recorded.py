"""The recordings that come with the package belong to the kernels that come with it, or with them."""

from __future__ import annotations

import functools
import random
from pathlib import Path

import pytest

from tuner.core import paths
from tuner.core.model import Status
from tuner.formats.recording import Recording, read_recording, recorded_kernel
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.load import load_kernel
from tuner.kernel.render import render
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec

RECORDINGS = sorted(paths.recordings().glob("*.json.gz"))
EXAMPLES = {path.stem: path for path in (Path(__file__).parents[2] / "docs/examples").glob("*/*.toml")}
SAMPLE = 4


@functools.cache
def replayed(path: Path) -> tuple[Recording, KernelSpec, list[SearchSpace]]:
    """Return a recording, the kernel that is replayed, and what the space of each problem has of the recorded rows."""
    recording = read_recording(path)
    example = EXAMPLES.get(recording.kernel)
    kernel = load_kernel(str(example) if example else recorded_kernel(path, recording.kernel))
    spaces = [
        SearchSpace.from_kernel(kernel, recorded.problem, recording.gpu).restricted(recorded.rows)
        for recorded in recording.problems
    ]
    return recording, kernel, spaces


def test_every_kernel_of_the_first_step_is_recorded() -> None:
    assert {path.name.split("-")[0] for path in RECORDINGS} >= {"gemm", "saxpy", "vector_add"}
    assert sum(path.stat().st_size for path in RECORDINGS) < 10 << 20


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name)
def test_rows_belong_to_the_kernel_that_is_replayed(path: Path) -> None:
    recording, kernel, spaces = replayed(path)
    draw, identity = random.Random(path.name), KernelIdentity(kernel)
    assert recording.problems
    assert recording.computation == identity.parts
    for recorded, left in zip(recording.problems, spaces, strict=True):
        assert len(left) == len(recorded.rows), "a constraint refuses what was recorded: record again"
        assert recorded.rows[left.default].status.ranked
        for configuration in draw.sample(list(recorded.rows), min(SAMPLE, len(recorded.rows))):
            row = recorded.rows[configuration]
            rendered = render(kernel, recorded.problem, recording.gpu, configuration)
            sources = [source for source, _ in rendered]
            today = recording.row_digest(identity, configuration.variant, sources)
            assert today == row.source, (
                f"{recorded.problem} {configuration} renders differently: record again"
            )
            assert row.status is not Status.OK or len(row.samples_ns) >= 1


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name)
def test_sub_lattices_have_neighbours(path: Path) -> None:
    """A search by neighbours must find some: almost every row differs from another in one parameter."""
    recording, _, (space, *_) = replayed(path)
    chosen = random.Random(0).sample(list(recording.problems[0].rows), 50)
    codes = [space.encode(configuration) for configuration in chosen]
    assert sum(1 in space.variants[number].distances(vector) for number, vector in codes) >= 48


def test_a_recording_that_is_older_than_its_kernel_may_keep_the_kernel_of_then(tmp_path: Path) -> None:
    recording = tmp_path / "scale-H200.json.gz"
    assert recorded_kernel(recording, "scale") == "scale"
    kept = tmp_path / "scale-H200" / "scale.toml"
    kept.parent.mkdir()
    kept.write_text("")
    assert recorded_kernel(recording, "scale") == str(kept)
