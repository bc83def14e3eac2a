"""A kernel file that is wrong is refused in one line that names the file, the key and what to do."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tuner.errors import KernelError, UsageError
from tuner.hardware.roofline import ARCHITECTURES, roof_of
from tuner.kernel.identity import KernelIdentity
from tuner.kernel.load import builtin_kernels, load_kernel, read_kernel
from tuner.kernel.plan import make_plan
from tuner.kernel.reference import settle_reference
from tuner.kernel.spec import CallSpec, KernelSpec, StepSpec
from tuner.kernel.toml.file import MAX_FILE_BYTES
from tuner.model import Configuration
from tuner.space.space import SearchSpace
from tuner.space.validity import invalid_reason

GOOD = """\
[kernel]
name = "scale"
summary = "y = 2 x"

[problem]
sizes = { n = 1024 }
dtypes = { input = ["float32", "float16"], output = "input" }
options = { order = ["up", "down"] }
presets.small = { n = 16, order = "down", input = "float16" }

[tensors]
x = { shape = ["n"], dtype = "input" }
y = { shape = ["n"], dtype = "output", role = "output" }

[scalars]
alpha = { dtype = "input", value = "2.0" }

[reference]
numpy = "alpha * x"

[baselines]
torch = "torch.mul(x, alpha, out=y)"

[work]
bytes = "2 * n * itemsize(input)"

[variants.plain]
summary = "one element a thread"
requires = "cc >= 75"

[variants.plain.parameters]
block_size = { values = [64, 128, 256], default = 128, doc = "threads a block" }
fast = { values = [true, false] }

[variants.plain.scratch]
partial = { shape = ["n", "block_size"], dtype = "float32", zeroed = true }

[variants.plain.constraints]
"a block is not larger than the problem" = "block_size <= n"
"nothing spills" = "spill_bytes == 0"

[[variants.plain.launches]]
template = "scale.cu"
entry = "scale"
arguments = ["x", "y", "alpha", "partial", "n", { value = "n * 2", dtype = "int64" }]
grid = ["ceil_div(n, block_size)"]
block = ["block_size"]
"""


def write(folder: Path, text: str | bytes) -> Path:
    (folder / "scale.cu").write_text('extern "C" __global__ void scale() {}\n')
    path = folder / "scale.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refusal(path: Path) -> str:
    with pytest.raises(KernelError) as caught:
        read_kernel(path)
    message = str(caught.value)
    assert "\n" not in message
    assert "scale.toml" in message
    return message


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


def test_sizes_may_be_powers(tmp_path: Path) -> None:
    powers = GOOD.replace("n = 1024", 'n = "2**10"').replace("n = 16", 'n = "2^4"')
    assert powers.count('n = "2') == 2
    kernel, same = read_kernel(write(tmp_path, powers)), read_kernel(write(tmp_path, GOOD))
    assert (kernel.sizes, kernel.presets) == (same.sizes, same.presets)
    assert KernelIdentity(kernel).text == KernelIdentity(same).text


def test_baselines_are_read(tmp_path: Path) -> None:
    text = GOOD.replace("[work]", 'cupy_scaled = """\ncupy.multiply(x,\n  alpha, out=y)"""\n[work]')
    assert read_kernel(write(tmp_path, text)).baselines == {
        "torch": (CallSpec("torch.mul(x, alpha, out=y)"),),
        "cupy_scaled": (CallSpec("cupy.multiply(x, alpha, out=y)"),),
    }


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


def test_digest_of_a_built_in_kernel() -> None:
    """Databases refer to it: if it changes, results from before are not comparable any more."""
    assert KernelIdentity(load_kernel("vector_add")).computation == "ea9d2385979591d652bd3deac1f95018"


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


def test_a_term_is_a_part_of_what_a_file_says(tmp_path: Path) -> None:
    text = GOOD.replace("[work]", DEFINITIONS + "[work]")
    digests = {read_kernel(write(tmp_path, one)).digest for one in (GOOD, text, text.replace("+ 2", "+ 3"))}
    assert len(digests) == 3


# -- element expressions, absent tensors, choices in the reference, steps

MAP = """\
[kernel]
name = "map"

[problem]
sizes = { n = 1024 }
dtypes = { input = ["float32", "float16"], output = "input" }
options = { order = ["up", "down"], op = { expression = "x+0.50*(20-x)", of = ["x", "y"] } }
presets.product = { op = "x*y", order = "down" }

