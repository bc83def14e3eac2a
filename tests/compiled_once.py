"""What compilers make of a source, kept for all workers, from run to run, and for all checkouts of a user.

The same compiler gives the same code for the same source and options, and NVRTC and g++ take a third of the time.
What is refused is compiled each time. A week unread, an entry goes. Nor are headers precompiled where the variable
PRECOMPILED is not set: in a folder of each test's own that takes 3 s and 280 MB a time. Importing this module sets it
up: for modules that import ``compile_source`` later.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import marshal
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jinja2
import msgspec

from tuner.children import nvrtc, precompiled
from tuner.core import paths
from tuner.inspect.emulator import building, host
from tuner.inspect.tools.nvidia import NVDISASM, ToolMissingError, find
from tuner.kernel import templates
from tuner.kernel.headers import own_headers

KEPT = Path(tempfile.gettempdir()) / f"kernel-tune-tests-{os.getuid()}"
KEPT.mkdir(mode=0o700, exist_ok=True)
if KEPT.stat().st_uid != os.getuid():
    raise RuntimeError(f"{KEPT} belongs to another user: TMPDIR names another place")
UNREAD_S = 7 * 86400.0
PRECOMPILED = "PRECOMPILED"
"""Variable of the environment of what precompiles headers, as users' processes do."""
ANY_CODE = "ANY_CODE"
"""Variable of the environment of tests for which any code that NVRTC makes will do: it takes it half of the time."""

_compile_source, _compile, COMPILER = nvrtc.compile_source, building.compile_cpp, building.COMPILER
_machine = building.machine


def delete_unread() -> None:
    """Delete what has not been read for a week."""
    with os.scandir(KEPT) as entries:
        for entry in entries:
            if entry.is_file() and time.time() - entry.stat().st_mtime > UNREAD_S:
                Path(entry).unlink(missing_ok=True)


def share_machine(caches: Path) -> None:
    """Let a folder of caches have the emulator's own part, whose path is in what is kept, where the others have it."""
    ours = caches / "kernel-tune" / "emulator"
    ours.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    (KEPT / "emulator").mkdir(mode=0o700, exist_ok=True)
    if not ours.is_symlink():
        shutil.rmtree(ours, ignore_errors=True)
        ours.symlink_to(KEPT / "emulator")


def keep_listings(folder: Path) -> None:
    """Put an ``nvdisasm`` first on the PATH that keeps what the real one, whose start takes 0.3 s, prints of a file."""
    try:
        real = find(NVDISASM)
    except ToolMissingError:
        return
    if real.parent == folder:
        return
    folder.mkdir(mode=0o700, exist_ok=True)
    with real.open("rb") as file:
        kept = shlex.quote(str(KEPT / f"{hashlib.file_digest(file, 'sha256').hexdigest()[:16]}-"))
    script = folder / "nvdisasm"
    new = script.with_suffix(f".{os.getpid()}")
    new.write_text(
        f"""#!/bin/sh
[ "$1" = -c ] && [ $# = 2 ] || exec {shlex.quote(str(real))} "$@"
key=$(sha256sum <"$2") && kept={kept}${{key%% *}} || exit
if [ ! -s "$kept" ]; then
    {shlex.quote(str(real))} "$@" >"$kept.$$" && mv "$kept.$$" "$kept" || {{ rm -f "$kept.$$"; exit 1; }}
fi
exec cat "$kept"
"""
    )
    new.chmod(0o700)
    new.rename(script)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"


@functools.cache
def machine() -> Path:
    """Return what :func:`tuner.inspect.emulator.building.machine` does, by the path for all checkouts."""
    return _machine().resolve()


_OF_LARGE = re.compile(r"include|<<<|texture|surface|tex\dD|surf\dD|cuda[A-Z]")
"""What a source may have of which NVRTC knows nothing where it is told to do without; others are the same code then."""


