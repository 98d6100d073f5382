"""When a connection of a worker to another host is broken, and when what it served is lost."""

from __future__ import annotations

import dataclasses

__all__ = ["Links"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Links:
    """Limits of the links of a worker.

    Args:
        ask_seconds: a host that has not answered for so long is asked again; 0 for never.
        asks: so often; without an answer the connection is broken.
        resume_seconds: a broken link to the dispatcher is taken up again within this; 0: no limit.
        peer_seconds: a worker of another host is lost whose host has not acknowledged bytes for so
            long; 0: no limit.
    """

    ask_seconds: float = 5.0
    asks: int = 3
    resume_seconds: float = 10.0
    peer_seconds: float = 20.0
