"""What a kernel file says is what is read: sizes, expressions, digests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.kernel_files import GOOD, MAP, write
from tuner.core.errors import KernelError, UsageError
from tuner.inspect.check.subjects import alternatives
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.load import load_kernel, read_kernel
from tuner.kernel.plan import make_plan
from tuner.kernel.reference import settle_reference
from tuner.kernel.roofline import ARCHITECTURES, roof_of
from tuner.kernel.space import SearchSpace
from tuner.kernel.spec import KernelSpec, StepSpec
from tuner.tuning.accuracy import truth_of


def test_good_file_is_read(tmp_path: Path) -> None:
    kernel = read_kernel(write(tmp_path, GOOD))
    variant = kernel.variants["plain"]
    assert variant.defaults == {"block_size": 128, "fast": True}
    assert [reason for reason, _ in variant.constraints_after] == ["nothing spills"]
    assert variant.search_conditions == variant.constraints_before and len(variant.search_conditions) == 1
    assert variant.scratch[0].zeroed
    assert kernel.problem().dtypes == {"input": "float32", "output": "float32"}
    small = kernel.problem(preset="small")
    assert (small.sizes, small.dtypes["output"], small.options) == ({"n": 16}, "float16", {"order": "down"})
    assert kernel.problem(sizes={"n": 7}, dtypes={"": "float16"}, preset="small").sizes == {"n": 7}


def test_a_dtype_that_follows_another_may_be_chosen(tmp_path: Path) -> None:
    kernel = read_kernel(write(tmp_path, GOOD.replace('output = "input"', 'output = ["input", "float32"]')))
    half, wide = (kernel.problem(dtypes={"": "float16", **more}) for more in ({}, {"output": "float32"}))
    assert [each.dtypes["output"] for each in (half, wide)] == ["float16", "float32"]
    assert kernel.chosen_dtypes(half) == {"input": "float16", "output": "input"}
    assert kernel.chosen_dtypes(wide) == {"input": "float16", "output": "float32"}
    assert truth_of(kernel, half).dtypes == {"input": "float32", "output": "float32"}
    assert {each.dtypes["output"] for each in alternatives(kernel, half)} == {"float16", "float32"}
    with pytest.raises(UsageError, match="no dtype of output 'bfloat16'"):
        kernel.problem(dtypes={"": "float16", "output": "bfloat16"})


def test_sizes_may_be_powers(tmp_path: Path) -> None:
    powers = GOOD.replace("n = 1024", 'n = "2**10"').replace("n = 16", 'n = "2^4"')
    assert powers.count('n = "2') == 2
    kernel, same = read_kernel(write(tmp_path, powers)), read_kernel(write(tmp_path, GOOD))
    assert (kernel.sizes, kernel.presets) == (same.sizes, same.presets)
    assert KernelIdentity(kernel).text == KernelIdentity(same).text


def test_work_that_is_left_out_is_every_tensor_once(tmp_path: Path) -> None:
    work = GOOD[GOOD.index("[work]") : GOOD.index("[variants.plain]")]
    text = GOOD.replace(work, "").replace('"input" }\ny', '"input", role = "inout", when = "n > 4" }\ny')
    text = text.replace('shape = ["n"], dtype = "output"', 'shape = ["n + 1", 3], dtype = "int8"')
    kernel = read_kernel(write(tmp_path, text.replace('numpy = "alpha * x"', 'numpy = { y = "x", x = "x" }')))
    gpu = ARCHITECTURES[90]
    assert roof_of(kernel, kernel.problem(), gpu).bytes == 2 * 1024 * 4 + 1025 * 3
    assert roof_of(kernel, kernel.problem({"n": 4}, {"": "float16"}), gpu).bytes == 5 * 3
    assert roof_of(kernel, kernel.problem(), gpu).flops == 0
    half = read_kernel(write(tmp_path, GOOD.replace(work, '[work]\nflops = "n"\n\n')))
    assert roof_of(half, half.problem(), gpu).bytes == 2 * 4096
    assert roof_of(half, half.problem(), gpu).flops == 1024


def test_baselines_do_not_separate_results(tmp_path: Path) -> None:
    """What was measured before a baseline was added is still comparable; what changes results is not."""
    table = GOOD[GOOD.index("[baselines]") : GOOD.index("[work]")]
    with_one = read_kernel(write(tmp_path, GOOD)).digest
    assert read_kernel(write(tmp_path, GOOD.replace(table, ""))).digest == with_one
    assert read_kernel(write(tmp_path, GOOD.replace(table, table.replace("mul", "add")))).digest == with_one
    assert read_kernel(write(tmp_path, GOOD.replace('"2.0"', '"3.0"'))).digest != with_one


LADDER = """
[[ladder]]
name = "small blocks"
variant = "plain"
parameters = { block_size = [64, 128], fast = true }
dtypes = { input = "float16" }
options = { order = "down" }
doc = "half of a  warp scheduler"
"""


def test_comments_layout_and_ladders_do_not_separate_results(tmp_path: Path) -> None:
    digest = read_kernel(write(tmp_path, GOOD)).digest
    texts = [
        GOOD + LADDER,
        "# A scale.\n\n" + GOOD.replace("\n\n", "\n\n\n"),
        GOOD.replace('"y = 2 x"', "'y = 2 x' # doubled"),
        GOOD.replace("[64, 128, 256]", "[\n 64,\n 128, 0x100 ]"),
        GOOD.replace("presets.small = { n = 16,", "presets.small = { n = 1_6,"),
        GOOD.replace("fast = { values = [true, false] }", "fast.values = [ true, false ]"),
        GOOD + '[variants.plain.pruning]\n"there is work for it" = "block_size <= n // 2"\n',
    ]
    for text in texts:
        assert read_kernel(write(tmp_path, text)).digest == digest, text
    different = [
        GOOD.replace("[true, false]", "[false, true]"),
        GOOD.replace("block_size = {", "fast = { values = [true, false] }\nblock_size = {").replace(
            "}\nfast = { values = [true, false] }\n", "}\n"
        ),
        GOOD.replace("y = 2 x", "y  = 2 x"),
    ]
    digests = {read_kernel(write(tmp_path, text)).digest for text in different}
    assert len(digests | {digest}) == 4


# -- names for parts of expressions

DEFINITIONS = """\
[definitions]
bytes_of_one = "itemsize(input)"
blocks = "ceil_div(n, block_size)"
two_more = "blocks + 2"

