"""What an exported header selects: compiled with g++, and compared with what the tuner itself says of each problem."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from scripts.calling.cases import of_today
from tests.cpp_interface import compiled
from tests.kernel_files import GOOD, write
from tests.winners.selection import FLAGS, Header, files_of, winner_of
from tuner.core import paths
from tuner.core.model import Configuration, Gpu, Problem, Resources
from tuner.database.records import StoredWinner
from tuner.kernel.default import default_configuration, default_configurations
from tuner.kernel.load import load_kernel, read_kernel
from tuner.kernel.plan import make_plan
from tuner.kernel.roofline import ARCHITECTURES
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec
from tuner.kernel.validity import invalid_reason, pruning_reason
from tuner.winners import header_defaults as defaults
from tuner.winners.header import render_header

COMPILERS = [name for name in ("g++", "clang++") if shutil.which(name)]
GEMM = load_kernel("gemm")
HOPPER = ARCHITECTURES[90]

pytestmark = [
    pytest.mark.skipif("g++" not in COMPILERS, reason="needs g++"),
    pytest.mark.usefixtures("forked_children"),
]


@pytest.fixture(scope="module", autouse=True)
def defaults_once() -> Iterator[None]:
    """The defaults of a kernel take most of the time of a header, and are the same for all of its headers."""
    known: dict[tuple[str, Gpu], list[tuple[Problem, Configuration]]] = {}

    def remembered(kernel: KernelSpec, problem: Problem, gpu: Gpu) -> list[tuple[Problem, Configuration]]:
        if kernel is not GEMM:
            return default_configurations(kernel, problem, gpu)
        key = (problem.key, gpu)
        if key not in known:
            known[key] = default_configurations(kernel, problem, gpu)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(defaults, "default_configurations", remembered)
        yield


@cache
def recorded_winners() -> list[StoredWinner]:
    """Return the measured winners of gemm's shapes, those that are still valid."""
    rows = [
        row
        for name in ("gemm-shapes", "gemm-random")
        for row in json.loads((paths.package().parent / f"results/evidence/{name}.json").read_text())[
            "problems"
        ]
    ]
    winners = {}
    for row in rows:
        problem = GEMM.problem({s: row[s] for s in "mnk"}, {"": row["dtype"]}, {"layout": row["layout"]})
        found = of_today(GEMM, row["search"]["variant"], row["search"]["parameters"])
        assert found is not None
        if not invalid_reason(GEMM, problem, HOPPER, found):
            winners[problem.key] = winner_of(problem, found)
    return list(winners.values())


