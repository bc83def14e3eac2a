"""What ``dask scheduler --preload`` loads, and a worker, too: how long a connection may say nothing.

Dask waits without end for the TLS handshake of whatever connects, so that anyone who reaches the port could hold all
file descriptors of the process. Only after the handshake has a peer shown the cluster's key.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Scheduler

HANDSHAKE_S = 5.0
"""It takes two round trips, some milliseconds; a scheduler that distributes many problems may be busy for a second."""
SILENT_S = 30
"""The same for a request of the dashboard, whose pages hold connections open only as websockets."""


def limit_handshakes() -> None:
    """Have this process close a connection whose TLS handshake takes longer than :data:`HANDSHAKE_S`."""
    from distributed.comm.tcp import TLSListener

    wait = TLSListener._prepare_stream  # the only place that sees a connection before its handshake

    async def prepare(self: TLSListener, stream: Any, address: Any) -> Any:
        try:
            return await asyncio.wait_for(wait(self, stream, address), HANDSHAKE_S)
        except TimeoutError:
            stream.close()
            return None

    TLSListener._prepare_stream = prepare


def dask_setup(scheduler: Scheduler) -> None:
    """Limit a scheduler's connections."""
    limit_handshakes()
    limits = scheduler.http_server.conn_params
    limits.header_timeout = limits.body_timeout = SILENT_S
