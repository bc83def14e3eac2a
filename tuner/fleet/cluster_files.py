"""A cluster's folder: the certificate that its processes know each other by, and what runs on each host.

One self-signed certificate is the authority, and everything shows it: a process belongs to the cluster if it has the
key. The folder is its user's alone. Other hosts need a copy of it, or see it on a shared filesystem.
"""

from __future__ import annotations

import os
import socket
import ssl
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tuner.core.errors import TunerError, UsageError
from tuner.core.files import make_private, refusal, whole_file
from tuner.core.messages import Record
from tuner.core.reading import read_at_most

if TYPE_CHECKING:
    from distributed.security import Security

MOST_BYTES = 1 << 20
"""Of a file in the folder: they have some hundreds."""
CERTIFICATE, KEY, LOG = "cluster.pem", "cluster-key.pem", "cluster.log"
MAX_PORT = 65535
NEEDED = "in the checkout: pip install '.[fleet]'"


class WorkerGpu(Record, frozen=True):
    """The GPU that a worker stands for."""

    device: str
    """``cuda:N`` on its host."""
    model: str
    uuid: str
    cc: int


class WorkerSettings(WorkerGpu, frozen=True):
    """A worker, which stands for one GPU."""

    neighbours: int
    """GPUs of this host that are in the cluster, this one included: they share the compilers."""
    shared: str = ""
    """Folder of this host's workers, for as long as they live."""


class HostSettings(Record, frozen=True):
    """What runs on a host."""

    scheduler: str
    """The address that is served, or joined."""
    serves: bool
    """Whether the scheduler runs here."""
    dashboard: int
    """Port of the scheduler's web page; 0 for any, negative for none."""
    host: str
    """The address at which workers listen; empty for the one that leads to the scheduler."""
    workers: tuple[WorkerSettings, ...]


def require_dask() -> None:
    """Check that the extra is installed.

    Raises:
        TunerError: it is not.
    """
    try:
        import cryptography  # noqa: F401
        import distributed  # noqa: F401
    except ImportError as error:
        raise TunerError(f"a cluster needs {error.name}", NEEDED) from None


def make_certificate(folder: Path) -> None:
    """Make the folder, a key and its certificate, unless they are there.

    Raises:
        TunerError: the folder cannot be made, or is another user's.
    """
    from distributed.security import Security

    try:
        make_private(folder)
        if why := refusal(folder):
            raise TunerError(f"{folder}: {why}", "name another --folder")
        if (folder / CERTIFICATE).exists() and (folder / KEY).exists():
            return
        made = Security.temporary()  # of a year
        with whole_file(folder / KEY, replace=True) as partial:
            partial.chmod(0o600)
            partial.write_text(made.tls_client_key)
        with whole_file(folder / CERTIFICATE, replace=True) as partial:
            partial.write_text(made.tls_client_cert)
    except OSError as error:
        raise TunerError(f"{folder}: {error.strerror or error}", "name another --folder") from None


def security_of(folder: Path, address: str) -> Security | None:
    """Return what a connection to an address shows and asks for; None where the address says ``tcp://``.

    Raises:
        UsageError: the certificate or its key is missing, or is none.
    """
    from cryptography import x509
    from distributed.security import Security

    if address.startswith("tcp://"):
        return None
    certificate, key = folder / CERTIFICATE, folder / KEY
    for file in (certificate, key):
        if not file.is_file():
            raise UsageError(
                f"there is no {file}", "copy the folder of the host on which `tune cluster start` made it"
            )
    if why := refusal(folder):
        raise UsageError(why, "copy the cluster's folder to one that only you can write")
    if key.stat().st_mode & 0o077:
        raise UsageError(
            f"other users can read {key}", f"chmod 600 {key}, and delete it if one may have done so"
        )
    try:
        text, secret = (read_at_most(file, MOST_BYTES) for file in (certificate, key))
        read = x509.load_pem_x509_certificate(text)
    except (OSError, ValueError):
        raise UsageError(
            f"{certificate} is no certificate, or its key none", "copy them from the cluster's folder"
        ) from None
    if b"ENCRYPTED" in secret:
        raise UsageError(f"{key} has a pass phrase", "copy it from the cluster's folder: there it has none")
    try:
        ssl.create_default_context(cafile=str(certificate)).load_cert_chain(certificate, key)
    except (ssl.SSLError, OSError) as error:
        raise UsageError(
            f"{certificate} and its key do not match: {error}", "copy both files of the cluster's folder"
        ) from None
    begins, ends, now = read.not_valid_before_utc, read.not_valid_after_utc, datetime.now(UTC)
    if not begins <= now <= ends:
        raise UsageError(
            f"{certificate} is valid from {begins:%Y-%m-%d %H:%M} to {ends:%Y-%m-%d %H:%M} UTC, and it is "
            f"{now:%Y-%m-%d %H:%M} on this host",
            "set this host's clock, or end the cluster, delete its folder, and start it anew",
        )
    own = {"cert": str(certificate), "key": str(key)}
    roles = {f"tls_{role}_{of}": own[of] for role in ("client", "worker", "scheduler") for of in own}
    return Security(require_encryption=True, tls_ca_file=str(certificate), **roles)


def full_address(text: str) -> str:
    """Return an address with its scheme and port.

    Raises:
        UsageError: it is none.
    """
    scheme, _, rest = text.rpartition("://")
    host, colon, port = rest.rpartition(":")
    numbered = not colon or (port.isascii() and port.isdigit() and 0 < int(port[:6]) <= MAX_PORT)
    if scheme not in ("", "tls", "tcp") or not (host if colon else rest) or not numbered or "@" in rest:
        raise UsageError(
            f"{text.rpartition('@')[2]!r} is no address",
            "write HOST:PORT, as `tune cluster start` has said it",
        )
    return f"{scheme or 'tls'}://{rest if colon else f'{rest}:8786'}"


def _settings_file(folder: Path) -> Path:
    return folder / f"{socket.gethostname()}.json"


def write_settings(folder: Path, settings: HostSettings) -> None:
    """Write down what is to run on this host."""
    with whole_file(_settings_file(folder), replace=True) as partial:
        partial.write_bytes(msgspec.json.encode(settings))


def read_settings(folder: Path) -> HostSettings | None:
    """Return what runs on this host; None if nothing was started, or it has ended."""
    with suppress(OSError, msgspec.MsgspecError):
        settings = msgspec.json.decode(read_at_most(_settings_file(folder), MOST_BYTES), type=HostSettings)
        return settings if running(folder) else None
    return None


def remove_settings(folder: Path) -> None:
    """Forget what ran on this host."""
    _settings_file(folder).unlink(missing_ok=True)


def running(folder: Path) -> list[int]:
    """Return the processes that look after this folder's cluster on this host, whatever is recorded of it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            arguments = (process / "cmdline").read_bytes().split(b"\0")
            if b"tuner.fleet.cluster_host" in arguments and os.fsencode(folder.resolve()) in arguments:
                found.append(int(process.name))
    return found


def default_address(folder: Path) -> str:
    """Return the scheduler's address as it was started here.

    Raises:
        UsageError: nothing was started here.
    """
    settings = read_settings(folder)
    if settings is None:
        raise UsageError(
            f"no cluster of the folder {folder} runs on this host",
            "start one with `tune cluster start`, or name the --scheduler",
        )
    return settings.scheduler
