"""A bundle's folder as an operation. Nothing in it is executed but its cubins, each checked by its name first."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.errors import BundleError
from ..core.reading import read_at_most
from .dispatch import Policy
from .manifest import file_digest, read_manifest
from .operation import Operation
from .strict_json import FILE, MAX_BYTES

MAX_CUBIN_BYTES = 256 << 20


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
    manifest = read_manifest(_read(folder / FILE, MAX_BYTES, "is it the folder of a bundle?"))
    if kernel is not None and manifest.kernel != kernel:
        raise BundleError(f"{folder} is a bundle of {manifest.kernel}, not of {kernel}", "name that kernel")

    def cubin(name: str) -> bytes:
        path = folder / "cubin" / f"{name}.cubin"
        content = _read(path, MAX_CUBIN_BYTES, "the bundle is damaged: copy it again")
        if file_digest(content) != name:
            raise BundleError(
                f"{path} is damaged: its content is not what its name says", "copy the bundle again"
            )
        return content

    return Operation(manifest, cubin, policy=policy, dtypes=dtypes, options=options)


def _read(path: Path, most_bytes: int, remedy: str) -> bytes:
    try:
        return read_at_most(path, most_bytes)
    except OSError as error:
        raise BundleError(f"{path} cannot be read: {error.strerror}", remedy) from None