def shapes(count: int) -> Iterator[dict[str, int]]:
    """Yield sizes of gemm: log-uniform ones of which many are odd, and those of large vocabularies."""
    chance = random.Random(4097)
    yield {"m": 4095, "n": 4097, "k": 4093}
    for turn in range(count - 1):
        off = (0, 1, 2, 8)[turn % 4]
        sizes = {name: max(1, round(2 ** chance.uniform(0, 14)) // 8 * 8 + off) for name in "mnk"}
        yield {**sizes, "n": 50257} if turn % 17 == 0 else sizes


@pytest.mark.parametrize("compiler", COMPILERS)
def test_nothing_invalid_is_selected_for_any_shape(compiler: str, tmp_path: Path) -> None:
    """Measured winners of many shapes, asked for hundreds of others; where none is valid, the tuner's own default."""
    winners = recorded_winners()
    assert len(winners) > 40
    kinds = list({(s.run.problem.dtypes["input"], s.run.problem.options["layout"]) for s in winners})
    kinds += [("float16", "tt"), ("float32", "nt")]
    asked = [
        (90, GEMM.problem(sizes, {"": dtype}, {"layout": layout}))
        for sizes in shapes(400)
        for dtype, layout in [random.Random(str(sizes)).choice(kinds)]
    ] + [(90, stored.run.problem) for stored in winners]
    seen: dict[str, int] = {}
    answers = Header(tmp_path, GEMM, winners).select(asked, compiler)
    for (_, problem), (match, configuration, alignment, zeroed) in zip(asked, answers, strict=True):
        seen[match] = seen.get(match, 0) + 1
        assert not invalid_reason(GEMM, problem, HOPPER, configuration), (problem, configuration)
        plan = make_plan(GEMM, problem, HOPPER, configuration)
        assert zeroed == sum(item.size_bytes for item in plan.scratch if item.zeroed_once)
        assert alignment == max(launch.alignment for launch in plan.launches)
        if match == "fallback":
            assert configuration == default_configuration(GEMM, problem, HOPPER), problem
    assert seen["exact"] >= len(winners)
    assert seen["other_size"] > 100
    assert seen["fallback"] > 50
    assert "none" not in seen


@pytest.mark.parametrize("name", ["gemm", "reduce", "transform", "mean_matvec"])
def test_the_default_is_the_tuners_own_on_every_compute_capability(name: str, tmp_path: Path) -> None:
    kernel, chance = GEMM if name == "gemm" else load_kernel(name), random.Random(name)
    small = kernel.problem()
    winner = default_configuration(kernel, small, HOPPER)
    assert winner is not None
    options = {n: v for n, v in kernel.options.items() if n not in kernel.elements}
    asked: list[tuple[int, Problem]] = []
    for _ in range(200):
        sizes = {
            size: max(1, round(2 ** chance.uniform(0, 15)) + chance.choice((0, 1))) for size in kernel.sizes
        }
        dtypes = {"": chance.choice(next(iter(kernel.dtypes.values())))}
        chosen = {option: chance.choice(values) for option, values in options.items()}
        cc = chance.choice([cc for cc in ARCHITECTURES if cc != 90])
        asked.append((cc, kernel.problem(sizes, dtypes, chosen)))
    answers = Header(tmp_path, kernel, [winner_of(small, winner)]).select(asked)
    for number, ((cc, problem), (match, configuration, _, _)) in enumerate(zip(asked, answers, strict=True)):
        default = default_configuration(kernel, problem, ARCHITECTURES[cc])
        assert match == "fallback"
        assert configuration == default, (cc, problem)
        if number < 4:  # whole spaces take their time
            assert configuration == SearchSpace.from_kernel(kernel, problem, ARCHITECTURES[cc]).default
        assert not pruning_reason(kernel, problem, ARCHITECTURES[cc], configuration)


def program(folder: Path, *lines: str) -> subprocess.CompletedProcess[str]:
    """Compile lines as a program."""
    (folder / "use.cpp").write_text("\n".join([*lines, "int main() { return 0; }", ""]))
    command = ["g++", *FLAGS, "-fsyntax-only", "use.cpp"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def scale(folder: Path, text: str = GOOD) -> KernelSpec:
    folder.mkdir(exist_ok=True)
    return read_kernel(write(folder, text))


def of_scale(kernel: KernelSpec, n: int, block_size: int, fast: bool = True) -> StoredWinner:
    configuration = Configuration.of("plain", {"block_size": block_size, "fast": fast})
    return winner_of(kernel.problem({"n": n}), configuration)


def structs_part(text: str) -> str:
    return text.split("#ifndef")[2]


def test_names_come_from_the_kernels_file(tmp_path: Path) -> None:
    """Code that uses a header still compiles when other winners are exported."""
    winners = recorded_winners()
    assert len({s.winner.configuration.variant for s in winners}) > 1
    texts = [render_header(chosen, files=files_of(GEMM)) for chosen in (winners[:1], winners[-1:], winners)]
    assert structs_part(texts[0]) == structs_part(texts[1]) == structs_part(texts[2])
    uses = [
        f"static_assert(static_cast<int>(Variant::{variant}) >= 0);" for variant in GEMM.variants
    ] + [
        f"static_assert(sizeof(Configuration::{parameter}) > 0);"
        for variant in GEMM.variants.values()
        for parameter in variant.parameters
    ] + [
        "static_assert(static_cast<int>(layout_option::tt) == 3 && static_cast<int>(schedule_value::pingpong) == 2);",
        "static_assert(static_cast<int>(Types::float32) == 2);",
    ]  # fmt: skip
    (tmp_path / "tuned.hpp").write_text(texts[0])
    done = program(tmp_path, '#include "tuned.hpp"', "using namespace kernel_tune::gemm;", *uses)
    assert done.returncode == 0, done.stderr[:2000]


def test_headers_of_several_and_of_one_kernel_can_be_included_together(tmp_path: Path) -> None:
    kernel = scale(tmp_path / "scale")
    files = files_of(kernel, GEMM)
    gemm = recorded_winners()[:3]
    headers = {
        "one": render_header([of_scale(kernel, 1000, 64)], files=files),
        "same": render_header([of_scale(kernel, 1000, 64), gemm[0]], files=files),
        "other": render_header([of_scale(kernel, 1000, 128)], files=files),
        "named": render_header([of_scale(kernel, 1000, 128)], "named", files=files),
        "gemm": render_header(gemm[1:], "gemm_only", files=files),
    }
    for name, text in headers.items():
        (tmp_path / f"{name}.hpp").write_text(text)
    every = [f'#include "{name}.hpp"' for name in headers]
    assert program(tmp_path, *every).returncode == 0
    asked = (
        "::select(90, {{1000, {0}::order_option::up, {0}::Types::float32}}).configuration.block_size == {1});"
    )
    used = [
        f"static_assert({space}" + asked.format(space, block_size)
        for space, block_size in (("kernel_tune::scale", 64), ("named::scale", 128))
    ]
    done = program(tmp_path, *(line for line in every if "other" not in line), *used)
    assert done.returncode == 0, done.stderr[:2000]
    assert (
        "ambiguous" in program(tmp_path, *every, *used).stderr
    )  # two winners of one problem: which is meant?


def test_versions_of_a_header_in_one_program_stay_apart(tmp_path: Path) -> None:
    """Each translation unit selects from the header that it was compiled with, and structs that are the same pass."""
    kernel = scale(tmp_path / "scale")
    grown = scale(tmp_path / "grown", GOOD.replace("values = [64, 128, 256]", "values = [64, 128, 256, 512]")
                  .replace("fast = {", "slow = { values = [1, 2] }\nfast = {"))  # fmt: skip
    more = Configuration.of("plain", {"block_size": 512, "slow": 1, "fast": True})
    headers = {
        "old": render_header([of_scale(kernel, 1000, 64)], files=files_of(kernel)),
        "new": render_header([of_scale(kernel, 1000, 128)], files=files_of(kernel)),
        "grown": render_header([winner_of(grown.problem({"n": 1000}), more)], files=files_of(grown)),
    }
    main = ["#include <cstdio>"]
    for name, text in headers.items():
        (tmp_path / f"{name}.hpp").write_text(text)
        (tmp_path / f"{name}.cpp").write_text(
            f"""#include "{name}.hpp"
using namespace kernel_tune::scale;
int {name}_block(long long n) {{ return select(90, {{n, order_option::up, Types::float32}}).configuration.block_size; }}
"""
        )
        main.append(f"int {name}_block(long long n);")
    with (tmp_path / "new.cpp").open("a") as file:  # another unit's Selection, by name and by layout
        file.write("int block_of(const Selection& chosen) { return chosen.configuration.block_size; }\n")
    main += [
        '#include "old.hpp"', "using namespace kernel_tune::scale;", "int block_of(const Selection& chosen);",
        "int main() {", "    const Selection chosen = select(90, {1000, order_option::up, Types::float32});",
        '    std::printf("%d %d %d %d", old_block(1000), new_block(1000), grown_block(1000), block_of(chosen));', "}\n",
    ]  # fmt: skip
    (tmp_path / "main.cpp").write_text("\n".join(main))
    for order in (["old", "new", "grown", "main"], ["main", "grown", "new", "old"]):
        command = ["g++", *FLAGS, "-O0", *(f"{name}.cpp" for name in order), "-o", "use"]
        subprocess.run(command, cwd=tmp_path, check=True)
        said = subprocess.run([tmp_path / "use"], capture_output=True, text=True, check=True).stdout
        assert said == "64 128 512 64"


def test_it_goes_together_with_the_launcher_of_bundles(tmp_path: Path) -> None:
    kernel = scale(tmp_path / "scale")
    (tmp_path / "tuned.hpp").write_text(render_header([of_scale(kernel, 1000, 64)], files=files_of(kernel)))
    source = tmp_path / "use.cpp"
    source.write_text(
        """#include "tuned.hpp"
#include "kernel_tune/launcher.hpp"
namespace scale = kernel_tune::scale;
constexpr auto chosen = scale::select(90, {1000, scale::order_option::up, scale::Types::float32});
static_assert(chosen.match == scale::Match::exact);
static_assert(chosen.match == kernel_tune::Match::exact);
bool tuned(const kernel_tune::Plan& plan) { return plan.match() == kernel_tune::PlanMatch::exact; }
int main() { kernel_tune::Bundle bundle; }
"""
    )
    compiled(source)


AFTER = GOOD.replace('"spill_bytes == 0"', '"spill_bytes == 0 and n <= 1000 * active_blocks"')


def test_constraints_on_what_the_compiler_reports_hold_for_other_sizes_too(tmp_path: Path) -> None:
    kernel = scale(tmp_path / "scale", AFTER)
    stored = of_scale(kernel, 1000, 64)
    stored = replace(stored, trial=replace(stored.trial, resources=Resources(active_blocks=4)))
    header = Header(tmp_path, kernel, [stored])
    asked = [(90, kernel.problem({"n": n})) for n in (1000, 4000, 4001, 1)]
    matches = [match for match, *_ in header.select(asked)]
    assert matches == ["exact", "other_size", "fallback", "none"]  # no block of 64 or more for 1
    unknown = Header(tmp_path, kernel, [of_scale(kernel, 1000, 64)])
    matches = [match for match, *_ in unknown.select(asked)]
    assert matches == ["exact", "fallback", "fallback", "none"]


@pytest.mark.parametrize(
    ("old", "new", "fits", "not_any_more"),
    [
        ('block = ["block_size"]', 'block = ["block_size", "ceil_div(n, 1000)"]', 16_000, 16_001),
        ('block = ["block_size"]', 'block = ["block_size"]\nshared_bytes = "4 * n"', 58_112, 58_113),
        ('block = ["block_size"]', 'block = ["block_size"]\ncluster = [2]', 1024, 1088),
    ],
    ids=["threads", "shared memory", "cluster"],
)
def test_what_cannot_be_launched_at_another_size_is_not_selected(
    old: str, new: str, fits: int, not_any_more: int, tmp_path: Path
) -> None:
    kernel = scale(tmp_path / "scale", GOOD.replace(old, new))
    header = Header(tmp_path, kernel, [of_scale(kernel, 1000, 64)])
    found = header.select([(90, kernel.problem({"n": n})) for n in (1000, fits, not_any_more)])
    assert [match == "other_size" for match, *_ in found] == [False, True, False]


RESIDENT = GOOD.replace(
    'grid = ["ceil_div(n, block_size)"]', 'grid = ["sm_count"]\nresident = "fast"'
)  # fmt: skip


def test_blocks_that_wait_for_each_other_stay_on_the_device_they_were_counted_for(tmp_path: Path) -> None:
    kernel = scale(tmp_path / "scale", RESIDENT)
    waiting, free = of_scale(kernel, 1000, 64), of_scale(kernel, 2000, 128, fast=False)
    (tmp_path / "tuned.hpp").write_text(render_header([waiting, free], files=files_of(kernel)))
    lines = ['#include "tuned.hpp"', "using namespace kernel_tune;"]
    for device, block_size in (("NVIDIA H200", 64), ("NVIDIA H20", 128)):
        chosen = f'scale::select(90, {{1000, scale::order_option::up, scale::Types::float32}}, "{device}")'
        lines.append(f"static_assert({chosen}.configuration.block_size == {block_size});")
    done = program(tmp_path, *lines)
    assert done.returncode == 0, done.stderr[:2000]


def test_the_comments_say_how_a_launch_has_to_be_made(tmp_path: Path) -> None:
    kernel = scale(tmp_path / "scale", RESIDENT + "programmatic = true\n")
    text = comments(render_header([of_scale(kernel, 1000, 64)], files=files_of(kernel)).splitlines())
    assert "its 132 blocks wait for each other: launch it cooperatively" in text
    assert "CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION" in text


def comments(lines: Iterable[str]) -> str:
    return "\n".join(line for line in lines if line.startswith("//"))
