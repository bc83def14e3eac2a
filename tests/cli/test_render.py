"""``tune render``: sources and launches of a configuration, without a GPU."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.commands import Said, assert_refused, said_by
from tests.faults.kernels import SOURCE, configuration, write_kernel
from tuner.children.nvrtc import SourceRejected, compile_source
from tuner.core.model import Configuration
from tuner.kernel.load import load_kernel, read_kernel
from tuner.kernel.plan import make_plan
from tuner.kernel.render import render
from tuner.kernel.roofline import ARCHITECTURES

HOPPER = ARCHITECTURES[90]
SPLIT = ("gemm", "--cc", "80", "--config", "mma_sync_split_k")


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A working folder without a database, on a machine without a GPU."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tuner.cli.configuration.has_gpu", lambda: False)


@pytest.fixture
def kernel_file(tmp_path: Path) -> Path:
    return write_kernel(tmp_path / "own")


def test_a_database_that_is_named_and_is_not_there_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    said = said_by(capsys, "render", "vector_add", "--db", "none.db")
    assert (
        said.code == 0 and "there is no database none.db; this problem was not tuned" in said.out + said.err
    )
    said = said_by(capsys, "render", "vector_add", "--config", "default", "--db", "none.db")
    assert said.code == 0 and "none.db" not in said.out + said.err, "nothing is asked of it"


def tune_render(capsys: pytest.CaptureFixture[str], *arguments: object) -> Said:
    said = said_by(capsys, "render", *map(str, arguments))
    assert said.code == 0, said.err
    return said


def exact_sources(*, kernel: str = "gemm", variant: str = "mma_sync_split_k", cc: int = 80) -> list[str]:
    spec = load_kernel(kernel)
    chosen = Configuration.of(variant, spec.variants[variant].defaults)
    return [source for source, _ in render(spec, spec.problem(), ARCHITECTURES[cc], chosen)]


def test_a_template_that_takes_all_memory_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.kernel.templates.MEMORY_BYTES", 1 << 26)
    doubling = "{% set t = namespace(s='x') %}{% for i in range(32) %}{% set t.s = t.s ~ t.s %}{% endfor %}"
    kernel = write_kernel(tmp_path / "greedy", source=doubling)
    assert_refused(said_by(capsys, "render", str(kernel)), 2, "out of memory")


def test_source_comes_after_its_launch_and_names_its_lines(
    kernel_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tune_render(capsys, kernel_file, "--config", "block_size=64 items=2", "--size", "n=1000").out
    head, source = out.split('#line 1 "scale.cu.j2"\n')
    assert all(line.startswith("//") for line in head.splitlines())
    for words in (
        "block_size=64 items=2",
        "n=1000",
        HOPPER.name,
        "scale__ok(x, y, int64 1000)",
        "grid 8 x 1 x 1",
    ):
        assert words in head
    kernel = read_kernel(kernel_file)
    [(exact, _)] = render(kernel, kernel.problem({"n": 1000}), HOPPER, configuration("ok", 64, 2))
    assert source == exact


def test_what_is_written_compiles_and_its_errors_name_the_template(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_kernel(tmp_path / "own", source=SOURCE)
    tune_render(capsys, tmp_path / "own" / "scale.toml", "-o", "good")
    [good] = (tmp_path / "good").iterdir()
    assert compile_source(good.read_text(), "scale__ok", "sm_90a").resources.registers > 0
    wrong = SOURCE.replace("2.0f *", "\n{% if items %}\n nonsense *\n{% endif %}")
    write_kernel(tmp_path / "other", source=wrong)
    tune_render(capsys, tmp_path / "other" / "scale.toml", "-o", "bad")
    [bad] = (tmp_path / "bad").iterdir()
    with pytest.raises(SourceRejected) as refused:
        compile_source(bad.read_text(), "scale__ok", "sm_90a")
    line = 1 + next(i for i, text in enumerate(wrong.splitlines()) if "nonsense" in text)
    assert str(refused.value).startswith(f"scale.cu.j2({line}): error: ")


def test_exact_text_of_one_launch(capsys: pytest.CaptureFixture[str]) -> None:
    sources = exact_sources()
    assert len(sources) == 2
    for number, source in enumerate(sources, 1):
        assert tune_render(capsys, *SPLIT, "--no-line", "--launch", number).out == source
    both = tune_render(capsys, *SPLIT, "--no-line").out
    heads = [line for line in both.splitlines() if re.match(r"// .* launch \d of 2 ", line)]
    assert len(heads) == 2
    assert all(source in both for source in sources)
    assert "#line" not in both
    single = tune_render(capsys, "vector_add", "--no-line").out
    assert [single] == exact_sources(kernel="vector_add", variant="vectorized", cc=90)


def test_json_has_every_launch(capsys: pytest.CaptureFixture[str]) -> None:
    said = json.loads(tune_render(capsys, *SPLIT, "--json", "--no-line").out)
    kernel = load_kernel("gemm")
    chosen = Configuration.of("mma_sync_split_k", kernel.variants["mma_sync_split_k"].defaults)
    plan = make_plan(kernel, kernel.problem(), ARCHITECTURES[80], chosen)
    assert [launch["source"] for launch in said["launches"]] == exact_sources()
    for launch, planned in zip(said["launches"], plan.launches, strict=True):
        assert launch["grid"] == list(planned.grid)
        assert launch["block"] == list(planned.block)
        assert launch["shared_bytes"] == planned.shared_bytes
        assert len(launch["arguments"]) == len(planned.arguments)
    assert [buffer["name"] for buffer in said["scratch"]] == ["partial"]
    assert said["parameters"] == chosen.values
    mapped = json.loads(tune_render(capsys, "gemm", "--config", "wgmma", "--json").out)
    assert {argument["kind"] for argument in mapped["launches"][-1]["arguments"]} >= {"map", "scalar"}


def test_files_of_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tune_render(capsys, *SPLIT, "-o", "out").out.count("wrote ") == 2
    names = ["1_gemm_mma_sync_split_k.cu", "2_sum_partials.cu"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names
    tune_render(capsys, *SPLIT, "-o", "out", "--no-line")  # its own files are replaced
    assert [(tmp_path / "out" / name).read_text() for name in names] == exact_sources()
    tune_render(capsys, *SPLIT, "-o", "out", "--no-line")  # nothing changes
    (tmp_path / "out" / names[0]).unlink()
    (tmp_path / "out" / names[1]).write_text("mine\n")
    assert_refused(said_by(capsys, "render", *SPLIT, "-o", "out"), 2, names[1], "--force")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names[1:]
    assert (tmp_path / "out" / names[1]).read_text() == "mine\n"
    tune_render(capsys, *SPLIT, "-o", "out", "--force")
    assert (tmp_path / "out" / names[1]).read_text() != "mine\n"


def test_links_are_not_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "mine").write_text("mine\n")
    (tmp_path / "out" / "1_vector_add.cu").symlink_to(tmp_path / "mine")
    said = said_by(capsys, "render", "vector_add", "-o", "out", "--force")
    assert_refused(said_without_notes(said), 2, "link")
    said = said_by(capsys, "render", "vector_add", "-o", "mine")
    assert_refused(said_without_notes(said), 2, "mine is no folder; name a folder with -o")
    assert (tmp_path / "mine").read_text() == "mine\n"


def said_without_notes(said: Said) -> Said:
    return Said(said.code, said.out, said.err.splitlines()[-1])


def test_names_of_files_are_safe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_kernel(
        tmp_path / "own", source="template <int N> __global__ void k(const float*, float*, long long) {}\n"
    )
    text = file.read_text().replace('entry = "scale__{{ fault }}"', "entry = \"k<'/'+(1, 2)>\"")
    file.write_text(text)
    tune_render(capsys, file, "-o", "out")
    [path] = (tmp_path / "out").iterdir()
    assert re.fullmatch(r"1_\w+\.cu", path.name)


def test_plain_file_is_printed_as_it_is_compiled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_kernel(tmp_path / "own")
    (tmp_path / "own" / "scale.cu").write_text("int a;\n")
    file.write_text(file.read_text().replace("scale.cu.j2", "scale.cu"))
    out = tune_render(capsys, file).out
    assert out.count("#line") == 1
    assert out.endswith('#line 1 "scale.cu"\nint a;\n')


def test_template_whose_lines_cannot_be_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = "{% macro word() %}four{% endmacro %}\nint a = {{ word() | length }};\n"
    said = tune_render(capsys, write_kernel(tmp_path / "own", source=source))
    assert "scale.cu.j2" in said.err
    assert said.out.endswith("\nint a = 4;\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("gem",), "gemm"),
        ((), "no kernel is named"),
        (("vector_add", "--launch", "2"), "there is no launch 2"),
        (("vector_add", "--config", "nothing"), "no variant"),
        (("vector_add", "--cc", "12"), "no compute capability 12"),
        (("vector_add", "--cc", "80", "--gpu", "H200"), "exclude each other"),
        (("vector_add", "--json", "-o", "out"), "exclude each other"),
        (("vector_add", "--force"), "-o"),
        (("--trial", "1"), "tuning.db"),
    ],
)
def test_what_cannot_be_rendered_is_one_line(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = said_by(capsys, "render", *arguments)
    assert said.code in (1, 2)
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert words in line


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}",
        "{{ nothing }}",
        "{% include 'nowhere' %}",
    ],
)
def test_template_that_does_not_render_is_one_line(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_kernel(tmp_path / "own", source=source)
    said = said_by(capsys, "render", str(file), "--config", "default", "--cc", "90")
    assert_refused(said, 2, "scale.cu.j2")


def test_a_grid_beyond_the_gpus_names_the_configuration_and_what_to_do(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = said_by(capsys, "render", "gemm", "--size", "m=2**62,n=2**62")
    remedy = "give smaller sizes or another configuration"
    assert_refused(said, 2, "mma_sync block_m=128", f"m={2**62}", "grid of", remedy)


@pytest.mark.parametrize(
    "arguments",
    [
        ("render", "saxpy", "-o"),
        ("db", "backup"),
        ("profile", "saxpy", "-o"),
        ("sanitize", "saxpy", "-o"),
    ],
)
def test_no_folder_is_made_around_what_is_written(
    arguments: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "none"
    said = said_by(capsys, *arguments, str(folder / "file"))
    assert_refused(said, 2, f"{folder} is no folder; make it")
    assert not folder.exists()