"""


def with_terms(tmp_path: Path) -> KernelSpec:
    text = GOOD.replace("2 * n * itemsize(input)", "2 * n * bytes_of_one")
    text = text.replace('"ceil_div(n, block_size)"', '"blocks"')
    text = text.replace('"block_size <= n"', '"2 * two_more * block_size <= 2 * n + 4 * block_size"')
    return read_kernel(write(tmp_path, text.replace("[work]", DEFINITIONS + "[work]")))


def test_definitions_are_replaced_by_their_texts(tmp_path: Path) -> None:
    plain, short, gpu = read_kernel(write(tmp_path, GOOD)), with_terms(tmp_path), ARCHITECTURES[90]
    for n in (64, 128, 192, 1024):
        problem = short.problem({"n": n})
        spaces = [SearchSpace.from_kernel(kernel, problem, gpu) for kernel in (plain, short)]
        # (n + block_size - 1) // block_size * block_size <= n: the blocks come out even
        assert list(spaces[1].configurations()) == [
            one for one in spaces[0].configurations() if n % one.values["block_size"] == 0
        ]
        for configuration in spaces[1].configurations():
            launches = [make_plan(kernel, problem, gpu, configuration).launches for kernel in (plain, short)]
            assert launches[0] == launches[1]
        assert roof_of(plain, problem, gpu) == roof_of(short, problem, gpu)
    constraint = short.variants["plain"].constraints[0][1]
    assert constraint.text == "2 * (ceil_div(n, block_size) + 2) * block_size <= 2 * n + 4 * block_size"


# -- element expressions, absent tensors, choices in the reference, steps


def test_an_option_may_be_an_expression(tmp_path: Path) -> None:
    kernel = read_kernel(write(tmp_path, MAP))
    assert kernel.options == {"order": ("up", "down"), "op": ("x + 0.5 * (20 - x)",)}
    assert kernel.elements == {"op": ("x", "y")}
    assert kernel.problem().options == {"order": "up", "op": "x + 0.5 * (20 - x)"}
    assert kernel.problem(preset="product").options == {"order": "down", "op": "x * y"}
    mine = kernel.problem(options={"op": "maximum( x,0 )"})
    assert mine.options["op"] == "maximum(x, 0)"
    assert kernel.problem(mine.sizes, options=mine.options) == mine
    for wrong, said in (("q", "unknown name 'q'"), ("1", "uses none of x, y"), ("x >", "cannot parse")):
        with pytest.raises(UsageError, match=said) as caught:
            kernel.problem(options={"op": wrong})
        assert "option op of map" in str(caught.value)


def test_the_reference_is_settled_for_a_problem(tmp_path: Path) -> None:
    kernel = read_kernel(write(tmp_path, MAP))
    gpu = ARCHITECTURES[90]
    up = settle_reference(kernel, kernel.problem(), gpu)
    assert up.numpy["out"] == "x + 0.5 * (20 - x)"
    assert (up.reduction, up.tolerance, up.operand_rounding) == (3, 1.0, 0.0)
    down = settle_reference(kernel, kernel.problem(dtypes={"": "float16"}, preset="product"), gpu)
    assert down.numpy["out"] == "-(x * y)"
    assert (down.reduction, down.tolerance, down.operand_rounding) == (1, 2.0, 2.0**-10)
    for old, new, said in (
        ("2 if input == 'float16' else 1", "n - 1024", "tolerance: n - 1024 = 0.0; it is a factor above 0"),
        ("2 if input == 'float16' else 1", "input", "it must be a number"),
        ("2 ** -10 if", "n if order == 'up' else n if", "operand_rounding: .* relative error"),
    ):
        wrong = read_kernel(write(tmp_path, MAP.replace(old, new)))
        with pytest.raises(KernelError, match=said):
            settle_reference(wrong, wrong.problem(), gpu)


def test_steps_are_the_ladder_or_the_variants(tmp_path: Path) -> None:
    kernel = read_kernel(write(tmp_path, MAP))
    assert (
        kernel.steps
        == kernel.ladder
        == (
            StepSpec("plain, small", "plain", {"block_size": (64,)}, {}, {}, "first"),
            StepSpec("product", "half", {}, {"input": "float16"}, {"op": "x * y", "order": "down"}, ""),
        )
    )
    (step,) = read_kernel(write(tmp_path, GOOD + LADDER)).steps
    assert step.parameters == {"block_size": (64, 128), "fast": (True,)}
    assert step.doc == "half of a warp scheduler"
    bare = read_kernel(write(tmp_path, GOOD))
    assert bare.ladder == ()
    assert bare.steps == (StepSpec("plain", "plain", doc="one element a thread"),)


def test_what_a_variant_needs_may_have_words(tmp_path: Path) -> None:
    """They are what is said where it is left out; the condition is the same as in one expression."""
    (tmp_path / "scale.cu").write_text('extern "C" __global__ void scale() {}')
    kernels = []
    for text in (
        'requires = "cc >= 75 and (n < 8 or n % 2 == 0)"',
        'requires."a newer GPU" = "cc >= 75"\nrequires."an even n" = "n < 8 or n % 2 == 0"',
    ):
        (tmp_path / "scale.toml").write_text(GOOD.replace('requires = "cc >= 75"', text))
        kernels.append(load_kernel(str(tmp_path / "scale.toml")))
    whole, kernel = kernels
    assert KernelIdentity(whole).text == KernelIdentity(kernel).text
    old = replace(ARCHITECTURES[75], cc=70)
    for gpu, n, said in (
        (ARCHITECTURES[90], 9, "needs an even n"),
        (old, 9, "needs a newer GPU and an even n"),
    ):
        assert kernel.usable_variants(kernel.problem({"n": n}), gpu)[1] == {"plain": said}
    assert not kernel.usable_variants(kernel.problem({"n": 10}), ARCHITECTURES[90])[1]
    always = "requires = { always = true, newer = 'cc >= 75' }"
    (tmp_path / "scale.toml").write_text(GOOD.replace('requires = "cc >= 75"', always))
    assert not load_kernel(str(tmp_path / "scale.toml")).usable_variants(whole.problem(), ARCHITECTURES[90])[
        1
    ]


def test_sums_are_in_float64_where_results_are_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    """What adds up in float32 has errors far above what float64 results may have."""
    text = """kernel = { name = "sums" }