def compile_source(
    source: str,
    entry: str,
    arch: str,
    options: tuple[str, ...] = (),
    include: tuple[Path, ...] = (),
    *,
    listing: bool = False,
    headers: nvrtc.Headers | None = None,
    precompiled: Path | None = None,
) -> nvrtc.Cubin:
    """Return what the function of this name in :mod:`tuner.children.nvrtc` does."""
    headers = headers or nvrtc.headers_of(source, include, entry, options)
    if ANY_CODE in os.environ:
        options = (*options, "--Ofast-compile=max")
    if not _OF_LARGE.search(source):
        options = (*options, "--minimal")
    compile_it = functools.partial(
        _compile_source, source, entry, arch, options, include, listing=listing, headers=headers,
        precompiled=precompiled,
    )  # fmt: skip
    if precompiled is not None:
        return compile_it()
    own = own_headers([source], include) if "#" in source else []
    read = [part for path in own for part in (path.name, path.read_text(errors="surrogateescape"))]
    encoded = nvrtc.compile_options(arch, options, headers=headers)
    key = _key(nvrtc.nvrtc_version(), source, entry, *encoded, headers.digest, str(listing), *read)
    return msgspec.msgpack.decode(_kept(key, lambda: msgspec.msgpack.encode(compile_it())), type=nvrtc.Cubin)


def ptx(source: str, entry: str, arch: str) -> str:
    """Return what a source compiles to before ptxas, which takes half of the time, makes machine code of it."""

    def compiled() -> bytes:
        bindings = nvrtc.nvrtc()
        _, program = bindings.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, None, None)
        if "<" in entry or "::" in entry:
            bindings.nvrtcAddNameExpression(program, entry.encode())
        (error,) = bindings.nvrtcCompileProgram(
            program, len(options), [option.encode() for option in options]
        )
        assert not int(error), error
        _, size = bindings.nvrtcGetPTXSize(program)
        bindings.nvrtcGetPTX(program, text := b" " * size)
        return bytes(text.rstrip(b"\0"))

    options = nvrtc.compile_options(arch.replace("sm_", "compute_"))
    return _kept(_key(nvrtc.nvrtc_version(), source, entry, *options), compiled).decode()


def front_end(source: str, arch: str) -> str:
    """Return what NVRTC's front end says of a source: whether it is C++, for a tenth of the time of its compilation."""
    bindings = nvrtc.nvrtc()
    _, program = bindings.nvrtcCreateProgram(source.encode(), b"kernel.cu", 0, None, None)
    options = [one for one in nvrtc.compile_options(arch) if "ptxas" not in one] + ["--fdevice-syntax-only"]
    bindings.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
    _, size = bindings.nvrtcGetProgramLogSize(program)
    # NVRTC writes into it: Python has one object for all bytes of length 1, which an empty log would make b"\0".
    bindings.nvrtcGetProgramLog(program, text := b" " * (size + 1))
    return text.rstrip(b" ").rstrip(b"\0").decode().strip()


def precompiled_file(headers: precompiled.PrecompiledHeaders, *given: Any) -> Path | None:
    """Return what :meth:`PrecompiledHeaders.find` does, where that is asked for."""
    return _find(headers, *given) if PRECOMPILED in os.environ else None


OF_KERNELS: tuple[str, ...] = ()
"""Further options for kernels on the CPU."""


def compile_kernel(*words: object) -> None:
    """Compile as the emulator does; the library of a kernel is kept."""
    texts = list(map(str, words))
    if texts[: len(building.LINKED)] != list(building.LINKED) or building.COMPILER != COMPILER:
        _compile(*words)
        return
    output = Path(texts[texts.index("-o") + 1])
    source, *objects = [Path(text) for text in texts if text.endswith((".cpp", ".o"))]
    folders = [Path(text[2:]) for text in texts if text.startswith("-I")]
    read: dict[str, str] = {}
    try:
        _read(source, [source.parent, *folders], read)
        parts = [hashlib.sha256(each.read_bytes()).hexdigest() for each in objects]
    except OSError:  # the compiler says it
        _compile(*words)
        return

    def compiled() -> bytes:
        _compile(*words, *OF_KERNELS)
        return output.read_bytes()

    # The machine's folder is named by the compiler's version, its options, and its headers; the library names it.
    key = _key(str(machine()), *OF_KERNELS, *map(str, sorted(read.items())), *parts)
    library = _kept(key, compiled)
    output.unlink(missing_ok=True)  # one that is loaded stays as it is
    output.write_bytes(library)


