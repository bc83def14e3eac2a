"""A torch module as a task: its file becomes a kernel's file in a folder, with ``Model`` as reference and baseline."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from tuner.children.module_worker import LOOKING, Port, Ports
from tuner.core.errors import DeviceError, UsageError
from tuner.core.processes import ChildDied, ask_once
from tuner.kernel.draft import key, toml_value
from tuner.kernel.modules import FILE, REDUCTION, TOLERANCE

LOOKING_S = 120.0
"""For running a module's file once: torch's import takes seconds, large inputs some more."""
FUNCTIONS = """\
from pathlib import Path

import reference_module
from tuner.kernel import modules

FILE = Path(reference_module.__file__)


def reference({inputs}):
    return modules.expected(FILE, {inputs})
"""
GIVEN = """

def {name}():
    return modules.inputs_of(FILE)[{number}].numpy()
"""


def write_task(file: Path, folder: Path) -> Path:
    """Return the kernel's file that stands for a module's; written to a folder with all that it needs.

    Raises:
        UsageError: the module cannot be run, or has other inputs than tensors.
    """
    remedy = "write Model, get_inputs and get_init_inputs, as KernelBench has them"
    shutil.copyfile(file, folder / FILE)
    try:
        found = ask_once("tuner.children.module_worker", LOOKING, folder / FILE, LOOKING_S)
    except ChildDied as died:
        found = Ports(error=str(died))
    if found is None:
        raise UsageError(f"{file.name}: it has not returned in {LOOKING_S:g} s", "use smaller inputs")
    if found.error.startswith(ModuleNotFoundError.__name__):
        raise DeviceError(f"{file.name}: {found.error}", "install it beside the tuner")
    if found.error:
        raise UsageError(f"{file.name}: {found.error}", remedy)
    inputs = {f"x{number}": port for number, port in enumerate(found.inputs)}
    outputs = {f"y{number}": port for number, port in enumerate(found.outputs)}
    functions = FUNCTIONS.format(inputs=", ".join(inputs))
    for number, (name, port) in enumerate(inputs.items()):
        functions += "" if port.init else GIVEN.format(name=name, number=number)
    (folder / "functions.py").write_text(functions, encoding="utf-8")
    task = folder / f"{re.sub(r'[^A-Za-z0-9_]', '_', file.stem)}.toml"
    task.write_text("\n".join(_lines(file, inputs, outputs)), encoding="utf-8")
    return task


def _lines(file: Path, inputs: dict[str, Port], outputs: dict[str, Port]) -> Iterator[str]:
    name = re.sub(r"\W", "_", file.stem, flags=re.ASCII)
    kernel = {
        "name": name if name[:1].isalpha() else f"module_{name}",
        "summary": f"the torch module of {file.name}",
    }
    first = next(iter(inputs.values()))
    yield f"kernel = {toml_value(kernel)}"
    yield f"problem = {toml_value({'sizes': {}, 'dtypes': {'input': [first.dtype]}})}"
    yield f"judge = {toml_value({'any_size': False})}"
    yield "[tensors]"
    for one, port in (*inputs.items(), *outputs.items()):
        tensor: dict[str, object] = {"shape": [str(side) for side in port.shape], "dtype": port.dtype}
        if one in outputs:
            tensor["role"] = "output"
        elif isinstance(port.init, tuple):
            tensor["init"] = {"uniform": list(port.init)}
        else:
            tensor["init"] = port.init or f"functions.py:{one}"
        yield f"{key(one)} = {toml_value(tensor)}"
    yield "[reference]"
    yield 'python = "functions.py:reference"'
    yield f'reduction = "{REDUCTION}"'
    yield f'tolerance = "{TOLERANCE}"'
    yield "[variants.torch]"
    yield f'call = "{FILE}:Model"'
    yield ""