problem = { sizes = { n = 64 }, dtypes = { input = ["float64", "float32", "complex128", "complex64"] } }
tensors.x = { shape = ["n"], dtype = "input" }
tensors.y = { shape = ["n"], dtype = "input", role = "output" }
reference = { numpy = "x + x"MORE }
work = { bytes = "n" }
variants.plain.launches = [{ template = "k.cu", entry = "k", arguments = ["x", "y"], grid = ["n"], block = ["1"] }]
"""
    (tmp_path / "k.cu").write_text('extern "C" __global__ void k() {}')
    found = []
    for more in ("", ', accumulate = "float32"'):
        (tmp_path / "sums.toml").write_text(text.replace("MORE", more))
        kernel = read_kernel(tmp_path / "sums.toml")
        for dtype in ("float64", "float32", "complex128", "complex64"):
            reference = settle_reference(kernel, kernel.problem(dtypes={"input": dtype}), ARCHITECTURES[90])
            found.append(reference.tolerance_of(dtype).coefficient < 1e-12)
    assert found == [True, False, True, False, *[False] * 4]


def test_tensors_may_be_absent(tmp_path: Path) -> None:
    kernel = read_kernel(write(tmp_path, MAP))
    for op, names in (("x", ["x", "out"]), ("y", ["y", "out"]), ("x * y", ["x", "y", "out"])):
        assert list(kernel.present(kernel.problem(options={"op": op}))) == names
    with pytest.raises(KernelError, match="reference: the numpy reference of out uses x, which is absent"):
        read_kernel(write(tmp_path, MAP.replace("uses(op, 'x')\"", "order == 'down'\"", 1)))


def test_scratch_may_be_zeroed_once(tmp_path: Path) -> None:
    (ticket,) = read_kernel(write(tmp_path, MAP)).variants["plain"].scratch
    assert (ticket.zeroed, ticket.zeroed_once) == (False, True)
    (each,) = read_kernel(write(tmp_path, MAP.replace('"once"', "true"))).variants["plain"].scratch
    assert (each.zeroed, each.zeroed_once) == (True, False)
