"""A bundle: a folder with which a program calls winners. The same contents give the same bytes."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jinja2

from tuner.core import paths
from tuner.core.errors import BundleError
from tuner.core.files import refuse_missing_parent, whole_folder
from tuner.core.model import canonical_json
from tuner.core.reading import read_at_most
from tuner.runtime.bundle import MAX_CUBIN_BYTES
from tuner.runtime.manifest import FORMAT
from tuner.runtime.strict_json import MAX_BYTES, require_within_limits

MANIFEST, WRITTEN = "manifest.json", "SHA256SUMS"
MAX_WRITTEN_BYTES = 1 << 20
_BY_DIGEST = re.compile(r"(?:cubin/([0-9a-f]{32})\.cubin|src/([0-9a-f]{32})\.cu)")
"""Files whose name is the beginning of their digest; :data:`WRITTEN` has those of the others."""


def bundle_files(
    manifest: Mapping[str, Any], cubins: Mapping[str, bytes], sources: Mapping[str, bytes]
) -> dict[str, bytes]:
    """Return the content of each of a bundle's files by its path in the folder.

    Args:
        manifest: as JSON.
        cubins: by the names that the manifest uses.
        sources: likewise.

    Raises:
        BundleError: the manifest is beyond a limit of the launchers.
    """
    package = f"kernel_tune_{manifest['kernel']}"
    text = f"{canonical_json(manifest)}\n".encode()
    require_within_limits(text)
    names = {"kernel": manifest["kernel"], "package": package, "version": manifest["version"]}
    files = {
        MANIFEST: text,
        **{f"cubin/{digest}.cubin": content for digest, content in cubins.items()},
        **{f"src/{digest}.cu": content for digest, content in sources.items()},
        **_launchers(),
        "__init__.py": _rendered("__init__.py", **names),
        f"lib/cmake/{package}/{package}Config.cmake": _rendered("Config.cmake", **names),
        f"lib/pkgconfig/{package}.pc": _rendered("pkgconfig.pc", **names),
        "LICENSE": _license().encode(),
        "README.md": _readme(manifest, package),
    }
    listed = sorted(name for name in files if not _BY_DIGEST.fullmatch(name))
    lines = (f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in listed)
    return {**files, WRITTEN: "".join(lines).encode()}


def _launchers() -> dict[str, bytes]:
    """Return the launchers for C++ and Python, which are the same in every bundle."""
    package = paths.package()
    runtime = package / "runtime"
    files = {f"runtime/{path.name}": path for path in runtime.glob("*.py")}
    headers = (runtime / "include" / "kernel_tune").glob("*.hpp")
    files |= {f"include/kernel_tune/{path.name}": path for path in headers}
    others = ("core/__init__.py", "core/errors.py", "core/reading.py", "py.typed")
    files |= {name: package / name for name in others}
    return {name: path.read_bytes() for name, path in files.items()}


def _license() -> str:
    """Return the licence's text: of the checkout, or of the installed distribution."""
    beside = paths.package().parent / "LICENSE"
    if beside.is_file():
        return beside.read_text(encoding="utf-8")
    return importlib.metadata.distribution("kernel-tune").read_text("licenses/LICENSE") or ""


def _readme(manifest: Mapping[str, Any], package: str) -> bytes:
    computations = manifest["computations"]
    rows: dict[tuple[str, str], list[str]] = {}
    for winner in manifest["winners"]:
        sizes = " ".join(f"{size}={value}" for size, value in winner["sizes"].items())
        kind = _kind(computations[winner["computation"]])
        rows.setdefault((kind, winner["gpu"]), []).append(sizes)
    inputs = [tensor["name"] for tensor in computations[0]["tensors"] if tensor["role"] != "output"]
    outputs = [tensor["name"] for tensor in computations[0]["tensors"] if tensor["role"] != "input"]
    major, minor = divmod(manifest["minimum_driver"], 1000)
    return _rendered(
        "README.md",
        **{key: manifest[key] for key in ("kernel", "tool", "version", "license")},
        summary=manifest["summary"].rstrip("."),
        package=package,
        winners=[{"kind": kind, "gpu": gpu, "sizes": ", ".join(of)} for (kind, gpu), of in rows.items()],
        portfolios=[
            {
                "kind": _kind(computations[item["computation"]]),
                "gpu": item["gpu"],
                "members": len(item["members"]),
                "points": len(item["points"]),
            }
            for item in manifest.get("portfolios", ())
        ],
        capabilities=sorted({f"{item['cc'] // 10}.{item['cc'] % 10}" for item in manifest["configurations"]}),
        driver=f"{major}.{minor // 10}",
        call=f"{', '.join(outputs)} = op({', '.join(inputs)})",
    )


