"""The folders of the package's data: beside the package in a checkout, inside it in a wheel."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

DATABASE = Path("results/tuning.db")
"""The default database, relative to the working folder."""

_PACKAGE = Path(__file__).resolve().parents[1]


def _data(inside: str, beside: str) -> Path:
    installed = _PACKAGE / "data" / inside
    return installed if installed.exists() else _PACKAGE.parent / beside


def package() -> Path:
    """Return the folder of the package itself."""
    return _PACKAGE


def templates() -> Path:
    """Return the folder of the built-in Jinja templates."""
    return _data("templates", "templates")


def search_spaces() -> Path:
    """Return the folder of the built-in kernels' TOML files."""
    return _data("search_spaces", "search_spaces")


def builtin_kernels() -> list[str]:
    """Return the names of the kernels that come with the package."""
    stems = {path.stem for path in search_spaces().glob("*.toml")}
    return sorted(stem for stem in stems if "." not in stem)  # others have initial configurations


def agents_page() -> Path:
    """Return the page for programs that write kernels."""
    return _data("docs/agents.md", "docs/agents.md")


def recordings() -> Path:
    """Return the folder of the recorded spaces that come with the package."""
    return _data("recorded", "results/recorded")


def example(kernel: str) -> Path:
    """Return the file of the example kernel of a name; examples are in a checkout alone."""
    return _PACKAGE.parent / "docs/examples" / kernel / f"{kernel}.toml"


def cache() -> Path:
    """Return the folder of the cache: ``$XDG_CACHE_HOME/kernel-tune`` or ``~/.cache/kernel-tune``.

    A user without a home, such as an arbitrary number in a container, has one in the folder for temporary files.
    """
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "kernel-tune"
    if homeless():
        return Path(tempfile.gettempdir()) / f"kernel-tune-{os.getuid()}"
    return Path.home() / ".cache" / "kernel-tune"


def homeless() -> bool:
    """Return whether nothing says where this user's files belong."""
    if os.environ.get("XDG_CACHE_HOME"):
        return False
    try:
        return not Path.home().is_absolute()
    except RuntimeError:
        return True


def emulator() -> Path:
    """Return the folder of the emulator's compiled part in the cache."""
    return cache() / "emulator"


def cluster() -> Path:
    """Return the folder of a cluster, unless the user names one."""
    return cache() / "cluster"


def cubins() -> Path:
    """Return the folder of compiled kernels in the cache."""
    return cache() / "cubins"
