"""A bundle's folder as an operation. Nothing in it is executed but its cubins, each checked by its name first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.errors import BundleError
from .dispatch import Policy
from .manifest import file_digest, read_manifest
from .operation import Operation


def open_bundle(
    folder: str | Path,
    kernel: str | None = None,
    *,
    policy: str = Policy.NEAREST_VALID,
    dtypes: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Operation:
    """Return the operation of a bundle; no GPU is needed until it is called.

    Args:
        folder: as ``tune bundle`` wrote it, wherever it is now; it must stay there.
        kernel: the name that it must have.
        policy, dtypes, options: of :class:`Operation`.

    Raises:
        BundleError: there is no bundle, it is damaged, of a newer version, or of another kernel.
        CallError: it has no such dtypes or options.
    """
    folder = Path(folder).absolute()
    manifest = read_manifest(_read(folder / "manifest.json", "no bundle is there"))
    if kernel is not None and manifest.kernel != kernel:
        raise BundleError(f"{folder} is a bundle of {manifest.kernel}, not of {kernel}", "name that kernel")

    def cubin(name: str) -> bytes:
        path = folder / "cubin" / f"{name}.cubin"
        content = _read(path, "the bundle is damaged: copy it again")
        if file_digest(content) != name:
            raise BundleError(
                f"{path} is damaged: its content is not what its name says", "copy the bundle again"
            )
        return content

    return Operation(manifest, cubin, policy=policy, dtypes=dtypes, options=options)


def _read(path: Path, remedy: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BundleError(f"{path} cannot be read: {error.strerror}", remedy) from None
