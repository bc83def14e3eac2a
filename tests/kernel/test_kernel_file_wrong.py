"""A kernel file that is wrong is refused in one line that names the file, the key and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernel_files import GOOD, MAP, refusal, write

WRONG_MAP: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "expression that is none": ("x+0.50*(20-x)", "x +", ("options: op: expression: cannot parse",)),
    "expression with an unknown name": ("x+0.50*(20-x)", "x + z", ("unknown name 'z'", "x, y")),
    "expression without names": ('of = ["x", "y"]', "of = []", ("of = []", "name the tensors")),
    "expression of no tensor": ('of = ["x", "y"]', 'of = ["x", "y", "z"]', ("of names 'z'", "x, y")),
    "unknown key of an expression": ('of = ["x"', 'off = 1, of = ["x"', ("op: unknown key 'off'", "mean of?")),
    "preset with a number": ('"x*y"', "3", ("presets.product.op = 3 is not text",)),
    "uses of no expression": ("when = \"uses(op, 'x')", "when = \"uses(order, 'x')", ("'order' is no element",)),
    "uses of another name": ("uses(op, 'x')", "uses(op, 'z')", ("op has no name 'z'", "choose from: x, y")),
    "operations of no expression": ('"operations(op) * n"', '"operations(order) * n"', ("no element expression",)),
    "when by the GPU": ("when = \"uses(op, 'y')", "when = \"cc >= 80 and uses(op, 'y')", ("unknown name 'cc'",)),
    "state that names nothing": (
        "[[variants.half.launches]]", "[variants.half]\nstate = [1]\n[[variants.half.launches]]",
        ("state = [1]", "names of variables"),
    ),
    "zeroed in another way": ('"once"', '"twice"', ("zeroed = 'twice'", "once")),
    "comparison with no value": ("order == 'up'", "order == 'pu'", ("compares order with 'pu'", "up, down")),
    "rounding of operands above 1": (
        "2 ** -10 if order == 'down' else 0", "2", ("operand_rounding = 2.0", "2**-10"),
    ),
    "tolerance of an unknown name": ("2 if input ==", "2 if inptu ==", ("tolerance", "did you mean input")),
    "step without a name": ('name = "plain, small"', 'name = " "', ("ladder[0]: name = ' '", "one line")),
    "step of no variant": ('variant = "half"', 'variant = "hafl"', ("ladder[1]: variant = 'hafl'", "mean half?")),
    "step with another value": ("{ block_size = 64 }", "{ block_size = 65 }", ("block_size = 65", "64, 128")),
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


# Text to replace, its replacement, and what the message must say.
WRONG: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "unknown key in a table": ("summary = ", "sumary = ", ("kernel", "'sumary'", "did you mean summary")),
    "unknown table": ("[work]", "[works]", ("unknown key 'works'", "did you mean work?")),
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
    "unknown filter in an entry": (
        'entry = "scale"',
        'entry = "scale<{{ input | ctype }}>"',
        ("entry", "there is no filter 'ctype'"),
    ),
    "entry that is no template": ('entry = "scale"', 'entry = "scale<{{ n >"', ("launches[0]", "entry")),
    "missing name": ('name = "scale"\n', "", ("kernel", "'name' is missing", "kernel-files")),
    "wrong type": ('name = "scale"', "name = 3", ("name = 3 is not text",)),
    "name that cannot be one": ("{ n = 1024 }", '{ "n-1" = 1024 }', ("'n-1' cannot be a name", "letters")),
    "keyword of C++": ("fast = ", "template = ", ("plain", "'template' cannot be a name", "keyword of C++")),
    "name of a device limit": ("{ n = 1024 }", "{ n = 1, cc = 3 }", ("'cc' names two things", "rename")),
    "size below one": ("n = 1024", "n = 0", ("sizes.n = 0", "from 1 up")),
    "size beyond any": ("n = 1024", f"n = {2**62 + 1}", ("sizes.n = 46", "from 1 up to 2**62")),
    "bad dtype": ('["float32",', '["flaot32",', ("dtypes.input", "'flaot32'", "did you mean float32")),
    "no dtypes": ('{ input = ["float32", "float16"], output = "input" }', "{}", ("it has no dtypes", "for example")),
    "no output": (', role = "output"', "", ("no tensor has role output", "give one")),
    "empty shape": ('x = { shape = ["n"]', "x = { shape = []", ("shape is empty",)),
    "unknown name in an expression": (
        "block_size <= n",
        "blok_size <= n",
        ("'blok_size'", "did you mean block_size"),
    ),
    "parameter outside its variant": ('bytes = "2 *', 'bytes = "block_size *', ("work", "'block_size'")),
    "forbidden syntax": ("block_size <= n", "n.bit_length() > 1", ("not allowed", "use arithmetic")),
    "nested too deeply": ("block_size <= n", "-" * 1500 + "1", ("too deeply",)),
    "default not among the values": ("default = 128", "default = 100", ("default = 100", "[64, 128, 256]")),
    "value beyond 64 bits": ("[true, false]", "[1, 9999999999999999999999]", ("values = [1, 99", "64 bits")),
    "value given twice": ("[true, false]", "[true, true]", ("twice",)),
    "infinite value": ("[true, false]", "[1.0, inf]", ("finite",)),
    "preset with a bad option": ('order = "down",', 'order = "dwon",', ("presets.small.order", "did you mean down")),
    "no variant": (GOOD[GOOD.index("[variants.plain]") :], "", ("there are no variants", "add a")),
    "many parameters": (
        "block_size = {",
        "".join(f"p{i} = {{ values = [1] }}\n" for i in range(64)) + "block_size = {",
        ("plain: 66 parameters", "have at most 64"),
    ),
    "template with an impossible name": ("scale.cu", "s" * 300, ("does not exist",)),
    "unknown argument": ('["x", "y",', '["x", "z",', ("argument 'z'",)),
    "init of an output": (
        'role = "output" }',
        'role = "output", init = "zeros" }',
        ("tensors: y", "an output begins as NaN", 'role = "inout"'),
    ),
    "struct without members": (
        '"n", { value',
        '"n", { fields = [] }, { value',
        ("fields is empty", '{ value = "0", dtype = "uint8" }'),
    ),
    "argument of a bad dtype": ('dtype = "int64"', 'dtype = "int63"', ("int63", "did you mean int64")),
    "unknown name in the reference": ('"alpha * x"', '"alpha * z"', ("numpy", "'z'")),
    "reference of no output": ('numpy = "alpha * x"', 'numpy = { x = "y" }', ("numpy.x is not an output",)),
    "tolerance of nothing": ('"alpha * x"', '"alpha * x"\ntolerance = 0', ("tolerance = 0.0", "above 0")),
    "golden of no file": ('"alpha * x"', '"alpha * x"\ngolden.y = "."', ("golden.y = '.' is no plain file",)),
    "pipe that no GPU has": ('bytes = "2', 'pipe = "scalar"\nbytes = "2', ("pipe = 'scalar'", "vector, matrix")),
    "baseline with an option": ("(x, alpha,", "(x, order,", ("unknown name 'order'",)),
    "baseline nested too deeply": ("(x, alpha,", "(" + "-" * 1900 + "x, alpha,", ("too deeply", "simplify")),
    "pruning rule by registers": (
        "[[variants.plain.launches]]",
        '[variants.plain.pruning]\n"few" = "registers < 9"\n[[variants.plain.launches]]',
        ("pruning: few", "registers"),
    ),
    "definition that grows without bound": (
        "[work]",
        "[definitions]\n" + "".join(f't{i + 1} = "t{i} + t{i}"\n' for i in range(12)).replace("t0", "n") + "[work]",
        ("definitions", "characters", "keep it under"),
    ),
    "definition of what is nowhere": (
        "[work]",
        '[definitions]\nhalf = "block_sise // 2"\n[work]',
        ("definitions: half uses unknown name 'block_sise'", "did you mean block_size"),
    ),
    "definition of what is not known there": (
        '[work]\nbytes = "2',
        '[definitions]\nblocks = "n // block_size"\n[work]\nbytes = "blocks',
        ("bytes = 'blocks * n * itemsize(input)' uses the parameter 'block_size', by the definition 'blocks'",),
    ),
    "shape of a parameter": (
        'y = { shape = ["n"]',
        'y = { shape = ["n // block_size"]',
        ("uses the parameter 'block_size'", "scratch of the variant"),
    ),
    "parameter with the name of a type": (
        "fast = {",
        "input_type = {",
        ("'input_type' cannot be a name", "dtype role 'input'", "rename it"),
    ),
    "option with the name of another's macro": (
        "options = { order",
        'options = { op_uses_x = [1], op = { expression = "x", of = ["x"] }, order',
        ("'op_uses_x' cannot be a name", "a macro of the option 'op'", "rename it"),
    ),
    "missing include folder": ("[work]", '[compile]\ninclude = ["inc"]\n[work]', ("'inc' does not exist",)),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_wrong_file_is_refused_with_a_remedy(case: str, tmp_path: Path) -> None:
    old, new, parts = WRONG[case]
    assert old in GOOD
    message = refusal(write(tmp_path, GOOD.replace(old, new, 1)))
    for part in parts:
        assert part in message
    assert message.count("; ") >= 1 or "is not" in message, "no remedy"


def test_what_is_repeated_of_an_endless_word_is_not_endless(tmp_path: Path) -> None:
    said = refusal(write(tmp_path, f"like = '{'x' * 3000}end'\n{GOOD}"))
    assert " characters]xxx" in said and "xend'" in said and len(said) < 2000