[tensors]
x = { shape = ["n"], dtype = "input", when = "uses(op, 'x')" }
y = { shape = ["n"], dtype = "input", when = "uses(op, 'y')" }
out = { shape = ["n"], dtype = "output", role = "output" }

[reference]
numpy = "op if order == 'up' else -(op)"
reduction = "max(operations(op), 1)"
tolerance = "2 if input == 'float16' else 1"
operand_rounding = "2 ** -10 if order == 'down' else 0"

[work]
flops = "operations(op) * n"
bytes = "(uses(op, 'x') + uses(op, 'y') + 1) * n * itemsize(input)"

[variants.plain.scratch]
ticket = { shape = ["1"], dtype = "uint32", zeroed = "once" }

[variants.plain.parameters]
block_size = { values = [64, 128] }

[[variants.plain.launches]]
template = "scale.cu"
entry = "map"
arguments = ["x", "y", "out", "ticket"]
grid = ["1"]
block = ["block_size"]
alignment = "4 * itemsize(input)"

[[variants.half.launches]]
template = "scale.cu"
entry = "map"
arguments = ["x", "y", "out"]
grid = ["1"]
block = ["32"]

[[ladder]]
name = "plain, small"
variant = "plain"
parameters = { block_size = 64 }
doc = "first"

[[ladder]]
name = "product"
variant = "half"
dtypes = { input = "float16" }
options = { op = "x * (y)", order = "down" }
"""


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


def test_tensors_may_be_absent(tmp_path: Path) -> None:
    kernel = read_kernel(write(tmp_path, MAP))
    for op, names in (("x", ["x", "out"]), ("y", ["y", "out"]), ("x * y", ["x", "y", "out"])):
        assert list(kernel.present(kernel.problem(options={"op": op}))) == names
    with pytest.raises(KernelError, match="reference: the numpy reference of out uses x, which is absent"):
        read_kernel(write(tmp_path, MAP.replace("uses(op, 'x')\"", "order == 'down'\"", 1)))


def test_the_reference_is_settled_for_a_problem(tmp_path: Path) -> None:
    kernel = read_kernel(write(tmp_path, MAP))
    gpu = ARCHITECTURES[90]
    up = settle_reference(kernel, kernel.problem(), gpu)
    assert up.numpy["out"].text == "x + 0.5 * (20 - x)"
    assert (up.reduction, up.tolerance, up.operand_rounding) == (3, 1.0, 0.0)
    down = settle_reference(kernel, kernel.problem(dtypes={"": "float16"}, preset="product"), gpu)
    assert down.numpy["out"].text == "-(x * y)"
    assert (down.reduction, down.tolerance, down.operand_rounding) == (1, 2.0, 2.0**-10)
    for old, new, said in (
        ("2 if input == 'float16' else 1", "n - 1024", "tolerance: n - 1024 = 0.0; it is a factor above 0"),
        ("2 if input == 'float16' else 1", "input", "it must be a number"),
        ("2 ** -10 if", "n if order == 'up' else n if", "operand_rounding: .* relative error"),
    ):
        wrong = read_kernel(write(tmp_path, MAP.replace(old, new)))
        with pytest.raises(KernelError, match=said):
            settle_reference(wrong, wrong.problem(), gpu)


def test_scratch_may_be_zeroed_once(tmp_path: Path) -> None:
    (ticket,) = read_kernel(write(tmp_path, MAP)).variants["plain"].scratch
    assert (ticket.zeroed, ticket.zeroed_once) == (False, True)
    (each,) = read_kernel(write(tmp_path, MAP.replace('"once"', "true"))).variants["plain"].scratch
    assert (each.zeroed, each.zeroed_once) == (True, False)


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


WRONG_MAP: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "expression that is none": ("x+0.50*(20-x)", "x +", ("options: op: expression: cannot parse",)),
    "expression with an unknown name": ("x+0.50*(20-x)", "x + z", ("unknown name 'z'", "x, y")),
    "expression of nothing": ("x+0.50*(20-x)", "1", ("uses none of its names",)),
    "expression without names": ('of = ["x", "y"]', "of = []", ("of = []", "name the tensors")),
    "expression of no tensor": ('of = ["x", "y"]', 'of = ["x", "y", "z"]', ("of names 'z'", "x, y")),
    "expression of an output": ('of = ["x", "y"]', 'of = ["x", "y", "out"]', ("of names 'out'",)),
    "expression of a function": ('of = ["x", "y"]', 'of = ["x", "y", "exp"]', ("the function 'exp'",)),
    "unknown key of an expression": ('of = ["x"', 'off = 1, of = ["x"', ("op: unknown key 'off'", "mean of?")),
    "preset with a wrong expression": ('"x*y"', '"x**y"', ("presets.product.op", "exponent")),
    "preset with a number": ('"x*y"', "3", ("presets.product.op = 3 is not text",)),
    "uses of no expression": ("when = \"uses(op, 'x')", "when = \"uses(order, 'x')", ("'order' is no element",)),
    "uses of another name": ("uses(op, 'x')", "uses(op, 'z')", ("op has no name 'z'", "choose from: x, y")),
    "uses without a text": ("uses(op, 'x')", "uses(op, n)", ("write uses(option, 'tensor')",)),
    "uses of too much": ("uses(op, 'x')", "uses(op, 'x', 'y')", ("write uses(option, 'tensor')",)),
    "operations of no expression": ('"operations(op) * n"', '"operations(order) * n"', ("no element expression",)),
    "when by the GPU": ("when = \"uses(op, 'y')", "when = \"cc >= 80 and uses(op, 'y')", ("unknown name 'cc'",)),
    "zeroed in another way": ('"once"', '"twice"', ("zeroed = 'twice'", "once")),
    "comparison with no value": ("order == 'up'", "order == 'pu'", ("compares order with 'pu'", "up, down")),
    "comparison of an expression": ("order == 'up'", "op == 'up'", ("compares 'op'", "choose from: order, input")),
    "comparison of a size": ("order == 'up'", "n == 'up'", ("compares 'n', which is no option",)),
    "rounding of operands above 1": (
        "2 ** -10 if order == 'down' else 0", "2", ("operand_rounding = 2.0", "2**-10"),
    ),
    "tolerance of an unknown name": ("2 if input ==", "2 if inptu ==", ("tolerance", "did you mean input")),
    "unknown key of a step": ('doc = "first"', 'docs = "first"', ("ladder[0]", "unknown key 'docs'")),
    "step without a name": ('name = "plain, small"', 'name = " "', ("ladder[0]: name = ' '", "one line")),
    "step of two lines": ('name = "plain, small"', 'name = "a\\nb"', ("ladder[0]: name", "one line")),
    "two steps of one name": ('name = "product"', 'name = "plain, small"', ("2 steps 'plain, small'",)),
    "step of no variant": ('variant = "half"', 'variant = "hafl"', ("ladder[1]: variant = 'hafl'", "mean half?")),
    "step with an unknown parameter": ("{ block_size = 64 }", "{ block = 64 }", ("parameters sets 'block'",)),
    "step with another value": ("{ block_size = 64 }", "{ block_size = 65 }", ("block_size = 65", "64, 128")),
    "step with a value of another type": ("{ block_size = 64 }", "{ block_size = 64.0 }", ("block_size = 64.0",)),
    "step with nothing to choose from": ("{ block_size = 64 }", "{ block_size = [] }", ("block_size is empty",)),
    "step in a strange dtype": (
        'dtypes = { input = "float16" }', 'dtypes = { input = "int8" }', ("dtypes.input = 'int8'",),
    ),
    "step in an unknown role": (
        'dtypes = { input = "float16" }', 'dtypes = { inptu = "float16" }', ("dtypes sets 'inptu'", "mean input?"),
    ),
    "step with a strange option": ('(y)", order = "down"', '(y)", order = "dwon"', ("options.order = 'dwon'",)),
    "step with a wrong expression": ('op = "x * (y)"', 'op = "x * q"', ("options.op: unknown name 'q'",)),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG_MAP)
def test_wrong_words_of_the_language_are_refused(case: str, tmp_path: Path) -> None:
    old, new, parts = WRONG_MAP[case]
    assert old in MAP
    message = refusal(write(tmp_path, MAP.replace(old, new, 1)))
    for part in parts:
        assert part in message


@pytest.mark.parametrize("name", builtin_kernels())
def test_builtin_kernels_are_good(name: str) -> None:
    kernel = load_kernel(name)
    assert kernel.name == name
    problems = {kernel.problem(preset=preset).key for preset in kernel.presets}
    assert len(problems) == len(kernel.presets)


# Text to replace, its replacement, and what the message must say.
WRONG: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "unknown key in a table": ("summary = ", "sumary = ", ("kernel", "'sumary'", "did you mean summary")),
    "unknown key in a tensor": (
        '"input" }\ny',
        '"input", inti = "ones" }\ny',
        ("tensors: x", "did you mean init"),
    ),
    "unknown table": ("[work]", "[works]", ("unknown key 'works'", "did you mean work?")),
    "unknown table at the end": (
        "[scalars]",
        "[scalers]",
        ("unknown key 'scalers'", "did you mean scalars?"),
    ),
    "unknown key in a launch": (
        "grid =",
        "gird =",
        ("launches[0]", "unknown key 'gird'", "did you mean grid?"),
    ),
    "unknown key in place of values": (
        "{ values = [64,",
        "{ vlaues = [64,",
        ("block_size", "unknown key 'vlaues'; did you mean values?"),
    ),
    "unknown name in an entry": (
        'entry = "scale"',
        'entry = "scale<{{ blok_size }}>"',
        ("entry", "unknown name 'blok_size'", "did you mean block_size"),
    ),
    "size in an entry": ('entry = "scale"', 'entry = "scale<{{ n }}>"', ("entry", "unknown name 'n'")),
    "unknown filter in an entry": (
        'entry = "scale"',
        'entry = "scale<{{ input | ctype }}>"',
        ("entry", "there is no filter 'ctype'"),
    ),
    "entry that is no template": ('entry = "scale"', 'entry = "scale<{{ n >"', ("launches[0]", "entry")),
    "choices in order": (
        '["x", "y",',
        '["x", "q",',
        ("choose from: alpha, block_size, fast, n, partial, x, y",),
    ),
    "unknown key in a parameter": ("doc =", "docs =", ("parameters: block_size", "did you mean doc")),
    "missing name": ('name = "scale"\n', "", ("kernel", "'name' is missing", "kernel-files")),
    "wrong type": ('name = "scale"', "name = 3", ("name = 3 is not text",)),
    "table expected": ("[work]\nbytes", "[work.bytes]\nx", ("bytes", "is not text")),
    "name that cannot be one": ("{ n = 1024 }", '{ "n-1" = 1024 }', ("'n-1' cannot be a name", "letters")),
    "name of a function": ("{ n = 1024 }", "{ max = 1024 }", ("'max' cannot be a name",)),
    "keyword of both languages": (
        "fast = ",
        "class = ",
        ("'class' cannot be a name", "a keyword of Python, so"),
    ),
    "keyword of Python": ("{ n = 1024 }", "{ lambda = 1024 }", ("'lambda' cannot be a name", "of Python")),
    "keyword of C++": ("fast = ", "template = ", ("plain", "'template' cannot be a name", "keyword of C++")),
    "name of a device limit": ("{ n = 1024 }", "{ n = 1, cc = 3 }", ("'cc' names two things", "rename")),
    "name of a compiler's report": ("fast = ", "registers = ", ("'registers' names two things", "rename")),
    "name that templates know": ("fast = ", "problem = ", ("'problem' names two things",)),
    "parameter named like a tensor": ("fast = ", "x = ", ("plain", "'x' names two things")),
    "scratch named like a parameter": ("partial = {", "fast = {", ("'fast' names two things",)),
    "scalar named like a size": ("alpha = {", "n = {", ("'n' names two things",)),
    "size below one": ("n = 1024", "n = 0", ("sizes.n = 0", "from 1 up")),
    "size beyond any": ("n = 1024", f"n = {2**62 + 1}", ("sizes.n = 46", "from 1 up to 2**62")),
    "preset beyond any": ("small = { n = 16", f"small = {{ n = {2**62 + 1}", ("small.n = 46", "up to 2**62")),
    "size that is no number": ("n = 1024", 'n = "many"', ("sizes.n = 'many'", '"2**24"')),
    "size that is no whole number": ("n = 1024", 'n = "2**-1"', ("sizes.n = '2**-1'", "whole number")),
    "text beyond any size": ("n = 1024", 'n = "2**63"', ("sizes.n = '2**63'", "up to 2**62")),
    "bad dtype": ('["float32",', '["flaot32",', ("dtypes.input", "'flaot32'", "did you mean float32")),
    "dtype of the wrong type": ('["float32",', "[[1],", ("dtypes.input has [1]",)),
    "no dtypes": (
        '{ input = ["float32", "float16"], output = "input" }',
        "{}",
        ("it has no dtypes", "for example"),
    ),
    "bad dtype to follow": ('output = "input"', 'output = "inptu"', ("dtypes.output", "did you mean input")),
    "bad dtype of a tensor": (
        '["n"], dtype = "input" }',
        '["n"], dtype = "int12" }',
        ("tensors: x", "int12"),
    ),
    "bad role": ('role = "output"', 'role = "outptu"', ("role = 'outptu'", "did you mean output")),
    "no output": (', role = "output"', "", ("no tensor has role output", "give one")),
    "bad init": ('"input" }\ny', '"input", init = "gauss" }\ny', ("init = 'gauss'", "normal")),
    "empty shape": ('x = { shape = ["n"]', "x = { shape = []", ("shape is empty",)),
    "unknown name in an expression": (
        "block_size <= n",
        "blok_size <= n",
        ("'blok_size'", "did you mean block_size"),
    ),
    "unknown name in a grid": ("ceil_div(n, block_size)", "ceil_div(n, bs)", ("grid", "'bs'")),
    "parameter outside its variant": ('bytes = "2 *', 'bytes = "block_size *', ("work", "'block_size'")),
    "grid of four dimensions": (
        '["ceil_div(n, block_size)"]',
        '["n", "1", "1", "2"]',
        ("launches[0]: grid has 4 dimensions", "one to three expressions"),
    ),
    "block of five dimensions": (
        'block = ["block_size"]',
        'block = ["block_size", "2", "2", "2", "2"]',
        ("launches[0]: block has 5 dimensions", "one to three expressions"),
    ),
    "cluster of four dimensions": (
        'block = ["block_size"]',
        'block = ["block_size"]\ncluster = ["1", "1", "1", "1"]',
        ("launches[0]: cluster has 4 dimensions", "one to three expressions"),
    ),
    "compiler's report in a grid": ("ceil_div(n, block_size)", "registers", ("grid", "'registers'")),
    "forbidden syntax": ("block_size <= n", "n.bit_length() > 1", ("not allowed", "use arithmetic")),
    "forbidden call": ("block_size <= n", "open('x')", ("no function 'open'",)),
    "no expression": ("block_size <= n", "block_size <=", ("cannot parse",)),
    "nested too deeply": ("block_size <= n", "-" * 1500 + "1", ("too deeply",)),
    "default not among the values": ("default = 128", "default = 100", ("default = 100", "[64, 128, 256]")),
    "default of another type": ("default = 128", "default = 128.0", ("default = 128.0",)),
    "no values": ("[64, 128, 256], default = 128", "[]", ("values = []", "at least one")),
    "mixed values": ("[true, false]", "[true, 1]", ("values = [True, 1]", "all of one type")),
    "values that are lists": ("[true, false]", "[[1], [2]]", ("all of one type",)),
    "value beyond 64 bits": ("[true, false]", "[1, 9999999999999999999999]", ("values = [1, 99", "64 bits")),
    "value below 64 bits": ("[true, false]", "[-9223372036854775809]", ("values = [-92", "64 bits")),
    "option beyond 64 bits": ('["up", "down"]', "[1, 9223372036854775808]", ("order = [1, 92", "64 bits")),
    "value given twice": ("[true, false]", "[true, true]", ("twice",)),
    "infinite value": ("[true, false]", "[1.0, inf]", ("finite",)),
    "preset with an unknown name": ("presets.small = { n", "presets.small = { m", ("presets.small", "'m'")),
    "preset with a bad size": (
        "small = { n = 16",
        'small = { n = "few"',
        ("presets.small.n = 'few'", "whole number"),
    ),
    "preset with a bad option": (
        'order = "down",',
        'order = "dwon",',
        ("presets.small.order", "did you mean down"),
    ),
    "preset with a bad dtype": ('input = "float16" }', 'input = "float15" }', ("did you mean float16",)),
    "no variant": (GOOD[GOOD.index("[variants.plain]") :], "", ("there are no variants", "add a")),
    "no launch": (GOOD[GOOD.index("[[variants") :], "", ("plain", "there are no launches", "launches]]")),
    "missing template": ("scale.cu", "scael.cu", ("'scael.cu' does not exist", "put it beside scale.toml")),
    "template with an impossible name": ("scale.cu", "s" * 300, ("does not exist",)),
    "unknown argument": ('["x", "y",', '["x", "z",', ("argument 'z'",)),
    "argument of the wrong kind": ('["x", "y",', '["x", 3,', ("argument 3", "give a name")),
    "argument of a bad dtype": ('dtype = "int64"', 'dtype = "int63"', ("int63", "did you mean int64")),
    "unknown name in the reference": ('"alpha * x"', '"alpha * z"', ("numpy", "'z'")),
    "forbidden reference": ('"alpha * x"', '"x.tofile(alpha)"', ("not allowed", "use + -")),
    "reference of no output": ('numpy = "alpha * x"', 'numpy = { x = "y" }', ("numpy.x is not an output",)),
    "tolerance of nothing": ('"alpha * x"', '"alpha * x"\ntolerance = 0', ("tolerance = 0.0", "above 0")),
    "golden of no tensor": ('"alpha * x"', '"alpha * x"\ngolden.z = "z.npy"', ("golden.z is not a tensor",)),
    "pipe that no GPU has": (
        'bytes = "2',
        'pipe = "scalar"\nbytes = "2',
        ("pipe = 'scalar'", "vector, matrix"),
    ),
    "baseline that is no text": ('"torch.mul(x, alpha, out=y)"', "3", ("baselines: torch = 3 is not text",)),
    "baseline that is no call": ('"torch.mul(x, alpha, out=y)"', '"x * 2"', ("torch: ", "write one call")),
    "baseline of a function not on the list": (
        "torch.mul(",
        "torch.load(",
        ("baselines: torch: 'torch.load' is not allowed", "addmm"),
    ),
    "baseline of another library": ("torch.mul(", "jax.mul(", ("'jax.mul'", "torch or cupy")),
    "baseline without an output": (", out=y)", ")", ("does not say where", "add out=")),
    "baseline that writes an input": (
        ", out=y)",
        ", out=x)",
        ("torch: out=x is not an output", "choose from: y"),
    ),
    "baseline with an unknown name": ("(x, alpha,", "(x, alhpa,", ("'alhpa'", "did you mean alpha")),
    "baseline with an option": ("(x, alpha,", "(x, order,", ("unknown name 'order'",)),
    "baseline nested too deeply": ("(x, alpha,", "(" + "-" * 1900 + "x, alpha,", ("too deeply", "simplify")),
    "baseline with a taken name": ('torch = "', 'numpy = "', ("'numpy' cannot name a baseline", "torch")),
    "baseline that cannot have its name": ('torch = "', '"to-rch" = "', ("'to-rch' cannot be a name",)),
    "pruning rule by registers": (
        "[[variants.plain.launches]]",
        '[variants.plain.pruning]\n"few" = "registers < 9"\n[[variants.plain.launches]]',
        ("pruning: few", "registers"),
    ),
    "term with a taken name": (
        "[work]",
        '[definitions]\nn = "3"\n[work]',
        ("definitions", "'n' names two things", "rename"),
    ),
    "parameter with the name of a term": (
        "[work]",
        '[definitions]\nfast = "3"\n[work]',
        ("variants: plain", "'fast' names two things"),
    ),
    "term with what is not allowed": (
        "[work]",
        '[definitions]\nhalf = "n.real"\n[work]',
        ("half", "'n.real'", "use"),
    ),
    "definition that grows without bound": (
        "[work]",
        "[definitions]\n"
        + "".join(f't{i + 1} = "t{i} + t{i}"\n' for i in range(12)).replace("t0", "n")
        + "[work]",
        ("definitions", "characters", "keep it under"),
    ),
    "definition of terms that come later": (
        "[work]",
        '[definitions]\nhalf = "whole // 2"\nwhole = "n"\n[work]',
        ("definitions: half = 'whole // 2' uses 'whole'", "those before it"),
    ),
    "definition of itself": (
        "[work]",
        '[definitions]\nhalf = "half // 2"\n[work]',
        ("half = 'half // 2' uses 'half'",),
    ),
    "definition of what is nowhere": (
        "[work]",
        '[definitions]\nhalf = "block_sise // 2"\n[work]',
        ("definitions: half uses unknown name 'block_sise'", "did you mean block_size"),
    ),
    "definition of what is not known there": (
        '[work]\nbytes = "2',
        '[definitions]\nblocks = "n // block_size"\n[work]\nbytes = "blocks',
        (
            "bytes = 'blocks * n * itemsize(input)' uses unknown name 'block_size', by the definition 'blocks'",
        ),
    ),
    "missing include folder": ("[work]", '[compile]\ninclude = ["inc"]\n[work]', ("'inc' does not exist",)),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_file_is_refused_with_a_remedy(case: str, tmp_path: Path) -> None:
    old, new, parts = WRONG[case]
    assert old in GOOD
    message = refusal(write(tmp_path, GOOD.replace(old, new, 1)))
    for part in parts:
        assert part in message
    assert message.count("; ") >= 1 or "is not" in message, "no remedy"


CONSTRAINT = "variants: plain: constraints: a block is not larger than the problem: "
# Text to replace and its replacement; where the message must say it is, and what is wrong.
VALUELESS: dict[str, tuple[str, str, str, str]] = {
    "exponent": ("block_size <= n", "2 ** 99999999 > block_size", CONSTRAINT, "exponent above 64; use a smaller"),
    "text in a sum": ("block_size <= n", "block_size + input > 3", CONSTRAINT, "text cannot be added, repeated"),
    "text compared": ("block_size <= n", "input > 3", CONSTRAINT, "text and numbers are mixed; calculate with numbers"),
    "no dtype": ("block_size <= n", "itemsize('foo') > 3", CONSTRAINT, "not a dtype; use one of float64"),
    "power": ("block_size <= n", "block_size ** (0 - 1) > 3", CONSTRAINT, "powers are not allowed; use"),
    "requires": ('"cc >= 75"', '"1 // (n - 1024)"', "variants: plain: requires: ", "by zero; write a // b if"),
    "work": ("2 * n * itemsize", "n / 0 * itemsize", "work: bytes: ", "division by zero; write a // b if"),
    "less than no work": ("2 * n * itemsize", "-n * itemsize", "work: bytes: ", "= -4096; it must be 0 or more"),
    "work as text": ('"2 * n * itemsize(input)"', '"input"', "work: bytes: ", "float32; it must be a number"),
    "shape": ('x = { shape = ["n"]', 'x = { shape = ["n - 1024"]', "tensors: x: shape: ", "n - 1024 = 0; it must"),
    "grid": ('"ceil_div(n, block_size)"', '"n - 1024"', "variants: plain: launches[0]: grid: ", "= 0; it must be"),
    "tolerance": ('"alpha * x"', '"alpha * x"\ntolerance = "n - 1024"', "reference: tolerance: ", "above 0"),
    "reduction": ('"alpha * x"', '"alpha * x"\nreduction = "input"', "reference: reduction: ", "be a number"),
}  # fmt: skip


@pytest.mark.parametrize("case", VALUELESS)
def test_what_has_no_value_names_its_file_and_key(case: str, tmp_path: Path) -> None:
    old, new, where, what = VALUELESS[case]
    assert old in GOOD
    file, gpu = write(tmp_path, GOOD.replace(old, new, 1)), ARCHITECTURES[90]
    with pytest.raises(KernelError) as caught:
        kernel = read_kernel(file)
        problem = kernel.problem()
        space = SearchSpace.from_kernel(kernel, problem, gpu)
        settle_reference(kernel, problem, gpu)
        roof_of(kernel, problem, gpu)
        make_plan(kernel, problem, gpu, space.default)
    message = str(caught.value)
    assert message.startswith(f"scale.toml: {where}")
    assert what in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("wrong", "where"),
    [("'yes'", CONSTRAINT), ("2", CONSTRAINT), ("1 / 0", CONSTRAINT), ("0 / 0", "scalars: alpha: value")],
)
def test_constants_that_are_no_condition_or_number_are_refused_when_read(
    wrong: str, where: str, tmp_path: Path
) -> None:
    right = "block_size <= n" if where == CONSTRAINT else "2.0"
    text = GOOD.replace(right, wrong, 1)
    with pytest.raises(KernelError, match=f"scale.toml: {where}"):
        read_kernel(write(tmp_path, text))


def test_an_axis_that_no_tensor_has_is_refused_when_read(tmp_path: Path) -> None:
    text = GOOD.replace('numpy = "', 'numpy = "sum(x, axis=5) + ', 1)
    assert text != GOOD
    with pytest.raises(KernelError, match=r"scale.toml: reference: numpy .* names axis 5"):
        read_kernel(write(tmp_path, text))


def test_one_configuration_is_refused_like_all(tmp_path: Path) -> None:
    kernel = read_kernel(write(tmp_path, GOOD.replace("block_size <= n", "input > 3")))
    configuration = Configuration.of("plain", kernel.variants["plain"].defaults)
    assert invalid_reason(kernel, kernel.problem(), ARCHITECTURES[90], configuration).startswith(
        f"scale.toml: {CONSTRAINT}'input > 3' has no value here"
    )


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("[kernel", "not valid TOML"),
        (GOOD.replace("fast = ", "block_size = "), "not valid TOML"),
        (b"\xff\xfe", "byte 0 is not UTF-8"),
        ("x = " + "[" * 5000, "not valid TOML"),
        ("x = " + "9" * 5000, "not valid TOML"),
        ("# " + "x" * MAX_FILE_BYTES, "too large"),
        ("", "'name' is missing"),
    ],
)
def test_what_is_not_a_kernel_file_is_refused(text: str | bytes, part: str, tmp_path: Path) -> None:
    assert part in refusal(write(tmp_path, text))


def test_cuda_reference_must_write_outputs_and_magnitudes(tmp_path: Path) -> None:
    table = (
        '[reference.cuda]\ntemplate = "scale.cu"\nentry = "scale"\n'
        'arguments = ["x", "y"]\ngrid = ["1"]\nblock = ["32"]\n\n[work]'
    )
    text = GOOD.replace("[work]", table)
    assert "'y_magnitude' is missing" in refusal(write(tmp_path, text))
    kernel = read_kernel(write(tmp_path, text.replace('["x", "y"]', '["x", "y", "y_magnitude"]')))
    assert kernel.reference.cuda is not None


def test_an_entry_may_use_what_templates_see(tmp_path: Path) -> None:
    entry = "s<{{ input | c_type }}, {{ ceil_div(block_size, 2) }}, {{ order }}, {{ problem.n }}, {{ cc }}>"
    kernel = read_kernel(write(tmp_path, GOOD.replace('entry = "scale"', f'entry = "{entry}"')))
    assert kernel.variants["plain"].launches[0].entry == entry


def test_unknown_names_of_kernels(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean vector_add"):
        load_kernel("vectr_add")
    with pytest.raises(UsageError, match="no kernel file"):
        load_kernel(str(tmp_path / "none.toml"))
    with pytest.raises(KernelError, match="cannot read"):
        read_kernel(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({"sizes": {"m": 4}}, "no size 'm'"),
        ({"sizes": {"n": 0}}, "size n=0"),
        ({"sizes": {"n": 2**62 + 1}}, "size n=4611686018427387905"),
        ({"dtypes": {"": "int8"}}, "no dtype of input 'int8'"),
        ({"dtypes": {"output": "float16"}}, "fixes output to float32"),
        ({"options": {"order": "sideways"}}, "value of option order"),
        ({"preset": "smal"}, "did you mean small"),
    ],
)
def test_problems_that_the_kernel_does_not_have(arguments: dict[str, Any], part: str, tmp_path: Path) -> None:
    kernel = read_kernel(write(tmp_path, GOOD))
    with pytest.raises(UsageError, match=part):
        kernel.problem(**arguments)


def test_damaged_files_never_raise_anything_else(tmp_path: Path) -> None:
    """Cut, doubled and swapped pieces of a good file: each is read or refused, never a traceback."""
    rng = random.Random(0)
    pieces = [
        "0",
        "-1",
        "true",
        '""',
        "[]",
        "{}",
        "nan",
        '"\\u0000"',
        "[[1]]",
        "1e400",
        '"cc"',
        '"(" ',
        "99999999999999999999",
    ]
    refused = 0
    for _ in range(400):
        lines = GOOD.splitlines()
        row = rng.randrange(len(lines))
        if "=" in lines[row] and rng.random() < 0.8:
            key, _, rest = lines[row].partition("=")
            lines[row] = f"{key}= {rng.choice(pieces)}" if rng.random() < 0.7 else f"{key}x={rest}"
        else:
            lines[row : row + rng.randrange(3)] = []
        try:
            kernel = read_kernel(write(tmp_path, "\n".join(lines)))
            for preset in [None, *kernel.presets]:
                kernel.problem(preset=preset)
        except (KernelError, UsageError) as error:
            assert "\n" not in str(error)
            refused += 1
    assert refused > 200


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
