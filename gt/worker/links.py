"""Time limits of a worker's connections to other hosts."""

from __future__ import annotations

import dataclasses

__all__ = ["Links"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Links:
    """Time limits of the links of a worker.

    Args:
        ask_seconds: time without an answer after which a host is asked again; 0 for never.
        asks: number of questions without an answer after which the connection is broken.
        resume_seconds: time within which a broken link to the dispatcher, or to a worker of another
            host, is resumed; 0 for no limit.
        peer_seconds: time without acknowledged bytes after which the connection to another host's
            worker is broken; 0 for no limit.
    """

    ask_seconds: float = 5.0
    asks: int = 3
    resume_seconds: float = 10.0
    peer_seconds: float = 20.0