def run_once(
    *command: str | Path, folder: Path, reads: Iterable[Path] = (), output: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a compiler in a folder; what it says, and the file that it writes there, are kept for the same sources.

    Args:
        command: of which paths in the folder are relative; its words that are programs are told by their files' times.
        folder: all that lies in it may be read.
        reads: other folders of headers that it may read, beside those of an installation.
        output: the file.
    """
    words = list(map(str, command))
    tools = [Path(found).resolve() for word in words if (found := shutil.which(word))]
    files = sorted(path for each in (folder, *reads) for path in each.rglob("*") if path.is_file())
    parts = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    versions = [f"{tool} {tool.stat().st_size} {tool.stat().st_mtime}" for tool in tools]
    relative = [word.replace(str(folder), ".") for word in words]
    key = _key(*versions, *relative, *(file.name for file in files), *parts)

    def run() -> bytes:
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True)
        written = (folder / output).read_bytes() if output else b""
        return msgspec.msgpack.encode((done.stdout, done.stderr, written))

    try:
        data = _kept(key, run)
    except subprocess.CalledProcessError as error:  # which may be of this time alone
        return subprocess.CompletedProcess(words, error.returncode, error.stdout, error.stderr)
    said, complained, written = msgspec.msgpack.decode(data, type=tuple[str, str, bytes])
    if written:
        (folder / output).write_bytes(written)
        (folder / output).chmod(0o755)
    return subprocess.CompletedProcess(words, 0, said, complained)


def _read(file: Path, folders: list[Path], read: dict[str, str]) -> None:
    """Read a source, and all that it includes by a name in quotes, but for the emulator's own."""
    name = file.name
    read[name] = file.read_text()
    for included in re.findall(r'^ *# *include "([^"]+)"', read[name], re.MULTILINE):
        if included not in read and not (machine() / included).is_file():
            _read(next((path for each in folders if (path := each / included).is_file()), folders[0] / included),
                  folders, read)  # fmt: skip


def _key(*parts: str) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _kept(key: str, compile: Callable[[], bytes]) -> bytes:
    """Return the entry, which is made and stored if there is none; a disk that refuses it is no matter."""
    path = KEPT / key
    with contextlib.suppress(OSError):
        data = path.read_bytes()
        os.utime(path)
        return data
    data = compile()
    with contextlib.suppress(OSError):
        new = path.with_name(f"{key}.{os.getpid()}")
        new.write_bytes(data)
        new.rename(path)
    return data


def compile_template(
    environment: templates._Sandbox, source: Any, name: str | None = None, filename: str | None = None
) -> Any:
    """Compile a template as Jinja does; the code of the package's own is kept: gemm's take 0.2 s a process."""
    kept = filename is not None and isinstance(source, str) and filename.startswith(OWN)
    if not kept or environment.extensions:  # which remember what they have compiled
        return _compile_template(environment, source, name, filename)
    key = _key(sys.version, jinja2.__version__, str(name), str(filename), source)
    if key not in _templates:
        code = _kept(key, lambda: marshal.dumps(_compile_template(environment, source, name, filename)))
        _templates[key] = marshal.loads(code)
    return _templates[key]


OWN = f"{paths.templates().resolve()}{os.sep}"
_compile_template = templates._Sandbox.compile
_templates: dict[str, types.CodeType] = {}

_find = precompiled.PrecompiledHeaders.find

precompiled.PrecompiledHeaders.find = precompiled_file  # type: ignore[assignment,method-assign]
templates._Sandbox.compile = compile_template  # type: ignore[method-assign]
nvrtc.compile_source = compile_source
host.compile_cpp, host.machine = compile_kernel, machine