def _kind(computation: Mapping[str, Any]) -> str:
    parts = {**computation["dtypes"], **computation["options"]}
    return " ".join(f"{name}={value}" for name, value in parts.items()).replace("|", "\\|")


@functools.cache
def exported_template(name: str) -> jinja2.Template:
    """Return a template of what leaves the database; its texts are no HTML."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(paths.templates() / "export"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    return environment.get_template(f"{name}.j2")


def _rendered(name: str, **values: Any) -> bytes:
    return exported_template(f"bundle/{name}").render(**values).encode()


def refuse_target(folder: Path, *, force: bool) -> None:
    """Refuse a folder that a bundle cannot be written to.

    Args:
        folder: where.
        force: whether a bundle that is there may be replaced; nothing else is.

    Raises:
        UsageError: there is no folder around it.
        BundleError: there is something else of that name, or in the bundle.
    """
    refuse_missing_parent(folder)
    if not os.path.lexists(folder):
        return
    if not stat.S_ISDIR(folder.lstat().st_mode):
        raise BundleError(f"{folder} is no folder", "name a new folder with -o")
    if Path.cwd().is_relative_to(folder.resolve()):
        raise BundleError(f"{folder} is where you are, and would be replaced", "name a new folder with -o")
    if any(folder.iterdir()) and not _is_bundle(folder):
        raise BundleError(f"{folder} holds something else than a bundle", "name a new folder with -o")
    if not force:
        raise BundleError(f"{folder} exists already", "add --force, or name a new folder with -o")
    if own := list(_not_written(folder)):
        names = ", ".join([*map(str, own[:3]), *([f"{len(own) - 3} more"] if own[3:] else [])])
        raise BundleError(
            f"tune bundle did not write this as it is, and --force would delete it: {names}",
            "move it, or name a new folder with -o",
        )


def _is_bundle(folder: Path) -> bool:
    try:
        return bool(json.loads(read_at_most(folder / MANIFEST, MAX_BYTES))["format"] == FORMAT)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False


def _not_written(folder: Path) -> Iterator[Path]:
    """Yield what a bundle's folder has beside what was written and what Python compiled."""
    listed: dict[str, str] = {}
    # Without a list, nothing is known to be a bundle's.
    with contextlib.suppress(OSError, UnicodeDecodeError):
        lines = read_at_most(folder / WRITTEN, MAX_WRITTEN_BYTES).decode().splitlines()
        listed = {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    folders = {folder / "cubin", folder / "src", *(one for name in listed for one in (folder / name).parents)}
    for where, inner, names in os.walk(folder):
        for path in [Path(where, name) for name in inner]:
            if path.is_symlink() or (path not in folders and path.name != "__pycache__"):
                inner.remove(path.name)
                yield path
        for path in (Path(where, name) for name in names):
            name = str(path.relative_to(folder))
            compiled = path.suffix == ".pyc" and path.parent.name == "__pycache__"
            by_digest = _BY_DIGEST.fullmatch(name)
            digest = by_digest[1] or by_digest[2] if by_digest else listed.get(name, "")
            if name != WRITTEN and not compiled and not _has(path, digest):
                yield path


def _has(path: Path, digest: str) -> bool:
    """Return whether a path is of a plain file with a digest, of which some characters are known."""
    status = path.lstat()
    if not digest or not stat.S_ISREG(status.st_mode) or status.st_size > MAX_CUBIN_BYTES:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest().startswith(digest)


def write_bundle(folder: Path, files: Mapping[str, bytes], *, force: bool) -> None:
    """Write a bundle: all of it, or nothing.

    Args:
        folder: where, as for :func:`refuse_target`.
        files: contents by path.
        force: replace a bundle that is there.

    Raises:
        BundleError: it cannot be written there.
    """
    try:
        refuse_target(folder, force=force)
        with whole_folder(folder.absolute()) as partial:
            for name, content in files.items():
                path = partial / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
    except OSError as error:
        raise BundleError(f"{folder}: {error.strerror or error}", "name another folder with -o") from error
